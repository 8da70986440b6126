"""The report of a mixture as text: its tables and paragraphs, in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.report import agreement, profiles
from mpibayes.hpc.crosscat.report.profiles import BlockProfile, Trait
from mpibayes.hpc.crosscat.report.summarise import SECOND_CHAIN, RunSummary
from mpibayes.hpc.crosscat.scalars import SCALARS
from mpibayes.hpc.posterior.tables import (
    fixed,
    head,
    means,
    not_started,
    plain_table,
    scalar_table,
    sds,
    shards,
    span,
    states,
    warnings_in_words,
)
from mpibayes.hpc.posterior.wide_table import chain_table
from mpibayes.hpc.scalar import named
from mpibayes.text import counted, number, percent, took

MATRIX = 8  # chains that are compared pair by pair in the text; the picture and summary.json have them all
MEANS_SHOWN = 10  # columns of a block whose means the table has


def parts(posterior: RunSummary) -> list[Any]:
    """What is printed, in order."""
    text = [head(posterior.run.chains, _about(posterior)), "", _scalar_table(posterior)]
    if posterior.warnings:
        text += ["", warnings_in_words(posterior.warnings)]
    if len(posterior.summaries) > 1:
        text += ["", _chain_table(posterior), *_agreement(posterior)]
    if agreement.moves_in(posterior.summaries)[0]:
        text += ["", _move_table(posterior)]
    if posterior.representative is not None:
        text += ["", _cluster_title(posterior), _cluster_table(posterior), *_small_clusters(posterior)]
        for block in posterior.blocks:
            text += ["", *block_tables(posterior, block)]
    return text


def _about(p: RunSummary) -> list[tuple[str, str]]:
    run, config = p.run, p.run.chains[0].config
    data = run.data
    kinds: dict[str, int] = {}
    for c in data.stored:
        kinds[c.kind] = kinds.get(c.kind, 0) + 1
    rows = counted(run.n_rows, "training row")
    if data.heldout is not None:
        rows += f", {len(data.heldout):,} held out"
    elif config.heldout_path is not None:
        rows += f"; held-out rows from {config.heldout_path}"
    columns = f"{len(data.stored)} (" + ", ".join(f"{n} {kind}" for kind, n in kinds.items()) + ")"
    if not run.likelihood:
        columns += "; their cells were ignored: model.likelihood = false samples the prior"
    lines = [("table", str(run.table.path)), ("rows", rows), ("columns", columns)]
    for name, of in data.carve.blocks.items():
        lines.append(("block", f"{name}, a full covariance of {len(of)} columns: {', '.join(of)}"))
    return [*lines, *_about_chains(p)]


def _about_chains(p: RunSummary) -> list[tuple[str, str]]:
    """Length and phases of the chains, in words."""
    summaries, several = p.summaries, len(p.summaries) > 1
    wanted = span([c.config.run.cycles for c in p.run.chains])
    cycles = f"{span([c.cycles for c in summaries])} of {wanted}" + (f", {len(summaries)} chains" if several else "")
    lines = [("cycles", f"{cycles}, {states(p.run.chains)}"), *not_started(p.run.chains)]
    burn_in = f"{span([c.burn_in for c in summaries], 'cycle')} left out"
    grown = [c for c in summaries if c.growth]
    if grown:
        some = f" ({len(grown)} of the chains)" if len(grown) < len(summaries) else ""
        start = span([int(c.trace["active_rows"][0]) for c in p.run.chains if c.growth], "active row")
        until = f"{span([c.growth for c in grown])} ({took(max(c.growth_s for c in grown))})"
        lines.append(("growth", f"{start} at first, all {p.run.n_rows:,} from cycle {until} on{some}"))
        if any(c.burn_in == c.growth for c in grown):
            burn_in += ", no fewer than the growth takes"
    lines.append(("burn-in", f"{burn_in}; {counted(p.n_kept, 'draw')} of the labels kept after it"))
    pieces = shards(p.run.chains[0].config)
    first = first_exact(p)
    lines.append(
        (
            "exact",
            f"from cycle {first:,} on: every cycle leaves the posterior invariant, on any number of ranks ({pieces})",
        )
    )
    lines.append(("settled", _settled(p)))
    if not several and p.agreement is not None and np.isfinite(p.agreement.ari[0, 0]):
        ari, vi = p.agreement.ari[0, 0], p.agreement.vi[0, 0]
        halves = f"adjusted Rand index {ari:.3f}, variation of information {vi:.2f} nats"
        halves += " between the representative partitions of the two halves of the draws"
        lines.append(("halves", f"{halves}. A chain that is stuck agrees with itself too. {SECOND_CHAIN}"))
    if not agreement.moves_in(summaries)[0]:
        lines.append(("moves", "no split or merge was tried (sampler.split_merge)"))
    return lines


def _settled(p: RunSummary) -> str:
    """The judgement, in words."""
    words = str(p.settled)
    if any(c.climbed for c in p.summaries):
        return f"not yet: the log joint climbs; {words}"
    return f"{words}. {p.settled.meaning}" if p.settled.meaning else words


def first_exact(p: RunSummary) -> int:
    """The cycle from which on every chain is exact."""
    return max(c.growth for c in p.summaries) + 1


def _scalar_table(p: RunSummary) -> Any:
    mode = max(p.n_clusters, key=p.n_clusters.get)
    remarks = {"n_clusters": f"mode {mode} ({percent(p.n_clusters[mode])} of the draws)"}
    table = scalar_table(SCALARS, p.scalars, remarks)
    if p.heldout_averaged is not None:
        own = [c.config.burn_in for c in p.run.chains]
        since = (
            ""
            if own == [c.burn_in for c in p.run.chains]
            else f", over the draws after the run's burn-in of {own[0]:,}"
        )
        table.add_row(
            "held-out, averaged",
            fixed(p.heldout_averaged, 3),
            *[""] * 5,
            f"log of the mean density, nats a row{since}",
        )
    return table


def _chain_table(p: RunSummary) -> Any:
    joint, k, entropy = (named(SCALARS)[name] for name in ("log_joint", "n_clusters", "entropy"))
    chains = [c.scalars for c in p.summaries]
    scored = any(np.isfinite(c.heldout) for c in p.summaries)
    return chain_table(
        {
            "chains": [c.name for c in p.summaries],
            joint.column: means(joint, chains),
            "sd": sds(joint, chains),
            **({"held-out": [fixed(c.heldout, 3) for c in p.summaries]} if scored else {}),
            k.column: means(k, chains),
            f"last {k.column}": [str(c.n_clusters) for c in p.summaries],
            "entropy": means(entropy, chains),
        }
    )


def _agreement(p: RunSummary) -> list[Any]:
    """The similarity of the chains' partitions, and the conclusion."""
    from mpibayes.terminal import Text

    a = p.agreement
    if a is None:
        return []
    parts: list[Any] = []
    if len(a.ari) <= MATRIX:
        table = plain_table("adjusted Rand index (variation of information)", *(c.name for c in p.summaries))
        for i, c in enumerate(p.summaries):
            cells = [
                f"{x:.3f} ({v:.2f})" if np.isfinite(x) else "-" for x, v in zip(a.ari[i, : i + 1], a.vi[i, : i + 1])
            ]
            table.add_row(c.name, *cells)
        words = (
            f"of the chains' representative partitions, on {a.n_rows:,} rows; on the diagonal of the two halves of one "
            "chain"
        )
        parts += ["", table, Text(words, style="dim")]
    text = Text("Did the chains find the same clustering? ", style="bold")
    first, *others = agreement.answer(a, p.summaries)
    text.append(first, style="not bold")
    for sentence in others:
        text.line(sentence, style="not bold")
    return [*parts, "", text]


