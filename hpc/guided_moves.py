"""Splits and merges of all clusters, or pairs of clusters, at once, along a launch from two seed rows.

1. A random grouping of the clusters into singles and pairs (grouping.py), and two seed rows a group: a single's are any
   two of its rows, a pair's one of each cluster.
2. The launch, a function of the group's rows, its seeds and a keyed stream, never of the present split: the seeds,
   or one against all others, then scans: every row of a random subset takes the side drawn from what the last scan's
   sides suggest.
3. Proposal: every row of a single draws its side from the predictive of the launch's sides; q is the probability of the
   sides taken. For a pair q is that of the present sides.
4. Root accepts the groups' splits and merges one after another.
"""

from __future__ import annotations

import numpy as np

from mpibayes.hpc import grouping
from mpibayes.hpc.cluster_book import Book
from mpibayes.hpc.models.statistics import Statistics, union
from mpibayes.hpc.shards import Shard
from mpibayes.hpc.split_odds import Launch, Odds, log_ratio, odds_of_predictive
from mpibayes.hpc.streams import Purpose, generator
from mpibayes.kernels import split as kernels

SCANS = 30  # of the launch
SUBSET = 4000  # rows of a group that shape its launch, on average
LONE = 0.75  # share of the launches that set one seed against all other rows
SHRINK = (2.0, 16.0)  # rows of the whole group that each side of a launch has besides its own, log-uniform
LEAST = 20.0  # rows that the smallest lone side is expected to begin with
FREE = 5  # scans before the sides' sizes count
CELLS = 2**23  # level rows x groups that are worked on at most
GROUPS, ACCEPT, LAUNCH = range(3)  # streams of Purpose.GUIDED
NOBODY = np.uint64(2**64 - 1)


