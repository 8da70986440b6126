"""Proposal of a partition of the rows given the cells of some columns: draw one, or compute the probability of one.

The proposal law q depends only on the cells, the columns' hyperparameters and keyed random words, never on the present
state (docs/math.md 2.10). Idle rows are ignored. It has full support, and can be evaluated at any partition:

1. Launch: on one rank, keyed rows, the core, are labelled by the values of two keyed columns; sweeps improve the
   labels.
2. The core's rows are seated again, one by one. A row gives extra weight to the cluster opened by its launch label.
3. The other rows follow in batches, each as large as all rows before it: every row joins one of the core's clusters,
   given the rows of earlier batches, or is late. Ranks work in parallel; a batch needs one sum over them.
4. Late rows are few; root seats them one by one among themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.columns.subject import Labelled, Subject
from mpibayes.hpc.crosscat.columns.values import by_value, compact
from mpibayes.hpc.crosscat.start.subsample import IDLE
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.parallel.reduce import exact_sum
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.io.rows import Rows
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import split

CORE = 2_000  # expected number of rows in the core
SWEEPS = 8  # sweeps of the launch
BOOST = 5.0  # log of the extra weight of the cluster opened by a row's launch label
CONCENTRATION = 1.0  # concentration of q, whatever the view's
PIECE = 4_096  # rows of a batch that are scored at a time
WAITING, LATE = -1, IDLE - 1
NONE = 255  # batch number of idle rows


@dataclass(frozen=True)
class Drawn:
    """A drawn partition. z: labels of each of this rank's shards; log_q: its log probability, on root."""

    z: list[np.ndarray]
    n_labels: int
    log_q: float


@dataclass(frozen=True)
class Core:
    """The core. rows: in shard order; order: places of the rows in seating order; names: their given labels, if any."""

    rows: Rows
    order: np.ndarray
    names: np.ndarray | None


@dataclass(frozen=True)
class Seated:
    """Seats of the core. slots: cluster of each row, in shard order; n: number of clusters; slot_of: cluster of each
    given label, or -1; log_q: log probability of the seats."""

    slots: np.ndarray
    n: int
    slot_of: np.ndarray
    log_q: float


def side_by_side(proposals: Sequence[Proposal]) -> list[Drawn]:
    """Draw a partition from each proposal. Their cores are seated in parallel, on different ranks. Collective."""
    comm = proposals[0].comm
    ranks = [i % comm.size for i in range(len(proposals))]
    cores = [proposal.core_to(rank, None) for proposal, rank in zip(proposals, ranks)]
    mine = [proposal.seat(core) for proposal, core in zip(proposals, cores)]
    seated = [comm.share(part, rank) for part, rank in zip(mine, ranks)]
    return [proposal.go_on(part, None) for proposal, part in zip(proposals, seated)]


