"""Groups at each level of a view, with names and traits; descriptions of levels, the most useful first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np

from mpibayes.hpc.crosscat.draws import OfColumns
from mpibayes.hpc.crosscat.levels.cells import Tally
from mpibayes.hpc.crosscat.levels.level import Level, first_level
from mpibayes.hpc.crosscat.levels.of_run import OFFERED, ViewLevels
from mpibayes.hpc.crosscat.report import profiles
from mpibayes.hpc.crosscat.report.beside_links import BesideLinks
from mpibayes.hpc.crosscat.report.names import NAMELESS, against_the_whole, most_telling, name_clusters
from mpibayes.hpc.crosscat.report.telling import Shared
from mpibayes.hpc.crosscat.report.traits import Trait, traits_of
from mpibayes.hpc.crosscat.summaries.shares import PopulationShares
from mpibayes.hpc.report.document import Levels, Numbers
from mpibayes.text import counted, enumerated

COMPARED = 12  # most groups of a level named by contrast with each other; more are contrasted with all rows
DETAILED = 8  # most groups of a level for which the page shows all columns
SPELLED_OUT = 3  # levels in sentences, per kind
REST = "all other rows"
BEFORE = dict(pairwise(reversed(OFFERED)))  # the next smaller number of groups offered
NOWHERE = "No natural groups of rows in any view: whatever their number, another run would divide the rows differently."
NONE = "No natural groups"
EVERY = f"{NONE}: whatever their number, another run would divide the rows differently."


@dataclass(frozen=True)
class GroupLine:
    """One group in the report. certain: see `Level.certain_of`."""

    number: int
    rows: int
    share: float
    certain: float
    traits: list[Trait]
    name: str
    population: float = np.nan  # share of the population, by survey weights, and its standard error for given groups
    population_error: float = np.nan


@dataclass(frozen=True, eq=False)  # == of arrays is no single bool
class ShownLevel:
    """A level with the names of its groups. whole: all columns in the groups, if these are few. pattern_of (N,):
    pattern of each training row; the level maps patterns to groups."""

    level: Level
    groups: list[GroupLine]
    whole: list[Levels | Numbers] = field(default_factory=list)
    pattern_of: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def labels(self) -> np.ndarray:
        """Group of each training row, int64 (N,), from 0."""
        return self.level.groups[self.pattern_of]


def shown_levels(
    tree: ViewLevels, mine: OfColumns, hyper, shared: Shared, beside: BesideLinks, weights: np.ndarray | None = None
) -> list[ShownLevel]:
    """Return the levels that a report offers, few groups first. weights (N,): survey weights of the training rows."""
    return [shown_level(tree, level, mine, hyper, shared, beside, weights) for level in tree.offered()]


def shown_level(
    tree: ViewLevels, level: Level, mine: OfColumns, hyper, shared: Shared, beside: BesideLinks,
    weights: np.ndarray | None = None,
) -> ShownLevel:  # fmt: skip
    """Return one level with its groups. hyper: of the representative draw, whose prior smooths categories' shares."""
    tallies = {t.column.name: t for t in tree.cells(level)}
    statistics, numbers = _statistics(mine, tallies), _numbers(tallies)
    every, few = np.arange(level.n), level.n <= COMPARED
    prior = mine.components.prior(hyper)

    def again(compared: bool = False):
        return profiles.each_profile(mine.components, prior, statistics, every, numbers, compared)

    columns = list(again(few))
    whole = [against_the_whole(c) for c in columns]
    repeated = beside.repeated([c.name for c in columns], level.groups[tree.patterns.of], level.n)
    if few:
        traits = [traits_of(columns, k, shared, repeated=repeated) for k in range(level.n)]
    else:
        traits = most_telling(again, whole, every, repeated)
    total, names = level.rows.sum(), name_clusters(traits)
    if names.count(NAMELESS) == 1:
        names[names.index(NAMELESS)] = REST
    groups = [
        GroupLine(k + 1, int(n), float(n / total), float(level.certain_of[k]), traits[k], names[k])
        for k, n in enumerate(level.rows)
    ]
    if weights is not None:
        shares = PopulationShares(level.groups[tree.patterns.of], weights)
        groups = [
            replace(group, population=float(p), population_error=float(e))
            for group, p, e in zip(groups, shares.share, shares.error)
        ]
    return ShownLevel(level, groups, whole if level.n <= DETAILED else [], tree.patterns.of)


