"""Columns of numbers that lean on columns with levels: the evidence of each such link given the labels, and the draw of
the hyperparameters that go with it (docs/math.md 2.14).

Contexts leave less to be explained, as lines do (`lines`): a real column's mean and variance, or both parameters of a
count's prior, are summed out of each score over their grids, and drawn once the links are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mpibayes.hpc.components.grid import at_points, pick_on_grid

Cells = Sequence[tuple[np.ndarray, ...]]  # statistics (K,) each of some columns


class Children:
    """R columns, points (G, F) of each with its hyperparameters. alone: statistics in clusters; under: the number of
    each column that they may lean on, among D, and statistics in its contexts and clusters."""

    def __init__(self, points: Sequence[np.ndarray], alone: Cells, under: Iterable[tuple[int, Cells]], d: int):
        self._points, self._d = points, d
        self._of = {-1: self._evidence(alone)} | {j: self._evidence(s) for j, s in under}

    def _evidence(self, cells: Cells) -> list[np.ndarray]:
        return [at_points(tuple(a[None] for a in s), points) for s, points in zip(cells, self._points)]

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Log evidence of each column under each of the D, (R, D), -inf where there must be no link, and without a
        parent, (R,)."""
        score = np.full((len(self._points), self._d + 1), -np.inf)
        for j, of in self._of.items():
            score[:, j] = [np.logaddexp.reduce(log) - np.log(len(log)) for log in of]
        return score[:, :-1], score[:, -1]

    def draw(self, column: int, parent: int, u: float) -> np.ndarray:
        """Hyperparameters (F,) of a column given its parent, negative for none, by a uniform."""
        return self._points[column][pick_on_grid(self._of[parent][column], np.array(u))]
