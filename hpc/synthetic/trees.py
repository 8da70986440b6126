"""A small classifier for two classes: gradient boosting of shallow trees on binned columns (Friedman 2001), with the
Newton steps and the penalty of Chen & Guestrin (2016)."""

from __future__ import annotations

import numpy as np

ROUNDS, DEPTH, RATE = 40, 4, 0.2
LEAST_WEIGHT = 2.5  # of a leaf: p (1 - p) summed over its rows, 10 of them at even odds
PENALTY = 1.0


class Boosted:
    """Trained on x (n, C), bins below `sizes` (C,), and y (n,) bool."""

    def __init__(self, x: np.ndarray, y: np.ndarray, sizes: np.ndarray, rounds: int = ROUNDS):
        share = np.clip(y.mean(), 1e-3, 1.0 - 1e-3)
        self._start, self._trees = float(np.log(share / (1.0 - share))), []
        score = np.full(len(y), self._start)
        for _ in range(rounds):
            p = _logistic(score)
            tree = _Tree(x, p - y, p * (1.0 - p), sizes)
            self._trees.append(tree)
            score += RATE * tree(x)

    def score(self, x: np.ndarray) -> np.ndarray:
        """Log odds of the class of each row, (n,)."""
        return self._start + RATE * sum(tree(x) for tree in self._trees)

    def probability(self, x: np.ndarray) -> np.ndarray:
        return _logistic(self.score(x))


def _logistic(score: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-score))


class _Tree:
    """A regression tree grown level by level. Node i has the children 2 i + 1, where the bin is at most `cut`, and 2 i
    + 2; a node without a split sends all rows to the first child."""

    def __init__(self, x: np.ndarray, g: np.ndarray, h: np.ndarray, sizes: np.ndarray):
        n_inner, offset = 2**DEPTH - 1, np.append(0, np.cumsum(sizes))
        self._column, self._cut = np.zeros(n_inner, np.intp), np.full(n_inner, np.iinfo(np.int32).max)
        of, width, cells = np.repeat(np.arange(len(sizes)), sizes), int(offset[-1]), x + offset[:-1]
        node, weights = np.zeros(len(x), np.intp), [np.repeat(w, len(sizes)) for w in (g, h)]
        for depth in range(DEPTH):
            first, n_nodes = 2**depth - 1, 2**depth
            keys = ((node - first) * width)[:, None] + cells
            sums = [np.bincount(keys.ravel(), w, n_nodes * width).reshape(n_nodes, width) for w in weights]
            gain = _gains(*sums, offset, of)
            best = gain.argmax(axis=1)
            at = np.flatnonzero(gain[np.arange(n_nodes), best] > 1e-9)
            self._column[first + at], self._cut[first + at] = of[best[at]], (best - offset[of[best]])[at]
            node = self._next(x, node)
        leaf, n_leaves = node - n_inner, 2**DEPTH
        g_leaf, h_leaf = np.bincount(leaf, g, n_leaves), np.bincount(leaf, h, n_leaves)
        self._value = -g_leaf / (h_leaf + PENALTY)

    def _next(self, x: np.ndarray, node: np.ndarray) -> np.ndarray:
        right = x[np.arange(len(x)), self._column[node]] > self._cut[node]
        return 2 * node + 1 + right

    def __call__(self, x: np.ndarray) -> np.ndarray:
        node = np.zeros(len(x), np.intp)
        for _ in range(DEPTH):
            node = self._next(x, node)
        return self._value[node - len(self._column)]


def _gains(g: np.ndarray, h: np.ndarray, offset: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Gain of a split after each bin of each column, (nodes, bins of all columns), from sums by bin; -inf if a side has
    too little weight. offset (C + 1,): first bin of each column; of: the column of each bin."""
    left, whole = [], []
    for a in (g, h):
        below = np.pad(a.cumsum(axis=1), ((0, 0), (1, 0)))
        left.append(below[:, 1:] - below[:, offset[of]])
        whole.append(below[:, offset[1], None])
    right = [total - part for part, total in zip(left, whole)]
    gain = sum(g_side**2 / (h_side + PENALTY) for g_side, h_side in (left, right))
    gain -= whole[0] ** 2 / (whole[1] + PENALTY)
    return np.where(np.minimum(left[1], right[1]) >= LEAST_WEIGHT, gain, -np.inf)


def area(score: np.ndarray, y: np.ndarray) -> float:
    """Area under the ROC curve: the probability that a row of the class scores higher than one that is not, ties
    counting half; NaN without rows of either."""
    n, m = int(y.sum()), int((~y).sum())
    if not n or not m:
        return float("nan")
    _, of, times = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(times) - 0.5 * (times - 1))[of]
    return float((rank[y].sum() - 0.5 * n * (n + 1)) / (n * m))
