"""An outcome with a regression in each cluster: its part in a sweep, and passes over the rows of a shard.

`Response` is passed to `mixture.sweep`, which then leaves invariant the law of the labels given coefficients of all
clusters (Neal 2000, Algorithm 8; docs/math.md 2.16). response.h has the likelihood, response_rows.h the passes;
kernels/mixture/twin_response.py is the same in plain Python.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from mpibayes.kernels.common.machine cimport address, aligned
from mpibayes.kernels.mixture.layout cimport (
    MOST_ETA, MOST_FRESH, RESPONSE_LOGISTIC, RESPONSE_NORMAL, RESPONSE_POISSON, RESPONSE_STUDENT_T, response_t,
)
from mpibayes.kernels.mixture.rows cimport pad16

from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "response_kernels.h" nogil:
    int kernel_isa
    void kernel_respond(const response_t *, const double *, const double *, int64_t, double *, double *, double *)
    void kernel_find_gaps(const response_t *, const double *, const double *, const double *, const double *, int64_t,
                          double *)


cdef extern from "special.h" nogil:
    double exp_negative(double)


cdef enum:
    BATCH = 64  # rows whose likelihoods are computed together


kernel_isa = ISA_NUMBER
LOGISTIC, STUDENT_T, NORMAL, POISSON = RESPONSE_LOGISTIC, RESPONSE_STUDENT_T, RESPONSE_NORMAL, RESPONSE_POISSON
MOST_AUXILIARY = MOST_FRESH  # most coefficient vectors tried for a new cluster


cdef double _exp(double x) noexcept nogil:
    x = min(max(x, -MOST_ETA), MOST_ETA)
    return exp_negative(x) if x <= 0 else 1.0 / exp_negative(-x)


cdef int _set_scale(response_t *c, kind, double nu, double scale) except -1:
    if kind not in (LOGISTIC, STUDENT_T, NORMAL, POISSON) or not (nu > 0 and scale > 0):
        raise ValueError(f"likelihood {kind}, {nu} degrees of freedom, scale {scale}: there is no such outcome")
    c.kind, c.half = kind, 0.5 * (nu + 1.0)
    c.precision = 1.0 / (scale * np.sqrt(nu) if kind == STUDENT_T else scale)
    return 0


cdef class Response:
    """The outcome of a shard's rows, with coefficients of instantiated clusters and of the tail's slots.

    y (n,): -1 or 1 if kind is LOGISTIC, a count if it is POISSON; NaN if missing. u (n, p - 1) float32: predictors with
    coefficients in each cluster. offset, odds (n,): see `offsets`. theta (p, K1): of the instantiated clusters in the
    shard's order, the intercept first; slots (p, T): of the tail's first T slots. nu, scale: of Student's t and a
    normal. Only the coefficients are copied.
    """

    def __init__(self, kind, const double[::1] y, const float[:, ::1] u, const double[::1] offset,
                 const double[::1] odds, theta, slots, double nu=4.0, double scale=1.0):
        cdef int64_t n = y.shape[0]
        if not (u.shape[0] == offset.shape[0] == odds.shape[0] == n):
            raise ValueError("y, u, offset and odds are of different numbers of rows")
        theta, slots = np.asarray(theta, np.float64), np.asarray(slots, np.float64)
        if len(theta) != u.shape[1] + 1 or len(slots) != u.shape[1] + 1:
            raise ValueError("coefficients do not fit the predictors")
        _set_scale(&self.c, kind, nu, scale)
        self.y, self.u, self.offset, self.odds = y, u, offset, odds
        self.c.p, self.c.base, self.c.stride = len(theta), pad16(theta.shape[1]), 0
        if n:
            self.c.y, self.c.offset, self.c.odds = &y[0], &offset[0], &odds[0]
        self.c.u = &u[0, 0] if n and u.shape[1] else NULL
        self.room = -1
        self._hold(pad16(slots.shape[1]))
        for a in range(self.c.p):
            row = self._row(a)
            row[:theta.shape[1]] = theta[a]
            row[self.c.base:self.c.base + slots.shape[1]] = slots[a]
        self._take_exponentials()

    def __len__(self):
        return self.y.shape[0]

    def renew(self, const double[:, :, ::1] fresh, const double[::1] pick):
        """Replace the candidate coefficients (n, r, p) of new clusters, and the uniforms (n,) that choose among
        them."""
        if fresh.shape[0] != len(self) or fresh.shape[2] != self.c.p or pick.shape[0] != len(self) \
                or not 1 <= fresh.shape[1] <= MOST_FRESH:
            raise ValueError(f"expected 1 to {MOST_FRESH} sets of coefficients for each row")
        self.fresh, self.pick = fresh, pick
        self.c.n_fresh = fresh.shape[1]
        if fresh.shape[0]:
            self.c.fresh, self.c.pick = &fresh[0, 0, 0], &pick[0]

    def slots(self, which):
        """Coefficients (p, m) of the tail's slots `which`."""
        return np.stack([self._row(a)[self.c.base + np.asarray(which)] for a in range(self.c.p)])

    def _row(self, a):
        """View of theta_a, or for a = p and p + 1 of the exponentials."""
        return self.buffer[a * self.c.stride:(a + 1) * self.c.stride]

    cdef int make_room(self, int64_t capacity) except -1:
        """Make room for `capacity` slots; current contents stay."""
        if capacity > self.room:
            self._hold(capacity)
        return 0

    def _hold(self, int64_t capacity):
        cdef int64_t stride = self.c.base + capacity, a, old = self.c.stride
        cdef object before = self.buffer
        buffer = aligned((self.c.p + 2) * stride, np.float64)
        for a in range(self.c.p + 2) if old else ():
            buffer[a * stride:a * stride + old] = before[a * old:(a + 1) * old]
        self.buffer, self.room, self.c.stride = buffer, capacity, stride
        self.c.theta = <double *>address(buffer)
        self.c.up = self.c.theta + self.c.p * stride
        self.c.down = self.c.up + stride

    def _take_exponentials(self):
        cdef int64_t k
        for k in range(self.c.stride):
            self.c.up[k], self.c.down[k] = _exp(self.c.theta[k]), _exp(-self.c.theta[k])


