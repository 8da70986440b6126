"""The run in a report: facts about it, its chains and moves, and the agreement of the chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.report import agreement, answers, population
from mpibayes.hpc.crosscat.report.agreement import Agreement
from mpibayes.hpc.crosscat.report.summarise import RunSummary, second_chain
from mpibayes.hpc.crosscat.start import searches
from mpibayes.hpc.report.document import Figure, Section, on_paper
from mpibayes.hpc.report.drawing import cut
from mpibayes.hpc.report.tables import (
    Lines,
    burn_in_in_words,
    captioned,
    chains_section,
    commands_in_words,
    cycles_in_words,
    fixed,
    means,
    plain_table,
    rows_in_words,
    scalar_table,
    sds,
    shards,
)  # fmt: skip
from mpibayes.hpc.report.wide_table import chain_table
from mpibayes.hpc.run.directory import read_start
from mpibayes.hpc.scalar import named
from mpibayes.text import counted, percent, span, took

MATRIX = 8  # most chains compared pair by pair in the text; the picture and summary.json have all
VIEWS_COMPARED = 12  # most views in that comparison


def about(p: RunSummary) -> Lines:
    run, data = p.run, p.run.data
    kinds: dict[str, int] = {}
    for c in data.stored:
        kinds[c.kind] = kinds.get(c.kind, 0) + 1
    columns = f"{len(data.stored)} (" + ", ".join(f"{n} {kind}" for kind, n in kinds.items()) + ")"
    if not run.likelihood:
        columns += "; their cells were ignored: model.likelihood = false samples the prior"
    lines = [
        ("table", str(run.table.path)),
        ("rows", rows_in_words(run)),
        *population.about(run, p.weights),
        ("columns", columns),
    ]
    shaped = [c.name for c in run.data.stored if c.shape is not None]
    if shaped:
        lines.append(("shapes", f"{', '.join(map(cut, shaped))}: in coordinates in which one population is normal"))
    for name, of in data.carve.blocks.items():
        lines.append(("block", f"{name}, a full covariance of {len(of)} columns: {', '.join(map(cut, of))}"))
    return [*lines, *_about_chains(p)]


def _about_chains(p: RunSummary) -> Lines:
    """Describe the length and phases of the chains."""
    summaries, several = p.summaries, len(p.summaries) > 1
    lines, more = cycles_in_words(p.run.chains, [c.cycles for c in summaries]), ""
    grown = [c for c in summaries if c.growth]
    if grown:
        of_chains = f" ({len(grown)} of the chains)" if len(grown) < len(summaries) else ""
        start = span([int(c.trace["active_rows"][0]) for c in p.run.chains if c.growth], "active row")
        until = f"{span([c.growth for c in grown])} ({took(max(c.growth_s for c in grown))})"
        lines.append(("growth", f"{start} at first, all {p.run.n_rows:,} from cycle {until} on{of_chains}"))
        if any(c.burn_in == c.growth for c in grown):
            more = ", no fewer than the growth takes"
    lines += burn_in_in_words([c.burn_in for c in summaries], f"{counted(p.n_kept, 'draw')} of the labels", more)
    pieces = shards(p.run.chains[0].config)
    first = first_exact(p)
    lines.append(
        (
            "exact",
            f"from cycle {first:,} on: every cycle leaves the posterior invariant, on any number of ranks ({pieces})",
        )
    )
    lines += searched(p)
    lines.append(("settled", settled(p)))
    if not several and p.agreement is not None and np.isfinite(p.agreement.ari[0, 0]):
        ari, vi = p.agreement.ari[0, 0], p.agreement.vi[0, 0]
        halves = f"adjusted Rand index {ari:.3f}, variation of information {vi:.2f} nats"
        halves += " between the representative partitions of the two halves of the draws"
        if p.of_rows is not None:
            halves = f"columns: {halves}"
        if p.of_rows:
            halves += f"; rows in the views: {span_of([a.ari[0, 0] for a in p.of_rows.values()], 3)}"
        lines.append(("halves", f"{halves}. A chain that is stuck agrees with itself too. {second_chain(p)}"))
    if not agreement.moves_in(summaries)[0]:
        lines.append(("moves", "no split or merge was tried (sampler.split_merge)"))
    return lines


def searched(p: RunSummary) -> list[tuple[str, str]]:
    """Compare, for chains that made several searches for views, the one that started the chain with the rest."""
    records = [read_start(c.folder) for c in p.run.chains]
    scores = [searches.scores_in(record) for record in records if searches.left_present(record) is not False]
    scores = [of for of in scores if of]
    if not scores:
        stayed = any(searches.left_present(record) is False for record in records)
        return [
            ("searches", "when rows were appended, no new search predicted better than the chains as they were")
        ] * stayed
    alike = p.agreement is not None and p.agreement.verdict == "same"
    enough = not p.run.several or alike or any(map(searches.others_near, scores))
    more = "" if enough else ": more of them may find better views (sampler.searches)"
    return [("searches", searches.of_chains_in_words(scores, records[0].get("judges", 0)) + more)]


def settled(p: RunSummary) -> str:
    """Describe the judgement whether the chains have settled."""
    return answers.settled(p.settled, any(c.climbed for c in p.summaries), p.verdict)


def first_exact(p: RunSummary) -> int:
    """Return the first cycle in which every chain is exact, and labels depend on an outcome."""
    entries = [] if p.run.outcomes is None else [p.run.outcomes.entry]
    return max(*(c.growth for c in p.summaries), *entries, 0) + 1


def section(p: RunSummary, figures: Sequence[Figure]) -> Section:
    """Return the section on sampling. figures: of the chains."""
    more = [chain_lines(p), *agreed(p)] if len(p.summaries) > 1 else []
    more.append(on_paper(*commands_in_words(p.advice.commands)))
    more += [move_lines(p)] if agreement.moves_in(p.summaries)[0] else []
    more += [column_move_lines(p)] if p.run.several else []
    return chains_section(p.run.chains, p.run.scalars, p.warnings, [scalar_lines(p)], [*more, *figures])


def scalar_lines(p: RunSummary) -> Any:
    modes = {name: max(of, key=of.get) for name, of in p.counts.items()}
    remarks = {name: f"mode {mode} ({percent(p.counts[name][mode])} of the draws)" for name, mode in modes.items()}
    if p.run.several:
        remarks["n_clusters"] += ", of all views together"
        remarks["entropy"] = "nats, of all views together"
    table = scalar_table(p.run.scalars, p.scalars, remarks)
    if p.heldout_averaged is not None:
        configured = [c.config.burn_in for c in p.run.chains]
        since = (
            ""
            if configured == [c.burn_in for c in p.run.chains]
            else f", over the draws after the run's burn-in of {configured[0]:,}"
        )
        table.add_row(
            "held-out, averaged",
            fixed(p.heldout_averaged, 3),
            *[""] * 5,
            f"log of the mean density, nats a row{since}",
        )
    return table


def chain_lines(p: RunSummary) -> Any:
    of = named(p.run.scalars)
    joint, k, entropy = (of[name] for name in ("log_joint", "n_clusters", "entropy"))
    chains = [c.scalars for c in p.summaries]
    scored = any(np.isfinite(c.heldout) for c in p.summaries)
    return chain_table(
        {
            "chains": [c.name for c in p.summaries],
            joint.column: means(joint, chains),
            "sd": sds(joint, chains),
            **({"held-out": [fixed(c.heldout, 3) for c in p.summaries]} if scored else {}),
            **{v.column: means(v, chains) for name, v in of.items() if name == "n_views"},
            k.column: means(k, chains),
            f"last {k.column}": [str(c.n_clusters) for c in p.summaries],
            "entropy": means(entropy, chains),
        }
    )


def agreed(p: RunSummary) -> list[Any]:
    """Return the blocks on the similarity of the chains' partitions, and the conclusion."""
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
        of = f"on {a.n:,} rows" if p.of_rows is None else f"of the {a.n:,} columns into views"
        words = f"between the chains' representative partitions, {of}; on the diagonal between halves of one chain"
        parts.append([table, Text(words, style="dim")])
    if p.of_rows:
        parts.append(_view_table(p.of_rows))
    text = Text(f"Did the chains find the same {'clustering' if p.of_rows is None else 'views'}? ", style="bold")
    first, *others = answers.answer(a, p.summaries, p.of_rows)
    text.append(first, style="not bold")
    for line in others:
        text.line(line, style="not bold")
    if p.advice.steps:
        text.line("What to do: ", style="bold").append(" ".join(p.advice.steps), style="not bold")
    return [*parts, text]


