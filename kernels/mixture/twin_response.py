"""The kernels of response.pyx in plain Python: slow, and their specification."""

from __future__ import annotations

from math import exp, isnan, log, log1p

import numpy as np

LOGISTIC, STUDENT_T, NORMAL, POISSON, SOFTMAX = 0, 1, 2, 3, 4


def log_likelihood(kind, y, eta, nu, scale):
    """Log likelihood without terms of y alone and without -log scale; eta (C,)."""
    if kind == SOFTMAX:
        most = max(0.0, *eta)
        return (eta[int(y) - 1] if y else 0.0) - most - log(exp(-most) + sum(exp(x - most) for x in eta))
    (eta,) = eta
    if kind == LOGISTIC:
        x = -y * eta
        return -(max(x, 0.0) + log1p(exp(-abs(x))))
    if kind == POISSON:
        return y * eta - exp(eta)
    square = ((y - eta) / scale) ** 2
    return -0.5 * square if kind == NORMAL else -0.5 * (nu + 1.0) * log1p(square / nu)


def etas(theta, u, w, beta):
    """Linear predictors (C,) of a row in a cluster with coefficients theta (C p,)."""
    p, most = len(u) + 1, len(w)
    return [
        theta[c * p]
        + float(np.dot(theta[c * p + 1 : (c + 1) * p], u))
        + float(np.dot(w, beta[c * most : (c + 1) * most]))
        for c in range(len(theta) // p)
    ]


class Response:
    """See response.Response."""

    def __init__(self, kind, y, u, offset, odds, theta, slots, nu=4.0, scale=1.0):
        self.kind, self.y, self.u, self.nu, self.scale = kind, y, u, nu, scale
        self.offset = np.asarray(offset).reshape(len(y), len(theta) // (u.shape[1] + 1))
        self.theta = [np.array(column, np.float64) for column in np.asarray(theta).T]
        self.slot = {t: np.array(column, np.float64) for t, column in enumerate(np.asarray(slots).T)}

    def __len__(self):
        return len(self.y)

    def renew(self, fresh, pick):
        self.fresh, self.pick = fresh, pick

    def slots(self, which):
        return np.stack([self.slot[int(t)] for t in which], axis=1)

    def score(self, i, theta):
        """Log likelihood of row i under coefficients theta."""
        if isnan(self.y[i]):
            return 0.0
        return log_likelihood(self.kind, self.y[i], self.eta(i, theta), self.nu, self.scale)

    def eta(self, i, theta):
        """Linear predictors of row i under coefficients theta."""
        return [x + offset for x, offset in zip(etas(theta, self.u[i], [], []), self.offset[i])]

    def candidates(self, i, alone):
        """Candidate coefficients of a new cluster of row i; alone: its slot if it is alone there, else None."""
        candidates = [np.array(theta) for theta in self.fresh[i]]
        if alone is not None:
            candidates[0] = self.slot[alone]
        return candidates

    def score_of_new(self, i, alone):
        """Log of the mean likelihood of row i in a new cluster."""
        scores = [self.score(i, theta) for theta in self.candidates(i, alone)]
        return max(scores) + log(sum(exp(s - max(scores)) for s in scores) / len(scores))

    def open(self, i, alone, slot):
        """Give a slot opened by row i one of the row's candidates."""
        candidates = self.candidates(i, alone)
        scores = np.array([self.score(i, theta) for theta in candidates])
        below = np.cumsum(np.exp(scores - scores.max()))
        self.slot[slot] = candidates[min(int(np.sum(below <= self.pick[i] * below[-1])), len(candidates) - 1)]


def offsets(w, beta, y, n_eta=1):
    """See response.offsets."""
    of = np.array(beta).reshape(n_eta, w.shape[1])
    offset = np.array([sum(float(a) * float(b) for a, b in zip(row, each)) for row in w for each in of])
    signs = np.repeat(np.where(np.isnan(y), 0.0, 1.0 if n_eta > 1 else -np.asarray(y)), n_eta)
    return offset, np.array([exp(sign * x) for sign, x in zip(signs, offset)])


def slopes(kind, z, y, u, w, theta, beta, nu=4.0, scale=1.0, shift=None):
    """See response.slopes; slopes are differences of the exact log likelihood."""
    shift = np.zeros(len(z)) if shift is None else shift
    theta, beta = np.array(theta, np.float64), np.array(beta, np.float64)

    def values(theta, beta, scale):
        total = np.zeros(len(theta))
        for i, k in enumerate(z):
            if k >= 0 and not isnan(y[i]):
                eta = [x + shift[i] for x in etas(theta[k], u[i], w[i], beta)]
                total[k] += log_likelihood(kind, y[i], eta, nu, scale) - y[i] * shift[i]
                total[k] -= log(scale) if kind in (STUDENT_T, NORMAL) else 0.0
        return total

    def slope(at):
        h = 1e-5
        whole = np.concatenate([theta.ravel(), beta, [0.0]])
        ends = []
        for sign in (1.0, -1.0):
            moved = whole.copy()
            moved[at] += sign * h
            parts = moved[: theta.size].reshape(theta.shape), moved[theta.size : -1]
            ends.append(values(*parts, scale * exp(moved[-1])).sum())
        return (ends[0] - ends[1]) / (2.0 * h)

    seen = [k for i, k in enumerate(z) if k >= 0 and not isnan(y[i])]
    rest = np.bincount(seen, minlength=len(theta)) * (log(scale) if kind in (STUDENT_T, NORMAL) else 0.0)
    each = [slope(at) for at in range(theta.size + len(beta) + 1)]
    return np.array([*(values(theta, beta, scale) + rest), each[-1], *each[:-1]])


def squares(z, y, u, w, n_clusters, n_eta=1):
    """See response.squares."""
    q = 1 + u.shape[1] + w.shape[1]
    out = np.zeros((n_clusters, n_eta + q * (q + 1) // 2))
    for i, k in enumerate(z):
        if k >= 0 and not isnan(y[i]):
            v = np.concatenate([[1.0], u[i], w[i]]).astype(np.float64)
            out[k, :n_eta] += y[i] if n_eta == 1 else y[i] == np.arange(1, n_eta + 1)
            out[k, n_eta:] += np.outer(v, v)[np.tril_indices(q)]
    return out


def gaps(kind, z, y, u, w, theta, beta, h, level, nu=4.0):
    """See response.gaps."""
    out = np.zeros(len(z))
    for i, k in enumerate(z):
        if k >= 0 and not isnan(y[i]):
            eta = theta[k, 0] + float(np.dot(theta[k, 1:], u[i])) + float(np.dot(w[i], beta))
            if kind == LOGISTIC:
                gap = level[i] - (0.5 * abs(eta) + log1p(exp(-abs(eta)))) + 0.5 * h[i] * eta * eta
            else:
                t = (y[i] - eta) ** 2 * h[i] / (nu + 1.0) - level[i]
                gap = 0.5 * (nu + 1.0) * (t - log1p(t))
            out[i] = max(gap, 0.0)
    return out


def bound_sums(z, slope, h, u, w, n_clusters):
    """See response.bound_sums."""
    q = 1 + u.shape[1] + w.shape[1]
    out = np.zeros((n_clusters, q + q * (q + 1) // 2))
    for i, k in enumerate(z):
        if k >= 0 and not isnan(slope[i]):
            v = np.concatenate([[1.0], u[i], w[i]]).astype(np.float64)
            out[k, :q] += slope[i] * v
            out[k, q:] += h[i] * np.outer(v, v)[np.tril_indices(q)]
    return out
