"""Collapsed clusters of a cycle: owners, private clusters, and the shards with a tail (docs/math.md 2.1, 2.3).

Every cluster is owned by a shard for a cycle. One whose rows all live on its owner is private there, hence collapsed:
its weight and parameters are integrated out. All others are instantiated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.parallel.streams import Purpose, generator


def owners(opening: str, seed: int, cycle: int, chain: int, n_clusters: int, n_shards: int) -> np.ndarray:
    """Return the shard that owns each cluster during `cycle`, (K,) int64.

    With `opening` "one" a single shard, drawn uniformly, owns all clusters: it is the collapsed shard. With "all" the
    owner of each cluster is drawn independently, and every shard is collapsed for the clusters it owns.
    """
    if n_shards == 1:
        return np.zeros(n_clusters, np.int64)
    stream = generator(seed, Purpose.COLLAPSED, cycle, 0, chain)
    if opening == "one":
        return np.full(n_clusters, stream.integers(n_shards))
    return stream.integers(n_shards, size=n_clusters)


def collapsed_shards(opening: str, owner: np.ndarray, n_shards: int) -> Sequence[int]:
    """Shards with a tail: clusters of their own, which they may open."""
    return range(n_shards) if opening == "all" else [int(owner[0])]


def private_clusters(size: np.ndarray, owned: np.ndarray) -> np.ndarray:
    """Mask of the clusters whose rows all lie on their owner, (K,) bool. size, owned (K,): rows in all, and on the
    owner.

    An empty cluster is private and so disappears.
    """
    return owned == size
