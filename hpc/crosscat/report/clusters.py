"""Clusters of a view, or groups of clusters, in the report: one table for paper, terminal and page; titles and
blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpibayes.hpc.crosscat.report import group_words, population, profiles
from mpibayes.hpc.crosscat.report.groups import GroupLine
from mpibayes.hpc.crosscat.report.profiles import BlockProfile
from mpibayes.hpc.crosscat.report.summarise import RunSummary
from mpibayes.hpc.crosscat.report.traits import TRAITS, Trait
from mpibayes.hpc.crosscat.report.view_summary import LISTED, ClusterLine, ViewSummary
from mpibayes.hpc.posterior.chains import KeptChains
from mpibayes.hpc.report.document import BOTH, PAGE, Details, Field, Figure, Section, Styled, Table, on_page, on_paper
from mpibayes.hpc.report.drawing import cut
from mpibayes.hpc.report.tables import plain_table
from mpibayes.text import counted, number, percent, span

MEANS_SHOWN = 10  # most columns of a block with means in the table
NAMED = 4  # columns of a view named in the title of its section
NUMBER = Field("#", "whole", "number, the largest first")
STABLE = Field("stable", "number", "mean over draws of the best overlap (Jaccard) with a cluster of the draw", digits=2)
ALSO = Field("also", "text", "further characteristics", PAGE)


def lines_table(
    noun: str, lines: Sequence[ClusterLine] | Sequence[GroupLine], measured: Sequence[tuple[Field, Sequence[float]]], *,
    heading: str = "", n_traits: int = TRAITS, plain: bool = False, **more: Any,
) -> Table:  # fmt: skip
    """Return a table with a line per cluster or group: name, traits, sizes. measured: further fields and their numbers.
    plain: True for clusters without cells, which have no names. more: further settings of the table."""
    weighed = population.weighed(lines)
    fields = [
        NUMBER, Field(heading or noun, "text", "what distinguishes it from the others", PAGE if plain else BOTH),
        Field("rows", "whole"), Field("share", "share", "of the rows"), *(population.FIELDS if weighed else ()),
        *(field for field, _ in measured), *([] if plain else [ALSO]),
    ]  # fmt: skip
    rows = []
    for i, line in enumerate(lines):
        row = [line.number, Styled(line.name, _named(line, n_traits)), line.rows, line.share]
        row += population.cells(line) if weighed else []
        row += [values[i] for _, values in measured]
        rows.append(row if plain else [*row, "; ".join(map(str, line.traits))])
    titles = [f"{noun.capitalize()} {x.number}: {x.name} ({x.rows:,} rows, {percent(x.share)})" for x in lines]
    return Table(noun, fields, rows, titles=titles, **more)


def details(whole: Sequence[Any], noun: str) -> Details | None:
    """Return the details of all columns in clusters or groups; None without columns."""
    measure = "distance from all rows (Kullback-Leibler divergence, nats)"
    return Details(whole, measure, here=f"this {noun}") if whole else None


def table(p: RunSummary, view: ViewSummary, most: int = LISTED, n_traits: int = TRAITS) -> Table:
    """Return the table of a view's clusters. most, n_traits: on paper."""
    stable = STABLE, [line.stability for line in view.browsed]
    return lines_table(
        "cluster", view.browsed, [stable], n_traits=n_traits, plain=not view.whole,
        details=details(view.whole, "cluster"), caption=lambda shown: _left_out(p, view, shown),
        most=min(most, len(view.clusters)),
    )  # fmt: skip


def _left_out(p: RunSummary, view: ViewSummary, shown: int) -> str:
    """Describe the clusters beyond those shown."""
    rest = view.representative.sizes[shown:]
    if not len(rest):
        return ""
    many, most = counted(len(rest), "more cluster"), counted(rest.max(), "row")
    size = f"with at most {most} each" if len(rest) > 1 else f"with {most}"
    where = "; see summary.json" if len(view.clusters) > shown else ""
    return f"{many} {size}, {percent(rest.sum() / p.run.n_rows)} of the rows{where}"


