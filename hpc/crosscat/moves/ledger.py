"""State shared by the moves of a round: the ledger of clusters, and the sides of rows on all ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from mpibayes.hpc.components.grid import pick_on_grid
from mpibayes.hpc.components.statistics import Statistics, join
from mpibayes.hpc.crosscat.moves.odds import Odds, both_sides
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.common.functions import gammaln
from mpibayes.kernels.mixture import split as kernels

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.view.view import View
    from mpibayes.hpc.outcome.branching import Branches
    from mpibayes.hpc.outcome.outcome import Outcome

T = TypeVar("T")
MOST_NUMBERS = 4  # most numbers sent per step
FEW_ROWS = 4096  # up to which both sides of a split are counted at once, which takes fewer calls
CELLS = 2**21  # approximate most numbers in the statistics of joined clusters computed at once


@dataclass
class Tally:
    """Numbers of moves tried and accepted in one round."""

    splits_tried: int = 0
    splits: int = 0
    merges_tried: int = 0
    merges: int = 0


@dataclass(frozen=True)
class Labelled:
    """Pairs (rows, labels), one for each of this rank's shards; `label(i)` computes the labels of the i-th."""

    shards: Sequence[Shard]
    label: Callable[[int], np.ndarray]

    def __iter__(self) -> Iterator[tuple[object, np.ndarray]]:
        return ((shard.rows, self.label(i)) for i, shard in enumerate(self.shards))


class Cluster(NamedTuple):
    """Terms of a cluster in the posterior: `size` rows, and the log marginal likelihood of their cells."""

    size: Any
    log_f: Any


class Pairs(NamedTuple):
    """Merges that several steps propose, (N,) each: cluster `two` is chosen to join `one`. log_u: log of the uniform
    number that decides; log_choice: log probability of choosing `two`; log_split: log posterior ratio of the split that
    undoes the merge."""

    log_u: np.ndarray
    one: np.ndarray
    two: np.ndarray
    log_choice: np.ndarray
    log_split: np.ndarray


