"""Kernels of Firefly Monte Carlo: gaps of the three models, brightness sweeps, updates of theta, whole cycles.

docs/math.md 4; Maclaurin & Adams (2014), "Firefly Monte Carlo: exact MCMC with subsets of data". The loops are in C
headers beside this file: gaps.h has the models, rows.h the sums over rows, lights.h the sweeps
of z, target.h the density that theta sees, moves.h the updates of theta and their tuning,
cycles.h puts them together. kernels/firefly/twin.py is the same in plain Python.

Rows: x float32 (n, W), W = D predictors rounded up to a multiple of 8, the rest zeros. y float64 (n,): logistic -1 or
+1, softmax the class number, Student t the response. theta float64 (P,), P = K D, class by class (K = 1 but for
softmax). No result bit depends on the instruction set (MPIBAYES_ISA), nor on how shards are spread over processes.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from mpibayes.kernels.mixture.mixture import ISA


cdef extern from "firefly.h" nogil:
    int kernel_isa
    enum:
        ISA_BASELINE, ISA_AVX2, ISA_AVX512, N_TUNING
        C_LOGISTIC "LOGISTIC", C_SOFTMAX "SOFTMAX", C_STUDENT "STUDENT"
        C_FLAT "FLAT", C_GAUSSIAN "GAUSSIAN", C_LAPLACE "LAPLACE"
        C_HMC "HMC", C_SLICE "SLICE"

    ctypedef struct model_t:
        int family
        int64_t n_predictors, width, n_classes, n_bounds

    ctypedef struct block_t:
        int64_t n
        const float *x
        const double *y
        const double *bounds

    ctypedef struct bright_t:
        int64_t n
        int32_t *row
        double *gap
        double *y
        double *bounds
        float *x

    ctypedef struct lights_t:
        const model_t *model
        block_t rows
        bright_t now
        int64_t n_fresh
        int32_t *fresh_row
        double *fresh_gap
        double *scratch

    ctypedef double (*rows_function)(void *, const double *, double *) noexcept nogil

    ctypedef struct part_t:
        block_t rows
        int64_t start

    ctypedef struct target_t:
        const model_t *model
        int64_t n_parameters, n_parts, n_rows, n_evaluations
        int prior, full
        const double *inverse
        double prior_constant, constant, log_density
        const double *centre
        const double *gram
        const double *mixing
        const double *slope
        part_t *parts
        double *gap
        double *gap_before
        rows_function remote
        void *owner
        double *scratch

    ctypedef struct banded_t:
        int64_t stride
        const float *value
        const int64_t *first
        const int64_t *last

    ctypedef struct mover_t:
        int kind
        int64_t n_parameters, stride
        const banded_t *w
        const banded_t *transposed
        double *scratch

    ctypedef struct record_t:
        double *theta
        double *log_density
        double *acceptance
        double *step_size
        int64_t *bright
        int64_t *queries_theta
        int64_t *queries_z

    double *aligned_doubles(int64_t)
    model_t new_model(int, int64_t, int64_t, double, double)
    void pad(const model_t *, const double *, double *)
    void unpad(const model_t *, const double *, double *)
    void tune(const model_t *, const block_t *, const double *, double, double *, double *)
    void linear(const model_t *, const block_t *, const double *, double *, double *)
    void gram(const model_t *, const block_t *, const double *, double *, double *)
    void combine(const model_t *, const block_t *, const double *, double *, double *)
    void all_gaps(const model_t *, const block_t *, const double *, double *, double *)
    double likelihood_sum(const model_t *, const block_t *, const double *, double *, double *)
    int reserve_fresh(lights_t *, int64_t)
    int merge_lights(lights_t *)
    void free_lights(lights_t *)
    int draw_lights(lights_t *, const double *, uint64_t, uint64_t, uint64_t, uint64_t)
    int64_t sweep_lights(lights_t *, const double *, double, int, uint64_t, uint64_t, uint64_t, uint64_t)
    void refresh_lights(lights_t *, const double *, double *)
    block_t bright_block(const lights_t *)
    int64_t target_scratch(const model_t *)
    int64_t rows_scratch(const model_t *)
    int reserve_target(target_t *, int64_t, int64_t)
    void free_target(target_t *)
    int load_lights(target_t *, lights_t **, int64_t)
    double part_sum(const target_t *, const block_t *, const double *, double *, double *)
    double evaluate(target_t *, const double *, double *, double *)
    double move(const mover_t *, target_t *, double *, double, int64_t, uint64_t, uint64_t, uint64_t)
    void c_adapt "adapt"(double *, double, double, double)
    double c_proposal_rate "proposal_rate"(const double *, double, double)
    double log_positive(double)
    int run_cycles(lights_t **, int64_t, target_t *, const mover_t *, double *, double *, double, double, int, int64_t,
                   uint64_t, uint64_t, uint64_t, int64_t, int64_t, const int *, record_t)


kernel_isa = {"baseline": ISA_BASELINE, "avx2": ISA_AVX2, "avx512": ISA_AVX512}[ISA]

LOGISTIC, SOFTMAX, STUDENT = 0, 1, 2
HMC, MALA, RANDOM_WALK, SLICE = 0, 1, 2, 3
FLAT, GAUSSIAN, LAPLACE = 0, 1, 2
GOALS = (0.8, 0.574, 0.234, 0.0)  # acceptance that the step size aims at, by kind of update; 0: none


cdef _aligned(int64_t n):
    """n zeros, float64, 64-byte aligned."""
    raw = np.zeros(n + 8)
    cdef double[::1] view = raw
    cdef int64_t start = ((-<int64_t><size_t>&view[0]) & 63) // 8
    return raw[start:start + n]


cdef double *_address(double[::1] view) noexcept:
    return &view[0] if view.shape[0] else NULL


cdef _checked(name, array, dtype, shape):
    """A C-contiguous array of this type and shape; numbers are converted, a wrong shape raises ValueError."""
    array = np.ascontiguousarray(array, dtype=dtype)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")
    return array


cdef double[::1] _in_place(name, array, int64_t n):
    """An array that is written to: float64, contiguous, of length n, or ValueError."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.shape != (n,):
        raise ValueError(f"{name}: a float64 array of shape ({n},) was expected, to write to")
    return array


