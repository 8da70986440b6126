"""Trees of linked columns: the columns and tables of each, and the numbers that depend on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.links.bins import Bins
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.tables import Table
from mpibayes.hpc.links.tree import Tree
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io.rows import Column, Rows


@dataclass(frozen=True)
class Linked:
    """Columns of one tree, or of several that a column with two parents joins, first parents first.

    plain, column: their indices among the plain columns, and among the categorical ones of the components; numbers
    follow these. names: column names in the table; a column that records the atom of a number has the number's name, ""
    if the number is a node of its own. numbers: the nodes that are numbers.
    """

    tree: Tree
    plain: Sequence[int]
    column: Sequence[int]
    names: Sequence[str]
    numbers: Mapping[int, Column]


def linked(coding: Coding, kind: Categorical) -> list[Linked]:
    """Return the trees of at least two columns, or of one with numeric children, in the order of their roots."""
    parents = coding.of_levels.copy()
    for c in coding.numbers:
        if (coding.of_levels == c).any() or c in coding.second.values():
            parents[c] = coding.which(c)
    children: dict[int, list[int]] = {}
    for c, parent in enumerate(parents.tolist()):
        if parent != ROOT:
            children.setdefault(parent, []).append(c)
    for c in coding.in_contexts:
        children.setdefault(int(coding.parents[c]), [])
    for q in coding.second.values():
        children.setdefault(q, [])
    number = {column.name: c for c, column in enumerate(kind.columns)}
    number |= {coding.plain[c].name: len(kind) + c for c in coding.numbers}
    result = []
    for roots in _together([c for c in children if parents[c] == ROOT], parents, coding.second):
        plain = list(roots)
        for c in plain:  # grows while we iterate
            plain += children.get(c, ())
        place = {c: i for i, c in enumerate(plain)}
        columns = [coding.plain[c] for c in plain]
        above = [ROOT if c in roots else place[int(parents[c])] for c in plain]
        second = {place[c]: place[q] for c, q in coding.second.items() if c in place}
        contexts = [coding.contexts.get(c.name, np.zeros(len(c.levels), np.intp)) for c in columns]
        numbers = {i: c for i, c in enumerate(columns) if not c.levels}
        apart = {c.name for c in numbers.values()}
        names = ["" if c.part_of in apart else c.part_of or c.name for c in columns]
        result.append(Linked(Tree(above, contexts, second), plain, [number[c.name] for c in columns], names, numbers))
    return sorted(result, key=lambda of: of.plain[0])


def _together(roots: Sequence[int], parents: np.ndarray, second: Mapping[int, int]) -> list[tuple[int, ...]]:
    """Group the roots whose trees a column with two parents joins."""

    def root(c: int) -> int:
        return c if parents[c] == ROOT else root(int(parents[c]))

    group = {c: {c} for c in roots}
    for child, q in second.items():
        both = group[root(child)] | group[root(q)]
        group |= dict.fromkeys(both, both)
    return list(dict.fromkeys(tuple(sorted(of)) for of in group.values()))


def counted(
    kind: Categorical, multiplier: np.ndarray, levels: np.ndarray, of: Linked,
    masses: Callable[[Column], np.ndarray] | None = None,
) -> list[Table]:  # fmt: skip
    """Return a tree's tables from counts by level row and cluster (L, K). masses(column): probabilities of a number's
    bins in every cluster, (B, K + 1)."""
    pseudo = kind.pseudo_counts(multiplier)
    return [
        Bins(len(of.numbers[i].atoms), masses(of.numbers[i]))
        if i in of.numbers
        else Table(_by_context(kind, levels, c), _by_context(kind, pseudo, c))
        for i, c in enumerate(of.column)
    ]


def _by_context(kind: Categorical, rows: np.ndarray, c: int) -> np.ndarray:
    part = rows[kind.offsets[c] : kind.offsets[c + 1]]
    return part.reshape(int(kind.contexts[c]), int(kind.n_levels[c]) + 1, *part.shape[1:])[:, :-1]


class Branch(Protocol):
    """Numbers below a node of a tree: one depends on the node's context, the others on that number in lines. Arrays end
    with the contexts of the node, and the clusters of a draw and a new one: (..., W, K + 1)."""

    node: int
    names: Sequence[str]

    def score(self, known: Known) -> np.ndarray:
        """Log probability of the branch's known cells, (n, W, K + 1)."""

    def log_masses(self, events: Events) -> np.ndarray:
        """Log probability of each event of one of the columns, (U, W, K + 1)."""

    def averaged(self, events: Events, weight: np.ndarray, given: Known) -> np.ndarray:
        """Sums over contexts and clusters, weighted by (n, W, K + 1), of the probabilities of a column's events given
        the branch's other columns, (n, U)."""

    def together(self, one: Events, other: Events) -> np.ndarray:
        """Joint probabilities of the events of two columns, (U, U', W, K + 1)."""

    def scored(self, rows: Rows) -> np.ndarray:
        """Log density of the present cells of plain rows, on the model's scale, (n, W, K + 1)."""

    def drawn(
        self, known: Known, requested: Collection[str], cluster: np.ndarray, context: np.ndarray, stream: Stream, ids
    ) -> dict[str, np.ndarray]:
        """Return recorded values (n,) of the requested columns, known or drawn given the known cells and the row's
        cluster and context."""
