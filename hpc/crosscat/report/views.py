"""Views in the report: columns of each view, with their certainty; and all columns, by information about clusters."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.report.clusters import among, of_best, which_draw
from mpibayes.hpc.crosscat.report.dependence import SURE
from mpibayes.hpc.crosscat.report.group_words import first_columns
from mpibayes.hpc.crosscat.report.profiles import ColumnProfile
from mpibayes.hpc.crosscat.report.summarise import RunSummary
from mpibayes.hpc.crosscat.report.view_summary import ViewSummary
from mpibayes.hpc.report.document import PAGE, Field, Matrix, Rounded, Section, Styled, Table, on_page, on_paper
from mpibayes.hpc.report.drawing import cut
from mpibayes.text import counted, percent, visible

LISTED = 30  # most views in the table on paper
NAMED, NAMED_ON_PAGE, NAMED_ON_TOP = 8, 12, 3  # columns named per view
TOP = 8  # views on the terminal
LETTERS = 30
PAIRS = 4  # uncertain pairs of columns shown
FIELDS = (
    Field("view", "whole"), Field("columns", "whole"),
    Field("together", "number", "share of the draws in which two of its columns share a view"),
    Field("clusters", "whole"), Field("largest", "share"), Field("which columns", "text"),
)  # fmt: skip


def section(p: RunSummary) -> Section:
    """Return the section on the representative views and their certainty."""
    draw = f"{which_draw(p.run, p.representatives)}, a typical one{of_best(p.run)}"
    words = f"A view is a set of columns that share one clustering of the rows. These are the views of a draw: {draw}."
    rows = [_line(p, i, view) for i, view in enumerate(p.views)]
    table = Table("view", FIELDS, rows, caption=lambda shown: _left_out(p, shown), most=LISTED)
    parts: list[Any] = [[on_page(words), on_paper(_title(p)), table, on_paper(_remark(p))]]
    d = p.dependence
    if d is not None and len(d.names) > 1 and d.share.min() < 1.0:
        words = f"Which columns go together: share of {counted(d.n_draws, 'draw')} in which two are in one view"
        parts.append(Matrix(d.names, d.share, d.ends.tolist(), words))
    return Section("views", "Views", parts)


def top(p: RunSummary) -> Table:
    """Return a table of the first views, for the terminal."""
    rows = [
        [view.number, len(view.names), None if view.spread else len(view.representative.sizes),
         _described(view, NAMED_ON_TOP)]
        for view in p.views
    ]  # fmt: skip
    return Table("view", [FIELDS[i] for i in (0, 1, 3, 5)], rows, most=TOP, more="more views")


def _title(p: RunSummary) -> Any:
    from mpibayes.terminal import Text

    r = p.representatives
    text = Text("Views: columns that share one clustering of the rows", style="bold")
    text.line(
        f"{which_draw(p.run, r)}: views closest to those of the {counted(r.n_own, 'kept draw')}{of_best(p.run)}"
        f"{among(r.among, 'view')} (expected variation of information of the columns {r.loss:.3f} nats)",
        style="not bold",
    )
    text.line(
        "together = share of the draws in which two of its columns share a view, averaged over pairs; loosest = the "
        "column least often with the others; the most informative columns come first",
        style="not bold dim",
    )
    return text


def _line(p: RunSummary, i: int, view: ViewSummary) -> list[Any]:
    r, n = view.representative, len(view.representative.of.names)
    sizes = ", ".join(percent(x / p.run.n_rows) for x in r.sizes[:3]) if len(r.sizes) > 1 else "all rows"
    clusters = [len(r.sizes), Rounded(r.sizes[0] / p.run.n_rows, sizes)]
    if view.spread:  # the clusters of a single column are its histogram
        clusters = [None, None]
    together = Rounded(view.together, f"{'alone ' if n == 1 else ''}{view.together:.2f}")
    return [view.number, n, together, *clusters, Styled(_described(view, NAMED_ON_PAGE), _columns(p, i, view))]


def _described(view: ViewSummary, most: int) -> str:
    """Name the columns of a view; describe a column alone with its distribution."""
    return first_columns(view, most, cut) + (f": {view.spread}" if view.spread else "")


def _columns(p: RunSummary, i: int, view: ViewSummary) -> Any:
    """Name the first columns of a view and count the rest."""
    from mpibayes.terminal import Text

    text = Text()
    for j, name in enumerate(view.names[:NAMED]):
        text.append(", " if j else "", style="dim").append(_short(name), style="cyan")
    if len(view.names) > NAMED:
        text.append(f" and {len(view.names) - NAMED:,} more", style="dim")
    shares = p.dependence.with_others(i)
    if len(shares) > 1 and shares.min() < SURE:
        loosest = p.dependence.names[p.dependence.of(i)][int(shares.argmin())]
        text.append(f"; loosest {_short(loosest)} {shares.min():.2f}", style="dim")
    if view.spread:
        text.append(f": {view.spread}", style="dim")
    elif len(view.representative.sizes) == 1:
        text.append("; one cluster: independent of each other" if len(shares) > 1 else "; one cluster", "dim")
    return text


def _left_out(p: RunSummary, shown: int) -> str:
    """Describe the views beyond those shown."""
    rest = p.views[shown:]
    if not rest:
        return ""
    columns = sum(len(view.representative.of.names) for view in rest)
    return (
        f"{counted(len(rest), 'more view')} with {counted(columns, 'column')} in all, at most "
        f"{len(rest[0].representative.of.names)} each: summary.json"
    )


def _remark(p: RunSummary) -> Any:
    """Describe the most uncertain pairs of columns."""
    from mpibayes.terminal import Text

    d = p.dependence
    uncertain, n_pairs = d.uncertain, len(d.names) * (len(d.names) - 1) // 2
    bounds = f"between {percent(1.0 - SURE)} and {percent(SURE)} of the draws"
    if not uncertain:
        return Text(
            f"every pair of columns is together, or apart, in at least {percent(SURE)} of the draws", style="dim"
        )
    pairs, seen = [], set()
    for i, j in uncertain:  # each column once: a column that changes views is paired with every column of a view
        if len(pairs) < PAIRS and not {i, j} & seen:
            seen |= {i, j}
            views = dict.fromkeys(str(d.view_of(c) + 1) for c in (i, j))
            names = " with ".join(_short(d.names[c]) for c in (i, j))
            pairs.append(f"{names} {percent(d.share[i, j])} (view{'s' * (len(views) > 1)} {' and '.join(views)})")
    many = f"{len(uncertain):,} of {counted(n_pairs, 'pair')} of columns are together in {bounds}"
    return Text(f"{many}; the least certain: {'; '.join(pairs)}", style="dim")


def _short(name: str) -> str:
    name = visible(name)
    return name if len(name) <= LETTERS else name[: LETTERS - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def of_outcome(p: RunSummary) -> str:
    """Name the view of the outcome's clusters; "" of a mixture."""
    if not p.run.several or p.outcome is None:
        return ""
    view = p.views[p.outcome.view]
    columns = first_columns(view, NAMED_ON_TOP, cut)
    return f"In {percent(p.outcome.share)} of the draws the outcome is in view {view.number} ({columns}). "


