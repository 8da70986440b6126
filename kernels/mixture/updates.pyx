"""Kernels of the global update: gamma, normal and Dirichlet draws with keys, and marginal likelihoods of columns.

Every draw has its own id within a stream, and its random numbers are those of Philox blocks (id, sub + attempt 2^32,
cycle, chain) under the key (seed, purpose), so draws can be dealt to ranks in any way. gammas.h has the draws,
dirichlet.h the categorical columns, grids.h real and count ones, lines.h real ones in lines; twin_updates.py is the
same in plain Python. No result bit depends on the instruction set (MPIBAYES_ISA).
"""

import numpy as np

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from libc.stdlib cimport free, malloc

from mpibayes.kernels.common.machine cimport address

from mpibayes.kernels.common.machine import ISA_NUMBER
from mpibayes.kernels.common.weights import pick


cdef extern from "updates.h" nogil:
    int kernel_isa

    ctypedef struct stream_key:
        uint64_t seed, purpose, sub, cycle, chain

    void kernel_log_gammas(const stream_key *, const double *, const uint64_t *, int64_t, double *)
    void kernel_normals(const stream_key *, const uint64_t *, int64_t, double *)
    void kernel_draw_levels(const stream_key *, const int32_t *, const double *, const uint8_t *, const int64_t *, int64_t,
                            int64_t, int64_t, float *, double *, uint64_t *, int64_t, int32_t *, int64_t *, double *)
    void kernel_marginals(const int32_t *, const double *, const int64_t *, int64_t, int64_t, int64_t,
                          const double *const *, int64_t, double *, double *)
    void kernel_grid_scores(const int32_t *, int64_t, int64_t, int64_t, const double *, int64_t, const double *, int64_t,
                            int64_t *, int32_t *, double *, int64_t *, int64_t, double *)
    void kernel_grid_scores_of_base(const int32_t *, int64_t, int64_t, int64_t, const double *, int64_t, const double *,
                                    int64_t *, double *)
    ctypedef struct linked_t:
        void *codes
        int64_t stride, index, first, n_contexts
        uint64_t inverse
        uint32_t n_levels
        int is_wide
        const int64_t *context
        const float *table

    void kernel_fill_cells(const stream_key *, uint64_t, const int64_t *, const int32_t *, int64_t, const linked_t *,
                           const linked_t *, const linked_t *, int64_t, int64_t, int32_t *, int64_t, uint64_t *,
                           double *)
    enum: FILL_KEPT

    ctypedef struct numbers_t:
        int64_t n_clusters
        const int64_t *n
        const double *mean
        const double *scatter

    ctypedef struct grid_t:
        int64_t width
        const int64_t *length
        const double *points

    ctypedef struct lines_t:
        int64_t n_points, n_parents, n_clusters
        const double *points
        const double *square
        const double *middle
        double mean
        const double *n
        const double *u
        const double *x
        const double *uu
        const double *ux
        const double *xx

    void kernel_line_marginals(const lines_t *, double *, double *)
    void kernel_number_marginals(const numbers_t *, const double *, int64_t, int64_t, int64_t, double *, double *)
    int kernel_draw_numbers(const numbers_t *, double *, int64_t, int64_t, int64_t, const grid_t *, const double *,
                            double *)
    void kernel_keep_log_gammas(double, int64_t, double *)
    void kernel_shares(const int32_t *, const int64_t *, int64_t, int64_t, int64_t, double, const double *,
                       const double *, int64_t, double *)
    void kernel_log_sums(double *, int64_t, int64_t, double *)
    void kernel_log_product(const double *, const double *, int64_t, int64_t, int64_t, double *)
    void draw_tables_of_rows "draw_tables"(const stream_key *, const int32_t *, const double *, int64_t, int64_t, int64_t *)

cdef enum:
    KEPT = 1024  # log Gamma functions of counts below this, a power of 2, are looked up
    MOST_KEPT = 1024  # most pseudo-counts with such a table


kernel_isa = ISA_NUMBER
cdef enum:
    TOTALS = 256  # counts of a column's cells below this are scored once for columns of equally many levels
TABULATED = 2048  # log rising factorials are looked up below this count; 16 at least


cdef stream_key _key(seed, purpose, sub, cycle, chain):
    cdef stream_key key
    key.seed, key.purpose, key.sub, key.cycle, key.chain = seed, purpose, sub, cycle, chain
    return key


