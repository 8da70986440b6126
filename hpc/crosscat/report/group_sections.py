"""Groups of clusters as the verdict, the terminal and the page have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpibayes.hpc.crosscat.report import groups, population
from mpibayes.hpc.crosscat.report.groups import ShownLevel
from mpibayes.hpc.crosscat.report.summarise import RunSummary, ViewSummary
from mpibayes.hpc.report.document import BAD, DOUBT, GOOD, Browse, Details, Field, Section, Stops
from mpibayes.hpc.report.tables import plain_table
from mpibayes.text import counted, percent

VIEWS_SAID = 3  # views of which the verdict says the levels
NAMES_SAID = 6  # groups of a level that the verdict names
NAMED = 3  # columns of a view
HEADLINE = "Use the groups that are named here; single clusters differ between the chains"
ROUGH = "Use the groups that are named here; other figures are rough"
ONE = "No groups of rows were found; use the predictions"
PREDICTIONS = "Use the predictions; no groups of rows can be used"
BEST = "Use the predictions of the best chain; the others predict less well"
VIEWS = "Use the views of the columns and the predictions; no groups of rows can be used"
OF_GROUPS = (
    Field("#", "whole", "number, the largest first"), Field("group", "text", "what tells it from the others"),
    Field("rows", "whole"), Field("share", "share", "of the rows"),
    Field("certain", "share", "of its rows: in the same group in every chain"),
    Field("also", "text", "what else characterises it"),
)  # fmt: skip
OF_LAST = (*OF_GROUPS[:1], Field("cluster", "text"), *OF_GROUPS[2:4], OF_GROUPS[5])


def usable(p: RunSummary) -> bool:
    """True if a level of a view can be used."""
    return any(groups.any_usable(view.levels) for view in p.views)


def sentences(p: RunSummary) -> list[str]:
    """Say for the verdict which groups can be used; views with natural levels come first. Where there are none in any
    view, a sentence says so of all."""
    views = [view for view in p.views if view.levels]
    if len(views) > 1 and all(groups.judged(view.levels) for view in views) and not usable(p):
        return [groups.NOWHERE]
    views.sort(key=lambda v: (not _has(v, "natural"), not _has(v, "usable")))
    lines = []
    for view in views[:VIEWS_SAID]:
        first, *more = _with_names(view, groups.in_words(view.levels))
        where = f"View {view.number} ({_columns(view)}): " if p.run.several else ""
        lines += [f"{where}{first}", *more]
    left = len(views) - VIEWS_SAID
    return [*lines, f"{counted(left, 'more view')} with groups below."] if left > 0 else lines


def use_them(p: RunSummary) -> list[str]:
    """Give the command that writes the groups of the level shown first for another program."""
    best = [groups.first(view.levels) for view in p.views if groups.any_usable(view.levels)]
    if not best:
        return []
    command = f"mpibayes export {p.run.chains[0].home} --to clusters --groups {best[0].level.n} -o groups.csv"
    return [f"Use the groups: {command} writes the group of each row."]


def _has(view: ViewSummary, what: str) -> bool:
    return any(getattr(shown.level, what) for shown in view.levels)


def _with_names(view: ViewSummary, said: Sequence[str]) -> list[str]:
    """The sentences about levels; that of the level shown first is followed by its groups, if these are few and can be
    used."""
    shown = groups.first(view.levels)
    if shown is None or shown.level.n > NAMES_SAID or not groups.any_usable([shown]):
        return [*said]
    at = said.index(str(shown.level)) + 1
    return [*said[:at], f"They are: {'; '.join(f'{g.name} ({percent(g.share)})' for g in shown.groups)}.", *said[at:]]


def _columns(view: ViewSummary, most: int = NAMED) -> str:
    names = view.names
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def top(view: ViewSummary, heading: str, most: int) -> Any:
    """The groups of the level that is shown first, for the terminal."""
    shown = groups.first(view.levels)
    weighed = [population.HEADING] * population.weighed(shown.groups)
    table = plain_table("#", "rows", "share", *weighed, "")
    doubt = ", on which the chains disagree" if shown.level.judged and not groups.any_usable([shown]) else ""
    table.columns[0].justify, table.columns[-1].header = "right", f"{heading}{_title(shown)}{doubt}"
    for line in shown.groups[:most]:
        shares = [percent(line.share), *(population.in_words(line) for _ in weighed)]
        table.add_row(str(line.number), f"{line.rows:,}", *shares, line.name)
    return table


def _title(shown: ShownLevel) -> str:
    return counted(shown.level.n, "natural group" if shown.level.natural else "group")


def section(p: RunSummary, view: ViewSummary) -> Section:
    """The slider from few groups to all clusters."""
    first = groups.first(view.levels)
    tables = [_table(shown) for shown in view.levels]
    names = [_title(shown) for shown in view.levels]
    words = [str(shown.level) for shown in view.levels]
    marks = [_mark(shown) for shown in view.levels]
    k = len(view.representative.sizes)
    rows = [[c.number, c.name, c.rows, c.share, "; ".join(map(str, c.traits))] for c in view.browsed]
    tables.append(Browse("cluster", OF_LAST, rows))
    names.append(f"all {counted(k, 'cluster')}")
    words.append(f"The {counted(k, 'cluster')} of the representative draw: see the next section.")
    marks.append(BAD)
    stops = Stops("Groups", names, words, tables, marks, view.levels.index(first))
    parts: Sequence[Any] = [*groups.in_words(view.levels), stops]
    several = p.run.several
    title = f"Groups of view {view.number}: {_columns(view, 4)}" if several else "Groups"
    return Section(f"groups-{view.number}" if several else "groups", title, parts)


def _mark(shown: ShownLevel) -> str:
    return GOOD if shown.level.natural else DOUBT if shown.level.usable else BAD


def _table(shown: ShownLevel) -> Browse:
    rows = [[g.number, g.name, g.rows, g.share, g.certain, "; ".join(map(str, g.traits))] for g in shown.groups]
    details = None
    if shown.whole:
        distance = "distance from all rows (Kullback-Leibler divergence, nats)"
        details = Details(shown.whole, distance, here="this group")
    titles = [f"Group {g.number}: {g.name} ({g.rows:,} rows, {percent(g.share)})" for g in shown.groups]
    fields: Sequence[Field] = OF_GROUPS
    if population.weighed(shown.groups):  # behind the shares of rows
        fields = [*fields[:4], *population.FIELDS, *fields[4:]]
        rows = [[*row[:4], g.population, g.population_error, *row[4:]] for row, g in zip(rows, shown.groups)]
    return Browse("group", fields, rows, details, titles)
