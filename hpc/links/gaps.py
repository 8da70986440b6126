"""Missing cells of parents: part of a chain's state, drawn given the labels (docs/math.md 2.14).

A missing cell is needed if the cell of a child is present, or is itself needed. Needed cells always have levels; other
missing cells stay missing and are summed out. In each cycle parameters are drawn given labels and cells, and then the
needed cells given the parameters: column by column, parents first, each given its neighbours in the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.links.coding import Coding, number_in
from mpibayes.hpc.links.counts import by_column, count_levels
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.in_turn import InTurn, few_cells, in_parts
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import CODES, Column, Rows
from mpibayes.kernels.mixture import updates

AT_ONCE = 1 << 19  # weights, rows by levels, held at once

Density = Callable[[np.ndarray, np.ndarray], np.ndarray]  # log densities (n, U) of numbers (n,) in clusters (n,)
Masks = Mapping[int, np.ndarray]  # mask of missing cells, bool (n,), by index of a column that lacks any


def masks_of(plain: Sequence[Column], rows: Rows) -> Masks:
    """Masks of missing cells, for columns with levels and for numbers that may depend on these alone."""
    either = (
        (place, column) for place, column in enumerate(plain) if column.levels or (column.child and not column.line)
    )
    lacking = ((place, column) for place, column in either if column.n_missing)
    return {place: column.is_missing(getattr(rows, column.block)[:, column.index]) for place, column in lacking}


class Gaps:
    """Needed cells of several shards under a forest. masks: the missing cells of each shard."""

    def __init__(self, coding: Coding, masks: Sequence[Masks]):
        self.coding, self.masks = coding, masks
        in_contexts = set(np.flatnonzero(coding.of_contexts != ROOT).tolist())
        below = {parent: [c for c in children if c in in_contexts] for parent, children in coding.children_of.items()}
        self._children = {parent: children for parent, children in below.items() if children}
        self.at = [self._needed(mask) for mask in masks]
        self._in_turn: tuple[tuple[int, ...], list[InTurn]] = (), []  # columns, and their parts
        self._few_of: dict[int, tuple[int, ...]] = {}  # `few_cells` by number of clusters
        self._last: tuple = None, (), ()  # kind, columns, and the last result of `_counted`

    def _needed(self, masks: Masks) -> dict[int, np.ndarray]:
        """Rows of a shard in which a column's cell is needed, ascending, by the column's index, parents first."""
        result: dict[int, np.ndarray] = {}
        there = {c: ~mask for c, mask in masks.items()}
        for c in reversed(self.coding.order):
            children = self._children.get(c, ())
            if c not in masks or not children:
                continue
            every = not all(child in there for child in children)
            subset = (
                np.ones(len(masks[c]), bool) if every else np.logical_or.reduce([there[child] for child in children])
            )
            needed = masks[c] & subset
            if needed.any():
                result[c], there[c] = np.flatnonzero(needed), there[c] | needed
        return {c: result[c] for c in self.coding.order if c in result}

    @cached_property
    def columns(self) -> list[int]:
        """Indices of the columns whose cells may change: parents with missing cells anywhere in the table, and their
        children. The same on every rank."""
        return self._touched(self.lacking)

    @cached_property
    def lacking(self) -> list[int]:
        """Indices of the parents with missing cells anywhere in the table, parents first. The same on every rank."""
        return [c for c in self.coding.order if c in self._children and self.coding.plain[c].n_missing]

    def children_of(self, c: int) -> Sequence[int]:
        """Indices of the columns to which a column gives contexts."""
        return self._children.get(c, ())

    def _touched(self, parents: Sequence[int]) -> list[int]:
        return sorted({*parents}.union(*(self._children[c] for c in parents)))

    def _with_levels(self, masks: Masks) -> Iterator[tuple[int, np.ndarray]]:
        return ((c, mask) for c, mask in masks.items() if self.coding.plain[c].levels)

    # --- the state ---------------------------------------------------------------------------------------------------

    def start(self, shard: int, rows: Rows, first: int, key: Mapping[str, int]) -> None:
        """Start a shard's plain rows: missing cells that are not needed become missing again, and needed cells without
        a level get one at random. first: the number of the shard's first row."""
        for c, mask in self._with_levels(self.masks[shard]):
            column, empty = self.coding.plain[c], mask.copy()
            cells, at = getattr(rows, column.block)[:, column.index], self.at[shard].get(c, np.zeros(0, np.intp))
            empty[at] = False
            cells[empty] = column.blank
            at = at[column.is_missing(cells[at])]
            u = Stream(purpose=Purpose.FIRST_FILLED, sub=c, **key).uniforms(first + at)
            cells[at] = (u * len(column.levels)).astype(cells.dtype)

    def levels(self, shard: int, rows: Rows) -> dict[int, np.ndarray]:
        """Levels of the needed cells of a shard's coded rows, by column index."""
        return {c: self._levels(rows, c, at) for c, at in self.at[shard].items()}

    def put(self, shard: int, rows: Rows, levels: np.ndarray) -> None:
        """Set the needed cells of a shard's coded rows. levels: concatenated by column."""
        for c, (at, part) in self.apart(shard, levels).items():
            self._put(rows, c, at, part.astype(np.intp))

    def apart(self, shard: int, levels: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Split concatenated levels of needed cells into rows and levels of each column, by its index."""
        result, done = {}, 0
        for c, at in self.at[shard].items():
            result[c] = at, levels[done : done + len(at)]
            done += len(at)
        return result

    # --- draws -------------------------------------------------------------------------------------------------------

    def draw(
        self, comm: Communicator, kind: Categorical, multiplier: np.ndarray, levels: np.ndarray,
        labelled: Sequence[tuple[Rows, np.ndarray]], first: Sequence[int], key: Mapping[str, int],
        densities: Mapping[int, Density],
    ) -> None:  # fmt: skip
        """Redraw the needed cells, in coded rows and in the counts by level row and cluster, (L, K). Idle rows keep
        theirs. Collective.

        labelled: rows and labels of each shard. first: the number of each shard's first row. densities: of the columns
        `numbers`, by index.
        """
        if not self.columns:
            return
        tables = Tables(self.coding, kind, multiplier, levels, Stream(purpose=Purpose.FILLED_PARAMETERS, **key))
        if self._plain:
            few = self._few(kind, levels.shape[1])
            self._fill(comm, tables, levels, labelled, first, key, [c for c in self.lacking if c not in few])
            if self._in_turn[0] != few:
                self._in_turn = few, [InTurn(comm, self, part, first) for part in in_parts(self, few)]
            for part in self._in_turn[1]:
                part.draw(kind, kind.pseudo_counts(multiplier), levels, labelled, key)
            return
        for needed, (rows, z), number in zip(self.at, labelled, first):
            for c, at in needed.items():
                for subset in self._pieces(c, at[z[at] >= 0]):
                    u = Stream(purpose=Purpose.FILLED, sub=c, **key).uniforms(number + subset)
                    self._put(
                        rows, c, subset, picked(self._log_weights(tables, densities, rows, z[subset], c, subset), u)
                    )
        with_levels = (self.coding.plain[c] for c in self.columns if self.coding.plain[c].levels)
        places = sorted(tables.number[column.name] for column in with_levels)
        cells = ((by_column(rows), z) for rows, z in labelled)
        counted, offsets = count_levels(comm, kind, cells, levels.shape[1], places)
        for i, c in enumerate(places):
            levels[kind.offsets[c] : kind.offsets[c + 1]] = counted[offsets[i] : offsets[i + 1]]

    def _few(self, kind: Categorical, k: int) -> tuple[int, ...]:
        if k not in self._few_of:
            self._few_of[k] = few_cells(self, kind, k)
        return self._few_of[k]

    @cached_property
    def _plain(self) -> bool:
        """True if no column that may change is a number, or depends on one or on two columns."""
        coding, number = self.coding, set(self.coding.numbers)
        return not self.numbers and not any(
            c in coding.second or (c in self.lacking and not number.isdisjoint(coding.above(c))) for c in self.columns
        )

    def _fill(
        self, comm: Communicator, tables: Tables, levels: np.ndarray, labelled, first, key, lacking: Sequence[int]
    ) -> None:
        """Do the work of `draw` in compiled loops, for the columns `lacking`, where columns are plain."""
        if not lacking:
            return
        coding = self.coding
        rows_of, offsets, start, contexts = self._counted(tables, tuple(lacking))
        change = np.zeros((offsets[-1], levels.shape[1]), np.int32)

        def column(c: int, table: np.ndarray | None = None) -> tuple:
            of = coding.columns[c]
            context = coding.contexts.get(of.name) if c in self._children else None
            return of.block, of.index, len(of.levels), start.get(c, 0), context, table, contexts.get(c, 0)

        here = set().union(*self.at)
        for c in (c for c in lacking if c in here):
            above = [column(parent) for parent in coding.above(c)]
            below = [column(child, tables.by_level(child)) for child in self._children[c]]
            shards = zip(self.at, labelled, first)
            lacking = [(rows, needed[c], z, number) for needed, (rows, z), number in shards if c in needed]
            of, stream = column(c, tables.of(c)), Stream(purpose=Purpose.FILLED, sub=c, **key)
            updates.fill_cells(lacking, of, above[0] if above else None, below, change, **vars(stream))
        comm.sum_everywhere(change)
        for of, one, end in zip(rows_of, offsets, offsets[1:]):
            levels[of] += change[one:end]

    def _counted(self, tables: Tables, lacking: tuple[int, ...]) -> tuple:
        """Return where `_fill` counts changes: the level rows of each column that may change, their ends side by side;
        and by column, the first of them and its contexts."""
        if self._last[:2] != (tables.kind, lacking):
            kind, touched = tables.kind, self._touched(lacking)
            places = [tables.number[self.coding.plain[c].name] for c in touched]
            rows_of = [slice(*kind.offsets[[c, c + 1]].tolist()) for c in places]
            offsets = np.cumsum([0, *(of.stop - of.start for of in rows_of)]).tolist()
            by_column = dict(zip(touched, offsets)), dict(zip(touched, kind.contexts[places].tolist()))
            self._last = kind, lacking, (rows_of, offsets, *by_column)
        return self._last[2]

    @property
    def numbers(self) -> list[int]:
        """Indices of the numeric columns whose parents' cells may change."""
        return [c for c in self.columns if not self.coding.plain[c].levels]

    def _log_weights(
        self, tables: Tables, densities: Mapping[int, Density], rows: Rows, k: np.ndarray, c: int, at: np.ndarray
    ) -> np.ndarray:
        """Log weights (n, V) of the levels of column c in coded rows `at`, in clusters k, given its parent and its
        children."""
        log_p = tables.of(c)[self._context(rows, c, at), k].astype(np.float64)
        contexts = self.coding.contexts[self.coding.plain[c].name]
        for child in self._children[c]:
            if child in densities:
                x = number_in(rows, self.coding.columns[child], at)
                there = np.flatnonzero(~np.isnan(x))
                log_p[there] += densities[child](x[there], k[there])[:, contexts]
                continue
            level = self._levels(rows, child, at)
            there = np.flatnonzero(level < len(self.coding.plain[child].levels))
            in_contexts = tables.of(child)[:, k[there], level[there]]  # (U, n)
            if child in self.coding.second:
                every = np.arange(len(there))[:, None]
                log_p[there] += in_contexts[self._crossed(rows, child, c, at[there], contexts), every]
            else:
                log_p[there] += in_contexts.T[:, contexts]
        return log_p

    def completed(
        self, kind: Categorical, multiplier: np.ndarray, levels: np.ndarray,
        labelled: Sequence[tuple[Rows, np.ndarray]], first: Sequence[int], key: Mapping[str, int],
    ) -> Iterator[Rows]:  # fmt: skip
        """Yield each shard's plain rows with the columns with levels complete, except in idle rows: cells that are not
        needed are drawn given labels and cells, parents first. Arguments as in `draw`."""
        tables = Tables(self.coding, kind, multiplier, levels, Stream(purpose=Purpose.COMPLETED_PARAMETERS, **key))
        for masks, (rows, z), number in zip(self.masks, labelled, first):
            plain = self.coding.decoded(rows)
            if plain is rows:
                plain = replace(rows, **{block: getattr(rows, block).copy() for block in CODES})
            for c in (c for c in self.coding.order if c in dict(self._with_levels(masks))):
                column, linked = self.coding.plain[c], self.coding.parents[c] != ROOT
                cells = getattr(plain, column.block)[:, column.index]
                for at in self._pieces(c, np.flatnonzero(column.is_missing(cells) & (z >= 0))):
                    context = self.coding.context_of(c, plain.take(at)) if linked else np.zeros(len(at), np.intp)
                    u = Stream(purpose=Purpose.COMPLETED, sub=c, **key).uniforms(number + at)
                    cells[at] = picked(tables.of(c)[context, z[at]].astype(np.float64), u)
            yield plain

    def _pieces(self, c: int, at: np.ndarray) -> Iterator[np.ndarray]:
        """Split rows `at` into pieces whose weights, rows by levels of column c, fit in AT_ONCE."""
        step = max(1, AT_ONCE // len(self.coding.plain[c].levels))
        return (at[i : i + step] for i in range(0, len(at), step))

    # --- cells of coded rows -----------------------------------------------------------------------------------------

    def _levels(self, rows: Rows, c: int, at: np.ndarray) -> np.ndarray:
        """Levels of column c in rows `at`; the number of its levels where the cell is missing."""
        column = self.coding.columns[c]
        return getattr(rows, column.block)[at, column.index] % np.int64(len(column.levels) + 1)

    def _context(self, rows: Rows, c: int, at: np.ndarray) -> np.ndarray:
        """Context of column c in rows `at`, by its parents' levels, -1 if one has none; 0 if it has no parent."""
        above = self.coding.above(c)
        if not above:
            return np.zeros(len(at), np.intp)
        return self.coding.crossed(c, [self._context_in(rows, parent, at) for parent in above])

    def _context_in(self, rows: Rows, parent: int, at: np.ndarray) -> np.ndarray:
        """Context that a parent gives its children in rows `at`, -1 where its cell is missing."""
        if parent in self.coding.numbers:
            return self.coding.number_context(parent, rows.take(at))
        of_level = np.append(self.coding.contexts[self.coding.plain[parent].name], -1)
        return of_level[self._levels(rows, parent, at)]

    def _crossed(self, rows: Rows, child: int, c: int, at: np.ndarray, contexts: np.ndarray) -> np.ndarray:
        """Context of a column with two parents in rows `at` for each level of one of them, c, (n, V)."""
        shape = len(at), len(contexts)
        each = [
            np.broadcast_to(contexts if parent == c else self._context_in(rows, parent, at)[:, None], shape)
            for parent in self.coding.above(child)
        ]
        return self.coding.crossed(child, each)

    def _put(self, rows: Rows, c: int, at: np.ndarray, levels: np.ndarray) -> None:
        """Set the levels of column c in rows `at`, and with them the contexts of its children."""
        self._code(rows, c, at, self._context(rows, c, at), levels)
        context = self.coding.contexts[self.coding.plain[c].name][levels]
        for child in self._children[c]:
            if self.coding.plain[child].levels:
                of_child = self._context(rows, child, at) if child in self.coding.second else context
                self._code(rows, child, at, of_child, self._levels(rows, child, at))
            else:
                column = self.coding.columns[child]
                x, cells = number_in(rows, column, at), getattr(rows, column.block)
                cells[at, column.index : column.index + column.contexts] = np.nan
                cells[at, column.index + context] = x

    def _code(self, rows: Rows, c: int, at: np.ndarray, context: np.ndarray, level: np.ndarray) -> None:
        column, n = self.coding.columns[c], len(self.coding.plain[c].levels)
        code = np.where((level == n) | (context < 0), column.blank, context * np.int64(n + 1) + level)
        getattr(rows, column.block)[at, column.index] = code


class Tables:
    """Log level probabilities of columns in every context and cluster, drawn given counts by level row and cluster (L,
    K) on a column's first use; the same on every rank."""

    def __init__(self, coding: Coding, kind: Categorical, multiplier: np.ndarray, levels: np.ndarray, stream: Stream):
        self._coding, self.kind, self._given = coding, kind, (kind.pseudo_counts(multiplier), levels)
        self._stream = stream
        self.number = {column.name: c for c, column in enumerate(kind.columns)}
        self._drawn: dict[int, np.ndarray] = {}
        self._by_context: dict[int, np.ndarray] = {}
        self._by_level: dict[int, np.ndarray] = {}

    def of(self, place: int) -> np.ndarray:
        """Return the table of the column at index `place` among the plain ones, float32 (U, K, V)."""
        if place not in self._by_context:
            self._by_context[place] = np.ascontiguousarray(self._of(place).transpose(0, 2, 1))
        return self._by_context[place]

    def by_level(self, place: int) -> np.ndarray:
        """Return the same as float32 (K, V, U)."""
        if place not in self._by_level:
            self._by_level[place] = np.ascontiguousarray(self._of(place).transpose(2, 1, 0))
        return self._by_level[place]

    def _of(self, place: int) -> np.ndarray:
        """Return the same as float32 (U, V, K), as drawn."""
        if place not in self._drawn:
            c = self.number[self._coding.plain[place].name]
            table = self.kind.draw_given(*self._given, slice(c, c + 1), self._stream)
            self._drawn[place] = table.reshape(int(self.kind.contexts[c]), int(self.kind.n_levels[c]) + 1, -1)[:, :-1]
        return self._drawn[place]


@dataclass(frozen=True)
class Cells:
    """Missing cells of training rows in a draw, by column name: its rows, ascending, and their levels or values."""

    of: Mapping[str, tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of_draw(cls, gaps: Gaps, levels: np.ndarray) -> Cells:
        """Take a draw's cells. gaps: all training rows as one shard. levels: as stored in the draw."""
        return cls({gaps.coding.plain[c].name: part for c, part in gaps.apart(0, levels).items()})

    def filled(self, columns: Sequence[Column], rows: Rows, places: np.ndarray) -> Rows:
        """Return a copy of plain rows with the needed cells of `columns` filled in. places: the rows' positions among
        the training rows, ascending."""
        if not len(places) or not any(column.name in self.of for column in columns):
            return rows
        filled = [column for column in columns if column.name in self.of]
        rows = replace(rows, **{block: getattr(rows, block).copy() for block in {c.block for c in filled}})
        for column in filled:
            at, levels = self.of[column.name]
            subset = slice(*np.searchsorted(at, [places[0], places[-1] + 1]))
            where = np.searchsorted(places, at[subset])
            here = places[where] == at[subset]
            getattr(rows, column.block)[where[here], column.index] = levels[subset][here]
        return rows


NO_CELLS = Cells({})


def picked(log_p: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Pick the level of each row, int64 (n,), by its log weights (n, V) and a uniform."""
    below = np.exp(log_p - log_p.max(axis=1, keepdims=True, initial=-np.inf)).cumsum(axis=1)
    return (below[:, :-1] <= (u * below[:, -1])[:, None]).sum(axis=1)
