"""The report of a mixture, or of a cross-categorization, as the terminal and the page open it: the verdict, the largest
clusters by name, and sections to look things up in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.report import agreement, answers, group_sections, links, population, tables
from mpibayes.hpc.crosscat.report.profiles import ColumnProfile
from mpibayes.hpc.crosscat.report.remedies import PREDICTIONS
from mpibayes.hpc.crosscat.report.summarise import RunSummary, ViewSummary
from mpibayes.hpc.crosscat.report.views import which_draw
from mpibayes.hpc.report.document import (
    BAD,
    DOUBT,
    GOOD,
    Browse,
    Details,
    Field,
    Matrix,
    Section,
    Shown,
    Traces,
    Verdict,
    pictured,
)
from mpibayes.hpc.report.drawing import Picture, cut
from mpibayes.hpc.report.tables import head, plain_table, sentence, span, use_it, warned
from mpibayes.hpc.settled import APART
from mpibayes.text import counted, percent

TOP = 12  # clusters on the terminal
TOP_VIEWS, TOP_OF_VIEW = 8, 6  # views there, and clusters of the first
LARGEST = 10  # clusters whose share is said
NAMED = 3  # columns of a view
PAGED = 20  # views whose clusters the page has
OF_CLUSTERS = (
    Field("#", "whole", "number, the largest first"), Field("cluster", "text", "what distinguishes it from the others"),
    Field("rows", "whole"), Field("share", "share", "of the rows"),
    Field("stable", "number", "mean over draws of the best overlap (Jaccard) with a cluster of the draw"),
    Field("also", "text", "what else characterises it"),
)  # fmt: skip
PICTURES = {
    "chains.png": "Which chains agree, and the scalars of each: mean, 5 to 95 %",
    "annealing.png": "Growth: active rows, number of clusters, and the log joint per row below the best draws",
    "heldout.png": "Held-out log predictive density, of each draw and averaged",
    "cluster_sizes.png": "Cluster sizes over the draws: mean, 5 to 95 %",
    "links.png": "Which columns lean on which",
}


# --- the verdict ------------------------------------------------------------------------------------------------------


def verdict(p: RunSummary) -> Verdict:
    """Findings, agreement of the chains, and what to do next."""
    several, contradicted = len(p.summaries) > 1, agreement.contradicted(p.summaries, p.agreements)
    alike = not contradicted and p.verdict in ("same", "nearly")
    good = several and alike and p.settled.settled and not p.warnings
    headline = "" if good else _of_use(p, alike)
    sound = GOOD if good else BAD if contradicted and not headline else DOUBT
    chains, following = _chains(p, several), _next(p, sound)
    more = {"commands": p.advice.commands, "headline": headline, "warnings": warned(p.warnings)}
    return Verdict(_found(p), chains, following, sound, **more)


def _of_use(p: RunSummary, alike: bool) -> str:
    """Name the usable part of a result that is not sound as a whole; "" where there is none, and where nothing but the
    figures is in doubt. alike: whether the chains have the same clusters."""
    if any(c.climbed for c in p.summaries):  # to where groups may be others, whether chains agree or not
        return ""
    if group_sections.usable(p):
        return group_sections.ROUGH if alike else group_sections.HEADLINE
    if alike and p.predicts and p.one_population:
        return group_sections.ONE
    if alike or not (p.predicts or p.best):
        return ""
    if not p.predicts:
        return group_sections.BEST
    return group_sections.VIEWS if p.same_views else group_sections.PREDICTIONS


def _of_predictions(p: RunSummary) -> list[str]:
    """Say what can be used where groups cannot."""
    if group_sections.usable(p) or p.verdict in ("same", "nearly"):
        return []
    if not p.predicts:
        return _of_best(p)
    sentences = [f"Predictions can be used: held-out scores of the chains differ by {APART:g} nats a row at most."]
    if p.same_views:
        sentences.append(f"Every chain has the same {counted(len(p.views), 'view')} of the columns.")
    return sentences


def _of_best(p: RunSummary) -> list[str]:
    """Compare the scores of the best chain, whose predictions can be used, and of the others."""
    if p.best is None:
        return []
    (best, *others), _ = agreement.ranked(p.summaries)
    scores = span([round(c.heldout, 3) for c in others], "")
    return [f"{best.name} predicts best: held-out rows score {best.heldout:.3f} nats a row, in other chains {scores}."]


def _found(p: RunSummary) -> list[str]:
    run = p.run
    lines = [] if run.likelihood else ["Draws of the prior: the cells were ignored (model.likelihood = false)."]
    if not p.views:
        return [*lines, "No draw of the labels was kept after burn-in, so clusters cannot be shown."]
    lines += _of_predictions(p)
    lines += group_sections.sentences(p)
    if p.run.several:
        telling = [view for view in p.views if not view.slight]
        alone, sizes = len(p.views) - len(telling), [len(view.representative.sizes) for view in telling]
        groups = (
            f"{span(sizes, 'cluster')}{' each' * (len(telling) > 1)}"
            if telling
            else "no groups of rows in columns that go together"
        )
        how_many = f"{len(telling)} of them {'has' if len(telling) == 1 else 'have'} " if telling and alone else ""
        others = "the other is" if alone == 1 else "the others are"
        rest = f"; {others} a single column or a single cluster" if telling and alone else ""
        lines.append(
            f"{len(run.data.stored)} columns of {counted(run.n_rows, 'row')} in {counted(len(p.views), 'view')}: "
            f"{how_many}{groups}{rest}."
        )
    else:
        sizes = p.views[0].representative.sizes
        n = min(LARGEST, len(sizes))
        most = f"the {n} largest hold {percent(sizes[:n].sum() / run.n_rows)} of the rows" if n < len(sizes) else ""
        lines.append(f"{counted(len(sizes), 'cluster')} in {counted(run.n_rows, 'row')}{': ' * bool(most)}{most}.")
    lines += links.sentences(p.links)
    name = "n_views" if run.several else "n_clusters"
    k = p.scalars.get(name)
    if k is not None and not k.fixed and k.n_draws > 1:
        what = "views" if run.several else "clusters"
        lines.append(f"The draws have {k.low:,.0f} to {k.high:,.0f} {what} (5 to 95 %).")
    if p.heldout_averaged is not None:
        lines.append(f"Held-out rows score {p.heldout_averaged:.3f} nats a row.")
    elif "heldout_lpd" in p.scalars:  # averages begin after run.burn_in, which an early look has not reached
        lines.append(f"Held-out rows score {p.scalars['heldout_lpd'].mean:.3f} nats a row in each draw, on average.")
    return lines


def _chains(p: RunSummary, several: bool) -> list[str]:
    if p.agreement is None:
        return []
    lines = answers.answer(p.agreement, p.summaries, p.of_rows)[: 2 if p.of_rows else 1] if several else []
    return [
        *(lines or ["One chain only: another might find something else."]),
        f"Settled? {sentence(tables.settled(p).removesuffix('.'))}",
    ]


def _next(p: RunSummary, sound: str) -> list[str]:
    use_groups = group_sections.use_them(p) if sound != BAD else []
    best = None if p.predicts or sound != DOUBT else p.best
    usable = GOOD if sound != BAD and p.predicts else sound
    use = use_it(p.run, usable, best)
    return [*use_groups, *use, *(step for step in p.advice.steps if not (use and step == PREDICTIONS))]


# --- the terminal -----------------------------------------------------------------------------------------------------


def top(p: RunSummary) -> list[Any]:
    """The largest clusters by name; of several views these, and the clusters of the first that has some."""
    if not p.run.several:
        return [group_sections.top(v, "", TOP) if v.levels else _largest(v, "largest clusters", TOP) for v in p.views]
    table = plain_table("view", "columns", "clusters", "")
    table.columns[-1].header = "which columns"
    for view in p.views[:TOP_VIEWS]:
        k = "-" if view.spread else f"{len(view.representative.sizes):,}"
        table.add_row(str(view.number), f"{len(view.names):,}", k, _described(view, NAMED))
    if len(p.views) > TOP_VIEWS:
        table.caption, table.caption_justify = f"{len(p.views) - TOP_VIEWS:,} more views", "left"
    telling = [view for view in p.views if not view.slight][:1]
    return [table, *(_top_of(view) for view in telling)]


def _top_of(view: ViewSummary) -> Any:
    if view.levels:
        return group_sections.top(view, f"view {view.number}: ", TOP_OF_VIEW)
    return _largest(view, f"view {view.number}: clusters", TOP_OF_VIEW)


def _largest(view: ViewSummary, heading: str, most: int) -> Any:
    weighed = [population.HEADING] * population.weighed(view.browsed)
    table = plain_table("#", "rows", "share", *weighed, "")
    table.columns[0].justify, table.columns[-1].header = "right", heading
    for line in view.browsed[:most]:
        shares = [percent(line.share), *(population.in_words(line) for _ in weighed)]
        table.add_row(str(line.number), f"{line.rows:,}", *shares, line.name)
    n = len(view.representative.sizes) - most
    if n > 0:
        rest = view.representative.sizes[most:].sum()
        table.caption = f"{counted(n, 'more cluster')}, {percent(rest / view.representative.sizes.sum())} of the rows"
        table.caption_justify = "left"
    return table


def _described(view: ViewSummary, most: int) -> str:
    """The columns of a view; a column alone with its distribution."""
    return _names(view, most) + (f": {view.spread}" if view.spread else "")


def _names(view: ViewSummary, most: int = NAMED) -> str:
    names = view.names
    return ", ".join(map(cut, names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")


# --- the page ---------------------------------------------------------------------------------------------------------


def sections(p: RunSummary, pictures: Mapping[str, Picture]) -> list[Section]:
    """The sections of the page below the verdict, in order."""
    made = [] if not p.run.several or not p.views else [_views(p)]
    many = [view for view in p.views if not (p.run.several and view.slight)]
    for view in many[:PAGED]:
        made += [group_sections.section(p, view)] if view.levels else []
        made.append(_of_clusters(p, view, pictures))
    if p.links is not None and p.links.pairs:
        made.append(_links(p, pictures))
    if any(view.profiles for view in p.views):
        made.append(_columns(p))
    sizes = pictured(pictures, PICTURES, "cluster_sizes.png")
    if sizes:
        made.append(Section("sizes", "Cluster sizes", sizes))
    others = pictured(pictures, PICTURES, "chains.png", "annealing.png", "heldout.png")
    chains = [tables.chain_lines(p), *tables.agreed(p)] if len(p.summaries) > 1 else []
    moves = [tables.move_lines(p)] if agreement.moves_in(p.summaries)[0] else []
    moves += [tables.column_move_lines(p)] if p.run.several else []
    made.append(
        Section(
            "chains", "Chains", [Traces(p.run.chains, p.run.scalars), tables.scalar_lines(p), *chains, *moves, *others]
        )
    )
    return [*made, Section("about", "What was run", [head(p.run.chains, tables.about(p))])]


def _views(p: RunSummary) -> Section:
    fields = (
        Field("view", "whole"), Field("columns", "whole"),
        Field("together", "number", "share of the draws in which two of its columns share a view"),
        Field("clusters", "whole"), Field("largest", "share"), Field("which columns", "text"),
    )  # fmt: skip
    rows = [
        [
            view.number, len(view.names), view.together, *_clusters(p, view),
            _described(view, 12),
        ]
        for view in p.views
    ]  # fmt: skip
    parts: list[Any] = [
        "A view is a set of columns that share one clustering of the rows.",
        Browse("view", fields, rows),
    ]
    d = p.dependence
    if d is not None and len(d.names) > 1:
        words = f"Which columns go together: share of {counted(d.n_draws, 'draw')} in which two are in one view"
        parts.append(Matrix(d.names, d.share, d.ends.tolist(), words))
    return Section("views", "Views", parts)


def _clusters(p: RunSummary, view: ViewSummary) -> list[Any]:
    """The number of clusters of a view, and the share of the largest; None for a column shown as a distribution."""
    sizes = view.representative.sizes
    return [None, None] if view.spread else [len(sizes), float(sizes[0] / p.run.n_rows)]


def _of_clusters(p: RunSummary, view: ViewSummary, pictures: Mapping[str, Picture]) -> Section:
    several, r = p.run.several, view.representative
    rows = [[c.number, c.name, c.rows, c.share, c.stability, "; ".join(str(t) for t in c.traits)] for c in view.browsed]
    left = len(r.sizes) - len(rows)
    small = f"; {left:,} smaller ones are left out" if left else ""
    words = (
        f"Clusters of the representative partition ({which_draw(p.run, r)}), the draw of a typical number of clusters "
        "that is nearest to all others. "
        "Choose one to compare its columns with all rows."
    )
    measure = "distance from all rows (Kullback-Leibler divergence, nats)"
    details = Details(view.whole, measure, here="this cluster") if view.whole else None
    fields = OF_CLUSTERS if details else [f for f in OF_CLUSTERS if f.heading != "also"]
    rows = rows if details else [row[:-1] for row in rows]
    if population.weighed(view.browsed):  # behind the shares of rows
        fields = [*fields[:4], *population.FIELDS, *fields[4:]]
        rows = [[*row[:4], c.population, c.population_error, *row[4:]] for row, c in zip(rows, view.browsed)]
    titles = [f"Cluster {c.number}: {c.name} ({c.rows:,} rows, {percent(c.share)})" for c in view.browsed]
    parts: list[Any] = [
        words,
        Browse("cluster", fields, rows, details, titles, f"{counted(len(r.sizes), 'cluster')}{small}"),
    ]
    name = f"profiles-{view.number}.png" if several else "profiles.png"
    if name in pictures:
        parts.append(Shown(name, pictures[name], "The largest clusters in the columns that tell them apart"))
    columns = f" of {_names(view, 4)}" if several else ""
    title = f"View {view.number}: clusters{columns}" if several else "Clusters"
    return Section(f"clusters-{view.number}" if several else "clusters", title, parts)


def _links(p: RunSummary, pictures: Mapping[str, Picture]) -> Section:
    """Pairs of columns that stay dependent inside clusters."""
    fields = (
        Field("column", "text"), Field("leans on", "text", "its parent, in most draws"),
        Field("draws", "share", "in which the two are linked, either way"),
        Field("sure in", "text", f"chains with the link in at least {percent(links.SURE)} of the draws"),
        Field("gain, nats", "number", "a row, of the column's cells within clusters"), Field("for example", "text"),
    )  # fmt: skip
    rows = [[pair.child, pair.parent, pair.share, pair.sure, pair.gain, pair.example] for pair in p.links.pairs]
    words = (
        "Inside clusters these columns stay dependent, in the same way in all clusters. Clusters tell what the "
        "rows have in common besides. Which of two columns leans on the other says nothing of causes. "
        f"Shares are of {counted(p.links.n_draws, 'draw')}."
    )
    shown = pictured(pictures, PICTURES, "links.png")
    return Section("links", "Linked columns", [words, Browse("pair", fields, rows), *shown])


def _columns(p: RunSummary) -> Section:
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
        of: dict[str, list[ColumnProfile]] = {}  # of a column with atoms two, whose information is a sum
        for c in view.profiles:
            of.setdefault(c.title, []).append(c)
        for name, parts in of.items():
            k = int(np.argmax(sum(c.divergence for c in parts)))
            cells = [sum(c.information for c in parts), f"cluster {k + 1}: {view.browsed[k].name}"]
            if view.spread:  # whose clusters are its histogram
                cells = [None, f"alone: {view.spread}"]
            row = [name, kinds[name], *cells]
            rows.append([*row, view.number, together.get(name, np.nan)] if p.run.several else row)
    rows.sort(key=lambda row: np.inf if row[2] is None else -row[2])
    return Section("columns", "Columns", [Browse("column", fields, rows)])
