"""A random grouping of clusters into singles, which a move may split, and pairs, which it may merge.

Given K clusters, a grouping with t pairs has probability weight(K)^t / Z(K), Z(K) the sum over all groupings. It is
an auxiliary variable: moves keep every group's set of rows, turn a single into a pair or back, and are accepted by the
joint law of partition and grouping. So moves of all groups can be proposed at once, whether or not others are accepted.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

PAIRED = 0.25  # weight(K) = PAIRED / K: about this share of the clusters is in pairs


def _ratios(n_clusters: int) -> np.ndarray:
    """Return Z(k) / Z(k - 1) for k = 1..K at weight(K): Z(k) = Z(k - 1) + weight (k - 1) Z(k - 2)."""
    ratio = np.ones(n_clusters + 1)
    weight = PAIRED / n_clusters
    for k in range(2, n_clusters + 1):
        ratio[k] = 1.0 + weight * (k - 1) / ratio[k - 1]
    return ratio


@lru_cache(maxsize=1024)
def _log_z(n_clusters: int) -> float:
    return float(np.log(_ratios(n_clusters)[1:]).sum())


def log_probability(n_clusters: int, n_pairs: int) -> float:
    """Return the log probability of one grouping of `n_clusters` clusters with `n_pairs` pairs."""
    return n_pairs * math.log(PAIRED / n_clusters) - _log_z(n_clusters)


def draw(n_clusters: int, stream: np.random.Generator) -> np.ndarray:
    """Draw a grouping: (G, 2) int64, each row a pair of clusters, or a single cluster twice."""
    ratio = _ratios(n_clusters)
    left, groups = list(range(n_clusters)), []
    while left:
        n, first = len(left), left.pop()
        if n > 1 and stream.random() >= 1.0 / ratio[n]:
            i = int(stream.integers(n - 1))
            left[i], left[-1] = left[-1], left[i]
            groups.append((left.pop(), first))
        else:
            groups.append((first, first))
    return np.array(groups, np.int64).reshape(-1, 2)
