"""Rows seated one after another, on root: each draws its features given the rows before it alone (docs/math.md 7.9).

Only a row's observed cells count. Columns that are missing in the same rows share one covariance of their loadings.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.state import Hyper
from mpibayes.hpc.parallel.streams import Purpose, generator

SEATING = 4  # stream of Purpose.FIRST_FEATURES
MOST_NEW = 4  # most features that one row opens
SWEEPS = 2  # of a row over the existing features


def seat(cells: np.ndarray, hyper: Hyper, seed: int, chain: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (loadings (K, D), weights (K,)) of the features of these rows, float64 (n, D); NaN for a missing cell.

    A row has each feature with m owners among the i - 1 rows before it by odds m : i - 1 + c - m, and kappa ~
    Poisson(alpha c / (i - 1 + c)) new ones; its cells follow the posterior of the loadings given those rows.
    """
    stream = generator(seed, Purpose.FIRST_FEATURES, 0, SEATING, chain)
    x = cells / hyper.noise_sd
    seated, owned, new = Seated(x, update.prior_variance(hyper)), np.zeros(0), np.arange(MOST_NEW + 1)
    for i, row in enumerate(x):
        has, look = np.zeros(len(owned)), seated.look(row)
        logits = np.log(owned) - np.log(np.maximum(i + hyper.c - owned, 1e-12))
        for _ in range(SWEEPS):
            for k in stream.permutation(len(owned)):
                with_, without = (look.log_density(look.changed(k, value - has[k])) for value in (1.0, 0.0))
                p = 1.0 / (1.0 + np.exp(np.clip(without - with_ - logits[k], -700.0, 700.0)))
                value = float(stream.random() < p)
                if value != has[k]:
                    look.flip(k, value - has[k])
                    has[k] = value
        log_p = new * np.log(hyper.alpha * hyper.c / (i + hyper.c)) - gammaln(new + 1.0)
        left, variance = look.left, look.variance
        log_p += [look.log_density((left, variance + kappa * seated.ratio)) for kappa in new]
        p = np.exp(log_p - log_p.max())
        born = int(stream.choice(len(new), p=p / p.sum()))
        seated.open(born)
        has, owned = np.append(has, np.ones(born)), np.append(owned, np.zeros(born))
        seated.add(row, has)
        owned = owned + has
    return seated.mean * hyper.noise_sd, owned / len(x)


class Seated:
    """Posterior of the loadings given the rows so far, in units of the noise: mean (K, D), and spread (P, K, K), the
    covariance in each of the P groups of columns that are missing in the same rows; group (D,): group of each column.

    x (n, D): the rows to come, NaN for a missing cell. ratio: variance of a loading.
    """

    def __init__(self, x: np.ndarray, ratio: float):
        patterns, group = np.unique(np.isnan(x), axis=1, return_inverse=True)
        self.group, self.ratio = group.ravel(), ratio
        self.spread, self.mean = np.zeros((patterns.shape[1], 0, 0)), np.zeros((0, x.shape[1]))

    def look(self, row: np.ndarray) -> Look:
        return Look(self, row)

    def open(self, born: int) -> None:
        """Add `born` features without rows."""
        n, k, _ = self.spread.shape
        wide = np.tile(self.ratio * np.eye(k + born), (n, 1, 1))
        wide[:, :k, :k] = self.spread
        self.spread, self.mean = wide, np.vstack([self.mean, np.zeros((born, self.mean.shape[1]))])

    def add(self, row: np.ndarray, has: np.ndarray) -> None:
        """Add a row (D,) with features (K,), 0 or 1."""
        seen = ~np.isnan(row)
        groups = np.unique(self.group[seen])
        reach = np.zeros(self.spread.shape[:2])
        reach[groups] = self.spread[groups] @ has
        gain = reach / (1.0 + reach @ has)[:, None]
        left = np.where(seen, row - has @ self.mean, 0.0)
        self.mean = self.mean + gain[self.group].T * left
        self.spread = self.spread - gain[:, :, None] * reach[:, None, :]


class Look:
    """The cells of a row while its features change: left (S,), residuals of its observed cells from the loadings'
    means, and the variance (P,) of a cell of each group."""

    def __init__(self, seated: Seated, row: np.ndarray):
        self._seen = np.flatnonzero(~np.isnan(row))
        self._group = seated.group[self._seen]
        self._times = np.bincount(self._group, minlength=len(seated.spread))
        self._spread, self._mean = seated.spread, seated.mean[:, self._seen]
        self._reach = np.zeros(seated.spread.shape[:2])  # spread times the row's features
        self.left, self.variance = row[self._seen], np.ones(len(seated.spread))

    def changed(self, k: int, by: float) -> tuple[np.ndarray, np.ndarray]:
        """Return `left` and `variance` after adding `by` to feature k."""
        if by == 0.0:
            return self.left, self.variance
        return self.left - by * self._mean[k], self.variance + 2.0 * by * self._reach[:, k] + self._spread[:, k, k]

    def flip(self, k: int, by: float) -> None:
        self.left, self.variance = self.changed(k, by)
        self._reach = self._reach + by * self._spread[:, :, k]

    def log_density(self, of: tuple[np.ndarray, np.ndarray]) -> float:
        """Log density of the row's cells up to a constant."""
        left, variance = of
        return float(-0.5 * (self._times @ np.log(variance)) - 0.5 * (left**2 / variance[self._group]).sum())
