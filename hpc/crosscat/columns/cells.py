"""Units of columns, and the cells of a view's columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.io.rows import ARRAYS, Column, Rows


def units(columns: Sequence[Column], blocks: Mapping[str, Mapping]) -> list[tuple[str, ...]]:
    """Group the columns that always share a view, by name, in table order: the columns of a block, the columns made
    from one column of the table (`Column.part_of`), else single columns."""
    block_of = {name: ("block", block) for block, of in blocks.items() for name in of["columns"]}
    result: dict[object, list[str]] = {}
    for column in columns:
        whole = column.part_of or column.name
        result.setdefault(block_of.get(whole, whole), []).append(column.name)
    return [tuple(names) for names in result.values()]


def joined(units: Sequence[tuple[str, ...]], pairs: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Join the units with linked columns. Results are in the order of their first units; the columns of each are in the
    order of the units. pairs: names of linked columns."""
    number = {name: u for u, names in enumerate(units) for name in names}
    first = list(range(len(units)))  # an earlier unit linked with each (union-find)

    def head(u: int) -> int:
        while first[u] != u:
            u = first[u]
        return u

    for child, parent in pairs:
        a, b = sorted((head(number[child]), head(number[parent])))
        first[b] = a
    result: dict[int, list[str]] = {}
    for u, names in enumerate(units):
        result.setdefault(head(u), []).extend(names)
    return [tuple(names) for names in result.values()]


def closed_up(chosen: Iterable[Column]) -> dict[str, int]:
    """Return the place of each chosen column, by name, in arrays that hold no other columns; the order within an array
    is kept. The parent's cell precedes the cell of a column regressed on it in a line."""
    result, taken = {}, Counter()
    for column in sorted(chosen, key=lambda c: c.index):
        taken[column.block] += column.leans_on is not None
        result[column.name] = taken[column.block]
        taken[column.block] += column.n_cells
    return result


def renumbered(chosen: Sequence[Column]) -> list[Column]:
    """Return the columns with the places of `closed_up`."""
    index = closed_up(chosen)
    return [c.at(index[c.name]) for c in chosen]


def places(chosen: Sequence[Column], blocks: Mapping[str, Mapping]) -> dict[str, np.ndarray]:
    """Return the places of the chosen columns in each array of rows that have all columns (see
    `data.rows.take_columns`). All columns of a block are chosen, or none."""
    result = {array: np.sort([c.index for c in chosen if c.block == array]).astype(np.intp) for array in ARRAYS}
    return result | {"widths": np.array(_widths(chosen, blocks), np.int64)}


def _widths(chosen: Sequence[Column], blocks: Mapping[str, Mapping]) -> list[int]:
    """Return the width of each block whose columns are chosen."""
    names = {column.name for column in chosen}
    return [len(of["columns"]) for of in blocks.values() if names.issuperset(of["columns"])]


@dataclass(frozen=True)
class Held:
    """Columns, and their cells in each of this rank's shards; an array's columns are in the order of their `index`."""

    columns: Sequence[Column]
    rows: Sequence[Rows]


class Gather:
    """Gather the cells of chosen columns from the views that hold them, a shard at a time, without a copy if they are a
    whole view. Only the last whole shard is cached.

    chosen: columns with their places in the whole table, which set the order. All columns of a block are chosen, or
    none.
    """

    def __init__(self, chosen: Sequence[Column], held: Sequence[Held], blocks: Mapping[str, Mapping]):
        self.held = held
        self._as_they_are = len(held) == 1 and len(chosen) == len(held[0].columns)
        place = {name: (source, i) for source, of in enumerate(held) for name, i in closed_up(of.columns).items()}
        self._places: dict[str, list[tuple[int, int]]] = {block: [] for block in ARRAYS}
        for c in sorted(chosen, key=lambda c: c.index):
            source, i = place[c.name]
            if c.leans_on is not None:
                self._places[c.block].append((source, i - 1))
            self._places[c.block] += [(source, i + u) for u in range(c.n_cells)]
        lines = [2] * sum(c.leans_on is not None for c in chosen)
        self.widths = np.array(_widths(chosen, blocks) + lines, np.int64)  # columns per block
        self.n_cells = {block: len(part) for block, part in self._places.items()}  # per row
        self._last: tuple[int, Rows] | None = None

    def __call__(self, i: int, at: np.ndarray | None = None) -> Rows:
        """Return the cells of the rows `at` of this rank's i-th shard, or of all its rows if None."""
        if self._as_they_are:
            rows = self.held[0].rows[i]
            return rows if at is None else rows.take(at)
        if at is None and self._last is not None and self._last[0] == i:
            return self._last[1]
        rows, arrays = [of.rows[i] for of in self.held], {}
        for block, dtype in ARRAYS.items():
            part = self._places[block]
            array = np.empty((len(rows[0]) if at is None else len(at), len(part)), dtype)
            for to, (source, index) in enumerate(part):
                column = getattr(rows[source], block)[:, index]
                array[:, to] = column if at is None else column[at]
            arrays[block] = array
        result = Rows(**arrays, widths=self.widths)
        if at is None:
            self._last = i, result
        return result
