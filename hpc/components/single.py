"""Shared base of the kinds with one cell per row and column, drawn by inverting the distribution function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.components.grid import Grids, draw_in_contexts, draw_numbers
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io.rows import Column
from mpibayes.kernels.mixture import updates


def one_uniform(stream: Stream, sub: int, column: int, ids: np.ndarray) -> np.ndarray:
    """Uniform in the open interval (0, 1) for each row, named by its id and the column."""
    return inside(stream.at(sub).uniforms(column << 32 | ids))


def inside(u: np.ndarray) -> np.ndarray:
    """Map multiples of 2^-53 in [0, 1) into the open interval (0, 1)."""
    return np.minimum(u + 2.0**-54, 1.0 - 2.0**-53)


class OneByOne:
    """A kind whose columns are modelled one by one. _start: initial hyperparameters of each column, (C, n)."""

    columns: tuple[Column, ...]
    _start: np.ndarray

    def __len__(self) -> int:
        return len(self.columns)

    def members(self, column: int) -> tuple[Column]:
        return (self.columns[column],)

    def start(self) -> np.ndarray:
        """Initial hyperparameters, (C, n)."""
        return self._start.copy()


class InContexts(OneByOne):
    """A numeric kind whose columns are modelled one by one. A column that depends on one with levels has a column of
    cells for each context, missing in rows of other contexts, and the same hyperparameters in all (docs/math.md 1.9).
    `columns`: the columns of cells; those with parents come last.

    _of (P,): the column of each column of cells. n_plain: columns without a parent. summed_out: hyperparameters that
    the evidence of a link sums out.
    """

    summed_out: tuple[int, ...]
    grids: Sequence[Grids]

    def __init__(self, columns: Sequence[Column]):
        self._members = tuple(columns)
        contexts = [column.contexts for column in columns]
        self.columns = tuple(replace(c, index=c.index + u) for c in columns for u in range(c.contexts))
        self.n_plain, self._of = contexts.count(1), np.repeat(np.arange(len(contexts)), contexts)
        self.cuts = {"column": np.arange(len(contexts) + 1), "part": np.cumsum([0, *contexts])}
        self.cost = 8.0 * np.array(contexts, np.float64)

    def __len__(self) -> int:
        return len(self._members)

    def members(self, column: int) -> tuple[Column]:
        return (self._members[column],)

    def parts(self, columns: slice) -> slice:
        """Slice of the columns of cells that belong to `columns`."""
        return slice(*(int(self.cuts["part"][c]) for c in (columns.start, columns.stop)))

    def wide(self, hyper: np.ndarray) -> np.ndarray:
        """Hyperparameters of every column of cells, (P, n)."""
        return hyper if len(self.columns) == len(self) else hyper[self._of]

    def points(self, column: int, hyper: np.ndarray) -> np.ndarray:
        """All grid points (G, n) of the summed-out hyperparameters of a column; the others are as in `hyper` (n,)."""
        grids = [
            grid.points[column, : grid.length[column]] if f in self.summed_out else hyper[f : f + 1]
            for f, grid in enumerate(self.grids)
        ]
        return np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, len(grids))

    def log_marginal(self, hyper: np.ndarray, s: tuple, columns: slice) -> np.ndarray:
        """See `Component.log_marginal`; counts omit 1 / x!."""
        parts = self.parts(columns)
        each = updates.number_marginals(s, self.wide(hyper), parts.start, parts.stop)[0]
        if len(each) == columns.stop - columns.start:
            return each
        return np.add.reduceat(each, self.cuts["part"][columns] - parts.start)

    def log_marginal_clusters(self, hyper: np.ndarray, s: tuple) -> np.ndarray:
        """See `Component.log_marginal_clusters`; counts omit 1 / x!."""
        return updates.number_marginals(s, self.wide(hyper), 0, len(self.columns))[1]

    def updated(self, hyper: np.ndarray, s: tuple, columns: slice, grids: Sequence[Grids], stream: Stream):
        """Draw hyperparameters (columns, n) from their grids, coordinate by coordinate."""
        if columns.stop <= self.n_plain == len(self):
            return draw_numbers(s, hyper, columns, grids, stream)
        hyper, plain = hyper.copy(), slice(columns.start, min(columns.stop, self.n_plain))
        if plain.stop > plain.start:
            alone = tuple(a[: self.n_plain] for a in s)
            shorter = [grid.take(slice(self.n_plain)) for grid in grids]
            hyper[plain] = draw_numbers(alone, hyper[: self.n_plain].copy(), plain, shorter, stream)
        for c in range(max(columns.start, self.n_plain), columns.stop):
            part = self.parts(slice(c, c + 1))
            hyper[c] = draw_in_contexts(tuple(a[part] for a in s), hyper[c], grids, stream, c)
        return hyper[columns]


class Numbers:
    """Base of laws (see `Law`) of numeric columns, given by moments (C, K + 1) about the columns' centers."""

    n_bytes = 0  # negligible

    def __init__(self, sub: int, shift: np.ndarray, square: np.ndarray):
        """shift, square: means of x - center and (x - center)^2."""
        self._sub, self._shift, self._square = sub, shift, square

    def quantile(self, column: int, clusters: np.ndarray, u: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def moments(self, columns: slice) -> np.ndarray:
        """First two moments of columns about their centers, (2, columns, K + 1)."""
        return np.stack([self._shift[columns], self._square[columns]])

    def log_density(self, column, x, seen):
        raise NotImplementedError("a single cell is there or not")

    def averages(self, column, x, seen, lacking, weight) -> list[np.ndarray]:
        return [weight @ np.column_stack([self._shift[column], self._square[column]])]

    def draw(self, column, x, seen, lacking, clusters, stream: Stream, ids) -> np.ndarray:
        return self.quantile(column, clusters, one_uniform(stream, self._sub, column, ids))[:, None]


def with_new(*s: np.ndarray) -> list[np.ndarray]:
    """Append the statistics of a new cluster to statistics (..., K), each (..., K + 1)."""
    return [np.concatenate([a, np.zeros((*a.shape[:-1], 1), a.dtype)], axis=-1) for a in s]
