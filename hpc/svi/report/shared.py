"""Document shared by all likelihoods: its verdict, the description of the run, the table of chains, and the frame of
summary.json. `p` is a summary with `run`, `best`, `chains`, `best_chain` and `warnings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpibayes.hpc.report.document import DOUBT, GOOD, Document, Figure, Section, Verdict, drawn
from mpibayes.hpc.report.tables import (
    Lines,
    about_section,
    chains_section,
    cycles_in_words,
    fixed,
    shards,
    summary_json,
    time_in_words,
    use_it,
    warned,
)
from mpibayes.hpc.report.wide_table import chain_table
from mpibayes.hpc.scalar import Scalar
from mpibayes.text import percent, took

APPROXIMATION = (
    "This is not the posterior but the nearest approximation of its kind that was found, at an unknown distance; "
    "spreads tend to be too small."
)
NEAREST = (
    "not the posterior but the nearest approximation of its kind that was found: log p(table) lies above the bound by "
    "an unknown amount. Spreads tend to be too small"
)


@dataclass(frozen=True)
class Likelihood:
    """Parts of a report that differ between likelihoods. found: sentences of the result. what, steps, measures: the
    model, the steps of a cycle in words, and scores of the best state besides its bound, as lines on the run;
    after_bound: words that follow the bound, by default the cycle after which it stopped rising; digits: of the bound.
    columns: of the table of chains. sections: of the results. model, table, results: parts of summary.json."""

    found: Sequence[str]
    what: Lines
    steps: str
    measures: Lines
    columns: Mapping[str, Sequence[str]]
    scalars: Sequence[Scalar]
    sections: Sequence[Section]
    top: Sequence[Any]
    figures: Sequence[Figure]
    of_chains: Sequence[str]  # names of the figures that show chains
    files: dict[str, str]
    model: Mapping[str, Any]
    table: Mapping[str, Any]
    results: Mapping[str, Any]
    after_bound: str | None = None
    digits: int = field(default=3, kw_only=True)


def document(p: Any, of: Likelihood) -> Document:
    """Build the report, for any likelihood."""
    run, chains = p.run, p.run.chains
    more = [*_chain_lines(p, of), *drawn(of.figures, *of.of_chains)]
    sections = [
        *of.sections,
        chains_section(chains, of.scalars, p.warnings, [], more),
        about_section(chains, _about(p, of)),
    ]
    best = {"directory": str(chains[p.best.chain].folder), "cycle": p.best.cycle, "bound": p.best.bound}
    folders = {chain.name: chain for chain in chains}
    numbers = summary_json(
        run, [(folders[line.name], line) for line in p.chains],
        family={"family": "svi", "approximation": True, **of.model}, table=of.table, best=best, **of.results,
        warnings=p.warnings,
    )  # fmt: skip
    return Document(chains, _verdict(p, of.found), sections, numbers, of.top, of.figures, of.files)


def _verdict(p: Any, result: Sequence[str]) -> Verdict:
    """Verdict: the result, whether the chains agree, and what to do next."""
    sound = DOUBT if p.warnings else GOOD
    bound = f"The bound is {p.best_chain.bound:,.3f} nats."
    steps, commands = use_it(p.run, sound)
    return Verdict([*result, bound], [_restarts(p)], steps, sound, APPROXIMATION, commands, warnings=warned(p.warnings))


def _restarts(p: Any) -> str:
    """Describe how close the bounds of the chains are."""
    if len(p.chains) == 1:
        return "One chain only: others may end with a higher bound."
    best = p.best_chain
    gaps = [best.bound - c.bound for c in p.chains]
    near = sum(gap < 1.0 for gap in gaps)
    return (
        f"{near} of {len(p.chains)} chains end within one nat of the best, {best.name}; the worst is {max(gaps):,.1f} "
        "nats below. Chains are restarts, of which the best is taken."
    )


def _about(p: Any, of: Likelihood) -> Lines:
    """Describe the run, as pairs of a word and its text."""
    run, best = p.run, p.best_chain
    which = f" of {best.name}, the best of {len(p.chains)}" if len(p.chains) > 1 else ""
    end = of.after_bound
    if end is None:
        end = f"; no gain after cycle {best.still_after:,}" if best.still_after is not None else ""
    return [
        ("table", str(run.table.path)), *of.what, ("steps", f"{of.steps} ({shards(run.config)})"),
        *cycles_in_words(run.chains, [c.cycles for c in p.chains], planned=False),
        *time_in_words([c.seconds for c in p.chains]),
        ("bound", f"{best.bound:,.{of.digits}f} nats{which}, cycle {best.kept:,}{end}"),
        *of.measures, ("approximation", NEAREST),
    ]  # fmt: skip


def _chain_lines(p: Any, of: Likelihood) -> list[Any]:
    """Table with one line per chain, if there are several."""
    if len(p.chains) == 1:
        return []
    best = p.best_chain
    columns = {
        "chains": [f"{c.name}{' *' if c is best else ''}" for c in p.chains],
        "cycles": [f"{c.cycles:,}" for c in p.chains], "time": [took(c.seconds) for c in p.chains],
        "bound": [fixed(c.bound, of.digits) for c in p.chains],
        "below the best": [fixed(best.bound - c.bound, of.digits) for c in p.chains],
        **of.columns,
    }  # fmt: skip
    if any(c.guarded for c in p.chains):
        columns["guarded"] = [percent(c.guarded) for c in p.chains]
    return [chain_table(columns)]
