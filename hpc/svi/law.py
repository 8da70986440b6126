"""A state as a distribution over rows (docs/math.md 8.6).

A row has component j with probability alpha_j / sum alpha, and given it a Student t density: with Lambda_j integrated
out, it has a_j + 1 - D degrees of freedom about the mean m_j, and scale B_j / (a_j + 1 - D) plus the covariance of the
mean. With q(mu) integrated out exactly as well there is no closed form; that covariance is of order 1 / n_j.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln, logsumexp

from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.svi.gaussian import State
from mpibayes.io.rows import Rows


@dataclass(frozen=True)
class Students:
    """weight (K,), mean (K, D), degrees (K,) and scale (K, D, D) of the Student t densities; heaviest first."""

    weight: np.ndarray
    mean: np.ndarray
    degrees: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, q: State) -> Students:
        order = np.argsort(-q.alpha, kind="stable")
        degrees = q.degrees - (q.mean.shape[1] - 1)
        scale = q.scatter / degrees[:, None, None] + q.covariance
        return cls((q.alpha / q.alpha.sum())[order], q.mean[order], degrees[order], scale[order])

    def log_joint(self, x: np.ndarray) -> np.ndarray:
        """Log of weight times density of the observed cells, (n, K). x: float64 (n, D), NaN where missing."""
        log_joint = np.empty((len(x), len(self.weight)))
        for at, there in patterns(x):
            for k in range(len(self.weight)):
                log_joint[at, k] = np.log(self.weight[k]) + self._log_density(k, x[np.ix_(at, there)], there)[0]
        return log_joint

    def _log_density(self, k: int, x: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (log density, squared distance) of rows (n, d) in the columns `there` (d,) under component k."""
        d, nu = len(there), self.degrees[k]
        root = np.linalg.cholesky(self.scale[k][np.ix_(there, there)])
        z = solve_triangular(root, (x - self.mean[k, there]).T, lower=True) if d else np.zeros((0, len(x)))
        square = (z**2).sum(axis=0)
        constant = gammaln(0.5 * (nu + d)) - gammaln(0.5 * nu) - 0.5 * d * np.log(nu * np.pi)
        constant -= np.log(np.diag(root)).sum()
        return constant - 0.5 * (nu + d) * np.log1p(square / nu), square

    def given(self, k: int, x: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Conditional law of the other columns in component k given the columns `there`, with values x (n, d). Returns
        (columns (u,), means (n, u), scale (u, u), factors (n,)): a row is Student t with degrees + d and scale times
        its factor."""
        rest = np.setdiff1d(np.arange(self.mean.shape[1]), there)
        s, nu = self.scale[k], self.degrees[k]
        across = np.linalg.solve(s[np.ix_(there, there)], s[np.ix_(there, rest)])
        means = self.mean[k, rest] + np.einsum("nd,du->nu", x - self.mean[k, there], across)
        scale = s[np.ix_(rest, rest)] - np.einsum("du,dv->uv", s[np.ix_(there, rest)], across)
        factors = (nu + self._log_density(k, x, there)[1]) / (nu + len(there))
        return rest, means, 0.5 * (scale + scale.T), factors

    def moments(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (n, D) of missing cells given the row's others; for observed cells the value, and
        0."""
        p = responsibilities(self.log_joint(x))
        mean, square = np.zeros_like(x), np.zeros_like(x)
        for at, there in patterns(x):
            if len(there) == x.shape[1]:
                continue
            for k in range(len(self.weight)):
                rest, means, scale, factors = self.given(k, x[np.ix_(at, there)], there)
                nu = self.degrees[k] + len(there)
                variance = factors[:, None] * np.diag(scale) * (nu / (nu - 2.0) if nu > 2.0 else np.inf)
                with np.errstate(invalid="ignore"):  # 0 times infinity
                    more = np.where(p[at, k, None] > 0.0, p[at, k, None] * (means**2 + variance), 0.0)
                mean[np.ix_(at, rest)] += p[at, k, None] * means
                square[np.ix_(at, rest)] += more
        sd = np.sqrt(np.maximum(square - mean**2, 0.0))
        return np.where(np.isnan(x), mean, x), np.where(np.isnan(x), sd, 0.0)


def patterns(x: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows with the same observed cells, int64 (m,), and the columns of these, for each set of columns."""
    there = ~np.isnan(x)
    if there.all():
        yield np.arange(len(x)), np.arange(x.shape[1])
        return
    sets, which = np.unique(there, axis=0, return_inverse=True)
    for i, columns in enumerate(sets):
        yield np.flatnonzero(which.ravel() == i), np.flatnonzero(columns)


def responsibilities(log_joint: np.ndarray) -> np.ndarray:
    """Probability of each component given the row's cells, (n, K)."""
    p: np.ndarray = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
    return p


@dataclass(frozen=True)
class Law:
    """A state as a distribution over rows (`hpc.law.Density`)."""

    cells: Cells
    students: Students

    def log_density(self, rows: Rows) -> np.ndarray:
        """Log density of the observed cells of each row in the table's units, (n,) float64."""
        return self.members(rows)[0]

    def members(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Log density of each row (n,), and probability of each component given its observed cells (n, K)."""
        x = self.cells.of(rows)
        log = self.students.log_joint(x)
        density = logsumexp(log, axis=1) - np.where(np.isnan(x), 0.0, self.cells.log_scale).sum(axis=1)
        return density, responsibilities(log)
