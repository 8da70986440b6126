"""Sentences about groups of clusters for the verdict."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from mpibayes.hpc.crosscat.report import groups
from mpibayes.hpc.crosscat.report.groups import ShownLevel
from mpibayes.hpc.crosscat.report.summarise import RunSummary
from mpibayes.hpc.crosscat.report.view_summary import ViewSummary
from mpibayes.hpc.report.document import Command
from mpibayes.text import counted, percent

VIEWS_LISTED = 3  # views whose levels the verdict describes
NAMES_SAID = 8  # most groups of a level that the verdict names
JOINED = 3  # most groups of a coarser level that it names, in the first view
NAMED = 3  # columns named per view
HEADLINE = "Use the groups that are named here; single clusters differ between the chains"
ROUGH = "Use the groups that are named here; other figures are rough"
SUMMARY = "Use the groups that are named here as a summary; another run would divide the rows differently"
CHANGING = "Use the groups that are named here as a summary; they may still change with more cycles"
STILL = "Use the groups that are named here; single clusters may still change"
CLIMBS = "The groups that are named here may still change: let the run continue"
ONE = "No groups of rows were found; use the predictions"
PREDICTIONS = "Use the predictions; no groups of rows can be used"
BEST = "Use the predictions of the best chain; the chains have found different groups"
VIEWS = "Use the views of the columns and the predictions; no groups of rows can be used"
ONE_VIEW = "Use the predictions: all columns go together, but no groups of rows can be used"


def usable(p: RunSummary) -> bool:
    """True if a level of a view can be used."""
    return any(groups.any_usable(view.levels) for view in p.views)


def natural(p: RunSummary) -> bool:
    """True if a level of a view is natural."""
    return any(_has(view, "natural") for view in p.views)


def changing(p: RunSummary) -> bool:
    """True if all chains find groups of a view that may still change."""
    return any(_has(view, "changing") for view in p.views)


def sentences(p: RunSummary) -> list[str]:
    """Say for the verdict which groups can be used. Views with natural levels come first; for them, summaries are left
    to the views' sections. If no view has usable groups, one sentence says so for all."""
    views = [view for view in p.views if view.levels]
    if len(views) > 1 and all(groups.judged(view.levels) for view in views) and not (usable(p) or changing(p)):
        return [groups.NOWHERE]
    lines = []
    for i, view in enumerate(most_useful_first(views)[:VIEWS_LISTED]):
        spelled_out = 1 if p.run.several else groups.SPELLED_OUT
        first, *more = _with_names(view, groups.in_words(view.levels, spelled_out, summaries=False), JOINED * (not i))
        where = f"View {view.number} ({first_columns(view)}): " if p.run.several else ""
        lines += [f"{where}{first}", *more]
    left = len(views) - VIEWS_LISTED
    return [*lines, f"{counted(left, 'more view')} with groups below."] if left > 0 else lines


def use_them(p: RunSummary) -> tuple[list[str], list[Command]]:
    """Advise the use of groups that can be used; the command writes those of the level shown first."""
    best = [groups.first(view.levels) for view in most_useful_first(p.views) if groups.any_usable(view.levels)]
    if not best:
        return [], []
    words = ["mpibayes", "export", str(p.run.chains[0].home), "--to", "clusters", "--groups", str(best[0].level.n)]
    use = "Use the groups." if natural(p) else "Use the groups as a summary."
    return [use], [("write the group of each row", shlex.join([*words, "-o", "groups.csv"]))]


def most_useful_first(views: Sequence[ViewSummary]) -> list[ViewSummary]:
    """Sort views: those with natural groups first, of these first where a level divides the rows and not only tells a
    few from all others; then those with groups that may change, then with usable ones."""

    def key(view: ViewSummary) -> list[bool]:
        divided = any(shown.level.natural and shown.level.usable for shown in view.levels)
        return [not divided, *(not _has(view, what) for what in ("natural", "changing", "usable"))]

    return sorted(views, key=key)  # stable


def _has(view: ViewSummary, what: str) -> bool:
    return any(getattr(shown.level, what) for shown in view.levels)


def _with_names(view: ViewSummary, given: Sequence[str], most: int) -> list[str]:
    """Add names of groups to the sentences about levels: after the level shown first its groups, if few and usable, and
    after natural levels of at most `most` groups, which join some of these, theirs."""
    shown = groups.first(view.levels)
    if shown is None or shown.level.n > NAMES_SAID or not (shown.level.changing or groups.any_usable([shown])):
        return [*given]
    at = given.index(str(shown.level)) + 1
    coarser = [of for of in view.levels if of.level.natural and of.level.n < min(shown.level.n, most + 1)]
    joined = [f"With {of.level.n} groups: {'; '.join(_names_of(of))}." for of in coarser] if shown.level.natural else []
    return [*given[:at], *(f"{name[:1].upper()}{name[1:]}." for name in _names_of(shown)), *given[at:], *joined]


def _names_of(shown: ShownLevel) -> list[str]:
    """Number and name the groups, those of all other rows last."""
    of = sorted(shown.groups, key=lambda group: group.name == groups.REST)  # sorted is stable
    shares = [percent(group.share) for group in of]
    shares[:1] = [f"{share} of the rows" for share in shares[:1]]
    return [f"group {group.number} ({share}): {group.name}" for group, share in zip(of, shares)]


def first_columns(view: ViewSummary, most: int = NAMED, shown: Callable[[str], str] = str) -> str:
    """Name the first columns of a view, formatted by `shown`, and count the rest."""
    names = view.names
    return ", ".join(map(shown, names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def title(shown: ShownLevel) -> str:
    """Describe the number of groups of a level, and whether they are natural."""
    return counted(shown.level.n, "natural group" if shown.level.natural else "group")
