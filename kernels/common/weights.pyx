"""Draws by log weights, and the Pitman-Yor prior of partitions: small work that is asked for many times a cycle.

Sums go in NumPy's order, and logarithms are libm's: results have the bits of the same lines in NumPy, where that takes
libm's as well.
"""

import numpy as np

from libc.math cimport exp, log
from libc.stdint cimport int64_t

cdef extern from "functions.h" nogil:
    double log_gamma_of(double x)


cdef double _sum(const double *x, int64_t n) noexcept nogil:
    """The sum of n numbers in the order of `np.add.reduce` along a contiguous axis."""
    cdef int64_t i, j, half
    cdef double total = 0.0
    cdef double r[8]
    if n < 8:
        for i in range(n):
            total += x[i]
        return total
    if n > 128:
        half = n // 2
        half -= half % 8
        return _sum(x, half) + _sum(x + half, n - half)
    for j in range(8):
        r[j] = x[j]
    for i in range(8, n - n % 8, 8):
        for j in range(8):
            r[j] += x[i + j]
    total = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]))
    for i in range(n - n % 8, n):
        total += x[i]
    return total


cdef int64_t _pick(const double *log_weight, int64_t n, double u, double *below) noexcept nogil:
    """The number drawn by a uniform number, or -1 where weights are no numbers. below: room for n numbers."""
    cdef double top = log_weight[0], total = 0.0
    cdef int64_t i
    for i in range(1, n):
        if log_weight[i] > top:
            top = log_weight[i]
    for i in range(n):
        total += exp(log_weight[i] - top)
        below[i] = total
    if not total - total == 0.0:
        return -1
    total *= u
    i = 0
    while i < n - 1 and below[i] <= total:
        i += 1
    return i


def pick(const double[::1] log_weight, double u):
    """Index drawn with probability proportional to exp(log_weight) by a uniform number in [0, 1); -infinity marks one
    that cannot be. -1 where a weight is not a number."""
    cdef int64_t n = log_weight.shape[0]
    cdef double[::1] below = np.empty(n)
    if n == 0:
        raise ValueError("there is nothing to draw")
    return _pick(&log_weight[0], n, u, &below[0])


def picks(const double[:, ::1] log_weight, const double[::1] u):
    """`pick` for each row, int64 (n,)."""
    cdef int64_t n = log_weight.shape[0], width = log_weight.shape[1], i
    out = np.empty(n, np.int64)
    cdef int64_t[::1] result = out
    cdef double[::1] below = np.empty(width)
    if u.shape[0] != n or (n and width == 0):
        raise ValueError("weights and uniform numbers do not fit together")
    with nogil:
        for i in range(n):
            result[i] = _pick(&log_weight[i, 0], width, u[i], &below[0])
    return out


def log_eppf(const int64_t[::1] size, const double[::1] concentrations, const double[::1] discounts):
    """Log probability (A, D) of a partition with block sizes `size` (K,), all positive, at every concentration and
    discount.

    Evaluated with products that start at i = 1, so that -d < alpha <= 0 is allowed (docs/math.md 1.1).
    """
    cdef int64_t n_clusters = size.shape[0], n_rows = 0, a, j, k
    out = np.empty((concentrations.shape[0], discounts.shape[0]))
    cdef double[:, ::1] result = out
    cdef double[::1] terms = np.empty(n_clusters + 1)
    cdef double alpha, d, blocks, alone
    with nogil:
        for k in range(n_clusters):
            n_rows += size[k]
        for j in range(discounts.shape[0]):
            d = discounts[j]
            alone = log_gamma_of(1.0 - d)
            for k in range(n_clusters):
                terms[k] = log_gamma_of(size[k] - d) - alone
            blocks = _sum(&terms[0], n_clusters)
            for a in range(concentrations.shape[0]):
                alpha = concentrations[a]
                for k in range(1, n_clusters):
                    terms[k - 1] = log(alpha + k * d) if d != 0.0 or k == 1 else terms[0]
                result[a, j] = (_sum(&terms[0], n_clusters - 1) - (log_gamma_of(alpha + n_rows) - log_gamma_of(alpha + 1.0))
                                + blocks)
    return out
