"""Missing cells of columns on which others depend, drawn one after another with parameters integrated out (docs/math.md
2.14): for few cells below wide tables of counts, of which parameters would be far more draws. twin_turns.py is the same
in plain Python.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "turns.h" nogil:
    int kernel_isa

    ctypedef struct philox_stream:
        pass
    philox_stream philox_open(uint64_t seed, uint64_t purpose, uint64_t sub, uint64_t cycle, uint64_t chain)

    ctypedef struct column_t:
        int64_t first, n_levels, n_contexts, parent
        int is_wide
        int64_t index
        const int64_t *context

    void kernel_fill_in_turn(philox_stream *, const column_t *, int64_t, const int64_t *, int64_t, int32_t *, int64_t,
                             const int64_t *, int64_t, const int64_t *, int32_t *, const double *, int64_t, int64_t,
                             double *, double *, double *)

kernel_isa = ISA_NUMBER
cdef enum:
    MOST = 1 << 16  # levels and contexts of a column


cdef _contexts_of(columns):
    """Contexts of all columns' levels, one column after another, int64."""
    given = [np.zeros(column[3], np.int64) if column[6] is None else column[6] for column in columns]
    for one, column in zip(given, columns):
        if len(one) != column[3]:
            raise ValueError("a level has one context")
    return np.ascontiguousarray(np.concatenate([*given, np.zeros(1)]), np.int64)


cdef column_t *_described(columns, const int64_t[::1] contexts, int64_t n_rows) except NULL:
    """Copy the descriptions of columns; see `fill_in_turn`."""
    cdef int64_t i = 0, at = 0, v, n = len(columns)
    cdef column_t *of = <column_t *>malloc((n + 1) * sizeof(column_t))
    if of == NULL:
        raise MemoryError
    for i in range(n):
        block, of[i].index, of[i].first, of[i].n_levels, of[i].n_contexts, of[i].parent, _ = columns[i]
        of[i].is_wide = block == "codes16"
        of[i].context = &contexts[at]
        at += of[i].n_levels
    for i in range(n):
        fits = 0 <= of[i].first and 1 <= of[i].n_levels < MOST and 1 <= of[i].n_contexts < MOST and of[i].parent < n \
            and of[i].first + of[i].n_contexts * (of[i].n_levels + 1) <= n_rows
        if fits and of[i].parent >= 0:
            for v in range(of[of[i].parent].n_levels):
                fits = fits and 0 <= of[of[i].parent].context[v] < of[i].n_contexts
        if not fits:
            free(of)
            raise ValueError("columns, contexts and counts do not fit together")
    return of


def take_cells(rows, const int64_t[::1] at, const int32_t[::1] z, columns, int32_t[:, ::1] cells):
    """Put the labels, less 0 or more, and the levels of columns in rows `at` into `cells` (n, 1 + C); see
    `fill_in_turn`."""
    cdef const uint8_t[:, ::1] narrow = rows.codes8
    cdef const uint16_t[:, ::1] wide = rows.codes16
    cdef int64_t i, c, index, width
    _check_cells(rows, at, z, columns, cells)
    for i in range(at.shape[0]):
        cells[i, 0] = z[at[i]]
    for c in range(len(columns)):
        block, index, width = columns[c][0], columns[c][1], columns[c][3] + 1
        if block == "codes16":
            for i in range(at.shape[0]):
                cells[i, 1 + c] = wide[at[i], index] % width
        else:
            for i in range(at.shape[0]):
                cells[i, 1 + c] = narrow[at[i], index] % width


def put_cells(rows, const int64_t[::1] at, const int32_t[::1] z, columns, const int32_t[:, ::1] cells):
    """Code the cells of columns with parents, and of those without contexts, in rows `at`, but for idle rows and missing
    cells, by the levels in `cells`; arguments as in `take_cells`."""
    cdef uint8_t[:, ::1] narrow = rows.codes8
    cdef uint16_t[:, ::1] wide = rows.codes16
    cdef int64_t i, c, index, n_levels, n_contexts, code, above, parent, of_parent
    cdef bint is_wide
    _check_cells(rows, at, z, columns, cells)
    cdef const int64_t[::1] context
    for c in range(len(columns)):
        block, index, _, n_levels, n_contexts, parent, _ = columns[c]
        if parent < 0 and n_contexts > 1:
            continue  # its parent is not among these columns, and has not changed
        context, of_parent = np.zeros(1, np.int64), 0
        if parent >= 0:
            context, of_parent = columns[parent][6], columns[parent][3]
        is_wide = block == "codes16"
        for i in range(at.shape[0]):
            code, above = cells[i, 1 + c], 0
            if cells[i, 0] < 0 or code == n_levels:
                continue
            if parent >= 0:
                above = cells[i, 1 + parent]
                if above == of_parent:
                    continue
                above = context[above]
            code += above * (n_levels + 1)
            if is_wide:
                wide[at[i], index] = <uint16_t>code
            else:
                narrow[at[i], index] = <uint8_t>code


cdef int _check_cells(rows, const int64_t[::1] at, const int32_t[::1] z, columns, const int32_t[:, ::1] cells) except -1:
    cdef int64_t i
    for i in range(at.shape[0]):
        if not 0 <= at[i] < z.shape[0]:
            raise ValueError("there is no such row")
    widths = {"codes8": rows.codes8.shape[1], "codes16": rows.codes16.shape[1]}
    if len(rows) != z.shape[0] or cells.shape[0] != at.shape[0] or cells.shape[1] != 1 + len(columns) \
            or not all(0 <= column[1] < widths[column[0]] for column in columns):
        raise ValueError("rows, labels, columns and cells do not fit together")
    return 0


