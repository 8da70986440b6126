"""Sums over all shards with the same bits on any number of ranks: in shard order, up a fixed tree, or exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import Communicator

STRIP = 1 << 23  # numbers that root receives at a time: 64 MiB, however many shards and however wide the matrices


def shard_sum(comm: Communicator, parts: Sequence[np.ndarray], shape: tuple[int, ...], n_shards: int) -> np.ndarray:
    """Return the sum over all shards on root, zeros elsewhere. Collective.

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
    """Return the sum over all shards on every rank. Collective."""
    total = shard_sum(comm, parts, shape, n_shards)
    comm.broadcast(total)
    return total


def merge_up(
    comm: Communicator,
    mine: Mapping[int, np.ndarray],
    n_shards: int,
    merge: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray | None:
    """Merge the shards' arrays on root; return None elsewhere. Collective.

    mine: this rank's arrays by shard, all of one shape. Neighbours are merged in pairs, then pairs of pairs, always in
    the same order with lower shards first; a merged array stays on the rank of its first shard. So each rank sends at
    most about log2(S) arrays, and the bits do not depend on the ranks.
    """
    nodes, sent = dict(mine), []
    for left, right, to, source in _merges(n_shards, comm.size, comm.rank):
        if comm.rank == source and to != source:
            sent.append(comm.send(nodes.pop(right), to))
        if comm.rank == to:
            other = nodes.pop(right) if to == source else comm.receive(np.empty_like(nodes[left]), source)
            nodes[left] = merge(nodes[left], other)
    for done in sent:
        done()
    return nodes[0] if comm.rank == 0 else None


@lru_cache(maxsize=4)
def _merges(n_shards: int, n_ranks: int, rank: int) -> list[tuple[int, int, int, int]]:
    """Merges of the tree that involve one rank, in order: (left node, right node, rank of the left, rank of the
    right)."""
    holder = np.empty(n_shards, np.int64)
    for r in range(n_ranks):
        held = shards.of_rank(n_shards, n_ranks, r)
        holder[held.start : held.stop] = r
    merges, step = [], 1
    while step < n_shards:
        left = np.arange(0, n_shards - step, 2 * step)
        mine = (holder[left] == rank) | (holder[left + step] == rank)
        merges += [(int(i), int(i + step), int(holder[i]), int(holder[i + step])) for i in left[mine]]
        step *= 2
    return merges


def exact_sum(comm: Communicator, parts: np.ndarray) -> np.ndarray | None:
    """Sum over all shards of this rank's `parts` (local shards, ...) float64, on root; NaN where any part is not
    finite.

    Sums are of integer multiples of 2^-60, so that order does not matter: parts are below 2^42, shards fewer than 2^23.
    Collective.
    """
    finite = np.isfinite(parts)
    scaled = np.where(finite, parts, 0.0) * 2.0**20
    high = np.floor(scaled)
    block = np.stack([(part.astype(np.int64)).sum(axis=0) for part in (high, (scaled - high) * 2.0**40, ~finite)])
    comm.sum_everywhere(block)
    if comm.rank != 0:
        return None
    return np.where(block[2] == 0, (block[0] + block[1] * 2.0**-40) * 2.0**-20, np.nan)