def _move_table(p: RunSummary) -> Any:
    words = "moves of all chains" if len(p.summaries) > 1 else "moves"
    table = plain_table(words, "cycles", "splits tried", "accepted", "merges tried", "accepted")
    for phase, n in agreement.moves_together(p.summaries).items():
        cells = []
        for tried, accepted in ((n["splits_tried"], n["splits"]), (n["merges_tried"], n["merges"])):
            cells += [f"{tried:,}", f"{accepted:,}" + (f" ({percent(accepted / tried)})" if tried else "")]
        table.add_row(phase, f"{n['cycles']:,}", *cells)
    thin = max(c.config.output.thin for c in p.run.chains)
    if thin > 1:
        table.caption = f"counted in the cycles that the trace has (output.thin = {thin})"
        table.caption_justify = "left"
    return table


def _cluster_title(p: RunSummary) -> Any:
    from mpibayes.terminal import Text

    r = p.representative
    text = Text("Clusters of the representative partition", style="bold")
    text.line(
        f"{which_draw(p)}: of {counted(len(r.losses), 'kept draw')} the one nearest to all others (expected variation "
        f"of information {r.loss:.3f} nats; the draws' mean is {r.losses.mean():.3f})",
        style="not bold",
    )
    if p.profiles:
        text.line(
            "stable = mean over draws of the best overlap (Jaccard); then what tells it from the other clusters, in "
            "the order of what each column adds",
            style="not bold dim",
        )
    return text


