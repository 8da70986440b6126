"""The reductions at the end of a cycle: from each shard's labels to the summaries that all ranks need for the next.

Summaries depend only on labels and cycle number, so that a resumed chain starts from the same numbers. The views of a
chain share every message: their arrays are concatenated. Counts are integers: they are updated for the rows that
changed, and summed by MPI in any order. Moments of real columns are recomputed, each shard's in row order, and merged
up a fixed binary tree over shards, whichever ranks hold them: log2(S) messages deep.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, islice
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.component import Array
from mpibayes.hpc.components.kinds import KINDS
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.view.state import Partition
from mpibayes.hpc.parallel import shards as cut
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.packed import places, put_rows
from mpibayes.hpc.parallel.reduce import merge_up
from mpibayes.io.rows import Rows
from mpibayes.kernels import mixture as kernels

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.view.sweep import Step
    from mpibayes.hpc.crosscat.view.view import View

LARGE = np.uint64(2**63)  # above any number of rows: differences from it have their least where numbers are greatest
SHORT = 2**15 - 1  # changes whose sums do not exceed this are sent as 16-bit integers
EXACT, INEXACT = ([kind for kind in KINDS if kind.exact is exact] for exact in (True, False))
MEASURED = [stored for kind in INEXACT for stored in kind.stored]
MOMENTS = [array for kind in INEXACT for array in kind.statistics]
MOMENT_NAMES = [array.name for array in MOMENTS]
COUNTS = [Array("size", dtype=np.int64), *(array for kind in EXACT for array in kind.statistics)]


class Counts(namedtuple("Arrays", [array.name for array in COUNTS])):
    """The integers among the statistics of K clusters, whatever their dtype: `size`, and the statistics of `exact`
    kinds; in the order of `recount`."""

    @classmethod
    def zeros(cls, components: Components, n_clusters: int) -> Counts:
        arrays = (array.zeros(kind, n_clusters) for kind in components.kinds if kind.exact for array in kind.statistics)
        return cls(np.zeros(n_clusters, np.int64), *arrays)

    @classmethod
    def of(cls, s: Statistics) -> Counts:
        """Return the integers among statistics, not copied."""
        return cls(*(getattr(s, array.name) for array in COUNTS))

    def plus(self, s: Statistics) -> Counts:
        """Add the integers of other statistics, in place."""
        for array, more in zip(self, Counts.of(s)):
            array += more
        return self

    def of_wire(self, wire: type) -> list[np.ndarray]:
        """Return the arrays that are summed as integers of this type."""
        return [array for of, array in zip(COUNTS, self) if of.wire is wire]


class Changes:
    """Changes of a view's counts in a cycle from this rank's shards: in the instantiated clusters, and in the clusters
    of the tails."""

    def __init__(self, components: Components, n_kept: int):
        self._components, self._n_kept = components, n_kept
        self.tails: dict[int, Counts] = {}  # by shard
        self.bound = 0  # no entry's absolute value is greater

    @cached_property
    def kept(self) -> Counts:
        return Counts.zeros(self._components, self._n_kept)

    def after(self, first: Mapping[int, int], n_labels: int) -> Counts:
        """Return the changes of all clusters after the cycle. first: by shard, number of its tail's first cluster."""
        for tail in self.tails.values():
            if len(tail.size) == n_labels:  # one tail has all clusters
                return tail
        if n_labels == self._n_kept:  # and here none has any
            return self.kept
        change = Counts(*(np.zeros((*a.shape[:-1], n_labels), a.dtype) for a in self.kept))
        for whole, part in zip(change, self.kept):
            whole[..., : part.shape[-1]] = part
        for shard, tail in self.tails.items():
            for whole, part in zip(change, tail):
                whole[..., first[shard] : first[shard] + part.shape[-1]] = part
        return change


