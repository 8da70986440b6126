"""The reductions at the end of a cycle: from each shard's labels to what all ranks need for the next.

A function of labels and cycle number alone, so that a resumed chain starts from the same numbers. Counts are integers:
they are kept up by the rows that changed, and summed by MPI in any order. Moments of real columns are worked out
afresh, each shard's in row order, and merged up a fixed binary tree over shards, whoever holds them: log2(S) messages
deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mpibayes.hpc.components.multinormal import Multinormal, merge_vectors, n_pairs
from mpibayes.hpc.components.normal import Normal, merge_moments
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.state import Summary
from mpibayes.hpc.parallel import shards as cut
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.kernels.mixture import mixture as kernels

SHORT = 2**15 - 1  # changes that sum to no more travel as 16-bit integers


class Counts(NamedTuple):
    """The integers among the statistics of K clusters; `tally_sum` holds whole numbers below 2^53."""

    size: np.ndarray  # (K,) int64
    levels: np.ndarray  # (L, K) int32
    tally_n: np.ndarray  # (Q, K) int64
    tally_sum: np.ndarray  # (Q, K) float64

    @classmethod
    def zeros(cls, n_clusters: int, shape) -> Counts:
        k, (n_level_rows, _, n_count, _) = n_clusters, shape
        cells = np.zeros(k, np.int64), np.zeros((n_level_rows, k), np.int32)
        return cls(*cells, np.zeros((n_count, k), np.int64), np.zeros((n_count, k)))


class Changes:
    """What the rows of this rank's shards do to the counts in a cycle: to those of the instantiated clusters, and of
    the clusters that the tails leave behind."""

    def __init__(self, n_kept: int, shape):
        self.kept = Counts.zeros(n_kept, shape)
        self.tails: dict[int, Counts] = {}  # by shard
        self.bound = 0  # no entry's absolute value is greater


def count(comm: Communicator, shards: Sequence[Shard], k: int, shape, offsets) -> Counts:
    """Counts of the clusters 0..k-1 over all shards, by a pass over all rows, on every rank. Collective."""
    total = Counts.zeros(k, shape)
    for shard in shards:
        _add(total, Statistics(*kernels.accumulate(without(shard.rows, "reals", "vectors"), shard.z, k, offsets)))
    _sum(comm, total, None)
    return total


def carry(
    comm: Communicator,
    counts: Counts,
    kept: np.ndarray,
    changes: Changes,
    first: Mapping[int, int],
    n_labels: int,
    bound: int,
) -> Counts:
    """The counts after a cycle, on every rank, from those before it. Collective.

    kept: the clusters that were instantiated, in order. first: by shard, the number of the first cluster that its tail
    leaves behind. bound: the ranks' `changes.bound`, summed.
    """
    n_kept = len(kept)
    change = Counts(*(np.zeros((*a.shape[:-1], n_labels), a.dtype) for a in counts))
    for whole, part in zip(change, changes.kept):
        whole[..., :n_kept] = part
    for shard, tail in changes.tails.items():
        for whole, part in zip(change, tail):
            whole[..., first[shard] : first[shard] + part.shape[-1]] = part
    _sum(comm, change, bound)
    for whole, old in zip(change, counts):
        whole[..., :n_kept] += old[..., kept]
    return change


def summarise(
    comm: Communicator, shards: Sequence[Shard], counts: Counts, shape, owner: np.ndarray, n_shards: int,
    key: Mapping[str, int],
) -> Summary:  # fmt: skip
    """Collective. owner (K,): who owns each cluster in the coming cycle, which `key` names; counts: of all rows."""
    k = len(owner)
    owned, anchor = np.zeros(k, np.int64), np.full(k, kernels.UNANCHORED, np.uint64)
    for shard in shards:
        mine = owner == shard.index
        if mine.any():
            owned[mine] += np.bincount(shard.z[shard.z >= 0], minlength=k)[mine]
        np.minimum(anchor, kernels.anchors(shard.z, shard.start, **key, owned=mine, n_clusters=k), out=anchor)
    comm.sum_everywhere(owned)
    comm.least_everywhere(anchor)
    moments = Moments(shape)
    merged = np.zeros((moments.length, k))
    if moments.length:
        found = moments.total(comm, [(s.rows, s.z) for s in shards], k, n_shards)
        merged = merged if found is None else found
        comm.broadcast(merged)
    return Summary(counts.size, owner, owned, moments.statistics(counts, merged), anchor)


def total_statistics(
    comm: Communicator, labelled: Iterable[tuple[object, np.ndarray]], k: int, shape, offsets, n_shards: int
) -> Statistics | None:
    """Statistics of clusters 0..k-1 over all shards, on root. Collective.

    labelled: (rows, labels) of each of this rank's shards, in order, gone through twice; negative labels are skipped.
    """
    total, moments = Counts.zeros(k, shape), Moments(shape)
    for rows, z in labelled:
        _add(total, Statistics(*kernels.accumulate(without(rows, "reals", "vectors"), z, k, offsets)))
    _sum(comm, total, None)
    merged = moments.total(comm, labelled, k, n_shards) if moments.length else np.zeros((0, k))
    return moments.statistics(total, merged) if comm.rank == 0 else None


def without(rows, *blocks: str):
    """The same rows with no columns in some blocks."""
    held = {b: np.empty((len(a), 0), a.dtype) if b in blocks else a for b, a in vars(rows).items()}
    if "vectors" in blocks:
        held["widths"] = np.zeros(0, np.int64)
    return type(rows)(**held)


def merge_up(
    comm: Communicator,
    mine: Mapping[int, np.ndarray],
    n_shards: int,
    merge: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray | None:
    """The shards' arrays merged on root; None elsewhere. Collective.

    mine: by shard, all of one form. Neighbours are merged in pairs, then pairs of pairs, always the same ones and the
    lower shards first; what is merged lies with the rank of its first shard. So each rank sends about log2(S) arrays at
    most, and the bits do not depend on the ranks.
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
    """The merges of the tree that one rank has part in, in order: (left node, right node, who holds each)."""
    holder = np.empty(n_shards, np.int64)
    for r in range(n_ranks):
        own = cut.of_rank(n_shards, n_ranks, r)
        holder[own.start : own.stop] = r
    found, step = [], 1
    while step < n_shards:
        left = np.arange(0, n_shards - step, 2 * step)
        mine = (holder[left] == rank) | (holder[left + step] == rank)
        found += [(int(i), int(i + step), int(holder[i]), int(holder[i + step])) for i in left[mine]]
        step *= 2
    return found


