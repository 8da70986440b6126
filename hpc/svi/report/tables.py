"""The text of the report of variational inference."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.posterior.tables import (
    fixed,
    head,
    not_started,
    plain_table,
    shards,
    span,
    states,
    warnings_in_words,
)  # fmt: skip
from mpibayes.hpc.posterior.wide_table import Group, WideTable, chain_table
from mpibayes.hpc.svi.family import model_in_words, step_in_words
from mpibayes.hpc.svi.report.summarise import ComponentLine, RunSummary
from mpibayes.text import counted, percent, took, visible

SHOWN = 30  # components, the heaviest
NEAREST = (
    "not the posterior but the nearest of its kind that was found: log p(table) is above the bound, by how much is not "
    "known. Spreads are too small rather than too large"
)
SHOWN_COLUMNS = 60  # of the table of means; of more columns components.csv


def parts(p: RunSummary) -> list[Any]:
    """What is printed, in order."""
    shown = [head(p.run.chains, about(p)), "", _components(p)]
    if p.warnings:
        shown += ["", warnings_in_words(p.warnings)]
    if len(p.chains) > 1:
        shown += ["", chain_lines(p)]
    return [*shown, "", *_means(p)]


def about(p: RunSummary) -> list[tuple[str, str]]:
    run, best = p.run, p.best_chain
    rows = counted(run.n_rows, "training row")
    if run.data.heldout is not None:
        rows += f", {len(run.data.heldout):,} held out"
    elif run.config.heldout_path is not None:
        rows += f"; held-out rows from {run.config.heldout_path}"
    several = f", {len(p.chains)} chains" if len(p.chains) > 1 else ""
    which = f" of {best.name}, the best of {len(p.chains)}" if several else ""
    end = f"; no gain after cycle {best.still_after:,}" if best.still_after is not None else ""
    lines = [
        ("table", str(run.table.path)), ("rows", rows), ("model", model_in_words(run.config, len(run.cells))),
        ("steps", f"{step_in_words(run.config)} ({shards(run.config)})"),
        ("cycles", f"{span([c.cycles for c in p.chains])}{several}, {states(run.chains)}"),
        *not_started(run.chains),
        ("time", f"{took(sum(c.seconds for c in p.chains))}{' of all chains' if several else ''} in cycles"),
        ("bound", f"{best.bound:,.3f} nats{which}, cycle {best.kept:,}{end}"),
    ]  # fmt: skip
    if np.isfinite(best.heldout):
        lines.append(("held-out", f"{best.heldout:.4f} nats a row, under this state"))
    return [*lines, ("approximation", NEAREST)]


def _components(p: RunSummary) -> Any:
    """A line a component of the best state."""
    shown = [c for c in p.components if c.rows][:SHOWN]
    table = plain_table("component", "weight", "rows", "share", "sure", "")
    for c in shown:
        table.add_row(
            str(c.number), f"{c.weight:.4f}", f"{c.rows:,}", percent(c.rows / p.run.n_rows), percent(c.sure), ""
        )
    left = sum(c.rows > 0 for c in p.components) - len(shown)
    empty = sum(c.rows == 0 for c in p.components)
    more = [f"{left:,} more in components.csv"] * (left > 0) + [f"{empty:,} without a row"] * (empty > 0)
    if more:
        table.caption, table.caption_justify = "; ".join(more), "left"
    return table


def chain_lines(p: RunSummary) -> Any:
    best = p.best_chain
    columns = {
        "chains": [f"{c.name}{' *' if c is best else ''}" for c in p.chains],
        "cycles": [f"{c.cycles:,}" for c in p.chains], "time": [took(c.seconds) for c in p.chains],
        "bound": [fixed(c.bound, 3) for c in p.chains],
        "below the best": [fixed(best.bound - c.bound, 3) for c in p.chains],
        "in use": [f"{c.in_use:,}" for c in p.chains],
    }  # fmt: skip
    if any(np.isfinite(c.heldout) for c in p.chains):
        columns["held-out"] = [fixed(c.heldout, 4) for c in p.chains]
    if any(c.guarded for c in p.chains):
        columns["guarded"] = [percent(c.guarded) for c in p.chains]
    return chain_table(columns)


def _means(p: RunSummary) -> list[Any]:
    cells, shown = p.run.cells, [c for c in p.components if c.rows][:SHOWN]
    if len(cells) > SHOWN_COLUMNS:
        return [f"Means of {len(cells):,} columns are in components.csv"]

    def group(c: ComponentLine) -> Group:
        return Group((f"comp. {c.number}", "sd"), [(f"{m:.3g}", f"{s:.2g}") for m, s in zip(c.mean, c.sd)])

    title = "Means and standard deviations of the components, in the table's units"
    return [title, WideTable([visible(c.name) for c in cells.columns], [group(c) for c in shown], "column")]
