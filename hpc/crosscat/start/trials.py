"""Changes of views that are tried for a few cycles: how a search for views ends (docs/math.md 2.11).

Clusters that are there tell of their view's own columns, and of no others. So hardly any column looks better off in
another view before rows have settled there. The changes that look best, or least bad, are tried: rows go through some
cycles as the views would be, and as they are, and what is better off after these stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.crosscat.columns import alike
from mpibayes.hpc.crosscat.columns.scan import Rowwise, of_views, scores
from mpibayes.hpc.crosscat.pitman_yor import log_eppf
from mpibayes.hpc.crosscat.start.evidence import log_evidence, log_weight, product, suited
from mpibayes.hpc.crosscat.view import View

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.start.search import Searching

ROUNDS = 10  # at most
CYCLES = 5  # of a trial
TRIALS = 5  # of a round, at most
TWICE = 2  # and of one change: it may be better off later
PATIENCE = 0.02  # nats a row by which a change may look worse
HOPE = 0.1  # of what is told of a unit where it is, by which cycles may well make it better off elsewhere
DOUBT = 5e-3  # nats a row: of a unit of which little is told here or there, others come first
LOOSE, TARGETS = 0.05, 3  # a unit of which fewer nats a row are told may go to one of so many views, others to one
PAIRS = 3  # of views that are looked at for a merge
TELLING = 4e-3  # nats a row that a change has to be worth


@dataclass(frozen=True)
class Change:
    """The units of two views in other views. old: numbers of the two; new: units of each view instead, and a partition
    that suits them; gain: by how much they look better off, in nats; hope: what cycles may add to that."""

    old: tuple[int, int]
    new: Sequence[tuple[np.ndarray, Rowwise]]
    gain: float
    hope: float = 0.0

    @property
    def looks(self) -> float:
        return self.gain + self.hope

    @property
    def name(self) -> frozenset:
        return frozenset(tuple(units.tolist()) for units, _ in self.new)


class Trials:
    """Rounds of trials of a chain on one rank and one shard. tried: how often each change was, by its name. told: see `_told`."""

    def __init__(self, chain: Searching, stream: np.random.Generator):
        self.chain, self.stream = chain, stream
        self.tried: Counter[frozenset] = Counter()
        self.told: dict[tuple, float] = {}

    def run(self) -> None:
        """Until nothing changes any more."""
        settings = self.chain.settings
        rows = replace(settings, column_moves=0, view_moves=0, split_merge=0 if settings.split_merge == 0 else 1)
        for _ in range(ROUNDS):
            self.chain.settings = replace(rows, column_moves=1)
            self.chain.cycle()
            self.chain.settings = rows
            if not self._round():
                break
        self.chain.settings = settings

    def _round(self) -> bool:
        """Whether views have changed. Changes are tried from where all views are now; these go on as well."""
        chain, least = self.chain, TELLING * self.chain.n_rows
        found = {change.name: change for change in self._changes() if change.looks > -PATIENCE * chain.n_rows}
        found = [change for name, change in found.items() if self.tried[name] < TWICE]
        chosen = sorted(found, key=lambda change: -change.looks)[:TRIALS]
        if not chosen:
            return False
        self.tried.update(change.name for change in chosen)
        hyper = {name: of for view in chain.views for name, of in view.components.by_column(view.hyper).items()}
        after = []
        for change in chosen:
            trial = chain.beside(change.new, hyper)
            for _ in range(CYCLES):
                trial.cycle()
            after.append(trial.views)
        for _ in range(CYCLES):
            chain.cycle()
        gains = [
            self._law(change) + sum(map(self._evidence, views)) - sum(self._evidence(chain.views[v]) for v in change.old)
            for change, views in zip(chosen, after)
        ]
        left, new = dict(enumerate(chain.views)), []
        for i in np.argsort(gains)[::-1].tolist():
            if gains[i] > least and set(chosen[i].old) <= set(left):
                new += after[i]
                for v in chosen[i].old:
                    del left[v]
        if new:
            chain.put(sorted([*left.values(), *new], key=lambda view: view.columns))
        return bool(new)

    def _law(self, change: Change) -> float:
        """By how much more probable the change makes what columns are in which views."""
        sizes = np.bincount(self.chain.view_of_unit)
        after = [*np.delete(sizes, change.old), *(len(units) for units, _ in change.new)]
        return float(log_eppf(np.array(after), *self.chain.process) - log_eppf(sizes, *self.chain.process))

    def _evidence(self, view: View) -> float:
        return log_evidence(view, self.stream)

    # --- what may be tried -------------------------------------------------------------------------------------------

    def _changes(self) -> Iterator[Change]:
        """Changes that may be worth a trial."""
        chain = self.chain
        if len(chain.views) < 2:
            return
        views, present = [np.array(units) for units in chain.units_of_views()], of_views(chain.views)
        now = [self._evidence(view) for view in chain.views]
        for change in [*self._singles(views, present, now), *self._merges(views, present, now)]:
            yield replace(change, gain=change.gain + self._law(change))

    def _singles(self, views: Sequence[np.ndarray], present: Sequence[Rowwise], now: Sequence[float]) -> Iterator[Change]:
        """A unit goes to the views that suit it best."""
        chain = self.chain
        nothing = Rowwise([np.zeros(chain.n_rows, np.int32)], 1, present[0].process)
        *score, alone = scores(chain.comm, chain.views, chain.units, [*present, nothing]).T
        for unit, home in enumerate(chain.view_of_unit):
            left = views[home][views[home] != unit]
            told = self._told(unit, left, present[home], now[home]) if len(left) else now[home]
            others = sorted((v for v in range(len(views)) if v != home), key=lambda v: -score[v][unit])
            for there in others[: TARGETS if told < alone[unit] + LOOSE * chain.n_rows else 1]:
                told_there = self._told(unit, views[there], present[there], now[there], joins=True)
                hope = HOPE * (told - alone[unit])
                if max(told, told_there) < alone[unit] + TELLING * chain.n_rows:  # it may well be noise
                    hope -= DOUBT * chain.n_rows
                gain, new = told_there - told, [(np.sort(np.append(views[there], unit)), present[there])]
                yield Change((home, there), new + [(left, present[home])] * bool(len(left)), gain, hope)

    def _told(self, unit: int, others: np.ndarray, partition: Rowwise, now: float, joins: bool = False) -> float:
        """Log evidence of a unit given the others of its view or, if it joins them, of another one, whose own log
        evidence is `now`; as it was when this was asked first."""
        key = unit, tuple(others.tolist())
        if key not in self.told:
            units = np.sort(np.append(others, unit)) if joins else others
            self.told[key] = (1 if joins else -1) * (self._best(units, [partition])[1] - now)
        return self.told[key]

    def _merges(self, views: Sequence[np.ndarray], present: Sequence[Rowwise], now: Sequence[float]) -> Iterator[Change]:
        """Two views become one: those whose partitions have most in common."""
        some = self.stream.permutation(self.chain.n_rows)[: alike.ROWS]
        log_p = alike.log_probabilities([partition.z[0][some] for partition in present])
        pairs = sorted(zip(*np.triu_indices(len(views), 1)), key=lambda pair: -log_p[pair])
        for i, j in pairs[:PAIRS]:
            both = np.sort(np.concatenate([views[i], views[j]]))
            partition, log = self._best(both, [present[i], present[j], *product(present[i], present[j])])
            yield Change((i, j), [(both, partition)], log - now[i] - now[j])

    def _best(self, units: np.ndarray, partitions: Sequence[Rowwise]) -> tuple[Rowwise, float]:
        """The partition that suits some units best, and the log evidence by it."""
        chain, law = self.chain, self.chain.views[0].law
        subject = chain.subject(chain.names(units))
        found = [log_weight(law, subject, suited(subject, p, self.stream.random(chain.n_rows))) for p in partitions]
        best = int(np.argmax(found))
        return partitions[best], found[best]
