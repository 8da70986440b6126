"""The report of a mixture's posterior.

Clusters are those of the representative partition (`summary.expected_variation`), never of the last draw. Kept draws
are read one at a time and the table in slices.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.draws import Kept, hyper_of
from mpibayes.hpc.crosscat.partitions import (
    by_size,
    contingency,
    jaccard,
    ordered_sizes,
    posterior_of_count,
    variations,
)
from mpibayes.hpc.crosscat.report import agreement as chains
from mpibayes.hpc.crosscat.report import profiles as summary
from mpibayes.hpc.crosscat.report.agreement import Agreement, ChainSummary
from mpibayes.hpc.crosscat.report.profiles import BlockProfile, ColumnProfile, Trait
from mpibayes.hpc.crosscat.scalars import SCALARS
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.posterior.scalars import ENOUGH_DRAWS, ScalarSummary, mixing_warnings, summary_of
from mpibayes.hpc.posterior.tables import (
    Report,
    chain_table,
    finite,
    fixed,
    head,
    machine_scalars,
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
from mpibayes.hpc.scalar import named, shown
from mpibayes.io.rows import Rows
from mpibayes.text import counted, number, percent, took, visible

PROBES = 1000  # rows on which every kept draw is compared with every other
COMPARED = 200  # kept draws compared with one another, at most; of each chain FEWEST at least
SAMPLED = 20_000  # rows on which columns are compared with one another, and chains
LATE = 0.05  # share of the cycles after burn-in in which a log joint may still rise without a word
MATRIX = 8  # chains that are compared pair by pair in the text; the picture and summary.json have them all
LISTED = 30  # clusters in the table, at most
LEAST_SHARE = 0.001  # smaller clusters are gathered in one line
MEANS_SHOWN = 10  # columns of a block whose means the table has
SECOND_CHAIN = "Only a second chain from another start can tell: run.chains = 2."


@dataclass
class Compared:
    """The kept draws that are compared with one another: (D',) chain and cycle of each, labels (D', M) on M rows of the
    table, and their variation of information on PROBES of those rows, (D', D')."""

    chain: np.ndarray
    cycle: np.ndarray
    labels: np.ndarray
    distances: np.ndarray


@dataclass
class Representative:
    """The kept draw that stands for the posterior: labels (N,) numbered by size, and how good it is."""

    chain: int
    cycle: int
    labels: np.ndarray
    sizes: np.ndarray  # (R,) descending
    loss: float  # expected variation of information, nats, to the other draws
    hyper: Any
    compared: Compared

    @property
    def losses(self) -> np.ndarray:
        """Of all draws compared, (D',)."""
        return self.compared.distances.mean(axis=1)


@dataclass
class ClusterLine:
    """What the report says of one cluster."""

    number: int
    rows: int
    share: float
    stability: float
    traits: list[Trait] = field(default_factory=list)


@dataclass
class Posterior:
    """All that a report shows."""

    run: Kept
    courses: list[ChainSummary]
    scalars: dict[str, ScalarSummary]
    n_clusters: dict[int, float]
    heldout_averaged: float | None
    n_kept: int
    agreement: Agreement | None = None
    representative: Representative | None = None
    clusters: list[ClusterLine] = field(default_factory=list)
    profiles: list[ColumnProfile] = field(default_factory=list)
    blocks: list[BlockProfile] = field(default_factory=list)
    ordered: np.ndarray | None = None  # (D, most) sizes of the draws' clusters
    warnings: list[str] = field(default_factory=list)


def make(run: Kept) -> Report:
    """See `report.report`."""
    posterior = summarise(run)
    pictures = _pictures(posterior)
    return Report(lambda: _parts(posterior), _machine(posterior, list(pictures)), pictures)


# --- computing --------------------------------------------------------------------------------------------------------


def summarise(run: Kept) -> Posterior:
    """Everything the report shows, from the traces, the kept draws and one pass over the table."""
    run.read_traces()
    run.require_draws()
    later = [c.later() for c in run.chains]
    scalars = {s.name: summary_of([t[s.name] for t in later]) for s in shown(SCALARS) if s.label}
    kept = run.kept()
    courses = [chains.summarise_chain(c) for c in run.chains]
    averaged = [c.heldout_averaged for c in courses if np.isfinite(c.heldout_averaged)]
    posterior = Posterior(
        run, courses, {k: s for k, s in scalars.items() if s.n_draws},
        posterior_of_count(np.concatenate([t["n_clusters"] for t in later])),
        float(np.mean(averaged)) if averaged else None, len(kept),
    )  # fmt: skip
    posterior.warnings += mixing_warnings(
        {named(SCALARS)[name].label: s for name, s in posterior.scalars.items()}, len(run.chains)
    )
    climbing = [c for c in courses if c.climbed]
    late = [c for c in courses if c.settled - c.burn_in > LATE * (c.cycles - c.burn_in) and not c.climbed]
    if climbing:
        posterior.warnings.append(
            f"{', '.join(c.name for c in climbing)}: the log joint still climbs, {chains.climbed(climbing)}: too short "
            "to be summarised; raise run.cycles"
        )
    if late:
        posterior.warnings.append(
            f"{', '.join(c.name for c in late)}: the log joint went on rising after burn-in, up to cycle "
            f"{max(c.settled for c in late):,}: leave out more (--burn-in), or raise run.cycles"
        )
    tried, accepted = chains.moves_in(courses, "kept")
    if len(courses) == 1 and tried and not accepted:
        posterior.warnings.append(
            f"no split or merge was accepted after burn-in ({tried:,} tried): the clustering is clear-cut, "
            f"or the chain is stuck. {SECOND_CHAIN}"
        )
    if not kept:
        posterior.warnings.append(
            "no draw of the labels was kept after burn-in, so clusters cannot be shown: give a smaller --burn-in, "
            "let the run go on, or lower output.labels"
        )
        return posterior
    if len(kept) < ENOUGH_DRAWS:
        posterior.warnings.append(
            f"only {counted(len(kept), 'draw')} of the labels kept after burn-in: clusters, sizes and stability below "
            f"are rough; keep at least {ENOUGH_DRAWS} (run.cycles, output.labels)"
        )
    posterior.representative = r = representative(run, kept)
    c = r.compared
    posterior.agreement = chains.agreement(courses, scalars["log_joint"].r_hat, c.chain, c.labels, c.distances)
    _describe(posterior, r, kept)
    return posterior


def representative(run: Kept, kept: Sequence[tuple[int, int]]) -> Representative:
    """Of at most COMPARED kept draws, evenly spaced in each chain, the one with the least expected variation of
    information to them all. Ties go to the earlier draw."""
    compared = _compare(run, kept)
    best = chains.nearest(np.arange(len(compared.cycle)), compared.distances)
    chain, cycle = int(compared.chain[best]), int(compared.cycle[best])
    ((_, draw),) = run.states([(chain, cycle)])
    z = by_size(draw.labels)
    loss = float(compared.distances[best].mean())
    return Representative(chain, cycle, z, np.bincount(z), loss, hyper_of(draw), compared)


def _compare(run: Kept, kept: Sequence[tuple[int, int]]) -> Compared:
    """The rows are drawn once and for all for a table of this length."""
    by_chain = [[pair for pair in kept if pair[0] == i] for i in sorted({i for i, _ in kept})]
    share = max(COMPARED // len(by_chain), chains.FEWEST)
    rows = np.arange(run.n_rows)
    if run.n_rows > SAMPLED:
        rows = np.sort(np.random.default_rng(run.n_rows).choice(run.n_rows, SAMPLED, replace=False))
    seen, labels = [], []
    for chain, draw in run.states([pair for some in by_chain for pair in evenly(some, share)]):
        seen.append((chain, draw.cycle))
        labels.append(draw.labels[rows].astype(np.int32))
    probes = evenly(np.random.default_rng(run.n_rows).permutation(len(rows)), PROBES)
    distances = variations(np.stack(labels)[:, probes])
    return Compared(*np.array(seen).T, np.stack(labels), distances)


def _describe(posterior: Posterior, r: Representative, kept: Sequence[tuple[int, int]]) -> None:
    """Stability, sizes and profiles of the clusters."""
    run = posterior.run
    overlap, sizes = np.zeros(len(r.sizes)), []
    used = evenly(kept, COMPARED)
    for _, draw in run.states(used):
        overlap += jaccard(contingency(r.labels, draw.labels))
        sizes.append(np.bincount(draw.labels))
    posterior.ordered = ordered_sizes(sizes, max(len(s) for s in sizes))
    least = max(2, int(np.ceil(LEAST_SHARE * run.n_rows)))
    shown = np.arange(min(LISTED, max(1, int(np.count_nonzero(r.sizes >= least)))))
    explained: dict[tuple[str, str], float] = {}
    if run.likelihood:
        cells = _cells(run.columns, run.sample(SAMPLED))
        cuts = {c.name: summary.cuts(cells[c.name]) for c in run.columns if not c.levels}
        codes = {name: _in_intervals(x, cuts[name]) if name in cuts else x for name, x in cells.items()}
        explained = summary.explained_entropy(codes)
        counts, moments = run.histograms(r.labels, cuts), run.moments(r.labels)
        numbers = {name: summary.Numbers(counts[name], *moments[name]) for name in cuts}
        (statistics,) = run.statistics([r.labels])
        posterior.profiles = summary.profiles(run.components, run.components.prior(r.hyper), statistics, shown, numbers)
        posterior.blocks = summary.block_profiles(run.components, statistics, shown)
    for k in shown:
        posterior.clusters.append(
            ClusterLine(
                int(k) + 1, int(r.sizes[k]), float(r.sizes[k] / run.n_rows), float(overlap[k] / len(used)),
                summary.traits(posterior.profiles, int(k), explained),
            )
        )  # fmt: skip


def _cells(columns, rows: Rows) -> dict[str, np.ndarray]:
    return {c.name: getattr(rows, c.block)[:, c.index] for c in columns}


def _in_intervals(x: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """The interval of every cell, missing cells last."""
    return np.where(np.isnan(x), len(cuts) + 1, np.searchsorted(cuts, x))


# --- showing ----------------------------------------------------------------------------------------------------------


def _parts(posterior: Posterior) -> list[Any]:
    """What is printed, in order."""
    parts = [head(posterior.run.chains, _about(posterior)), "", _scalar_table(posterior)]
    if posterior.warnings:
        parts += ["", warnings_in_words(posterior.warnings)]
    if len(posterior.courses) > 1:
        parts += ["", _chain_table(posterior), *_agreement(posterior)]
    if chains.moves_in(posterior.courses)[0]:
        parts += ["", _move_table(posterior)]
    if posterior.representative is not None:
        parts += ["", _cluster_title(posterior), _cluster_table(posterior), *_small_clusters(posterior)]
        for block in posterior.blocks:
            parts += ["", *_block_tables(posterior, block)]
    return parts


def _about(p: Posterior) -> list[tuple[str, str]]:
    run, config = p.run, p.run.chains[0].config
    data = run.data
    kinds: dict[str, int] = {}
    for c in data.columns:
        kinds[c.kind] = kinds.get(c.kind, 0) + 1
    rows = counted(run.n_rows, "training row")
    if data.heldout is not None:
        rows += f", {len(data.heldout):,} held out"
    elif config.heldout_path is not None:
        rows += f"; held-out rows from {config.heldout_path}"
    columns = f"{len(data.columns)} (" + ", ".join(f"{n} {kind}" for kind, n in kinds.items()) + ")"
    if not run.likelihood:
        columns += "; their cells were ignored: model.likelihood = false samples the prior"
    lines = [("table", str(run.table.path)), ("rows", rows), ("columns", columns)]
    for name, of in data.carve.blocks.items():
        lines.append(("block", f"{name}, a full covariance of {len(of)} columns: {', '.join(of)}"))
    return [*lines, *_about_courses(p)]


def _about_courses(p: Posterior) -> list[tuple[str, str]]:
    """Length and phases of the chains, in words."""
    courses, several = p.courses, len(p.courses) > 1
    wanted = span([c.config.run.cycles for c in p.run.chains])
    cycles = f"{span([c.cycles for c in courses])} of {wanted}" + (f", {len(courses)} chains" if several else "")
    lines = [("cycles", f"{cycles}, {states(p.run.chains)}"), *not_started(p.run.chains)]
    burn_in = f"{span([c.burn_in for c in courses], 'cycle')} left out"
    grown = [c for c in courses if c.growth]
    if grown:
        some = f" ({len(grown)} of the chains)" if len(grown) < len(courses) else ""
        start = span([int(c.trace["active_rows"][0]) for c in p.run.chains if c.growth], "active row")
        until = f"{span([c.growth for c in grown])} ({took(max(c.growth_s for c in grown))})"
        lines.append(("growth", f"{start} at first, all {p.run.n_rows:,} from cycle {until} on{some}"))
        if any(c.burn_in == c.growth for c in grown):
            burn_in += ", no fewer than the growth takes"
    lines.append(("burn-in", f"{burn_in}; {counted(p.n_kept, 'draw')} of the labels kept after it"))
    pieces = shards(p.run.chains[0].config)
    first = _first_exact(p)
    lines.append(
        (
            "exact",
            f"from cycle {first:,} on: every cycle leaves the posterior invariant, on any number of ranks ({pieces})",
        )
    )
    if not several:
        (c,) = courses
        when = f"log joint as high as in the last draws from cycle {c.settled:,} on ({took(c.settled_s)} of"
        lines.append(("settled", "not yet: the log joint climbs" if c.climbed else f"{when} {took(c.seconds)})"))
        if p.agreement is not None and np.isfinite(p.agreement.ari[0, 0]):
            ari, vi = p.agreement.ari[0, 0], p.agreement.vi[0, 0]
            halves = f"adjusted Rand index {ari:.3f}, variation of information {vi:.2f} nats"
            halves += " between the representative partitions of the two halves of the draws"
            lines.append(("halves", f"{halves}. A chain that is stuck agrees with itself too. {SECOND_CHAIN}"))
    if not chains.moves_in(courses)[0]:
        lines.append(("moves", "no split or merge was tried (sampler.split_merge)"))
    return lines


def _first_exact(p: Posterior) -> int:
    """The cycle from which on every chain is exact."""
    return max(c.growth for c in p.courses) + 1


def _scalar_table(p: Posterior) -> Any:
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


def _chain_table(p: Posterior) -> Any:
    joint, k, entropy = (named(SCALARS)[name] for name in ("log_joint", "n_clusters", "entropy"))
    chains = [c.scalars for c in p.courses]
    scored = any(np.isfinite(c.heldout) for c in p.courses)
    return chain_table(
        {
            "chains": [c.name for c in p.courses],
            "settled in cycle": ["climbs" if c.climbed else f"{c.settled:,}" for c in p.courses],
            "after": ["-" if c.climbed else took(c.settled_s) for c in p.courses],
            joint.column: means(joint, chains),
            "sd": sds(joint, chains),
            **({"held-out": [fixed(c.heldout, 3) for c in p.courses]} if scored else {}),
            k.column: means(k, chains),
            f"last {k.column}": [str(c.n_clusters) for c in p.courses],
            "entropy": means(entropy, chains),
        }
    )


def _agreement(p: Posterior) -> list[Any]:
    """The similarity of the chains' partitions, and what it comes to."""
    from mpibayes.terminal import Text

    a = p.agreement
    if a is None:
        return []
    parts: list[Any] = []
    if len(a.ari) <= MATRIX:
        table = plain_table("adjusted Rand index (variation of information)", *(c.name for c in p.courses))
        for i, c in enumerate(p.courses):
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
    first, *others = chains.answer(a, p.courses)
    text.append(first, style="not bold")
    for sentence in others:
        text.line(sentence, style="not bold")
    return [*parts, "", text]


def _move_table(p: Posterior) -> Any:
    words = "moves of all chains" if len(p.courses) > 1 else "moves"
    table = plain_table(words, "cycles", "splits tried", "accepted", "merges tried", "accepted")
    for phase, n in chains.moves_together(p.courses).items():
        cells = []
        for tried, accepted in ((n["splits_tried"], n["splits"]), (n["merges_tried"], n["merges"])):
            cells += [f"{tried:,}", f"{accepted:,}" + (f" ({percent(accepted / tried)})" if tried else "")]
        table.add_row(phase, f"{n['cycles']:,}", *cells)
    thin = max(c.config.output.thin for c in p.run.chains)
    if thin > 1:
        table.caption = f"counted in the cycles that the trace has (output.thin = {thin})"
        table.caption_justify = "left"
    return table


def _cluster_title(p: Posterior) -> Any:
    from mpibayes.terminal import Text

    r = p.representative
    text = Text("Clusters of the representative partition", style="bold")
    text.line(
        f"{_draw(p)}: of {counted(len(r.losses), 'kept draw')} the one nearest to all others (expected variation "
        f"of information {r.loss:.3f} nats; the draws' mean is {r.losses.mean():.3f})",
        style="not bold",
    )
    if p.profiles:
        text.line(
            "stable = mean over draws of the best overlap (Jaccard); then the columns that differ most from all "
            "rows, farthest first",
            style="not bold dim",
        )
    return text


def _draw(p: Posterior) -> str:
    """Which draw the representative partition is."""
    r = p.representative
    return (f"{p.run.chains[r.chain].name}, " if len(p.run.chains) > 1 else "") + f"cycle {r.cycle:,}"


def _cluster_table(p: Posterior) -> Any:
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


def _block_tables(p: Posterior, block: BlockProfile) -> list[Any]:
    """The columns of a block, numbered; by these numbers, as names are too long for heads of tables, their means and
    telling correlations in the clusters shown."""
    from rich.columns import Columns
    from rich.table import Table

    from mpibayes.terminal import Text

    numbered = {name: i for i, name in enumerate(block.columns, 1)}
    title = Text(f"Block {block.name}", style="bold")
    title.append(f": {len(numbered)} columns with a full covariance in each cluster", style="not bold")
    key = [Text(f"{f'({i})':>4} {_short_name(name)}") for name, i in numbered.items()]
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
        for i, (a, b, here, everywhere) in enumerate(summary.correlated(block, k)):
            words.append(" · " if i else "", style="dim")
            words.append(f"({numbered[a]}, {numbered[b]})", style="cyan")
            words.append(f" {here:z.2f}")
            words.append(f" (overall {everywhere:z.2f})", style="dim")
        means.add_row(str(line.number), *(number(x) for x in block.mean[k][:shown]))
        pairs.add_row(str(line.number), words or Text("much like those in all rows", style="dim"))
    means.add_row("all", *(number(x) for x in block.overall_mean[:shown]), style="dim")
    rest = f" of the first {shown} columns; summary.json has them all" if shown < len(numbered) else ""
    return [title, Columns(key, (0, 2), column_first=True), Text(f"means{rest}", style="bold"), means, pairs]


def _short_name(name: str) -> str:
    return textwrap.shorten(name, 40, placeholder="…") if " " in name else name


def _phrase(t: Trait) -> Any:
    """A trait on paper, its level names cut to what a line can bear."""
    from mpibayes.terminal import Text

    text = Text()
    text.append(_short_name(t.column), style="cyan")
    text.append(f" = {t.value}" if t.what == "level" else f" {t.value}", style="")
    text.append(f" (overall {t.overall})", style="dim")
    return text


def _small_clusters(p: Posterior) -> list[Any]:
    from mpibayes.terminal import Text

    rest = p.representative.sizes[len(p.clusters) :]
    if not len(rest):
        return []
    many, most = counted(len(rest), "more cluster"), counted(rest.max(), "row")
    size = f"with at most {most} each" if len(rest) > 1 else f"with {most}"
    return [Text(f"{many} {size}, {percent(rest.sum() / p.run.n_rows)} of the rows", style="dim")]


def _pictures(p: Posterior) -> dict[str, bytes]:
    """File names and PNG bytes."""
    from mpibayes.hpc.crosscat.report import figures

    settled = [None if c.climbed else (c.settled, c.settled_s) for c in p.courses]
    pictures = {"trace.png": figures.trace(p.run.chains, settled)}
    if any(c.growth for c in p.run.chains):
        pictures["annealing.png"] = figures.annealing(p.run.chains, settled, p.run.n_rows)
    if p.agreement is not None and len(p.courses) > 1:
        pictures["chains.png"] = figures.chains_compared(p.courses, p.agreement.ari, p.agreement.vi)
    if "heldout_lpd" in p.scalars:
        pictures["heldout.png"] = figures.held_out(p.run.chains)
    if p.ordered is not None:
        pictures["cluster_sizes.png"] = figures.cluster_sizes(p.ordered, p.run.n_rows)
    if p.profiles:
        sizes = np.array([line.rows for line in p.clusters])
        title = f"Cluster profiles of the representative partition ({visible(_draw(p))})"
        pictures["profiles.png"] = figures.heat_map(p.profiles, sizes, p.run.n_rows, title, len(p.representative.sizes))
    return pictures


def _machine(p: Posterior, pictures: list[str]) -> dict[str, Any]:
    """summary.json. Numbers that do not exist are null."""
    r, run = p.representative, p.run
    document: dict[str, Any] = {
        "format": "mpibayes-report",
        "version": 1,
        "runs": [{"directory": str(c.folder), **_machine_chain(course)} for c, course in zip(run.chains, p.courses)],
        "table": {
            "path": str(run.table.path),
            "fingerprint": run.table.fingerprint,
            "training_rows": run.n_rows,
            "columns": len(run.data.columns),
        },
        "likelihood": run.likelihood,
        "exact_from_cycle": _first_exact(p),
        "scalars": machine_scalars(p.scalars),
        "n_clusters": {str(k): share for k, share in p.n_clusters.items()},
        "heldout_lpd_averaged": p.heldout_averaged,
        "moves": chains.moves_together(p.courses),
        "kept_draws": p.n_kept,
        "warnings": p.warnings,
        "pictures": pictures,
    }
    if p.agreement is not None:
        a = p.agreement
        document["agreement"] = {
            "verdict": a.verdict,
            "groups": [[p.courses[i].name for i in group] for group in a.groups],
            "adjusted_rand": [[finite(x) for x in row] for row in a.ari.tolist()],
            "variation_of_information": [[finite(x) for x in row] for row in a.vi.tolist()],
            "rows": a.n_rows,
            "log_joint_gap": a.gap,
            "climbing": [p.courses[i].name for i in a.climbing],
        }
    if r is not None:
        document["representative"] = {
            "directory": str(run.chains[r.chain].folder),
            "cycle": r.cycle,
            "n_clusters": len(r.sizes),
            "sizes": r.sizes.tolist(),
            "expected_variation_of_information": r.loss,
            "draws_compared": len(r.losses),
            "mean_loss_of_draws": float(r.losses.mean()),
        }
        document["clusters"] = [
            {"cluster": c.number, "rows": c.rows, "share": c.share, "stability": c.stability}
            | {"traits": [_machine_trait(t) for t in c.traits]}
            for c in p.clusters
        ]
        document["columns"] = [
            {"column": c.name, "kind": c.kind, "information_nats": c.information}
            for c in sorted(p.profiles, key=lambda c: -c.information)
        ]
        document["blocks"] = [_machine_block(block, p.clusters) for block in p.blocks]
        ordered = p.ordered
        low, high = np.quantile(ordered, (0.05, 0.95), axis=0)
        document["ordered_sizes"] = {"mean": ordered.mean(axis=0).tolist(), "low": low.tolist(), "high": high.tolist()}
    return document


def _machine_block(block: BlockProfile, clusters: Sequence[ClusterLine]) -> dict[str, Any]:
    def plain(x):
        return [plain(y) for y in x] if isinstance(x, list) else finite(x)

    return {
        "block": block.name,
        "columns": list(block.columns),
        "overall": {"mean": plain(block.overall_mean.tolist()), "correlation": plain(block.overall.tolist())},
        "clusters": [
            {"cluster": c.number, "rows": int(n), "mean": plain(mean.tolist()), "correlation": plain(r.tolist())}
            for c, n, mean, r in zip(clusters, block.rows, block.mean, block.correlation)
        ],
    }


def _machine_chain(c: ChainSummary) -> dict[str, Any]:
    document = {name: finite(value) for name, value in vars(c).items()}
    return document | {"scalars": machine_scalars(c.scalars)}


def _machine_trait(t: Trait) -> dict[str, Any]:
    return {"column": t.column, "nats": t.nats, "what": t.what, "text": str(t), **t.numbers}
