"""Missing cells of numbers that may lean on each other in lines: part of a chain's state, drawn given the labels
(docs/math.md 2.14).

They have values at all times, whichever column leans on which. In each cycle parameters are drawn given labels and
cells, and then a row's missing cells given these and its other cells, all at once: what the cells below say of one is
passed up the tree, and cells are drawn from the root on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.line_parameters import LineParameters
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Column, Rows

AT_ONCE = 1 << 18  # cells that are held together


def lacking(columns: Sequence[Column]) -> list[Column]:
    """The columns whose missing cells are part of the state."""
    return [column for column in columns if column.line and column.n_missing]


@dataclass(frozen=True)
class Holes:
    """Missing cells of some columns: rows that lack one, ascending, and which each of them lacks, bool (rows,
    columns)."""

    rows: np.ndarray
    lacks: np.ndarray

    @classmethod
    def of(cls, columns: Sequence[Column], rows: Rows) -> Holes:
        """columns: real ones, plain, as `rows` has them."""
        lacks = np.isnan(rows.reals[:, [column.index for column in columns]])
        at = np.flatnonzero(lacks.any(axis=1))
        return cls(at, lacks[at])

    def of_column(self, j: int) -> np.ndarray:
        """The rows that lack the cell of a column."""
        return self.rows[self.lacks[:, j]]


class LineGaps:
    """The missing cells of some shards. columns: all, plain, as `rows` has them, of each shard."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Rows]):
        self.columns = lacking(columns)
        self._number = {column.name: i for i, column in enumerate(columns)}
        self.holes = [Holes.of(self.columns, part) for part in rows]

    def start(self, shard: int, rows: Rows, first: int, key: Mapping[str, int]) -> None:
        """Give the missing cells of a shard's plain rows values at random. first: the number of its first row."""
        for j, column in enumerate(self.columns):
            at = self.holes[shard].of_column(j)
            z = Stream(purpose=Purpose.FIRST_NUMBERS, sub=self._number[column.name], **key).normals(first + at)
            rows.reals[at, column.index] = column.center + column.scale * z

    def within(self, coding: Coding) -> list[tuple[int, int]]:
        """Number among `columns`, and place in a coding, of each of the columns that the coding has."""
        place = {column.name: c for c, column in enumerate(coding.plain)}
        return [(j, place[column.name]) for j, column in enumerate(self.columns) if column.name in place]

    def values(self, shard: int, coding: Coding, rows: Rows) -> dict[int, np.ndarray]:
        """Values of a shard's missing cells, in coded rows, by the number of the column."""
        holes = self.holes[shard]
        return {j: _cells(coding, rows, c)[holes.of_column(j)] for j, c in self.within(coding)}

    def put(self, shard: int, coding: Coding, rows: Rows, values: Mapping[int, np.ndarray]) -> None:
        """The inverse of `values`, in place."""
        for j, c in self.within(coding):
            _put(coding, rows, c, self.holes[shard].of_column(j), values[j])

    def blanked(self, shard: int, columns: Sequence[Column], rows: Rows) -> Rows:
        """A copy of a shard's rows, coded, without these cells; columns: as the rows have them."""
        place = {column.name: column for column in columns}
        held = [(j, place[column.name]) for j, column in enumerate(self.columns) if column.name in place]
        rows = replace(rows, **{block: getattr(rows, block).copy() for block in {column.block for _, column in held}})
        for j, column in held:
            getattr(rows, column.block)[self.holes[shard].of_column(j), column.index] = np.nan
        return rows

    def draw(
        self, components: Components, hyper: Hyper, statistics: Statistics, coding: Coding,
        labelled: Sequence[tuple[Rows, np.ndarray]], first: Sequence[int], key: Mapping[str, int],
    ) -> None:  # fmt: skip
        """Draw the missing cells of a view anew, in coded rows. Idle rows keep theirs.

        statistics: of the clusters given the present cells. labelled: rows and labels of each shard. first: the number
        of each shard's first row.
        """
        within = self.within(coding)
        if not within:
            return
        of_lines = LineParameters(components, hyper, statistics, Purpose.LINE_PARAMETERS, key).lines(coding)
        for holes, (rows, z), number in zip(self.holes, labelled, first):
            here = holes.lacks[:, [j for j, _ in within]].any(axis=1) & (z[holes.rows] >= 0)
            for subset in self._pieces(np.flatnonzero(here), len(of_lines)):
                at = holes.rows[subset]
                lacks = {c: holes.lacks[subset, j] for j, c in within}
                noise = {
                    c: Stream(purpose=Purpose.FILLED_NUMBERS, sub=self._number[coding.plain[c].name], **key).normals(
                        number + at
                    )
                    for c in lacks
                }
                x = {c: _cells(coding, rows, c)[at] for c in of_lines}
                of_rows = {c: [a[z[at]] for a in line] for c, line in of_lines.items()}
                for c, y in drawn(coding, x, lacks, of_rows, noise).items():
                    _put(coding, rows, c, at[lacks[c]], y[lacks[c]])

    @staticmethod
    def _pieces(at: np.ndarray, n_columns: int) -> Iterator[np.ndarray]:
        step = max(1, AT_ONCE // n_columns)
        return (at[i : i + step] for i in range(0, len(at), step))


def drawn(
    coding: Coding, x: Mapping[int, np.ndarray], lacks: Mapping[int, np.ndarray],
    of_rows: Mapping[int, Sequence[np.ndarray]], noise: Mapping[int, np.ndarray],
) -> dict[int, np.ndarray]:  # fmt: skip
    """Values of the columns of `lacks` in n rows, drawn jointly where a row lacks them, by standard normal `noise`.

    All by the place of a column, parents first: cells x (n,); in which rows they are missing; middle, slope and
    variance of each row's line (n,), x = middle + slope (parent's cell - its center) + noise.
    """
    x, center = dict(x), {c: coding.plain[c].center for c in x}
    # what the cells below say of a cell: its density is in proportion to exp(shift x - precision x^2 / 2), x about the
    # column's center
    precision, shift = ({c: np.zeros(len(a)) for c, a in lacks.items()} for _ in range(2))
    for c in reversed(list(x)):
        parent = int(coding.parents[c])
        if parent not in lacks:
            continue
        middle, slope, variance = of_rows[c]
        middle = middle - center[c]
        weight, point = 1.0 / variance, (x[c] - center[c] - middle) / variance
        if c in lacks:
            rest = 1.0 + variance * precision[c]
            weight = np.where(lacks[c], precision[c] / rest, weight)
            point = np.where(lacks[c], (shift[c] - precision[c] * middle) / rest, point)
        precision[parent] += slope * slope * weight
        shift[parent] += slope * point
    for c in (c for c in x if c in lacks):
        parent, (mean, slope, variance) = int(coding.parents[c]), of_rows[c]
        if parent != ROOT:
            mean = mean + slope * (x[parent] - center[parent])
        total = 1.0 / variance + precision[c]
        y = center[c] + ((mean - center[c]) / variance + shift[c]) / total + noise[c] / np.sqrt(total)
        x[c] = np.where(lacks[c], y, x[c])
    return {c: x[c] for c in lacks}


def _cells(coding: Coding, rows: Rows, c: int) -> np.ndarray:
    """The cells of a column, by its place, in coded rows, not copied."""
    column = coding.columns[c]
    return getattr(rows, column.block)[:, column.index]


def _put(coding: Coding, rows: Rows, c: int, at: np.ndarray, x: np.ndarray) -> None:
    """Give a column values in some coded rows, there and before the columns that lean on it."""
    _cells(coding, rows, c)[at] = x
    for child in coding.in_lines:
        if coding.parents[child] == c:
            rows.vectors[at, coding.columns[child].index - 1] = x