cdef model_t _model(family, n_predictors, n_classes, nu, scale) except *:
    if family not in (LOGISTIC, SOFTMAX, STUDENT):
        raise ValueError(f"family {family} is not one of LOGISTIC, SOFTMAX, STUDENT")
    if n_predictors < 1 or (family == SOFTMAX and n_classes < 2) or (family != SOFTMAX and n_classes != 1):
        raise ValueError(f"{n_predictors} predictors and {n_classes} classes do not fit the family")
    if not (0 < nu < np.inf and 0 < scale < np.inf):
        raise ValueError(f"degrees of freedom {nu} and scale {scale} have to be positive")
    return new_model(family, n_predictors, n_classes, nu, scale)


# ---- rows and their brightness ---------------------------------------------------------------------------------------

cdef class Rows:
    """The rows of one shard under one model, and their bounds.

    family: LOGISTIC, SOFTMAX or STUDENT. x: float32 (n, W), kept, not copied; y: float64 (n,), kept. nu and scale are
    those of Student t. Bounds touch at theta = 0's linear predictor (or at a residual of 0) until `tune` or `untune` is
    called. ValueError for arrays that do not fit.
    """

    cdef model_t model
    cdef block_t block
    cdef readonly object x, y
    cdef object all_bounds, work, padded_theta
    cdef double *scratch
    cdef double *padded
    cdef readonly int64_t n, n_predictors, n_classes, n_parameters, n_bounds
    cdef readonly int family
    cdef readonly double nu, scale

    def __init__(self, family, x, y, n_predictors, n_classes=1, nu=4.0, scale=1.0):
        self.model = _model(family, n_predictors, n_classes, nu, scale)
        self.family, self.nu, self.scale = family, nu, scale
        cdef const float[:, ::1] x_view
        cdef const double[::1] y_view
        cdef double[:, ::1] bounds
        if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 2 or not x.flags.c_contiguous \
                or x.shape[1] != self.model.width:
            raise ValueError(f"x has to be a C-contiguous float32 array of {self.model.width} columns "
                             f"({n_predictors} predictors rounded up to a multiple of 8)")
        if x.shape[0] >= 2**31:
            raise ValueError(f"{x.shape[0]} rows in one shard; use more shards: positions are 32-bit numbers")
        self.x, self.y = x, _checked("y", y, np.float64, (x.shape[0],))
        if x[:, n_predictors:].any():
            raise ValueError(f"x has to be 0 beyond its {n_predictors} predictors")
        allowed = np.array([-1.0, 1.0]) if family == LOGISTIC else np.arange(n_classes)
        if family != STUDENT and not np.isin(self.y, allowed).all():
            raise ValueError("y has values other than " + ("-1 and +1" if family == LOGISTIC
                                                           else f"the classes 0..{n_classes - 1}"))
        x_view, y_view = self.x, self.y
        self.n, self.n_predictors, self.n_classes = x.shape[0], n_predictors, self.model.n_classes
        self.n_parameters, self.n_bounds = n_predictors * self.model.n_classes, self.model.n_bounds
        self.all_bounds = np.zeros((self.n, self.n_bounds))
        bounds = self.all_bounds
        if self.n:
            self.block.x, self.block.y, self.block.bounds = &x_view[0, 0], &y_view[0], &bounds[0, 0]
        self.block.n = self.n
        self.work = _aligned(rows_scratch(&self.model) + 128 * self.model.width)
        self.padded_theta = _aligned(self.n_classes * self.model.width)
        self.scratch, self.padded = _address(self.work), _address(self.padded_theta)
        self._touch(None, 0.0)

    def __len__(self):
        return self.n

    @property
    def bounds(self):
        """float64 (n, B), the numbers that fix each row's bound: a, c (logistic); log g, g, the class probabilities at
        the touching point, with log g standing for psi (softmax); the squared residual (Student t)."""
        view = self.all_bounds.view()
        view.flags.writeable = False
        return view

    cdef int _pad(self, theta) except -1:
        cdef const double[::1] view = _checked("theta", theta, np.float64, (self.n_parameters,))
        pad(&self.model, &view[0], self.padded)
        return 0

    def _touch(self, theta, double xi):
        cdef double[:, ::1] bounds = self.all_bounds
        cdef const double *at = NULL
        if theta is not None:
            self._pad(theta)
            at = self.padded
        if self.n:
            with nogil:
                tune(&self.model, &self.block, at, xi, &bounds[0, 0], self.scratch)

    def tune(self, theta):
        """Let every bound touch its likelihood at theta (docs/math.md 4.2)."""
        self._touch(theta, 0.0)

    def untune(self, double xi=0.0):
        """Let every bound touch at linear predictor xi (logistic), at equal class probabilities (softmax), or at
        residual xi (Student t)."""
        self._touch(None, xi)

    def linear(self, theta):
        """float64 (n, K): theta' x."""
        self._pad(theta)
        out = np.empty((self.n, self.n_classes))
        cdef double[:, ::1] view = out
        if self.n:
            with nogil:
                linear(&self.model, &self.block, self.padded, &view[0, 0], self.scratch)
        return out

    def gram(self, weights):
        """float64 (D, D): sum of w x x', in row order. weights: float64 (n,)."""
        cdef const double[::1] w = _checked("weights", weights, np.float64, (self.n,))
        cdef int64_t width = self.model.width
        flat = _aligned(width * width)
        cdef double *out = _address(flat)
        if self.n:
            with nogil:
                gram(&self.model, &self.block, &w[0], out, self.scratch)
        full = flat.reshape(width, width)[:self.n_predictors, :self.n_predictors]
        return np.triu(full) + np.triu(full, 1).T

    def combine(self, v):
        """float64 (K, D): sum of v x', in row order. v: float64 (n, K)."""
        cdef const double[:, ::1] view = _checked("v", v, np.float64, (self.n, self.n_classes))
        flat = _aligned(self.n_classes * self.model.width)
        cdef double *out = _address(flat)
        if self.n:
            with nogil:
                combine(&self.model, &self.block, &view[0, 0], out, self.scratch)
        return flat.reshape(self.n_classes, -1)[:, :self.n_predictors].copy()

    def log_likelihood(self, theta, gradient=None):
        """Sum of log L over the rows; gradient: float64 (P,), overwritten."""
        cdef double value
        cdef double *sum = NULL
        cdef double[::1] out
        self._pad(theta)
        if gradient is not None:
            out = _in_place("gradient", gradient, self.n_parameters)
            flat = _aligned(self.n_classes * self.model.width)
            sum = _address(flat)
        with nogil:
            value = likelihood_sum(&self.model, &self.block, self.padded, sum, self.scratch)
        if gradient is not None:
            unpad(&self.model, sum, &out[0])
        return value

    def gaps(self, theta):
        """float64 (n,): log L - log B of every row, at least 0."""
        self._pad(theta)
        out = np.empty(self.n)
        cdef double[::1] view = out
        if self.n:
            with nogil:
                all_gaps(&self.model, &self.block, self.padded, &view[0], self.scratch)
        return out


