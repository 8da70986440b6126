"""Views in the report: the columns of each, how sure they are, and its clusters of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpibayes.hpc.crosscat.report import groups, population, profiles
from mpibayes.hpc.crosscat.report.dependence import SURE
from mpibayes.hpc.crosscat.report.groups import GroupLine, ShownLevel
from mpibayes.hpc.crosscat.report.profiles import TRAITS, BlockProfile, Trait
from mpibayes.hpc.crosscat.report.summarise import LISTED, ClusterLine, RunSummary, ViewSummary
from mpibayes.hpc.posterior.chains import KeptChains
from mpibayes.hpc.report.drawing import cut
from mpibayes.hpc.report.tables import plain_table, span
from mpibayes.text import counted, number, percent, visible

MEANS_SHOWN = 10  # columns of a block whose means the table has
VIEWS_LISTED = 30  # views in the table, at most
DESCRIBED = 8  # views whose clusters are listed
LINES = 36  # of clusters, in all views together
FEWEST_LINES = 5  # of a view's clusters
FEW_TRAITS = 2  # of a cluster, where there are several views
NAMED = 8  # columns of a view named in the table
LETTERS = 30
PAIRS = 4  # of columns, of which the draws are least certain


def of_views(p: RunSummary) -> list[Any]:
    """The representative views, then the clusters of the rows in each."""
    if p.dependence is None:
        return [part for view in p.views for part in _of_view(p, view, LISTED)]
    text = ["", _views_title(p), _views_table(p), *_remarks(p)]
    telling = [view for view in p.views if not view.slight]
    most = max(FEWEST_LINES, LINES // min(max(len(telling), 1), DESCRIBED))
    for view in telling[:DESCRIBED]:
        text += _of_view(p, view, most, FEW_TRAITS, view is telling[0])
    if len(telling) > DESCRIBED:
        text += ["", _dim(f"the clusters of {counted(len(telling) - DESCRIBED, 'more view')} are in summary.json")]
    return text


def _of_view(p: RunSummary, view: ViewSummary, most: int, n_traits: int = TRAITS, first: bool = True) -> list[Any]:
    """Its largest clusters, and its blocks. first: the one that explains the table."""
    shown = view.clusters[:most]
    text = [*group_lines(p, view), "", _cluster_title(p, view, first), _cluster_table(view, shown, n_traits)]
    text += _small_clusters(p, view, shown)
    for block in view.blocks:
        text += ["", *block_tables(shown, block)]
    return text


# --- columns ----------------------------------------------------------------------------------------------------------


def _views_title(p: RunSummary) -> Any:
    from mpibayes.terminal import Text

    r = p.representatives
    text = Text("Views: columns that share one clustering of the rows", style="bold")
    text.line(
        f"{which_draw(p.run, r)}: of {counted(len(r.compared.cycle), 'kept draw')}{_among(r.among, 'view')} the one "
        f"whose views are nearest to those of all (expected variation of information of the columns {r.loss:.3f} nats)",
        style="not bold",
    )
    text.line(
        "together = share of the draws in which two of its columns share a view, averaged over pairs; loosest = the "
        "column least often with the others; columns that say most about the clusters come first",
        style="not bold dim",
    )
    return text


def _views_table(p: RunSummary) -> Any:
    table = plain_table("view", "columns", "together", "clusters", "largest", "")
    table.columns[0].justify = "right"
    table.columns[-1].header = "which columns"
    for i, view in enumerate(p.views[:VIEWS_LISTED]):
        table.add_row(*_view_line(p, i, view))
    return table


def _view_line(p: RunSummary, i: int, view: ViewSummary) -> list[Any]:
    r, n = view.representative, len(view.representative.of.names)
    sizes = ", ".join(percent(x / p.run.n_rows) for x in r.sizes[:3]) if len(r.sizes) > 1 else "all rows"
    alone = "alone " if n == 1 else ""
    clusters = f"{len(r.sizes):,}"
    if view.spread:  # the clusters of a single column are its histogram
        clusters = sizes = "-"
    return [str(view.number), f"{n:,}", f"{alone}{view.together:.2f}", clusters, sizes, _columns(p, i, view)]


def _columns(p: RunSummary, i: int, view: ViewSummary) -> Any:
    """The columns of a view, the first of many by name."""
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


def _remarks(p: RunSummary) -> list[Any]:
    """Views that the table leaves out, and the pairs of columns of which the draws are least certain."""
    d, remarks = p.dependence, []
    if len(p.views) > VIEWS_LISTED:
        rest = p.views[VIEWS_LISTED:]
        columns = sum(len(view.representative.of.names) for view in rest)
        remarks.append(
            f"{counted(len(rest), 'more view')} with {counted(columns, 'column')} in all, at most "
            f"{len(rest[0].representative.of.names)} each: summary.json"
        )
    uncertain, n_pairs = d.uncertain, len(d.names) * (len(d.names) - 1) // 2
    bounds = f"between {percent(1.0 - SURE)} and {percent(SURE)} of the draws"
    if not uncertain:
        remarks.append(f"every pair of columns is together, or apart, in at least {percent(SURE)} of the draws")
    else:
        pairs, seen = [], set()
        for i, j in uncertain:  # each column once: one that wanders makes a pair with each of a view
            if len(pairs) < PAIRS and not {i, j} & seen:
                seen |= {i, j}
                views = dict.fromkeys(str(d.view_of(c) + 1) for c in (i, j))
                names = " with ".join(_short(d.names[c]) for c in (i, j))
                pairs.append(f"{names} {percent(d.share[i, j])} (view{'s' * (len(views) > 1)} {' and '.join(views)})")
        many = f"{len(uncertain):,} of {counted(n_pairs, 'pair')} of columns are together in {bounds}"
        remarks.append(f"{many}; the least certain: {'; '.join(pairs)}")
    return [_dim(line) for line in remarks]


def _short(name: str) -> str:
    name = visible(name)
    return name if len(name) <= LETTERS else name[: LETTERS - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def _dim(line: str) -> Any:
    from mpibayes.terminal import Text

    return Text(line, style="dim")


def which_draw(run: KeptChains, r: Any) -> str:
    """Name the draw that a representative partition is of."""
    return (f"{run.chains[r.chain].name}, " if len(run.chains) > 1 else "") + f"cycle {r.cycle:,}"


# --- clusters ---------------------------------------------------------------------------------------------------------


def group_lines(p: RunSummary, view: ViewSummary) -> list[Any]:
    """Sentences about the levels of a view, the most useful first, and the groups of that level."""
    from mpibayes.terminal import Text

    level = groups.first(view.levels)
    if level is None:
        return []
    text = Text(f"View {view.number}: groups" if p.run.several else "Groups", style="bold")
    for sentence in groups.in_words(view.levels):
        text.line(sentence, style="not bold")
    return ["", text, group_table(level)]


def group_table(level: ShownLevel, n_traits: int = TRAITS) -> Any:
    """The groups of a level, with what characterises them."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    weighed = [population.HEADING] * population.weighed(level.groups)
    for name in ("#", "rows", "share", *weighed, "certain"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"{counted(level.level.n, 'group')}, and what characterises each")
    for line in level.groups[:LISTED]:
        certain = percent(line.certain) if level.level.judged else "-"
        shares = [percent(line.share), *(population.in_words(line) for _ in weighed)]
        table.add_row(str(line.number), f"{line.rows:,}", *shares, certain, _named(line, n_traits))
    return table