def offsets(const float[:, ::1] w, const double[::1] beta, const double[::1] y):
    """Return (offset, odds), each float64 (n,): w'beta, and exp(-y w'beta); w (n, D)."""
    cdef int64_t i, d, n = w.shape[0], most = w.shape[1]
    if beta.shape[0] != most or y.shape[0] != n:
        raise ValueError("predictors, coefficients and outcome do not fit together")
    out = np.zeros(n), np.ones(n)
    cdef double[::1] offset = out[0], odds = out[1]
    cdef double total
    with nogil:
        for i in range(n):
            total = 0
            for d in range(most):
                total += w[i, d] * beta[d]
            offset[i] = total
            if y[i] == y[i]:
                odds[i] = _exp(-y[i] * total)
    return out


def slopes(kind, const int32_t[::1] z, const double[::1] y, const float[:, ::1] u, const float[:, ::1] w,
           const double[:, ::1] theta, const double[::1] beta, double nu=4.0, double scale=1.0):
    """Log likelihood of a shard's rows and its slopes in all coefficients, flat: float64 (K + 1 + K p + D,).

    The value of each cluster (K,), d / d log scale, then the slopes in theta (K, p), then in beta (D,). Terms of the
    values that depend on y alone, and -log scale of each row, are left out. Rows without y or label do not count.
    """
    cdef response_t c
    cdef int64_t n = z.shape[0], p = theta.shape[1], most = w.shape[1], K = theta.shape[0]
    cdef int64_t i, j, a, d, m, k, at = K + 1 + K * p
    if not (y.shape[0] == u.shape[0] == w.shape[0] == n and u.shape[1] == p - 1 and beta.shape[0] == most):
        raise ValueError("rows and coefficients do not fit together")
    memset(&c, 0, sizeof(c))
    _set_scale(&c, kind, nu, scale)
    scratch = aligned(5 * BATCH, np.float64)
    cdef double *eta = <double *>address(scratch)
    cdef double *target = eta + BATCH
    cdef double *value = target + BATCH
    cdef double *slope = value + BATCH
    cdef double *spread = slope + BATCH
    cdef int64_t[BATCH] row
    cdef double x
    out = np.zeros(K + 1 + K * p + most)
    cdef double[::1] total = out
    memset(eta, 0, 5 * BATCH * sizeof(double))
    with nogil:
        i = 0
        while i < n:
            m = 0
            while i < n and m < BATCH:
                k = z[i]
                if k >= 0 and y[i] == y[i]:
                    if k >= K:
                        with gil:
                            raise ValueError(f"row {i} is in cluster {k}, of {K}")
                    x = theta[k, 0]
                    for a in range(1, p):
                        x += theta[k, a] * u[i, a - 1]
                    for d in range(most):
                        x += w[i, d] * beta[d]
                    eta[m], target[m], row[m] = x, y[i], i
                    m += 1
                i += 1
            kernel_respond(&c, target, eta, (m + 7) & ~<int64_t>7, value, slope, spread)
            for j in range(m):
                k = K + 1 + z[row[j]] * p
                total[z[row[j]]] += value[j]
                total[K] += spread[j]
                total[k] += slope[j]
                for a in range(1, p):
                    total[k + a] += slope[j] * u[row[j], a - 1]
                for d in range(most):
                    total[at + d] += slope[j] * w[row[j], d]
    return out


