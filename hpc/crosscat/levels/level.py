"""One level of a tree over clusters: its groups of rows, and how far they can be trusted.

Three checks, all of which need several chains. *Certain* rows are in the same group in every chain, where each chain
votes with its own draws over the common tree. A level is *natural* if the tree over each chain's clusters alone, cut
into as many groups, has the same boundaries, and *lasts*: so have trees over the chains' earlier draws, and over their
later ones. A chain whose log joint climbs may have found its coarse groups long ago, so the groups themselves decide.
A level with certain rows that is not natural is an arbitrary summary: another run would draw the boundaries elsewhere.
Mapping one chain's clusters onto another's coarse groups is too optimistic (random merges have 80 % of the rows "in the
same group"), so a level is *usable* only if the chains agree by the adjusted Rand index, which is 0 for chance, and no
group has nearly all rows.

No check affects the sampler: a tree summarises kept draws, and no draw depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.crosscat.levels.tree import Tree
from mpibayes.hpc.crosscat.levels.votes import Patterns, cut_into, vote
from mpibayes.hpc.crosscat.summaries.partitions import jaccard
from mpibayes.hpc.posterior.similarity import similarity_of
from mpibayes.text import counted, percent

ALIKE = 0.9  # least adjusted Rand index of groupings that differ only in details
IN_PART = 0.5  # least index of groupings that have something in common
MATCHED = 0.5  # least overlap of a natural group with its match in each chain's tree; the index misses small groups
LARGEST = 0.7  # largest share of the rows in one group of a usable level
LEAST = 5  # least mean number of rows in all groups but the largest: fewer are single rows, not kinds
Part = tuple[Tree, np.ndarray]  # a tree over the clusters of some draws; leaf of each pattern in these draws, (P, D')


@dataclass(frozen=True, eq=False)  # == of arrays is not a single bool
class Level:
    """n groups of rows, numbered from the largest.

    branch (K,): group of each leaf of the tree, 0..n-1; groups (P,): group of each pattern; rows (n,): of each group.
    certain: share of the rows whose group is the same in all chains; certain_of (n,): this share within each group.
    agree: least adjusted Rand index between chains, voting over the common tree; by_itself: least index among the
    groups shown and those of each chain's own tree, NaN if one of these trees has no such level; matched: least overlap
    (rows in both / rows in either) of a group shown with the nearest group of a chain's own tree. NaN for one chain.
    clear: see `Tree.clear`. lasting, lasting_matched: as by_itself and matched, by trees over earlier and later draws.
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
    lasting: float = np.nan
    lasting_matched: float = np.nan

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def judged(self) -> bool:
        return bool(np.isfinite(self.agree))

    @property
    def shared(self) -> bool:
        """True if each chain by itself finds these groups."""
        return bool(min(self.agree, self.by_itself) >= ALIKE and self.matched >= MATCHED and self.coarse)

    @property
    def natural(self) -> bool:
        return bool(self.shared and self.lasting >= ALIKE and self.lasting_matched >= MATCHED)

    @property
    def changing(self) -> bool:
        """True if each chain by itself finds these groups, but earlier draws find others than later ones."""
        return self.shared and not self.natural

    @property
    def usable(self) -> bool:
        return bool(self.agree >= ALIKE and self.largest <= LARGEST and self.coarse)

    @property
    def coarse(self) -> bool:
        """True if the groups beside the largest have at least LEAST rows on average."""
        return bool(self.rows[1:].sum() >= LEAST * (self.n - 1))

    @property
    def largest(self) -> float:
        """The largest group's share of the rows."""
        return float(self.rows[0] / self.rows.sum())

    @property
    def doubt(self) -> str:
        """How far a level that is not usable can be trusted, for a heading."""
        if self.agree >= ALIKE:
            return "not usable"
        return f"on which the chains {'agree only in part' if self.agree >= IN_PART else 'disagree'}"

    def __str__(self) -> str:
        if not self.judged:
            return f"{counted(self.n, 'group')}. One chain: not judged."
        same = f"the chains agree on the group of {percent(self.certain)} of the rows"
        if self.natural:
            return f"{counted(self.n, 'natural group')}: {same}."
        if self.changing:
            return f"{counted(self.n, 'group')}, which may still change with more cycles: {same}."
        if self.usable:
            chosen = f"{counted(self.n, 'group')}: a summary, not a finding: another run would divide rows differently"
            return f"{chosen}, though {same.replace('the chains', 'these chains')}."
        return f"{counted(self.n, 'group')}: not usable: {self.fault}."

    @property
    def fault(self) -> str:
        """Why a level that was judged cannot be used."""
        if self.agree < ALIKE:
            how = "agree on them only in part" if self.agree >= IN_PART else "do not agree on them"
            index = f"{self.agree:.{3 if self.agree >= 0.895 else 2}f}"  # not the bar itself, by rounding
            return f"the chains {how} (adjusted Rand index {index})"
        if not self.coarse:
            return f"fewer than {LEAST} rows a group beside the largest, on average"
        return f"one group has {percent(self.largest)} of the rows"