def _statistics(mine: OfColumns, tallies: dict[str, Tally]) -> SimpleNamespace:
    """Return sizes and counts of categories for `profiles.each_profile`, in rows of an average draw."""
    of = [tallies[c.name].counts for c in mine.components.categorical.columns]
    size = next(iter(tallies.values())).counts.sum(axis=0)
    return SimpleNamespace(size=size, levels=np.concatenate(of) if of else np.zeros((0, len(size))))


def _numbers(tallies: dict[str, Tally]) -> dict[str, profiles.Numbers]:
    numeric = {name: t for name, t in tallies.items() if not t.column.levels}
    return {name: profiles.Numbers(t.counts[:-1], *t.moments) for name, t in numeric.items()}


# --- in words ---------------------------------------------------------------------------------------------------------


def first(levels: Sequence[ShownLevel]) -> ShownLevel | None:
    """Return the level that is shown first, see `level.first_level`."""
    level = first_level([shown.level for shown in levels])
    return next((shown for shown in levels if shown.level is level), None)


def in_words(levels: Sequence[ShownLevel], spelled_out: int = SPELLED_OUT, summaries: bool = True) -> list[str]:
    """Say which levels can be used: natural ones, the first `spelled_out` in a sentence each, then those that may still
    change, then usable ones. Without summaries, usable ones only if the chains share no groups, and not how far they
    are from natural."""
    of = [shown.level for shown in levels]
    if not of:
        return []
    if not of[0].judged:
        return [f"Groups from 2 to {of[-1].n}. One chain: not judged."]
    first = first_level(of)
    natural = sorted((level for level in of if level.natural), key=lambda level: level is not first)  # sorted is stable
    changing = [level for level in of if level.changing]
    usable = [level for level in of if level.usable and not (level.natural or level.changing)]
    sentences = [str(level) for level in natural[:spelled_out]] or ([str(first)] if changing else [])
    sentences = sentences or [f"{NONE}." if usable else EVERY]
    if len(natural) > spelled_out:
        sentences.append(f"Also natural: {_numbers_of(natural[spelled_out:])}.")
    if others := [level for level in changing if level is not first]:
        sentences.append(f"May still change: {_numbers_of(others)}.")
    if (natural or changing) and not summaries:
        return sentences
    if usable:
        sentences.append(str(usable[0]))
    if len(usable) > 1:
        sentences.append(f"Also summaries: {_numbers_of(usable[1:])}.")
    if not natural and not changing and not usable and summaries:
        best = max(of, key=lambda level: level.agree)
        which = f"not even {counted(best.n, 'group')}, on which the chains agree most"
        sentences.append(f"No number of groups is usable, {which}: {best.fault}.")
    return sentences


def any_usable(levels: Sequence[ShownLevel]) -> bool:
    return any(shown.level.natural or shown.level.usable for shown in levels)


def judged(levels: Sequence[ShownLevel]) -> bool:
    """True if several chains have judged the levels."""
    return levels[0].level.judged


def _numbers_of(levels: Sequence[Level]) -> str:
    """Describe numbers of groups: 2 to 5, 7 and 8 groups. A range may skip numbers that are not offered."""
    runs: list[list[int]] = []
    for n in (level.n for level in levels):
        if runs and BEFORE.get(n) == runs[-1][-1]:
            runs[-1].append(n)
        else:
            runs.append([n])
    words = [text for run in runs for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    return f"{enumerated(words)} groups"