cdef class Lights:
    """Which rows of a shard are bright, with copies of these rows and their gaps at the current theta.

    All dark at first. Leaves invariant, for a fixed theta: P(z_n = 1) = 1 - exp(-gap_n), independently.
    """

    cdef lights_t c
    cdef readonly Rows rows
    cdef readonly int64_t version  # changes with the list
    cdef double *padded
    cdef object padded_theta

    def __cinit__(self):
        memset(&self.c, 0, sizeof(lights_t))

    def __init__(self, Rows rows):
        self.rows = rows
        self.c.model, self.c.rows = &rows.model, rows.block
        if self.c.scratch == NULL:
            self.c.scratch = aligned_doubles(rows_scratch(&rows.model))
        if self.c.scratch == NULL or not reserve_fresh(&self.c, 0) or not merge_lights(&self.c):
            raise MemoryError("no memory for the list of bright rows")
        self.padded_theta = _aligned(rows.n_classes * rows.model.width)
        self.padded = _address(self.padded_theta)

    def __dealloc__(self):
        free_lights(&self.c)

    cdef int _pad(self, theta) except -1:
        cdef const double[::1] view = _checked("theta", theta, np.float64, (self.rows.n_parameters,))
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
        cdef const double[::1] view = _checked("gap", gap, np.float64, (self.c.now.n,))
        if self.c.now.n:
            memcpy(self.c.now.gap, &view[0], 8 * self.c.now.n)

    def refresh(self, theta):
        """Compute the gaps of the bright rows at theta, with the bounds that the rows have now."""
        cdef const double[::1] view = _checked("theta", theta, np.float64, (self.rows.n_parameters,))
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