def fill_in_turn(columns, int32_t[:, ::1] cells, int64_t own, const int64_t[::1] at, const int64_t[::1] ids,
                 int32_t[:, ::1] levels, const double[::1] beta, *, seed, purpose, sub, cycle, chain):
    """Draw the cells of column number `own` in rows `at`, in turn, each given all other cells, in place, in `cells` and
    in the counts by level row and cluster, `levels` (L, K).

    A column is (array of codes, index in it, its first level row, number of levels, of contexts, number of its parent
    or -1, context of each level int64 for its children or None). cells (n, 1 + C): cluster of a row, negative if it is
    idle and keeps its cells, and levels of the columns; the number of levels stands for a missing cell. ids (n,): words
    of the stream that decide a row's draw. beta (L,): pseudo-counts, 0 in missing rows.
    """
    cdef philox_stream words = philox_open(seed, purpose, sub, cycle, chain)
    cdef int64_t n_columns = len(columns), n_clusters = levels.shape[1], most
    cdef const int64_t[::1] contexts = _contexts_of(columns)
    if beta.shape[0] != levels.shape[0] or cells.shape[1] != 1 + n_columns or cells.shape[0] != ids.shape[0] \
            or not 0 <= own < n_columns:
        raise ValueError("columns, cells and counts do not fit together")
    if not at.shape[0]:
        return
    cdef column_t *of = _described(columns, contexts, levels.shape[0])
    try:
        _check_rows(cells, at, of, n_columns, own, n_clusters)
    except:
        free(of)
        raise
    below = np.array([i for i, column in enumerate(columns) if column[5] == own], np.int64)
    most = max([columns[i][4] for i in below] + [1])
    cdef const int64_t[::1] children = np.append(below, 0)
    cdef int64_t n_children = len(below)
    cdef double[::1] total = np.empty((n_children * most + 1) * n_clusters), ratio = np.empty(most)
    cdef double[::1] weight = np.empty(of[own].n_levels)
    with nogil:
        kernel_fill_in_turn(&words, of, own, &children[0], n_children, &cells[0, 0], cells.shape[1], &at[0],
                            at.shape[0], &ids[0], &levels[0, 0], &beta[0], n_clusters, most, &total[0], &ratio[0],
                            &weight[0])
    free(of)


def recount(columns, const int32_t[:, ::1] before, const int32_t[:, ::1] after, const int64_t[::1] at,
            int32_t[:, ::1] levels):
    """Change the counts by level row and cluster, `levels` (L, K), for the rows `at` of cells whose levels have changed
    from `before` to `after`, (n, 1 + C) as in `fill_in_turn`; rows keep their clusters, and missing cells are the
    same."""
    cdef const int64_t[::1] contexts = _contexts_of(columns)
    cdef int64_t i, c, j, k, n_columns = len(columns), parent, old, new, K = levels.shape[1]
    cdef size_t size = (1 + n_columns) * sizeof(int32_t)
    cdef bint fits = before.shape[0] == after.shape[0] and before.shape[1] == after.shape[1] == 1 + n_columns
    if not fits:
        raise ValueError("columns, cells and counts do not fit together")
    if not at.shape[0]:
        return
    cdef column_t *of = _described(columns, contexts, levels.shape[0])
    for i in range(at.shape[0]):
        fits = fits and 0 <= at[i] < before.shape[0]
        if not fits or before[at[i], 0] < 0 or memcmp(&before[at[i], 0], &after[at[i], 0], size) == 0:
            continue
        fits = before[at[i], 0] == after[at[i], 0] < K
        for c in range(n_columns):
            fits = fits and 0 <= before[at[i], 1 + c] <= of[c].n_levels and 0 <= after[at[i], 1 + c] <= of[c].n_levels
            fits = fits and (before[at[i], 1 + c] == of[c].n_levels) == (after[at[i], 1 + c] == of[c].n_levels)
    if not fits:
        free(of)
        raise ValueError("columns, cells and counts do not fit together")
    with nogil:
        for j in range(at.shape[0]):
            i = at[j]
            k = before[i, 0]
            if k < 0 or memcmp(&before[i, 0], &after[i, 0], size) == 0:
                continue
            for c in range(n_columns):
                parent = of[c].parent
                old, new = before[i, 1 + c], after[i, 1 + c]
                if old == of[c].n_levels or (parent >= 0 and before[i, 1 + parent] == of[parent].n_levels):
                    continue
                if parent >= 0:
                    old += of[parent].context[before[i, 1 + parent]] * (of[c].n_levels + 1)
                    new += of[parent].context[after[i, 1 + parent]] * (of[c].n_levels + 1)
                if old != new:
                    levels[of[c].first + old, k] -= 1
                    levels[of[c].first + new, k] += 1
    free(of)


cdef int _check_rows(const int32_t[:, ::1] cells, const int64_t[::1] at, const column_t *of, int64_t n_columns,
                     int64_t own, int64_t n_clusters) except -1:
    cdef int64_t i, c
    cdef bint fits = True
    for i in range(at.shape[0]):
        if not 0 <= at[i] < cells.shape[0]:
            raise ValueError("there is no such row")
        if cells[at[i], 0] < 0:
            continue
        fits = fits and cells[at[i], 0] < n_clusters and cells[at[i], 1 + own] < of[own].n_levels
        for c in range(n_columns):
            fits = fits and 0 <= cells[at[i], 1 + c] <= of[c].n_levels
    if not fits:
        raise ValueError("columns, cells and counts do not fit together")
    return 0
