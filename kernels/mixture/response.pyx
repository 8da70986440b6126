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
    MOST_ETA, MOST_FRESH, RESPONSE_LOGISTIC, RESPONSE_NORMAL, RESPONSE_POISSON, RESPONSE_SOFTMAX,
    RESPONSE_STUDENT_T, response_t,
)
from mpibayes.kernels.mixture.rows cimport pad16

from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "response_kernels.h" nogil:
    int kernel_isa
    void kernel_respond(const response_t *, const double *, const double *, int64_t, double *, double *, double *)
    void kernel_offer(const response_t *, int64_t, double *)
    void kernel_find_gaps(const response_t *, const double *, const double *, const double *, const double *, int64_t,
                          double *)


cdef extern from "special.h" nogil:
    double exp_negative(double)


cdef enum:
    BATCH = 64  # rows whose likelihoods are computed together


kernel_isa = ISA_NUMBER
LOGISTIC, STUDENT_T, NORMAL, POISSON = RESPONSE_LOGISTIC, RESPONSE_STUDENT_T, RESPONSE_NORMAL, RESPONSE_POISSON
SOFTMAX = RESPONSE_SOFTMAX
MOST_AUXILIARY = MOST_FRESH  # most coefficient vectors tried for a new cluster


cdef double _exp(double x) noexcept nogil:
    x = min(max(x, -MOST_ETA), MOST_ETA)
    return exp_negative(x) if x <= 0 else 1.0 / exp_negative(-x)


cdef int _set_law(response_t *c, kind, int64_t n, int64_t p, double nu, double scale) except -1:
    """n: number of coefficients of a cluster, p of each of its linear predictors."""
    if kind not in (LOGISTIC, STUDENT_T, NORMAL, POISSON, SOFTMAX) or not (nu > 0 and scale > 0):
        raise ValueError(f"likelihood {kind}, {nu} degrees of freedom, scale {scale}: there is no such outcome")
    if n % p or n < p or (n > p and kind != SOFTMAX):
        raise ValueError("coefficients do not fit the predictors")
    c.kind, c.n_eta, c.p, c.half = kind, n // p, p, 0.5 * (nu + 1.0)
    c.precision = 1.0 / (scale * np.sqrt(nu) if kind == STUDENT_T else scale)
    return 0


