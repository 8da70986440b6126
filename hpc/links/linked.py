"""Trees of linked columns: the columns and tables of each, and the numbers that lean on them."""

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
    """The columns of one tree: `tree`, their places among the plain columns, and among the categorical ones of the
    components; parents first. names: of the table's columns, where one is which atom another is that one's; "" where
    the number itself is another node. numbers: the nodes that are numbers; their places in `column` are behind those of
    the categorical ones."""

    tree: Tree
    plain: Sequence[int]
    column: Sequence[int]
    names: Sequence[str]
    numbers: Mapping[int, Column]


def linked(coding: Coding, kind: Categorical) -> list[Linked]:
    """The trees of two columns or more, or of one that numbers lean on, in the order of their roots."""
    parents = coding.of_levels.copy()
    for c in coding.numbers:
        if (coding.of_levels == c).any():
            parents[c] = coding.which(c)
    children: dict[int, list[int]] = {}
    for c, parent in enumerate(parents.tolist()):
        if parent != ROOT:
            children.setdefault(parent, []).append(c)
    for c in coding.in_contexts:
        children.setdefault(int(coding.parents[c]), [])
    number = {column.name: c for c, column in enumerate(kind.columns)}
    number |= {coding.plain[c].name: len(kind) + c for c in coding.numbers}
    result = []
    for root in children:
        if parents[root] != ROOT:
            continue
        plain = [root]
        for c in plain:  # which grows
            plain += children.get(c, ())
        place = {c: i for i, c in enumerate(plain)}
        columns = [coding.plain[c] for c in plain]
        above = [ROOT if c == root else place[int(parents[c])] for c in plain]
        contexts = [coding.contexts.get(c.name, np.zeros(len(c.levels), np.intp)) for c in columns]
        numbers = {i: c for i, c in enumerate(columns) if not c.levels}
        apart = {c.name for c in numbers.values()}
        names = ["" if c.part_of in apart else c.part_of or c.name for c in columns]
        result.append(Linked(Tree(above, contexts), plain, [number[c.name] for c in columns], names, numbers))
    return sorted(result, key=lambda of: of.plain[0])


def counted(
    kind: Categorical, multiplier: np.ndarray, levels: np.ndarray, of: Linked,
    masses: Callable[[Column], np.ndarray] | None = None,
) -> list[Table]:  # fmt: skip
    """Tables of a tree's columns, from counts by level row and cluster (L, K). masses: probabilities of a number's bins
    in every cluster, (B, K + 1)."""
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
    """Numbers that lean on a node of a tree, one of them in its contexts and others on that one in lines. Arrays end
    with the contexts of the node, and the clusters of a draw and a new one: (..., W, K + 1)."""

    node: int
    names: Sequence[str]

    def score(self, known: Known) -> np.ndarray:
        """Log probability of what is known of them, (n, W, K + 1)."""

    def log_masses(self, events: Events) -> np.ndarray:
        """Log probability of each event of one of them, (U, W, K + 1)."""

    def averaged(self, events: Events, weight: np.ndarray, given: Known) -> np.ndarray:
        """Sums over contexts and clusters, weighted by (n, W, K + 1), of the probabilities of events of one of them
        given the others, (n, U)."""

    def together(self, one: Events, other: Events) -> np.ndarray:
        """Probabilities of the events of two of them together, (U, U', W, K + 1)."""

    def scored(self, rows: Rows) -> np.ndarray:
        """Log density of the cells of plain rows that are there, on the model's scale, (n, W, K + 1)."""

    def drawn(
        self, known: Known, requested: Collection[str], cluster: np.ndarray, context: np.ndarray, stream: Stream, ids
    ) -> dict[str, np.ndarray]:
        """Recorded values (n,) of some of them, of what is known, or drawn given it and the row's cluster and
        context."""
