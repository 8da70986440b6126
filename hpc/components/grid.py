"""Gibbs draws of hyperparameters that live on a grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.errors import NumericalError


def draw_on_grid(log_weight: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Index drawn with probability proportional to exp(log_weight) along the last axis, one a leading row."""
    return pick_on_grid(log_weight, stream.random(log_weight.shape[:-1]))


def pick_on_grid(log_weight: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The same by given uniforms in [0, 1), one a leading row. -infinity stands for a point that is not there."""
    weight = np.exp(log_weight - log_weight.max(axis=-1, keepdims=True))
    cumulative = weight.cumsum(axis=-1)
    total = cumulative[..., -1:]
    if not np.isfinite(total).all():
        raise NumericalError("a hyperparameter's weight on its grid is not a number")
    return (cumulative <= u[..., None] * total).sum(axis=-1)


def as_grid(value: float | list[float]) -> np.ndarray:
    """A number is a grid of one point: a fixed hyperparameter."""
    return np.atleast_1d(np.asarray(value, np.float64))


class Grids:
    """One grid a column, of a hyperparameter: points (columns, G), NaN behind the last point of a shorter grid."""

    def __init__(self, grids: Sequence[np.ndarray]):
        self.length = np.array([len(g) for g in grids], np.int64)
        self.points = np.full((len(grids), int(self.length.max(initial=1))), np.nan)
        for row, grid in zip(self.points, grids):
            row[: len(grid)] = grid

    def learned(self, first: int, last: int) -> np.ndarray:
        """Those of the columns first..last-1 that have more than one point."""
        return first + np.flatnonzero(self.length[first:last] > 1)

    def draw(self, columns: np.ndarray, score: np.ndarray, u: np.ndarray) -> np.ndarray:
        """A value for each of `columns` (c,), by log weights score (G, c) and uniforms u (c,)."""
        score = np.where(np.isnan(self.points[columns]), -np.inf, score.T)
        return self.points[columns, pick_on_grid(score, u)]
