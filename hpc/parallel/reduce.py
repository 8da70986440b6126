"""Sums over all rows: within a shard as its kernel adds, over shards on root in shard order.

So a sum has the same bits on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import Communicator

STRIP = 1 << 23  # numbers that root receives at a time: 64 MiB, however wide the matrices and many the shards


def shard_sum(comm: Communicator, parts: Sequence[np.ndarray], shape: tuple[int, ...], n_shards: int) -> np.ndarray:
    """The sum over all shards on root, zeros elsewhere. Collective.

    parts: the float64 arrays of this rank's shards, in order.
    """
    lengths = [len(shards.of_rank(n_shards, comm.size, rank)) for rank in range(comm.size)]
    n = int(np.prod(shape, dtype=np.int64))
    mine = np.array(parts, np.float64).reshape(len(parts), n)
    total = np.zeros(n)
    step = max(1, STRIP // n_shards)
    for start in range(0, n, step):
        gathered = comm.gather_to_root(mine[:, start : start + step], lengths)
        if comm.rank == 0:
            strip = total[start : start + step]
            strip[...] = gathered[0]
            for part in gathered[1:]:
                strip += part
    return total.reshape(shape)


def shard_sum_everywhere(
    comm: Communicator, parts: Sequence[np.ndarray], shape: tuple[int, ...], n_shards: int
) -> np.ndarray:
    """The same on every rank. Collective."""
    total = shard_sum(comm, parts, shape, n_shards)
    comm.broadcast(total)
    return total
