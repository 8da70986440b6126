"""A view's partition of the rows is built up batch by batch, or taken down (docs/math.md 2.18).

Rows come in a keyed order: the first CORE one by one, then batches, each GROWTH times as many as the rows before it.
Every row of a batch joins a cluster given the rows before the batch; those that join none are seated one by one among
themselves. Before each batch the rows present are swept, reversibly with respect to their law. The ratios of the laws
after and before a batch, over the probability of its labels, multiply to a weight whose mean is the marginal likelihood
of the columns. Taking down follows the same path backwards from given labels, with the same weights (Neal 2001).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.columns.following import Following
from mpibayes.hpc.crosscat.columns.scan import Rowwise
from mpibayes.hpc.crosscat.columns.subject import Subject
from mpibayes.hpc.crosscat.columns.values import compact
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.crosscat.view.pruning import Pruning
from mpibayes.hpc.parallel.reduce import exact_sum
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator, in_lane
from mpibayes.kernels import mixture as kernels

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture

CORE = 64  # expected number of rows in the first batch
GROWTH = 0.5  # rows of another batch, as a share of the rows before it
PIECE = 4_096  # rows of a batch that are scored at a time
SEATING = 1  # `sub` of the stream of concentration and discount where they are drawn for seating, not for sweeps


def sizes(n_rows: int) -> list[int]:
    """Return the expected number of rows after each batch."""
    result = [min(CORE, n_rows)]
    while result[-1] < n_rows:
        result.append(min(n_rows, max(result[-1] + 1, int(result[-1] * (1.0 + GROWTH)))))
    return result


class Buildup:
    """A path of partitions of the subject's active rows. lane: first random-number lane of its streams; levels are
    2^20 lanes apart. Methods are collective; weights are on root."""

    def __init__(self, chain: Mixture, subject: Subject, lane: int):
        self.chain, self.comm, self.subject, self.lane = chain, chain.comm, subject, lane
        self.law, self.components = chain.views[0].law, subject.components
        self.following = Following(self.comm, subject.components, subject.hyper)
        edges = np.array(sizes(subject.n_active)) / subject.n_active
        edges[-1] = 1.0  # above all uniform numbers
        self.last = len(edges) - 1
        self.places, self.rows, self.ends, self.z = [], [], [], []  # of each of this rank's shards, in order of entry
        words = Stream(purpose=Purpose.CORE, **self._key(0))
        for i, shard in enumerate(subject.shards):
            u = words.uniforms(shard.start + np.arange(len(shard)))
            active = np.flatnonzero(subject.active(i))
            at = active[np.argsort(u[active], kind="stable")]
            self.places.append(at)
            self.rows.append(subject.cells(i, at))
            self.ends.append(np.searchsorted(u[at], edges, side="left").tolist())
            self.z.append(np.zeros(len(at), np.int32))
        self.n_labels = 0

    def _key(self, level: int) -> dict[str, int]:
        return {**self.chain.key, "chain": in_lane(self.chain.chain, self.lane + (level << 20))}

    def up(self) -> float:
        """Build up a partition; return its log weight."""
        log_w, statistics = 0.0, None
        for level in range(self.last + 1):
            if statistics is not None:
                statistics = self._swept(statistics, level - 1)
                log_w -= self._log_target(statistics)
            log_w -= self._seat(statistics, level, follow=False)
            statistics = self._statistics(level)
            log_w += self._log_target(statistics)
        return log_w

    def down(self, z: Sequence[np.ndarray]) -> float:
        """Take down a partition, given as labels of each shard; return the log weight of building it up."""
        for mine, labels, at in zip(self.z, z, self.places):
            mine[:] = labels[at]
        self._name(self.last)
        log_w, statistics = 0.0, self._statistics(self.last)
        for level in range(self.last, -1, -1):
            log_w += self._log_target(statistics)
            self.n_labels = self._name(level)
            statistics = self._statistics(level - 1) if level else None
            log_w -= self._log_target(statistics) + self._seat(statistics, level, follow=True)
            if statistics is not None:
                statistics = self._swept(statistics, level - 1)
        return log_w

    def end(self) -> Rowwise:
        """Return the partition that was built up, with concentration and discount drawn given it; idle rows keep their
        labels."""
        result = [labels.astype(np.int32) for labels in self.subject.labels]
        for labels, at, mine in zip(result, self.places, self.z):
            labels[at] = mine
        return Rowwise(result, self.n_labels, self._process(self._statistics(self.last), self.last))

    # --- the laws ----------------------------------------------------------------------------------------------------

    def _present(self, level: int) -> list[tuple]:
        """Return the (cells, labels) of the rows present after a batch, of each shard; not copied."""
        each = zip(self.rows, self.z, self.ends)
        return [(rows.part(0, ends[level]), z[: ends[level]]) for rows, z, ends in each]

    def _statistics(self, level: int) -> Statistics | None:
        """Return the statistics of the rows present after a batch; None if there are none."""
        if not self.n_labels:
            return None
        of = self._present(level), self.n_labels, self.subject.n_shards
        return sync.statistics(self.comm, self.components, *of)

    def _log_target(self, statistics: Statistics | None) -> float:
        """Return the log prior of a partition, concentration and discount integrated out, plus the log marginal
        likelihood of its rows' cells."""
        if statistics is None:
            return 0.0
        marginals = self.components.log_marginal(self.subject.hyper, statistics, self.components.everything)
        return self.law.log_prior(statistics.size) + sum(float(kind.sum()) for kind in marginals)

    def _process(self, statistics: Statistics, level: int, sub: int = 0) -> tuple[float, float]:
        """Draw concentration and discount given the sizes of clusters."""
        stream = generator(purpose=Purpose.PROCESS, sub=sub, **self._key(level))
        return self.comm.share(self.law.draw(statistics.size, self.law.start()[0], stream))

    def _swept(self, statistics: Statistics, level: int) -> Statistics:
        """Sweep the rows present after a batch; return their statistics."""
        each = self._present(level)
        shards = [Shard(shard.index, shard.start, rows) for shard, (rows, _) in zip(self.subject.shards, each)]
        pruning = Pruning(shards, self.components.categorical.offsets)
        key, discount = self._key(level), self._process(statistics, level)[1]
        drawn = self.following.parameters(statistics, key)
        z, _ = self.following.sweep(shards, [z for _, z in each], statistics, discount, key, drawn, pruning)
        for mine, labels in zip(self.z, z):
            mine[: len(labels)] = labels
        return self._statistics(level)

    # --- batches -----------------------------------------------------------------------------------------------------

    def _batch(self, level: int) -> list[tuple[int, int]]:
        """Return the first row of a batch, and its end, in each shard."""
        return [(ends[level - 1] if level else 0, ends[level]) for ends in self.ends]

    def _name(self, level: int) -> int:
        """Renumber the clusters of the rows present after a batch without gaps, those of the rows before the batch
        first; return the number of these."""
        batch = self._batch(level)
        n = max(self.comm.collect(1 + max((int(z.max(initial=-1)) for z in self.z), default=-1)))
        there = np.zeros((2, n), np.int64)  # rows before the batch, and in it
        for z, (first, end) in zip(self.z, batch):
            there[0] += np.bincount(z[:first], minlength=n)
            there[1] += np.bincount(z[first:end], minlength=n)
        self.comm.sum_everywhere(there)
        early, late = np.flatnonzero(there[0]), np.flatnonzero((there[0] == 0) & (there[1] > 0))
        name = np.zeros(n, np.int32)
        name[np.concatenate([early, late])] = np.arange(len(early) + len(late))
        for z, (_, end) in zip(self.z, batch):
            z[:end] = name[z[:end]]
        self.n_labels = len(early) + len(late)
        return len(early)

    def _seat(self, statistics: Statistics | None, level: int, follow: bool) -> float:
        """Draw the labels of a batch; return their log probability, on root. statistics: of the rows before it; None:
        there are none. follow: keep the batch's labels, of which those from n_labels on are its own clusters."""
        n_early, log_q = self.n_labels, 0.0
        process = self.law.start() if statistics is None else self._process(statistics, level, SEATING)
        late = [np.arange(*part) for part in self._batch(level)]
        if statistics is not None:
            tail = kernels.Tail(self.following.prior, *process, 0.0)
            tail.load(statistics)
            coins, parts = Stream(purpose=Purpose.TAKEN, **self._key(level)), np.zeros((len(self.z), 1))
            for i, (z, rows, (first, end)) in enumerate(zip(self.z, self.rows, self._batch(level))):
                picks = [np.zeros(0, np.int32)]
                for a in range(first, end, PIECE):
                    b = min(a + PIECE, end)
                    terms = kernels.log_predictive_clusters(rows.part(a, b), tail)
                    u = coins.uniforms(self.subject.shards[i].start + np.arange(a, b))
                    given = np.minimum(z[a:b], n_early).astype(np.int32) if follow else None
                    pick, part = kernels.take(terms, u, given)
                    parts[i, 0] += part
                    picks.append(pick)
                pick = np.concatenate(picks)
                if not follow:
                    z[first:end] = pick
                late[i] = first + np.flatnonzero(pick == n_early)
            total = exact_sum(self.comm, parts)
            log_q = 0.0 if total is None else float(total[0])
        n_late, more = self._seat_late(late, process, level, follow)
        self.n_labels += 0 if follow else n_late
        return log_q + more

    def _seat_late(
        self, late: Sequence[np.ndarray], process: tuple[float, float], level: int, follow: bool
    ) -> tuple[int, float]:
        """Seat rows that joined no cluster one by one among themselves, on root; return the number of new clusters and,
        on root, the log probability of their labels."""
        counts = self.comm.collect(sum(map(len, late)))
        if not sum(counts):
            return 0, 0.0
        rows = self.subject.to_root([places[at] for places, at in zip(self.places, late)])
        named = None
        if follow:
            mine = np.concatenate([z[at] for z, at in zip(self.z, late)] or [np.zeros(0, np.int32)])
            parts = self.comm.collect(mine)
            named = compact(np.concatenate(parts)) if self.comm.rank == 0 else None
        slots, log_q = None, 0.0
        if rows is not None:
            tail = kernels.Tail(self.following.prior, *process, 0.0)
            u = Stream(purpose=Purpose.LATE, **self._key(level)).uniforms(np.arange(len(rows)))
            nobody = np.full(len(rows), -1, np.int32)
            slots, log_q = kernels.seat(rows, tail, nobody, 0.0, u, named)
        if follow:
            return 0, log_q
        slots = self.comm.share(slots)
        start = sum(counts[: self.comm.rank])
        for z, at in zip(self.z, late):
            z[at] = self.n_labels + slots[start : start + len(at)]
            start += len(at)
        return int(slots.max()) + 1, log_q
