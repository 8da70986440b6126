"""Which cells a view has: those of its columns, and of no other's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.io.rows import ARRAYS, Column, Rows


def units(columns: Sequence[Column], blocks: Mapping[str, Mapping]) -> list[tuple[str, ...]]:
    """The names of the columns that are always in one view together, in the order of the table: those of a block, and
    those that one column of the table is made into (`Column.part_of`); else one column by itself."""
    block_of = {name: ("block", block) for block, of in blocks.items() for name in of["columns"]}
    found: dict[object, list[str]] = {}
    for column in columns:
        whole = column.part_of or column.name
        found.setdefault(block_of.get(whole, whole), []).append(column.name)
    return [tuple(names) for names in found.values()]


def renumbered(chosen: Iterable[Column]) -> list[Column]:
    """Some columns with their places in cells that hold no other: within an array, in the order they had."""
    places: dict[str, list[int]] = {}
    for column in sorted(chosen, key=lambda c: c.index):
        places.setdefault(column.block, []).append(column.index)
    return [replace(column, index=places[column.block].index(column.index)) for column in chosen]


def places(chosen: Sequence[Column], blocks: Mapping[str, Mapping]) -> dict[str, np.ndarray]:
    """Where these columns are in each array of rows that have all (see `data.rows.take_columns`). Those that `blocks`
    joins are chosen together."""
    names = {column.name for column in chosen}
    found = {array: np.sort([c.index for c in chosen if c.block == array]).astype(np.intp) for array in ARRAYS}
    widths = [len(of["columns"]) for of in blocks.values() if set(of["columns"]) <= names]
    return found | {"widths": np.array(widths, np.int64)}


@dataclass(frozen=True)
class Held:
    """Columns, and their cells of each of this rank's shards: an array's columns in the order of their `index`."""

    columns: Sequence[Column]
    rows: Sequence[Rows]


def gathered(chosen: Sequence[Column], held: Sequence[Held], blocks: Mapping[str, Mapping]) -> list[Rows]:
    """The cells of some columns, of each of this rank's shards, copied from where they are held.

    chosen: with their places in the whole table, which set the order. Columns that `blocks` joins are chosen together.
    """
    place = {c.name: (source, c) for source, of in enumerate(held) for c in renumbered(of.columns)}
    widths = places(chosen, blocks)["widths"]
    found = []
    for i in range(len(held[0].rows)):
        arrays = {}
        for block, dtype in ARRAYS.items():
            own = sorted((c for c in chosen if c.block == block), key=lambda c: c.index)
            array = np.empty((len(held[0].rows[i]), len(own)), dtype)
            for to, column in enumerate(own):
                source, there = place[column.name]
                array[:, to] = getattr(held[source].rows[i], block)[:, there.index]
            arrays[block] = array
        found.append(Rows(**arrays, widths=widths))
    return found
