"""Missing cells of parents, drawn one after another with parameters integrated out (docs/math.md 2.14): used where few
cells are missing and tables of counts are wide. Clusters are independent: a rank draws the cells of some clusters in
the rows of all shards, and counts the others' afterwards; or every rank draws all of them, if there is little to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Rows
from mpibayes.kernels.mixture import turns

if TYPE_CHECKING:
    from mpibayes.hpc.links.gaps import Gaps

A_GAMMA = 16  # terms of a cell's weights that take as long as drawing a parameter
ALIKE = 1 << 18  # most terms of all weights that every rank computes, rather than wait for messages
AT_ONCE = 1 << 18  # most cells held by every rank, unless a single column needs more


def few_cells(gaps: Gaps, kind: Categorical, k: int) -> tuple[int, ...]:
    """Indices of the columns with fewer missing cells than a draw of them would need parameters, parents first. k:
    number of clusters."""
    rows = {column.name: int(n) for column, n in zip(kind.columns, np.diff(kind.offsets))}
    plain, result = gaps.coding.plain, []
    for c in gaps.lacking:
        members = [c, *gaps.children_of(c)]
        parameters = k * sum(rows[plain[of].name] for of in members)
        if plain[c].n_missing * len(plain[c].levels) * len(members) <= A_GAMMA * parameters:
            result.append(c)
    return tuple(result)


def in_parts(gaps: Gaps, columns: Sequence[int]) -> list[tuple[int, ...]]:
    """Split columns, in their order, so that the rows of each part have at most AT_ONCE cells in its columns, their
    parents and children."""
    parts: list[list[int]] = []
    rows = width = 0
    for c in columns:
        rows, width = rows + gaps.coding.plain[c].n_missing, width + 2 + len(gaps.children_of(c))
        if not parts or rows * width > AT_ONCE:
            parts.append([])
            rows, width = gaps.coding.plain[c].n_missing, 2 + len(gaps.children_of(c))
        parts[-1].append(c)
    return [tuple(part) for part in parts]


class InTurn:
    """Needed cells of `columns`, indices as in `Gaps`, parents first, in the rows of all shards. Collective.

    first: the number of each of this rank's shards' first row.
    """

    def __init__(self, comm: Communicator, gaps: Gaps, columns: Sequence[int], first: Sequence[int]):
        self._comm, self._coding, self.columns = comm, gaps.coding, tuple(columns)
        parents, none = gaps.coding.of_contexts, np.zeros(0, np.intp)
        above = {int(parents[c]) for c in columns} - {ROOT}
        self._of = sorted({*columns, *above, *(d for c in columns for d in gaps.children_of(c))})
        self._children = {d for c in columns for d in gaps.children_of(c)}
        self._at = [np.unique(np.concatenate([none, *(of[c] for c in columns if c in of)])) for of in gaps.at]
        ends = np.cumsum([0, *(len(at) for at in self._at)])
        sizes = comm.collect(int(ends[-1]))
        start = sum(sizes[: comm.rank])
        self._parts = [slice(start + a, start + b) for a, b in zip(ends[:-1].tolist(), ends[1:].tolist())]
        self._ids, needed = np.zeros(sum(sizes), np.int64), np.zeros((len(columns), sum(sizes)), np.int64)
        for at, part, of, number in zip(self._at, self._parts, gaps.at, first):
            self._ids[part] = number + at
            for i, c in enumerate(columns):
                needed[i, part] = np.isin(at, of.get(c, none))
        comm.sum_everywhere(self._ids)
        comm.sum_everywhere(needed)
        self._rows = [np.flatnonzero(mask) for mask in needed]
        terms = [len(gaps.coding.plain[c].levels) * (1.0 + len(gaps.children_of(c))) for c in columns]
        self._cost = np.array(terms) @ needed  # terms of the weights of each row's cells
        self._kind: tuple[Categorical | None, list[tuple]] = None, []  # columns last described

    def draw(
        self, kind: Categorical, beta: np.ndarray, levels: np.ndarray, labelled: Sequence[tuple[Rows, np.ndarray]],
        key: Mapping[str, int],
    ) -> None:  # fmt: skip
        """Redraw the cells, in coded rows and in the counts by level row and cluster, (L, K), given pseudo-counts (L,).
        Collective; arguments as in `Gaps.draw`."""
        if self._kind[0] is not kind:
            self._kind = kind, self._described(kind)
        columns = self._kind[1]
        cells = np.zeros((len(self._ids), 1 + len(columns)), np.int32)
        for (rows, z), at, part in zip(labelled, self._at, self._parts):
            turns.take_cells(rows, at, z, columns, cells[part])
        self._comm.sum_everywhere(cells)
        rank_of = self._dealt(cells[:, 0], levels.shape[1])
        mine, before = (True, None) if rank_of is None else (rank_of == self._comm.rank, cells.copy())
        for c, at in zip(self.columns, self._rows):
            of, at = vars(Stream(purpose=Purpose.FILLED, sub=c, **key)), at if mine is True else at[mine[at]]
            turns.fill_in_turn(columns, cells, self._of.index(c), at, self._ids, levels, beta, **of)
        if before is not None:
            self._share(cells, mine)
            turns.recount(columns, before, cells, np.flatnonzero(~mine), levels)
        for (rows, z), at, part in zip(labelled, self._at, self._parts):
            turns.put_cells(rows, at, z, columns, cells[part])

    def _dealt(self, z: np.ndarray, k: int) -> np.ndarray | None:
        """Return the rank that draws each row's cells, (n,), by its cluster z (n,) among k, so that all have about as
        much to do; None if all draw them all."""
        if self._comm.size == 1 or self._cost.sum() <= ALIKE:
            return None
        cost = np.bincount(z + 1, self._cost, k + 1)[1:]
        rank_of, load = np.zeros(k + 1, np.int32), [0.0] * self._comm.size  # the last: idle rows
        for cluster in np.argsort(-cost, kind="stable").tolist():
            rank_of[cluster] = rank = load.index(min(load))
            load[rank] += cost[cluster]
        return rank_of[z]

    def _share(self, cells: np.ndarray, mine: np.ndarray) -> None:
        """Complete the drawn levels in `cells` on every rank, which has those of the rows in the mask `mine`."""
        drawn = np.empty((len(self.columns), len(cells)), np.uint16)  # a column has at most 65,535 levels
        own = [1 + self._of.index(c) for c in self.columns]
        for levels, c in zip(drawn, own):
            np.multiply(cells[:, c], mine, out=levels, casting="unsafe")
        self._comm.sum_everywhere(drawn)
        for levels, c in zip(drawn, own):
            cells[:, c] = levels

    def _described(self, kind: Categorical) -> list[tuple]:
        """Describe the columns as `turns.fill_in_turn` reads them."""
        coding, number = self._coding, {column.name: c for c, column in enumerate(kind.columns)}
        result = []
        for c in self._of:
            of, i = coding.columns[c], number[coding.plain[c].name]
            changes = c in self._children or c in self.columns
            parent = int(coding.of_contexts[c]) if changes else ROOT
            first, contexts = int(kind.offsets[i]), int(kind.contexts[i])
            above, given = self._of.index(parent) if parent != ROOT else -1, coding.contexts.get(of.name)
            result.append((of.block, of.index, first, int(kind.n_levels[i]), contexts, above, given))
        return result
