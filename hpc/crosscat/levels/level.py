"""One level of a tree over clusters: its groups of rows, and how far they can be trusted.

Two questions, and both need several chains. *Certain*: which rows are in the same group in every chain, each chain
voting by its own draws over the common tree. *Natural*: whether the tree over each chain's clusters alone, cut into
as many groups, draws the same lines. A level that is certain and not natural is a summary that somebody chose:
another run would draw the lines elsewhere. Mapping one chain's clusters onto another's coarse groups flatters (random
merges have 80 % of the rows "in the same group"), so a level is *usable* only where the chains agree by the adjusted
Rand index, which is 0 for chance, and where no group has nearly all rows.

Neither question touches the sampler: a tree summarises kept draws, and no draw depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.crosscat.levels.tree import Tree
from mpibayes.hpc.crosscat.levels.votes import Patterns, cut_into, vote
from mpibayes.hpc.crosscat.partitions import jaccard
from mpibayes.hpc.posterior.similarity import similarity_of
from mpibayes.text import counted, percent

ALIKE = 0.9  # adjusted Rand index of groups that are the same but for details
MATCHED = 0.5  # overlap of a natural group with its like in each chain's own tree: a few rows move no index
LARGEST = 0.7  # of the rows that a group of a usable level may have


@dataclass(frozen=True, eq=False)  # arrays have no one answer to ==
class Level:
    """n groups of rows, numbered from the largest.

    branch (K,): the group of each leaf of the tree, 0..n-1; groups (P,): of each pattern; rows (n,): in each group.
    certain: share of the rows whose group is the same in all chains; certain_of (n,): of each group's rows.
    agree: least adjusted Rand index between chains, voting over the common tree; by_itself: the same where each chain
    has its own tree (with that of the groups shown), NaN where one of them has no such level; matched: the least
    overlap (rows in both / rows in either) of a group shown with the nearest of a chain's own. All NaN of one chain.
    clear: see `Tree.clear`.
    """

    branch: np.ndarray
    groups: np.ndarray
    rows: np.ndarray
    certain: float
    certain_of: np.ndarray
    agree: float
    by_itself: float
    matched: float
    clear: float = 1.0

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def judged(self) -> bool:
        return bool(np.isfinite(self.agree))

    @property
    def natural(self) -> bool:
        return bool(min(self.agree, self.by_itself) >= ALIKE and self.matched >= MATCHED)

    @property
    def usable(self) -> bool:
        return bool(self.agree >= ALIKE and self.largest <= LARGEST)

    @property
    def largest(self) -> float:
        """The largest group's share of the rows."""
        return float(self.rows[0] / self.rows.sum())

    def __str__(self) -> str:
        if not self.judged:
            return f"{counted(self.n, 'group')}. One chain: not judged."
        same = f"the chains agree on the group of {percent(self.certain)} of the rows"
        if self.natural:
            return f"{counted(self.n, 'natural group')}: {same}."
        if self.usable:
            chosen = f"{counted(self.n, 'group')}: a summary, not a finding: another run would draw other lines"
            return f"{chosen}, though {same.replace('the chains', 'these chains')}."
        if self.agree < ALIKE:
            why = f"the chains do not agree on them (adjusted Rand index {self.agree:.2f})"
        else:
            why = f"one group has {percent(self.largest)} of the rows"
        return f"{counted(self.n, 'group')}: not usable: {why}."


def first_level(levels: Sequence[Level]) -> Level | None:
    """The level to look at first: the clearest natural one, else the smallest usable one, else the smallest."""
    natural = [level for level in levels if level.natural]
    if natural:
        return max(natural, key=lambda level: level.clear)  # the smallest of several
    return next((level for level in levels if level.usable), levels[0] if levels else None)


def judged(p: Patterns, tree: Tree, chain_trees: Sequence[tuple[Tree, np.ndarray]], n: int) -> Level | None:
    """The level of n groups, or None where the tree has none. chain_trees: of each chain the tree over its clusters
    alone, and the leaves of its draws there, (P, D')."""
    branch = cut_into(n, tree, p.leaves, p.rows)
    if branch is None:
        return None
    groups, by_chain = vote(branch, p.leaves), p.by_chain()
    rows, clear = np.bincount(groups, p.rows, n).astype(np.int64), tree.clear(n)
    if len(by_chain) < 2:
        return Level(branch, groups, rows, np.nan, np.full(n, np.nan), np.nan, np.nan, np.nan, clear)
    votes = [vote(branch, leaves) for leaves in by_chain]
    same = np.all(np.stack(votes) == votes[0], axis=0)
    certain_of = np.bincount(groups[same], p.rows[same], n) / rows
    alone = [(cut_into(n, tree, leaves, p.rows), leaves) for tree, leaves in chain_trees]
    by_itself = matched = np.nan
    if all(z is not None for z, _ in alone):
        its = [vote(z, leaves) for z, leaves in alone]
        by_itself = _least([groups, *its], p.rows)
        matched = min(float(jaccard(_together(groups, z, p.rows)).min()) for z in its)
    certain = float(p.rows[same].sum() / p.rows.sum())
    return Level(branch, groups, rows, certain, certain_of, _least(votes, p.rows), by_itself, matched, clear)


def _least(partitions: Sequence[np.ndarray], rows: np.ndarray) -> float:
    """The least adjusted Rand index of pairs of partitions of patterns."""
    return min(similarity_of(_together(a, b, rows))[0] for i, a in enumerate(partitions) for b in partitions[:i])


def _together(a: np.ndarray, b: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows in each group of both partitions."""
    k_a, k_b = int(a.max()) + 1, int(b.max()) + 1
    return np.bincount(a * k_b + b, rows, k_a * k_b).reshape(k_a, k_b)
