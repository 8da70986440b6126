"""Count columns: Poisson likelihood, gamma prior on the rate (MATH 1).

Hyperparameters are rows (shape, rate) of a (Q, 2) array, each fixed or learned on a grid. The factor 1 / x! of every
cell does not depend on the partition; it enters `log_joint` once, as a constant of the table.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from mpibayes.hpc.models.grid import as_grid, draw_on_grid

NAMES = ("shape", "rate")
SHAPE_GRID = np.geomspace(0.05, 50.0, 13)
RATE_GRID = np.geomspace(0.01, 100.0, 17)  # in units of 1 / (mean of the column)


def log_marginal_cells(gamma, n, total) -> np.ndarray:
    """Log marginal likelihood, without 1 / x!, of each column and cluster; gamma (..., Q, 2), n and total (Q, K)."""
    a, b = gamma[..., 0, None], gamma[..., 1, None]
    return a * np.log(b) - gammaln(a) + gammaln(a + total) - (a + total) * np.log(b + n)


class Poisson:
    """All count columns. center (Q,): each column's mean; given[q]: None or {"shape": number or grid, "rate": ...}."""

    def __init__(self, center, given):
        self.grids = []
        self._start = np.empty((len(given), 2))
        for q, prior in enumerate(given):
            prior = prior or {}
            rates = RATE_GRID / max(float(center[q]), 1e-6)
            column = [as_grid(prior[name]) if name in prior else g for name, g in zip(NAMES, (SHAPE_GRID, rates))]
            aim = (1.0, 1.0 / max(float(center[q]), 1e-6))
            self._start[q] = [g[np.argmin(np.abs(np.log(g / a)))] for g, a in zip(column, aim)]
            self.grids.append(column)

    def start(self) -> np.ndarray:
        """Initial hyperparameters, (Q, 2)."""
        return self._start.copy()

    def log_marginal(self, gamma, n, total) -> np.ndarray:
        """Log marginal likelihood of every column without the 1 / x!, summed over clusters, (Q,)."""
        return log_marginal_cells(gamma, n, total).sum(axis=-1)

    def update(self, gamma, n, total, stream: np.random.Generator) -> np.ndarray:
        """Hyperparameters drawn from their grids given the partition, coordinate by coordinate, (Q, 2)."""
        gamma = gamma.copy()
        for q, grids in enumerate(self.grids):
            for i, grid in enumerate(grids):
                if len(grid) > 1:
                    trial = np.repeat(gamma[None, q], len(grid), axis=0)
                    trial[:, i] = grid
                    score = log_marginal_cells(trial, n[q], total[q]).sum(axis=-1)
                    gamma[q, i] = grid[draw_on_grid(score, stream)]
        return gamma

    def draw(self, gamma, n, total, stream: np.random.Generator):
        """(log_rate, rate), each (Q, K): log probability = x log_rate - rate - log x!."""
        shape = gamma[:, 0, None] + total
        # the gamma of a + 1 times U^(1/a), in logs: shapes near 0 do not underflow
        log_rate = (
            np.log(stream.standard_gamma(shape + 1.0))
            + np.log1p(-stream.random(shape.shape)) / shape
            - np.log(gamma[:, 1, None] + n)
        )
        return log_rate, np.exp(log_rate)
