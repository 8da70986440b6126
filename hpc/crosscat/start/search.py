"""A search for the views of a sample, from which a chain starts; it never affects the law of draws (docs/math.md 2.11).

An exact move of views must be reversible: to undo a split, it must propose the very partition of the rows that was
there, and no proposal is likely to draw a partition that has settled between two true views. The search only compares
evidence: it draws partitions for both states of the columns, and takes the state with the greater evidence. It is not a
Markov chain that leaves the posterior invariant, and need not be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.columns.cells import Gather, Held
from mpibayes.hpc.crosscat.columns.proposal import Drawn
from mpibayes.hpc.crosscat.columns.scan import Rowwise, of_views
from mpibayes.hpc.crosscat.columns.split_merge import Move
from mpibayes.hpc.crosscat.cycle_info import CycleInfo
from mpibayes.hpc.crosscat.start.evidence import log_weight, product, suited
from mpibayes.hpc.crosscat.start.probe import Probe
from mpibayes.hpc.crosscat.start.trials import Trials
from mpibayes.hpc.crosscat.view.pitman_yor import log_eppf
from mpibayes.hpc.crosscat.view.view import View
from mpibayes.hpc.parallel.streams import Purpose, generator, in_lane
from mpibayes.hpc.parallel.tasks import Stopped
from mpibayes.io.rows import Rows

CYCLES_OF_ROWS = 10  # first cycles, without moves of columns: they would all join the first view with clusters
MOVES_PER_CYCLE = 4
EARLY_CYCLES, MAX_CYCLES = 3, 10  # early: views have few clusters yet, so failed moves are retried later
UNITS_PER_CYCLE = 4  # units of columns, if that allows more cycles than MAX_CYCLES
MAX_FAILED_MOVES = 12  # in a row, before trials begin; a split of each view is among them
SHARE_OF_PAIR_MOVES = 0.6, 4  # moves of two of V views: the lesser of the first and (V - 1) / second
MAX_FRESH_DRAWS = 3  # for an estimate of the evidence, in different cycles
MIN_GAIN_TO_SHORTFALL = 0.5  # gain of fresh partitions that counts, relative to their shortfall from refined ones


@dataclass(frozen=True)
class Evidence:
    """Best estimate of a log evidence, and its partition. fresh: best estimate by partitions from q alone; draws: their
    number; cycle: of the last estimate."""

    log: float = -np.inf
    drawn: Drawn | None = None
    fresh: float = -np.inf
    draws: int = 0
    cycle: int = -1


class Better(Move):
    """A split or merge of views, accepted if it increases the evidence.

    Evidence is estimated by p(z) p(cells | z) / q(z), the logarithm of which is too low on average: by the best of a
    few partitions z from q, and of redrawn present partitions (`evidence.suited`).
    """

    chain: Searching

    def run(self) -> tuple[list[int], list[Rowwise]] | None:
        most, few = SHARE_OF_PAIR_MOVES
        if self.stream.random() >= min(most, (len(self.views) - 1) / few):
            return self._split()
        return self._merge() if self.stream.random() < 0.5 else self._exchange()

    def _split(self):
        sizes, views = np.bincount(self.where), self.chain.units_of_views()
        weight = (sizes - 1) / (1.0 + np.array([self.chain.tries[view] for view in views])) ** 2
        if not weight.any():
            return None
        view = int(self.stream.choice(len(views), p=weight / weight.sum()))
        self.chain.tries[views[view]] += 1
        part = np.array(views[view])
        a, b, _ = self._cut(part)
        apart = self.where.copy()
        apart[b] = len(self.views)
        present = of_views([self.views[view]])
        of_a, of_b, whole = (self._evidence(units, role, present) for role, units in enumerate((a, b, part)))
        better = self._better(apart, [of_a, of_b], [whole])
        return self._accepted({0: (a, of_a.drawn), 1: (b, of_b.drawn)}) if better else None

    def _two(self) -> tuple[tuple[int, int], list[np.ndarray], list[Rowwise]]:
        """Draw two views; return their numbers, units and partitions."""
        pair, _ = self._pair(self.stream.random())
        return pair, [np.flatnonzero(self.where == v) for v in pair], of_views([self.views[v] for v in pair])

    def _exchange(self):
        """Deal the units of two views to two sides again."""
        (i, j), (a, b), present = self._two()
        part = np.sort(np.concatenate([a, b]))
        f, g = (int(np.searchsorted(part, self.stream.choice(units))) for units in (a, b))
        side, _ = self._sides(part, f, g, None)
        new = [part[~side], part[side]]
        if np.array_equal(new[0], a):
            return None
        after = [self._evidence(units, role, present) for role, units in enumerate(new)]
        before = [self._evidence(units, 2, present[role : role + 1]) for role, units in enumerate((a, b))]
        where = self.where.copy()
        where[new[0]], where[new[1]] = i, j
        better = self._better(where, after, before)
        return self._accepted({role: (new[role], after[role].drawn) for role in (0, 1)}) if better else None

    def _merge(self):
        (i, j), (a, b), present = self._two()
        joined = np.where(self.where == j, i, self.where)
        part = np.flatnonzero(joined == i)
        of_a, of_b = self._evidence(a, 0, present[:1]), self._evidence(b, 1, present[1:])
        whole = self._evidence(part, 2, [*present, *product(*present)])
        return self._accepted({2: (part, whole.drawn)}) if self._better(joined, [whole], [of_a, of_b]) else None

    def _better(self, where: np.ndarray, after: Sequence[Evidence], before: Sequence[Evidence]) -> bool:
        """True if the units score higher in the new places. Partitions that existed before have been refined by
        cycles; so the scores of fresh partitions on both sides also count, if their gain is not small beside their
        shortfall."""
        gain = self._log_law(where) - self._log_law(self.where)
        best = gain + sum(of.log for of in after) - sum(of.log for of in before)
        fresh = gain + sum(of.fresh for of in after) - sum(of.fresh for of in before)
        return best > 0 or fresh > MIN_GAIN_TO_SHORTFALL * sum(of.log - of.fresh for of in before)

    def _evidence(self, units: np.ndarray, role: int, present: Sequence[Rowwise]) -> Evidence:
        """Estimate the evidence of the units' cells, from fresh partitions and the present ones."""
        known, cycle = self.chain.evidence, self.chain.cycles
        best = known.get(tuple(units), Evidence())
        if best.cycle == cycle:
            return best
        proposal = self._proposal(units, role)
        subject, n = proposal.subject, self.chain.n_rows
        result = [suited(subject, partition, self.stream.random(n)) for partition in present]
        if best.draws < MAX_FRESH_DRAWS:
            result.append(proposal.draw())
        for drawn in result:
            log = log_weight(self.views[0].law, subject, drawn)
            if log > best.log:
                best = replace(best, log=log, drawn=drawn)
        if best.draws < MAX_FRESH_DRAWS:
            best = replace(best, fresh=max(best.fresh, log), draws=best.draws + 1)
        known[tuple(units)] = best = replace(best, cycle=cycle)
        return best

    def _log_law(self, where: np.ndarray) -> float:
        """Return the log prior of the units' views."""
        return float(log_eppf(np.unique(where, return_counts=True)[1], *self.chain.process))