def _padded(array, dtype, fill):
    """Return a flat copy of an array, padded to a multiple of 8 values."""
    array = np.asarray(array)
    out = np.full(-(-array.size // 8) * 8, fill, dtype)
    out[:array.size] = array.ravel()
    return out


cdef object _named(ids):
    """Return a flat copy of ids, padded with 0 to a multiple of 8."""
    ids = np.asarray(ids)
    cdef int64_t n = ids.size
    out = np.empty((n + 7) & ~7, np.uint64)
    out[:n] = ids.ravel()
    out[n:] = 0
    return out


def log_gammas(shape, ids, *, seed, purpose, sub, cycle, chain):
    """Draw logs of Gamma(shape, 1) variables, float64 with the shape of `shape`, whose elements are positive.

    ids: integers of the same shape. Nothing underflows, however small a shape (docs/math.md 2.1).
    """
    cdef stream_key key = _key(seed, purpose, sub, cycle, chain)
    shape, named = np.asarray(shape, np.float64, order="C"), _named(ids)
    cdef int64_t size = shape.size, n = named.size, i
    if np.size(ids) != size:
        raise ValueError(f"{np.size(ids)} ids for {size} draws")
    out = np.empty(n)
    cdef const double *of = <const double *>address(shape)
    cdef const uint64_t *id = <const uint64_t *>address(named)
    cdef double *drawn = <double *>address(out)
    for i in range(size):
        if not 0 < of[i] < INFINITY:
            raise FloatingPointError("a gamma draw needs a positive, finite shape")
        drawn[i] = of[i]
    for i in range(size, n):
        drawn[i] = 1.0
    with nogil:
        kernel_log_gammas(&key, drawn, id, n, drawn)
    return out[:size].reshape(shape.shape)


def normals(ids, *, seed, purpose, sub, cycle, chain):
    """Draw standard normals, float64 with the shape of `ids`."""
    cdef stream_key key = _key(seed, purpose, sub, cycle, chain)
    named = _named(ids)
    cdef int64_t n = named.size
    out = np.empty(n)
    cdef const uint64_t *id = <const uint64_t *>address(named)
    cdef double *drawn = <double *>address(out)
    with nogil:
        kernel_normals(&key, id, n, drawn)
    return out[:np.size(ids)].reshape(np.shape(ids))


cdef int _check_columns(const int32_t[:, ::1] levels, const double[::1] beta, const int64_t[::1] offsets,
                        int64_t first, int64_t last) except -1:
    if not 0 <= first <= last < offsets.shape[0] or offsets[offsets.shape[0] - 1] != levels.shape[0] \
            or beta.shape[0] != levels.shape[0]:
        raise ValueError("levels, pseudo-counts, offsets and the range of columns do not fit together")
    return 0


def draw_levels(const int32_t[:, ::1] levels, const double[::1] beta, const int64_t[::1] offsets, int64_t first,
                int64_t last, const uint8_t[::1] met=None, *, seed, purpose, sub, cycle, chain):
    """Draw log level probabilities of the columns first..last-1 in every cluster given their cells.

    levels (L, K) int32, beta (L,) pseudo-counts, offsets (C + 1,): for all columns; the last level row of a column
    counts its missing cells. met (L,): 0 for levels that no row has, of which only the total is drawn. Returns float32
    (level rows of these columns, K), 0 in missing rows and those that are not met.
    """
    cdef stream_key key = _key(seed, purpose, sub, cycle, chain)
    cdef int64_t n_clusters = levels.shape[1], most = 0, c, l
    _check_columns(levels, beta, offsets, first, last)
    if met is not None and met.shape[0] != levels.shape[0]:
        raise ValueError("levels and the mask of those that are met do not fit together")
    for c in range(first, last):
        most = max(most, offsets[c + 1] - offsets[c])
    for l in range(offsets[first], offsets[last]):
        if not -INFINITY < beta[l] < INFINITY:
            raise FloatingPointError("pseudo-counts have to be finite")
    form = offsets[last] - offsets[first], n_clusters
    out = np.empty(form, np.float32) if met is None else np.zeros(form, np.float32)
    cdef float[:, ::1] table = out
    cdef int64_t room = max(8 * most, 512)
    cdef double[::1] shape = np.zeros(room + 16)
    cdef uint64_t[::1] ids = np.empty(room + 16, np.uint64)
    cdef const uint8_t *of_rows = &met[0] if met is not None else NULL
    cdef int32_t[::1] rows = np.empty(out.shape[0] + 1, np.int32)
    cdef int64_t[::1] start = np.empty(last - first + 1, np.int64)
    cdef double[::1] rest = np.empty(last - first + 1)
    if out.size:
        with nogil:
            kernel_draw_levels(&key, &levels[0, 0], &beta[0], of_rows, &offsets[0], first, last, n_clusters,
                               &table[0, 0], &shape[0], &ids[0], room, &rows[0], &start[0], &rest[0])
    return out


cdef int _describe(linked_t *of, given, int64_t n_counts) except -1:
    """Set all of a column but its codes."""
    block, of.index, of.n_levels, of.first, context, table, of.n_contexts = given
    cdef const int64_t[::1] contexts = context
    cdef const float[:, :, ::1] log_p = table
    if of.first < 0 or of.first + of.n_contexts * (of.n_levels + 1) > n_counts \
            or (context is not None and contexts.shape[0] < of.n_levels):
        raise ValueError("rows, levels and contexts do not fit together")
    of.inverse = (<uint64_t>1 << 32) // (of.n_levels + 1) + 1
    of.is_wide = block == "codes16"
    of.context = &contexts[0] if context is not None else NULL
    of.table = &log_p[0, 0, 0] if table is not None else NULL
    return 0


cdef bint _within(const int64_t[::1] contexts, int64_t n):
    cdef int64_t v
    for v in range(contexts.shape[0]):
        if not 0 <= contexts[v] < n:
            return False
    return True


def fill_cells(shards, own, parent, children, int32_t[:, ::1] change, *, seed, purpose, sub, cycle, chain):
    """Draw the levels of a column's missing cells given the cells of its parent and its children, in place; add the
    changes to the counts `change`, by level row and cluster (L, K). Rows with a negative label keep theirs.

    shards: (coded rows, those that lack the cell int64, labels of all int32, the number of the first) each. A column is
    (array of codes in the rows, index in it, number of levels, row of its code 0 in `change`, context of each level int64
    for its children, table, number of contexts); parent: one, or None, without table or counts. Tables have log
    probabilities, float32: by context, cluster and level of `own`, by cluster, level and context of children. Cells that
    are filled have levels before, and so have those of their parents.
    """
    cdef stream_key key = _key(seed, purpose, sub, cycle, chain)
    cdef int64_t n_children = len(children), n_clusters = change.shape[1]
    cdef bint has_parent = parent is not None
    cdef linked_t *of
    if own[5].shape != (own[6], n_clusters, own[2]) \
            or any(child[5].shape != (n_clusters, child[2], child[6]) for child in children) \
            or not _within(own[4], min([child[6] for child in children], default=2**31)) \
            or (has_parent and not _within(parent[4], own[6])):
        raise ValueError("tables and contexts do not fit together")
    cdef int64_t n_cells = sum([len(at) for _, at, _, _ in shards]), n_kept = 1
    while n_kept < min(FILL_KEPT, n_cells):
        n_kept *= 2
    cdef double[::1] sums = np.empty(n_kept * (own[2] + 8))
    cdef uint64_t[::1] keys = np.full(n_kept, 2**64 - 1, np.uint64)
    of = <linked_t *>malloc((2 + n_children) * sizeof(linked_t))
    if of == NULL:
        raise MemoryError
    try:
        for i, given in enumerate((own, *children, *([(*parent[:3], 0, parent[4], None, 0)] if has_parent else ()))):
            _describe(of + <int64_t>i, given, change.shape[0])
        for rows, at, z, first in shards:
            _fill(&key, first, rows.codes8, rows.codes16, at, z, of, has_parent, n_children, change, keys, sums)
    finally:
        free(of)


cdef int _fill(const stream_key *key, uint64_t first, uint8_t[:, ::1] narrow, uint16_t[:, ::1] wide,
               const int64_t[::1] at, const int32_t[::1] z, linked_t *of, bint has_parent, int64_t n_children,
               int32_t[:, ::1] change, uint64_t[::1] keys, double[::1] sums) except -1:
    cdef int64_t n_rows = z.shape[0], i
    for i in range(at.shape[0]):
        if not 0 <= at[i] < n_rows or z[at[i]] >= change.shape[1]:
            raise ValueError("rows and labels do not fit together")
    for i in range(1 + n_children + has_parent):
        of[i].stride = wide.shape[1] if of[i].is_wide else narrow.shape[1]
        if not 0 <= of[i].index < of[i].stride or narrow.shape[0] != n_rows or wide.shape[0] != n_rows:
            raise ValueError("rows, levels and contexts do not fit together")
        of[i].codes = <void *>&wide[0, of[i].index] if of[i].is_wide else <void *>&narrow[0, of[i].index]
    with nogil:
        kernel_fill_cells(key, first, &at[0] if at.shape[0] else NULL, &z[0], at.shape[0], of,
                          of + 1 + n_children if has_parent else NULL, of + 1, n_children, change.shape[1],
                          &change[0, 0], keys.shape[0], &keys[0], &sums[0])
    return 0


def met(const int32_t[:, ::1] levels):
    """Return 1 for the level rows with any cell, else 0, uint8 (L,)."""
    out = np.zeros(levels.shape[0], np.uint8)
    cdef uint8_t[::1] view = out
    cdef int64_t l, k, K = levels.shape[1], whole = K & ~<int64_t>7
    cdef int32_t any
    cdef const int32_t *row
    for l in range(levels.shape[0] if K else 0):
        row, any = &levels[l, 0], 0
        for k in range(0, whole, 8):  # mostly none
            any |= row[k] | row[k + 1] | row[k + 2] | row[k + 3] | row[k + 4] | row[k + 5] | row[k + 6] | row[k + 7]
        for k in range(whole, K):
            any |= row[k]
        view[l] = any != 0
    return out


def log_marginals(const int32_t[:, ::1] levels, const double[::1] beta, const int64_t[::1] offsets, int64_t first,
                  int64_t last):
    """Log marginal likelihood of the columns first..last-1 (docs/math.md 1.3): summed over clusters (last - first,),
    and over these columns (K,). Arguments as in `draw_levels`."""
    cdef int64_t n_clusters = levels.shape[1]
    _check_columns(levels, beta, offsets, first, last)
    by_column, by_cluster = np.zeros(last - first), np.zeros((n_clusters + 7) // 8 * 8)
    cdef double[::1] column = by_column, cluster = by_cluster
    cdef int64_t[::1] kept = _tables_kept(beta, offsets, first, last)
    if last > first and n_clusters:
        with nogil:
            kernel_marginals(&levels[0, 0], &beta[0], &offsets[0], first, last, n_clusters,
                             <const double *const *>&kept[0], KEPT, &column[0], &cluster[0])
    return by_column, by_cluster[:n_clusters]


def log_marginals_of_unions(const int32_t[:, ::1] levels, const double[::1] beta, const int64_t[::1] offsets, clusters):
    """Log marginal likelihood, over all columns, of the unions of each of `clusters` (N,) with every cluster, (N, K).
    Other arguments as in `draw_levels`."""
    cdef int64_t n_clusters = levels.shape[1], n_rows = levels.shape[0], last = offsets.shape[0] - 1, i, k, l
    cdef const int64_t[::1] one = np.asarray(clusters, np.int64)
    cdef int32_t more
    _check_columns(levels, beta, offsets, 0, last)
    for i in range(one.shape[0]):
        if not 0 <= one[i] < n_clusters:
            raise ValueError(f"there is no cluster {one[i]}")
    by_column, by_cluster = np.empty(last), np.zeros((one.shape[0], (n_clusters + 7) // 8 * 8))
    cdef double[::1] column = by_column
    cdef double[:, ::1] cluster = by_cluster
    cdef int32_t[:, ::1] union = np.empty((n_rows, n_clusters), np.int32)
    cdef int64_t[::1] kept = _tables_kept(beta, offsets, 0, last)
    if last and n_clusters:
        with nogil:
            for i in range(one.shape[0]):
                for l in range(n_rows):
                    more = levels[l, one[i]]
                    for k in range(n_clusters):
                        union[l, k] = levels[l, k] + more
                for l in range(last):
                    column[l] = 0.0
                kernel_marginals(&union[0, 0], &beta[0], &offsets[0], 0, last, n_clusters,
                                 <const double *const *>&kept[0], KEPT, &column[0], &cluster[i, 0])
    return by_cluster[:, :n_clusters]


cdef _tables_kept(const double[::1] beta, const int64_t[::1] offsets, int64_t first, int64_t last):
    """Addresses of each column's tables of log Gamma functions, for a level and for a total; 0 without a table."""
    cdef int64_t[::1] kept = np.zeros(2 * (last - first), np.int64)
    cdef int64_t c, l, level_table = 0, total_table = 0
    cdef double total, last_beta = -1.0, of_last = -1.0
    for c in range(first, last):
        total = 0.0
        for l in range(offsets[c], offsets[c + 1] - 1):
            total += beta[l]
            if beta[l] != beta[offsets[c]]:
                break
        else:
            if total != of_last or beta[offsets[c]] != last_beta:  # else a context of the same column
                last_beta, of_last = beta[offsets[c]], total
                level_table = <int64_t>_log_gammas_kept(last_beta)
                total_table = <int64_t>_log_gammas_kept(total)
            kept[2 * (c - first)], kept[2 * (c - first) + 1] = level_table, total_table
    return kept


cdef dict _kept = {}  # by pseudo-count


cdef const double *_log_gammas_kept(double a) except? NULL:
    """Table of log Gamma at whole numbers plus a pseudo-count; NULL if too many tables are kept."""
    found = _kept.get(a)
    if found is None:
        if len(_kept) == MOST_KEPT:
            return NULL
        found = _kept[a] = np.empty(KEPT)
        kernel_keep_log_gammas(a, KEPT, <double *>address(found))
    return <const double *>address(found)


cdef class Shares:
    """Probability of the division of cells between two clusters if each level of a column, and missing, has its own
    share. spreads: shares are Beta(spread, spread), with one spread per column, all equally likely."""

    cdef double[::1] _spread
    cdef double[:, :, ::1] _kept  # [spread][1, 2 times it][whole number]: log Gamma of their sum

    def __init__(self, spreads):
        self._spread = np.array(spreads, np.float64)
        self._kept = np.empty((len(spreads), 2, KEPT))
        cdef int64_t i
        for i in range(len(spreads)):
            kernel_keep_log_gammas(self._spread[i], KEPT, &self._kept[i, 0, 0])
            kernel_keep_log_gammas(self._spread[i] + self._spread[i], KEPT, &self._kept[i, 1, 0])

    def log_sums(self, const int32_t[:, ::1] levels, const int64_t[::1] offsets, labels):
        """Log of the sum, over columns and spreads, of the probability of the division of a column's cells between two
        clusters: (B, K) float64, for each of B labels and every cluster. levels, offsets: as in `draw_levels`."""
        cdef int64_t n_clusters = levels.shape[1], n_columns = offsets.shape[0] - 1, width = (n_clusters + 7) // 8 * 8
        cdef int64_t n_spreads = self._spread.shape[0], b, i, label
        if offsets[n_columns] != levels.shape[0] or n_columns < 1:
            raise ValueError("levels and offsets do not fit together")
        out, scores = np.empty((len(labels), width)), np.empty((n_spreads, n_columns, width))
        cdef double[:, ::1] result = out
        cdef double[:, :, ::1] score = scores
        for b in range(len(labels)):
            label = labels[b]
            if not 0 <= label < n_clusters:
                raise ValueError(f"there is no cluster {label}: levels and labels do not fit together")
            with nogil:
                for i in range(n_spreads):
                    kernel_shares(&levels[0, 0], &offsets[0], n_columns, n_clusters, label, self._spread[i],
                                  &self._kept[i, 0, 0], &self._kept[i, 1, 0], KEPT, &score[i, 0, 0])
                kernel_log_sums(&score[0, 0, 0], n_spreads * n_columns, width, &result[b, 0])
        return out[:, :n_clusters]


def log_product(a, b):
    """Log of the product of two matrices of numbers that are not negative, given their logs: (n, m) from (n, l), (l, m)."""
    (n, l), m = a.shape, b.shape[1]
    width = (m + 7) // 8 * 8
    padded, out = np.full((l, width), -np.inf), np.empty((n, width))
    padded[:, :m] = b
    cdef const double[:, ::1] left = np.ascontiguousarray(a, np.float64), right = padded
    cdef double[:, ::1] result = out
    if right.shape[0] != left.shape[1]:
        raise ValueError("matrices do not fit together")
    if not l or not out.size:
        return np.full((n, m), -np.inf)
    with nogil:
        kernel_log_product(&left[0, 0], &right[0, 0], left.shape[0], left.shape[1], right.shape[1], &result[0, 0])
    return out[:, :m]


def draw_tables(const int32_t[:, ::1] levels, const double[::1] beta, *, seed, purpose, sub, cycle, chain):
    """Draw numbers of tables of Chinese restaurants, one per level row and cluster, summed over clusters: (L,) int64.

    levels (L, K) int32: customers; beta (L,): concentrations, 0 in rows to leave out. The id of a draw is the row.
    """
    cdef stream_key key = _key(seed, purpose, sub, cycle, chain)
    cdef int64_t n_rows = levels.shape[0], n_clusters = levels.shape[1]
    if beta.shape[0] != n_rows:
        raise ValueError("levels and pseudo-counts do not fit together")
    out = np.zeros(n_rows, np.int64)
    cdef int64_t[::1] view = out
    if n_rows and n_clusters:
        with nogil:
            draw_tables_of_rows(&key, &levels[0, 0], &beta[0], n_rows, n_clusters, &view[0])
    return out


class Grid:
    """Pseudo-counts that all levels of a column share, and their log rising factorials; grid (G,), in any order.

    totals: by number of levels, the parts of a score that depend on a column's number of cells, and their tags, as
    `grid_scores` has found them so far."""

    MOST_TOTALS = 64

    def __init__(self, grid):
        self.points = _padded(grid, np.float64, 1.0)
        self.rising = np.zeros((TABULATED, len(self.points)))
        np.cumsum(np.log(self.points + np.arange(TABULATED - 1)[:, None]), axis=0, out=self.rising[1:])
        self.n, self.totals = len(grid), {}

    def totals_of(self, n_levels):
        if n_levels not in self.totals:
            if len(self.totals) >= self.MOST_TOTALS:
                self.totals.clear()
            form = TOTALS + 1, len(self.points)
            self.totals[n_levels] = np.empty(form), np.zeros(form, np.int64)
        return self.totals[n_levels]


def grid_scores(const int32_t[:, ::1] levels, const int64_t[::1] offsets, columns, grid, base=None):
    """Log marginal likelihood of `columns` at every point of a Grid, (len(columns), G) float64 (docs/math.md 2.4).

    base (L,) float64: multiplies a level's pseudo-count; None: all ones.
    """
    cdef int64_t n_clusters = levels.shape[1], most = 0, c, i
    cdef const double[::1] points = grid.points
    cdef const double[:, ::1] rising = grid.rising
    out = np.zeros((len(columns), len(grid.points)))
    cdef double[:, ::1] view = out
    cdef const int64_t[::1] which = np.asarray(columns, np.int64)
    for c in range(offsets.shape[0] - 1):
        most = max(most, offsets[c + 1] - offsets[c])
    cdef int64_t[::1] observed = np.empty(n_clusters + 1, np.int64)
    cdef int32_t[::1] found = np.empty(most * n_clusters + 1, np.int32)
    cdef const double[::1] of_level = np.zeros(0) if base is None else base
    cdef bint even = base is None
    cdef int64_t n_levels = -1, stop
    cdef double[:, ::1] of_totals
    cdef int64_t[:, ::1] totals_of
    if not even and of_level.shape[0] != levels.shape[0]:
        raise ValueError("levels and base do not fit together")
    if offsets[offsets.shape[0] - 1] != levels.shape[0]:
        raise ValueError("levels and offsets do not fit together")
    for i in range(which.shape[0]):
        if not 0 <= which[i] < offsets.shape[0] - 1:
            raise ValueError(f"there is no column {which[i]}")
    i = 0
    while i < which.shape[0] and n_clusters:
        stop = which.shape[0]
        if even:  # columns of equally many levels share totals
            stop, n_levels = i, offsets[which[i] + 1] - 1 - offsets[which[i]]
            while stop < which.shape[0] and offsets[which[stop] + 1] - 1 - offsets[which[stop]] == n_levels:
                stop += 1
            of_totals, totals_of = grid.totals_of(n_levels)
        with nogil:
            for i in range(i, stop):
                c = which[i]
                if even:
                    kernel_grid_scores(&levels[0, 0], offsets[c], offsets[c + 1] - 1, n_clusters, &points[0],
                                       points.shape[0], &rising[0, 0], rising.shape[0], &observed[0], &found[0],
                                       &of_totals[0, 0], &totals_of[0, 0], TOTALS, &view[i, 0])
                else:
                    kernel_grid_scores_of_base(&levels[0, 0], offsets[c], offsets[c + 1] - 1, n_clusters, &points[0],
                                               points.shape[0], &of_level[0], &observed[0], &view[i, 0])
        i = stop
    return out[:, :grid.n]


cdef class _Numbers:
    """Statistics of real columns (n, mean, scatter), or of count columns (n, sum), as the loops read them."""

    cdef numbers_t c
    cdef object arrays
    cdef double *hyper
    cdef int64_t n_hyper

    def __cinit__(self, statistics, hyper, int64_t first, int64_t last):
        self.arrays = [np.ascontiguousarray(a, t) for a, t in zip(statistics, (np.int64, np.float64, np.float64))]
        form, self.n_hyper = self.arrays[0].shape, 4 if len(self.arrays) == 3 else 2
        if self.arrays[1].shape != form or self.arrays[len(self.arrays) - 1].shape != form:
            raise ValueError("the statistics have different forms")
        if hyper.shape != (form[0], self.n_hyper) or not 0 <= first <= last <= form[0]:
            raise ValueError("statistics, hyperparameters and the range of columns do not fit together")
        self.hyper, self.c.n_clusters = <double *>address(hyper), form[1]
        self.c.n, self.c.mean = <const int64_t *>address(self.arrays[0]), <const double *>address(self.arrays[1])
        if len(self.arrays) == 3:  # not NULL: with no clusters these are still real columns
            self.c.scatter = <const double *>address(self.arrays[2]) if self.c.n else <const double *>1


def number_marginals(statistics, hyper, int64_t first, int64_t last):
    """Log marginal likelihood of the columns first..last-1 (docs/math.md 1.4, 1.5): summed over clusters (last -
    first,), and over these columns (K,).

    statistics: of real columns (n, mean, scatter), of count columns (n, sum), each (C, K), n int64, the others float64;
    hyper: float64 (C, 4): mean, kappa, nu, variance, or (C, 2): shape, rate. Counts omit their 1 / x!.
    """
    hyper = np.ascontiguousarray(hyper, np.float64)
    cdef _Numbers s = _Numbers(statistics, hyper, first, last)
    by_column, by_cluster = np.zeros(last - first), np.zeros(s.c.n_clusters)
    cdef double *column = <double *>address(by_column)
    cdef double *cluster = <double *>address(by_cluster)
    if last > first and s.c.n_clusters:
        with nogil:
            kernel_number_marginals(&s.c, s.hyper, s.n_hyper, first, last, column, cluster)
    return by_column, by_cluster


def line_marginals(points, square, middle, double mean, n, u, x, uu, ux, xx):
    """Log marginal likelihood of a real column's cells given those of a parent (docs/math.md 1.10): at each of G points
    under each of P parents, summed over clusters (G, P), and over points and parents (K,).

    points (G, 3): kappa, nu, variance. square, middle (P,): the parents' prior variances and means. mean: the column's
    prior mean. n (K,): number of cells. u (P, K), x (K,): means of the parents and of the column. uu (P, K), ux (P, K),
    xx (K,): sums of squares and products about the means.
    """
    cdef lines_t s
    arrays = [np.ascontiguousarray(a, np.float64) for a in (points, square, middle, n, u, x, uu, ux, xx)]
    g, p, k = len(arrays[0]), len(arrays[1]), len(arrays[3])
    if [a.shape for a in arrays] != [(g, 3), (p,), (p,), (k,), (p, k), (k,), (p, k), (p, k), (k,)]:
        raise ValueError("points, parents and moments do not fit together")
    by_parent, by_cluster = np.zeros((g, p)), np.zeros(k)
    if by_parent.size and k:
        s.n_points, s.n_parents, s.n_clusters, s.mean = g, p, k, mean
        s.points, s.square, s.middle = <const double *>address(arrays[0]), <const double *>address(arrays[1]), \
            <const double *>address(arrays[2])
        s.n, s.u, s.x = <const double *>address(arrays[3]), <const double *>address(arrays[4]), \
            <const double *>address(arrays[5])
        s.uu, s.ux, s.xx = <const double *>address(arrays[6]), <const double *>address(arrays[7]), \
            <const double *>address(arrays[8])
        kernel_line_marginals(&s, <double *>address(by_parent), <double *>address(by_cluster))
    return by_parent, by_cluster


def draw_line(double[::1] hyper, grids, parent, double mean, n, u, x, uu, ux, xx, const double[::1] uniforms):
    """Draw the hyperparameters of a column in a line, kappa, nu and variance, from their grids, in place: each given the
    others, in order, with a uniform for each grid of more than one point.

    parent: its prior variance and mean; other arguments as in `line_marginals`, of one parent, (K,) each. Raises
    FloatingPointError if the weight of a point is not a number.
    """
    cdef lines_t s
    cdef int64_t most = max(len(grid) for grid in grids), f, i, chosen, done = 0
    cdef const double[::1] of_parent = np.array(parent, np.float64), grid
    arrays = [np.ascontiguousarray(a, np.float64) for a in (n, u, x, uu, ux, xx)]
    if {a.shape for a in arrays} != {(len(arrays[0]),)} or hyper.shape[0] != 3 or len(grids) != 3:
        raise ValueError("hyperparameters, grids and moments do not fit together")
    cdef double[:, ::1] points = np.empty((most, 3))
    cdef double[::1] score = np.empty(most), by_cluster = np.empty(len(arrays[0]) + 1)
    s.n_parents, s.n_clusters, s.mean, s.points = 1, len(arrays[0]), mean, &points[0, 0]
    s.square, s.middle = &of_parent[0], &of_parent[1]
    s.n, s.u, s.x = <const double *>address(arrays[0]), <const double *>address(arrays[1]), \
        <const double *>address(arrays[2])
    s.uu, s.ux, s.xx = <const double *>address(arrays[3]), <const double *>address(arrays[4]), \
        <const double *>address(arrays[5])
    for f in range(3):
        grid = grids[f]
        if grid.shape[0] == 1:
            continue
        s.n_points = grid.shape[0]
        for i in range(s.n_points):
            points[i, :] = hyper
            points[i, f], score[i] = grid[i], 0.0
        by_cluster[:] = 0.0
        kernel_line_marginals(&s, &score[0], &by_cluster[0])
        chosen = pick(score[:s.n_points], uniforms[done])
        if chosen < 0:
            raise FloatingPointError("the weight of a point of a grid is not a number")
        hyper[f], done = grid[chosen], done + 1


def draw_numbers(statistics, hyper, int64_t first, int64_t last, grids, const double[:, ::1] u):
    """Draw the hyperparameters of the columns first..last-1 from their grids, in place (docs/math.md 2.4): each one
    given the others, in order.

    statistics, hyper: as in `number_marginals`. grids: for each hyperparameter its `points`, float64 (C, G), and the
    `length` of each column's grid, int64 (C,); a single point is kept unchanged. u (last - first, hyperparameters):
    uniforms. Raises FloatingPointError if the weight of a point is not a number.
    """
    cdef _Numbers s = _Numbers(statistics, hyper, first, last)
    cdef const double[:, ::1] checked = hyper
    cdef grid_t grid[4]
    cdef const double[:, ::1] points
    cdef const int64_t[::1] length
    cdef int64_t f, c, most = 1
    cdef int sound = True
    if len(grids) != s.n_hyper or u.shape[0] != last - first or u.shape[1] != s.n_hyper:
        raise ValueError("hyperparameters, grids and uniforms do not fit together")
    if last == first:
        return
    for f in range(s.n_hyper):
        points, length = grids[f].points, grids[f].length
        if points.shape[0] != checked.shape[0] or length.shape[0] != checked.shape[0]:
            raise ValueError("grids and columns do not fit together")
        for c in range(length.shape[0]):
            if length[c] > points.shape[1]:
                raise ValueError("grids and columns do not fit together")
        grid[f].width, grid[f].points, grid[f].length = points.shape[1], &points[0, 0], &length[0]
        most = max(most, points.shape[1])
    cdef double[::1] scores = np.empty((most + 7) // 8 * 8)
    with nogil:
        sound = kernel_draw_numbers(&s.c, s.hyper, s.n_hyper, first, last, grid, &u[0, 0], &scores[0])
    if not sound:
        raise FloatingPointError("the weight of a point of a grid is not a number")
