"""The density of theta given which rows are bright (docs/math.md 4.1), or given all rows."""

import numpy as np

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from mpibayes.kernels.common.machine cimport address, aligned
from mpibayes.kernels.firefly.layout cimport aligned_doubles, block_t, lights_t, model_t
from mpibayes.kernels.firefly.lights cimport Lights
from mpibayes.kernels.firefly.rows cimport Rows, checked, checked_model, in_place

from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "firefly.h" nogil:
    int kernel_isa
    block_t bright_block(const lights_t *)
    int64_t target_scratch(const model_t *)
    int reserve_target(target_t *, int64_t, int64_t)
    void free_target(target_t *)
    double part_sum(const target_t *, const block_t *, const double *, double *, double *)
    double evaluate(target_t *, const double *, double *, double *)
    double log_positive(double)


kernel_isa = ISA_NUMBER
FLAT, GAUSSIAN, LAPLACE = 0, 1, 2


cdef double _ask(void *owner, const double *theta, double *gradient) noexcept with gil:
    """The sum over rows by `remote`; NaN once it has failed."""
    cdef Target target = <Target>owner
    cdef const double[::1] view
    cdef double value
    cdef int64_t n = target.c.n_parameters
    if target.failed:
        return float("nan")
    try:
        if gradient != NULL:
            out = np.zeros(n)
            value = target.remote(np.array(<double[:n]>theta), out)
            view = out
            memcpy(gradient, &view[0], 8 * n)
        else:
            value = target.remote(np.array(<double[:n]>theta), None)
        return value
    except BaseException as error:
        target.failed, target.error = 1, error
        return float("nan")


