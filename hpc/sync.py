"""The reduction at the end of a cycle: from each shard's labels to what root needs for the next.

A function of labels and cycle number alone, so that a resumed chain starts from the same numbers. Counts are integers
and summed by MPI in any order; floating moments are merged by root in shard order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc import shards as cut
from mpibayes.hpc.comm import Communicator
from mpibayes.hpc.models.statistics import VECTORS, Statistics, merge_moments, merge_vectors, zeros
from mpibayes.hpc.shards import Shard
from mpibayes.hpc.state import Summary
from mpibayes.kernels import mixture as kernels


def total_statistics(
    comm: Communicator, labelled: Sequence[tuple[object, np.ndarray]], k: int, shape, offsets, n_shards: int
) -> Statistics | None:
    """Statistics of clusters 0..k-1 over all shards, on root. Collective.

    labelled: (rows, labels) of each of this rank's shards, in order; negative labels are skipped.
    """
    total, moments = zeros(k, *shape), np.zeros((len(labelled), 3, shape[1], k))
    vectors = []
    for i, (rows, z) in enumerate(labelled):
        part = Statistics(*kernels.accumulate(rows, z, k, offsets))
        _add(total, moments[i], part)
        vectors.append(part)
    if comm.size > 1:
        _sum(comm, total)
    _merge(comm, total, moments, n_shards)
    _merge_vectors(comm, total, vectors, shape[3], n_shards)
    return total if comm.rank == 0 else None


def summarise(
    comm: Communicator, shards: Sequence[Shard], shape, offsets, owner: np.ndarray, n_shards: int, *, seed, cycle, chain
) -> Summary:
    """Collective. shape: that of Components. owner (K,): who owns each cluster in `cycle`, the coming one."""
    k, (_, n_real, _, widths) = len(owner), shape
    total, owned = zeros(k, *shape), np.zeros(k, np.int64)
    # one row a shard: anchor priorities, then the bits of the moments of real columns
    floating = np.empty((len(shards), 1 + 3 * n_real, k), np.uint64)
    vectors = []
    for i, shard in enumerate(shards):
        part = Statistics(*kernels.accumulate(shard.rows, shard.z, k, offsets))
        _add(total, floating[i, 1:].view(np.float64).reshape(3, n_real, k), part)
        vectors.append(part)
        mine = owner == shard.index
        owned[mine] += part.size[mine]
        floating[i, 0] = kernels.anchors(shard.z, shard.start, seed, cycle, chain, mine, k)
    if comm.size > 1:
        _sum(comm, total, owned)
        floating = comm.gather_to_root(floating, [len(cut.of_rank(n_shards, comm.size, r)) for r in range(comm.size)])
    _merge_vectors(comm, total, vectors, widths, n_shards)
    if comm.rank != 0:
        return Summary(total.size, owned, None, None)
    if n_real:
        _merge_gathered(total, floating[:, 1:].view(np.float64).reshape(n_shards, 3, n_real, k))
    return Summary(total.size, owned, total, floating[:, 0].min(axis=0))


def _add(total: Statistics, moments: np.ndarray, part: Statistics) -> None:
    """Count a shard's part in; its moments wait for the others, to be merged in shard order."""
    total.size += part.size
    total.levels += part.levels
    total.tally_n += part.tally_n
    total.tally_sum += part.tally_sum
    moments[0], moments[1], moments[2] = part.real_n, part.real_mean, part.real_scatter


def _merge(comm: Communicator, total: Statistics, moments: np.ndarray, n_shards: int) -> None:
    if not moments.shape[2]:
        return
    gathered = comm.gather_to_root(moments, [len(cut.of_rank(n_shards, comm.size, r)) for r in range(comm.size)])
    if comm.rank == 0:
        _merge_gathered(total, gathered)


def _merge_vectors(comm: Communicator, total: Statistics, parts: Sequence[Statistics], widths, n_shards: int) -> None:
    """Merge the blocks' moments of the shards, `parts` on each rank, into root's total, in shard order."""
    if not len(widths):
        return
    form = [getattr(total, name).shape for name in VECTORS]
    held = np.empty((len(parts), sum(n for n, _ in form), form[0][1]))
    for i, part in enumerate(parts):
        np.concatenate([getattr(part, name) for name in VECTORS], out=held[i])
    if comm.size > 1:
        held = comm.gather_to_root(held, [len(cut.of_rank(n_shards, comm.size, r)) for r in range(comm.size)])
    if comm.rank == 0:
        n, mean, scatter = np.split(held, np.cumsum([n for n, _ in form])[:-1], axis=1)
        n, total.vector_mean, total.vector_scatter = merge_vectors(n, mean, scatter, widths)
        total.vector_n = n.astype(np.int64)


def _merge_gathered(total: Statistics, moments: np.ndarray) -> None:
    n, total.real_mean, total.real_scatter = merge_moments(*moments.swapaxes(0, 1))
    total.real_n = n.astype(np.int64)


def _sum(comm: Communicator, total: Statistics, *more: np.ndarray) -> None:
    """Counts of cells and rows fit 32 bits (Mixture refuses more rows); sums of counts need 64, and root alone."""
    parts = (total.size, *more, total.tally_n, total.levels)
    block = np.concatenate([p.ravel().astype(np.int32) for p in parts])
    comm.sum_everywhere(block)
    start = 0
    for part in parts:
        part[...] = block[start : start + part.size].reshape(part.shape)
        start += part.size
    if len(total.tally_sum):
        sums = total.tally_sum.astype(np.int64)
        comm.sum_to_root(sums)
        total.tally_sum[...] = sums
