"""Numeric columns that depend on columns with levels: the evidence of each such link given the labels, and the draw of
the hyperparameters that go with it (docs/math.md 2.14).

Contexts leave less variance to explain, as lines do (`lines`): a real column's mean and variance, or both parameters of
a count's prior, are therefore summed out of each score over their grids, and drawn once the links are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mpibayes.hpc.components.grid import at_points, pick_on_grid
from mpibayes.hpc.links.forest import ROOT

Cells = Sequence[tuple[np.ndarray, ...]]  # statistics (K,) of each of several columns


class Children:
    """R numeric columns. points: the grid of each column's hyperparameters, (G, F). statistics(parent, columns): their
    statistics in clusters if `parent` is ROOT, else by context of column `parent` of D and cluster; None if no column
    may depend on it."""

    def __init__(self, points: Sequence[np.ndarray], statistics: Callable[[int, list[int]], Cells | None], d: int):
        self._points, self._statistics, self._d = points, statistics, d
        self._of: dict[tuple[int, int], np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._points)

    def under(self, parent: int, columns: Sequence[int]) -> np.ndarray:
        """Log evidence of `columns` under a parent, (n,), -inf where no link is allowed. Collective."""
        lacking = [c for c in columns if (c, parent) not in self._of]
        cells = self._statistics(parent, lacking) if lacking else ()
        if cells is None:
            return np.full(len(columns), -np.inf)
        for c, s in zip(lacking, cells):
            self._of[c, parent] = at_points(tuple(a[None] for a in s), self._points[c])
        each = [self._of[c, parent] for c in columns]
        return np.array([np.logaddexp.reduce(log) - np.log(len(log)) for log in each])

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Log evidence of each column under each of the D parents, (R, D), and without a parent, (R,). Collective."""
        every = range(len(self))
        alone, score = self.under(ROOT, every), np.empty((len(self), self._d))
        for j in range(self._d):
            score[:, j] = self.under(j, every)
        return score, alone

    def draw(self, column: int, parent: int, u: float) -> np.ndarray:
        """Draw the hyperparameters (F,) of a column given its parent, under which it must have been scored. u: a
        uniform."""
        return self._points[column][pick_on_grid(self._of[column, parent], np.array(u))]
