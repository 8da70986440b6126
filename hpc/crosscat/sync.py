"""The reductions at the end of a cycle: from each shard's labels to what all ranks need for the next.

A function of labels and cycle number alone, so that a resumed chain starts from the same numbers. The views of a chain
share every message: their arrays travel end to end. Counts are integers:
they are updated for the rows that changed, and summed by MPI in any order. Moments of real columns are worked out
afresh, each shard's in row order, and merged up a fixed binary tree over shards, whoever holds them: log2(S) messages
deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mpibayes.hpc.components.multinormal import Multinormal, merge_vectors, n_pairs
from mpibayes.hpc.components.normal import Normal, merge_moments
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.state import Partition
from mpibayes.hpc.parallel import shards as cut
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import merge_up
from mpibayes.kernels import mixture as kernels

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.view import View

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
    """What the rows of this rank's shards do to a view's counts in a cycle: to those of the instantiated clusters, and
    of the clusters that the tails leave behind."""

    def __init__(self, n_kept: int, shape):
        self.kept = Counts.zeros(n_kept, shape)
        self.tails: dict[int, Counts] = {}  # by shard
        self.bound = 0  # no entry's absolute value is greater

    def after(self, first: Mapping[int, int], n_labels: int) -> Counts:
        """Those of all clusters after the cycle. first: by shard, the number of the first cluster of its tail."""
        change = Counts(*(np.zeros((*a.shape[:-1], n_labels), a.dtype) for a in self.kept))
        for whole, part in zip(change, self.kept):
            whole[..., : part.shape[-1]] = part
        for shard, tail in self.tails.items():
            for whole, part in zip(change, tail):
                whole[..., first[shard] : first[shard] + part.shape[-1]] = part
        return change


def count(comm: Communicator, views: Sequence[View]) -> None:
    """The counts of the views' clusters over all shards, by a pass over all rows, on every rank. Collective."""
    for view in views:
        view.counts = Counts.zeros(view.n_labels, view.components.shape)
        offsets = view.components.categorical.offsets
        for rows, z in view.labelled():
            categories = without(rows, "reals", "vectors")
            _add(view.counts, Statistics(*kernels.accumulate(categories, z, view.n_labels, offsets)))
    _sum(comm, [view.counts for view in views], None)


def carry(
    comm: Communicator, before: Sequence[Counts], kept: Sequence[np.ndarray], changes: Sequence[Counts], bound: int
) -> None:
    """Make of each view's `changes` its counts after a cycle, on every rank, from those `before` it. Collective.

    kept: the clusters of each view that were instantiated, in order. bound: what no change's absolute value exceeds,
    once they are summed over ranks.
    """
    _sum(comm, changes, bound)
    for now, old, clusters in zip(changes, before, kept):
        for whole, part in zip(now, old):
            whole[..., : len(clusters)] += part[..., clusters]


def summarise(comm: Communicator, views: Sequence[View], cycle: int) -> None:
    """The views' partitions as `cycle`, the coming one, needs them. Collective; a message a kind, for all views."""
    owners = [view.owners(cycle) for view in views]
    clusters = [len(owner) for owner in owners]
    owned, anchor = np.zeros(sum(clusters), np.int64), np.full(sum(clusters), kernels.UNANCHORED, np.uint64)
    own, least = apart(owned, clusters), apart(anchor, clusters)  # of each view, in these
    for view, owner, *here in zip(views, owners, own, least):
        _own(view, owner, cycle, *here)
    comm.sum_everywhere(owned)
    comm.least_everywhere(anchor)
    moments = [Moments(view.components.shape) for view in views]
    merged = merge_moments_up(
        comm, moments, [view.labelled() for view in views], clusters, views[0].n_shards, everywhere=True
    )
    for v, view in enumerate(views):
        statistics = moments[v].statistics(view.counts, merged[v])
        view.partition = Partition(view.counts.size, owners[v], own[v], statistics, least[v])


def _own(view: View, owner: np.ndarray, cycle: int, owned: np.ndarray, anchor: np.ndarray) -> None:
    """Fill a view's `owned` and `anchor`, (K,), from this rank's shards."""
    k, key = len(owner), view.key(cycle)
    for shard, z in zip(view.shards, view.z):
        mine = owner == shard.index
        if mine.any():
            owned[mine] += np.bincount(z[z >= 0], minlength=k)[mine]
        np.minimum(anchor, kernels.anchors(z, shard.start, **key, owned=mine, n_clusters=k), out=anchor)


def total_statistics(
    comm: Communicator, labelled: Iterable[tuple[object, np.ndarray]], k: int, shape, offsets, n_shards: int
) -> Statistics | None:
    """Statistics of clusters 0..k-1 over all shards, on root. Collective.

    labelled: (rows, labels) of each of this rank's shards, in order, gone through twice; negative labels are skipped.
    """
    total, moments = Counts.zeros(k, shape), Moments(shape)
    for rows, z in labelled:
        _add(total, Statistics(*kernels.accumulate(without(rows, "reals", "vectors"), z, k, offsets)))
    _sum(comm, [total], None)
    merged = merge_moments_up(comm, [moments], [labelled], [k], n_shards)
    return moments.statistics(total, merged[0]) if comm.rank == 0 else None


