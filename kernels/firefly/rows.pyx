"""The rows of a shard under one of the three models of Firefly Monte Carlo, and the bounds of their likelihoods.

docs/math.md 4; Maclaurin & Adams (2014), "Firefly Monte Carlo: exact MCMC with subsets of data". The loops are in C
headers beside this file: gaps.h has the models, rows.h the sums over rows, lights.h the sweeps of z, target.h the
density that theta sees, moves.h the updates of theta and their tuning, cycles.h puts them together.
kernels/firefly/twin.py is the same in plain Python.

Rows: x float32 (n, W), W = D predictors rounded up to a multiple of 8, the rest zeros. y float64 (n,): logistic -1 or
+1, softmax the class number, Student t the response. theta float64 (P,), P = K D, class by class (K = 1 but for
softmax). No result bit depends on the instruction set (MPIBAYES_ISA), nor on how shards are spread over processes.
"""

import numpy as np

from libc.stdint cimport int64_t

from mpibayes.kernels.common.machine cimport address, aligned
from mpibayes.kernels.firefly.layout cimport block_t, model_t, rows_scratch

from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "firefly.h" nogil:
    int kernel_isa
    model_t new_model(int, int64_t, int64_t, double, double)
    void pad(const model_t *, const double *, double *)
    void unpad(const model_t *, const double *, double *)
    void tune(const model_t *, const block_t *, const double *, double, double *, double *)
    void linear(const model_t *, const block_t *, const double *, double *, double *)
    void gram(const model_t *, const block_t *, const double *, double *, double *)
    void combine(const model_t *, const block_t *, const double *, double *, double *)
    void all_gaps(const model_t *, const block_t *, const double *, double *, double *)
    double likelihood_sum(const model_t *, const block_t *, const double *, double *, double *)


kernel_isa = ISA_NUMBER
LOGISTIC, SOFTMAX, STUDENT = 0, 1, 2


cdef checked(name, array, dtype, shape):
    """A C-contiguous array of this type and shape; numbers are converted, a wrong shape raises ValueError."""
    array = np.ascontiguousarray(array, dtype=dtype)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")
    return array


cdef double[::1] in_place(name, array, int64_t n):
    """An array that is written to: float64, contiguous, of length n, or ValueError."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.shape != (n,):
        raise ValueError(f"{name}: a float64 array of shape ({n},) was expected, to write to")
    return array


cdef model_t checked_model(likelihood, n_predictors, n_classes, nu, scale) except *:
    if likelihood not in (LOGISTIC, SOFTMAX, STUDENT):
        raise ValueError(f"likelihood {likelihood} is not one of LOGISTIC, SOFTMAX, STUDENT")
    if n_predictors < 1 or (likelihood == SOFTMAX and n_classes < 2) or (likelihood != SOFTMAX and n_classes != 1):
        raise ValueError(f"{n_predictors} predictors and {n_classes} classes do not fit the likelihood")
    if not (0 < nu < np.inf and 0 < scale < np.inf):
        raise ValueError(f"degrees of freedom {nu} and scale {scale} have to be positive")
    return new_model(likelihood, n_predictors, n_classes, nu, scale)


cdef class Rows:
    """The rows of one shard under one model, and their bounds.

    likelihood: LOGISTIC, SOFTMAX or STUDENT. x: float32 (n, W), kept, not copied; y: float64 (n,), kept. nu and scale are
    those of Student t. Bounds touch at theta = 0's linear predictor (or at a residual of 0) until `tune` or `untune` is
    called. ValueError for arrays that do not fit.
    """

    def __init__(self, likelihood, x, y, n_predictors, n_classes=1, nu=4.0, scale=1.0):
        self.model = checked_model(likelihood, n_predictors, n_classes, nu, scale)
        self.likelihood, self.nu, self.scale = likelihood, nu, scale
        cdef const float[:, ::1] x_view
        cdef const double[::1] y_view
        cdef double[:, ::1] bounds
        if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 2 or not x.flags.c_contiguous \
                or x.shape[1] != self.model.width:
            raise ValueError(f"x has to be a C-contiguous float32 array of {self.model.width} columns "
                             f"({n_predictors} predictors rounded up to a multiple of 8)")
        if x.shape[0] >= 2**31:
            raise ValueError(f"{x.shape[0]} rows in one shard; use more shards: positions are 32-bit numbers")
        self.x, self.y = x, checked("y", y, np.float64, (x.shape[0],))
        if x[:, n_predictors:].any():
            raise ValueError(f"x has to be 0 beyond its {n_predictors} predictors")
        allowed = np.array([-1.0, 1.0]) if likelihood == LOGISTIC else np.arange(n_classes)
        if likelihood != STUDENT and not np.isin(self.y, allowed).all():
            raise ValueError("y has values other than " + ("-1 and +1" if likelihood == LOGISTIC
                                                           else f"the classes 0..{n_classes - 1}"))
        x_view, y_view = self.x, self.y
        self.n, self.n_predictors, self.n_classes = x.shape[0], n_predictors, self.model.n_classes
        self.n_parameters, self.n_bounds = n_predictors * self.model.n_classes, self.model.n_bounds
        self.all_bounds = np.zeros((self.n, self.n_bounds))
        bounds = self.all_bounds
        if self.n:
            self.block.x, self.block.y, self.block.bounds = &x_view[0, 0], &y_view[0], &bounds[0, 0]
        self.block.n = self.n
        self.work = aligned(rows_scratch(&self.model) + 128 * self.model.width, np.float64)
        self.padded_theta = aligned(self.n_classes * self.model.width, np.float64)
        self.scratch, self.padded = <double *>address(self.work), <double *>address(self.padded_theta)
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
        cdef const double[::1] view = checked("theta", theta, np.float64, (self.n_parameters,))
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
        cdef const double[::1] w = checked("weights", weights, np.float64, (self.n,))
        cdef int64_t width = self.model.width
        flat = aligned(width * width, np.float64)
        cdef double *out = <double *>address(flat)
        if self.n:
            with nogil:
                gram(&self.model, &self.block, &w[0], out, self.scratch)
        full = flat.reshape(width, width)[:self.n_predictors, :self.n_predictors]
        return np.triu(full) + np.triu(full, 1).T

    def combine(self, v):
        """float64 (K, D): sum of v x', in row order. v: float64 (n, K)."""
        cdef const double[:, ::1] view = checked("v", v, np.float64, (self.n, self.n_classes))
        flat = aligned(self.n_classes * self.model.width, np.float64)
        cdef double *out = <double *>address(flat)
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
            out = in_place("gradient", gradient, self.n_parameters)
            flat = aligned(self.n_classes * self.model.width, np.float64)
            sum = <double *>address(flat)
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