def count(comm: Communicator, views: Sequence[View]) -> None:
    """Count the views' clusters over all shards, in a pass over all rows, on every rank. Collective."""
    for view in views:
        view.counts = counted(view.components, view.labelled(), view.n_labels)
    add_up(comm, [view.counts for view in views])


def carry(
    comm: Communicator, before: Sequence[Counts], steps: Sequence[Step], changes: Sequence[Counts], bound: int
) -> None:
    """Turn each view's `changes` into its counts after a cycle, on every rank, given the counts `before`. Collective.

    steps: of each view. bound: upper bound of the absolute values of changes, summed over ranks.
    """
    add_up(comm, changes, bound, [step.prior.met for step in steps])
    for now, old, clusters in zip(changes, before, (step.kept for step in steps)):
        for whole, part in zip(now, old) if len(clusters) else ():
            whole[..., : len(clusters)] += part if len(clusters) == part.shape[-1] else part[..., clusters]


def summarise(comm: Communicator, views: Sequence[View], cycle: int) -> None:
    """Set the views' partitions for the coming `cycle`. Collective; one message per kind for all views."""
    every = statistics_of(comm, views)
    if views[0].n_shards == 1:  # it owns all clusters, and none has an anchor
        for view, statistics in zip(views, every):
            size, owner = view.counts.size, view.owners(cycle)
            view.partition = Partition(size, owner, size, statistics, np.full(len(size), kernels.UNANCHORED, np.uint64))
        return
    owners = [view.owners(cycle) for view in views]
    clusters = [len(owner) for owner in owners]
    owned, anchor = np.zeros(sum(clusters), np.int64), np.full(sum(clusters), kernels.UNANCHORED, np.uint64)
    part, least = apart(owned, clusters), apart(anchor, clusters)  # parts of each view, not copied
    for view, owner, *here in zip(views, owners, part, least):
        _own(view, owner, cycle, *here)
    message = np.concatenate([anchor, LARGE - owned.astype(np.uint64)])  # a cluster's rows are owned on one rank
    comm.least_everywhere(message)
    anchor[:], owned[:] = message[: len(anchor)], LARGE - message[len(anchor) :]
    for v, statistics in enumerate(every):
        views[v].partition = Partition(views[v].counts.size, owners[v], part[v], statistics, least[v])


def statistics_of(comm: Communicator, views: Sequence[View]) -> list[Statistics]:
    """Return statistics of the views' clusters, with the present counts and recomputed moments, on every rank.
    Collective."""
    if views[0].n_shards == comm.size == 1:
        return [_alone(v.components, v.counts, v.shards[0].rows, v.z[0]) for v in views]
    moments, clusters = [view.moments for view in views], [len(view.counts.size) for view in views]
    each = [[kind.of(rows, z, k) for rows, z in view.labelled()] for kind, view, k in zip(moments, views, clusters)]
    merged = merge_moments_up(comm, moments, each, clusters, views[0].n_shards, everywhere=True)
    return [kind.statistics(view.counts, part) for kind, view, part in zip(moments, views, merged)]


def _own(view: View, owner: np.ndarray, cycle: int, owned: np.ndarray, anchor: np.ndarray) -> None:
    """Fill a view's `owned` and `anchor`, (K,), from this rank's shards."""
    k, key = len(owner), view.key(cycle)
    for shard, z in zip(view.shards, view.z):
        mine = owner == shard.index
        if mine.any():
            owned[mine] += np.bincount(z[z >= 0], minlength=k)[mine]
        np.minimum(anchor, kernels.anchors(z, shard.start, **key, owned=mine, n_clusters=k), out=anchor)