class Ledger:
    """The clusters of a view in a round, on every rank. Rows' labels, `z` of each shard, are changed in place.

    `statistics` and `log_f` have a column for each cluster that exists or was proposed in the round; `column[k]` is the
    column of label k. The last bit of `log_f` may differ between processors, so one rank makes the decisions that
    depend on it. Labels are 0..n_labels-1, none empty; idle rows have negative labels. `tally` is valid on root.
    """

    def __init__(self, view: View, cycle: int, outcome: Outcome | None = None):
        """outcome: the outcome model, if any; it also judges moves that the columns accept, and holds the clusters'
        coefficients."""
        self.outcome, self._judged = outcome, 0
        self.comm, self.components, self.hyper = view.comm, view.components, view.hyper
        self.shards, self.z, self.n_shards, self.key = view.shards, view.z, view.n_shards, view.key(cycle)
        self.tally = Tally()
        self.changed = False
        self._known, self._found = [], {}  # `once`: the columns of all labels, and results cached for them
        self._open(view.partition.size, view.partition.statistics)

    def _open(self, size: np.ndarray, statistics: Statistics) -> None:
        occupied = np.flatnonzero(size)
        if len(occupied) < len(size):
            self.relabel(np.where(size > 0, np.cumsum(size > 0) - 1, -1))
            self.changed = True
            statistics = statistics.take(occupied)
        self.n_labels = len(occupied)
        self.size = size[occupied]
        self.statistics = statistics
        self.met = self.components.categorical.met(statistics.levels)  # level rows of the rows with labels
        self.log_f = self.components.log_marginal_clusters(self.hyper, statistics)
        self.column = list(range(self.n_labels))  # of each label

    def enter(self, statistics: Statistics) -> int:
        """Append clusters to the ledger; return the column of the first."""
        first = len(self.log_f)
        self.statistics = join([self.statistics, statistics])
        self.log_f = np.append(self.log_f, self.components.log_marginal_clusters(self.hyper, statistics))
        return first

    def cluster(self, column: int | np.ndarray) -> Cluster:
        """Return the cluster of a column, or arrays for several columns."""
        return Cluster(self.statistics.size[column], self.log_f[column])

    def log_split(self, one: Cluster, two: Cluster, both: Cluster, n_before: int):
        """Return the log posterior ratio of a split, after over before; n_before: clusters before the split."""
        return self.log_opening(n_before) + self.log_parts(one, two, both)

    def log_opening(self, n_before: int) -> float:
        """Return the term of `log_split` that depends on the number of clusters."""
        d = self.hyper.discount
        return math.log(self.hyper.concentration + n_before * d) - gammaln(1.0 - d)

    def log_parts(self, one: Cluster, two: Cluster, both: Cluster):
        """Return the terms of `log_split` that depend on the clusters; for arrays of clusters, an array."""
        d = self.hyper.discount
        sizes = gammaln(one.size - d) + gammaln(two.size - d) - gammaln(both.size - d)
        return sizes + (one.log_f + two.log_f - both.log_f)

    def sizes(self) -> np.ndarray:
        """Return the number of rows of each cluster, (K,)."""
        return self.statistics.size[self.column]

    def once(self, work: Callable[..., object], *of: Hashable):
        """Return work(ledger, *of), cached until the clusters change."""
        if self._known != self.column:
            self._known, self._found = list(self.column), {}
        if (work, of) not in self._found:
            self._found[work, of] = work(self, *of)
        return self._found[work, of]

    def of_each(self, work: Callable[[Ledger, list[int]], Iterable[T]], labels: Sequence[int]) -> list[T]:
        """Return the results of work(ledger, labels), one per label, read-only. Results are cached until the clusters
        change; missing ones are computed together."""
        known = self.once(_none_yet, work)
        new = [label for label in dict.fromkeys(labels) if label not in known]
        if new:
            known.update(zip(new, work(self, new)))
        return [known[label] for label in labels]

    def pairs(
        self, purpose: Purpose, steps: Sequence[int], weights_of: Callable[[Ledger, list[int]], Iterable[np.ndarray]]
    ) -> Pairs:
        """Draw a merge for each step: any cluster, and one to join it by the log weights that `weights_of` returns for
        it, (K,). There are two clusters or more."""
        begun = kernels.begin_steps(np.add(steps, 1), self.n_labels, **self.key, purpose=purpose)
        log_u, one, u = np.log(begun[0]), begun[1], begun[2]
        weights = np.array(self.of_each(weights_of, one.tolist()))
        two, step = pick_on_grid(weights, u), np.arange(len(one))
        gain = np.array(self.of_each(gains_of, one.tolist()))[step, two]
        a, b = self.sizes()[[one, two]]
        split = self.log_split(Cluster(a, 0.0), Cluster(b, 0.0), Cluster(a + b, gain), self.n_labels - 1)
        return Pairs(log_u, one, two, log_choice(weights, two), split)

    def either_way(
        self, pairs: Pairs, which: np.ndarray, weights_of: Callable[[Ledger, list[int]], Iterable[np.ndarray]]
    ) -> np.ndarray:
        """Return log probabilities of some pairs, whichever of the clusters is first, over `log_choice`, that of one
        way."""
        if not len(which):
            return np.zeros(0)
        back = np.array(self.of_each(weights_of, pairs.two[which].tolist()))
        one_way = pairs.log_choice[which]
        return np.logaddexp(one_way, log_choice(back, pairs.one[which])) - one_way

    def join(self, one: int, two: int) -> None:
        """Merge two clusters."""
        a, b = sorted((one, two))
        each = (self.statistics.take([self.column[label]]) for label in (two, one))
        self.column[a] = self.enter(self.components.union(*each))
        del self.column[b]
        label = np.arange(self.n_labels)
        self.relabel(np.where(label == b, a, label - (label > b)))
        self.changed, self.n_labels = True, self.n_labels - 1

    def part(self, cluster: int, sides: Sequence[np.ndarray], column: int) -> None:
        """Split a cluster: rows of side 1 get a new label. sides: of each shard. column: of side 0; side 1 has the
        next."""
        self.column[cluster] = column
        self.column.append(column + 1)
        for z, side in zip(self.z, sides):
            z[side == 1] = self.n_labels
        self.changed, self.n_labels = True, self.n_labels + 1

    def relabel(self, label: np.ndarray) -> None:
        """Rename the clusters on this rank's shards; idle rows stay idle."""
        label = label.astype(np.int32)
        for z in self.z:
            seated = z >= 0
            z[seated] = label[z[seated]]

    def agreed(self, accepted: bool) -> bool:
        """Return root's decision on every rank. Collective."""
        message = np.array([accepted], np.int64)
        self.comm.broadcast(message)
        return bool(message[0])

    def steps(
        self, splits: np.ndarray, weigh: Callable[[Ledger, Sequence[int]], Sequence[tuple | None]]
    ) -> Iterator[tuple[int, list]]:
        """Yield the steps that are not rejected at once: the number of each, and its weights.

        splits: mask of the steps that propose a split, which are never rejected at once. weigh(ledger, steps): returns
        up to `MOST_NUMBERS` numbers for each step that proposes a merge of the present clusters, or None to reject it.
        Steps are weighed ahead, in parallel over ranks, and again after a step has changed the clusters. Collective.
        """
        after = 0
        while after < len(splits):
            column, merges = list(self.column), after + np.flatnonzero(~splits[after:])
            cut = np.arange(self.comm.size + 1) * len(merges) // self.comm.size
            weights = np.zeros((len(merges), 1 + MOST_NUMBERS))
            mine = range(cut[self.comm.rank], cut[self.comm.rank + 1])
            for i, numbers in zip(mine, weigh(self, merges[mine.start : mine.stop].tolist())):
                if numbers is not None:
                    weights[i, : 1 + len(numbers)] = True, *numbers
            self.comm.share_rows(weights, cut)
            found_of = dict(zip(merges.tolist(), weights.tolist()))
            while after < len(splits) and self.column == column:
                step, after = after, after + 1
                proposed, *numbers = found_of.get(step, [True])
                if proposed:
                    yield step, numbers
                elif self.n_labels > 1:
                    self.count(False, False)

    def count(self, split: bool, accepted: bool) -> None:
        kind = "splits" if split else "merges"
        setattr(self.tally, f"{kind}_tried", getattr(self.tally, f"{kind}_tried") + 1)
        setattr(self.tally, kind, getattr(self.tally, kind) + int(accepted))

    # --- an outcome ---------------------------------------------------------------------------------------------------

    def judge(self, z: Sequence[np.ndarray], present: np.ndarray, is_split: np.ndarray) -> tuple[Branches, np.ndarray]:
        """Propose coefficients for groups of rows (see `branches`); return them, and a mask of the moves that the
        outcome accepts, on every rank. Collective."""
        from mpibayes.hpc.outcome.branching import branches

        stream = generator(**self.stream(Purpose.OUTCOME_MOVES, self._judged))
        self._judged += 1
        log_u = np.log(stream.random(len(is_split)))
        of = branches(self.outcome, z, present, is_split, stream)
        accepted = (log_u < np.where(is_split, of.log_factor, -of.log_factor)).astype(np.int64)
        self.comm.broadcast(accepted)  # the last bit of a logarithm may differ between processors
        return of, accepted > 0

    def joined(self, one: int, two: int) -> bool:
        """Judge a merge that the columns accept, and update the coefficients; True without an outcome."""
        if self.outcome is None:
            return True
        a, b = sorted((one, two))
        z = [np.where(z == a, 0, np.where(z == b, 1, -1)).astype(np.int32) for z in self.z]
        theta = self.outcome.theta
        of, (accepted,) = self.judge(z, theta[[a, b]][None], np.array([False]))
        if accepted:
            self.outcome.theta = np.delete(theta, b, axis=0)
            self.outcome.theta[a] = of.whole[0]
        return bool(accepted)

    def parted(self, cluster: int, sides: Sequence[np.ndarray]) -> bool:
        """Judge a split that the columns accept, and update the coefficients; True without an outcome."""
        if self.outcome is None:
            return True
        theta = self.outcome.theta
        of, (accepted,) = self.judge(
            [s.astype(np.int32) for s in sides], theta[[cluster, cluster]][None], np.array([True])
        )
        if accepted:
            self.outcome.theta = np.concatenate([theta, of.halves[0, 1:]])
            self.outcome.theta[cluster] = of.halves[0, 0]
        return bool(accepted)

    # --- rows --------------------------------------------------------------------------------------------------------

    def stream(self, purpose: Purpose, sub: int = 0) -> dict:
        return {"purpose": purpose, "sub": sub, **self.key}

    def total(self, labelled, k: int) -> Statistics | None:
        """Return the statistics of clusters 0..k-1, on root."""
        return sync.total_statistics(self.comm, self.components, labelled, k, self.n_shards, self.met)

    def total_sides(self, sides: Sequence[np.ndarray], group: np.ndarray, label: Sequence[int]) -> Statistics:
        """Return the statistics of sides 0 and 1 of every group, as clusters 2 g and 2 g + 1, on every rank.

        sides: of every row of this rank's shards, -1 for none. group: of each label, or -1. label: of each group; -1 if
        its rows have no sides, else all have.
        """

        many, one_shard = len(label) > 1, self.n_shards == self.comm.size == 1

        def both(i: int) -> np.ndarray:
            of_group = group[np.maximum(self.z[i], 0)] if many else 0
            return np.where(sides[i] >= 0, 2 * of_group + sides[i], -1).astype(np.int32)

        def one(i: int) -> np.ndarray:
            rows = np.flatnonzero(sides[i] == 1)
            out = np.full(len(sides[i]), -1, np.int32)
            out[rows] = group[self.z[i][rows]] if many else 0
            return out

        if one_shard and len(sides[0]) <= FEW_ROWS:
            return sync.statistics(self.comm, self.components, Labelled(self.shards, both), 2 * len(label), 1)
        # subtract to get the other side: half the rows to count, and half the numbers to sum
        counted = sync.counted(self.components, Labelled(self.shards, one), len(label))
        sync.add_up(self.comm, [counted], met=[self.met])
        whole = sync.Counts.of(self.statistics.take([self.column[a] for a in label]))
        for counts in whole:
            counts[..., np.less(label, 0)] = 0
        counts = both_sides(whole, counted)
        return sync.with_moments(self.comm, self.components, Labelled(self.shards, both), counts, self.n_shards)

    def broadcast(self, odds: Odds | None, groups: np.ndarray) -> Odds:
        """Broadcast root's odds in one message."""
        if self.comm.size == 1 and odds is not None:
            return odds
        message, everywhere = Odds.within(self.components, len(groups))
        if odds is not None:
            for name, array in vars(everywhere).items():
                array[...] = getattr(odds, name)
        self.comm.broadcast(message)
        return everywhere

    def sides(self, rows, z, ids, group, given, seeds, odds, purpose: Purpose, sub: int):
        """Draw sides with kernels.split.sides; return each row's label 2 g + side, and log q of every group's sides."""
        offsets = self.components.categorical.offsets
        return kernels.sides(rows, z, ids, group, given, seeds, odds, offsets, **self.stream(purpose, sub))

    def uniforms(self, ids: np.ndarray, purpose: Purpose, sub: int = 0) -> np.ndarray:
        """Return a uniform number in [0, 1) for each row, keyed by its id."""
        return (kernels.words(ids, **self.stream(purpose, sub)) >> np.uint64(11)) * 2.0**-53


