"""Passes over users' ratings under a factorization with Gaussian q: users are solved against the items, and added to
what the items are solved from (docs/math.md 8.8).

A rating costs two rows of 3/2 T numbers or less, T = D (D + 1) / 2, a user D^3 operations or so. Nothing is drawn.

A row of the items' table has, first zone, E xx' (its lower triangle, row by row), and with biases E x c; second zone,
E x. Here x = v, or with biases (v, 1), and c is the item's bias. Then the last of E xx' is not 1 but E c^2, and the last
of E x is E c. A row of the items' sums has, first zone, E zz' and without biases the number of ratings; second zone,
r E z - E z b, with z = u, or (u, 1), and b the user's bias. Zones are padded to multiples of 8.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t

from mpibayes.kernels.common.machine cimport aligned
from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "factors.h" nogil:
    int kernel_isa
    enum:
        LANES
    ctypedef struct pass_t:
        int64_t D, biased, once, times, into_once, into_times
        const double *table
        const double *prior
        double center, sharpness
        const double *numbers
        double effective, spread, average
        int64_t guard
        const double *old
        double *fresh
        double rate
        double *sums
        double *numbered
        double *moments
    ctypedef struct factor_scratch_t:
        double *by_user
        double *scalar
        double *plain
        double *noise
        double *target
        double *sure
        double *tried
        double *root
        double *inverse
        double *row
        double *mean
        double *covariance
        double *value
        double *total
        int64_t held, broken
    void factor_pass(const pass_t *, const int64_t *, const int64_t *, int64_t, const int32_t *, const float *,
                     factor_scratch_t *)
    void factor_moments(int64_t, const double *, int64_t, double *, double *, factor_scratch_t *)
    void factor_shares(int64_t, const double *, const double *, int64_t, double *, factor_scratch_t *)


kernel_isa = ISA_NUMBER


def padded(n):
    """A number of doubles up to a multiple of 8."""
    return -(-n // LANES) * LANES


def widths(d, biased):
    """Zones of the items' table and of their sums, for vectors of d numbers, the bias among them."""
    t = d * (d + 1) // 2
    table = padded(t + d if biased else t), padded(d)
    return table, (padded(t if biased else t + 1), padded(d))


def rows(n, width):
    """Zeros, float64 (n, width), that start at a multiple of 64 bytes."""
    return aligned(n * width, np.float64).reshape(n, width)


