"""Sweeps that score few clusters per row and draw the same labels, bit for bit (docs/math.md 2.13).

`Bounds` has upper bounds of the scores of a draw's clusters; `sweep` is the pass over rows without a tail beside them.
pruning.h has the algorithm. Its plain Python twin is that of the full sweep, twin.sweep.
"""

import numpy as np

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from mpibayes.kernels.common.machine cimport address, aligned
from mpibayes.kernels.mixture.instantiated cimport Instantiated
from mpibayes.kernels.mixture.layout cimport instantiated_t, rows_t, survivors_t, work_t
from mpibayes.kernels.mixture.rows cimport HeldRows, pad16
from mpibayes.kernels.mixture.survivors cimport Survivors
from mpibayes.kernels.mixture.tail cimport Work

from mpibayes.kernels.common.machine import ISA_NUMBER
from mpibayes.kernels.mixture import gibbs


cdef extern from "pruned.h" nogil:
    int kernel_isa
    ctypedef struct bounds_t:
        int64_t n, n_tiles, n_features, n_lanes, first_bin, first_block
        const int16_t *groups
        const int16_t *clusters
        const double *greatest
        const double *position
        const int32_t *place
        const instantiated_t *tiles
        const int32_t *first_level
        const int32_t *missing
        double size, reach, margin
    ctypedef struct pruning_t:
        int64_t n, bounded, scored, given_up
        double *u
        int32_t *allowed
        int32_t *order
        int32_t *first
        double *m
        int64_t *n_tiles
        double *scores
        int32_t *tile
        int32_t *next
        int32_t *waiting
        int32_t *feature
        int32_t *found
        int16_t *bound
    enum:
        TILE, GROUP, BINS "BINS", NO_BIN, CHUNK, MOST_TILES
    int UNDECIDED_LABEL "UNDECIDED"
    void kernel_prune(const rows_t *, const uint8_t *, const int32_t *, int32_t *, const instantiated_t *,
                      const bounds_t *, pruning_t *, work_t *, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t)
    int64_t kernel_survivors(const rows_t *, const uint8_t *, const int32_t *, int32_t *, const instantiated_t *,
                             const bounds_t *, pruning_t *, work_t *, survivors_t *, int64_t, uint64_t, uint64_t,
                             uint64_t, uint64_t)


cdef extern from "bounds_tables.h" nogil:
    ctypedef struct filling_t:
        const instantiated_t *draw
        const rows_t *columns
        const double *least
        const double *greatest
        const int64_t *order
        int16_t *groups
        int16_t *clusters
        double *top
        double *term
        int16_t *units
    int fill_bounds(const bounds_t *, const filling_t *, int64_t)
    void take_tiles(const bounds_t *, const filling_t *, int64_t, int64_t, instantiated_t *, double *)


kernel_isa = ISA_NUMBER
N_BINS, MISSING, UNDECIDED = BINS, NO_BIN, UNDECIDED_LABEL
REACH = 13.0  # omitted clusters have at most e^-REACH of the weights: about one row in 100,000 is scored in full


def bin_cells(const double[:, ::1] cells, const double[:, ::1] edges, uint8_t[:, ::1] bins, int64_t first,
              double[:, ::1] least, double[:, ::1] greatest):
    """Sort cells (n, columns) into the N_BINS bins of each column, separated by `edges` (columns, N_BINS - 1),
    ascending.

    Writes bins[:, first + column], MISSING for NaN, and widens least and greatest, float64 (all columns, N_BINS), to
    the cells of each bin.
    """
    cdef int64_t i, c, n = cells.shape[0], n_columns = cells.shape[1], at, step
    cdef double x
    if edges.shape[0] != n_columns or edges.shape[1] != BINS - 1 or bins.shape[0] != n \
            or bins.shape[1] < first + n_columns or least.shape[0] < first + n_columns or least.shape[1] != BINS \
            or greatest.shape[0] != least.shape[0] or greatest.shape[1] != BINS:
        raise ValueError("cells, edges and bins do not fit together")
    with nogil:
        for i in range(n):
            for c in range(n_columns):
                x = cells[i, c]
                if x != x:
                    bins[i, first + c] = NO_BIN
                    continue
                at, step = 0, BINS // 2
                while step:  # number of edges that are at most x
                    at += step * (edges[c, at + step - 1] <= x)
                    step //= 2
                bins[i, first + c] = <uint8_t>at
                least[first + c, at] = x if x < least[first + c, at] else least[first + c, at]
                greatest[first + c, at] = x if x > greatest[first + c, at] else greatest[first + c, at]