class Moments:
    """The floating part of the statistics, an array (length, K): n, mean and scatter of every real column, then of
    every block of columns. shape: that of Components."""

    def __init__(self, shape):
        _, n_real, _, self.widths = shape
        n_columns, n_products = int(self.widths.sum()), int(n_pairs(self.widths).sum())
        self._cuts = np.cumsum([n_real, n_real, n_real, len(self.widths), n_columns, n_products])
        self.length = int(self._cuts[-1])

    def total(self, comm: Communicator, labelled, k: int, n_shards: int) -> np.ndarray | None:
        """Of all shards, on root. labelled: (rows, labels) of each of this rank's shards, in order."""
        own, parts = cut.of_rank(n_shards, comm.size, comm.rank), {}
        for i, (rows, z) in zip(own, labelled):
            reals = without(rows, "codes8", "codes16", "tallies")
            part = Statistics(*kernels.accumulate(reals, z, k, np.zeros(1, np.int64)))
            parts[i] = np.concatenate([a.astype(np.float64) for kind in (Normal, Multinormal) for a in part.of(kind)])
        return merge_up(comm, parts, n_shards, self._merge)

    def _merge(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        both = np.split(np.stack([a, b]), self._cuts[:-1], axis=1)
        return np.concatenate([*merge_moments(*both[:3]), *merge_vectors(*both[3:], self.widths)])

    def statistics(self, counts: Counts, moments: np.ndarray) -> Statistics:
        real_n, *real, vector_n, mean, scatter = (np.ascontiguousarray(m) for m in np.split(moments, self._cuts[:-1]))
        numbers = real_n.astype(np.int64), *real
        vectors = vector_n.astype(np.int64), mean, scatter
        return Statistics(counts.size, counts.levels, *numbers, *counts[2:], *vectors)


def _add(total: Counts, part: Statistics) -> None:
    for name, array in zip(Counts._fields, total):
        array += getattr(part, name)


def _sum(comm: Communicator, counts: Counts, bound: int | None) -> None:
    """Sum over ranks, in place. Counts of cells and rows fit 32 bits (Mixture refuses more rows), sums of counts 64.

    bound: what no sum's absolute value exceeds, if known.
    """
    if comm.size == 1 or bound == 0:
        return
    parts = (counts.size, counts.levels, counts.tally_n)
    kind = np.int32 if bound is None or bound > SHORT else np.int16
    block = np.concatenate([p.ravel().astype(kind) for p in parts])
    comm.sum_everywhere(block)
    start = 0
    for part in parts:
        part[...] = block[start : start + part.size].reshape(part.shape)
        start += part.size
    if len(counts.tally_sum):
        sums = counts.tally_sum.astype(np.int64)
        comm.sum_everywhere(sums)
        counts.tally_sum[...] = sums
