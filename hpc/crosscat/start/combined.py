"""Views combined from several searches, by cross-validation on training rows.

Searches differ in where whole groups of columns are, by less than a tenth of a nat per row. A few hundred judges cannot
tell that from chance, so each chain would keep the views of its luckiest search, and whole groups do not move later.
The score of views is a sum over them, so each set of columns is scored by itself: rows are dealt to two or three folds,
and a short chain on the other folds predicts each. The chain begins with random clusters: from one cluster it would
find too few for large sets, and favour small ones. Views start from the disjoint sets of all columns with the greatest
sum. Candidates are the views of all searches, changes on which searches disagree, and then changes that no search made.
Since all rows are scored, chains of one table find the same views more often. A start is not a draw, so exactness is
not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from math import fsum  # sets have no order

import numpy as np

from mpibayes.hpc.crosscat.columns.cells import Gather, Held, renumbered
from mpibayes.hpc.crosscat.laws.view_density import ViewDensity, densities
from mpibayes.hpc.crosscat.start.alone import advance, chain_on, rows_of
from mpibayes.hpc.crosscat.start.dependence import between_units, branches, linked
from mpibayes.hpc.crosscat.start.searches import Choice
from mpibayes.hpc.crosscat.start.strategy import SEARCHES, clusters_at_random
from mpibayes.hpc.crosscat.start.views import Found, Pilot, found_by
from mpibayes.hpc.crosscat.view.view import Settings
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.parallel.comm import Communicator, Serial, serial
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.hpc.parallel.tasks import run_all
from mpibayes.io.rows import Column, Rows

MOST_ROWS = 3  # scored rows relative to a search's: 2 folds if each chain then has as many rows as a search, else 3
FOLDS = 5  # after more searches than by default: close views need the rows, in four times the work
BURN_IN_CYCLES, CYCLES_PER_STATE = 12, 4  # of a chain; it then runs as long again, and its states count
WORK = 3.0  # most columns in scored sets, relative to the table's, where searches differ; as many as searches, if more
WORK_BEYOND = 3.0  # the same for changes that no search made
LOOSE_PER_ROW = 0.1  # most information of a view's other columns about a unit that may leave, in nats
DEVIATIONS = 4.0  # by which the information of two columns must exceed chance: a table has many pairs
MOST_CELLS = 2_000_000  # for that information: rows times units, squared
MAX_ROUNDS = 6
MIN_GAIN_PER_ROW = 5e-3  # of a change, in nats
MAX_LOSS_PER_ROW = 1e-2  # of a change by which a unit leaves columns that it does not depend on: twice a score's error

Set = frozenset[str]  # names of a view's columns


@dataclass(frozen=True)
class Change:
    """Sets of columns, views before and after a change. size: columns of the smallest group that joins or leaves;
    least: gain from which on it is made, in nats a row."""

    before: frozenset[Set]
    after: frozenset[Set]
    size: int
    least: float = MIN_GAIN_PER_ROW

    @property
    def merges(self) -> bool:
        return len(self.after) == 1


@dataclass(frozen=True)
class Scored:
    """A set of columns. score: mean log density of a row in it, cross-validated; found: its view in the last chain;
    ties: information of the other columns about each unit, in nats a row."""

    score: float
    found: Found
    ties: dict[Set, float]


@dataclass(frozen=True)
class Related:
    """Dependence of columns. tree: sets of mutually dependent columns, by falling dependence; units: sets of columns
    that move together; dependence: of each pair of units, (U, U), in 0..1, 0 where chance explains it."""

    tree: list[Set]
    units: list[Set]
    dependence: np.ndarray

    @cached_property
    def unit_of(self) -> dict[str, int]:
        """The unit of each column."""
        return {name: u for u, names in enumerate(self.units) for name in names}

    def between(self, one: Set, other: Set) -> float:
        """Return the greatest dependence between a unit of one set and a unit of the other."""
        places = [sorted({self.unit_of[name] for name in names}) for names in (one, other)]
        return float(self.dependence[np.ix_(*places)].max()) if self.dependence.size else 0.0

    def holds(self, rest: Set, unit: Set) -> bool:
        """Return True unless the unit is known to depend on no other column of its view."""
        return not rest or not self.dependence.size or self.between(unit, rest) > 0.0


class Combining:
    """Sets of columns scored so far, in a chain's start. known: these sets; left: columns that may still be scored."""

    def __init__(
        self, comm: Communicator, data: Data, settings: Settings, chain: int, n_rows: int, n_searches: int = SEARCHES
    ):
        stream = generator(settings.seed, Purpose.COMBINED, chain=chain)
        n = min(data.n_rows, MOST_ROWS * n_rows)
        places = np.sort(stream.choice(data.n_rows, n, replace=False))
        (self.rows,) = agree(comm, lambda: rows_of(data, [places]), "read rows that compare views")
        self.fold = folds(stream, n, n_rows, n_searches)
        self.settings = replace(settings, seed=int(stream.integers(2**63)))
        self.comm, self.columns, self.chain, self.alone = comm, data.columns, chain, serial(comm.asked_to_stop)
        self.known: dict[Set, Scored] = {}
        self.left = 0.0

    def related(self) -> Related:
        """Relate the table's columns. Collective."""
        task = partial(_related, self.alone, self.columns, self.rows, self.settings, self.chain)
        return run_all(self.comm, [task], "relate columns")[0]

    def score(self, changes: Iterable[Change]) -> bool:
        """Score the sets of these changes, in order, up to about as many columns as the table has; return True if any
        of them is new. Collective."""
        new: list[Set] = []
        for change in changes:
            missing = [names for names in change.before ^ change.after if names not in self.known]
            missing = sorted((names for names in missing if names not in new), key=sorted)
            if sum(map(len, new)) < len(self.columns) and sum(map(len, missing)) <= self.left:
                new += missing
                self.left -= sum(map(len, missing))
        of = self.alone, self.columns, self.rows, self.fold, self.settings, self.chain
        tasks = [partial(scored, *of, names) for names in new]
        self.known |= zip(new, run_all(self.comm, tasks, "compare views") if new else ())
        return bool(new)

    def gain(self, before: Iterable[Set], after: Iterable[Set]) -> float:
        """Return the gain of the sets after a change, in nats a row; -inf if one of them is not scored."""
        one, other = set(before), set(after)
        if not self.known.keys() >= one ^ other:
            return -np.inf
        return fsum(
            [*(self.known[names].score for names in other - one), *(-self.known[names].score for names in one - other)]
        )

    def cost(self, change: Change) -> int:
        """Return the number of columns of the sets that are not scored yet."""
        return sum(len(names) for names in change.before | change.after if names not in self.known)


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
    related = work.related()

    def by_searches(now: frozenset[Set]) -> list[Change]:
        changes = sorted(suggested(now, of_search), key=lambda c: (c.merges, -c.size / max(work.cost(c), 1), _key(c)))
        return [*changes, *divided(now, related.tree), *(Change(now, views, 0) for views in of_search)]

    now, gain = climbed(work, now, by_searches, max(WORK, len(pilots)))
    work.left = len(work.columns)
    work.score([Change(now, frozenset(), 0)])
    beyond = partial(unsuggested, known=work.known, related=related)
    now, more = climbed(work, now, beyond, WORK_BEYOND)
    gain += more
    place = {column.name: i for i, column in enumerate(data.columns)}
    found = {names: scored.found for names, scored in work.known.items()}
    found |= {frozenset(view.columns): view for view in pilots[best].views}
    order = sorted(now, key=lambda names: min(place[name] for name in names))
    return replace(pilots[best], views=[found[names] for names in order]), gain


