"""Groups of rows by the votes of several draws: each draw votes for the branch of the tree that its cluster is in.

Rows that are in the same clusters in every draw vote alike; they are one *pattern*, so that a level costs the number of
patterns and not that of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.crosscat.levels.tree import Tree

EXTRA = 12  # branches beyond the number of groups: some branches win no row's vote


@dataclass(frozen=True)
class Patterns:
    """leaves (P, D) int64: the leaf of each pattern in each draw; rows (P,): how many rows have it; of (N,): the
    pattern of each row, numbered by their first rows; chain (D,): the number of each draw's chain."""

    leaves: np.ndarray
    rows: np.ndarray
    of: np.ndarray
    chain: np.ndarray

    def by_chain(self) -> list[np.ndarray]:
        """The leaves of each chain's own draws, (P, D')."""
        return [self.leaves[:, self.chain == i] for i in np.unique(self.chain)]


def patterns(leaves: Sequence[np.ndarray], chain: Sequence[int]) -> Patterns:
    """leaves: of each draw the leaf of every row, (N,); chain: of each draw."""
    code = np.zeros(len(leaves[0]), np.int64)
    for z in leaves:
        low = int(z.min(initial=0))
        code = code * (int(z.max(initial=0)) - low + 1) + z - low
        code = np.unique(code, return_inverse=True)[1]
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    of, first = number[inverse], first[order]
    return Patterns(np.stack([z[first] for z in leaves], axis=1).astype(np.int64), np.bincount(of), of, np.array(chain))


def vote(branch: np.ndarray, leaves: np.ndarray) -> np.ndarray:
    """The branch that most draws of each pattern vote for, int64 (P,); of several that of the first draw, however
    branches are numbered. branch (K,): of each leaf; leaves (P, D)."""
    n, (n_patterns, n_draws) = int(branch.max(initial=0)) + 1, leaves.shape
    ballots = branch[leaves] + n * np.arange(n_patterns)[:, None]
    weights = np.broadcast_to(1.0 + 0.25 * 0.5 ** np.arange(n_draws), leaves.shape)  # what is added decides ties alone
    votes = np.bincount(ballots.ravel(), weights.ravel(), n * n_patterns)
    return votes.reshape(n_patterns, n).argmax(axis=1)


def cut_into(n: int, tree: Tree, leaves: np.ndarray, rows: np.ndarray) -> np.ndarray | None:
    """The branch of each leaf, (K,) 0..n-1 from the largest, where the tree is cut into n groups that each win the vote
    of some row; None where it cannot be. leaves (P, D), rows (P,): patterns.

    Clusters that only one draw of many has win no vote, so the tree may be cut into some more branches; those that win
    none count as the group in which most of their rows are.
    """
    for n_branches in range(n, min(n + EXTRA, tree.n_leaves) + 1):
        branch = _by_size(tree.cut(n_branches), leaves, rows)
        winners = int(vote(branch, leaves).max()) + 1
        if winners > n:
            return None
        if winners == n:
            return branch if n_branches == n else _adopted(branch, n, leaves, rows)
    return None


def _by_size(branch: np.ndarray, leaves: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Branches numbered by the rows whose vote they win, those without one last."""
    won = np.bincount(vote(branch, leaves), rows, branch.max() + 1)
    number = np.empty(len(won), np.int64)
    number[np.argsort(-won, kind="stable")] = np.arange(len(won))
    return number[branch]


def _adopted(branch: np.ndarray, n: int, leaves: np.ndarray, rows: np.ndarray) -> np.ndarray | None:
    """Branches n.. join the group that most of their rows are in."""
    ballots, group = branch[leaves], vote(branch, leaves)
    shared = np.zeros((int(branch.max()) + 1, n))
    for ballot in ballots.T:
        np.add.at(shared, (ballot, group), rows)
    home = np.where(np.arange(len(shared)) < n, np.arange(len(shared)), shared.argmax(axis=1))
    branch = _by_size(home[branch], leaves, rows)
    return branch if len(np.unique(vote(branch, leaves))) == n else None