cdef int check_columns(Instantiated held, HeldRows rows) except -1:
    if held.n_levels != rows.c.offsets[rows.c.n_codes] or held.n_reals != rows.c.n_reals \
            or held.n_tallies != rows.c.n_tallies or held.n_blocks != rows.c.n_blocks \
            or held.n_vector != rows.c.n_vector or held.n_pairs != rows.n_pairs or held.n_spells or rows.c.n_spells:
        raise ValueError("rows and instantiated clusters have different columns")
    return 0


cdef class Bounds:
    """Upper bounds of the scores of rows under the clusters of a draw, in tiles of 16 similar ones.

    held: the draw. rows: any rows of the table, which define its columns. prior: as in `gibbs.sweep`. least, greatest:
    float64 (real and count columns, N_BINS), range of the cells of each bin (bin_cells). order: int64 (K1,), a
    permutation of the clusters with similar ones adjacent, above all within groups of 16 and of 4; it changes no label.
    usable: False if a parameter is not finite, or so large that it may lose more to rounding than the bounds allow: such
    a draw is swept in full.

    clusters int16 (tiles, features, 16) and groups int16 (features, lanes of 4 clusters) are the tables of bounds, see
    bounds.h, exposed for tests. work int64 (4,): rows of all passes so far, tiles bounded for them, tiles scored, and
    rows that must be scored in full.
    """

    cdef bounds_t c
    cdef readonly object clusters, groups, greatest, work
    cdef readonly bint usable
    cdef object levels, position, place, parameters, tiles, held
    cdef int64_t base, n_binned

    def __init__(self, Instantiated held, rows, prior, least, greatest, order):
        cdef int64_t n = held.n, n_tiles = held.base // TILE
        cdef HeldRows columns = HeldRows(rows, prior.offsets)
        check_columns(held, columns)
        self.held, self.base = held, held.base
        self.n_binned = held.n_reals + held.n_tallies
        if sorted(order) != list(range(n)):
            raise ValueError(f"order is no permutation of the {n} clusters")
        if np.shape(least) != (self.n_binned, BINS) or np.shape(greatest) != (self.n_binned, BINS):
            raise ValueError(f"bins are of other than the {self.n_binned} real and count columns")
        self.c.n, self.c.n_tiles = n, n_tiles
        self.c.first_bin = 1 + held.n_levels
        self.c.first_block = self.c.first_bin + BINS * self.n_binned
        self.c.n_features = self.c.first_block + held.n_blocks
        self.c.n_lanes = (n + 32 * GROUP - 1) // (32 * GROUP) * 32
        self.c.reach = np.log(max(n, 1)) + REACH
        self.c.margin = 1.001 * n * np.exp(-self.c.reach) + (n + 64) * 2.0**-50
        self.groups = aligned(self.c.n_features * self.c.n_lanes, np.int16).reshape(self.c.n_features, self.c.n_lanes)
        self.groups[:1] = -2**15  # lanes without clusters are never reached
        self.clusters = aligned(n_tiles * self.c.n_features * TILE, np.int16)
        self.clusters = self.clusters.reshape(n_tiles, self.c.n_features, TILE)
        self.clusters[:, 0] = -2**15
        self.greatest, self.work = np.zeros(self.c.n_features), np.zeros(4, np.int64)
        self.levels = np.array([prior.offsets[:columns.c.n_codes] + 1, prior.offsets[1:]], np.int32)
        self.position = aligned(self.base, np.float64)
        self.position[:] = np.inf
        self.position[:n] = order
        self.place = np.argsort(order, kind="stable").astype(np.int32)
        self.c.groups, self.c.clusters = <const int16_t *>address(self.groups), <const int16_t *>address(self.clusters)
        self.c.greatest, self.c.position = <const double *>address(self.greatest), <const double *>address(self.position)
        self.c.place = <const int32_t *>address(self.place)
        self.c.first_level = <const int32_t *>address(self.levels)
        self.c.missing = self.c.first_level + columns.c.n_codes
        order = np.ascontiguousarray(order, dtype=np.int64)
        self.usable = n > 0 and self._fill(held, columns, least, greatest, order)

    cdef bint _fill(self, Instantiated held, HeldRows columns, least, greatest, order) except -1:
        """Compute the tables and copy the parameters; True if all of these are usable."""
        cdef filling_t t
        cdef const int64_t[::1] places = order
        cdef const double[:, ::1] low = np.ascontiguousarray(least, np.float64)
        cdef const double[:, ::1] high = np.ascontiguousarray(greatest, np.float64)
        cdef double[::1] term = np.empty(held.base)
        cdef int16_t[::1] units = np.empty(held.base, np.int16)
        t.draw, t.columns, t.order, t.term, t.units = &held.c, &columns.c, &places[0], &term[0], &units[0]
        t.least = &low[0, 0] if low.shape[0] else NULL
        t.greatest = &high[0, 0] if high.shape[0] else NULL
        t.groups, t.clusters = <int16_t *>address(self.groups), <int16_t *>address(self.clusters)
        t.top = <double *>address(self.greatest)
        if not fill_bounds(&self.c, &t, held.n_pairs):
            return False
        starts = [0, *self.levels[0], *range(self.c.first_bin, self.c.first_block, N_BINS)]
        starts += range(self.c.first_block, self.c.n_features)
        self.c.size = np.maximum.reduceat(np.abs(self.greatest), starts).sum()
        doubles = 2 + 3 * held.n_reals + 2 * held.n_tallies + held.n_vector + held.n_pairs + held.n_blocks
        self.parameters = aligned(held.base * (8 * doubles + 4 * held.n_levels), np.uint8)
        self.tiles = aligned(self.c.n_tiles * sizeof(instantiated_t), np.uint8)
        cdef instantiated_t *tiles = <instantiated_t *>address(self.tiles)
        self.c.tiles = tiles
        take_tiles(&self.c, &t, held.n_levels, held.n_pairs, tiles, <double *>address(self.parameters))
        return True

    @property
    def margin(self):
        """Most that omitted clusters, and rounding, can add to sums of weights, relative to all weights."""
        return self.c.margin

    @margin.setter
    def margin(self, double margin):
        self.c.margin = margin