cdef class Response:
    """The outcome of a shard's rows, with coefficients of instantiated clusters and of the tail's slots.

    y (n,): -1 or 1 if kind is LOGISTIC, a count if it is POISSON, a level from 0 on if it is SOFTMAX; NaN if missing.
    u (n, p - 1) float32: predictors with coefficients in each cluster. offset, odds (n C,): see `offsets`. theta
    (C p, K1): of the instantiated clusters in the shard's order, of each of the C linear predictors the intercept
    first; slots (C p, T): of the tail's first T slots. nu, scale: of Student's t and a normal. Only the coefficients
    are copied. C is 1, of a softmax the number of levels less one: the first level's linear predictor is 0.
    """

    def __init__(self, kind, const double[::1] y, const float[:, ::1] u, const double[::1] offset,
                 const double[::1] odds, theta, slots, double nu=4.0, double scale=1.0):
        cdef int64_t n = y.shape[0]
        theta, slots = np.asarray(theta, np.float64), np.asarray(slots, np.float64)
        _set_law(&self.c, kind, len(theta), u.shape[1] + 1, nu, scale)
        if not (u.shape[0] == n and offset.shape[0] == odds.shape[0] == n * self.c.n_eta):
            raise ValueError("y, u, offset and odds are of different numbers of rows")
        if len(slots) != len(theta):
            raise ValueError("coefficients do not fit the predictors")
        self.y, self.u, self.offset, self.odds = y, u, offset, odds
        self.c.base, self.c.stride = pad16(theta.shape[1]), 0
        if n:
            self.c.y, self.c.offset, self.c.odds = &y[0], &offset[0], &odds[0]
        self.c.u = &u[0, 0] if n and u.shape[1] else NULL
        self.room = -1
        self._hold(pad16(slots.shape[1]))
        for a in range(len(theta)):
            row = self._row(a)
            row[:theta.shape[1]] = theta[a]
            row[self.c.base:self.c.base + slots.shape[1]] = slots[a]
        self._take_exponentials()

    def __len__(self):
        return self.y.shape[0]

    def renew(self, const double[:, :, ::1] fresh, const double[::1] pick):
        """Replace the candidate coefficients (n, r, C p) of new clusters, and the uniforms (n,) that choose among
        them."""
        if fresh.shape[0] != len(self) or fresh.shape[2] != self.c.n_eta * self.c.p or pick.shape[0] != len(self) \
                or not 1 <= fresh.shape[1] <= MOST_FRESH:
            raise ValueError(f"expected 1 to {MOST_FRESH} sets of coefficients for each row")
        self.fresh, self.pick = fresh, pick
        self.c.n_fresh = fresh.shape[1]
        if fresh.shape[0]:
            self.mean = np.empty(fresh.shape[0])
            self.c.fresh, self.c.pick, self.c.mean = &fresh[0, 0, 0], &pick[0], &self.mean[0]
            kernel_offer(&self.c, fresh.shape[0], &self.mean[0])

    def slots(self, which):
        """Coefficients (C p, m) of the tail's slots `which`."""
        return np.stack([self._row(a)[self.c.base + np.asarray(which)] for a in range(self.c.n_eta * self.c.p)])

    def _row(self, a):
        """View of theta_a, or for a from C p on of the exponentials."""
        return self.buffer[a * self.c.stride:(a + 1) * self.c.stride]

    cdef int make_room(self, int64_t capacity) except -1:
        """Make room for `capacity` slots; current contents stay."""
        if capacity > self.room:
            self._hold(capacity)
        return 0

    def _hold(self, int64_t capacity):
        cdef int64_t stride = self.c.base + capacity, a, old = self.c.stride
        cdef object before = self.buffer
        cdef int64_t n_theta = self.c.n_eta * self.c.p, n_rows = n_theta + self.c.n_eta + 1
        buffer = aligned(n_rows * stride, np.float64)
        for a in range(n_rows) if old else ():
            buffer[a * stride:a * stride + old] = before[a * old:(a + 1) * old]
        self.buffer, self.room, self.c.stride = buffer, capacity, stride
        self.c.theta = <double *>address(buffer)
        self.c.up = self.c.theta + n_theta * stride
        self.c.down = self.c.up + self.c.n_eta * stride

    def _take_exponentials(self):
        cdef int64_t k, c
        for k in range(self.c.stride):
            self.c.down[k] = _exp(-self.c.theta[k])
            for c in range(self.c.n_eta):
                self.c.up[c * self.c.stride + k] = _exp(self.c.theta[c * self.c.p * self.c.stride + k])


def offsets(const float[:, ::1] w, const double[::1] beta, const double[::1] y, int64_t n_eta=1):
    """Return (offset, odds), each float64 (n C,): w'beta, and exp(-y w'beta), or exp(w'beta) where C > 1.

    w (n, D), beta (C D,); C = n_eta numbers of a row lie together.
    """
    cdef int64_t i, c, d, n = w.shape[0], most = w.shape[1]
    if beta.shape[0] != n_eta * most or y.shape[0] != n:
        raise ValueError("predictors, coefficients and outcome do not fit together")
    out = np.zeros(n * n_eta), np.ones(n * n_eta)
    cdef double[::1] offset = out[0], odds = out[1]
    cdef double total
    with nogil:
        for i in range(n):
            for c in range(n_eta):
                total = 0
                for d in range(most):
                    total += w[i, d] * beta[c * most + d]
                offset[i * n_eta + c] = total
                if y[i] == y[i]:
                    odds[i * n_eta + c] = _exp(total if n_eta > 1 else -y[i] * total)
    return out


