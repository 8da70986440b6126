"""The report of variational inference: its text, its pictures and summary.json."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.report.tables import Report, finite
from mpibayes.hpc.svi import keys
from mpibayes.hpc.svi.draws import Posterior
from mpibayes.hpc.svi.report import shared
from mpibayes.hpc.svi.report.figures import SHOWN_ROWS
from mpibayes.hpc.svi.report.sections import sections, top, verdict
from mpibayes.hpc.svi.report.summarise import RunSummary, summarise
from mpibayes.hpc.svi.report.tables import parts
from mpibayes.io.export import csv_line


def make(run: Posterior) -> Report:
    """See `report.report`."""
    summary = summarise(run)
    pictures = _pictures(summary)
    files = {"components.csv": _csv(summary)}
    return Report(
        lambda: parts(summary), _machine(summary, list(pictures)), pictures, files,
        verdict=verdict(summary), top=lambda: top(summary),
        sections=lambda: sections(summary, pictures), chains=run.chains,
    )  # fmt: skip


def _pictures(p: RunSummary) -> dict[str, Picture]:
    """File names and PNG bytes."""
    from mpibayes.hpc.svi.report import figures

    run = p.run
    pictures = {"bound.png": figures.bounds(run.chains, p.best.chain)}
    if len(run.cells) > 1:
        at = np.unique(np.linspace(0, run.n_rows - 1, min(run.n_rows, SHOWN_ROWS)).astype(np.int64))
        x = run.cells.of(run.data.rows_at(at)) * run.cells.scale + run.cells.center
        names = [c.name for c in run.cells.columns]
        pictures["components.png"] = figures.scatter(x, p.labels[at], p.components, apart(p), names)
    return pictures


def apart(p: RunSummary) -> tuple[int, int]:
    """The two columns in which the components' means vary most, over the column's standard deviation."""
    spread = p.law.weight @ (p.law.mean - p.law.weight @ p.law.mean) ** 2
    spread = spread * p.run.cells.scale**2 / np.array([c.scale**2 for c in p.run.cells.columns])
    first, other = np.sort(np.argsort(-spread, kind="stable")[:2]).tolist()
    return first, other


def _csv(p: RunSummary) -> str:
    """A line for each component and column."""
    lines = [csv_line(["component", "weight", "rows", "column", "mean", "sd"])]
    for c in p.components:
        for column, mean, sd in zip(p.run.cells.columns, c.mean.tolist(), c.sd.tolist()):
            lines.append(csv_line([c.number, repr(c.weight), c.rows, column.name, repr(mean), repr(sd)]))
    return "".join(lines)


def _machine(p: RunSummary, pictures: list[str]) -> dict[str, Any]:
    """summary.json."""
    run, model = p.run, p.run.config.of(keys.Model)
    of_model = {"likelihood": model.likelihood, "standardise": model.standardise}
    table = {"training_rows": run.n_rows, "columns": [c.name for c in run.cells.columns]}
    components = [
        {
            "component": c.number, "weight": c.weight, "rows": c.rows, "sure": c.sure, "mean": c.mean.tolist(),
            "sd": [finite(s) for s in c.sd.tolist()], "correlation": c.correlation.tolist(),
        }
        for c in p.components
    ]  # fmt: skip
    results = {"heldout_lpd": finite(p.best_chain.heldout), "components": components}
    return shared.document(p, pictures, of_model, table, results)
