"""Groups of clusters in the report: slider from few groups to all clusters, and the level shown first."""

from __future__ import annotations

from typing import Any

from mpibayes.hpc.crosscat.report import groups
from mpibayes.hpc.crosscat.report.clusters import details, lines_table
from mpibayes.hpc.crosscat.report.group_words import first_columns, title
from mpibayes.hpc.crosscat.report.groups import ShownLevel
from mpibayes.hpc.crosscat.report.summarise import RunSummary
from mpibayes.hpc.crosscat.report.view_summary import LISTED, ViewSummary
from mpibayes.hpc.report.document import BAD, DOUBT, GOOD, Field, Section, Stops, Table, on_page, on_paper
from mpibayes.text import counted

SLIDER = "Move the slider from few groups to all clusters. Groups are natural where each chain by itself finds them."
CERTAIN = Field("certain", "share", "of its rows: in the same group in every chain")


def section(p: RunSummary, view: ViewSummary, on: str = "both") -> Section:
    """Return the section on a view's levels: sentences, the first level on paper, and the slider."""
    first, tables = groups.first(view.levels), [_table(shown) for shown in view.levels]
    k = len(view.representative.sizes)
    stops = Stops(
        "Groups",
        [*map(title, view.levels), f"all {counted(k, 'cluster')}"],
        [*(str(shown.level) for shown in view.levels),
         f"The {counted(k, 'cluster')} of the representative draw: see the next section."],
        [*tables, lines_table("cluster", view.browsed, [])],
        [*map(_mark, view.levels), BAD],
        view.levels.index(first),
    )  # fmt: skip
    sentences = groups.in_words(view.levels)
    of_first = tables[view.levels.index(first)]
    words = [SLIDER, *sentences] if not any(shown.level.natural for shown in view.levels) else [SLIDER]
    parts = [[on_paper(_heading(p, view, sentences), of_first), on_page(*words, stops)]]
    if not p.run.several:
        return Section("groups", "Groups", parts, on)
    return Section(f"groups-{view.number}", f"Groups of view {view.number}: {first_columns(view, 4)}", parts, on)


def _heading(p: RunSummary, view: ViewSummary, sentences: list[str]) -> Any:
    from mpibayes.terminal import Text

    text = Text(f"View {view.number}: groups" if p.run.several else "Groups", style="bold")
    for sentence in sentences:
        text.line(sentence, style="not bold")
    return text


def top(view: ViewSummary, heading: str, most: int) -> Table:
    """Return the groups of the level shown first, for the terminal."""
    shown = groups.first(view.levels)
    doubt = f", {shown.level.doubt}" if shown.level.judged and not groups.any_usable([shown]) else ""
    table = _table(shown)
    names = [field.heading for field in table.fields if field.heading in ("#", "rows", "share", "population")]
    return table.brief(most, [*names, table.fields[1].heading], f"{heading}{title(shown)}{doubt}")


def _mark(shown: ShownLevel) -> str:
    return GOOD if shown.level.natural else DOUBT if shown.level.usable else BAD


def _table(shown: ShownLevel) -> Table:
    certain = CERTAIN, [line.certain if shown.level.judged else None for line in shown.groups]
    return lines_table(
        "group", shown.groups, [certain], heading=f"{counted(shown.level.n, 'group')}, and what characterises each",
        details=details(shown.whole, "group"), most=LISTED,
    )  # fmt: skip
