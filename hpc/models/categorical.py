"""Categorical and Boolean columns: Dirichlet prior, level probabilities integrated out or drawn (MATH 1).

A column's pseudo-counts are a multiplier times its base: ones unless the prior was given. The multiplier is learned on
a grid unless the prior was given. Arrays are [level row][cluster]; the last level row of a column counts its missing
cells and has pseudo-count 0.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from mpibayes.hpc.models.grid import as_grid, draw_on_grid
from mpibayes.hpc.streams import log_gamma_draws

GRID = 2.0 ** np.arange(-6.0, 4.5, 0.5)  # pseudo-count of each level
START = 0.5
TABULATED = 4096  # log rising factorials are looked up below this count


class Categorical:
    """All categorical columns of a table, in block order.

    `n_levels` (C,): levels of each column. `given[c]`: None, {"dirichlet": [V_c]} (fixed) or {"symmetric": grid}.
    """

    def __init__(self, n_levels, given):
        self.n_levels = np.asarray(n_levels, np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(self.n_levels + 1)]).astype(np.int64)
        self.missing_rows = self.offsets[1:] - 1
        self.column_of_row = np.repeat(np.arange(len(self.n_levels)), self.n_levels + 1)
        self.base = np.ones(self.offsets[-1])
        self.base[self.missing_rows] = 0.0
        self.grids = []
        for c, prior in enumerate(given):
            if prior and "dirichlet" in prior:
                self.base[self.offsets[c] : self.missing_rows[c]] = prior["dirichlet"]
                self.grids.append(np.ones(1))
            else:
                self.grids.append(as_grid(prior["symmetric"]) if prior else GRID)
        # columns that share a grid are updated together
        self._updates = {}
        for c, grid in enumerate(self.grids):
            if len(grid) > 1:
                self._updates.setdefault(tuple(grid), []).append(c)

    def start(self) -> np.ndarray:
        """Initial multiplier of every column, (C,)."""
        return np.array([g[np.argmin(np.abs(np.log(g / START)))] for g in self.grids])

    def pseudo_counts(self, multiplier: np.ndarray) -> np.ndarray:
        """Dirichlet parameters by level row, (L,); 0 in missing rows."""
        return self.base * multiplier[self.column_of_row]

    def observed(self, levels: np.ndarray) -> np.ndarray:
        """Observed cells of every column and cluster, (C, K), from `levels` (L, K)."""
        if not len(self.n_levels):
            return np.zeros((0, levels.shape[1]), np.int64)
        return np.add.reduceat(levels, self.offsets[:-1], axis=0, dtype=np.int64) - levels[self.missing_rows]

    def log_marginal(self, multiplier: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Log marginal likelihood of every column, summed over clusters, (C,)."""
        if not len(self.n_levels):
            return np.zeros(0)
        beta = self.pseudo_counts(multiplier)
        total = np.add.reduceat(beta, self.offsets[:-1])[:, None]
        counted = levels.copy()
        counted[self.missing_rows] = 0
        row, k = np.nonzero(counted)
        terms = gammaln(beta[row] + counted[row, k]) - gammaln(beta[row])
        inside = np.bincount(self.column_of_row[row], terms, len(self.n_levels))
        return inside + (gammaln(total) - gammaln(total + self.observed(levels))).sum(axis=1)

    def log_marginal_clusters(self, multiplier: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Log marginal likelihood of every cluster, summed over columns, (K,)."""
        if not len(self.n_levels):
            return np.zeros(levels.shape[1])
        beta = self.pseudo_counts(multiplier)
        total = np.add.reduceat(beta, self.offsets[:-1])[:, None]
        observed = np.delete(np.arange(len(beta)), self.missing_rows)
        shape = beta[observed, None]
        inside = gammaln(shape + levels[observed]) - gammaln(shape)
        return inside.sum(axis=0) + (gammaln(total) - gammaln(total + self.observed(levels))).sum(axis=0)

    def log_predictive_table(self, multiplier: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Log predictive probability of every level in every cluster, (L, K); 0 in missing rows."""
        beta = self.pseudo_counts(multiplier)[:, None]
        if not len(self.n_levels):
            return np.zeros(levels.shape)
        total = np.add.reduceat(beta, self.offsets[:-1], axis=0) + self.observed(levels)
        counted = beta + levels
        counted[self.missing_rows] = 1.0
        table = np.log(counted) - np.log(total)[self.column_of_row]
        table[self.missing_rows] = 0.0
        return table

    def update(self, multiplier: np.ndarray, levels: np.ndarray, stream: np.random.Generator) -> np.ndarray:
        """Multipliers drawn from their grids given the partition, (C,) (MATH 2.4)."""
        multiplier = multiplier.copy()
        for grid, columns in self._updates.items():
            score = self._grid_scores(np.array(grid), np.array(columns), levels)
            multiplier[columns] = np.array(grid)[draw_on_grid(score, stream)]
        return multiplier

    def _grid_scores(self, grid, columns, levels):
        """Log marginal of symmetric columns at every grid point, (len(columns), G). Distinct counts are scored once."""
        position = np.full(len(self.n_levels), -1)
        position[columns] = np.arange(len(columns))
        counted = levels.copy()
        counted[self.missing_rows] = 0
        row, k = np.nonzero(counted)
        column, count = position[self.column_of_row[row]], counted[row, k].astype(np.int64)
        keep = column >= 0
        span = int(count.max(initial=0)) + 1
        cell, times = np.unique(column[keep] * span + count[keep], return_counts=True)
        column, count = cell // span, cell % span
        score = np.zeros((len(grid), len(columns)))
        np.add.at(score.T, column, (log_rising(grid[:, None], count) * times).T)
        observed = self.observed(levels)[columns]
        n_levels = self.n_levels[columns].astype(np.float64)
        # most columns have no missing cell: those with as many levels share their denominators
        pairs, which = np.unique(np.column_stack([n_levels, observed]), axis=0, return_inverse=True)
        total = grid[:, None, None] * pairs[:, :1]
        denominator = (gammaln(total) - gammaln(total + pairs[:, 1:])).sum(axis=-1)
        return (score + denominator[:, which.ravel()]).T

    def draw(self, multiplier: np.ndarray, levels: np.ndarray, stream: np.random.Generator) -> np.ndarray:
        """Log level probabilities of every cluster given its cells, (L, K) float32; 0 in missing rows."""
        beta = self.pseudo_counts(multiplier)[:, None]
        shape = beta + levels
        shape[self.missing_rows] = 1.0
        log_gamma = log_gamma_draws(shape, stream)
        log_gamma[self.missing_rows] = -np.inf
        if not len(self.n_levels):
            return log_gamma.astype(np.float32)
        largest = np.maximum.reduceat(log_gamma, self.offsets[:-1], axis=0)
        weight = np.exp(log_gamma - largest[self.column_of_row])
        log_total = largest + np.log(np.add.reduceat(weight, self.offsets[:-1], axis=0))
        table = (log_gamma - log_total[self.column_of_row]).astype(np.float32)
        table[self.missing_rows] = 0.0
        return table


def log_rising(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    """log Gamma(a + n) - log Gamma(a) for a (G, 1) and integer n (U,), (G, U)."""
    small = n < TABULATED
    span = int(n[small].max(initial=0)) + 1
    table = np.zeros((len(a), span))
    np.cumsum(np.log(a + np.arange(span - 1)), axis=1, out=table[:, 1:])
    value = np.empty((len(a), len(n)))
    value[:, small] = table[:, n[small]]
    value[:, ~small] = gammaln(a + n[~small]) - gammaln(a)
    return value
