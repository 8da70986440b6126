"""Split and merge moves at the sync, on rows that live on many ranks (MATH 2.6; docs/split_merge.md derives them).

Weights and parameters are integrated out: the state is the partition alone, and the moves leave its posterior given
the hyperparameters invariant.

A round of `guided` moves:

1. a random grouping of the clusters into singles and pairs (grouping.py), and two seed rows a group: a single's are any
   two of its rows, a pair's one of each cluster;
2. the launch, a function of the group's rows, its seeds and a keyed stream, never of the present split: the seeds alone,
   then `scans` times: every row of a random subset takes the side drawn from the predictive of the last scan's sides;
3. proposal: every row of a single draws its side from the predictive of the launch's sides; q is the probability of the
   sides taken. For a pair q is that of the present sides;
4. root accepts the groups' splits and merges one after another.

`informed` moves follow: a cluster is joined with one chosen by the gain in marginal likelihood. The reverse is a split by
a Polya urn that deals a part of the rows, the rest being drawn given these. Most are rejected on root at once; the few
others pass over the rows of two clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from scipy.special import gammaln, logsumexp

from mpibayes.hpc import grouping, sync
from mpibayes.hpc import shards as cut
from mpibayes.hpc.comm import Communicator
from mpibayes.hpc.models import normal as reals
from mpibayes.hpc.models.components import Components, Hyper
from mpibayes.hpc.models.grid import draw_on_grid
from mpibayes.hpc.models.statistics import Statistics, join, union
from mpibayes.hpc.shards import Shard
from mpibayes.hpc.streams import Purpose, generator
from mpibayes.kernels import split as kernels

SCANS = 10  # of the launch
SUBSET = 4000  # rows of a group that shape its launch, on average
LONE = 0.5  # share of the launches that set one seed against all other rows
SHRINK = (2.0, 16.0)  # rows of the whole group that each side of a launch has besides its own, log-uniform
LEAST = 20.0  # rows that the smallest lone side is expected to begin with
FREE = 5  # scans before the sides' sizes count
INFORMED = 8  # informed steps a round
INFORMED_SPLITS = 1.0 / 32  # share of them that propose a split
RECALLED = 0.35  # share of the rows whose sides an informed step recalls, and the least number of them: from a third of the
RECALLED_ROWS = 256  # rows the others follow, and fewer rows cost less when an urn has to deal them
CELLS = 2**23  # level rows x groups that a round works on at most
GROUPS, ACCEPT, LAUNCH, COINS, STEPS = range(5)  # streams of Purpose.MOVES; a step's is STEPS plus its number
NOBODY = np.uint64(2**64 - 1)


@dataclass
class Tally:
    """Moves of one round, and those accepted."""

    splits_tried: int = 0
    splits: int = 0
    merges_tried: int = 0
    merges: int = 0


@dataclass
class Odds:
    """Log odds of side 1 in every group, as kernels/split.pyx reads them.

    A row's log odds: prior + sum of table at its level rows + sum over reals of real[0] - real[2] (x - real[1])^2
    + real[4] (x - real[3])^2 + sum over counts of x count[0] - count[1].
    """

    prior: np.ndarray  # (G,) float64
    table: np.ndarray  # (G, L) float32
    real: np.ndarray  # (G, R, 5) float64
    count: np.ndarray  # (G, Q, 2) float64


def odds_of_predictive(components: Components, hyper: Hyper, sides: Statistics) -> Odds:
    """Log odds of clusters 1, 3, 5, ... of `sides` against 0, 2, 4, ...: posterior means plugged in."""
    table = components.categorical.log_predictive_table(hyper.dirichlet, sides.levels)
    location, kappa, nu, spread = reals.posterior(hyper.normal, sides.real_n, sides.real_mean, sides.real_scatter)
    rate = (hyper.gamma[:, 0, None] + sides.tally_sum) / (hyper.gamma[:, 1, None] + sides.tally_n)
    return _odds(_log_ratio(sides), table, location, spread * (kappa + 1.0) / (nu * kappa), rate)


def odds_of_launch(components: Components, whole: Statistics, sides: Statistics, prior, shrink) -> Odds:
    """The same, each side being shrunk to the distribution of its group, `whole`, as if by `shrink` (G,) rows of it.

    The hyperparameters have no part in it: while one cluster holds everything, they fit that cluster, and would hide
    what sets a few of its rows apart.
    """
    both, weight = whole.take(np.repeat(np.arange(len(whole)), 2)), np.repeat(shrink, 2)
    c = components.categorical
    even = np.full(len(c.n_levels), 0.5)
    mean = weight * np.exp(c.log_predictive_table(even, both.levels))
    table = np.log(mean + sides.levels)
    if len(c.n_levels):
        table -= np.log(weight + c.observed(sides.levels))[c.column_of_row]
    table[c.missing_rows] = 0.0
    share = weight / (weight + sides.real_n)
    step = np.where(sides.real_n > 0, sides.real_mean - both.real_mean, 0.0)
    location = both.real_mean + (1.0 - share) * step
    width = (both.real_scatter + 1e-9) / np.maximum(both.real_n, 1)
    variance = share * (width + (1.0 - share) * step**2) + sides.real_scatter / (weight + sides.real_n)
    variance = np.maximum(variance, 1e-6 * width + 1e-300)
    rate = (sides.tally_sum + weight * (both.tally_sum + 0.5) / (both.tally_n + 1.0)) / (weight + sides.tally_n)
    return _odds(prior, table, location, variance, rate)


def _log_ratio(sides: Statistics) -> np.ndarray:
    return np.log(sides.size[1::2] / sides.size[0::2])


def _odds(prior: np.ndarray, table: np.ndarray, location, variance, rate) -> Odds:
    half, log_rate = 0.5 / variance, np.log(rate)
    level = 0.5 * np.log(half[:, 1::2] / half[:, 0::2])
    real = [level, location[:, 1::2], half[:, 1::2], location[:, 0::2], half[:, 0::2]]
    count = [log_rate[:, 1::2] - log_rate[:, 0::2], rate[:, 1::2] - rate[:, 0::2]]
    return Odds(
        prior,
        np.ascontiguousarray((table[:, 1::2] - table[:, 0::2]).T, np.float32),
        np.ascontiguousarray(np.stack(real).transpose(2, 1, 0)),
        np.ascontiguousarray(np.stack(count).transpose(2, 1, 0)),
    )


class Round:
    """One round of moves on the labels of all shards. Collective; the labels of `shards` are changed in place.

    statistics (root) and size (everywhere) are of clusters 0..K-1, the labels; idle rows have negative ones. After
    `run`, labels are 0..n_labels-1, every one with rows, and `tally` says what happened (on root).
    """

    def __init__(
        self, comm: Communicator, shards: Sequence[Shard], components: Components, hyper: Hyper, size, statistics,
        n_shards: int, *, seed: int, cycle: int, chain: int,
    ):  # fmt: skip
        self.comm, self.shards, self.components, self.hyper = comm, shards, components, hyper
        self.n_shards, self.key = n_shards, {"seed": seed, "cycle": cycle, "chain": chain}
        self.tally = Tally()
        self.changed = False
        self._open_ledger(size, statistics)

    def run(self) -> None:
        self._guided()
        self._informed()

    # --- what root knows of the clusters -----------------------------------------------------------------------------

    def _open_ledger(self, size: np.ndarray, statistics: Statistics | None) -> None:
        """Root's book of clusters: a column of statistics for each that is or was proposed."""
        occupied = np.flatnonzero(size)
        if len(occupied) < len(size):
            self._relabel(np.where(size > 0, np.cumsum(size > 0) - 1, -1))
            self.changed = True
            statistics = statistics.take(occupied) if statistics is not None else None
        self.n_labels = len(occupied)
        self.size = size[occupied]
        if self.comm.rank == 0:
            self.statistics = statistics
            self.log_f = self.components.log_marginal_clusters(self.hyper, statistics)
            self.column = list(range(self.n_labels))  # of each label

    def _enter(self, statistics: Statistics) -> int:
        """Put clusters into the book; the column of the first."""
        first = len(self.log_f)
        self.statistics = join([self.statistics, statistics])
        self.log_f = np.append(self.log_f, self.components.log_marginal_clusters(self.hyper, statistics))
        return first

    def _log_split(self, column_a: int, column_b: int, column_both: int, n_before: int) -> float:
        """Log of the posterior with the cluster split over that with it whole; n_before: clusters before the split."""
        d, m = self.hyper.discount, self.statistics.size
        prior = np.log(self.hyper.concentration + n_before * d) - gammaln(1.0 - d) - gammaln(m[column_both] - d)
        prior += gammaln(m[column_a] - d) + gammaln(m[column_b] - d)
        return float(prior + self.log_f[column_a] + self.log_f[column_b] - self.log_f[column_both])

    def _relabel(self, label: np.ndarray) -> None:
        """Rename the clusters on this rank's shards; idle rows stay idle."""
        label = label.astype(np.int32)
        for shard in self.shards:
            seated = shard.z >= 0
            shard.z[seated] = label[shard.z[seated]]

    # --- guided moves ------------------------------------------------------------------------------------------------

    def _guided(self) -> None:
        groups = grouping.draw(self.n_labels, generator(**self._key(Purpose.MOVES, GROUPS)))
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
        odds = self._launch(groups, group, np.full(self.n_labels, -1, np.int8), seeds)
        label, log_q = self._propose(group, given, seeds, odds, single)
        self._decide(groups, n_pairs, label, log_q)

    def _key(self, purpose: Purpose, sub: int = 0) -> dict:
        return {"purpose": purpose, "sub": sub, **self.key}

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

    def _shards_of_ranks(self) -> list[int]:
        size = self.comm.size
        return [len(cut.of_rank(self.n_shards, size, r)) for r in range(size)]

    def _launch(self, groups, group, free, seeds) -> Odds:
        """Scan after scan on a subset of every group's rows; the log odds of the last one."""
        n_rows = np.where(groups[:, 0] == groups[:, 1], 1, 2)
        n_rows = self.size[groups].sum(axis=1) * n_rows // 2
        share = np.ones(self.n_labels)
        member = group >= 0
        share[member] = np.minimum(1.0, SUBSET / n_rows[group[member]])
        chosen = [self._subset(shard, group, share, seeds) for shard in self.shards]
        stream = generator(**self._key(Purpose.MOVES, LAUNCH))
        lone = stream.random(len(groups)) < LONE
        n_chosen = np.minimum(n_rows, SUBSET)
        tilt = np.where(lone, np.log(np.minimum(LEAST / n_chosen, 1.0)) * stream.random(len(groups)), 0.0)
        shrink = np.exp(stream.uniform(*np.log(SHRINK), len(groups)))
        labels = [np.where(group[z] >= 0, group[z], -1).astype(np.int32) for _, z, _ in chosen]
        whole = self._total([(rows, z) for (rows, _, _), z in zip(chosen, labels)], len(groups))
        labels = [self._seeded(z, ids, group, seeds, lone) for _, z, ids in chosen]
        for scan in range(SCANS + 1):
            sides = self._total([(rows, z) for (rows, _, _), z in zip(chosen, labels)], 2 * len(groups))
            odds = None
            if sides is not None and scan < SCANS:
                odds = odds_of_launch(self.components, whole, sides, _log_ratio(sides) if scan >= FREE else tilt, shrink)
            elif sides is not None:
                odds = odds_of_predictive(self.components, self.hyper, sides)
            odds = self._broadcast(odds, groups)
            if scan < SCANS:
                labels = [
                    self._sides(rows, z, ids, group, free, seeds, odds, scan)[0] for rows, z, ids in chosen
                ]  # fmt: skip
        return odds

    def _subset(self, shard: Shard, group, share, seeds):
        """(rows, labels, row ids) of the rows of a shard that shape the launch: the seeds, and a random share."""
        ids = shard.start + np.arange(len(shard))
        keep = shard.z >= 0
        if (share < 1.0).any():
            chance = (kernels.words(ids, **self._key(Purpose.SUBSET)) >> np.uint64(11)) * 2.0**-53
            keep &= chance < share[np.maximum(shard.z, 0)]
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

    def _total(self, labelled, k: int) -> Statistics | None:
        c = self.components
        return sync.total_statistics(self.comm, labelled, k, c.shape, c.categorical.offsets, self.n_shards)

    def _broadcast(self, odds: Odds | None, groups: np.ndarray) -> Odds:
        n, (n_levels, n_real, n_count) = len(groups), self.components.shape
        if odds is None:
            odds = Odds(
                np.empty(n), np.empty((n, n_levels), np.float32), np.empty((n, n_real, 5)), np.empty((n, n_count, 2))
            )
        for field in fields(Odds):
            array = getattr(odds, field.name)
            if array.size:
                self.comm.broadcast(array)
        return odds

    def _sides(self, rows, z, ids, group, given, seeds, odds, scan: int):
        offsets = self.components.categorical.offsets
        return kernels.sides(rows, z, ids, group, given, seeds, odds, offsets, **self._key(Purpose.SIDES, scan))

    def _propose(self, group, given, seeds, odds, single):
        """Labels 2 g + side on every shard, and on root log q of every group, summed in shard order."""
        labels, log_q = [], np.zeros((len(self.shards), len(seeds)))
        for i, shard in enumerate(self.shards):
            ids = shard.start + np.arange(len(shard))
            label, log_q[i] = self._sides(shard.rows, shard.z, ids, group, given, seeds, odds, SCANS)
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
        stream = generator(**self._key(Purpose.MOVES, ACCEPT))
        base, k = self._enter(sides), self.n_labels
        others = np.setdiff1d(np.arange(self.n_labels), groups)
        after = [(self.column[i], [i]) for i in others]  # of each new label: its column, its places in `new`
        for g, (a, b) in enumerate(groups):
            log_u, split = np.log(stream.random()), a == b
            if split:
                one, two, both = base + 2 * g, base + 2 * g + 1, self.column[a]
                apart = [(one, [self.n_labels + 2 * g]), (two, [self.n_labels + 2 * g + 1])]
            else:
                one, two = self.column[a], self.column[b]
                both = self._enter(union(self.statistics.take([one]), self.statistics.take([two])))
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

    def _count(self, split: bool, accepted: bool) -> None:
        kind = "splits" if split else "merges"
        setattr(self.tally, f"{kind}_tried", getattr(self.tally, f"{kind}_tried") + 1)
        setattr(self.tally, kind, getattr(self.tally, kind) + int(accepted))

    # --- informed moves ----------------------------------------------------------------------------------------------

    def _informed(self) -> None:
        """Steps that each propose to join two alike clusters or, by a coin, a split of the kind that undoes it.

        Two clusters of one kind that differ by chance alone, as sweeps leave them, have a border that no launch from two
        seeds finds again. So some of the rows keep the present sides; when a split is proposed, an urn deals them. The
        other rows are drawn given these.
        """
        steps = min(INFORMED, max(1, CELLS // (512 * max(1, self.components.shape[0]))))
        coins = generator(**self._key(Purpose.MOVES, COINS)).random(steps)
        for step in range(steps):
            stream = generator(**self._key(Purpose.MOVES, STEPS + step))
            if coins[step] < INFORMED_SPLITS:
                self._informed_split(step, stream)
            else:
                self._informed_merge(step, stream)

    def _informed_merge(self, step: int, stream: np.random.Generator) -> None:
        k, log_u = self.n_labels, np.log(stream.random())
        pair, both, bound = np.full(2, -1, np.int64), -1, 0.0
        if k > 1 and self.comm.rank == 0:
            a = int(stream.integers(k))
            joined, gain = self._gains(a)
            b = int(draw_on_grid(gain[None], stream)[0])
            both = self._enter(joined.take([b]))
            bound = -self._log_split(self.column[a], self.column[b], both, k - 1)
            bound += self._log_proposals(k - 1, self._log_choice(gain, b))
            if log_u < bound:  # the choice can also be made from the other's side, which takes longer to work out
                choices = self._log_choice(gain, b), self._log_choice(self._gains(b)[1], a)
                bound += choices[0] - np.logaddexp(*choices)
            if log_u < bound:  # a merge that would be accepted if the split were sure to find the border
                pair[:] = a, b
            else:
                self._count(False, False)
        self.comm.broadcast(pair)
        if pair[0] < 0:
            return
        _, log_q = self._recalled_sides(pair, None, step)
        label = np.arange(k)
        if self.comm.rank == 0:
            accepted = bool(log_u < bound + log_q)
            self._count(False, accepted)
            if accepted:
                a, b = (int(i) for i in np.sort(pair))
                self.column[a] = both
                del self.column[b]
                label = np.where(label == b, a, label - (label > b))
        self.comm.broadcast(label)
        if label[-1] != k - 1:
            self.changed, self.n_labels = True, k - 1
            self._relabel(label)

    def _informed_split(self, step: int, stream: np.random.Generator) -> None:
        k, log_u = self.n_labels, np.log(stream.random())
        cluster, bias = int(stream.integers(k)), stream.random()
        sides_of_rows, log_q = self._recalled_sides(np.array([cluster, cluster]), bias, step)
        sides = self._total([(s.rows, z) for s, z in zip(self.shards, sides_of_rows)], 2)
        accepted = np.zeros(1, np.int64)
        if self.comm.rank == 0 and (sides.size > 0).all():
            whole, one = self.column[cluster], self._enter(sides)
            self.column[cluster] = one
            self.column.append(one + 1)
            choices = [self._log_choice(self._gains(i)[1], j) for i, j in ((cluster, k), (k, cluster))]
            ratio = self._log_split(one, one + 1, whole, k) - log_q - self._log_proposals(k, np.logaddexp(*choices))
            accepted[0] = log_u < ratio
            self._count(True, bool(accepted[0]))
            if not accepted[0]:
                self.column.pop()
                self.column[cluster] = whole
        self.comm.broadcast(accepted)
        if accepted[0]:
            self.changed, self.n_labels = True, k + 1
            for shard, side in zip(self.shards, sides_of_rows):
                shard.z[side == 1] = k

    def _gains(self, label: int) -> tuple[Statistics, np.ndarray]:
        """A cluster joined with each of the others: statistics, and the log of what that does to the likelihood."""
        column = self.column[label]
        joined = union(self.statistics.take(self.column), self.statistics.take([column]))
        gain = self.components.log_marginal_clusters(self.hyper, joined)
        gain -= self.log_f[self.column] + self.log_f[column]
        gain[label] = -np.inf
        return joined, gain

    @staticmethod
    def _log_choice(gain: np.ndarray, other: int) -> float:
        return float(gain[other] - logsumexp(gain))

    @staticmethod
    def _log_proposals(n_before: int, log_choice: float) -> float:
        """Log of how often the split is proposed, but for its sides, against the merge; n_before: clusters before it."""
        split, merge = np.log(INFORMED_SPLITS / n_before), np.log1p(-INFORMED_SPLITS) - np.log(n_before + 1.0)
        return float(split - merge - log_choice)

    @staticmethod
    def _log_urn(n_zero: float, n_one: float) -> float:
        """Log probability of these sides of some rows, one by one, by an urn that starts with a ball a side."""
        return float(gammaln(n_zero + 1.0) + gammaln(n_one + 1.0) - gammaln(n_zero + n_one + 2.0))

    def _recalled_sides(self, pair: np.ndarray, bias: float | None, step: int) -> tuple[list[np.ndarray], float]:
        """The side (0, 1; -1: no member) of every row of a pair of clusters, and on root log q of these sides.

        The first row of all has side 0. A random share of the others has the present sides or, where a split is proposed,
        those that a coin of this bias gives them; the rest is drawn from the predictive of these, or has the present sides.
        """
        members = [(s.z == pair[0]) | (s.z == pair[1]) for s in self.shards]
        n_rows, first, cluster = self._first_row(members)
        share = max(RECALLED, min(1.0, RECALLED_ROWS / n_rows))
        present, recalled, counts = [], [], np.zeros((len(self.shards), 2), np.int64)
        for i, (shard, member) in enumerate(zip(self.shards, members)):
            ids = shard.start + np.arange(len(shard))
            head = ids == first
            keep = member & ~head & (self._uniforms(ids, Purpose.SUBSET, 1 + step) < share)
            side = shard.z != cluster if bias is None else self._uniforms(ids, Purpose.SIDES, SCANS + 1 + 2 * step) < bias
            counts[i] = (keep & ~side).sum(), (keep & side).sum()
            present.append(side.astype(np.int32))
            recalled.append(np.where(keep, present[-1], np.where(head, 0, -1)).astype(np.int32))
        sides = self._total([(s.rows, z) for s, z in zip(self.shards, recalled)], 2)
        if sides is not None:
            sides.size = sides.size + 1  # a side of which nothing is recalled
            sides = odds_of_predictive(self.components, self.hyper, sides)
        odds = self._broadcast(sides, pair[None])
        labels, log_q = [], np.zeros((len(self.shards), 1))
        given = np.array([0, 1] if bias is None else [-1, -1], np.int8)
        for i, (shard, member, side, known) in enumerate(zip(self.shards, members, present, recalled)):
            z = np.where(member & (known < 0), side, -1).astype(np.int32)
            ids, nobody = shard.start + np.arange(len(shard)), np.full((1, 2), -1, np.int64)
            label, log_q[i] = self._sides(
                shard.rows, z, ids, np.zeros(2, np.int32), given, nobody, odds, SCANS + 2 + 2 * step
            )
            labels.append(np.where(known >= 0, known, label))
        lengths = self._shards_of_ranks()
        log_q, counts = self.comm.gather_to_root(log_q, lengths), self.comm.gather_to_root(counts, lengths)
        if self.comm.rank != 0:
            return labels, 0.0
        return labels, float(log_q.sum()) + self._log_urn(*counts.sum(axis=0).astype(float))

    def _uniforms(self, ids: np.ndarray, purpose: Purpose, sub: int) -> np.ndarray:
        return (kernels.words(ids, **self._key(purpose, sub)) >> np.uint64(11)) * 2.0**-53

    def _first_row(self, members: list[np.ndarray]) -> tuple[int, int, int]:
        """Rows of all members, the first one's id, and its cluster; on every rank."""
        found = [(m.sum(), s.start + m.argmax(), s.z[m.argmax()]) for s, m in zip(self.shards, members) if len(s)]
        found = self.comm.gather_to_root(np.array(found, np.int64).reshape(-1, 3), self._shards_of_ranks())
        head = np.zeros(3, np.int64)
        if self.comm.rank == 0:
            head[:] = found[:, 0].sum(), *found[np.flatnonzero(found[:, 0])[0], 1:]
        self.comm.broadcast(head)
        return tuple(int(h) for h in head)