def _present(ledger: Ledger) -> Statistics:
    """Return the statistics of the present clusters, by label."""
    return ledger.statistics.take(ledger.column)


def _none_yet(ledger: Ledger, work: Callable) -> dict:
    """Return an empty cache for the results of `work` by label."""
    return {}


def gains_of(ledger: Ledger, labels: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield for each of several clusters the change in the log likelihood if another joins it, (K,); -inf for the
    cluster itself."""
    at_once = max(1, CELLS // (ledger.n_labels * sum(map(len, vars(ledger.statistics).values()))))
    for start in range(0, len(labels), at_once):
        yield from _gains(ledger, labels[start : start + at_once])


def _gains(ledger: Ledger, labels: Sequence[int]) -> np.ndarray:
    alone = ledger.log_f[ledger.column]
    log_f = ledger.components.log_marginal_unions(ledger.hyper, ledger.once(_present), labels)
    gain = log_f - (alone + alone[labels, None])
    gain[np.arange(len(labels)), labels] = -np.inf
    return gain


def log_choice(weights: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the log probability of each chosen place, (N,), by log weights (N, K)."""
    top = weights.max(axis=1)
    total = np.exp(weights - top[:, None]).sum(axis=1)
    return weights[np.arange(len(chosen)), chosen] - top - np.log(total)
