"""Changes of views that may predict better: by what searches disagree on, and by what no search has tried."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from mpibayes.hpc.crosscat.start.related import Related, Set

LOOSE_PER_ROW = 0.1  # most information of a view's other columns about a group that may leave, in nats
NEAREST = 3  # views that a loose group may join
MIN_GAIN_PER_ROW = 5e-3  # of a change, in nats
MAX_LOSS_PER_ROW = 1e-2  # of a change by which a unit leaves columns that it does not depend on: twice a score's error


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


def unsuggested(now: frozenset[Set], ties: Mapping[Set, Mapping[Set, float]], related: Related) -> list[Change]:
    """Return changes that no search need have made: merge the two views that depend most on each other; give a unit,
    or a group of dependent units, that the rest of its view hardly explains a view of its own, or move it to one of the
    other views on which it depends most.

    Those that depend on no other column of their view come first, and leave for less; then the one of each view that
    the rest explains least; then all others, the least explained ones first. ties: of views, as far as they are scored.
    """
    merged, ranked = list[Change](), list[tuple[tuple[bool, bool, float, list[str], int], Change]]()
    if len(now) > 1:
        closest = max(combinations(sorted(now, key=min), 2), key=lambda views: related.between(*views))
        if not related.dependence.size or related.between(*closest) > 0.0:
            merged = [Change(frozenset(closest), frozenset([frozenset.union(*closest)]), min(map(len, closest)))]
    for view in now & ties.keys():
        loose = sorted((related.holds(view - group, group), tie, sorted(group)) for group, tie in ties[view].items())
        for place, (held, tie, names) in enumerate(loose):
            if tie >= LOOSE_PER_ROW:
                continue
            group, least = frozenset(names), MIN_GAIN_PER_ROW if held else -MAX_LOSS_PER_ROW
            rest = frozenset([view - group]) - {frozenset()}
            if rest:
                ranked.append(((held, place > 0, tie, names, 0), Change(frozenset([view]), rest | {group}, 1, least)))
            others = sorted(now - {view}, key=lambda other: (-related.between(group, other), min(other)))
            for n, other in enumerate(others[:NEAREST], 1):
                if related.between(group, other) > 0.0:
                    change = Change(frozenset([view, other]), rest | {other | group}, 1, least)
                    ranked.append(((held, True, tie, names, n), change))
    return list(dict.fromkeys([*merged, *(change for _, change in sorted(ranked, key=lambda of: of[0]))]))


def apart(change: Change, units: Collection[Set]) -> int:
    """Return the views that a change adds; 0 if only a unit moves."""
    added = len(change.after) - len(change.before)
    return added if moved(change.before, change.after, units) is None else 0


def moved(before: Collection[Set], after: Collection[Set], units: Collection[Set]) -> tuple[Set, Set, Set] | None:
    """Return the unit that moves in a change of views, with the view that it leaves and the one that it joins, before
    and after; None if more changes."""
    lost, new, empty = set(before) - set(after), set(after) - set(before), frozenset[str]()
    for left, joined in product(sorted(lost, key=min), sorted(new, key=min)):
        unit = left & joined
        if unit in units and {left, joined - unit} - {empty} == lost and {left - unit, joined} - {empty} == new:
            return unit, left, joined
    return None
