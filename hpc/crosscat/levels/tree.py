"""A tree over clusters: the most similar pair is merged until one cluster is left; the last merges are searched.

To merge clusters a and b, with n_a and n_b observed cells of a column distributed as p_a and p_b, costs

    n_a KL(p_a || p_ab) + n_b KL(p_b || p_ab),    p_ab = (n_a p_a + n_b p_b) / (n_a + n_b),

summed over the columns: the log likelihood lost when a common distribution replaces two (the agglomerative information
bottleneck of Slonim & Tishby 1999). With f(n) = n log n and the counts c of the values it is

    h(ab) - h(a) - h(b),    h(c) = sum over columns of f(n) - sum over values of f(c).

Missing cells are not counted: a column that either cluster lacks throughout costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.crosscat.levels.last_merges import LAST, LostBy, last_merges

BLOCK = 1 << 16  # counts summed at a time, so that they stay in cache
JOINED = 1000  # clusters that join a leaf at a time


@dataclass(frozen=True)
class Tree:
    """merges (K - 1, 2) int64: the two nodes of each merge; leaves are 0..K-1, and the i-th merge makes node K + i.
    costs (K - 1,): cost of each merge, in nats."""

    n_leaves: int
    merges: np.ndarray
    costs: np.ndarray

    def cut(self, n: int) -> np.ndarray:
        """Cut the tree into n branches, 1 <= n <= K; return the branch of each leaf, int64 (K,), 0..n-1, numbered by
        first leaf."""
        branch = np.arange(self.n_leaves + len(self.merges))
        undone = self.n_leaves - n  # merges before the cut
        for i in range(undone - 1, -1, -1):
            branch[self.merges[i]] = branch[self.n_leaves + i]
        return np.unique(_by_first(branch[: self.n_leaves]), return_inverse=True)[1].astype(np.int64)

    def clear(self, n: int) -> float:
        """Return the gain in nats of dividing n - 1 branches into n, divided by the gain (at least 1) of the next
        division. 2 <= n <= K."""
        at = self.n_leaves - n
        return float(self.costs[at] / max(self.costs[at - 1] if at else 0.0, 1.0))


def _by_first(labels: np.ndarray) -> np.ndarray:
    """Replace each label by the place where it first occurs."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return first[inverse]


def grow(counts: np.ndarray, offsets: np.ndarray) -> Tree:
    """Grow the tree over K clusters.

    counts (V, K), non-negative: cells of each value of each column in each cluster; offsets (C + 1,): first value of
    each column. Ties go to the first pair; for the last merges see `last_merges.py`. O(K^2 V) logarithms and O(K^2)
    memory.
    """
    k, (cells, sign) = counts.shape[1], _signed(counts, offsets)
    entropy = _n_log_n(cells) @ sign
    cost = np.full((k, k), np.inf)
    for a in range(k - 1):
        cost[a, a + 1 :] = _costs(a, np.arange(a + 1, k), cells, sign, entropy)
    node, alive = np.arange(k), np.ones(k, bool)
    merges, costs = np.zeros((max(k - 1, 0), 2), np.int64), np.zeros(max(k - 1, 0))
    least = cost.min(axis=1) if k else np.zeros(0)  # least cost in each row
    greedy = max(k - LAST, 0)
    for i in range(greedy):
        a = int(np.argmin(least))
        b = int(np.argmin(cost[a]))
        merges[i], costs[i] = (node[a], node[b]), max(cost[a, b], 0.0)
        cells[a] += cells[b]
        entropy[a] = _n_log_n(cells[a]) @ sign
        node[a], alive[b] = k + i, False
        nearest_gone = _rows_at_least(cost, least, a, b)
        cost[b, :] = cost[:, b] = np.inf
        least[b] = np.inf
        others = np.flatnonzero(alive & (np.arange(k) != a))
        nats = _costs(a, others, cells, sign, entropy)
        low = others < a
        cost[others[low], a], cost[a, others[~low]] = nats[low], nats[~low]
        again = np.union1d(nearest_gone[alive[nearest_gone]], [a])
        least[again] = cost[again].min(axis=1)
        least[others[low]] = np.minimum(least[others[low]], nats[low])
    left = np.flatnonzero(alive)
    lost = LostBy(cells[left], lambda total: _n_log_n(total) @ sign)
    known = {1 << i: int(node[c]) for i, c in enumerate(left)}
    for i, (a, b) in enumerate(last_merges(lost, len(left)), greedy):
        merges[i], costs[i] = (known[a], known[b]), lost(a, b)
        known[a | b] = k + i
    return Tree(k, merges, costs)


def joined(counts: np.ndarray, offsets: np.ndarray, most: int) -> np.ndarray:
    """Return the leaf of each cluster in a tree of at most `most` leaves, (K,) 0..: the largest clusters are leaves, in
    their order, and each smaller one joins the leaf that is cheapest to merge with. Values that a small cluster lacks
    cost nothing."""
    from scipy.sparse import csr_array  # slow to import

    k = counts.shape[1]
    if k <= most:
        return np.arange(k)
    cells, sign = _signed(counts, offsets)
    kept = np.sort(np.argsort(-counts.sum(axis=0), kind="stable")[:most])
    large = np.ascontiguousarray(cells[kept].T)
    alone = _n_log_n(large)
    leaf = np.full(k, -1)
    leaf[kept] = np.arange(most)
    small = np.flatnonzero(leaf < 0)
    small = small[np.argsort(counts[:, small].sum(axis=0), kind="stable")]  # the fewer different counts in a block
    for start in range(0, len(small), JOINED):
        block = small[start : start + JOINED]
        nats = np.zeros((len(block), most))
        of = cells[block]
        for n in np.unique(of[of > 0]):  # equal counts of a block share their logarithms
            has = csr_array(of == n, dtype=np.float64)
            values = np.unique(has.indices)
            nats += has[:, values] @ (sign[values, None] * (_n_log_n(large[values] + n) - alone[values]))
        leaf[block] = nats.argmin(axis=1)
    return leaf


def _signed(counts: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each cluster's counts of values and of observed cells by column, (K, M), and their signs in h, -1 or 1,
    (M,). Entries that are 0 in all clusters are left out."""
    observed = np.add.reduceat(counts, offsets[:-1], axis=0) if len(offsets) > 1 else counts[:0]
    cells = np.vstack([counts, observed]).astype(np.float64)
    sign = np.where(np.arange(len(cells)) < len(counts), -1.0, 1.0)
    seen = cells.any(axis=1)
    return np.ascontiguousarray(cells[seen].T), sign[seen]


def _rows_at_least(cost: np.ndarray, least: np.ndarray, a: int, b: int) -> np.ndarray:
    """Return the rows whose least cost is that of merging with a or b."""
    return np.flatnonzero(np.minimum(cost[:, a], cost[:, b]) <= least)


def _costs(a: int, others: np.ndarray, cells: np.ndarray, sign: np.ndarray, entropy: np.ndarray) -> np.ndarray:
    """Return the costs of merging cluster a with each of the others, computed in blocks to save memory."""
    nats = np.empty(len(others))
    step = max(1, BLOCK // max(cells.shape[1], 1))
    for start in range(0, len(others), step):
        b = others[start : start + step]
        nats[start : start + step] = _n_log_n(cells[a] + cells[b]) @ sign - entropy[a] - entropy[b]
    return np.where(nats > 1e-9, nats, 0.0)  # costs of equal clusters are rounding errors


def _n_log_n(n: np.ndarray) -> np.ndarray:
    return n * np.log(np.maximum(n, 1e-300))