def total_statistics(
    comm: Communicator, components: Components, labelled: Iterable[tuple[Rows, np.ndarray]], k: int, n_shards: int,
    met: np.ndarray | None = None,
) -> Statistics | None:  # fmt: skip
    """Return the statistics of clusters 0..k-1 over all shards, on root. Collective.

    labelled: (rows, labels) of each of this rank's shards, in order; negative labels are skipped. met: see
    `Categorical.met`, of these rows and maybe others.
    """
    if n_shards == comm.size == 1:
        return _of_one_shard(components, labelled, k)
    moments = Moments(components)
    total, each = accumulated(moments, labelled, k)
    add_up(comm, [total], met=[met])
    merged = merge_moments_up(comm, [moments], [each], [k], n_shards)
    return moments.statistics(total, merged[0]) if comm.rank == 0 else None


def statistics(
    comm: Communicator, components: Components, labelled: Sequence[tuple[Rows, np.ndarray]], k: int, n_shards: int
) -> Statistics:
    """Return the `total_statistics` on every rank. Collective."""
    if n_shards == comm.size == 1:
        return _of_one_shard(components, labelled, k)
    moments = Moments(components)
    total, each = accumulated(moments, labelled, k)
    add_up(comm, [total])
    return moments.statistics(total, merge_moments_up(comm, [moments], [each], [k], n_shards, everywhere=True)[0])


def with_moments(
    comm: Communicator,
    components: Components,
    labelled: Iterable[tuple[Rows, np.ndarray]],
    counts: Counts,
    n_shards: int,
) -> Statistics:
    """Return the statistics of clusters with these counts, on every rank; arguments as in `total_statistics`.
    Collective."""
    if n_shards == comm.size == 1:
        return _alone(components, counts, *((None, None) if components.exact else next(iter(labelled))))
    moments, k = Moments(components), len(counts.size)
    each = [moments.of(rows, z, k) for rows, z in labelled] if moments.length else []
    return moments.statistics(counts, merge_moments_up(comm, [moments], [each], [k], n_shards, everywhere=True)[0])


def _of_one_shard(components: Components, labelled: Iterable[tuple[Rows, np.ndarray]], k: int) -> Statistics:
    ((rows, z),) = labelled
    return Statistics(*kernels.accumulate(rows, z, k, components.categorical.offsets))


def _alone(components: Components, counts: Counts, rows, z: np.ndarray) -> Statistics:
    """Return the statistics of clusters with these counts where one shard has all rows."""
    k = len(counts.size)
    moments = [np.zeros((0, k), of.dtype) for of in MOMENTS] if components.exact else kernels.moments(rows, z, k)
    return Statistics(**counts._asdict(), **dict(zip(MOMENT_NAMES, moments)))