class Guided(Book):
    def guided(self) -> None:
        groups = grouping.draw(self.n_labels, generator(**self._key(Purpose.GUIDED, GROUPS)))
        seeds, side_zero = self._seeds(groups)
        n_pairs = int((groups[:, 0] != groups[:, 1]).sum())
        ready = self._affordable(self._order(seeds), seeds)
        groups, seeds, side_zero = groups[ready], seeds[ready], side_zero[ready]
        n = len(groups)
        if n == 0:
            return
        single = groups[:, 0] == groups[:, 1]
        group, given = np.full(self.n_labels, -1, np.int32), np.full(self.n_labels, -1, np.int8)
        group[groups[:, 0]] = group[groups[:, 1]] = np.arange(n)
        pairs = np.flatnonzero(~single)
        given[groups[pairs, 0]] = side_zero[pairs] != groups[pairs, 0]
        given[groups[pairs, 1]] = side_zero[pairs] != groups[pairs, 1]
        odds = self._launch(groups, group, seeds)
        label, log_q = self._propose(group, given, seeds, odds, single)
        self._decide(groups, n_pairs, label, log_q)

    def _seeds(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(G, 2) rows, the lower id first (-1 where a group has fewer than two rows), and the first one's cluster."""
        found = [kernels.two_least(s.z, s.start, self.n_labels, **self._key(Purpose.SEEDS)) for s in self.shards]
        found = np.array(found, np.uint64).reshape(len(found), self.n_labels, 4)
        found = self.comm.gather_to_root(found, self._shards_of_ranks())
        out = np.full((len(groups), 3), -1, np.int64)
        if self.comm.rank == 0:
            word = found[:, :, :2].transpose(1, 0, 2).reshape(self.n_labels, -1)
            row = found[:, :, 2:].transpose(1, 0, 2).reshape(self.n_labels, -1)
            order = np.argsort(word, axis=1, kind="stable")[:, :2]
            word, row = (np.take_along_axis(a, order, axis=1) for a in (word, row))
            for g, (a, b) in enumerate(groups):
                if a == b and word[a, 1] == NOBODY:
                    continue
                i, j = (row[a, 0], row[a, 1]) if a == b else (row[a, 0], row[b, 0])
                out[g] = (i, j, a) if i < j else (j, i, b)
        self.comm.broadcast(out)
        return out[:, :2].copy(), out[:, 2]

    @staticmethod
    def _order(seeds: np.ndarray) -> np.ndarray:
        """The groups that have two rows, in the order in which they are accepted.

        It may depend on what moves keep, as seeds, but not on labels: whether a group is a single or a pair could show.
        """
        ready = np.flatnonzero(seeds[:, 0] >= 0)
        return ready[np.argsort(seeds[ready, 0])]

    def _affordable(self, ready: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """All groups, or where a table has very many levels, random ones, by words of the seeds, which moves keep."""
        most = max(1, CELLS // max(1, self.components.shape[0]))
        if len(ready) <= most:
            return ready
        word = kernels.words(seeds[ready, 0], **self._key(Purpose.SEEDS, 1))
        return ready[np.sort(np.argsort(word, kind="stable")[:most])]

    def _launch(self, groups, group, seeds) -> Odds:
        """Scan after scan on a subset of every group's rows; the log odds of the last one."""
        n_rows = np.where(groups[:, 0] == groups[:, 1], 1, 2)
        n_rows = self.size[groups].sum(axis=1) * n_rows // 2
        share = np.ones(self.n_labels)
        member = group >= 0
        share[member] = np.minimum(1.0, SUBSET / n_rows[group[member]])
        chosen = [self._subset(shard, group, share, seeds) for shard in self.shards]
        stream = generator(**self._key(Purpose.GUIDED, LAUNCH))
        lone = stream.random(len(groups)) < LONE
        n_chosen = np.minimum(n_rows, SUBSET)
        tilt = np.where(lone, np.log(np.minimum(LEAST / n_chosen, 1.0)) * stream.random(len(groups)), 0.0)
        shrink = np.exp(stream.uniform(*np.log(SHRINK), len(groups)))
        labels = [np.where(group[z] >= 0, group[z], -1).astype(np.int32) for _, z, _ in chosen]
        whole = self._total([(rows, z) for (rows, _, _), z in zip(chosen, labels)], len(groups))
        launch = Launch(self.components, whole, shrink) if whole is not None else None
        free = np.full(self.n_labels, -1, np.int8)  # nobody's side is given
        labels = [self._seeded(z, ids, group, seeds, lone) for _, z, ids in chosen]
        for scan in range(SCANS + 1):
            sides = self._total([(rows, z) for (rows, _, _), z in zip(chosen, labels)], 2 * len(groups))
            odds = None
            if launch is not None and scan < SCANS:
                odds = launch.odds(sides, log_ratio(sides) if scan >= FREE else tilt)
            elif launch is not None:
                odds = odds_of_predictive(self.components, self.hyper, sides)
            odds = self._broadcast(odds, groups)
            if scan < SCANS:
                given = group, free, seeds, odds, Purpose.SIDES, scan
                labels = [self._sides(rows, z, ids, *given)[0] for rows, z, ids in chosen]
        return odds

    def _subset(self, shard: Shard, group, share, seeds):
        """(rows, labels, row ids) of the rows of a shard that shape the launch: the seeds, and a random share."""
        ids = shard.start + np.arange(len(shard))
        keep = shard.z >= 0
        if (share < 1.0).any():
            keep &= self._uniforms(ids, Purpose.SUBSET) < share[np.maximum(shard.z, 0)]
        here = seeds[(seeds >= shard.start) & (seeds < shard.start + len(shard))] - shard.start
        keep[here] = True
        keep &= group[np.maximum(shard.z, 0)] >= 0
        chosen = np.flatnonzero(keep)
        whole = len(chosen) == len(shard)
        return shard.rows if whole else shard.rows.take(chosen), shard.z[chosen], ids[chosen]

    @staticmethod
    def _seeded(z, ids: np.ndarray, group, seeds: np.ndarray, lone) -> np.ndarray:
        """Where the launch begins: a seed a side, or one seed against all the other rows."""
        label = np.where(lone[group[z]], 2 * group[z], -1).astype(np.int32)
        flat = seeds.ravel()
        order = np.argsort(flat)
        at = np.minimum(np.searchsorted(flat[order], ids), len(flat) - 1)
        hit = flat[order][at] == ids
        label[hit] = order[at[hit]]
        return label

    def _propose(self, group, given, seeds, odds, single):
        """Labels 2 g + side on every shard, and on root log q of every group, summed in shard order."""
        labels, log_q = [], np.zeros((len(self.shards), len(seeds)))
        for i, shard in enumerate(self.shards):
            ids = shard.start + np.arange(len(shard))
            label, log_q[i] = self._sides(shard.rows, shard.z, ids, group, given, seeds, odds, Purpose.SIDES, SCANS)
            label[(label >= 0) & ~single[np.maximum(label, 0) >> 1]] = -1
            labels.append(label)
        log_q = self.comm.gather_to_root(log_q, self._shards_of_ranks())
        return labels, log_q.sum(axis=0) if self.comm.rank == 0 else None

    def _decide(self, groups, n_pairs: int, labels, log_q) -> None:
        """Accept or reject, group by group, and give the rows their labels."""
        n, k_before = len(groups), self.n_labels
        sides = self._total([(s.rows, z) for s, z in zip(self.shards, labels)], 2 * n)
        new = np.full(k_before + 2 * n, -1, np.int32)  # by old label, then by 2 g + side of a split
        if self.comm.rank == 0:
            self._accept(groups, n_pairs, log_q, sides, new)
        self.comm.broadcast(new)
        if (new < 0).all():  # nothing was accepted
            return
        self.changed = True
        old, split = new[:k_before], new[k_before:]
        self.n_labels = int(new.max()) + 1
        for shard, label in zip(self.shards, labels):
            taken = np.flatnonzero((label >= 0) & (split[np.maximum(label, 0)] >= 0))
            side = split[label[taken]]
            seated = shard.z >= 0
            shard.z[seated] = old[shard.z[seated]]
            shard.z[taken] = side

    def _accept(self, groups, n_pairs: int, log_q, sides: Statistics, new: np.ndarray) -> None:
        """Root's decisions; `new` is filled where one is accepted. n_pairs: of the whole grouping."""
        stream = generator(**self._key(Purpose.GUIDED, ACCEPT))
        base, k = self._enter(sides), self.n_labels
        pairs = np.flatnonzero(groups[:, 0] != groups[:, 1])
        one, two = (self.statistics.take([self.column[i] for i in groups[pairs, end]]) for end in (0, 1))
        joined = (
            self._enter(union(one, two, self.components.vectors.widths)) + np.cumsum(groups[:, 0] != groups[:, 1]) - 1
        )  # of each pair
        others = np.setdiff1d(np.arange(self.n_labels), groups)
        after = [(self.column[i], [i]) for i in others]  # of each new label: its column, its places in `new`
        for g, (a, b) in enumerate(groups):
            log_u, split = np.log(stream.random()), a == b
            if split:
                one, two, both = base + 2 * g, base + 2 * g + 1, self.column[a]
                apart = [(one, [self.n_labels + 2 * g]), (two, [self.n_labels + 2 * g + 1])]
            else:
                one, two = self.column[a], self.column[b]
                both = joined[g]
                apart = [(one, [a]), (two, [b])]
                k, n_pairs = k - 1, n_pairs - 1  # as seen from the merged side
            m, m_one, m_two = (float(self.statistics.size[c]) for c in (both, one, two))
            ratio = self._log_split(one, two, both, k) - log_q[g] + np.log(m * (m - 1.0) / (2.0 * m_one * m_two))
            ratio += grouping.log_probability(k + 1, n_pairs + 1) - grouping.log_probability(k, n_pairs)
            accepted = bool(log_u < (ratio if split else -ratio))
            self._count(split, accepted)
            if split == accepted:
                k, n_pairs = k + 1, n_pairs + 1
                after += apart
            else:
                after.append((both, [a, b]))
        if self.tally.splits or self.tally.merges:
            for label, (_, places) in enumerate(after):
                new[places] = label
            self.column = [column for column, _ in after]