def squares(const int32_t[::1] z, const double[::1] y, const float[:, ::1] u, const float[:, ::1] w, int64_t n_clusters):
    """Sums over the rows of each cluster, float64 (K, 1 + q (q + 1) / 2), q = p + D.

    The sum of y, and the lower triangle, row by row, of the sum of v v' with v = (1, u, w).
    """
    cdef int64_t n = z.shape[0], p = 1 + u.shape[1], q = p + w.shape[1], i, a, b, at, k
    if not (y.shape[0] == u.shape[0] == w.shape[0] == n):
        raise ValueError("rows do not fit together")
    out = np.zeros((n_clusters, 1 + q * (q + 1) // 2))
    cdef double[:, ::1] total = out
    cdef double[::1] v = np.ones(q)
    with nogil:
        for i in range(n):
            k = z[i]
            if k < 0 or y[i] != y[i]:
                continue
            if k >= n_clusters:
                with gil:
                    raise ValueError(f"row {i} is in cluster {k}, of {n_clusters}")
            for a in range(1, p):
                v[a] = u[i, a - 1]
            for a in range(p, q):
                v[a] = w[i, a - p]
            total[k, 0] += y[i]
            at = 1
            for a in range(q):
                for b in range(a + 1):
                    total[k, at] += v[a] * v[b]
                    at += 1
    return out


def gaps(kind, const int32_t[::1] z, const double[::1] y, const float[:, ::1] u, const float[:, ::1] w,
         const double[:, ::1] theta, const double[::1] beta, const double[::1] h, const double[::1] level,
         double nu=4.0):
    """Gaps between the log likelihoods of a shard's rows and their bounds, float64 (n,); 0 without y or label.

    h, level (n,): of the bounds, see hpc/outcome/bounds.py.
    """
    cdef response_t c
    cdef int64_t n = z.shape[0], p = theta.shape[1], most = w.shape[1], i = 0, j, a, d, m, k
    if kind not in (LOGISTIC, STUDENT_T) or not (
            y.shape[0] == u.shape[0] == w.shape[0] == h.shape[0] == level.shape[0] == n
            and u.shape[1] == p - 1 and beta.shape[0] == most):
        raise ValueError("rows, bounds and coefficients do not fit together")
    memset(&c, 0, sizeof(c))
    _set_scale(&c, kind, nu, 1.0)
    scratch = aligned(5 * BATCH, np.float64)
    cdef double *eta = <double *>address(scratch)
    cdef double *target = eta + BATCH
    cdef double *curve = target + BATCH
    cdef double *height = curve + BATCH
    cdef double *gap = height + BATCH
    cdef int64_t[BATCH] row
    cdef double x
    out = np.zeros(n)
    cdef double[::1] result = out
    memset(eta, 0, 5 * BATCH * sizeof(double))
    with nogil:
        while i < n:
            m = 0
            while i < n and m < BATCH:
                k = z[i]
                if k >= 0 and y[i] == y[i]:
                    if k >= theta.shape[0]:
                        with gil:
                            raise ValueError(f"row {i} is in cluster {k}, of {theta.shape[0]}")
                    x = theta[k, 0]
                    for a in range(1, p):
                        x += theta[k, a] * u[i, a - 1]
                    for d in range(most):
                        x += w[i, d] * beta[d]
                    eta[m], target[m], curve[m], height[m], row[m] = x, y[i], h[i], level[i], i
                    m += 1
                i += 1
            kernel_find_gaps(&c, target, eta, curve, height, (m + 7) & ~<int64_t>7, gap)
            for j in range(m):
                result[row[j]] = gap[j]
    return out


def bound_sums(const int32_t[::1] z, const double[::1] slope, const double[::1] h, const float[:, ::1] u,
               const float[:, ::1] w, int64_t n_clusters):
    """Sums over the rows of each cluster, float64 (K, q + q (q + 1) / 2), q = p + D, with v = (1, u, w).

    The sum of slope v, and the lower triangle, row by row, of the sum of h v v'. slope (n,): NaN where y is missing.
    """
    cdef int64_t n = z.shape[0], p = 1 + u.shape[1], q = p + w.shape[1], i, a, b, at, k
    if not (slope.shape[0] == h.shape[0] == u.shape[0] == w.shape[0] == n):
        raise ValueError("rows do not fit together")
    out = np.zeros((n_clusters, q + q * (q + 1) // 2))
    cdef double[:, ::1] total = out
    cdef double[::1] v = np.ones(q)
    cdef double x
    with nogil:
        for i in range(n):
            k = z[i]
            if k < 0 or slope[i] != slope[i]:
                continue
            if k >= n_clusters:
                with gil:
                    raise ValueError(f"row {i} is in cluster {k}, of {n_clusters}")
            for a in range(1, p):
                v[a] = u[i, a - 1]
            for a in range(p, q):
                v[a] = w[i, a - p]
            at = q
            for a in range(q):
                total[k, a] += slope[i] * v[a]
                x = h[i] * v[a]
                for b in range(a + 1):
                    total[k, at] += x * v[b]
                    at += 1
    return out
