"""Collapsed clusters of a cycle: owners, private clusters, and the shards with a tail (docs/math.md 2.1, 2.3).

Every cluster is owned by a shard for a cycle. One whose rows all live on its owner is private there, hence collapsed:
its weight and parameters are integrated out. All others are instantiated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.parallel.streams import Purpose, generator


def owners(opening: str, seed: int, cycle: int, chain: int, n_clusters: int, n_shards: int) -> np.ndarray:
    """The shard that owns each cluster during `cycle`, (K,) int64.

    With `opening` "one" a single shard, drawn uniformly, owns all clusters: it is the collapsed shard. With "all" every
    cluster draws its owner and every shard is collapsed for what it owns.
    """
    if n_shards == 1:
        return np.zeros(n_clusters, np.int64)
    stream = generator(seed, Purpose.COLLAPSED, cycle, 0, chain)
    if opening == "one":
        return np.full(n_clusters, stream.integers(n_shards))
    return stream.integers(n_shards, size=n_clusters)


def collapsed_shards(opening: str, owner: np.ndarray, n_shards: int) -> Sequence[int]:
    """The shards that have a tail: clusters of their own, which they may open."""
    return range(n_shards) if opening == "all" else [int(owner[0])]


def private_clusters(size: np.ndarray, owned: np.ndarray) -> np.ndarray:
    """Clusters with every row on their owner, (K,) bool; size, owned (K,): all rows, and those there.

    An empty cluster is private and so disappears.
    """
    return owned == size