class Proposal:
    """The law q for one subject. key: of all its streams; lane: replaces the chain in the launch's key."""

    def __init__(self, subject: Subject, key: Mapping[str, int], lane: int, sub: int):
        self.subject, self.comm, self._key, self._sub = subject, subject.comm, key, sub
        self._prior = subject.components.prior(subject.hyper)
        self._launch_key = {**key, "chain": lane}
        edges = [min(1.0, CORE / subject.n_active)]
        while edges[-1] < 1.0:
            edges.append(min(1.0, 2.0 * edges[-1]))
        self._n_batches = len(edges) - 1
        self._batch_of, self._core = [], []
        for i in range(len(subject.shards)):
            u = self._uniforms(i, Purpose.CORE)
            batch = np.searchsorted(edges, u, side="right").astype(np.uint8)  # 0: the core
            batch[~subject.active(i)] = NONE
            core = np.flatnonzero(batch == 0)
            self._batch_of.append(batch)
            self._core.append(core[np.argsort(u[core], kind="stable")])

    def _uniforms(self, i: int, purpose: Purpose, at: np.ndarray | None = None) -> np.ndarray:
        """Return uniform numbers keyed by row, for the rows `at` of a shard, or for all its rows if None."""
        shard = self.subject.shards[i]
        ids = shard.start + (np.arange(len(shard)) if at is None else at).astype(np.int64)
        return (split.words(ids, purpose=purpose, sub=self._sub, **self._key) >> np.uint64(11)) * 2.0**-53

    def _batch_at(self, number: int) -> list[np.ndarray]:
        """Return the places of a batch's rows in each shard."""
        return [np.flatnonzero(batch == number) for batch in self._batch_of]

    def draw(self) -> Drawn:
        """Draw a partition. Collective."""
        return side_by_side([self])[0]

    def log_q(self, z: Sequence[np.ndarray]) -> float:
        """Return the log probability of a partition on root. z: labels of each shard. Collective."""
        core = self.core_to(0, z)
        return self.go_on(self.comm.share(self.seat(core)), z).log_q

    def go_on(self, seated: Seated, given: Sequence[np.ndarray] | None) -> Drawn:
        """Continue from the core's seats: draw the other rows' clusters, or follow the given labels, which the result
        only renumbers. Collective."""
        subject, n_core, slot_of, log_q = self.subject, seated.n, seated.slot_of, seated.log_q
        z = [np.where(batch == NONE, IDLE, WAITING).astype(np.int32) for batch in self._batch_of]
        self._put(z, self._core, seated.slots)
        statistics, at, parts = None, self._core, np.zeros((len(z), self._n_batches))
        for number in range(self._n_batches):
            more = sync.statistics(
                self.comm, subject.components, Labelled(subject.cells, z, at), n_core, subject.n_shards
            )
            statistics = more if statistics is None else subject.components.union(statistics, more)
            at = self._batch_at(1 + number)
            parts[:, number] = self._batch(z, given, n_core, slot_of, statistics, at)
        total = exact_sum(self.comm, parts)
        if total is not None:
            log_q = sum(total.tolist(), log_q)
        n_late, more = self._seat_late(z, given, n_core)
        return Drawn(z, n_core + n_late, log_q + more)

    # --- one by one, on one rank -------------------------------------------------------------------------------------

    def _tail(self) -> kernels.Tail:
        return kernels.Tail(self._prior, CONCENTRATION, 0.0, 0.0)

    def core_to(self, rank: int, given: Sequence[np.ndarray] | None) -> Core | None:
        """Gather the core on one rank; return None elsewhere. Collective."""
        rows = self.subject.to_root(self._core, rank)
        u = self._gathered([self._uniforms(i, Purpose.CORE, at) for i, at in enumerate(self._core)], rank)
        names = None if given is None else self._at(given, self._core, rank)
        return None if rows is None else Core(rows, np.argsort(u, kind="stable"), names)

    def seat(self, core: Core | None) -> Seated | None:
        """Seat the core, on the rank that has it."""
        if core is None:
            return None
        order, names, slot_of = core.order, core.names, np.full(1, -1, np.int64)
        rows = core.rows.take(order)
        guide = self._launch(rows)
        named = None if names is None else compact(names[order])
        result, log_q = kernels.seat(rows, self._tail(), guide, BOOST, self._coins(len(rows), Purpose.SEATED), named)
        slots = np.empty(len(rows), np.int64)
        slots[order] = result
        if names is not None:
            slot_of = np.full(int(names.max(initial=0)) + 1, -1, np.int64)
            slot_of[names] = slots
        return Seated(slots, int(slots.max(initial=-1)) + 1, slot_of, log_q)

    def _launch(self, rows) -> np.ndarray:
        """Return the core's launch labels, a function of its cells and keyed words."""
        key, nobody = self._launch_key, np.full(len(rows), -1, np.int32)
        labels = by_value(rows, generator(purpose=Purpose.LAUNCHED, sub=self._sub, **self._key))
        tail = self._tail()
        z, _ = kernels.seat(rows, tail, nobody, 0.0, np.zeros(len(rows)), labels)
        for sweep in range(SWEEPS):
            kernels.sweep(rows, z, 0, key["seed"], key["cycle"], sweep, key["chain"], None, tail, self._prior)
        return compact(z)

    def _seat_late(self, z, given, n_core: int) -> tuple[int, float]:
        late = [np.flatnonzero(part == LATE) for part in z]
        rows = self.subject.to_root(late)
        names = None if given is None else self._at(given, late)
        slots, log_q = None, 0.0
        if rows is not None:
            nobody = np.full(len(rows), -1, np.int32)
            named = None if names is None else compact(names)
            slots, log_q = kernels.seat(rows, self._tail(), nobody, 0.0, self._coins(len(rows), Purpose.LATE), named)
        slots = self._share(slots)
        self._put(z, late, n_core + slots)
        return int(slots.max(initial=-1)) + 1, log_q

    def _coins(self, n: int, purpose: Purpose) -> np.ndarray:
        words = split.words(np.arange(n, dtype=np.int64), purpose=purpose, sub=self._sub, **self._key)
        return (words >> np.uint64(11)) * 2.0**-53

    def _at(self, arrays: Sequence[np.ndarray], places: Sequence[np.ndarray], root: int = 0) -> np.ndarray | None:
        """Gather the entries at these places of each shard on one rank, in shard order."""
        return self._gathered([array[at] for array, at in zip(arrays, places)], root)

    def _gathered(self, mine: Sequence[np.ndarray], root: int = 0) -> np.ndarray | None:
        mine = np.concatenate(mine) if mine else np.zeros(0)
        result = [part for part in self.comm.collect(mine) if len(part)]
        if self.comm.rank != root:
            return None
        return np.concatenate(result) if result else np.zeros(0, np.int64)

    def _share(self, slots: np.ndarray | None) -> np.ndarray:
        return self.comm.share(None if slots is None else np.asarray(slots, np.int64))

    def _put(self, z, places: Sequence[np.ndarray], everyone: np.ndarray) -> None:
        """Label the rows at these places. everyone: labels for all ranks, in rank order."""
        counts = self.comm.collect(sum(map(len, places)))
        start = sum(counts[: self.comm.rank])
        for part, at in zip(z, places):
            part[at] = everyone[start : start + len(at)]
            start += len(at)

    # --- side by side ------------------------------------------------------------------------------------------------

    def _batch(self, z, given, n_core: int, slot_of: np.ndarray, statistics: Statistics, at) -> list[float]:
        """Give the rows at these places a cluster of the core, or mark them late; return log q of each shard.
        statistics: of the core's clusters, from all earlier rows."""
        tail = self._tail()
        tail.load(statistics)
        result = [0.0] * len(z)
        for i, part in enumerate(z):
            coins = self._uniforms(i, Purpose.TAKEN, at[i])
            follow = None
            if given is not None:
                names = given[i][at[i]]
                known = names < len(slot_of)
                follow = np.where(known, slot_of[np.where(known, names, 0)], -1)
                follow = np.where(follow < 0, n_core, follow).astype(np.int32)
            for start in range(0, len(at[i]), PIECE):
                subset = slice(start, start + PIECE)
                terms = kernels.log_predictive_clusters(self.subject.cells(i, at[i][subset]), tail)
                pick, log_q = kernels.take(terms, coins[subset], None if follow is None else follow[subset])
                result[i] += log_q
                part[at[i][subset]] = np.where(pick == n_core, LATE, pick)
        return result