cdef class Target:
    """log p(theta, z) = log prior + sum of log B + sum over the bright rows loaded of log L~ (docs/math.md 4.1).

    likelihood, n_predictors, n_classes, nu, scale: as in Rows. The sum of log B is c0 + <G, phi> - 1/2 sum_kl A_kl phi_k' S
    phi_l, phi = theta - theta0: theta0 (P,), S (D, D), A (K, K), G (P,), c0. prior: FLAT, GAUSSIAN or LAPLACE, one for
    all or int (P,), with prior_scale (P,), positive, infinity where it is flat; densities are normalised. Arrays are copied. `remote`: None,
    or a function of (theta, gradient or None) that is asked for the sum over rows instead, and overwrites gradient
    (P,); what it raises comes out of the call that asked.
    """

    def __cinit__(self):
        memset(&self.c, 0, sizeof(target_t))

    def __init__(self, likelihood, n_predictors, n_classes, nu, scale, theta0, S, A, G, c0, prior, prior_scale):
        self.model = checked_model(likelihood, n_predictors, n_classes, nu, scale)
        cdef int64_t n_k = self.model.n_classes, width = self.model.width, n = n_predictors * n_k
        kinds = np.array(np.broadcast_to(prior, n), dtype=np.int32)
        if not np.isin(kinds, (FLAT, GAUSSIAN, LAPLACE)).all():
            raise ValueError(f"prior {prior} is not one of FLAT, GAUSSIAN, LAPLACE")
        scales = checked("prior_scale", prior_scale, np.float64, (n,))
        if not (scales > 0).all():
            raise ValueError("prior scales have to be positive")
        padded = aligned(n_predictors * width, np.float64).reshape(n_predictors, width)
        padded[:, :n_predictors] = checked("S", S, np.float64, (n_predictors, n_predictors))
        self.arrays = [
            checked("theta0", theta0, np.float64, (n,)).copy(), padded.ravel(),
            checked("A", A, np.float64, (n_k, n_k)).ravel().copy(),
            checked("G", np.ravel(G), np.float64, (n,)).copy(), np.zeros(n), aligned(n, np.float64), kinds,
        ]
        self.c.centre, self.c.gram = <double *>address(self.arrays[0]), <double *>address(self.arrays[1])
        self.c.mixing, self.c.slope = <double *>address(self.arrays[2]), <double *>address(self.arrays[3])
        self.c.inverse, self.of_rows = <double *>address(self.arrays[4]), <double *>address(self.arrays[5])
        cdef double[::1] inverse = self.arrays[4]
        cdef const double[::1] spread = scales
        cdef int64_t p
        cdef const int32_t[::1] kind = kinds
        self.c.prior_constant = 0
        for p in range(n):
            if kind[p] == FLAT or spread[p] == np.inf:
                continue
            inverse[p] = 1 / spread[p] if kind[p] == LAPLACE else 1 / (spread[p] * spread[p])
            self.c.prior_constant -= log_positive(2 * spread[p]) if kind[p] == LAPLACE \
                else 0.91893853320467274178 + log_positive(spread[p])
        self.c.model, self.c.prior, self.c.constant = &self.model, <const int32_t *>address(kinds), c0
        self.n_parameters = self.c.n_parameters = n
        self.c.log_density = np.nan
        if self.c.scratch == NULL:
            self.c.scratch = <double *>aligned_doubles(target_scratch(&self.model))
        if self.c.scratch == NULL:
            raise MemoryError("no memory for the target")
        memset(self.c.scratch, 0, 8 * target_scratch(&self.model))
        self.c.owner = <void *>self
        self._reserve(0, 0)

    def __dealloc__(self):
        free_target(&self.c)

    cdef int _reserve(self, int64_t n_parts, int64_t n_rows) except -1:
        self.loaded, self.c.full = [], 0
        if not reserve_target(&self.c, n_parts, n_rows):
            raise MemoryError(f"no memory for {n_rows} bright rows")
        return 0

    cdef int _fits(self, Rows rows) except -1:
        if rows.model.likelihood != self.model.likelihood or rows.model.n_predictors != self.model.n_predictors \
                or rows.model.n_classes != self.model.n_classes:
            raise ValueError("the rows have another model than the target")
        return 0

    cdef int _ready(self) except -1:
        for lights, version in self.loaded:
            if isinstance(lights, Lights) and lights.version != version:
                raise ValueError("the lights have changed since they were loaded: load them again")
        self.failed, self.error = 0, None
        self.c.remote = NULL
        if self.remote is not None:
            self.c.remote = _ask
        return 0

    cdef int _raise(self) except -1:
        error, self.error = self.error, None
        if self.failed:
            self.failed = 0
            raise error
        return 0

    def load(self, lights):
        """Use the bright rows of these Lights, one a shard, in this order. They are not copied: load them again when a
        list has changed."""
        cdef Lights one
        cdef int64_t i, n = 0, at = 0
        for one in lights:
            self._fits(one.rows)
            n += one.c.now.n
        self._reserve(len(lights), n)
        for i in range(len(lights)):
            one = lights[i]
            self.c.parts[i].rows, self.c.parts[i].start = bright_block(&one.c), at
            if one.c.now.n:
                memcpy(self.c.gap_before + at, one.c.now.gap, 8 * one.c.now.n)
            at += one.c.now.n
        self.c.n_parts, self.c.n_rows = len(lights), n
        self.loaded = [(one, one.version) for one in lights]

    def load_arrays(self, x, y, bounds, lengths):
        """Use these bright rows, shard after shard: x float32 (M, W), y (M,), bounds (M, B), lengths int64 (n_shards,),
        which add up to M. `gap` is NaN until a step."""
        cdef int64_t i, n = len(x), at = 0
        cdef const int64_t[::1] length = np.ascontiguousarray(lengths, dtype=np.int64)
        x = checked("x", x, np.float32, (n, self.model.width))
        y, bounds = checked("y", y, np.float64, (n,)), checked("bounds", bounds, np.float64, (n, self.model.n_bounds))
        for i in range(length.shape[0]):
            if length[i] < 0:
                raise ValueError(f"shard {i} has {length[i]} rows")
            at += length[i]
        if at != n:
            raise ValueError(f"the lengths of the shards add up to {at}, not to {n} rows")
        at = 0
        cdef const float[:, ::1] x_view = x
        cdef const double[::1] y_view = y
        cdef const double[:, ::1] b_view = bounds
        self._reserve(length.shape[0], n)
        for i in range(length.shape[0]):
            self.c.parts[i].rows.n, self.c.parts[i].start = length[i], at
            if length[i]:
                self.c.parts[i].rows.x, self.c.parts[i].rows.y = &x_view[at, 0], &y_view[at]
                self.c.parts[i].rows.bounds = &b_view[at, 0]
            at += length[i]
        for i in range(n):
            self.c.gap_before[i] = np.nan
        self.c.n_parts, self.c.n_rows, self.loaded = length.shape[0], n, [(x, 0), (y, 0), (bounds, 0)]

    def load_full(self, rows):
        """Use log L of every row of these Rows and no bounds: log prior + sum of log L, regular MCMC."""
        cdef Rows one
        cdef int64_t i
        for one in rows:
            self._fits(one)
        self._reserve(len(rows), 0)
        for i in range(len(rows)):
            one = rows[i]
            self.c.parts[i].rows, self.c.parts[i].start = one.block, 0
            self.c.n_rows += one.n
        self.c.n_parts, self.c.full, self.loaded = len(rows), 1, [(one, 0) for one in rows]

    @property
    def n_rows(self):
        """Number of loaded rows."""
        return self.c.n_rows

    @property
    def gap(self):
        """float64 (M,): gaps of the loaded rows at the theta of the last accepted state; empty after load_full."""
        cdef int64_t n = 0 if self.c.full else self.c.n_rows
        out = np.empty(n)
        cdef double[::1] view = out
        if n:
            memcpy(&view[0], self.c.gap_before, 8 * n)
        return out

    @property
    def log_density(self):
        """log density of the last accepted state; NaN before a step."""
        return self.c.log_density

    def value(self, theta, gradient=None):
        """log density at theta; gradient: float64 (P,), overwritten."""
        cdef const double[::1] at = checked("theta", theta, np.float64, (self.n_parameters,))
        cdef double *out = NULL
        cdef double value
        cdef double[::1] view
        if gradient is not None:
            view = in_place("gradient", gradient, self.n_parameters)
            out = &view[0]
        self._ready()
        with nogil:
            value = evaluate(&self.c, &at[0], out, self.of_rows)
        self._raise()
        return value

    def partial(self, shard, theta, gradient=None):
        """Term of one shard: the sum of log L~ over the bright rows of its Lights, or of log L over its Rows.
        gradient: float64 (P,), overwritten."""
        cdef const double[::1] at = checked("theta", theta, np.float64, (self.n_parameters,))
        cdef double *out = NULL
        cdef double value
        cdef double[::1] view
        cdef target_t c = self.c
        cdef block_t block
        cdef Rows rows = shard if isinstance(shard, Rows) else shard.rows
        self._fits(rows)
        c.full = isinstance(shard, Rows)
        block = rows.block if c.full else bright_block(&(<Lights>shard).c)
        if gradient is not None:
            view = in_place("gradient", gradient, self.n_parameters)
            out = &view[0]
        gap = aligned(0 if c.full else block.n + 8, np.float64)
        cdef double *gaps = <double *>address(gap)
        with nogil:
            value = part_sum(&c, &block, &at[0], gaps, out)
        return value
