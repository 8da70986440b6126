"""Log likelihood, its slope and curvature, and its lower bounds, as functions of the linear predictors.

The bounds: docs/math.md 4.2. Everything here is elementwise over rows: eta (n, K) float64, K = 1 but for softmax; y
(n,) float64 and `bounds` (n, B) float64 as the kernels keep them. B columns: logistic (a, c), softmax (psi, g), Student
t (xi^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.kernels import firefly as kernels

LOGISTIC, SOFTMAX, STUDENT = kernels.LOGISTIC, kernels.SOFTMAX, kernels.STUDENT


@dataclass(frozen=True)
class Likelihood:
    """One of the three families. nu, scale: degrees of freedom and scale s of the t distribution."""

    family: int
    n_predictors: int
    n_classes: int = 1
    nu: float = 4.0
    scale: float = 1.0

    @classmethod
    def of(cls, comm: Communicator, rows) -> Likelihood:
        """That of root's first shard, on every rank: a rank may hold no rows. Collective."""
        mine = None
        if comm.rank == 0:
            first = rows[0][1]
            mine = cls(first.family, first.n_predictors, first.n_classes, first.nu, first.scale)
        return comm.share(mine)

    @property
    def n_parameters(self) -> int:
        return self.n_classes * self.n_predictors

    @property
    def n_bounds(self) -> int:
        """B: numbers that fix a row's bound."""
        return {LOGISTIC: 2, SOFTMAX: 2 * self.n_classes, STUDENT: 1}[self.family]

    def log_density(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """log L of each row, (n,)."""
        if self.family == LOGISTIC:
            s = eta[:, 0]
            return 0.5 * y * s - log_2cosh_half(s)
        if self.family == SOFTMAX:
            return _of_class(eta, y) - log_sum_exp(eta)
        return self.log_t((y - eta[:, 0]) ** 2)

    def log_t(self, r2: np.ndarray) -> np.ndarray:
        """Log density of the t distribution at squared residuals r2."""
        nu, s = self.nu, self.scale
        constant = math.lgamma(0.5 * (nu + 1)) - math.lgamma(0.5 * nu) - 0.5 * math.log(nu * math.pi) - math.log(s)
        return constant - 0.5 * (nu + 1) * np.log1p(r2 / (nu * s * s))

    def slope(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """d log L / d eta, (n, K)."""
        if self.family == LOGISTIC:
            return 0.5 * (y[:, None] - np.tanh(0.5 * eta))
        if self.family == SOFTMAX:
            return _one_hot(y, self.n_classes) - softmax(eta)
        return (self.weight(eta, y) * (y - eta[:, 0]))[:, None]

    def weight(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Student t: the weight of a row in the weighted least squares that has the same slope, (n,)."""
        return (self.nu + 1) / (self.nu * self.scale**2 + (y - eta[:, 0]) ** 2)

    def curvature(self, eta: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        """-d2 log L / d eta_k d eta_j as weights (n,): one where K = 1, of softmax those of `pairs`."""
        if self.family == LOGISTIC:
            e = np.exp(-np.abs(eta[:, 0]))
            return [e / (1.0 + e) ** 2]
        if self.family == SOFTMAX:
            p = softmax(eta)
            return [-p[:, k] * p[:, j] for k, j in pairs(self.n_classes)]
        inner, r2 = self.nu * self.scale**2, (y - eta[:, 0]) ** 2
        return [(self.nu + 1) * (inner - r2) / (inner + r2) ** 2]

    def log_bound(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """log B of each row, (n,)."""
        if self.family == LOGISTIC:
            s = eta[:, 0]
            return bounds[:, 0] * s * s + 0.5 * y * s + bounds[:, 1]
        if self.family == SOFTMAX:
            psi, g = np.hsplit(bounds, 2)
            d = eta - psi
            flat = _of_class(psi, y) - log_sum_exp(psi)
            return flat + ((_one_hot(y, self.n_classes) - g) * d).sum(axis=1) - 0.5 * (d * boehning(d)).sum(axis=1)
        xi2 = bounds[:, 0]
        slope = (self.nu + 1) / (self.nu * self.scale**2 + xi2)
        return self.log_t(xi2) - 0.5 * slope * ((y - eta[:, 0]) ** 2 - xi2)

    def gap(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """delta = log L - log B >= 0 of each row, (n,)."""
        return np.maximum(self.log_density(eta, y) - self.log_bound(eta, y, bounds), 0.0)

    def bound_terms(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(curvature weight (n,), slope (n, K)) of log B at eta; the curvature of softmax is the weight times A."""
        if self.family == LOGISTIC:
            a = bounds[:, 0]
            return -2.0 * a, (2.0 * a * eta[:, 0] + 0.5 * y)[:, None]
        if self.family == SOFTMAX:
            psi, g = np.hsplit(bounds, 2)
            return np.ones(len(y)), _one_hot(y, self.n_classes) - g - boehning(eta - psi)
        weight = (self.nu + 1) / (self.nu * self.scale**2 + bounds[:, 0])
        return weight, (weight * (y - eta[:, 0]))[:, None]

    @property
    def bound_matrix(self) -> np.ndarray:
        """A (K, K): how the classes enter the curvature of the bounds."""
        k = self.n_classes
        return 0.5 * (np.eye(k) - 1.0 / k) if self.family == SOFTMAX else np.ones((1, 1))


def pairs(n_classes: int) -> list[tuple[int, int]]:
    """Pairs of different classes (k, j), j < k, in the order of their blocks."""
    return [(k, j) for k in range(n_classes) for j in range(k)]


def log_2cosh_half(s: np.ndarray) -> np.ndarray:
    """log(2 cosh(s / 2)) without overflow."""
    size = np.abs(s)
    return 0.5 * size + np.log1p(np.exp(-size))


def log_sum_exp(eta: np.ndarray) -> np.ndarray:
    """log sum_k exp(eta_k), (n,)."""
    largest = eta.max(axis=1)
    return largest + np.log(np.exp(eta - largest[:, None]).sum(axis=1))


def softmax(eta: np.ndarray) -> np.ndarray:
    """Class probabilities (n, K)."""
    p = np.exp(eta - eta.max(axis=1)[:, None])
    return p / p.sum(axis=1)[:, None]


def boehning(d: np.ndarray) -> np.ndarray:
    """A d with A = (I - 11'/K) / 2, a row (n, K)."""
    return 0.5 * (d - d.mean(axis=1)[:, None])


def _one_hot(y: np.ndarray, n_classes: int) -> np.ndarray:
    return (y[:, None] == np.arange(n_classes)).astype(np.float64)


def _of_class(eta: np.ndarray, y: np.ndarray) -> np.ndarray:
    return eta[np.arange(len(y)), y.astype(np.int64)]