def section(
    p: RunSummary, view: ViewSummary, figures: Sequence[Figure], most: int, n_traits: int, first: bool, on: str
) -> Section:
    """Return the section on a view's clusters. most, n_traits: on paper; first: True to explain the table there; on:
    see `Section`."""
    words = (
        f"These are the clusters of one representative draw ({which_draw(p.run, view.representative)}): among draws "
        f"with a typical number of clusters, the one closest to the others{of_best(p.run)}. "
        f"{'Each view has its own. ' if p.run.several else ''}Choose a cluster to compare its columns with all rows."
    )
    shown = table(p, view, most, n_traits)
    blocks = [on_paper(*block_tables(view.clusters[:most], block)) for block in view.blocks]
    parts = [[on_page(words), on_paper(_title(p, view, first)), shown], *figures, *blocks]
    if not p.run.several:
        return Section("clusters", "Clusters", parts, on)
    columns = group_words.first_columns(view, NAMED, cut)
    return Section(f"clusters-{view.number}", f"Clusters of view {view.number}: {columns}", parts, on)


def _title(p: RunSummary, view: ViewSummary, first: bool) -> Any:
    from mpibayes.terminal import Text

    r = view.representative
    where = f"View {view.number}: clusters" if p.run.several else "Clusters"
    text = Text(f"{where} of the representative partition", style="bold")
    text.line(
        f"{which_draw(p.run, r)}: closest to the {counted(len(r.losses), 'kept draw')}{of_best(p.run)}"
        f"{among(r.among, 'cluster')} "
        f"(expected variation of information {r.loss:.3f} nats; the draws' mean is {r.losses.mean():.3f})",
        style="not bold",
    )
    if view.profiles and first:
        text.line(
            "stable = Jaccard overlap with the best-matching cluster of a draw, mean over draws; below the name: the "
            "columns that distinguish the cluster, those that add most first",
            style="not bold dim",
        )
    return text


def among(counts: tuple[int, int] | None, noun: str) -> str:
    """Describe the draws that a representative one was chosen from, if a nearer draw has an untypical number."""
    return "" if counts is None else f", of the draws with {span(counts, noun)}"


def which_draw(run: KeptChains, r: Any) -> str:
    """Name the draw of a representative partition."""
    return (f"{run.chains[r.chain].name}, " if len(run.chains) > 1 else "") + f"cycle {r.cycle:,}"


def of_best(run: KeptChains) -> str:
    """Say that draws of the best of several chains are shown."""
    return " of the best chain" if len(run.chains) > 1 else ""


def _named(line: ClusterLine | GroupLine, n_traits: int) -> Any:
    """Return the name of a cluster or group, with its traits below."""
    from mpibayes.terminal import Text

    words = Text().append(line.name, style="bold")
    for i, t in enumerate(line.traits[:n_traits]):
        words.append(" · ", style="dim") if i else words.line("")
        words.append_text(_phrase(t))
    return words


def _phrase(t: Trait) -> Any:
    """Format a trait for paper."""
    from mpibayes.terminal import Text

    text = Text()
    text.append(t.named, style="cyan")
    text.append(f" {t.value}", style="")
    text.append(f" (overall {t.overall})", style="dim")
    return text


def block_tables(clusters: Sequence[ClusterLine], block: BlockProfile) -> list[Any]:
    """Return a numbered list of a block's columns and, by number, as names are too long for table headers, their means
    and distinctive correlations in the clusters shown."""
    from rich.columns import Columns

    from mpibayes.terminal import Text

    numbered = {name: i for i, name in enumerate(block.columns, 1)}
    title = Text(f"Block {block.name}", style="bold")
    title.append(f": {len(numbered)} columns with a full covariance in each cluster", style="not bold")
    key = [Text(f"{f'({i})':>4} {cut(name)}") for name, i in numbered.items()]
    shown = min(len(numbered), MEANS_SHOWN)
    means = plain_table("#", *(f"({i})" for i in range(1, shown + 1)))
    pairs = plain_table("#", "", last="correlations that differ most from those in all rows")
    for of in (means, pairs):
        of.columns[0].justify, of.columns[0].no_wrap = "right", True
    for k, line in enumerate(clusters):
        words = Text()
        for i, (a, b, here, everywhere) in enumerate(profiles.correlated(block, k)):
            words.append(" · " if i else "", style="dim")
            words.append(f"({numbered[a]}, {numbered[b]})", style="cyan")
            words.append(f" {here:z.2f}")
            words.append(f" (overall {everywhere:z.2f})", style="dim")
        means.add_row(str(line.number), *(number(x) for x in block.mean[k][:shown]))
        pairs.add_row(str(line.number), words or Text("much like those in all rows", style="dim"))
    means.add_row("all", *(number(x) for x in block.overall_mean[:shown]), style="dim")
    rest = f" of the first {shown} columns; summary.json has them all" if shown < len(numbered) else ""
    return [title, Columns(key, (0, 2), column_first=True), Text(f"means{rest}", style="bold"), means, pairs]