# ---- the density that theta sees -------------------------------------------------------------------------------------

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

    family, n_predictors, n_classes, nu, scale: as in Rows. The sum of log B is c0 + <G, phi> - 1/2 sum_kl A_kl phi_k' S
    phi_l, phi = theta - theta0: theta0 (P,), S (D, D), A (K, K), G (P,), c0. prior: FLAT, GAUSSIAN or LAPLACE with
    prior_scale (P,), positive, infinity where it is flat; densities are normalised. Arrays are copied. `remote`: None,
    or a function of (theta, gradient or None) that is asked for the sum over rows instead, and overwrites gradient
    (P,); what it raises comes out of the call that asked.
    """

    cdef target_t c
    cdef model_t model
    cdef object arrays, loaded, error
    cdef int failed
    cdef public object remote
    cdef readonly int64_t n_parameters
    cdef double *of_rows

    def __cinit__(self):
        memset(&self.c, 0, sizeof(target_t))

    def __init__(self, family, n_predictors, n_classes, nu, scale, theta0, S, A, G, c0, prior, prior_scale):
        self.model = _model(family, n_predictors, n_classes, nu, scale)
        cdef int64_t n_k = self.model.n_classes, width = self.model.width, n = n_predictors * n_k
        if prior not in (FLAT, GAUSSIAN, LAPLACE):
            raise ValueError(f"prior {prior} is not one of FLAT, GAUSSIAN, LAPLACE")
        scales = _checked("prior_scale", prior_scale, np.float64, (n,))
        if not (scales > 0).all():
            raise ValueError("prior scales have to be positive")
        padded = _aligned(n_predictors * width).reshape(n_predictors, width)
        padded[:, :n_predictors] = _checked("S", S, np.float64, (n_predictors, n_predictors))
        self.arrays = [
            _checked("theta0", theta0, np.float64, (n,)).copy(), padded.ravel(),
            _checked("A", A, np.float64, (n_k, n_k)).ravel().copy(),
            _checked("G", np.ravel(G), np.float64, (n,)).copy(), np.zeros(n), _aligned(n),
        ]
        self.c.centre, self.c.gram = _address(self.arrays[0]), _address(self.arrays[1])
        self.c.mixing, self.c.slope = _address(self.arrays[2]), _address(self.arrays[3])
        self.c.inverse, self.of_rows = _address(self.arrays[4]), _address(self.arrays[5])
        cdef double[::1] inverse = self.arrays[4]
        cdef const double[::1] spread = scales
        cdef int64_t p
        self.c.prior_constant = 0
        if prior != FLAT:
            for p in range(n):
                if spread[p] == np.inf:
                    continue
                inverse[p] = 1 / spread[p] if prior == LAPLACE else 1 / (spread[p] * spread[p])
                self.c.prior_constant -= log_positive(2 * spread[p]) if prior == LAPLACE \
                    else 0.91893853320467274178 + log_positive(spread[p])
        self.c.model, self.c.prior, self.c.constant = &self.model, prior, c0
        self.n_parameters = self.c.n_parameters = n
        self.c.log_density = np.nan
        if self.c.scratch == NULL:
            self.c.scratch = aligned_doubles(target_scratch(&self.model))
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
        if rows.model.family != self.model.family or rows.model.n_predictors != self.model.n_predictors \
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
        x = _checked("x", x, np.float32, (n, self.model.width))
        y, bounds = _checked("y", y, np.float64, (n,)), _checked("bounds", bounds, np.float64, (n, self.model.n_bounds))
        if np.sum(lengths) != n or (len(length) and np.min(lengths) < 0):
            raise ValueError(f"the lengths of the shards add up to {np.sum(lengths)}, not to {n} rows")
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
        """How many rows are loaded."""
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
        cdef const double[::1] at = _checked("theta", theta, np.float64, (self.n_parameters,))
        cdef double *out = NULL
        cdef double value
        cdef double[::1] view
        if gradient is not None:
            view = _in_place("gradient", gradient, self.n_parameters)
            out = &view[0]
        self._ready()
        with nogil:
            value = evaluate(&self.c, &at[0], out, self.of_rows)
        self._raise()
        return value

    def partial(self, shard, theta, gradient=None):
        """What one shard adds: the sum of log L~ over the bright rows of its Lights, or of log L over its Rows.
        gradient: float64 (P,), overwritten."""
        cdef const double[::1] at = _checked("theta", theta, np.float64, (self.n_parameters,))
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
            view = _in_place("gradient", gradient, self.n_parameters)
            out = &view[0]
        gap = _aligned(0 if c.full else block.n + 8)
        cdef double *gaps = _address(gap)
        with nogil:
            value = part_sum(&c, &block, &at[0], gaps, out)
        return value


# ---- updates of theta ------------------------------------------------------------------------------------------------

cdef class _Banded:
    """A square matrix in single precision, and which rows of each 32 columns are not 0."""

    cdef banded_t c
    cdef object arrays

    def __init__(self, matrix):
        cdef int64_t n = len(matrix), stride = (n + 31) // 32 * 32, n_tiles = stride // 32, c
        values = _aligned(n * stride // 2).view(np.float32).reshape(n, stride)
        values[:, :n] = matrix
        first, last = np.zeros(n_tiles, dtype=np.int64), np.zeros(n_tiles, dtype=np.int64)
        for c in range(n_tiles):
            used = np.flatnonzero(values[:, 32 * c:32 * c + 32].any(axis=1))
            if len(used):
                first[c], last[c] = used.min(), used.max() + 1
        self.arrays = values, first, last
        cdef const float[:, ::1] v = values
        cdef const int64_t[::1] f = first, g = last
        self.c.stride, self.c.value, self.c.first, self.c.last = stride, &v[0, 0], &f[0], &g[0]


cdef class Mover:
    """One kind of update of theta that leaves a Target's density invariant: HMC, MALA, RANDOM_WALK or SLICE.

    whitening: float64 (P, P) W, for coordinates u with theta = W u, copied and rounded to single precision, for any W
    is as right as another; a triangular one saves half the work. None: the identity. `goal`: the acceptance that
    `cycles` adapts the step size to; 0: the step size stays.
    """

    cdef mover_t c
    cdef object scratch
    cdef _Banded w, transposed
    cdef public double goal
    cdef readonly int kind
    cdef readonly int64_t n_parameters

    def __init__(self, kind, n_parameters, whitening=None):
        if kind not in (HMC, MALA, RANDOM_WALK, SLICE):
            raise ValueError(f"kind {kind} is not one of HMC, MALA, RANDOM_WALK, SLICE")
        cdef int64_t n = n_parameters, stride = (n_parameters + 31) // 32 * 32
        self.kind, self.n_parameters, self.goal = kind, n, GOALS[kind]
        self.c.kind, self.c.n_parameters, self.c.stride = kind, n, stride
        self.scratch = _aligned(7 * stride)
        self.c.scratch = _address(self.scratch)
        self.c.w = self.c.transposed = NULL
        if whitening is not None:
            w = _checked("whitening", whitening, np.float64, (n, n))
            self.w, self.transposed = _Banded(w), _Banded(w.T)
            self.c.w, self.c.transposed = &self.w.c, &self.transposed.c

    def step(self, Target target, theta, double step_size, int64_t n_steps, uint64_t seed, uint64_t cycle,
             uint64_t chain):
        """One update of theta (P,), overwritten in place; returns (acceptance probability, evaluations of the target).

        step_size: leapfrog step, standard deviation of the random walk, or width of the slice sampler's interval, in
        u. n_steps: leapfrog steps of HMC. target.gap and target.log_density are then those of theta.
        """
        cdef double[::1] view = _in_place("theta", theta, self.n_parameters)
        cdef double accept
        if target.n_parameters != self.n_parameters:
            raise ValueError(f"the target has {target.n_parameters} parameters, the update {self.n_parameters}")
        if not step_size > 0 or (self.kind == HMC and n_steps < 1):
            raise ValueError(f"step size {step_size} and {n_steps} steps have to be positive")
        target._ready()
        with nogil:
            accept = move(&self.c, &target.c, &view[0], step_size, n_steps, seed, cycle, chain)
        target._raise()
        return accept, target.c.n_evaluations


def start_tuning(double step_size, double n_bright):
    """float64 (6,): step size in use, averaged step size (for cycles after burn-in), number of adaptations, running
    mean of the bright count, logarithms of the first two."""
    log_step = log_positive(step_size)
    return np.array([step_size, step_size, 0.0, n_bright, log_step, log_step])


def adapt(tuning, double accept, double n_bright, double goal):
    """Adapt in burn-in: Robbins & Monro on the log step size towards the acceptance `goal` (0: leave it), and the
    running mean of the bright count. tuning: see start_tuning, overwritten."""
    cdef double[::1] view = _in_place("tuning", tuning, N_TUNING)
    c_adapt(&view[0], accept, n_bright, goal)


def proposal_rate(tuning, double q_factor, double n_rows):
    """q of the next sweep: q_factor M / n with M the running mean of the bright count, between 1 / n and 1; a negative
    q_factor is -q itself."""
    cdef double[::1] view = _in_place("tuning", tuning, N_TUNING)
    return c_proposal_rate(&view[0], q_factor, n_rows)


def cycles(lights, Target target, Mover mover, theta, tuning, double q_factor, bint explicit, int64_t n_steps,
           uint64_t seed, uint64_t first_cycle, uint64_t chain, int64_t n_cycles, int64_t adapting_until, out):
    """n_cycles cycles from first_cycle on: a sweep of every shard's Lights, one update of theta, and adaptation in
    cycles up to adapting_until.

    theta (P,) and tuning (6,) are overwritten; q is proposal_rate(tuning, q_factor, n), the step size tuning[0] while
    adapting and tuning[1] after. lights: one a shard, gaps at theta known; empty when the target was given load_full.
    out: arrays that are written, one entry a cycle: theta (n_cycles, P), lp, acceptance, step_size float64, bright,
    queries_theta, queries_z int64. A loop of sweep, load, step, set_gap and adapt gives the same bits.
    """
    cdef double[::1] view = _in_place("theta", theta, mover.n_parameters), knobs = _in_place("tuning", tuning, N_TUNING)
    cdef double[:, ::1] thetas = out["theta"]
    cdef double[::1] lp = out["lp"], acceptance = out["acceptance"], step_size = out["step_size"]
    cdef int64_t[::1] bright = out["bright"], queries_theta = out["queries_theta"], queries_z = out["queries_z"]
    cdef int64_t n_shards = len(lights), i
    cdef Lights one
    cdef record_t record
    cdef int done
    if n_cycles <= 0:
        return
    if target.n_parameters != mover.n_parameters:
        raise ValueError(f"the target has {target.n_parameters} parameters, the update {mover.n_parameters}")
    if thetas.shape[1] != mover.n_parameters or min(len(out[name]) for name in (
            "theta", "lp", "acceptance", "step_size", "bright", "queries_theta", "queries_z")) < n_cycles:
        raise ValueError(f"the arrays to write to have to hold {n_cycles} cycles of {mover.n_parameters} parameters")
    if not knobs[0] > 0 or not knobs[1] > 0 or (mover.kind == HMC and n_steps < 1):
        raise ValueError("step sizes and the number of leapfrog steps have to be positive")
    for one in lights:
        target._fits(one.rows)
    if n_shards:
        target.load(lights)
    elif not target.c.full and target.remote is None:
        raise ValueError("no lights were given, and the target was not given load_full")
    target._ready()
    addresses = np.zeros(n_shards + 1, dtype=np.int64)
    cdef int64_t[::1] address = addresses
    for i in range(n_shards):
        one = lights[i]
        address[i] = <int64_t><size_t>&one.c
        one.version += 1
    record.theta, record.log_density, record.acceptance = &thetas[0, 0], &lp[0], &acceptance[0]
    record.step_size, record.bright = &step_size[0], &bright[0]
    record.queries_theta, record.queries_z = &queries_theta[0], &queries_z[0]
    with nogil:
        done = run_cycles(<lights_t **>&address[0], n_shards, &target.c, &mover.c, &view[0], &knobs[0], mover.goal,
                          q_factor, explicit, n_steps, seed, first_cycle, chain, n_cycles,
                          adapting_until, &target.failed, record)
    target._raise()
    if not done:
        raise MemoryError("no memory for the list of bright rows")
    if n_shards:
        target.load(lights)
