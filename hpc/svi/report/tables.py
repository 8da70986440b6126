"""The text of the report of variational inference."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.report.tables import fixed, plain_table
from mpibayes.hpc.report.wide_table import Group, WideTable
from mpibayes.hpc.svi.family import model_in_words, step_in_words
from mpibayes.hpc.svi.report import shared
from mpibayes.hpc.svi.report.summarise import ComponentLine, RunSummary
from mpibayes.text import counted, percent, visible

SHOWN = 30  # components, the heaviest
SHOWN_COLUMNS = 60  # of the table of means; of more columns components.csv


def parts(p: RunSummary) -> list[Any]:
    """Parts of the printed report, in order."""
    return [*shared.parts(p, about(p), [_components(p)], chain_lines(p)), "", *_means(p)]


def about(p: RunSummary) -> shared.Lines:
    run, best = p.run, p.best_chain
    rows = counted(run.n_rows, "training row")
    if run.data.heldout is not None:
        rows += f", {len(run.data.heldout):,} held out"
    elif run.config.heldout_path is not None:
        rows += f"; held-out rows from {run.config.heldout_path}"
    what = [("rows", rows), ("model", model_in_words(run.config, len(run.cells)))]
    scored = [("held-out", f"{best.heldout:.4f} nats a row, under this state")] * bool(np.isfinite(best.heldout))
    return shared.about(p, what, step_in_words(run.config), scored)


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


def chain_lines(p: RunSummary) -> list[Any]:
    columns = {"in use": [f"{c.in_use:,}" for c in p.chains]}
    if any(np.isfinite(c.heldout) for c in p.chains):
        columns["held-out"] = [fixed(c.heldout, 4) for c in p.chains]
    return shared.chain_lines(p, columns)


def _means(p: RunSummary) -> list[Any]:
    cells, shown = p.run.cells, [c for c in p.components if c.rows][:SHOWN]
    if len(cells) > SHOWN_COLUMNS:
        return [f"Means of {len(cells):,} columns are in components.csv"]

    def group(c: ComponentLine) -> Group:
        return Group((f"comp. {c.number}", "sd"), [(f"{m:.3g}", f"{s:.2g}") for m, s in zip(c.mean, c.sd)])

    title = "Means and standard deviations of the components, in the table's units"
    return [title, WideTable([visible(c.name) for c in cells.columns], [group(c) for c in shown], "column")]
