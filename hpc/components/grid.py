"""Gibbs draws of hyperparameters on a grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.errors import NumericalError
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.kernels.common import weights
from mpibayes.kernels.mixture import updates

NO_WEIGHT = "a hyperparameter's weight on its grid is not a number"


def draw_on_grid(log_weight: np.ndarray, stream: np.random.Generator) -> int:
    """Draw an index with probability proportional to exp(log_weight), (G,); -infinity marks an absent point."""
    chosen = weights.pick(log_weight, stream.random())
    if chosen < 0:
        raise NumericalError(NO_WEIGHT)
    return chosen


def pick_on_grid(log_weight: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Draw grid points by given uniforms in [0, 1), one per leading row. -infinity marks an absent point."""
    rows, u = np.ascontiguousarray(log_weight), np.asarray(u)
    chosen = weights.picks(rows.reshape(-1, rows.shape[-1]), u.reshape(-1))
    if np.minimum.reduce(chosen, initial=0) < 0:
        raise NumericalError(NO_WEIGHT)
    return chosen.reshape(u.shape)


def as_grid(value: float | list[float]) -> np.ndarray:
    """Return a grid; a number becomes a grid of one point, a fixed hyperparameter."""
    return np.atleast_1d(np.asarray(value, np.float64))


class Grids:
    """Grids of one hyperparameter, one per column: points (columns, G), NaN behind the last point of a shorter grid."""

    def __init__(self, grids: Sequence[np.ndarray]):
        self.length = np.array([len(g) for g in grids], np.int64)
        self.points = np.full((len(grids), int(self.length.max(initial=1))), np.nan)
        for row, grid in zip(self.points, grids):
            row[: len(grid)] = grid

    def take(self, columns: slice) -> Grids:
        """Return the grids of some columns."""
        result = Grids.__new__(Grids)
        result.length, result.points = self.length[columns], self.points[columns]
        return result


def draw_numbers(s: tuple, hyper: np.ndarray, columns: slice, grids: Sequence[Grids], stream: Stream) -> np.ndarray:
    """Draw hyperparameters (columns, F) of real or count columns from their grids, one after another given the others.
    s, hyper (C, F): of all columns of the kind. grids: for each of the F hyperparameters. The id of a draw is F times
    the column's index in the kind plus the hyperparameter's."""
    hyper, n_hyper = hyper.copy(), hyper.shape[1]
    ids = np.arange(n_hyper * columns.start, n_hyper * columns.stop)
    try:
        updates.draw_numbers(s, hyper, columns.start, columns.stop, grids, stream.uniforms(ids).reshape(-1, n_hyper))
    except FloatingPointError:
        raise NumericalError(NO_WEIGHT) from None
    return hyper[columns]


def at_points(s: tuple, points: np.ndarray) -> np.ndarray:
    """Log marginal likelihood of one numeric column at each of G points of its hyperparameters (G, F), summed over
    contexts and clusters, (G,). s: its statistics, (U, K) each."""
    n_contexts = len(s[0])
    each = tuple(np.tile(a, (len(points), 1)) for a in s)
    total = updates.number_marginals(each, np.repeat(points, n_contexts, axis=0), 0, len(points) * n_contexts)[0]
    return total.reshape(len(points), n_contexts).sum(axis=1)


def draw_in_contexts(s: tuple, hyper: np.ndarray, grids: Sequence[Grids], stream: Stream, column: int) -> np.ndarray:
    """Draw the hyperparameters (F,) of a column that shares them between contexts, as `draw_numbers` does for others: a
    context in a cluster is one more cluster. s: its statistics, (U, K) each; grids: of all columns."""
    there, hyper = s[0] > 0, hyper[None].copy()
    u = stream.uniforms(np.arange(hyper.size * column, hyper.size * (column + 1)))
    own = [grid.take(slice(column, column + 1)) for grid in grids]
    try:
        updates.draw_numbers(tuple(a[there][None] for a in s), hyper, 0, 1, own, u[None])
    except FloatingPointError:
        raise NumericalError(NO_WEIGHT) from None
    return hyper[0]
