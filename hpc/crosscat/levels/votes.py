"""Groups of rows by the votes of several draws: each draw votes for the tree branch of the row's cluster.

Rows that share their cluster in every draw have the same votes; they are one *pattern*, so the cost of a level grows
with the number of patterns, not of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.crosscat.levels.tree import Tree

ROOM = 4  # codes per row, up to which a table of all codes is made
EXTRA = 12  # most branches beyond the number of groups: some branches win no row's vote


@dataclass(frozen=True)
class Patterns:
    """leaves (P, D) int64: leaf of each pattern in each draw; rows (P,): number of rows of each pattern; of (N,):
    pattern of each row, numbered by first row; chain (D,): number of each draw's chain."""

    leaves: np.ndarray
    rows: np.ndarray
    of: np.ndarray
    chain: np.ndarray

    def by_chain(self) -> list[np.ndarray]:
        """Return the leaves in the draws of each chain, (P, D')."""
        return [self.leaves[:, self.chain == i] for i in np.unique(self.chain)]


def patterns(leaves: Sequence[np.ndarray], chain: Sequence[int]) -> Patterns:
    """Group rows into patterns. leaves: for each draw, the leaf of every row, (N,); chain: of each draw."""
    code = np.zeros(len(leaves[0]), np.int64)
    for z in leaves:
        low = int(z.min(initial=0))
        code *= int(z.max(initial=0)) - low + 1
        code += z
        code = _numbered(code - low)
    n, rows = int(code.max(initial=-1)) + 1, len(code)
    first = np.empty(n, np.int64)
    first[code[::-1]] = np.arange(rows - 1, -1, -1)  # repeated indices keep the last assignment: the first row
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    of, first = number[code], first[order]
    return Patterns(np.stack([z[first] for z in leaves], axis=1).astype(np.int64), np.bincount(of), of, np.array(chain))


def _numbered(code: np.ndarray) -> np.ndarray:
    """Number the codes, from 0 on, in their order. Without a sort where they are hardly more than the rows."""
    most = int(code.max(initial=-1)) + 1
    if most > ROOM * len(code) + ROOM:
        return np.unique(code, return_inverse=True)[1]
    used = np.zeros(most, bool)
    used[code] = True
    return (np.cumsum(used) - 1)[code]


def vote(branch: np.ndarray, leaves: np.ndarray) -> np.ndarray:
    """Return the branch that most draws vote for, for each pattern, int64 (P,). Earlier draws break ties, so the result
    does not depend on how branches are numbered. branch (K,): of each leaf; leaves (P, D)."""
    n, (n_patterns, n_draws) = int(branch.max(initial=0)) + 1, leaves.shape
    ballots = branch[leaves] + n * np.arange(n_patterns)[:, None]
    weights = np.broadcast_to(1.0 + 0.25 * 0.5 ** np.arange(n_draws), leaves.shape)  # the excess only breaks ties
    votes = np.bincount(ballots.ravel(), weights.ravel(), n * n_patterns)
    return votes.reshape(n_patterns, n).argmax(axis=1)


def cut_into(n: int, tree: Tree, leaves: np.ndarray, rows: np.ndarray) -> np.ndarray | None:
    """Cut the tree into n groups that each win the vote of some row; return the group of each leaf, (K,) 0..n-1,
    largest first, or None if there is no such cut. leaves (P, D), rows (P,): of the patterns.

    Clusters that occur in only one of many draws win no vote, so the tree may be cut into more branches; a branch that
    wins no vote joins the group that has most of its rows.
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
    """Renumber branches by the rows whose vote they win, most first."""
    won = np.bincount(vote(branch, leaves), rows, branch.max() + 1)
    number = np.empty(len(won), np.int64)
    number[np.argsort(-won, kind="stable")] = np.arange(len(won))
    return number[branch]


def _adopted(branch: np.ndarray, n: int, leaves: np.ndarray, rows: np.ndarray) -> np.ndarray | None:
    """Let branches n and above join the group that has most of their rows; return None if a group then wins no vote."""
    ballots, group = branch[leaves], vote(branch, leaves)
    shared = np.zeros((int(branch.max()) + 1, n))
    for ballot in ballots.T:
        np.add.at(shared, (ballot, group), rows)
    home = np.where(np.arange(len(shared)) < n, np.arange(len(shared)), shared.argmax(axis=1))
    branch = _by_size(home[branch], leaves, rows)
    return branch if len(np.unique(vote(branch, leaves))) == n else None