def of_columns(p: RunSummary) -> Section:
    """Return the section on all columns, by mutual information with the clusters of their view."""
    fields = [
        Field("column", "text"), Field("kind", "text"),
        Field("information, nats", "number", "mutual information of column and cluster"),
        Field("differs most in", "text", "the cluster that is farthest from all rows in this column"),
    ]  # fmt: skip
    together: dict[str, float] = {}
    if p.dependence is not None:
        shares = np.concatenate([p.dependence.with_others(i) for i in range(len(p.views))])
        together = dict(zip(p.dependence.names, shares.tolist()))
    if p.run.several:
        fields += [Field("view", "whole"), Field("with others", "number", "share of draws, mean over the view")]
    kinds, rows = {c.name: c.kind for c in p.run.data.stored}, []
    for view in p.views:
        of: dict[str, list[ColumnProfile]] = {}  # a column with atoms has two profiles; their information adds
        for c in view.profiles:
            of.setdefault(c.title, []).append(c)
        for name, parts in of.items():
            k = int(np.argmax(sum(c.divergence for c in parts)))
            cells = [sum(c.information for c in parts), f"cluster {k + 1}: {view.browsed[k].name}"]
            if view.spread:  # the clusters of a single column are its histogram
                cells = [None, f"alone: {view.spread}"]
            row = [name, kinds[name], *cells]
            rows.append([*row, view.number, together.get(name, np.nan)] if p.run.several else row)
    rows.sort(key=lambda row: np.inf if row[2] is None else -row[2])
    return Section("columns", "Columns", [Table("column", fields, rows)], PAGE)
