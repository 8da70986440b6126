"""The report of the posterior of an Indian buffet process: its text, its pictures and summary.json."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.ibp.draws import Posterior
from mpibayes.hpc.ibp.keys import Report as ReportKeys
from mpibayes.hpc.ibp.report.sections import sections, top, verdict
from mpibayes.hpc.ibp.report.summarise import AVERAGED, RunSummary, summarise
from mpibayes.hpc.ibp.report.tables import parts
from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.report.tables import Report, finite, machine_scalars
from mpibayes.io.export import csv_line

EXAMPLES = 8  # rows that are rebuilt


def make(run: Posterior) -> Report:
    """See `report.report`."""
    posterior = summarise(run)
    pictures = _pictures(posterior)
    files = {"loadings.csv": _csv(posterior)} if posterior.features and run.likelihood else {}
    return Report(
        lambda: parts(posterior), _machine(posterior, list(pictures)), pictures, files,
        verdict=verdict(posterior), top=lambda: top(posterior),
        sections=lambda: sections(posterior, pictures), chains=run.chains,
    )  # fmt: skip


def _pictures(p: RunSummary) -> dict[str, Picture]:
    """File names and PNG bytes."""
    from mpibayes.hpc.ibp.report import figures

    run, pictures = p.run, {"trace.png": figures.trace(p.run.chains)}
    if not (p.features and run.likelihood):
        return pictures
    image = run.chains[0].config.of(ReportKeys).image
    if image is None:
        names = [c.name for c in run.cells.columns]
        pictures["features.png"] = figures.profiles(p.features, names, np.array([c.scale for c in run.cells.columns]))
        return pictures
    pictures["features.png"] = figures.pictures(p.features, image)
    rows, fitted, titles = _examples(p)
    pictures["rows.png"] = figures.rebuilt(rows, fitted, titles, image)
    return pictures


def _examples(p: RunSummary) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Some rows from all over the table in its units, NaN where a cell is missing; the sums of the loadings of the
    features that the representative draw says they have; and what they are called."""
    run, draw = p.run, p.representative.draw
    at = np.unique(np.linspace(0, run.n_rows - 1, EXAMPLES).astype(np.int64))
    rows, has = run.cells.of(run.data.rows_at(at)), draw.rows()[at]
    fitted = has @ draw.new_row().means
    numbers = at if run.data.training_rows is None else run.data.training_rows[at]
    titles = [
        f"row {n + 1:,}: {' '.join(str(k + 1) for k in np.flatnonzero(h)) or '-'}"
        for n, h in zip(numbers.tolist(), has)
    ]
    return (*(x * run.cells.scale + run.cells.center for x in (rows, fitted)), titles)


def _csv(p: RunSummary) -> str:
    """A line for each feature and column."""
    lines = [csv_line(["feature", "rows", "column", "loading", "sd"])]
    for f in p.features:
        for column, loading, sd in zip(p.run.cells.columns, f.loadings.tolist(), f.errors.tolist()):
            lines.append(csv_line([f.number, f.rows, column.name, repr(loading), repr(sd)]))
    return "".join(lines)


def _machine(p: RunSummary, pictures: list[str]) -> dict[str, Any]:
    """summary.json. Numbers that do not exist are null."""
    run, r = p.run, p.representative
    document: dict[str, Any] = {
        "format": "mpibayes-report",
        "version": 1,
        "family": "ibp",
        "runs": [
            {"directory": str(c.folder), **{name: finite(value) for name, value in vars(line).items()}}
            | {"scalars": machine_scalars(line.scalars)}
            for c, line in zip(run.chains, p.chains)
        ],
        "table": {
            "path": str(run.table.path), "fingerprint": run.table.fingerprint, "training_rows": run.n_rows,
            "columns": [c.name for c in run.cells.columns],
        },
        "likelihood": run.likelihood,
        "standardise": run.standardise,
        "noise": run.noise,
        "settled": {
            "judged_after_cycle": p.settled.cycle,
            "problems": {what: list(why) for what, why in p.settled.problems.items()},
            "after_cycles": dict(p.settled.after),
        },
        "scalars": machine_scalars(p.scalars),
        "n_features": {str(k): share for k, share in p.counts.items()},
        "common_features": {str(k): share for k, share in p.common.items()},
        "common_rows": p.common_rows,
        **{name: p.averaged.get(name) for name in AVERAGED},
        "kept_draws": p.n_kept,
        "warnings": p.warnings,
        "pictures": pictures,
    }  # fmt: skip
    if p.of_columns is not None:
        document["column_noise_sd"] = p.of_columns.tolist()
    if r is None:
        return document
    document["representative"] = {
        "directory": str(run.chains[r.chain].folder), "cycle": r.draw.cycle, "n_features": len(r.draw),
        "expected_difference": r.loss, "draws_compared": len(r.losses),
    }  # fmt: skip
    document["features"] = [
        {
            "feature": f.number, "rows": f.rows, "share": f.share, "stability": f.stability,
            "same_rows": finite(f.alike), "loadings": f.loadings.tolist(), "loadings_sd": f.errors.tolist(),
        }
        for f in p.features
    ]  # fmt: skip
    document["together"] = r.draw.together.tolist()
    document["combinations"] = [{"features": list(c.features), "rows": c.rows} for c in p.combinations]
    return document
