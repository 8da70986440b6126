"""Bright rows of a shard, and the sweeps that light them (docs/math.md 4.3)."""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

from mpibayes.kernels.common.machine cimport address, aligned
from mpibayes.kernels.firefly.layout cimport (
    aligned_doubles, free_lights, lights_t, merge_lights, model_t, reserve_fresh, rows_scratch,
)
from mpibayes.kernels.firefly.rows cimport Rows, checked

from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "firefly.h" nogil:
    int kernel_isa
    void pad(const model_t *, const double *, double *)
    int draw_lights(lights_t *, const double *, uint64_t, uint64_t, uint64_t, uint64_t)
    int64_t sweep_lights(lights_t *, const double *, double, int, uint64_t, uint64_t, uint64_t, uint64_t)
    void refresh_lights(lights_t *, const double *, double *)


kernel_isa = ISA_NUMBER


cdef class Lights:
    """Bright rows of a shard, with copies of these rows and their gaps at the current theta.

    All dark at first. Leaves invariant, for a fixed theta: P(z_n = 1) = 1 - exp(-gap_n), independently.
    """

    def __cinit__(self):
        memset(&self.c, 0, sizeof(lights_t))

    def __init__(self, Rows rows):
        self.rows = rows
        self.c.model, self.c.rows = &rows.model, rows.block
        if self.c.scratch == NULL:
            self.c.scratch = <double *>aligned_doubles(rows_scratch(&rows.model))
        if self.c.scratch == NULL or not reserve_fresh(&self.c, 0) or not merge_lights(&self.c):
            raise MemoryError("no memory for the list of bright rows")
        self.padded_theta = aligned(rows.n_classes * rows.model.width, np.float64)
        self.padded = <double *>address(self.padded_theta)

    def __dealloc__(self):
        free_lights(&self.c)

    cdef int _pad(self, theta) except -1:
        cdef const double[::1] view = checked("theta", theta, np.float64, (self.rows.n_parameters,))
        pad(self.c.model, &view[0], self.padded)
        return 0

    @property
    def n_bright(self):
        return self.c.now.n

    @property
    def bright(self):
        """int32 (M,): positions of the bright rows, ascending; a copy."""
        out = np.empty(self.c.now.n, dtype=np.int32)
        cdef int32_t[::1] view = out
        if self.c.now.n:
            memcpy(&view[0], self.c.now.row, 4 * self.c.now.n)
        return out

    def set_bright(self, bright):
        """Make exactly these rows bright: int32 (M,), ascending positions. Gaps are NaN until `set_gap` or
        `refresh`."""
        cdef const int32_t[::1] row = np.ascontiguousarray(bright, dtype=np.int32)
        cdef int64_t i, n = row.shape[0]
        for i in range(n):
            if not (row[i - 1] if i else -1) < row[i] < self.c.rows.n:
                raise ValueError(f"bright rows have to be ascending positions below {self.c.rows.n}: "
                                 f"entry {i} is {row[i]}")
        if not reserve_fresh(&self.c, n):
            raise MemoryError("no memory for the list of bright rows")
        self.c.n_fresh, self.c.now.n = n, 0
        for i in range(n):
            self.c.fresh_row[i], self.c.fresh_gap[i] = row[i], np.nan
        self._merged(merge_lights(&self.c))

    cdef int _merged(self, int done) except -1:
        self.version += 1
        if not done:
            raise MemoryError("no memory for the list of bright rows")
        return 0

    @property
    def gap(self):
        """float64 (M,): log L - log B of the bright rows at the current theta; a copy."""
        out = np.empty(self.c.now.n)
        cdef double[::1] view = out
        if self.c.now.n:
            memcpy(&view[0], self.c.now.gap, 8 * self.c.now.n)
        return out

    def set_gap(self, gap):
        """Say what the gaps of the bright rows are: float64 (M,)."""
        cdef const double[::1] view = checked("gap", gap, np.float64, (self.c.now.n,))
        if self.c.now.n:
            memcpy(self.c.now.gap, &view[0], 8 * self.c.now.n)

    def refresh(self, theta):
        """Compute the gaps of the bright rows at theta, with the bounds that the rows have now."""
        cdef const double[::1] view = checked("theta", theta, np.float64, (self.rows.n_parameters,))
        with nogil:
            refresh_lights(&self.c, &view[0], self.padded)

    def draw(self, theta, uint64_t seed, uint64_t cycle, uint64_t chain, uint64_t shard):
        """Draw z of every row from its conditional, one word and one gap a row."""
        cdef int done
        self._pad(theta)
        with nogil:
            done = draw_lights(&self.c, self.padded, seed, cycle, chain, shard)
        self._merged(done)

    def sweep(self, theta, double q, bint explicit, uint64_t seed, uint64_t cycle, uint64_t chain, uint64_t shard):
        """One sweep (docs/math.md 4.3); returns how many gaps were evaluated.

        implicit: rows that are bright go dark with probability min(1, q / L~) by their known gaps, dark rows are looked
        at with probability q and go bright with probability min(1, L~ / q). explicit: each row is drawn anew with
        probability q. q in [0, 1].
        """
        cdef int64_t queries
        if not 0 <= q <= 1:
            raise ValueError(f"q = {q} is not a probability")
        self._pad(theta)
        with nogil:
            queries = sweep_lights(&self.c, self.padded, q, explicit, seed, cycle, chain, shard)
        self._merged(queries >= 0)
        return queries

    def gather(self):
        """(x float32 (M, W), y float64 (M,), bounds float64 (M, B)): copies of the bright rows, as `load_arrays` takes
        them."""
        cdef int64_t n = self.c.now.n
        cdef Rows rows = self.rows
        x, y = np.empty((n, rows.model.width), dtype=np.float32), np.empty(n)
        bounds = np.empty((n, rows.model.n_bounds))
        cdef float[:, ::1] x_view = x
        cdef double[::1] y_view = y
        cdef double[:, ::1] b_view = bounds
        if n:
            memcpy(&x_view[0, 0], self.c.now.x, 4 * n * rows.model.width)
            memcpy(&y_view[0], self.c.now.y, 8 * n)
            memcpy(&b_view[0, 0], self.c.now.bounds, 8 * n * rows.model.n_bounds)
        return x, y, bounds
