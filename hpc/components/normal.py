"""Real columns: normal likelihood, normal-inverse-chi-square prior (docs/math.md 1.5).

Hyperparameters are rows (mean, kappa, nu, variance) of an (R, 4) array. Each is fixed or learned on a grid, one after
another given the others. The default grids follow the column's own mean and standard deviation.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from mpibayes.hpc.components.grid import Grids, as_grid
from mpibayes.hpc.parallel.streams import Stream, cells

MEAN, KAPPA, NU, VARIANCE = range(4)
NAMES = ("mean", "kappa", "nu", "variance")
START = (0.0, 0.1, 2.0, 0.25)  # mean and variance in units of the column's deviation
MEAN_GRID = np.linspace(-2.0, 2.0, 9)
KAPPA_GRID = np.geomspace(0.01, 1.0, 9)
NU_GRID = 2.0 ** np.arange(7)  # powers of two exactly: the kernels score such columns together
VARIANCE_GRID = np.geomspace(1e-4, 1.0, 13)  # bounded below: a density has no bound at a repeated value
AT_ONCE = 2**18  # (grid point, column, cluster) cells that are scored together


def posterior(normal: np.ndarray, n, mean, scatter):
    """(mean, kappa, nu, nu * variance) given moments, each shaped as `n`. normal is (R, 4) or broadcasts."""
    return _posterior(*(normal[..., i, None] for i in range(4)), n, mean, scatter)


def _posterior(m0, kappa0, nu0, variance0, n, mean, scatter):
    kappa, nu = kappa0 + n, nu0 + n
    location = (kappa0 * m0 + n * mean) / kappa
    spread = nu0 * variance0 + scatter + n * kappa0 / kappa * (m0 - mean) ** 2
    return location, kappa, nu, spread


def log_marginal_cells(normal, n, mean, scatter) -> np.ndarray:
    """Log marginal likelihood of each column and cluster; normal (..., R, 4), moments (R, K)."""
    return _log_marginal(*(normal[..., i, None] for i in range(4)), n, mean, scatter)


def _log_marginal(m0, kappa0, nu0, variance0, n, mean, scatter):
    """The hyperparameters need not have one form: what depends on few of them is worked out for few."""
    _, kappa, nu, spread = _posterior(m0, kappa0, nu0, variance0, n, mean, scatter)
    by_nu = gammaln(0.5 * nu) - gammaln(0.5 * nu0) - 0.5 * n * np.log(np.pi)
    by_kappa = 0.5 * np.log(kappa0 / kappa)
    return by_nu + by_kappa + 0.5 * nu0 * np.log(nu0 * variance0) - 0.5 * nu * np.log(spread)


class Normal:
    """All real columns. center, scale (R,): each column's own; given[r]: None or {"mean": number or grid, ...}."""

    def __init__(self, center, scale, given):
        grids = [[], [], [], []]
        self._start = np.empty((len(given), 4))
        for r, prior in enumerate(given):
            prior = prior or {}
            grid = (center[r] + scale[r] * MEAN_GRID, KAPPA_GRID, NU_GRID, scale[r] ** 2 * VARIANCE_GRID)
            aim = (center[r], START[KAPPA], START[NU], scale[r] ** 2 * START[VARIANCE])
            column = [as_grid(prior[name]) if name in prior else g for name, g in zip(NAMES, grid)]
            self._start[r] = [g[np.argmin(np.abs(g - a))] for g, a in zip(column, aim)]
            for i in range(4):
                grids[i].append(column[i])
        self.grids = [Grids(g) for g in grids]

    def start(self) -> np.ndarray:
        """Initial hyperparameters, (R, 4)."""
        return self._start.copy()

    def log_marginal(self, normal, n, mean, scatter) -> np.ndarray:
        """Log marginal likelihood of every column, summed over clusters, (R,)."""
        return log_marginal_cells(normal, n, mean, scatter).sum(axis=-1)

    def update(self, normal, n, mean, scatter, stream: Stream, first: int, last: int) -> np.ndarray:
        """Hyperparameters of columns first..last-1 given the partition, coordinate by coordinate, (last - first, 4).

        All other arguments are of all columns.
        """
        normal = normal.copy()
        for i, grids in enumerate(self.grids):
            learned = grids.learned(first, last)
            step = max(1, AT_ONCE // (grids.points.shape[1] * max(1, n.shape[1])))
            for start in range(0, len(learned), step):
                r = learned[start : start + step]
                trial = [normal[r, j, None] for j in range(4)]
                trial[i] = grids.points[r].T[:, :, None]
                with np.errstate(invalid="ignore"):  # NaN stands where a shorter grid has no point
                    score = _log_marginal(*trial, n[r], mean[r], scatter[r]).sum(axis=-1)
                normal[r, i] = grids.draw(r, score, stream.uniforms(4 * r + i))
        return normal[first:last]

    def draw(self, normal, n, mean, scatter, precisions: Stream, means: Stream, first: int):
        """location, half_precision, constant, each (R, K): log density = constant - half_precision (x - location)^2.

        first: number of the first of these columns among all; with that of the cluster it is the id of a draw.
        """
        location, kappa, nu, spread = posterior(normal, n, mean, scatter)
        ids = cells(first, *location.shape)
        precision = 2.0 * np.exp(precisions.log_gammas(0.5 * nu, ids)) / spread
        mu = location + means.normals(ids) / np.sqrt(kappa * precision)
        return mu, 0.5 * precision, 0.5 * np.log(precision / (2.0 * np.pi))