cdef class Scratch:
    """Room for one pass over n rows, freed with it."""

    cdef pruning_t c
    cdef object whole, real, bound

    def __init__(self, Bounds bounds, HeldRows rows):
        cdef int64_t n = rows.c.n, n_tiles = bounds.c.n_tiles
        n_features = 2 + rows.c.n_codes + rows.c.n_reals + rows.c.n_tallies + rows.c.n_blocks
        self.whole = np.empty(2 * n + n_tiles * (TILE + 3) + 2 * CHUNK * MOST_TILES + n_features + 2, np.int32)
        self.real = aligned(CHUNK * (MOST_TILES * TILE + 2) + n, np.float64)
        self.bound = np.empty(n_tiles + 1, np.int16)
        cdef int32_t *at = <int32_t *>address(self.whole)
        cdef double *x = <double *>address(self.real)
        self.c.bound = <int16_t *>address(self.bound)
        self.c.scores, self.c.m = x, x + CHUNK * MOST_TILES * TILE
        self.c.n_tiles = <int64_t *>(x + CHUNK * (MOST_TILES * TILE + 1))
        self.c.u = x + CHUNK * (MOST_TILES * TILE + 2)
        self.c.allowed, self.c.order, self.c.first = at, at + n, at + 2 * n
        self.c.waiting = self.c.first + n_tiles * TILE + 1
        self.c.found = self.c.waiting + n_tiles
        self.c.tile = self.c.found + n_tiles + 1
        self.c.next = self.c.tile + CHUNK * MOST_TILES
        self.c.feature = self.c.next + CHUNK * MOST_TILES


    cdef int count(self, Bounds bounds) except -1:
        bounds.work += [self.c.n, self.c.bounded, self.c.scored, self.c.given_up]
        return 0


cdef int check_pass(HeldRows rows, const int32_t[::1] z, Instantiated held, Bounds bounds,
                    const uint8_t[:, ::1] bins) except -1:
    if not bounds.usable or bounds.held is not held:
        raise ValueError("these bounds are not those of the instantiated clusters")
    check_columns(held, rows)
    if z.shape[0] != rows.c.n or bins.shape[0] != rows.c.n or bins.shape[1] != rows.c.n_reals + rows.c.n_tallies:
        raise ValueError(f"labels and bins are not of {rows.c.n} rows of {rows.c.n_reals + rows.c.n_tallies} columns")
    return 0