def which_draw(p: RunSummary) -> str:
    """Which draw the representative partition is."""
    r = p.representative
    return (f"{p.run.chains[r.chain].name}, " if len(p.run.chains) > 1 else "") + f"cycle {r.cycle:,}"


def _cluster_table(p: RunSummary) -> Any:
    from rich.table import Table

    from mpibayes.terminal import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for name in ("#", "rows", "share", "stable"):
        table.add_column(name, justify="right", no_wrap=True)
    if p.profiles:
        table.add_column("what characterises it")
    for line in p.clusters:
        cells = [str(line.number), f"{line.rows:,}", percent(line.share), f"{line.stability:.2f}"]
        if p.profiles:
            words = Text()
            for i, t in enumerate(line.traits):
                words.append(" · " if i else "", style="dim")
                words.append_text(_phrase(t))
            cells.append(words if line.traits else Text("nothing stands out: much like all rows", style="dim"))
        table.add_row(*cells)
    return table


def block_tables(p: RunSummary, block: BlockProfile) -> list[Any]:
    """The columns of a block, numbered; by these numbers, as names are too long for table headers, their means and
    telling correlations in the clusters shown."""
    from rich.columns import Columns
    from rich.table import Table

    from mpibayes.terminal import Text

    numbered = {name: i for i, name in enumerate(block.columns, 1)}
    title = Text(f"Block {block.name}", style="bold")
    title.append(f": {len(numbered)} columns with a full covariance in each cluster", style="not bold")
    key = [Text(f"{f'({i})':>4} {name}") for name, i in numbered.items()]
    means = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    means.add_column("#", justify="right", no_wrap=True)
    shown = min(len(numbered), MEANS_SHOWN)
    for i in range(1, shown + 1):
        means.add_column(f"({i})", justify="right", no_wrap=True)
    pairs = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    pairs.add_column("#", justify="right", no_wrap=True)
    pairs.add_column("correlations that differ most from those in all rows")
    for k, line in enumerate(p.clusters):
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
    text.append(t.title, style="cyan")
    text.append(f" = {t.value}" if t.what == "level" else f" {t.value}", style="")
    text.append(f" (overall {t.overall})", style="dim")
    return text


def _small_clusters(p: RunSummary) -> list[Any]:
    from mpibayes.terminal import Text

    rest = p.representative.sizes[len(p.clusters) :]
    if not len(rest):
        return []
    many, most = counted(len(rest), "more cluster"), counted(rest.max(), "row")
    size = f"with at most {most} each" if len(rest) > 1 else f"with {most}"
    return [Text(f"{many} {size}, {percent(rest.sum() / p.run.n_rows)} of the rows", style="dim")]
