"""Columns change views: a scan of Gibbs draws over the Pitman-Yor process of the views (docs/math.md 2.9).

Neal's (2000) algorithm 8, with auxiliary views that are kept through the scan: partitions of the rows drawn from their
prior, without columns. Weights and parameters are integrated out; row labels are fixed. A column scores a partition by
its log marginal likelihood under it. All columns are scored under all partitions before the scan, in one sum over
ranks; when a column takes an auxiliary view, only the fresh partition that replaces it is scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.components.grid import draw_on_grid
from mpibayes.hpc.crosscat.start.subsample import IDLE
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.crosscat.view.pitman_yor import PitmanYor
from mpibayes.hpc.crosscat.view.view import View
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.io.rows import Rows
from mpibayes.kernels.mixture.restaurant import restaurant

OFTEN = 20  # first cycles, which all end with a scan; later, when rows have settled, single columns hardly ever move
AUXILIARY = 3  # auxiliary views at any time during a scan


@dataclass(frozen=True)
class Rowwise:
    """Partition of the rows that columns may join: a view's, or an auxiliary one. z: labels of each of this rank's
    shards, 0 to n_labels - 1, negative for idle rows, in signed integers of any width; process: concentration and
    discount of its prior."""

    z: Sequence[np.ndarray]
    n_labels: int
    process: tuple[float, float]


@dataclass(frozen=True)
class Cut:
    """Pairs (rows, labels), one per shard, the labels in the kernels' dtype."""

    shards: Sequence
    z: Sequence[np.ndarray]

    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]:
        return ((shard.rows, z.astype(np.int32, copy=False)) for shard, z in zip(self.shards, self.z))


def of_views(views: Sequence[View]) -> list[Rowwise]:
    """Return the partitions of the views."""
    return [Rowwise(v.z, v.n_labels, (v.hyper.concentration, v.hyper.discount)) for v in views]


@dataclass(frozen=True)
class Present:
    """The active rows. n: number on all ranks; active: mask (rows,) bool of each of this rank's shards; before: number
    of active rows in earlier shards, for each of this rank's shards."""

    n: int
    active: Sequence[np.ndarray]
    before: Sequence[int]

    @classmethod
    def of(cls, view: View) -> Present:
        """Count the active rows. Collective."""
        active, counts = [z >= 0 for z in view.z], np.zeros(view.n_shards + 1, np.int64)
        for shard, here in zip(view.shards, active):
            counts[shard.index + 1] = np.count_nonzero(here)
        view.comm.sum_everywhere(counts)
        before = np.cumsum(counts)
        return cls(int(before[-1]), active, [int(before[shard.index]) for shard in view.shards])


def auxiliaries(
    comm: Communicator, law: PitmanYor, rows: Present, key: Mapping[str, int], numbers: Sequence[int]
) -> list[Rowwise]:
    """Draw fresh partitions from the prior, one for each of the scan's `numbers`; one rank draws each. Collective."""
    processes = [law.draw_prior(generator(purpose=Purpose.PROCESS, sub=number, **key)) for number in numbers]
    ranks = [i % comm.size for i in range(len(numbers))]
    drawn = [
        restaurant(rows.n, *process, purpose=Purpose.RESTAURANT, sub=number, **key) if rank == comm.rank else None
        for number, process, rank in zip(numbers, processes, ranks)
    ]
    return [_dealt(comm, rows, *of) for of in zip(drawn, processes, ranks)]


def _dealt(
    comm: Communicator, rows: Present, everyone: np.ndarray | None, process: tuple[float, float], rank: int
) -> Rowwise:
    """Broadcast a partition drawn by one rank; every rank keeps the labels of its rows. Collective."""
    n_labels = comm.share(0 if everyone is None else int(everyone.max(initial=-1)) + 1, rank)
    kind = np.min_scalar_type(-1 - n_labels)  # saves memory: there are several partitions, and they are only read
    everyone = np.empty(rows.n, kind) if everyone is None else everyone.astype(kind)
    comm.broadcast(everyone, rank)
    labels = []
    for active, before in zip(rows.active, rows.before):
        z = np.full(len(active), IDLE, kind)
        z[active] = everyone[before : before + np.count_nonzero(active)]
        labels.append(z)
    return Rowwise(labels, n_labels, process)


