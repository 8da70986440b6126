"""Categorical and Boolean columns: Dirichlet prior, level probabilities integrated out or drawn (docs/math.md 1.3).

A column's pseudo-counts are a multiplier times its base: ones unless the prior was given. The multiplier is learned on
a grid unless the prior was given. Arrays are [level row][cluster]; the last level row of a column counts its missing
cells and has pseudo-count 0.
"""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.components.grid import as_grid, pick_on_grid
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.kernels.mixture import updates

GRID = 2.0 ** np.arange(-6.0, 4.5, 0.5)  # pseudo-count of each level
START = 0.5


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
        tables = {tuple(grid): updates.Grid(grid) for grid in self.grids if len(grid) > 1}
        self._tables = [tables.get(tuple(grid)) for grid in self.grids]  # None: the multiplier is fixed

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

    def log_marginal(self, multiplier: np.ndarray, levels: np.ndarray, first: int, last: int) -> np.ndarray:
        """Log marginal likelihood of the columns first..last-1, summed over clusters, (last - first,)."""
        return updates.log_marginals(levels, self.pseudo_counts(multiplier), self.offsets, first, last)[0]

    def log_marginal_clusters(self, multiplier: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Log marginal likelihood of every cluster, summed over columns, (K,)."""
        levels = np.ascontiguousarray(levels)
        return updates.log_marginals(levels, self.pseudo_counts(multiplier), self.offsets, 0, len(self.n_levels))[1]

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

    def update(self, multiplier: np.ndarray, levels: np.ndarray, stream: Stream, first: int, last: int) -> np.ndarray:
        """Multipliers of the columns first..last-1 drawn from their grids given the partition (docs/math.md 2.4)."""
        multiplier = multiplier.copy()
        learned = {}
        for c in range(first, last):
            if self._tables[c] is not None:
                learned.setdefault(id(self._tables[c]), []).append(c)
        for columns in learned.values():
            table, columns = self._tables[columns[0]], np.array(columns)
            score = updates.grid_scores(levels, self.offsets, columns, table)
            multiplier[columns] = table.points[pick_on_grid(score, stream.uniforms(columns))]
        return multiplier[first:last]

    def draw(self, multiplier: np.ndarray, levels: np.ndarray, stream: Stream, first: int, last: int) -> np.ndarray:
        """Log level probabilities of the columns first..last-1 in every cluster given its cells; 0 in missing rows.

        multiplier (C,) and levels (L, K) are of all columns. Returns float32 (level rows of these columns, K).
        """
        beta = self.pseudo_counts(multiplier)
        return updates.draw_levels(levels, beta, self.offsets, first, last, **vars(stream))