def prune(rows, const int32_t[::1] z, row0, seed, cycle, sweep, chain, Instantiated instantiated, Bounds bounds,
          const uint8_t[:, ::1] bins, prior):
    """Return the label that `gibbs.sweep` without a tail gives each row, or UNDECIDED, int32 (n,); idle rows keep
    theirs.

    bounds: of `instantiated`; usable. bins: uint8 (n, real and count columns), see bin_cells.
    """
    cdef HeldRows r = HeldRows(rows, prior.offsets)
    cdef uint64_t u_row0 = row0, u_seed = seed, u_cycle = cycle, u_sweep = sweep, u_chain = chain
    check_pass(r, z, instantiated, bounds, bins)
    out = np.empty(r.c.n, np.int32)
    if r.c.n == 0:
        return out
    cdef int32_t[::1] label = out
    cdef const uint8_t *bin_of = &bins[0, 0] if bins.shape[1] else NULL
    cdef Work work = Work(TILE, 0, r.c.offsets[r.c.n_codes], r.c.n_codes, r.c.n_reals, r.c.n_tallies, r.c.n_blocks)
    cdef Scratch scratch = Scratch(bounds, r)
    with nogil:
        kernel_prune(&r.c, bin_of, &z[0], &label[0], &instantiated.c, &bounds.c, &scratch.c, &work.c, u_row0, u_seed,
                     u_cycle, u_sweep, u_chain)
    scratch.count(bounds)
    return out


def survivors(rows, const int32_t[::1] z, row0, seed, cycle, chain, Instantiated instantiated, Bounds bounds,
              const uint8_t[:, ::1] bins, prior):
    """Return Survivors for `gibbs.sweep` with a tail: scores of rows under the instantiated clusters that matter.

    Rows in the tail, rows that may enter no cluster, and rows without bounds have none. Arguments as in `prune`.
    """
    cdef HeldRows r = HeldRows(rows, prior.offsets)
    cdef uint64_t u_row0 = row0, u_seed = seed, u_cycle = cycle, u_chain = chain
    cdef int64_t done = 0
    check_pass(r, z, instantiated, bounds, bins)
    cdef Survivors kept = Survivors(r.c.n, CHUNK * MOST_TILES * TILE + 8 * r.c.n)
    kept.c.margin = bounds.c.margin
    if r.c.n == 0:
        return kept
    out = np.empty(r.c.n, np.int32)
    cdef int32_t[::1] label = out
    cdef const uint8_t *bin_of = &bins[0, 0] if bins.shape[1] else NULL
    cdef Work work = Work(TILE, 0, r.c.offsets[r.c.n_codes], r.c.n_codes, r.c.n_reals, r.c.n_tallies, r.c.n_blocks)
    cdef Scratch scratch = Scratch(bounds, r)
    while True:
        with nogil:
            done = kernel_survivors(&r.c, bin_of, &z[0], &label[0], &instantiated.c, &bounds.c, &scratch.c, &work.c,
                                    &kept.c, done, u_row0, u_seed, u_cycle, u_chain)
        if done < 0:
            scratch.count(bounds)
            return kept
        kept.grow(2 * kept.c.room)


def sweep(rows, int32_t[::1] z, row0, seed, cycle, sweep, chain, Instantiated instantiated, Bounds bounds, bins, prior):
    """Run `gibbs.sweep` without a tail: the same labels, the same number of moved rows, and the same errors.

    bounds, bins: as in `prune`. Undecided rows are scored in full.
    """
    labels = prune(rows, z, row0, seed, cycle, sweep, chain, instantiated, bounds, bins, prior)
    before = np.asarray(z)
    undecided = (labels == UNDECIDED_LABEL) & (before >= UNDECIDED_LABEL)
    rest = np.where(undecided, before, np.int32(-2))
    moved = gibbs.sweep(rows, rest, row0, seed, cycle, sweep, chain, instantiated, None, prior)
    moved += int(np.count_nonzero((labels != before) & ~undecided))
    before[:] = np.where(undecided, rest, labels)
    return moved