def scores(
    comm: Communicator, views: Sequence[View], units: Sequence[Sequence[str]], partitions: Sequence[Rowwise]
) -> np.ndarray | None:
    """Return the log marginal likelihood of every unit of columns under every partition, (U, P) on root, else None.

    One rank scores each pair of a view's columns and a partition. Collective.
    """
    number = {name: u for u, names in enumerate(units) for name in names}
    unit_of = [[number[name] for name in view.components.by_column(view.hyper)] for view in views]
    out = np.zeros((len(units), len(partitions)))
    if views[0].n_shards == comm.size == 1:
        for view, of in zip(views, unit_of):
            for p, partition in enumerate(partitions):
                labelled = Cut(view.shards, partition.z)
                statistics = sync.statistics(comm, view.components, labelled, partition.n_labels, 1)
                each = view.components.log_marginal(view.hyper, statistics, view.components.everything)
                np.add.at(out[:, p], of, np.concatenate(each))
        return out
    pairs = [(view, p) for view in views for p in partitions]
    labelled = [Cut(view.shards, p.z) for view, p in pairs]
    moments = [sync.Moments(view.components) for view, _ in pairs]
    clusters = [p.n_labels for _, p in pairs]
    counts, each = zip(*map(sync.accumulated, moments, labelled, clusters))
    sync.add_up(comm, counts)
    merged = sync.merge_moments_up(comm, moments, each, clusters, views[0].n_shards, everywhere=True)
    mine = []
    for i in range(comm.rank, len(pairs), comm.size):
        view, statistics = pairs[i][0], moments[i].statistics(counts[i], merged[i])
        mine += view.components.log_marginal(view.hyper, statistics, view.components.everything)
    lengths = [[sum(map(len, view.components.kinds)) for view, _ in pairs[r :: comm.size]] for r in range(comm.size)]
    result = comm.gather_to_root(np.concatenate([np.zeros(0), *mine]), list(map(sum, lengths)))
    if comm.rank:
        return None
    of_rank = sync.apart(result, list(map(sum, lengths)))
    parts = [iter(sync.apart(part, each)) for part, each in zip(of_rank, lengths)]
    for i in range(len(pairs)):
        view, partition = divmod(i, len(partitions))
        np.add.at(out[:, partition], unit_of[view], next(parts[i % comm.size]))
    return out


@dataclass
class Seating:
    """Partition of each unit of columns during a scan. Partitions are numbered, views first.

    where (U,): partition of each unit. score (U, P): scores under the partitions so far; columns are appended. fresh:
    auxiliary partitions not yet offered to any unit. kept: those on offer.
    """

    where: list[int]
    score: np.ndarray
    concentration: float
    discount: float
    stream: np.random.Generator
    fresh: list[int]
    kept: list[int] = field(default_factory=list)

    def __post_init__(self):
        self.members: dict[int, int] = {}
        for partition in self.where:
            self.members[partition] = self.members.get(partition, 0) + 1

    def scan(self, order: Sequence[int]) -> int:
        """Draw the partition of each unit in turn; return the number drawn before fresh partitions ran out."""
        for done, unit in enumerate(order):
            while len(self.kept) < AUXILIARY:
                if not self.fresh:
                    return done
                self.kept.append(self.fresh.pop(0))
            self._draw(unit)
        return len(order)

    def _draw(self, unit: int) -> None:
        left = self.where[unit]
        self.members[left] -= 1
        if not self.members[left]:
            del self.members[left]
            self._retire(left)
        views = list(self.members)
        weight = [np.log(self.members[v] - self.discount) for v in views] + [self._log_new(len(views))] * AUXILIARY
        open_to = [*views, *self.kept]
        chosen = open_to[draw_on_grid(np.array(weight) + self.score[unit, open_to], self.stream)]
        if chosen not in self.members:
            self.kept.remove(chosen)
        self.members[chosen] = self.members.get(chosen, 0) + 1
        self.where[unit] = chosen

    def _retire(self, view: int) -> None:
        """Make a view that has lost its last column an auxiliary one, in place of a random other."""
        self.kept[int(self.stream.integers(AUXILIARY))] = view

    def _log_new(self, n_views: int) -> float:
        """Return the log prior weight of each auxiliary view."""
        new = self.concentration + n_views * self.discount if n_views else 1.0
        return float(np.log(new / AUXILIARY))


def scan(
    comm: Communicator, views: Sequence[View], units: Sequence[Sequence[str]], process: tuple[float, float], cycle: int,
    host: int = -1,
) -> tuple[list[int], list[Rowwise]]:  # fmt: skip
    """Scan all units of columns once, in random order. Return the partition of each unit, and the partitions, views'
    first. process: concentration and discount of the views. host: a unit that stays, or -1. Collective.
    """
    first = views[0]
    partitions, rows = of_views(views), Present.of(first)
    of_name = {name: i for i, view in enumerate(views) for name in view.columns}
    key = first.key(cycle)
    stream = generator(purpose=Purpose.COLUMNS, **key)
    order = stream.permutation(len(units))
    order = order[order != host]
    where = [of_name[names[0]] for names in units]
    seating = Seating(where, np.zeros((len(units), 0)), *process, stream, [])
    state, done, n_fresh = np.array([0, *where], np.int64), 0, 0
    while done < len(order):
        more = AUXILIARY if not n_fresh else 1
        fresh = auxiliaries(comm, first.law, rows, key, range(n_fresh, n_fresh + more))
        result = scores(comm, views, units, fresh if n_fresh else [*partitions, *fresh])
        if comm.rank == 0:
            seating.score = np.concatenate([seating.score, result], axis=1)
            seating.fresh += range(len(partitions), len(partitions) + more)
            done += seating.scan(order[done:])
            state[:] = done, *seating.where
        partitions += fresh
        n_fresh += more
        comm.broadcast(state)
        done = int(state[0])
    return state[1:].tolist(), partitions