def without(rows, *blocks: str):
    """The same rows with no columns in some blocks."""
    held = {b: np.empty((len(a), 0), a.dtype) if b in blocks else a for b, a in vars(rows).items()}
    if "vectors" in blocks:
        held["widths"] = np.zeros(0, np.int64)
    return type(rows)(**held)


class Moments:
    """The floating part of a view's statistics, an array (length, K): n, mean and scatter of every real column, then of
    every block of columns. shape: that of Components."""

    def __init__(self, shape):
        _, n_real, _, self.widths = shape
        n_columns, n_products = int(self.widths.sum()), int(n_pairs(self.widths).sum())
        self._cuts = np.cumsum([n_real, n_real, n_real, len(self.widths), n_columns, n_products])
        self.length = int(self._cuts[-1])

    def of(self, rows, z: np.ndarray, k: int) -> list[np.ndarray]:
        """Of the rows of one shard, flat."""
        if not self.length:
            return []
        reals = without(rows, "codes8", "codes16", "tallies")
        part = Statistics(*kernels.accumulate(reals, z, k, np.zeros(1, np.int64)))
        return [a.astype(np.float64, copy=False).ravel() for kind in (Normal, Multinormal) for a in part.of(kind)]

    def merge(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        both = np.split(np.stack([a, b]), self._cuts[:-1], axis=1)
        return np.concatenate([*merge_moments(*both[:3]), *merge_vectors(*both[3:], self.widths)])

    def statistics(self, counts: Counts, moments: np.ndarray) -> Statistics:
        real_n, *real, vector_n, mean, scatter = (np.ascontiguousarray(m) for m in np.split(moments, self._cuts[:-1]))
        numbers = real_n.astype(np.int64), *real
        vectors = vector_n.astype(np.int64), mean, scatter
        return Statistics(counts.size, counts.levels, *numbers, *counts[2:], *vectors)


def merge_moments_up(
    comm: Communicator, kinds: Sequence[Moments], labelled: Sequence[Iterable], clusters: Sequence[int], n_shards: int,
    everywhere: bool = False,
) -> list[np.ndarray]:  # fmt: skip
    """The moments of several views over all shards, end to end in one message: (length, K) of each, on root.

    labelled: for each view (rows, labels) of each of this rank's shards, in order. Zeros off root, unless `everywhere`.
    """
    shapes = [(kind.length, k) for kind, k in zip(kinds, clusters)]
    lengths = [length * k for length, k in shapes]

    def shaped(flat):
        return [part.reshape(shape) for part, shape in zip(apart(flat, lengths), shapes)]

    def merge(a, b):
        return np.concatenate([kind.merge(*both).ravel() for kind, *both in zip(kinds, shaped(a), shaped(b))])

    merged = np.zeros(sum(lengths))
    if not len(merged):
        return shaped(merged)
    parts = {}
    for i, *views in zip(cut.of_rank(n_shards, comm.size, comm.rank), *labelled):
        parts[i] = np.concatenate([a for kind, view, k in zip(kinds, views, clusters) for a in kind.of(*view, k)])
    found = merge_up(comm, parts, n_shards, merge)
    merged = merged if found is None else found
    if everywhere:
        comm.broadcast(merged)
    return shaped(merged)


def _add(total: Counts, part: Statistics) -> None:
    for name, array in zip(Counts._fields, total):
        array += getattr(part, name)


def _sum(comm: Communicator, many: Sequence[Counts], bound: int | None) -> None:
    """Sum over ranks, in place, end to end. Counts of cells and rows fit 32 bits (Mixture refuses more rows), sums of
    counts 64.

    bound: what no sum's absolute value exceeds, if known.
    """
    if comm.size == 1 or bound == 0:
        return
    whole = [part for counts in many for part in (counts.size, counts.levels, counts.tally_n)]
    _sum_end_to_end(comm, whole, np.int32 if bound is None or bound > SHORT else np.int16)
    _sum_end_to_end(comm, [counts.tally_sum for counts in many], np.int64)


def _sum_end_to_end(comm: Communicator, arrays: Sequence[np.ndarray], kind: type) -> None:
    message = np.concatenate([array.ravel().astype(kind) for array in arrays])
    if not len(message):
        return
    comm.sum_everywhere(message)
    for array, part in zip(arrays, apart(message, [array.size for array in arrays])):
        array[...] = part.reshape(array.shape)


def apart(flat: np.ndarray, lengths: Sequence[int]) -> list[np.ndarray]:
    """The arrays that lie end to end in `flat`, not copied."""
    return [flat[end - length : end] for length, end in zip(lengths, accumulate(lengths))]