cdef class Users:
    """Room for passes with vectors of d numbers, the bias among them, kept from one to the next."""

    cdef object _held
    cdef factor_scratch_t _s
    cdef pass_t _p
    cdef readonly int64_t d, table_width, sums_width

    def __init__(self, int64_t d, bint biased):
        if d < 1 + biased:
            raise ValueError(f"{d} numbers: expected {1 + biased} or more")
        table, sums = widths(d, biased)
        cdef int64_t t = d * (d + 1) // 2, w = t + d
        self.d, self.table_width, self.sums_width = d, sum(table), sum(sums)
        self._p.D, self._p.biased = d, biased
        self._p.once, self._p.times = table
        self._p.into_once, self._p.into_times = sums
        sizes = [2 * LANES * sum(table), 8 * LANES] + [w * LANES] * 5 + [t * LANES] * 3 + [d * LANES] * 2
        sizes += [sum(sums) + sums[1], (w + 4) * LANES]
        starts = np.concatenate([[0], np.cumsum([padded(size) for size in sizes])])
        self._held = aligned(starts[-1], np.float64)
        cdef double[::1] held = self._held
        cdef double *base = &held[0]
        cdef int64_t[::1] at = starts.astype(np.int64)
        cdef factor_scratch_t *s = &self._s
        s.by_user, s.scalar, s.plain, s.noise = base, base + at[1], base + at[2], base + at[3]
        s.target, s.sure, s.tried = base + at[4], base + at[5], base + at[6]
        s.root, s.inverse, s.covariance = base + at[7], base + at[8], base + at[9]
        s.row, s.mean, s.value, s.total = base + at[10], base + at[11], base + at[12], base + at[13]

    def __call__(
        self, const int64_t[::1] starts, const int64_t[::1] users, const int32_t[::1] columns, const float[::1] values,
        const double[:, ::1] table, const double[::1] prior, double center, double sharpness, double[:, ::1] sums=None,
        double[:, ::1] moments=None, const double[::1] numbers=None, double[:, ::1] numbered=None, double effective=0.0,
        double spread=0.0, double average=0.0, bint guard=True, const double[:, ::1] old=None, double[:, ::1] fresh=None,
        double rate=1.0,
    ):
        """Solve users, add them to the items' `sums`, and return (totals, held, broken).

        starts: int64 (n + 1,), a user's ratings are columns and values starts[i] .. starts[i + 1] - 1. users: int64
        (m,), which, None for all. table: 64-byte aligned. prior (T + D,): a user's precision and its product with the
        mean. sharpness: 1 / variance of a rating. moments (m, D + T): filled with means and covariances.

        numbers: with noise, one for each rating of the users asked for; numbered: like sums, of the ratings times their
        numbers. effective: noise as of so many ratings of each user, about the mean of its own numbers; 0: numbers
        times `spread`, about `average`. guard: whether noise is held back. old, fresh (n, T + D): natural parameters
        before a step of size `rate`, and after it.

        totals, float64 (T + D + 4,): over those of these users that have ratings, solved without noise and steps: E aa'
        of their vectors a, E a, the squares that are left of their ratings, the part of the bound that depends on them,
        ratings, users. held: users whose noise was held back. broken: users whose
        precision is not positive definite. Raises ValueError.
        """
        cdef int64_t n = starts.shape[0] - 1, m = n if users is None else users.shape[0], i, many = 0
        cdef int64_t d = self.d, w = d * (d + 1) // 2 + d, items = table.shape[0], last = columns.shape[0]
        if table.shape[1] != self.table_width or prior.shape[0] != w or values.shape[0] != last:
            raise ValueError(f"expected a table {self.table_width} wide, and a prior of {w} numbers")
        if n < 0 or starts[0] < 0 or starts[n] > last or <size_t>&table[0, 0] % 64:
            raise ValueError("starts do not fit the ratings, or the table is not aligned")
        for i in range(n):
            if starts[i] > starts[i + 1]:
                raise ValueError(f"starts descend at {i}")
        if users is not None:
            for i in range(m):
                if not 0 <= users[i] < n:
                    raise ValueError(f"user {users[i]} of {n}")
                many += starts[users[i] + 1] - starts[users[i]]
        else:
            many = starts[n] - starts[0]
        if sums is not None and (sums.shape[0] < items or sums.shape[1] != self.sums_width):
            raise ValueError(f"sums: expected ({items}, {self.sums_width})")
        if numbers is not None:
            if numbers.shape[0] != many:
                raise ValueError(f"expected {many} numbers, got {numbers.shape[0]}")
            if sums is not None and (
                numbered is None or numbered.shape[0] != sums.shape[0] or numbered.shape[1] != self.sums_width
            ):
                raise ValueError("numbered: expected the form of sums")
        if moments is not None and (moments.shape[0] != m or moments.shape[1] != w):
            raise ValueError(f"moments: expected ({m}, {w})")
        if old is not None and (
            fresh is None or old.shape[0] != n or fresh.shape[0] != n or old.shape[1] != w or fresh.shape[1] != w
        ):
            raise ValueError(f"old and fresh: expected ({n}, {w})")
        cdef pass_t *p = &self._p
        cdef factor_scratch_t *s = &self._s
        self._held[:] = 0.0
        if m == 0 or items == 0:
            return np.zeros(w + 4), 0, 0
        cdef int32_t most = -1, least = 0
        with nogil:
            for i in range(starts[0], starts[n]):
                most, least = max(most, columns[i]), min(least, columns[i])
        if least < 0 or most >= items:
            raise ValueError(f"item {most if least >= 0 else least} of {items}")
        p.table, p.prior, p.center, p.sharpness, p.rate = &table[0, 0], &prior[0], center, sharpness, rate
        p.numbers = &numbers[0] if numbers is not None and many else NULL
        p.sums = &sums[0, 0] if sums is not None else NULL
        p.numbered = &numbered[0, 0] if numbered is not None and p.numbers != NULL else NULL
        p.effective, p.spread, p.average, p.guard = effective, spread, average, guard
        p.old = &old[0, 0] if old is not None else NULL
        p.fresh = &fresh[0, 0] if old is not None else NULL
        p.moments = &moments[0, 0] if moments is not None else NULL
        s.held = s.broken = 0
        cdef const int64_t *which = NULL if users is None else &users[0]
        cdef const int32_t *c = NULL if last == 0 else &columns[0]
        cdef const float *v = NULL if last == 0 else &values[0]
        with nogil:
            factor_pass(p, &starts[0], which, m, c, v, s)
        cdef double[::1] held = self._held
        at = s.total - &held[0]
        by_lane = self._held[at:at + (w + 4) * LANES].reshape(w + 4, LANES)
        halves = by_lane[:, :4] + by_lane[:, 4:]
        quarters = halves[:, :2] + halves[:, 2:]
        return quarters[:, 0] + quarters[:, 1], s.held, s.broken

    def solved(self, const double[:, ::1] natural):
        """Means (n, D) and covariances (n, T) side by side, and the log determinants of the precisions (n,), from rows
        of precision and linear term (n, T + D); NaN where a precision is not positive definite."""
        cdef int64_t n = natural.shape[0], d = self.d, w = d * (d + 1) // 2 + d
        if natural.shape[1] != w:
            raise ValueError(f"expected {w} numbers a row")
        cdef double[:, ::1] moments = np.empty((n, w))
        cdef double[::1] log_det = np.empty(n)
        cdef factor_scratch_t *s = &self._s
        if n:
            with nogil:
                factor_moments(d, &natural[0, 0], n, &moments[0, 0], &log_det[0], s)
        return np.asarray(moments), np.asarray(log_det)

    def shares(self, const double[:, ::1] sure, const double[:, ::1] noise):
        """Largest t <= 1 for each row of packed matrices (n, T) that leaves sure + t noise >= KEPT sure, within 2^-24
        from below, (n,)."""
        cdef int64_t n = sure.shape[0], d = self.d, t = d * (d + 1) // 2
        if sure.shape[1] != t or noise.shape[0] != n or noise.shape[1] != t:
            raise ValueError(f"expected ({n}, {t})")
        cdef double[::1] share = np.empty(n)
        cdef factor_scratch_t *s = &self._s
        if n:
            with nogil:
                factor_shares(d, &sure[0, 0], &noise[0, 0], n, &share[0], s)
        return np.asarray(share)
