"""Report of the posterior of a mixture or a cross-categorization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.report import clusters, group_words, levels, links, outcome, survival, tables, views
from mpibayes.hpc.crosscat.report.clusters import which_draw
from mpibayes.hpc.crosscat.report.dependence import dependence_map
from mpibayes.hpc.crosscat.report.findings import findings
from mpibayes.hpc.crosscat.report.numbers import numbers
from mpibayes.hpc.crosscat.report.summarise import RunSummary, summarise
from mpibayes.hpc.crosscat.report.traits import MANY_CLUSTERS, TRAITS
from mpibayes.hpc.crosscat.report.verdict import verdict
from mpibayes.hpc.crosscat.report.view_summary import LISTED, ViewSummary
from mpibayes.hpc.crosscat.scalars import CLUSTERS
from mpibayes.hpc.report.document import BOTH, PAGE, Document, Figure, Section, drawn, on_paper
from mpibayes.hpc.report.tables import about_section
from mpibayes.text import counted, visible

TOP, TOP_OF_VIEW = 12, 6  # clusters on the terminal: for a mixture, and for the first of several views
PICTURED = 6  # views with a picture each
PAGED = 20  # views whose clusters are on the page
DESCRIBED = 8  # views whose clusters are on paper
LINES = 36  # clusters on paper, in all views together
FEWEST_LINES = 5  # least number of clusters per view on paper
FEW_TRAITS = 2  # traits per cluster with several views


def make(run: Posterior) -> Document:
    """Make the document; see `report.report`."""
    p = summarise(run)
    figures = _figures(p)
    return Document(
        run.chains, verdict(p), sections(p, figures), numbers(p), top(p), figures,
        findings=findings(p), linked=p.links.of_table if p.links else (),
    )  # fmt: skip


def top(p: RunSummary) -> list[Any]:
    """Return the tables for the terminal: groups or largest clusters; with several views, the views and the groups of
    the first whose groups can be used, if any."""
    if not p.run.several:
        return [_top_of(p, view, "", TOP) for view in p.views]
    telling = group_words.most_useful_first([view for view in p.views if not view.slight])[:1]
    return [views.top(p), *(_top_of(p, view, f"view {view.number}: ", TOP_OF_VIEW) for view in telling)]


def _top_of(p: RunSummary, view: ViewSummary, where: str, most: int) -> Any:
    if view.levels:
        return levels.top(view, where, most)
    table = clusters.table(p, view)
    names = [field.heading for field in table.fields if field.heading in ("#", "rows", "share", "population")]
    return table.brief(most, [*names, "cluster"], f"{where}clusters" if where else "largest clusters")


def sections(p: RunSummary, figures: Sequence[Figure]) -> list[Section]:
    """Return the sections, in order."""
    several = p.run.several
    made = [views.section(p)] if several and p.views else []
    telling = [view for view in p.views if not (several and view.slight)]
    most = max(FEWEST_LINES, LINES // min(max(len(telling), 1), DESCRIBED)) if several else LISTED
    for i, view in enumerate(telling[:PAGED]):
        on, picture = BOTH if i < DESCRIBED else PAGE, f"profiles-{view.number}.png" if several else "profiles.png"
        made += [levels.section(p, view, on)] if view.levels else []
        made.append(
            clusters.section(p, view, drawn(figures, picture), most, FEW_TRAITS if several else TRAITS, i == 0, on)
        )
    if p.outcome is not None:
        made.append(outcome.section(p.outcome, p.views[p.outcome.view].clusters, views.of_outcome(p)))
    watched = [(v, c) for v in p.views for c in v.curves]
    if watched:
        of = [(_where(p, v, c.column.name), c, v.clusters) for v, c in watched]
        made.append(survival.section(of, drawn(figures, *_names_of_curves(len(of)))))
    if len(telling) > DESCRIBED:
        words = f"the clusters of {counted(len(telling) - DESCRIBED, 'more view')} are in summary.json"
        made.append(Section("more", "More views", [on_paper(_dim(words))]))
    if p.links is not None and p.links.pairs:
        made.append(links.section(p.links, drawn(figures, "links.png")))
    if any(view.profiles for view in p.views):
        made.append(views.of_columns(p))
    made.append(Section("sizes", "Cluster sizes", drawn(figures, "cluster_sizes.png")))
    made.append(tables.section(p, drawn(figures, "chains.png", "annealing.png", "heldout.png")))
    return [*made, about_section(p.run.chains, tables.about(p))]


def _where(p: RunSummary, view: ViewSummary, name: str) -> str:
    return f"View {view.number}: {name}" if p.run.several else name


def _names_of_curves(n: int) -> list[str]:
    return [f"survival-{i + 1}.png" if n > 1 else "survival.png" for i in range(n)]


def _dim(line: str) -> Any:
    from mpibayes.terminal import Text

    return Text(line, style="dim")


def _figures(p: RunSummary) -> list[Figure]:
    from mpibayes.hpc.crosscat.report import figures

    run, after = p.run, p.settled.after.get(CLUSTERS)
    settled = [
        None if after is None else (after, float(np.interp(after, c.trace["cycle"], c.seconds))) for c in run.chains
    ]
    made = [Figure("trace.png", figures.trace(run.chains, settled, run.scalars))]
    if any(c.growth for c in run.chains):
        picture = figures.annealing(run.chains, settled, run.n_rows)
        words = "Growth: active rows, number of clusters, and the log joint per row below the best draws"
        made.append(Figure("annealing.png", picture, words))
    if p.agreement is not None and len(p.summaries) > 1:
        title = "Same views?" if run.several else "Same clustering?"
        a = p.agreement
        picture = figures.chains_compared(p.summaries, a.ari, a.vi, run.scalars, title)
        made.append(Figure("chains.png", picture, "Which chains agree, and the scalars of each: mean, 5 to 95 %"))
    if "heldout_lpd" in p.scalars:
        picture = figures.held_out(run.chains)
        made.append(Figure("heldout.png", picture, "Held-out log predictive density, of each draw and averaged"))
    if p.dependence is not None and len(p.dependence.names) > 1:
        picture = dependence_map(p.dependence)
        made.append(Figure("dependence.png", picture))
    if p.links is not None and any(pair.share > 0.5 for pair in p.links.pairs):
        picture = links.forest_picture(p.links)
        made.append(Figure("links.png", picture, "Links: each column below its parent"))
    return [*made, *_figures_of_views(p)]


def _figures_of_views(p: RunSummary) -> list[Figure]:
    """Draw the first views that group columns and rows; for a mixture, its only view."""
    from mpibayes.hpc.crosscat.report import figures
    from mpibayes.hpc.crosscat.report.heat_map import heat_map

    run, made = p.run, []
    shown = [view for view in p.views if not (run.several and view.slight)][:PICTURED]
    if shown:
        draws = f"{counted(len(shown[0].ordered), 'kept draw')} of {counted(run.n_rows, 'row')}"
        titles = [f"View {v.number}: cluster sizes" if run.several else "Cluster sizes" for v in shown]
        of = {f"{title} over {draws}": v.ordered for title, v in zip(titles, shown)}
        picture = figures.cluster_sizes(of, run.n_rows)
        made.append(Figure("cluster_sizes.png", picture, "Cluster sizes over the draws: mean, 5 to 95 %"))
    for v in shown:
        if v.profiles:
            sizes = np.array([line.rows for line in v.clusters[:MANY_CLUSTERS]])
            where, name = (f"View {v.number}: cluster", f"-{v.number}") if run.several else ("Cluster", "")
            title = f"{where} profiles of the representative partition"
            title += f" ({visible(which_draw(run, v.representative))})"
            picture = heat_map(
                v.columns, sizes, [line.name for line in v.clusters[: len(sizes)]], run.n_rows, title,
                len(v.representative.sizes), v.profiles,
            )  # fmt: skip
            words = "The largest clusters, in the columns that separate them"
            made.append(Figure(f"profiles{name}.png", picture, words))
    watched = [(v, c) for v in p.views for c in v.curves]
    for (v, c), name in zip(watched, _names_of_curves(len(watched))):
        picture = survival.picture(_where(p, v, f"time to event, {c.column.name}"), c, v.clusters)
        made.append(Figure(name, picture, "Share without the event, by cluster: posterior mean and 90 % band"))
    return made
