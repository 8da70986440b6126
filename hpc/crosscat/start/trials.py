"""Changes of views that are tried for a few cycles: how a search for views ends (docs/math.md 2.11).

Clusters that are there tell of their view's own columns, and of no others. So hardly any column looks better off in
another view before rows have settled there. The changes that look best, or least bad, are tried: rows go through some
cycles as the views would be, and as they are, and what is better off after these stays.
"""

from __future__ import annotations

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

ROUNDS = 6  # at most
CYCLES = 5  # of a trial
TRIALS = 5  # of a round, at most
PATIENCE = 0.02  # nats a row by which a change may look worse
FAR = 0.04  # and by which a unit may be worse off elsewhere as rows are now,
SMALL = 3  # unless its view has so few units that rows follow it
TARGETS = 3  # views that such a unit may go to
PAIRS = 3  # of views that are looked at for a merge
TELLING = 1e-3  # nats a row that a change has to be worth


@dataclass(frozen=True)
class Change:
    """The units of two views in other views. old: numbers of the two; new: units of each view instead, and a partition
    that suits them; gain: by how much they look better off, in nats."""

    old: tuple[int, int]
    new: Sequence[tuple[np.ndarray, Rowwise]]
    gain: float

    @property
    def name(self) -> frozenset:
        return frozenset(tuple(units.tolist()) for units, _ in self.new)


class Trials:
    """Rounds of trials of a chain on one rank and one shard. tried: changes, by their name."""

    def __init__(self, chain: Searching, stream: np.random.Generator):
        self.chain, self.stream = chain, stream
        self.tried: set[frozenset] = set()

    def run(self) -> None:
        """Until nothing changes any more."""
        settings = self.chain.settings
        rows = replace(settings, column_moves=0, view_moves=0, split_merge=0 if settings.split_merge == 0 else 1)
        for _ in range(ROUNDS):
            self.chain.settings = replace(rows, column_moves=1)
            moved = self.chain.cycle().columns_moved
            self.chain.settings = rows
            if not self._round() and not moved:
                break
        self.chain.settings = settings

    def _round(self) -> bool:
        """Whether views have changed. Changes are tried from where all views are now; these go on as well."""
        chain, least = self.chain, TELLING * self.chain.n_rows
        found = sorted(self._changes(), key=lambda change: -change.gain)
        chosen = [c for c in found if c.gain > -PATIENCE * chain.n_rows and c.name not in self.tried][:TRIALS]
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
        for old, new in [*self._singles(views, present), *self._merges(views, present)]:
            parts = [(units, *self._best(units, partitions)) for units, partitions in new]
            change = Change(old, [(units, partition) for units, partition, _ in parts], 0.0)
            gain = self._law(change) + sum(log for *_, log in parts) - sum(now[v] for v in old)
            yield replace(change, gain=gain)

    def _singles(self, views: Sequence[np.ndarray], present: Sequence[Rowwise]) -> Iterator[tuple]:
        """A unit goes to the view that suits it best, unless none tells of it, or that is far worse."""
        chain, where = self.chain, np.array(self.chain.view_of_unit)
        nothing = Rowwise([np.zeros(chain.n_rows, np.int32)], 1, present[0].process)
        *score, alone = scores(chain.comm, chain.views, chain.units, [*present, nothing]).T
        score = np.array(score).T
        for unit, home in enumerate(where.tolist()):
            small = len(views[home]) <= SMALL
            here, score[unit, home] = score[unit, home], -np.inf
            told = alone[unit] + TELLING * chain.n_rows
            least = (-np.inf if here > told else told) if small else max(told, here - FAR * chain.n_rows)
            for there in np.argsort(-score[unit], kind="stable")[: TARGETS if small else 1].tolist():
                if score[unit, there] < least:
                    continue
                new = [(np.sort(np.append(views[there], unit)), [present[there]])]
                if len(views[home]) > 1:
                    new.append((views[home][views[home] != unit], [present[home]]))
                yield (home, there), new

    def _merges(self, views: Sequence[np.ndarray], present: Sequence[Rowwise]) -> Iterator[tuple]:
        """Two views become one: those whose partitions have most in common."""
        some = self.stream.permutation(self.chain.n_rows)[: alike.ROWS]
        log_p = alike.log_probabilities([partition.z[0][some] for partition in present])
        pairs = sorted(zip(*np.triu_indices(len(views), 1)), key=lambda pair: -log_p[pair])
        for i, j in pairs[:PAIRS]:
            both = [present[i], present[j], *product(present[i], present[j])]
            yield (i, j), [(np.sort(np.concatenate([views[i], views[j]])), both)]

    def _best(self, units: np.ndarray, partitions: Sequence[Rowwise]) -> tuple[Rowwise, float]:
        """The partition that suits some units best, and the log evidence by it."""
        chain, law = self.chain, self.chain.views[0].law
        subject = chain.subject(chain.names(units))
        found = [log_weight(law, subject, suited(subject, p, self.stream.random(chain.n_rows))) for p in partitions]
        best = int(np.argmax(found))
        return partitions[best], found[best]
