"""Trials of changes of views, each for a few cycles, at the end of a search for views (docs/math.md 2.11).

Present clusters explain only the columns of their own view. So hardly any column looks better in another view before
rows have followed it there. The most promising changes are tried: the chain runs a few cycles with the changed views
and with the present ones, and the better views stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.crosscat.columns import alike
from mpibayes.hpc.crosscat.columns.scan import Rowwise, of_views, scores
from mpibayes.hpc.crosscat.start import probe
from mpibayes.hpc.crosscat.start.evidence import dealt, log_evidence, log_weight, product, suited
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.crosscat.view.pitman_yor import log_eppf
from mpibayes.hpc.crosscat.view.view import View

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.start.probe import Probe
    from mpibayes.hpc.crosscat.start.search import Searching

MAX_ROUNDS = 3
TRIAL_CYCLES, EXTRA_CYCLES = 5, 8  # of a trial; more if it is close
MAX_TRIALS, MAX_CLOSE_TRIALS = 5, 2  # in a round; with extra cycles
MAX_TRIALS_OF_A_CHANGE = 2  # it may succeed later
MERGE_PAIRS = 3  # pairs of views considered for a merge
CUT_BRANCHES, MAX_CUTS = 32, 3  # branches of columns considered for a view of their own; those tried
MAX_TARGETS = 2  # views a unit may move to if its own view hardly explains it; otherwise one
# in nats per row
MIN_GAIN_PER_ROW = 1.5e-3  # of a change
MAX_LOSS_AT_START = 0.02  # of a change before its trial
MAX_LOSS_OF_VIEWS = 0.1  # the same for whole views, whose rows must adapt more
MAX_LOSS_AFTER_TRIAL = 0.01  # that earns extra cycles
LOOSE_PER_ROW = 0.05  # evidence below which a view hardly explains a unit
UNEXPLAINED_PENALTY = 5e-3  # for a unit that neither view explains
REGAINED_SHARE = 0.1  # share of a unit's evidence in its own view that the cycles of a trial may add


@dataclass(frozen=True, eq=False)
class Change:
    """A move of units to another view. moved: these units; old: numbers of their view and of the other, which may be
    new; new: units of the other view, and units left in theirs, if any, each with a partition of the rows; gain: of log
    evidence, in nats; hope: nats that cycles may add; patience: most loss to try the change, in nats per row."""

    moved: np.ndarray
    old: tuple[int, int]
    new: Sequence[tuple[np.ndarray, Rowwise]]
    gain: float
    hope: float = 0.0
    patience: float = MAX_LOSS_AT_START

    @property
    def looks(self) -> float:
        return self.gain + self.hope

    @property
    def name(self) -> frozenset:
        return frozenset(tuple(units.tolist()) for units, _ in self.new)


@dataclass(frozen=True)
class Present:
    """The views: their units, partitions and log evidences."""

    units: Sequence[np.ndarray]
    partitions: Sequence[Rowwise]
    evidence: Sequence[float]


class Trials:
    """Rounds of trials of a chain on one rank and one shard. tried: number of trials of each change, by its name;
    added: cache of `_added`; density: cycle, and log densities of the probe's rows in that cycle, by view."""

    def __init__(self, chain: Searching, stream: np.random.Generator):
        self.chain, self.stream = chain, stream
        self.tried: Counter[frozenset] = Counter()
        self.added: dict[tuple, float] = {}
        self.density: tuple[int, dict[int, np.ndarray]] = -1, {}

    def run(self) -> None:
        """Run rounds until one changes nothing, at most MAX_ROUNDS."""
        settings = self.chain.settings
        rows = replace(settings, column_moves=0, view_moves=0, split_merge=0 if settings.split_merge == 0 else 1)
        for _ in range(MAX_ROUNDS):
            self.chain.settings = replace(rows, column_moves=1)
            self.chain.cycle()
            self.chain.settings = rows
            if not self._round():
                break
        self.chain.settings = settings

    def _round(self) -> bool:
        """Try changes from the present views, while the chain itself continues; return True if the views changed. If no
        change is better, changes with small losses get more cycles."""
        trials = {change: self.chain.beside(change.new) for change in self._chosen()}
        self.tried.update(change.name for change in trials)
        for cycles in (TRIAL_CYCLES, EXTRA_CYCLES):
            if not trials:
                return False
            for chain in (*trials.values(), self.chain):
                for _ in range(cycles):
                    chain.cycle()
            worth = self._worth(trials)
            ranked = sorted(trials, key=lambda change: -worth[change])
            if worth[ranked[0]] > MIN_GAIN_PER_ROW:
                self._take({change: trials[change] for change in ranked if worth[change] > MIN_GAIN_PER_ROW})
                return True
            trials = {
                change: trials[change] for change in ranked[:MAX_CLOSE_TRIALS] if worth[change] > -MAX_LOSS_AFTER_TRIAL
            }
        return False

    def _take(self, better: Mapping[Change, Searching]) -> None:
        """Apply these changes, best first. Several single units may join or leave the same view, whose rows follow the
        first; other changes of a changed view are skipped."""
        chain, where = self.chain, np.array(self.chain.view_of_unit)
        joined, left, partition = set(), set(), {}
        for change, trial in better.items():
            home, there = change.old
            one = len(change.moved) == 1 and where[change.moved[0]] == home
            if {home, there} & (joined | left) and not (one and home not in joined and there not in left):
                continue
            where[change.moved] = there
            joined |= {there} if one else {home, there}
            left |= {home} if one else {home, there}
            for v, after in zip((there, home), of_views(trial.views)):
                partition.setdefault(v, after)
        now = of_views(chain.views)
        new = [(np.flatnonzero(where == v), partition[v] if v in partition else now[v]) for v in np.unique(where)]
        chain.put(chain.beside(new).views)

    def _chosen(self) -> list[Change]:
        """Return the changes to try in a round."""
        result = {change.name: change for change in self._changes() if self.tried[change.name] < MAX_TRIALS_OF_A_CHANGE}
        fair = [change for change in result.values() if change.looks > -change.patience * self.chain.n_rows]
        return sorted(fair, key=lambda change: -change.looks)[:MAX_TRIALS]

    def _worth(self, trials: Mapping[Change, Searching]) -> dict[Change, float]:
        """Return the gain of each trial, in nats per row: on the probe if it is decisive, else in log evidence."""
        chain, old = self.chain, {v for change in trials for v in change.old if v < len(self.chain.views)}
        before = {v: self._evidence(chain.views[v]) for v in sorted(old)}
        worth = {}
        for change, trial in trials.items():
            home = [v for v in change.old if v < len(chain.views)]
            gain = sum(map(self._evidence, trial.views)) - sum(before[v] for v in home)
            worth[change] = self._predicts(trial, home) or (self._law(change) + gain) / chain.n_rows
        return worth

    def _predicts(self, other: Searching, home: Sequence[int]) -> float:
        """Gain of another chain's views over those they replace in predicting the probe, in nats per row; 0 without a
        probe, or where the difference may be chance."""
        rows = self.chain.probe
        return 0.0 if rows is None else probe.gain(sum(rows.log_densities(other, other.views)), self._now(rows, home))

    def _promises(self, new: Sequence[tuple[np.ndarray, Rowwise]], home: Sequence[int]) -> float:
        """Gain of views with these units and partitions, which no chain has yet, in nats per row."""
        rows, chain, each = self.chain.probe, self.chain, []
        for units, of in new if rows is not None else ():
            subject = chain.subject(names := chain.names(units))
            hyper = replace(subject.hyper, concentration=of.process[0], discount=of.process[1])
            statistics = sync.statistics(chain.comm, subject.components, subject.labelled(of.z), of.n_labels, 1)
            each.append(rows.log_density(chain, names, subject.components, hyper, statistics))
        return 0.0 if rows is None else probe.gain(sum(each), self._now(rows, home))

    def _now(self, rows: Probe, home: Sequence[int]) -> np.ndarray:
        """Log density of each row of the probe in the present views `home`."""
        if self.density[0] != self.chain.cycles:
            self.density = self.chain.cycles, {}
        known = self.density[1]
        for v in home:
            if v not in known:
                (known[v],) = rows.log_densities(self.chain, [self.chain.views[v]])
        return sum(known[v] for v in home)

    def _law(self, change: Change) -> float:
        """Return the log prior ratio of a change of the views' columns."""
        sizes = np.bincount(self.chain.view_of_unit)
        after = [*np.delete(sizes, [v for v in change.old if v < len(sizes)]), *(len(units) for units, _ in change.new)]
        return float(log_eppf(np.array(after), *self.chain.process) - log_eppf(sizes, *self.chain.process))

    def _evidence(self, view: View) -> float:
        return log_evidence(view, self.stream)

    # --- candidates --------------------------------------------------------------------------------------------------

    def _changes(self) -> Iterator[Change]:
        """Yield changes that may be worth a trial."""
        views = self.chain.views
        units = [np.array(part) for part in self.chain.units_of_views()]
        now = Present(units, of_views(views), [self._evidence(view) for view in views])
        of_two = [*self._singles(now), *self._merges(now)] if len(views) > 1 else []
        for change in [*of_two, *self._cuts(now)]:
            yield replace(change, gain=change.gain + self._law(change))

    def _singles(self, now: Present) -> Iterator[Change]:
        """Yield moves of single units to the views that explain them best."""
        chain, n = self.chain, self.chain.n_rows
        nothing = Rowwise([np.zeros(n, np.int32)], 1, now.partitions[0].process)
        *score, alone = scores(chain.comm, chain.views, chain.units, [*now.partitions, nothing]).T
        for unit, home in enumerate(chain.view_of_unit):
            left = now.units[home][now.units[home] != unit]
            added_here = self._added(unit, home, now)
            others = sorted((v for v in range(len(score)) if v != home), key=lambda v: -score[v][unit])
            for there in others[: MAX_TARGETS if added_here < alone[unit] + LOOSE_PER_ROW * n else 1]:
                added_there = self._added(unit, there, now)
                doubt = (
                    UNEXPLAINED_PENALTY * n
                    if max(added_here, added_there) < alone[unit] + MIN_GAIN_PER_ROW * n
                    else 0.0
                )
                new = [(np.sort(np.append(now.units[there], unit)), now.partitions[there])]
                if len(left):
                    new.append((left, now.partitions[home]))
                yield Change(
                    np.array([unit]),
                    (home, there),
                    new,
                    added_there - added_here,
                    REGAINED_SHARE * (added_here - alone[unit]) - doubt,
                )

    def _added(self, unit: int, view: int, now: Present) -> float:
        """Return the log evidence of a unit given the other units of its own view, whose rows have adapted to it, or
        all units of another view; cached from the first call."""
        part, partition = now.units[view], now.partitions[view]
        key = unit, tuple(part[part != unit].tolist())
        if not key[1]:
            return now.evidence[view]
        if key not in self.added:
            if unit in part:
                self.added[key] = now.evidence[view] - self._best(part[part != unit], [partition])[1]
            else:
                self.added[key] = self._best(np.sort(np.append(part, unit)), [partition])[1] - now.evidence[view]
        return self.added[key]

    def _merges(self, now: Present) -> Iterator[Change]:
        """Yield merges of two views, for the pairs with the most similar partitions."""
        subset = self.stream.permutation(self.chain.n_rows)[: alike.ROWS]
        log_p = alike.log_probabilities([partition.z[0][subset] for partition in now.partitions])
        pairs = sorted(zip(*np.triu_indices(len(now.units), 1)), key=lambda pair: -log_p[pair])
        for i, j in pairs[:MERGE_PAIRS]:
            one, two = now.partitions[i], now.partitions[j]
            both = np.sort(np.concatenate([now.units[i], now.units[j]]))
            partition, log = self._best(both, [one, two, *product(one, two)])
            change = Change(
                now.units[i],
                (i, j),
                [(both, partition)],
                log - now.evidence[i] - now.evidence[j],
                patience=MAX_LOSS_OF_VIEWS,
            )
            yield max(change, self._of_product(change, one, two), key=lambda change: change.gain)

    def _of_product(self, change: Change, one: Rowwise, two: Rowwise) -> Change:
        """Return a merge with the largest clusters of the product of two partitions, its gain measured on the probe;
        the given change if there is no probe."""
        if self.chain.probe is None:
            return change
        ((both, _),) = change.new
        partition = dealt(self.chain.subject(self.chain.names(both)), one, two, self.stream.random(self.chain.n_rows))
        merged = replace(change, new=[(both, partition)])
        return replace(merged, gain=self.chain.n_rows * self._promises(merged.new, change.old))

    def _cuts(self, now: Present) -> Iterator[Change]:
        """Yield splits of a unit, or of mutually dependent units, into a new view, with the present clusters or a
        single one."""
        chain, nothing = self.chain, Rowwise([np.zeros(self.chain.n_rows, np.int32)], 1, now.partitions[0].process)
        of_view = [frozenset(units.tolist()) for units in now.units]
        branches = [*chain.branches, *(frozenset([unit]) for unit in range(len(chain.units)))]
        known = {of & part: v for v, part in enumerate(of_view) for of in branches if 0 < len(of & part) < len(part)}
        cuts, result = [(np.array(sorted(of)), known[of]) for of in sorted(known, key=sorted)], []
        for at in np.sort(self.stream.permutation(len(cuts))[:CUT_BRANCHES]).tolist():
            out, v = cuts[at]
            left, present = np.setdiff1d(now.units[v], out), now.partitions[v]
            (one, of_out), (two, of_left) = self._best(out, [present, nothing]), self._best(left, [present])
            new = [(out, one), (left, two)]
            gain = max(of_out + of_left - now.evidence[v], chain.n_rows * self._promises(new, [v]))
            result.append(Change(out, (v, len(now.units)), new, gain, patience=MAX_LOSS_OF_VIEWS))
        best = sorted(result, key=lambda change: -change.gain)[:MAX_CUTS]
        yield from (replace(change, old=(change.old[0], len(now.units) + i)) for i, change in enumerate(best))

    def _best(self, units: np.ndarray, partitions: Sequence[Rowwise]) -> tuple[Rowwise, float]:
        """Return the partition with the greatest log evidence of the units, and this evidence."""
        chain, law = self.chain, self.chain.views[0].law
        subject = chain.subject(chain.names(units))
        result = [log_weight(law, subject, suited(subject, p, self.stream.random(chain.n_rows))) for p in partitions]
        best = int(np.argmax(result))
        return partitions[best], result[best]
