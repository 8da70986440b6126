"""Common parts of the reports of all likelihoods: the verdict, the description of the run, the table of chains, and the
frame of summary.json. `p` is a summary with `run`, `best`, `chains`, `best_chain` and `warnings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpibayes.hpc.report.document import DOUBT, GOOD, Section, Traces, Verdict
from mpibayes.hpc.report.tables import (
    finite,
    fixed,
    head,
    not_started,
    shards,
    span,
    states,
    use_it,
    warned,
    warnings_in_words,
)  # fmt: skip
from mpibayes.hpc.report.wide_table import chain_table
from mpibayes.hpc.scalar import Scalar
from mpibayes.text import percent, took

APPROXIMATION = (
    "This is not the posterior but the nearest of its kind that was found. How far it is from it is not known; spreads "
    "are too small rather than too large."
)
NEAREST = (
    "not the posterior but the nearest of its kind that was found: log p(table) is above the bound, by how much is not "
    "known. Spreads are too small rather than too large"
)
PICTURES = {"bound.png": "The bound over cycles and seconds"}
Lines = list[tuple[str, str]]


def verdict(p: Any, found: Sequence[str]) -> Verdict:
    """Verdict: the sentences of the result in `found`, whether the chains end alike, and what to do next."""
    sound = DOUBT if p.warnings else GOOD
    bound = f"The bound is {p.best_chain.bound:,.3f} nats."
    steps = use_it(p.run, sound)
    return Verdict([*found, bound], [_restarts(p)], steps, sound, APPROXIMATION, warnings=warned(p.warnings))


def _restarts(p: Any) -> str:
    """Sentence on whether the chains end alike."""
    if len(p.chains) == 1:
        return "One chain only: others may end with a higher bound."
    best = p.best_chain
    gaps = [best.bound - c.bound for c in p.chains]
    near = sum(gap < 1.0 for gap in gaps)
    return (
        f"{near} of {len(p.chains)} chains end within one nat of the best, {best.name}; the worst is {max(gaps):,.1f} "
        "nats below. Chains are restarts, of which the best is taken."
    )


def parts(p: Any, about: Lines, found: Sequence[Any], chain_lines: Sequence[Any]) -> list[Any]:
    """Parts of the printed report, in order."""
    shown = [head(p.run.chains, about), "", *found]
    if p.warnings:
        shown += ["", warnings_in_words(p.warnings)]
    return [*shown, "", *chain_lines] if chain_lines else shown


def about(p: Any, what: Lines, steps: str, measures: Lines, places: int = 3, end: str | None = None) -> Lines:
    """Description of the run, as lines of a word and its text. what: rows and model. measures: of the best state,
    besides its bound. places: decimals of the bound. end: text after the bound, by default the cycle after which it
    gained nothing.
    """
    run, best = p.run, p.best_chain
    several = f", {len(p.chains)} chains" if len(p.chains) > 1 else ""
    which = f" of {best.name}, the best of {len(p.chains)}" if several else ""
    if end is None:
        end = f"; no gain after cycle {best.still_after:,}" if best.still_after is not None else ""
    return [
        ("table", str(run.table.path)), *what, ("steps", f"{steps} ({shards(run.config)})"),
        ("cycles", f"{span([c.cycles for c in p.chains])}{several}, {states(run.chains)}"),
        *not_started(run.chains),
        ("time", f"{took(sum(c.seconds for c in p.chains))}{' of all chains' if several else ''} in cycles"),
        ("bound", f"{best.bound:,.{places}f} nats{which}, cycle {best.kept:,}{end}"),
        *measures, ("approximation", NEAREST),
    ]  # fmt: skip


def chain_lines(p: Any, own: Mapping[str, Sequence[str]], places: int = 3) -> list[Any]:
    """A table with a line for each of several chains; own: columns of the likelihood."""
    if len(p.chains) == 1:
        return []
    best = p.best_chain
    columns = {
        "chains": [f"{c.name}{' *' if c is best else ''}" for c in p.chains],
        "cycles": [f"{c.cycles:,}" for c in p.chains], "time": [took(c.seconds) for c in p.chains],
        "bound": [fixed(c.bound, places) for c in p.chains],
        "below the best": [fixed(best.bound - c.bound, places) for c in p.chains],
        **own,
    }  # fmt: skip
    if any(c.guarded for c in p.chains):
        columns["guarded"] = [percent(c.guarded) for c in p.chains]
    return [chain_table(columns)]


def last_sections(
    p: Any, about: Lines, chain_lines: Sequence[Any], pictures: Sequence[Any], scalars: Sequence[Scalar]
) -> list[Section]:
    """Last sections of the page: the chains, and the description of the run."""
    return [
        Section("chains", "Chains", [Traces(p.run.chains, scalars), *chain_lines, *pictures]),
        Section("about", "What was run", [head(p.run.chains, about)]),
    ]


def document(
    p: Any, pictures: list[str], model: dict[str, Any], table: dict[str, Any], found: dict[str, Any]
) -> dict[str, Any]:
    """summary.json: its frame, and what is of the likelihood. Numbers that do not exist are null."""
    run, best = p.run, p.run.chains[p.best.chain]
    return {
        "format": "mpibayes-report",
        "version": 1,
        "family": "svi",
        "approximation": True,
        **model,
        "runs": [
            {"directory": str(chain.folder), **{name: finite(value) for name, value in vars(line).items()}}
            for line in p.chains
            for chain in run.chains
            if chain.name == line.name
        ],
        "table": {"path": str(run.table.path), "fingerprint": run.table.fingerprint, **table},
        "best": {"directory": str(best.folder), "cycle": p.best.cycle, "bound": p.best.bound},
        **found,
        "warnings": p.warnings,
        "pictures": pictures,
    }
