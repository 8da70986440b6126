"""Views combined from several searches, by cross-validation on training rows.

Searches differ in where whole groups of columns are, by less than a tenth of a nat per row. A few hundred judges cannot
tell that from chance, so each chain would keep the views of its luckiest search, and whole groups do not move later.
The score of views is a sum over them, so each set of columns is scored by itself (crossvalidated.py). Views start from
the disjoint sets of all columns with the greatest sum. Candidates are the views of all searches, changes on which
searches disagree, and then changes that no search made (changes.py). Since all rows are scored, chains of one table
find the same views more often. A start is not a draw, so exactness is not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import fsum, sqrt  # fsum: sets have no order

import numpy as np

from mpibayes.hpc.crosscat.start.alone import rows_of
from mpibayes.hpc.crosscat.start.changes import Change, apart, divided, moved, suggested, unsuggested
from mpibayes.hpc.crosscat.start.crossvalidated import Scored, folds, left_out, scored
from mpibayes.hpc.crosscat.start.related import Related, Set, related
from mpibayes.hpc.crosscat.start.searches import Choice
from mpibayes.hpc.crosscat.start.strategy import SEARCHES
from mpibayes.hpc.crosscat.start.views import Pilot
from mpibayes.hpc.crosscat.view.view import Settings
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.parallel.comm import Communicator, serial
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.hpc.parallel.tasks import run_all

MOST_ROWS = 3  # scored rows relative to a search's: 2 folds if each chain then has as many rows as a search, else 3
WORK = 3.0  # most columns in scored sets, relative to the table's, where searches differ; as many as searches, if more
WORK_BEYOND = 4.0  # the same for changes that no search made
LARGE, FREE_COLUMNS = 0.33, 50  # a set takes hardly longer for columns beyond a share of the table's, up to a number
CLOSE_PER_ROW = 0.03  # difference of two scores within which ties decide, if one unit moves
CLOSE_FOLDS = 3  # most folds for which that bound holds; more folds score more precisely
DOUBTFUL_PER_ROW = -0.01, 0.03  # gain beyond the least one for which other folds are asked, too
PER_VIEW = 5e-3  # by which fewer views must score better, in nats a row: large views apart are the simpler ones
MAX_ROUNDS = 6
MANY_ROWS = 6000  # of which a tenth tells views apart


class Combining:
    """Sets of columns scored so far, in a chain's start. known: these sets; left: columns that may still be scored;
    close: difference of scores within which ties decide; related: dependence of the table's columns. once: many rows
    are not dealt to folds, but a tenth of them is left out."""

    def __init__(
        self, comm: Communicator, data: Data, settings: Settings, chain: int, n_rows: int, n_searches: int = SEARCHES,
        once: bool = False,
    ):  # fmt: skip
        stream = generator(settings.seed, Purpose.COMBINED, chain=chain)
        n = min(data.n_rows, MOST_ROWS * n_rows)
        places = np.sort(stream.choice(data.n_rows, n, replace=False))
        (self.rows,) = agree(comm, lambda: rows_of(data, [places]), "read rows that compare views")
        deal = left_out if once and n >= MANY_ROWS else partial(folds, n_rows=n_rows, n_searches=n_searches)
        self.looks = [deal(stream, n) for _ in range(2)]
        self.close = CLOSE_PER_ROW * min(1.0, sqrt(CLOSE_FOLDS / (1 + int(self.looks[0].max()))))
        self.settings = replace(settings, seed=int(stream.integers(2**63)))
        self.comm, self.columns, self.chain, self.alone = comm, data.columns, chain, serial(comm.asked_to_stop)
        self.known: dict[Set, Scored] = {}
        self.left = 0.0
        task = partial(related, self.alone, self.columns, self.rows, self.settings, chain)
        self.related: Related = run_all(comm, [task], "relate columns")[0]

    def score(self, changes: Iterable[Change]) -> bool:
        """Score the sets of these changes, in order, up to about as many columns as the table has, and a second time
        those of changes whose gain is in doubt; return True if there are any. Collective."""
        changes, unknown = list(changes), list[Set]()
        for change in changes:
            self._choose(unknown, [names for names in change.before ^ change.after if names not in self.known])
        self._look(unknown)
        doubtful = list[Set]()
        for change in changes:
            of = change.before ^ change.after
            by_scores = self.known.keys() >= of and moved(change.before, change.after, self.related.units) is None
            if by_scores and DOUBTFUL_PER_ROW[0] < self.worth(change) - change.least < DOUBTFUL_PER_ROW[1]:
                self._choose(doubtful, [names for names in of if self.known[names].looks == 1])
        self._look(doubtful)
        return bool(unknown or doubtful)

    def _choose(self, chosen: list[Set], names: Collection[Set]) -> None:
        """Add sets to the chosen ones, if that leaves them affordable."""
        more = sorted((of for of in names if of not in chosen), key=sorted)
        if fsum(map(self.work, chosen)) < len(self.columns) and fsum(map(self.work, more)) <= self.left:
            chosen += more
            self.left -= fsum(map(self.work, more))

    def _look(self, chosen: Sequence[Set]) -> None:
        """Score each set, with other folds than before. Collective."""
        of, tasks = (self.alone, self.columns, self.rows), []
        for names in chosen:
            number = self.known[names].looks if names in self.known else 0
            settings = replace(self.settings, seed=self.settings.seed ^ number)
            tasks.append(partial(scored, *of, self.looks[number], settings, self.chain, names, self.related.tree))
        for names, result in zip(chosen, run_all(self.comm, tasks, "compare views") if tasks else ()):
            self.known[names] = self.known[names].averaged(result) if names in self.known else result

    def _difference(self, sets: Collection[Set], after: Collection[Set]) -> float:
        return fsum(self.known[names].score * (1 if names in after else -1) for names in sets)

    def gain(self, before: Iterable[Set], after: Iterable[Set]) -> float:
        """Return the gain of the sets after a change, in nats a row; -inf if one of them is not scored.

        Chains on the same columns differ by more than a single column gains elsewhere. So where one unit moves and the
        scores are close, the gain is the difference of the information that either view's other columns have about it,
        each in one chain."""
        one, other = set(before), set(after)
        if not self.known.keys() >= one ^ other:
            return -np.inf
        gain = self._difference(one ^ other, other)
        if abs(gain) < self.close and (move := moved(one, other, self.related.units)):
            unit, left, joined = move
            return self.known[joined].ties[unit] - self.known[left].ties[unit]
        return gain

    def worth(self, change: Change) -> float:
        """Return the gain of a change, plus PER_VIEW for each view that it adds."""
        return self.gain(change.before, change.after) + PER_VIEW * apart(change, self.related.units)

    def work(self, names: Set) -> float:
        """Return the work of scoring a set, in columns."""
        return work_of(len(names), len(self.columns))

    def cost(self, change: Change) -> float:
        """Return the work of scoring the sets that are not scored yet."""
        return fsum(self.work(names) for names in change.before | change.after if names not in self.known)

    def pilot(self, before: Pilot, now: Collection[Set]) -> Pilot:
        """Return the present views, those that were there `before` with their clusters, in the order of the table."""
        place = {column.name: i for i, column in enumerate(self.columns)}
        found = {names: scored.found for names, scored in self.known.items()}
        found |= {frozenset(view.columns): view for view in before.views}
        order = sorted(now, key=lambda names: min(place[name] for name in names))
        return replace(before, views=[found[names] for names in order])


def combined(
    comm: Communicator, data: Data, settings: Settings, chain: int, n_rows: int, choice: Choice
) -> tuple[Pilot, float]:
    """Return the views combined from several searches, on every rank, and their gain over those of the best search, in
    nats a row. Collective. Raises Stopped if the program is asked to stop. n_rows: most rows of a search."""
    pilots, best = choice.found, int(np.argmax(choice.scores)) if len(choice.scores) else 0
    of_search = [frozenset(frozenset(view.columns) for view in pilot.views) for pilot in pilots]
    if len(set(of_search)) < 2:
        return choice.best, 0.0
    work, now = Combining(comm, data, settings, chain, n_rows, len(pilots)), of_search[best]

    def by_searches(now: frozenset[Set]) -> list[Change]:
        def order(change: Change) -> tuple[bool, bool, float, list[list[str]]]:
            """Sort changes to views of searches first."""
            new = not change.after <= frozenset().union(*of_search)
            return new, change.merges, -change.size / max(work.cost(change), 1), sorted(map(sorted, change.after))

        changes = sorted(suggested(now, of_search), key=order)
        return [*changes, *divided(now, work.related.tree), *(Change(now, views, 0) for views in of_search)]

    def beyond(now: frozenset[Set]) -> list[Change]:
        return unsuggested(now, {names: scored.ties for names, scored in work.known.items()}, work.related)

    now, gain = climbed(work, now, by_searches, max(WORK, len(pilots)))
    work.left = len(work.columns)
    work.score([Change(now, frozenset(), 0)])
    now, more = climbed(work, now, beyond, WORK_BEYOND)
    gain += more
    return work.pilot(pilots[best], now), gain


def climbed(
    work: Combining, now: frozenset[Set], proposed: Callable[[frozenset[Set]], Sequence[Change]], most: float
) -> tuple[frozenset[Set], float]:
    """Make the proposed changes whose gains exceed the least ones, best ones first, until none does or `most` columns
    a column of the table are scored; return the views and their gain, in nats a row. Collective."""
    work.left, gain = most * len(work.columns), 0.0
    for _ in range(MAX_ROUNDS):
        changes = proposed(now)
        new, worth, left = work.score(changes), [work.worth(change) for change in changes], now
        for c in sorted(range(len(changes)), key=lambda c: (-worth[c], c)):
            change = changes[c]
            if worth[c] > change.least and change.before <= left:
                gain += work.gain(change.before, change.after)
                now, left = now - change.before | change.after, left - change.before
        if not new and left == now:
            break
    return now, gain


def work_of(n: int, n_columns: int) -> float:
    """Return the work of scoring a set of n columns, relative to a column's."""
    return max(min(n, max(LARGE * n_columns, 1.0)), n - FREE_COLUMNS)


def work_in_all(n_searches: int) -> float:
    """Return the most work of combining n_searches, relative to the table's columns."""
    return max(WORK, n_searches) + 1.0 + WORK_BEYOND  # the views in between count 1