def _named(line: ClusterLine | GroupLine, n_traits: int) -> Any:
    """The name of a cluster, or of a group, and below it its traits."""
    from mpibayes.terminal import Text

    words = Text().append(line.name, style="bold")
    for i, t in enumerate(line.traits[:n_traits]):
        words.append(" · ", style="dim") if i else words.line("")
        words.append_text(_phrase(t))
    return words


def _cluster_title(p: RunSummary, view: ViewSummary, first: bool) -> Any:
    from mpibayes.terminal import Text

    r = view.representative
    where = f"View {view.number}: clusters" if p.run.several else "Clusters"
    text = Text(f"{where} of the representative partition", style="bold")
    text.line(
        f"{which_draw(p.run, r)}: of {counted(len(r.losses), 'kept draw')}{_among(r.among, 'cluster')} the one nearest "
        f"to all (expected variation of information {r.loss:.3f} nats; the draws' mean is {r.losses.mean():.3f})",
        style="not bold",
    )
    if view.profiles and first:
        text.line(
            "stable = best overlap with a cluster of a draw (Jaccard), mean over draws; below the name: what "
            "distinguishes the cluster, in the order of what each column adds",
            style="not bold dim",
        )
    return text


def _among(counts: tuple[int, int] | None, noun: str) -> str:
    """Draws that a representative one was chosen from, where a nearer one has an untypical number of clusters."""
    return "" if counts is None else f", among those with {span(counts, noun)},"


def _cluster_table(view: ViewSummary, shown: Sequence[ClusterLine], n_traits: int) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    weighed = [population.HEADING] * population.weighed(shown)
    for name in ("#", "rows", "share", *weighed, "stable"):
        table.add_column(name, justify="right", no_wrap=True)
    if view.profiles:
        table.add_column("cluster, and what characterises it")
    for line in shown:
        shares = [percent(line.share), *(population.in_words(line) for _ in weighed)]
        cells = [str(line.number), f"{line.rows:,}", *shares, f"{line.stability:.2f}"]
        if view.profiles:
            cells.append(_named(line, n_traits))
        table.add_row(*cells)
    return table


def block_tables(clusters: Sequence[ClusterLine], block: BlockProfile) -> list[Any]:
    """The columns of a block, numbered; by these numbers, as names are too long for table headers, their means and
    telling correlations in the clusters shown."""
    from rich.columns import Columns
    from rich.table import Table

    from mpibayes.terminal import Text

    numbered = {name: i for i, name in enumerate(block.columns, 1)}
    title = Text(f"Block {block.name}", style="bold")
    title.append(f": {len(numbered)} columns with a full covariance in each cluster", style="not bold")
    key = [Text(f"{f'({i})':>4} {cut(name)}") for name, i in numbered.items()]
    means = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    means.add_column("#", justify="right", no_wrap=True)
    shown = min(len(numbered), MEANS_SHOWN)
    for i in range(1, shown + 1):
        means.add_column(f"({i})", justify="right", no_wrap=True)
    pairs = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    pairs.add_column("#", justify="right", no_wrap=True)
    pairs.add_column("correlations that differ most from those in all rows")
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


def _phrase(t: Trait) -> Any:
    """A trait on paper."""
    from mpibayes.terminal import Text

    text = Text()
    text.append(t.named, style="cyan")
    text.append(f" {t.value}", style="")
    text.append(f" (overall {t.overall})", style="dim")
    return text


def _small_clusters(p: RunSummary, view: ViewSummary, shown: Sequence[ClusterLine]) -> list[Any]:
    rest = view.representative.sizes[len(shown) :]
    if not len(rest):
        return []
    many, most = counted(len(rest), "more cluster"), counted(rest.max(), "row")
    size = f"with at most {most} each" if len(rest) > 1 else f"with {most}"
    where = "; see summary.json" if len(view.clusters) > len(shown) else ""
    return [_dim(f"{many} {size}, {percent(rest.sum() / p.run.n_rows)} of the rows{where}")]