def climbed(
    work: Combining, now: frozenset[Set], proposed: Callable[[frozenset[Set]], Sequence[Change]], most: float
) -> tuple[frozenset[Set], float]:
    """Make the proposed changes whose gains exceed the least ones, best ones first, until none does or `most` columns
    a column of the table are scored; return the views and their gain, in nats a row. Collective."""
    work.left, gain = most * len(work.columns), 0.0
    for _ in range(MAX_ROUNDS):
        changes = proposed(now)
        new, worth = work.score(changes), [work.gain(change.before, change.after) for change in changes]
        ranked, left = sorted(zip(worth, range(len(changes))), key=lambda of: (-of[0], of[1])), now
        for more, c in ranked:
            if more > changes[c].least and changes[c].before <= left:
                now, left, gain = now - changes[c].before | changes[c].after, left - changes[c].before, gain + more
        if not new and left == now:
            break
    return now, gain


def suggested(now: Collection[Set], partitions: Sequence[Collection[Set]]) -> list[Change]:
    """Return changes of the present views: a group of columns that all partitions keep together leaves its view, or
    joins another with which it is in one view in some partition, or two such views merge."""
    groups, changes = [frozenset.union(*now)], set()
    for views in partitions:
        groups = [both for names in groups for view in views if (both := names & view)]
    for view in now:
        for group in (group for group in groups if group <= view):
            left = frozenset([view - group]) - {frozenset()}
            size = min(len(group), len(view - group) or len(group))
            changes |= {Change(frozenset([view]), left | {group}, size)} if left else set()
            for other in now - {view}:
                if any(names & group and names & other for views in partitions for names in views):
                    changes.add(Change(frozenset([view, other]), left | {other | group}, size))
                    changes.add(Change(frozenset([view, other]), frozenset([view | other]), min(len(view), len(other))))
    return list(changes)


def divided(now: Collection[Set], tree: Sequence[Set]) -> Iterator[Change]:
    """Yield the division of each view at the top of a tree of dependent columns, large views first."""
    for view in sorted(now, key=lambda names: (-len(names), min(names))):
        part = next((part for of in reversed(tree) if (part := of & view) and part != view), None)
        if part:
            yield Change(frozenset([view]), frozenset([part, view - part]), min(len(part), len(view - part)))


