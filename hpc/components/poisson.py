"""Count columns: Poisson likelihood, gamma prior on the rate (docs/math.md 1.4).

Hyperparameters are rows (shape, rate) of a (Q, 2) array, each fixed or learned on a grid. The factor 1 / x! of every
cell does not depend on the partition; it enters `log_joint` once, as a constant of the table.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from mpibayes.hpc.components.grid import Grids, as_grid
from mpibayes.hpc.parallel.streams import Stream, cells

NAMES = ("shape", "rate")
SHAPE_GRID = np.geomspace(0.05, 50.0, 13)
RATE_GRID = np.geomspace(0.01, 100.0, 17)  # in units of 1 / (mean of the column)


def log_marginal_cells(gamma, n, total) -> np.ndarray:
    """Log marginal likelihood, without 1 / x!, of each column and cluster; gamma (..., Q, 2), n and total (Q, K)."""
    return _log_marginal(gamma[..., 0, None], gamma[..., 1, None], n, total)


def _log_marginal(a, b, n, total):
    return a * np.log(b) - gammaln(a) + gammaln(a + total) - (a + total) * np.log(b + n)


class Poisson:
    """All count columns. center (Q,): each column's mean; given[q]: None or {"shape": number or grid, "rate": ...}."""

    def __init__(self, center, given):
        grids = [[], []]
        self._start = np.empty((len(given), 2))
        for q, prior in enumerate(given):
            prior = prior or {}
            rates = RATE_GRID / max(float(center[q]), 1e-6)
            column = [as_grid(prior[name]) if name in prior else g for name, g in zip(NAMES, (SHAPE_GRID, rates))]
            aim = (1.0, 1.0 / max(float(center[q]), 1e-6))
            self._start[q] = [g[np.argmin(np.abs(np.log(g / a)))] for g, a in zip(column, aim)]
            for i in range(2):
                grids[i].append(column[i])
        self.grids = [Grids(g) for g in grids]

    def start(self) -> np.ndarray:
        """Initial hyperparameters, (Q, 2)."""
        return self._start.copy()

    def log_marginal(self, gamma, n, total) -> np.ndarray:
        """Log marginal likelihood of every column without the 1 / x!, summed over clusters, (Q,)."""
        return log_marginal_cells(gamma, n, total).sum(axis=-1)

    def update(self, gamma, n, total, stream: Stream, first: int, last: int) -> np.ndarray:
        """Hyperparameters of columns first..last-1 given the partition, coordinate by coordinate, (last - first, 2).

        All other arguments are of all columns.
        """
        gamma = gamma.copy()
        for i, grids in enumerate(self.grids):
            r = grids.learned(first, last)
            if len(r):
                trial = [gamma[r, j, None] for j in range(2)]
                trial[i] = grids.points[r].T[:, :, None]
                with np.errstate(invalid="ignore"):  # NaN stands where a shorter grid has no point
                    score = _log_marginal(*trial, n[r], total[r]).sum(axis=-1)
                gamma[r, i] = grids.draw(r, score, stream.uniforms(2 * r + i))
        return gamma[first:last]

    def draw(self, gamma, n, total, stream: Stream, first: int):
        """(log_rate, rate), each (Q, K): log probability = x log_rate - rate - log x!.

        first: number of the first of these columns among all; with that of the cluster it is the id of a draw.
        """
        shape = gamma[:, 0, None] + total
        log_rate = stream.log_gammas(shape, cells(first, *shape.shape)) - np.log(gamma[:, 1, None] + n)
        return log_rate, np.exp(log_rate)