def first_level(levels: Sequence[Level]) -> Level | None:
    """Return the level to look at first: the clearest natural one, else the clearest that may change, else the smallest
    usable one, else the smallest."""
    for some in ([level for level in levels if level.natural], [level for level in levels if level.changing]):
        if some:
            return max(some, key=lambda level: level.clear)  # the fewest groups on a tie
    return next((level for level in levels if level.usable), levels[0] if levels else None)


def judged(p: Patterns, tree: Tree, chain_trees: Sequence[Part], half_trees: Sequence[Part], n: int) -> Level | None:
    """Return the level of n groups, or None if the tree has none. chain_trees, half_trees: over the clusters of each
    chain alone, and of earlier and later draws."""
    branch = cut_into(n, tree, p.leaves, p.rows)
    if branch is None:
        return None
    groups, by_chain = vote(branch, p.leaves), p.by_chain()
    rows, clear = np.bincount(groups, p.rows, n).astype(np.int64), tree.clear(n)
    if len(by_chain) < 2:
        return Level(branch, groups, rows, np.nan, np.full(n, np.nan), np.nan, np.nan, np.nan, clear)
    votes = [vote(branch, leaves) for leaves in by_chain]
    same = np.all(np.stack(votes) == votes[0], axis=0)
    certain, certain_of = float(p.rows[same].sum() / p.rows.sum()), np.bincount(groups[same], p.rows[same], n) / rows
    both_ways = [(half, leaves[:, way]) for half, leaves in half_trees for way in (slice(None), slice(None, None, -1))]
    alone, halves = (_found_by(of, groups, p.rows, n) for of in (chain_trees, both_ways))  # no chain breaks all ties
    return Level(
        branch, groups, rows, certain, certain_of, _least(votes, p.rows), *alone, clear, *halves
    )  # fmt: skip


def _found_by(parts: Sequence[Part], groups: np.ndarray, rows: np.ndarray, n: int) -> tuple[float, float]:
    """Return the least adjusted Rand index among these n groups and those of each tree, and the least overlap of one of
    them with the nearest group of a tree; NaN if a tree has no such level, or if there are no trees."""
    cuts = [(cut_into(n, tree, leaves, rows), leaves) for tree, leaves in parts]
    if not cuts or any(branch is None for branch, _ in cuts):
        return np.nan, np.nan
    its = [vote(branch, leaves) for branch, leaves in cuts]
    return _least([groups, *its], rows), min(float(jaccard(_together(groups, z, rows)).min()) for z in its)


def _least(partitions: Sequence[np.ndarray], rows: np.ndarray) -> float:
    """Return the least adjusted Rand index over pairs of partitions of patterns."""
    return min(similarity_of(_together(a, b, rows))[0] for i, a in enumerate(partitions) for b in partitions[:i])


def _together(a: np.ndarray, b: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the contingency table of two partitions, in rows, (K_a, K_b)."""
    k_a, k_b = int(a.max()) + 1, int(b.max()) + 1
    return np.bincount(a * k_b + b, rows, k_a * k_b).reshape(k_a, k_b)