def unsuggested(now: Collection[Set], known: Mapping[Set, Scored], related: Related) -> list[Change]:
    """Return changes that no search need have made: merge the two views that depend most on each other; give a unit
    that the rest of its view hardly explains a view of its own, or move it to the other view on which it depends
    most. Units that depend on no other in their view come first, and leave for less."""
    changes = []
    if len(now) > 1:
        closest = max(combinations(sorted(now, key=min), 2), key=lambda views: related.between(*views))
        if not related.dependence.size or related.between(*closest) > 0.0:
            changes.append(Change(frozenset(closest), frozenset([frozenset.union(*closest)]), min(map(len, closest))))
    loose = [
        (related.holds(view - unit, unit), tie, min(unit), view, unit)
        for view in now if view in known for unit, tie in known[view].ties.items() if tie < LOOSE_PER_ROW
    ]  # fmt: skip
    for held, _, _, view, unit in sorted(loose, key=lambda of: of[:3]):
        rest, least = frozenset([view - unit]) - {frozenset()}, MIN_GAIN_PER_ROW if held else -MAX_LOSS_PER_ROW
        if rest:
            changes.append(Change(frozenset([view]), rest | {unit}, 1, least))
        near = max(sorted(now - {view}, key=min), key=lambda other: related.between(unit, other), default=view)
        if near != view and related.between(unit, near) > 0.0:
            changes.append(Change(frozenset([view, near]), rest | {near | unit}, 1, least))
    return changes


def _key(change: Change) -> list[list[str]]:
    return sorted(map(sorted, change.after))


def _related(alone: Serial, columns: Sequence[Column], rows: Rows, settings: Settings, chain: int) -> Related:
    units = chain_on(alone, columns, rows.take(slice(0, 1)), settings, chain).units
    between = between_units(columns, rows, units, DEVIATIONS)
    tree = [frozenset(name for u in of for name in units[u]) for of in branches(linked(between))]
    return Related(tree, [frozenset(names) for names in units], between)


def work_in_all(n_searches: int) -> float:
    """Return the most columns that are scored to combine n_searches, relative to the table's."""
    return max(WORK, n_searches) + 1.0 + WORK_BEYOND  # the views in between count 1


def folds(stream: np.random.Generator, n: int, n_rows: int, n_searches: int) -> np.ndarray:
    """Deal n rows to folds; n_rows: most rows of a search."""
    return stream.permutation(n) % (FOLDS if n_searches > SEARCHES else 2 if n >= 2 * n_rows else 3)


def scored(
    alone: Serial, every: Sequence[Column], rows: Rows, fold: np.ndarray, settings: Settings, chain: int, names: Set
) -> Scored:
    """Score a set of columns."""
    columns = [column for column in every if column.name in names]
    settings = replace(settings, view_concentration=None)
    if not isinstance(settings.links, str):
        settings = replace(settings, links={a: b for a, b in settings.links.items() if names.issuperset((a, b))})
    cells = Gather(columns, [Held(every, [rows])], settings.blocks)(0)
    result = np.empty(len(fold))
    for f in range(fold.max() + 1):
        others = cells.take(np.flatnonzero(fold != f))
        mixture = chain_on(alone, renumbered(columns), others, settings, chain)
        mixture.start("random", clusters_at_random(len(others)))
        unseen, states = cells.take(np.flatnonzero(fold == f)), []
        advance(mixture, BURN_IN_CYCLES)
        for _ in range(BURN_IN_CYCLES // CYCLES_PER_STATE):
            advance(mixture, CYCLES_PER_STATE)
            (density,) = densities(mixture.views, mixture.linking.codings)
            states.append(density.log_density(unseen))
        result[fold == f] = np.logaddexp.reduce(states, axis=0) - np.log(len(states))
    (view,) = found_by(mixture).views
    found = replace(view, columns=tuple(column.name for column in columns))
    return Scored(float(result.mean()), found, _ties(density, mixture.units, unseen))


def _ties(density: ViewDensity, units: Sequence[Sequence[str]], rows: Rows) -> dict[Set, float]:
    """Return the information of the other columns about each unit in new rows, in nats a row."""
    if len(units) < 2:
        return {frozenset(names): 0.0 for names in units}
    rows = rows.take(slice(0, max(MOST_CELLS // len(units) ** 2, 1)))

    def log_density(names: Collection[str]) -> np.ndarray:
        """Return the log density of the other columns' cells."""
        seen = rows.take(slice(None))
        for column in density.columns:
            if column.name in names:
                getattr(seen, column.block)[:, column.index] = column.blank
        return density.log_density(seen)

    whole, ties = log_density(()), {}
    for of in map(frozenset, units):
        rest = {column.name for column in density.columns} - of
        ties[of] = float(np.mean(whole - log_density(of) - log_density(rest)))
    return ties
