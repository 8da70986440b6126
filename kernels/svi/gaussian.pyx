"""A pass over rows under a mixture of Gaussians with full precisions: responsibilities, and sums weighted by these.

The variational E-step (docs/math.md 8.4). Nothing is drawn. A row costs K (D^2 + 3 D) operations, and D^2 + 3 D for
each component of which it is LEAST as likely as of its most likely one; the others count as 0.
"""

import numpy as np

from libc.stdint cimport int64_t

from mpibayes.kernels.common.machine cimport aligned
from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "gaussian.h" nogil:
    int kernel_isa
    enum:
        BLOCK
        LANES
    ctypedef struct mixture_t:
        int64_t K, D
        const double *mean
        const double *factor
        const double *constant
    ctypedef struct scratch_t:
        double *x
        double *y
        double *weighted
        double *log
        double *row
        double *plain
        double *numbered
    double gaussian_pass(const mixture_t *, const double *, const int64_t *, int64_t, const double *, scratch_t *)


kernel_isa = ISA_NUMBER


cdef class Pass:
    """Room for passes with K components and D columns, kept from one to the next: 64 bytes a sum, twice."""

    cdef object _held, _sums
    cdef scratch_t _scratch
    cdef int64_t _k, _d
    cdef object _lower

    def __init__(self, int64_t k, int64_t d):
        if k < 1 or d < 1:
            raise ValueError(f"{k} components of {d} columns: expected 1 or more of each")
        self._k, self._d = k, d
        self._lower = np.tril_indices(d)
        cdef int64_t width = 1 + d + d * (d + 1) // 2
        self._sums = aligned(2 * k * width * LANES, np.float64)
        self._held = aligned((3 * d + k + 4) * BLOCK, np.float64)
        cdef double[::1] sums = self._sums, held = self._held
        self._scratch.plain, self._scratch.numbered = &sums[0], &sums[k * width * LANES]
        self._scratch.x, self._scratch.y, self._scratch.weighted = &held[0], &held[d * BLOCK], &held[2 * d * BLOCK]
        self._scratch.log, self._scratch.row = &held[3 * d * BLOCK], &held[(3 * d + k) * BLOCK]

    def __call__(
        self, const double[:, ::1] x, const int64_t[::1] rows, const double[::1] numbers, const double[:, ::1] mean,
        factor, const double[::1] constant, double[:, :, ::1] sums,
    ):
        """The sum over rows of log sum_j exp(constant_j - |factor_j (x - mean_j)|^2), and `sums` added to.

        x (n, D), mean (K, D), factor (K, D, D) lower triangular, constant (K,), all float64. rows: int64 (m,), which
        rows of x, None for all. numbers: float64, one for each of these, or None. sums (1 or 2, K, 1 + D + T): of
        responsibility times 1, x - mean, and the lower triangle of its square, row by row; then these times the rows'
        numbers. Raises ValueError.
        """
        cdef int64_t k = self._k, d = self._d, n = x.shape[0] if rows is None else rows.shape[0], i
        cdef int64_t width = 1 + d + d * (d + 1) // 2
        cdef double[:, ::1] packed = np.ascontiguousarray(np.asarray(factor)[:, self._lower[0], self._lower[1]])
        if x.shape[1] != d or mean.shape[0] != k or mean.shape[1] != d or packed.shape[0] != k or len(constant) != k:
            raise ValueError(f"expected {k} components of {d} columns")
        if sums.shape[0] < (1 if numbers is None else 2) or sums.shape[1] != k or sums.shape[2] != width:
            raise ValueError(f"sums: expected (1 or 2, {k}, {width})")
        if numbers is not None and numbers.shape[0] != n:
            raise ValueError(f"expected a number for each of {n} rows, got {numbers.shape[0]}")
        if n == 0:
            return 0.0
        if rows is not None:
            for i in range(n):
                if not 0 <= rows[i] < x.shape[0]:
                    raise ValueError(f"row {rows[i]} of {x.shape[0]}")
        cdef mixture_t m
        m.K, m.D, m.mean, m.factor, m.constant = k, d, &mean[0, 0], &packed[0, 0], &constant[0]
        cdef const int64_t *which = NULL if rows is None else &rows[0]
        cdef const double *each = NULL if numbers is None else &numbers[0]
        cdef scratch_t *scratch = &self._scratch
        cdef double total
        self._sums[:] = 0.0
        with nogil:
            total = gaussian_pass(&m, &x[0, 0], which, n, each, scratch)
        by_lane = self._sums.reshape(2, k, width, LANES)[:sums.shape[0]]
        halves = by_lane[..., :4] + by_lane[..., 4:]
        quarters = halves[..., :2] + halves[..., 2:]
        into = np.asarray(sums)
        into += quarters[..., 0] + quarters[..., 1]
        return total