def _view_table(of_rows: Mapping[int, Agreement]) -> Any:
    """Return a table of the chains' agreement on the rows in each view."""
    name = "rows, adjusted Rand index"
    table = plain_table(name, "between chains", "halves of one", "same clusters")
    for number, a in list(of_rows.items())[:VIEWS_COMPARED]:
        between, within = (span_of(f(a.ari), 3) for f in (a.between, a.within))
        table.add_row(f"view {number}", between, within, answers.VERDICTS[a.verdict])
    left = len(of_rows) - VIEWS_COMPARED
    return captioned(table, f"{counted(left, 'more view')} in summary.json" if left > 0 else "")


def span_of(values: Sequence[float], digits: int) -> str:
    """Format a range of values: 0.912, or 0.912 to 0.987; - without values."""
    texts = sorted(f"{x:.{digits}f}" for x in values if np.isfinite(x))
    return " to ".join(dict.fromkeys((texts[0], texts[-1]))) if texts else "-"


def column_move_lines(p: RunSummary) -> Any:
    """Return a table of moves of views, and of columns that changed views by scans."""
    words = "columns of all chains" if len(p.summaries) > 1 else "columns"
    table = plain_table(words, "cycles", "moves of views tried", "accepted", "changed their view")
    for phase, n in agreement.moves_together(p.summaries).items():
        tried, accepted = n["view_moves_tried"], n["view_moves"]
        share = f" ({percent(accepted / tried)})" if tried else ""
        table.add_row(phase, f"{n['cycles']:,}", f"{tried:,}", f"{accepted:,}{share}", f"{n['columns_moved']:,}")
    return table


def move_lines(p: RunSummary) -> Any:
    words = "moves of all chains" if len(p.summaries) > 1 else "moves"
    table = plain_table(words, "cycles", "splits tried", "accepted", "merges tried", "accepted")
    for phase, n in agreement.moves_together(p.summaries).items():
        cells = []
        for tried, accepted in ((n["splits_tried"], n["splits"]), (n["merges_tried"], n["merges"])):
            cells += [f"{tried:,}", f"{accepted:,}" + (f" ({percent(accepted / tried)})" if tried else "")]
        table.add_row(phase, f"{n['cycles']:,}", *cells)
    thin = max(c.config.output.thin for c in p.run.chains)
    return captioned(table, f"counted in the cycles that the trace has (output.thin = {thin})" if thin > 1 else "")