class Searching(Mixture):
    """A chain on one rank and one shard whose views split and merge by evidence. evidence, tries: by a view's units,
    its evidence so far and the number of its tried splits. branches: sets of mutually dependent units (dependence.py);
    probe: held-out rows, if any."""

    move_of_views, scored = Better, False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.evidence: dict[tuple[int, ...], Evidence] = {}
        self.tries: Counter[tuple[int, ...]] = Counter()
        self.branches: Sequence[frozenset[int]] = ()
        self.probe: Probe | None = None

    def cycle(self, word: Sequence[int] = ()) -> CycleInfo:
        """Run one cycle. Raises Stopped if the program is asked to stop."""
        if self.comm.asked_to_stop():
            raise Stopped
        return super().cycle(word)

    def search(self) -> None:
        """Run cycles until the views no longer change, then trials."""
        settings, still = self.settings, 0
        self.settings = replace(settings, column_moves=0, view_moves=0)
        for _ in range(CYCLES_OF_ROWS):
            self.cycle()
        self.settings = settings
        for number in range(max(MAX_CYCLES, len(self.units) // UNITS_PER_CYCLE)):
            still = 0 if self.cycle().view_moves or number < EARLY_CYCLES else still + MOVES_PER_CYCLE
            if number < EARLY_CYCLES:
                self.tries.clear()
            tried = all(self.tries[units] or len(units) == 1 for units in self.units_of_views())
            if tried and still >= MAX_FAILED_MOVES:
                break
        Trials(self, generator(settings.seed, Purpose.TRIALS, chain=self.chain)).run()

    def beside(self, new: Sequence[tuple[np.ndarray, Rowwise]]) -> Searching:
        """Return a copy of the chain in its present state, whose only views have these units and partitions."""
        hyper = {name: of for view in self.views for name, of in view.components.by_column(view.hyper).items()}
        other = copy(self)
        other.law, other.views = None, []  # columns stay
        for lane, (units, partition) in enumerate(new):
            names = self.names(units)
            view = self.view_of_columns(names, [self.subject(names).cells(0)], lane)
            view.resume(partition.z.__getitem__, partition.n_labels, view.components.hyper(*partition.process, hyper))
            other.views.append(view)
        other.resume(self.cycles)
        return other

    def put(self, views: Sequence[View]) -> None:
        """Replace the views."""
        self.views = list(views)
        for lane, view in enumerate(views):
            view.lane = in_lane(self.chain, lane)
        self.resume(self.cycles)

    def cells_of(self, names: tuple[str, ...], rows: Rows) -> Rows:
        """Return the cells of the named columns, without links, of rows that have all columns."""
        every = Held(self.plain([column.name for column in self.columns]), [rows])
        return Gather(self.plain(names), [every], self.settings.blocks)(0)

    def names(self, units: np.ndarray) -> tuple[str, ...]:
        """Return the names of the columns in these units, in table order."""
        names = {name for u in units.tolist() for name in self.units[u]}
        return tuple(column.name for column in self.columns if column.name in names)

    def units_of_views(self) -> list[tuple[int, ...]]:
        """Return the numbers of the units of each view."""
        where = np.array(self.view_of_unit)
        return [tuple(np.flatnonzero(where == v).tolist()) for v in range(len(self.views))]