def slopes(kind, const int32_t[::1] z, const double[::1] y, const float[:, ::1] u, const float[:, ::1] w,
           const double[:, ::1] theta, const double[::1] beta, double nu=4.0, double scale=1.0,
           const double[::1] shift=None):
    """Log likelihood of a shard's rows and its slopes in all coefficients, flat: float64 (K + 1 + K C p + C D,).

    The value of each cluster (K,), d / d log scale, then the slopes in theta (K, C p), then in beta (C D,). Terms of
    the values that depend on y alone, and -log scale of each row, are left out. Rows without y or label do not count.
    shift (n,): added to the linear predictors of a Poisson, whose values are without y shift; None: 0.
    """
    cdef response_t c
    cdef bint shifted = shift is not None
    cdef int64_t n = z.shape[0], p = u.shape[1] + 1, most = w.shape[1], K = theta.shape[0], n_theta = theta.shape[1]
    cdef int64_t i, j, a, d, e, m, k, n_eta, at = K + 1 + K * n_theta
    memset(&c, 0, sizeof(c))
    _set_law(&c, kind, n_theta, p, nu, scale)
    n_eta = c.n_eta
    if not (y.shape[0] == u.shape[0] == w.shape[0] == n and beta.shape[0] == n_eta * most) or (
            shifted and (shift.shape[0] != n or kind != POISSON)):
        raise ValueError("rows and coefficients do not fit together")
    scratch = aligned((3 + 2 * n_eta) * BATCH, np.float64)
    cdef double *eta = <double *>address(scratch)
    cdef double *slope = eta + n_eta * BATCH
    cdef double *target = slope + n_eta * BATCH
    cdef double *value = target + BATCH
    cdef double *spread = value + BATCH
    cdef int64_t[BATCH] row
    cdef double x
    out = np.zeros(K + 1 + K * n_theta + n_eta * most)
    cdef double[::1] total = out
    memset(eta, 0, (3 + 2 * n_eta) * BATCH * sizeof(double))
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
                    for e in range(n_eta):
                        x = theta[k, e * p]
                        for a in range(1, p):
                            x += theta[k, e * p + a] * u[i, a - 1]
                        for d in range(most):
                            x += w[i, d] * beta[e * most + d]
                        if shifted:
                            x += shift[i]
                        eta[e * BATCH + m] = x
                    target[m], row[m] = y[i], i
                    m += 1
                i += 1
            kernel_respond(&c, target, eta, BATCH if n_eta > 1 else (m + 7) & ~<int64_t>7, value, slope, spread)
            for j in range(m):
                x = target[j] * shift[row[j]] if shifted else 0.0
                total[z[row[j]]] += value[j] - x
                total[K] += spread[j]
                for e in range(n_eta):
                    k, x = K + 1 + z[row[j]] * n_theta + e * p, slope[e * BATCH + j]
                    total[k] += x
                    for a in range(1, p):
                        total[k + a] += x * u[row[j], a - 1]
                    for d in range(most):
                        total[at + e * most + d] += x * w[row[j], d]
    return out


def squares(const int32_t[::1] z, const double[::1] y, const float[:, ::1] u, const float[:, ::1] w, int64_t n_clusters,
            int64_t n_eta=1):
    """Sums over the rows of each cluster, float64 (K, C + q (q + 1) / 2), q = p + D.

    The sum of y, or where C = n_eta > 1 numbers of rows with the levels 1..C; and the lower triangle, row by row, of
    the sum of v v' with v = (1, u, w).
    """
    cdef int64_t n = z.shape[0], p = 1 + u.shape[1], q = p + w.shape[1], i, a, b, at, k
    if not (y.shape[0] == u.shape[0] == w.shape[0] == n):
        raise ValueError("rows do not fit together")
    out = np.zeros((n_clusters, n_eta + q * (q + 1) // 2))
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
            if n_eta == 1:
                total[k, 0] += y[i]
            elif y[i] > 0:
                total[k, <int64_t>y[i] - 1] += 1.0
            at = n_eta
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
    _set_law(&c, kind, p, p, nu, 1.0)
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
