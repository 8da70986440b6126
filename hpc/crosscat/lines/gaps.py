"""Missing cells of numbers that may depend on each other in lines: part of a chain's state, drawn given the labels
(docs/math.md 2.14).

Missing cells have values in columns that are in lines with others; those of other columns, which no link needs, are
summed out, and drawn only before the links are. In views all have values at all times. In each cycle parameters are
drawn given labels and cells, and then a row's missing cells jointly, given the parameters and its other cells:
likelihoods are passed up the tree, and cells are drawn from the root down. The row's label is drawn together with its
cells: a cell drawn in one cluster would otherwise hold its row there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components, Part
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.lines.parameters import LineParameters
from mpibayes.hpc.crosscat.view.state import Shared, Weights
from mpibayes.hpc.crosscat.view.sweep import instantiated
from mpibayes.hpc.links.coding import Coding, number_in
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Column, Rows
from mpibayes.kernels import mixture as kernels

AT_ONCE = 1 << 18  # cells held in memory together
OTHERS = Purpose.LINE_OTHERS
SWEEP, WEIGHTS = 1 << 20, 1 << 32  # beyond the numbers of a cycle's sweeps, and of the columns' streams
LOG_2PI, TINY = float(np.log(2.0 * np.pi)), 1e-300


def lacking(columns: Sequence[Column]) -> list[Column]:
    """Return the columns whose missing cells are part of the state."""
    return [column for column in columns if column.line and column.n_missing]


@dataclass(frozen=True)
class Holes:
    """Missing cells of a set of columns: rows with a missing cell, ascending, and the mask of the cells they lack, bool
    (rows, columns)."""

    rows: np.ndarray
    lacks: np.ndarray

    @classmethod
    def of(cls, columns: Sequence[Column], rows: Rows) -> Holes:
        """Find the missing cells of real columns, plain, as `rows` has them."""
        lacks = np.isnan(rows.reals[:, [column.index for column in columns]])
        at = np.flatnonzero(lacks.any(axis=1))
        return cls(at, lacks[at])

    def of_column(self, j: int) -> np.ndarray:
        """Return the rows that lack the cell of column j."""
        return self.rows[self.lacks[:, j]]


class LineGaps:
    """Missing cells of a rank's shards. rows: plain rows of each shard. columns: all columns of `rows`. always: all of
    them have values at all times."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Rows], always: bool):
        self.columns, self._always = lacking(columns), always
        self._number = {column.name: i for i, column in enumerate(columns)}
        self.holes = [Holes.of(self.columns, part) for part in rows]

    def start(self, shard: int, rows: Rows, coding: Coding, first: int, key: Mapping[str, int]) -> None:
        """Start a shard's plain rows under a coding: missing cells that it does not need become missing again, and
        needed ones without a value get one at random. first: number of the shard's first row."""
        needed = self.within(coding)
        for j, c in self.within(coding, every=True):
            column, at = coding.plain[c], self.holes[shard].of_column(j)
            if (j, c) not in needed:
                rows.reals[at, column.index] = np.nan
            elif len(at := at[np.isnan(rows.reals[at, column.index])]):
                z = Stream(purpose=Purpose.FIRST_NUMBERS, sub=self._number[column.name], **key).normals(first + at)
                rows.reals[at, column.index] = column.center + column.scale * z

    def forget(self, shard: int, coding: Coding, rows: Rows) -> None:
        """Make the cells of a shard's coded rows that the coding does not need missing again."""
        needed = self.within(coding)
        for j, c in self.within(coding, every=True):
            if (j, c) not in needed:
                _put(coding, rows, c, self.holes[shard].of_column(j), np.nan)

    def within(self, coding: Coding, every: bool = False) -> list[tuple[int, int]]:
        """Return (index in `columns`, index in the coding) for each column that the coding has and whose missing cells
        it needs, or for `every` one."""
        place = {column.name: c for c, column in enumerate(coding.plain)}
        joined = {*coding.in_lines, *(int(coding.parents[c]) for c in coding.in_lines)}
        held = [(j, place[column.name]) for j, column in enumerate(self.columns) if column.name in place]
        return [(j, c) for j, c in held if every or self._always or c in joined]

    def values(self, shard: int, coding: Coding, rows: Rows) -> dict[int, np.ndarray]:
        """Return the values of a shard's missing cells in coded rows, by index in `columns`; NaN for none."""
        holes = self.holes[shard]
        return {j: _cells(coding, rows, c)[holes.of_column(j)] for j, c in self.within(coding, every=True)}

    def put(self, shard: int, coding: Coding, rows: Rows, values: Mapping[int, np.ndarray]) -> None:
        """Write those of the `values` that the coding needs into a shard's coded rows, in place."""
        for j, c in self.within(coding):
            _put(coding, rows, c, self.holes[shard].of_column(j), values[j])

    def blanked(self, shard: int, columns: Sequence[Column], rows: Rows) -> Rows:
        """Return a copy of a shard's coded rows with these cells set to NaN. columns: the columns of `rows`."""
        place = {column.name: column for column in columns}
        held = [(j, place[column.name]) for j, column in enumerate(self.columns) if column.name in place]
        rows = replace(rows, **{block: getattr(rows, block).copy() for block in {column.block for _, column in held}})
        for j, column in held:
            parts = slice(column.index, column.index + column.contexts)
            getattr(rows, column.block)[self.holes[shard].of_column(j), parts] = np.nan
        return rows

    def draw(
        self, comm: Communicator, components: Components, hyper: Hyper, statistics: Statistics, coding: Coding,
        labelled: Sequence[tuple[Rows, np.ndarray]], first: Sequence[int], key: Mapping[str, int], every: bool,
    ) -> list[np.ndarray]:  # fmt: skip
        """Redraw the missing cells of a view that are needed, or `every` one, in coded rows, with the labels of the
        rows that lack them. Idle rows keep their cells and labels. Returns the labels of each shard. Collective.

        Rows leave and enter only clusters that have a complete row: complete rows do not move, so no cluster is
        emptied, which no move could undo.

        statistics: of the clusters given the present cells. labelled: rows and labels of each shard. first: number of
        each shard's first row.
        """
        within = self.within(coding, every)
        fixed = statistics.size - self._moving(comm, [j for j, _ in within], labelled, len(statistics.size))
        inside = _in_one_tree(coding, [c for _, c in within])
        of_lines = LineParameters(components, hyper, statistics, Purpose.LINE_PARAMETERS, key).lines(coding, inside)
        of_others = Others(components, hyper, statistics, coding, inside, key)
        result = [z.copy() for _, z in labelled]
        for batch in self._batches([j for j, _ in within], result, len(of_lines)):
            of = [(holes, *labelled[i], first[i], subset) for holes, i, subset in batch]
            parts = [(rows, holes.rows[subset], z) for holes, rows, z, _, subset in of]
            lacks = {c: np.concatenate([holes.lacks[subset, j] for holes, *_, subset in of]) for j, c in within}
            x = {c: np.concatenate([_cells(coding, rows, c, at) for rows, at, _ in parts]) for c in of_lines}
            context = {c: np.concatenate([_context(coding, rows, c, at) for rows, at, _ in parts]) for c in of_lines}
            labels = np.concatenate([z[at] for _, at, z in parts])
            ids = np.concatenate([number + holes.rows[subset] for holes, *_, number, subset in of])
            drawn = [of_others.labels(r.take(at), z[at], of[i][3] + int(at[0])) for i, (r, at, z) in enumerate(parts)]
            proposed, cells = np.concatenate(drawn), Tree(coding, x, lacks)
            moves = (proposed != labels) & (fixed[labels] > 0) & (fixed[proposed] > 0)
            which = np.stack([labels, proposed]) if moves.any() else labels[None]
            lines = {c: [a[context[c], which] for a in line] for c, line in of_lines.items()}
            passed = cells.passed_up(lines)
            if len(which) > 1:
                u = Stream(purpose=Purpose.LINE_MOVES, **key).uniforms(ids)
                moves &= np.log(u + TINY) < passed[0][1] - passed[0][0]
            labels = np.where(moves, proposed, labels)
            new = cells.drawn(moves, lines, passed[1:], {c: self._noise(coding, c, key, ids) for c in lacks})
            ends = np.cumsum([len(at) for _, at, _ in parts]).tolist()
            for (_, i, _), (rows, at, _), end in zip(batch, parts, ends):
                own = slice(end - len(at), end)
                result[i][at] = labels[own]
                for c, y in new.items():
                    lacking = lacks[c][own]
                    _put(coding, rows, c, at[lacking], y[own][lacking])
        return result

    def _batches(self, columns: Sequence[int], labels: Sequence[np.ndarray], n_columns: int):
        """Yield lists of (holes of a shard, its number, rows of the holes), whose rows that are not idle lack a cell of
        `columns`; each list holds AT_ONCE cells at most, but for its last piece."""
        batch, n = [], 0
        for i, (holes, z) in enumerate(zip(self.holes, labels)):
            here = holes.lacks[:, columns].any(axis=1) & (z[holes.rows] >= 0)
            for subset in self._pieces(np.flatnonzero(here), n_columns):
                batch.append((holes, i, subset))
                n += len(subset) * n_columns
                if n >= AT_ONCE:
                    yield batch
                    batch, n = [], 0
        if batch:
            yield batch

    def _moving(self, comm: Communicator, columns: Sequence[int], labelled, k: int) -> np.ndarray:
        """Count each cluster's rows that lack a cell of `columns`, over all shards, (K,). Collective."""
        total = np.zeros(k, np.int64)
        for holes, (_, z) in zip(self.holes, labelled):
            labels = z[holes.rows[holes.lacks[:, columns].any(axis=1)]]
            total += np.bincount(labels[labels >= 0], minlength=k)
        comm.sum_everywhere(total)
        return total

    def _noise(self, coding: Coding, c: int, key: Mapping[str, int], ids: np.ndarray) -> np.ndarray:
        sub = self._number[coding.plain[c].name]
        return Stream(purpose=Purpose.FILLED_NUMBERS, sub=sub, **key).normals(ids)

    @staticmethod
    def _pieces(at: np.ndarray, n_columns: int) -> Iterator[np.ndarray]:
        step = max(1, AT_ONCE // n_columns)
        return (at[i : i + step] for i in range(0, len(at), step))


class Others:
    """Columns but those `inside` trees that lack cells, with weights and parameters of all clusters drawn given their
    rows."""

    def __init__(
        self, components: Components, hyper: Hyper, statistics: Statistics, coding: Coding, inside: Collection[int],
        key: Mapping[str, int],
    ):  # fmt: skip
        sizes, k = statistics.size, len(statistics.size)
        stream = Stream(purpose=OTHERS, sub=WEIGHTS, **key)
        weights = Weights(*[0.0] * 2, stream.log_gammas(sizes - hyper.discount, np.arange(k)), np.zeros(1), 0.0)
        parameters = components.draw(hyper, statistics, self._part(components, coding, inside), key, OTHERS)
        for kind in components.kinds:  # without a draw where all cells are left out
            for array in kind.parameters:
                if len(getattr(parameters, array.name)) < kind.cuts[array.axis][-1]:
                    setattr(parameters, array.name, array.zeros(kind, k))
        shared = Shared(hyper, np.zeros(k, np.uint64), weights, parameters)
        self._draw, self._prior = instantiated(shared, np.arange(k), k), components.prior(hyper)
        self._blank, self._key = [coding.columns[c] for c in inside], key

    @staticmethod
    def _part(components: Components, coding: Coding, inside: Collection[int]) -> Part:
        """Return the kinds with any other column."""
        names = {coding.plain[c].name for c in inside}
        each = ({c.name for i in range(len(kind)) for c in kind.members(i)} for kind in components.kinds)
        return [slice(0, 0 if of <= names else len(kind)) for kind, of in zip(components.kinds, each)]

    def labels(self, rows: Rows, z: np.ndarray, first: int) -> np.ndarray:
        """Draw labels of coded rows given these columns alone, (n,) int32. first: number of the first row."""
        for of in self._blank:
            getattr(rows, of.block)[:, of.index : of.index + of.contexts] = np.nan
        z, key = z.copy(), self._key
        kernels.sweep(rows, z, first, key["seed"], key["cycle"], SWEEP, key["chain"], self._draw, None, self._prior)
        return z


@dataclass
class Tree:
    """Cells of n rows in columns that may be in lines. By index of the column, parents first: cells x (n,) and masks
    `lacks` (n,) of missing cells. Lines, by the same index, are each row's middle, slope and variance under its label
    and, if it may change, under another, (1 or 2, n): x = middle + slope (parent's cell - its center) + noise."""

    coding: Coding
    x: Mapping[int, np.ndarray]
    lacks: Mapping[int, np.ndarray]

    def passed_up(
        self, lines: Mapping[int, Sequence[np.ndarray]]
    ) -> tuple[np.ndarray, dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Return, of the form of lines, the log density of the observed cells, and the likelihood of a missing cell
        from the cells below it, by column: shift h and precision p of the factor exp(h x - p x^2 / 2), x relative to
        the column's center."""
        center = {c: self.coding.plain[c].center for c in self.x}
        total = np.zeros(next(iter(lines.values()))[0].shape)
        shift, precision = ({c: np.zeros(total.shape) for c in self.lacks} for _ in range(2))
        for c in reversed(list(self.x)):
            (middle, slope, variance), parent = lines[c], int(self.coding.parents[c])
            at, x = middle - center[c], self.x[c] - center[c]
            # as a function of the parent's cell: constant + linear u - square u^2 / 2
            off = (x - at) / variance
            constant, linear, square = -0.5 * (np.log(variance) + LOG_2PI + off * (x - at)), off, 1.0 / variance
            if c in self.lacks:
                h, p, lacks = shift[c], precision[c], self.lacks[c]
                rest = 1.0 + variance * p
                summed = -0.5 * np.log(rest) + (0.5 * h * h * variance + h * at - 0.5 * p * at * at) / rest
                constant = np.where(lacks, summed, constant)
                linear, square = np.where(lacks, (h - p * at) / rest, linear), np.where(lacks, p / rest, square)
            total += constant
            if c not in self.coding.in_lines:
                continue
            linear, square, u = slope * linear, slope * slope * square, self.x[parent] - center[parent]
            known = linear * u - 0.5 * square * u * u
            if parent in self.lacks:
                known = np.where(self.lacks[parent], 0.0, known)
                shift[parent] += linear
                precision[parent] += square
            total += known
        return total, shift, precision

    def drawn(
        self, moves: np.ndarray, lines: Mapping[int, Sequence[np.ndarray]], passed: tuple, noise: Mapping
    ) -> dict[int, np.ndarray]:
        """Return the cells of columns with missing cells, these drawn jointly from standard normal `noise` (n,), by
        column. moves (n,): mask of the rows that take the second label; passed: as passed up along the lines."""

        def own(a: np.ndarray) -> np.ndarray:
            return np.where(moves, a[1], a[0]) if len(a) > 1 else a[0]

        x, (shift, precision) = dict(self.x), ({c: own(a) for c, a in of.items()} for of in passed)
        for c in (c for c in x if c in self.lacks):
            (mean, slope, variance), parent = map(own, lines[c]), int(self.coding.parents[c])
            center = self.coding.plain[c].center
            if c in self.coding.in_lines:
                mean = mean + slope * (x[parent] - self.coding.plain[parent].center)
            total = 1.0 / variance + precision[c]
            y = center + ((mean - center) / variance + shift[c]) / total + noise[c] / np.sqrt(total)
            x[c] = np.where(self.lacks[c], y, x[c])
        return {c: x[c] for c in self.lacks}


def _in_one_tree(coding: Coding, columns: Sequence[int]) -> list[int]:
    """Return the columns joined by lines with any of `columns`, these too."""

    def root(c: int) -> int:
        return root(int(coding.parents[c])) if c in coding.in_lines else c

    roots = {root(c) for c in columns}
    return [c for c in coding.lines if root(c) in roots]


def _cells(coding: Coding, rows: Rows, c: int, at: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Return the cells of column c in coded rows `at`."""
    return number_in(rows, coding.columns[c], at)


def _context(coding: Coding, rows: Rows, c: int, at: np.ndarray) -> np.ndarray:
    """Return the contexts of column c in coded rows `at`; 0 if its parent has no levels."""
    if c not in coding.in_contexts:
        return np.zeros(len(at), np.intp)
    parent = int(coding.parents[c])
    column, n = coding.columns[parent], len(coding.plain[parent].levels)
    level = getattr(rows, column.block)[at, column.index] % np.int64(n + 1)
    return coding.contexts[column.name][level]


def _put(coding: Coding, rows: Rows, c: int, at: np.ndarray, x: np.ndarray) -> None:
    """Write values of column c into coded rows `at`, and into the copies kept by columns that depend on it."""
    column = coding.columns[c]
    getattr(rows, column.block)[at, column.index + _context(coding, rows, c, at)] = x
    for child in coding.in_lines:
        if coding.parents[child] == c:
            rows.vectors[at, coding.columns[child].index - 1] = x
