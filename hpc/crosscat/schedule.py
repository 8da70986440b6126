"""What a cycle does, as a pure function of its number: the same on every rank, with nothing to save."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.parallel.streams import Purpose, generator


def owners(opening: str, seed: int, cycle: int, chain: int, n_clusters: int, n_shards: int) -> np.ndarray:
    """The shard that owns each cluster during `cycle`, (K,) int64.

    A cluster whose rows all live on its owner is private there, hence collapsed. With `opening` "one" a single shard,
    drawn uniformly, owns all clusters: it is the collapsed shard (docs/math.md 2.1). With "all" every cluster draws its
    owner and every shard is collapsed for what it owns (docs/math.md 2.3).
    """
    stream = generator(seed, Purpose.COLLAPSED, cycle, 0, chain)
    if opening == "one":
        return np.full(n_clusters, stream.integers(n_shards))
    return stream.integers(n_shards, size=n_clusters)


OFTEN, EVERY = 100, 4  # moves matter most while the partition takes shape; later a round costs less than it is worth


def moves_due(every: int | None, cycle: int) -> bool:
    """Whether a round of split and merge moves ends a cycle. None: in every cycle at first, then in every fourth."""
    if every is None:
        every = 1 if cycle <= OFTEN else EVERY
    return every > 0 and cycle % every == 0
