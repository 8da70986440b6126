"""Common part of the kinds with one cell per row and column, drawn by its inverse distribution function."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io.rows import Column


def one_uniform(stream: Stream, sub: int, column: int, ids: np.ndarray) -> np.ndarray:
    """A number inside (0, 1) for each row, named by its id and the column."""
    return inside(stream.at(sub).uniforms(column << 32 | ids))


def inside(u: np.ndarray) -> np.ndarray:
    """Multiples of 2^-53 from 0 to below 1 as numbers inside (0, 1)."""
    return np.minimum(u + 2.0**-54, 1.0 - 2.0**-53)


class OneByOne:
    """A kind whose columns are modelled one by one. _start: initial hyperparameters of each, (C, n)."""

    columns: tuple[Column, ...]
    _start: np.ndarray

    def __len__(self) -> int:
        return len(self.columns)

    def members(self, column: int) -> tuple[Column]:
        return (self.columns[column],)

    def start(self) -> np.ndarray:
        """Initial hyperparameters, (C, n)."""
        return self._start.copy()


class Numbers:
    """See `Law`: columns of numbers with moments (C, K + 1) about their centers, whatever their distribution."""

    n_bytes = 0  # next to nothing

    def __init__(self, sub: int, shift: np.ndarray, square: np.ndarray):
        """shift, square: means of x - center, and of its square."""
        self._sub, self._shift, self._square = sub, shift, square

    def quantile(self, column: int, clusters: np.ndarray, u: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def log_density(self, column, x, seen):
        raise NotImplementedError("a single cell is there or not")

    def averages(self, column, x, seen, lacking, weight) -> list[np.ndarray]:
        return [weight @ np.column_stack([self._shift[column], self._square[column]])]

    def draw(self, column, x, seen, lacking, clusters, stream: Stream, ids) -> np.ndarray:
        return self.quantile(column, clusters, one_uniform(stream, self._sub, column, ids))[:, None]


def with_new(*s: np.ndarray) -> list[np.ndarray]:
    """Statistics (..., K) with those of a new cluster behind them, (..., K + 1)."""
    return [np.append(a, np.zeros((*a.shape[:-1], 1), a.dtype), axis=-1) for a in s]
