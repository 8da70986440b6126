"""Real columns: normal likelihood, normal-inverse-chi-square prior (MATH 1).

Hyperparameters are rows (mean, kappa, nu, variance) of an (R, 4) array. Each is fixed or learned on a grid, one after
another given the others. The default grids follow the column's own mean and standard deviation.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from mpibayes.hpc.models.grid import as_grid, draw_on_grid

MEAN, KAPPA, NU, VARIANCE = range(4)
NAMES = ("mean", "kappa", "nu", "variance")
START = (0.0, 0.1, 2.0, 0.25)  # mean and variance in units of the column's deviation
MEAN_GRID = np.linspace(-2.0, 2.0, 9)
KAPPA_GRID = np.geomspace(0.01, 1.0, 9)
NU_GRID = np.geomspace(1.0, 64.0, 7)
VARIANCE_GRID = np.geomspace(1e-4, 1.0, 13)  # bounded below: a density has no bound at a repeated value


def posterior(normal: np.ndarray, n, mean, scatter):
    """(mean, kappa, nu, nu * variance) given moments, each shaped as `n`. normal is (R, 4) or broadcasts."""
    m0, kappa0, nu0, variance0 = (normal[..., i, None] for i in range(4))
    kappa, nu = kappa0 + n, nu0 + n
    location = (kappa0 * m0 + n * mean) / kappa
    spread = nu0 * variance0 + scatter + n * kappa0 / kappa * (m0 - mean) ** 2
    return location, kappa, nu, spread


def log_marginal_cells(normal, n, mean, scatter) -> np.ndarray:
    """Log marginal likelihood of each column and cluster; normal (..., R, 4), moments (R, K)."""
    kappa0, nu0, variance0 = (normal[..., i, None] for i in (KAPPA, NU, VARIANCE))
    _, kappa, nu, spread = posterior(normal, n, mean, scatter)
    return (
        gammaln(0.5 * nu)
        - gammaln(0.5 * nu0)
        + 0.5 * np.log(kappa0 / kappa)
        + 0.5 * nu0 * np.log(nu0 * variance0)
        - 0.5 * nu * np.log(spread)
        - 0.5 * n * np.log(np.pi)
    )


class Normal:
    """All real columns. center, scale (R,): each column's own; given[r]: None or {"mean": number or grid, ...}."""

    def __init__(self, center, scale, given):
        self.grids = []
        self._start = np.empty((len(given), 4))
        for r, prior in enumerate(given):
            prior = prior or {}
            grid = (center[r] + scale[r] * MEAN_GRID, KAPPA_GRID, NU_GRID, scale[r] ** 2 * VARIANCE_GRID)
            aim = (center[r], START[KAPPA], START[NU], scale[r] ** 2 * START[VARIANCE])
            column = [as_grid(prior[name]) if name in prior else g for name, g in zip(NAMES, grid)]
            self._start[r] = [g[np.argmin(np.abs(g - a))] for g, a in zip(column, aim)]
            self.grids.append(column)

    def start(self) -> np.ndarray:
        """Initial hyperparameters, (R, 4)."""
        return self._start.copy()

    def log_marginal(self, normal, n, mean, scatter) -> np.ndarray:
        """Log marginal likelihood of every column, summed over clusters, (R,)."""
        return log_marginal_cells(normal, n, mean, scatter).sum(axis=-1)

    def update(self, normal, n, mean, scatter, stream: np.random.Generator) -> np.ndarray:
        """Hyperparameters drawn from their grids given the partition, coordinate by coordinate, (R, 4)."""
        normal = normal.copy()
        for r, grids in enumerate(self.grids):
            for i, grid in enumerate(grids):
                if len(grid) > 1:
                    trial = np.repeat(normal[None, r], len(grid), axis=0)
                    trial[:, i] = grid
                    score = log_marginal_cells(trial, n[r], mean[r], scatter[r]).sum(axis=-1)
                    normal[r, i] = grid[draw_on_grid(score, stream)]
        return normal

    def draw(self, normal, n, mean, scatter, stream: np.random.Generator):
        """location, half_precision, constant, each (R, K): log density = constant - half_precision (x - location)^2."""
        location, kappa, nu, spread = posterior(normal, n, mean, scatter)
        precision = 2.0 * stream.standard_gamma(0.5 * nu) / spread
        mu = location + stream.standard_normal(location.shape) / np.sqrt(kappa * precision)
        return mu, 0.5 * precision, 0.5 * np.log(precision / (2.0 * np.pi))