class Moments:
    """The floating-point part of a view's statistics, an array (length, K): the concatenated arrays of the kinds that
    are not `exact`."""

    def __init__(self, components: Components):
        self.components = components
        self._kinds = [kind for kind in components.kinds if not kind.exact]
        self._lengths = [int(kind.cuts[array.axis][-1]) for kind in self._kinds for array in kind.statistics]
        self.length = sum(self._lengths)

    def of(self, rows, z: np.ndarray, k: int) -> list[np.ndarray]:
        """Return the moments of the rows of one shard, flat."""
        if not self.length:
            return []
        return self.within(Statistics(*kernels.accumulate(rows.only(MEASURED), z, k, np.zeros(1, np.int64))))

    def within(self, part: Statistics) -> list[np.ndarray]:
        """Return the moments among one shard's statistics, each flat."""
        if not self.length:
            return []
        return [array.astype(np.float64, copy=False).ravel() for kind in INEXACT for array in part.of(kind)]

    def merge(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        each = ((kind, *both) for kind, *both in zip(self._kinds, self._by_kind(a), self._by_kind(b)) if len(kind))
        return np.concatenate([a[:0], *(array for kind, *both in each for array in kind.merge(*both))])

    def statistics(self, counts: Counts, moments: np.ndarray) -> Statistics:
        result = counts._asdict()
        for kind, arrays in zip(self._kinds, self._by_kind(moments)):
            result |= {of.name: a.astype(of.dtype, copy=False) for of, a in zip(kind.statistics, arrays)}
        return Statistics(**result)

    def _by_kind(self, moments: np.ndarray) -> list[tuple[np.ndarray, ...]]:
        arrays = iter(apart(moments, self._lengths))
        return [tuple(islice(arrays, len(kind.statistics))) for kind in self._kinds]


def merge_moments_up(
    comm: Communicator, kinds: Sequence[Moments], each: Sequence[Sequence[list[np.ndarray]]], clusters: Sequence[int],
    n_shards: int, everywhere: bool = False,
) -> list[np.ndarray]:  # fmt: skip
    """Merge the moments of several views over all shards, in one message: return (length, K) of each view, on root.

    each: for each view, the moments of each of this rank's shards, in order. Zeros off root, unless `everywhere`.
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
    for i, *views in zip(cut.of_rank(n_shards, comm.size, comm.rank), *each):
        parts[i] = np.concatenate([array for arrays in views for array in arrays])
    result = merge_up(comm, parts, n_shards, merge)
    merged = merged if result is None else result
    if everywhere:
        comm.broadcast(merged)
    return shaped(merged)


def accumulated(
    moments: Moments, labelled: Iterable[tuple[Rows, np.ndarray]], k: int
) -> tuple[Counts, list[list[np.ndarray]]]:
    """Compute counts of clusters 0..k-1 over this rank's shards, and moments of each shard, in one pass over rows."""
    components, each, total = moments.components, [], None
    for rows, z in labelled:
        part = Statistics(*kernels.accumulate(rows, z, k, components.categorical.offsets))
        total = Counts.of(part) if total is None else total.plus(part)
        each.append(moments.within(part))
        del rows, z, part  # before the next, which may be copies
    return total or Counts.zeros(components, k), each


def counted(components: Components, labelled: Iterable[tuple[Rows, np.ndarray]], k: int) -> Counts:
    """Count clusters 0..k-1 over this rank's shards, in a pass over their rows."""
    total = None
    for rows, z in labelled:
        counted = rows.only([stored for kind in EXACT for stored in kind.stored])
        part = Statistics(*kernels.accumulate(counted, z, k, components.categorical.offsets))
        total = Counts.of(part) if total is None else total.plus(part)
    return total or Counts.zeros(components, k)


def add_up(
    comm: Communicator, many: Sequence[Counts], bound: int | None = None, met: Sequence[np.ndarray | None] | None = None
) -> None:
    """Sum counts over ranks, in place; arrays with the same `wire` type share a message. Counts of rows fit 32 bits,
    since Mixture refuses more rows.

    bound: upper bound of the absolute values of summed counts of rows, if known. met: see `Categorical.met`, of each,
    or None; the other level rows have no counts on any rank, and are not sent.
    """
    if comm.size == 1 or bound == 0:
        return
    at = [places(of) for of in met or [None] * len(many)]
    whole, many = many, [c if i is None else c._replace(levels=c.levels.take(i, 0)) for c, i in zip(many, at)]
    for wire, kind in ((np.int32, np.int32 if bound is None or bound > SHORT else np.int16), (np.int64, np.int64)):
        _sum_end_to_end(comm, [array for counts in many for array in counts.of_wire(wire)], kind)
    for counts, sums, rows in zip(whole, many, at):
        if rows is not None:
            put_rows(counts.levels, rows, sums.levels)


def _sum_end_to_end(comm: Communicator, arrays: Sequence[np.ndarray], kind: type) -> None:
    message = np.concatenate([array.ravel().astype(kind) for array in arrays])
    if not len(message):
        return
    comm.sum_everywhere(message)
    for array, part in zip(arrays, apart(message, [array.size for array in arrays])):
        array[...] = part.reshape(array.shape)


def apart(flat: np.ndarray, lengths: Sequence[int]) -> list[np.ndarray]:
    """Split `flat` into arrays of these lengths, not copied."""
    return [flat[end - length : end] for length, end in zip(lengths, accumulate(lengths))]
