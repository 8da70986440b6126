"""The kernel of shares.pyx in plain Python: slow, and its specification."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.kernels.common.functions import gammaln


class Words:
    """Draws of a step from its uniform words."""

    def __init__(self, words: Sequence[float]):
        self.words = words

    def whole(self, at: int, n: int) -> int:
        """Draw a whole number below n."""
        return min(int(self.words[at] * n), n - 1)

    def log_uniform(self, at: int) -> float:
        return float(np.log(self.words[at]))


def shares(counts, level, pseudo, total, discount, first_row, words) -> int:
    """See shares.shares."""
    return sum(share(counts, level, pseudo, total, discount, first_row, Words(of)) for of in words)


def share(counts, level, pseudo, total, discount, first_row, draws) -> bool:
    """Make one step; return True if rows moved."""
    n_clusters, row = counts.shape[1], draws.whole(0, int(first_row[-1]))
    p = int(np.searchsorted(first_row, row, side="right"))
    rows, below = int(counts[p].sum()), np.cumsum(counts[p])
    one = int(np.searchsorted(below, row - (first_row[p] - rows), side="right"))
    others = counts[p].copy()
    others[one] = 0
    if draws.whole(1, 2) == 0 and others.any():
        two = int(np.searchsorted(np.cumsum(others), draws.whole(2, int(others.sum())), side="right"))
    else:
        two = draws.whole(2, n_clusters - 1)
        two += two >= one
    pair = np.array([one, two])
    now = counts[p, pair]
    reach = 1 << draws.whole(3, int(now.sum()).bit_length())
    moved = draws.whole(4, 2 * reach + 1) - reach
    change = np.array([moved, -moved])
    new, sizes = now + change, counts[:, pair].sum(axis=0)
    if moved == 0 or new.min() < 0 or (sizes + change).min() <= 0:
        return False
    columns = np.flatnonzero(pseudo[level[p]] > 0)
    levels = (level[:, columns] == level[p, columns]).T @ counts[:, pair]
    seen = (pseudo[level[:, columns]] > 0).T @ counts[:, pair]
    ratio = log_choice(new, rows, n_clusters) - log_choice(now, rows, n_clusters) + log_ways(new) - log_ways(now)
    of = pseudo[level[p, columns]][:, None], total[columns][:, None]
    for sign, moves in ((1.0, change), (-1.0, 0)):
        f = gammaln(of[0] + levels + moves) - gammaln(of[1] + seen + moves)
        ratio += sign * (f.sum() + gammaln(sizes + moves - discount).sum())
    if not draws.log_uniform(5) < ratio:
        return False
    counts[p, pair] = new
    return True


def log_ways(rows) -> float:
    """Return the log number of ways to deal a pattern's rows to two clusters, up to a term in their sum."""
    return -float(gammaln(rows + 1.0).sum())


def log_choice(pair, rows: int, n_clusters: int) -> float:
    """Return the log probability, up to a constant, that two clusters with these rows of a pattern are chosen."""
    others, alone = rows - pair, 1.0 / (n_clusters - 1)
    alike = np.where(others > 0, 0.5 * alone + 0.5 * pair[::-1] / np.maximum(others, 1), alone)
    return float(np.log((pair * alike).sum()))
