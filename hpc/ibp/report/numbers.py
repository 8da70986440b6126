"""Machine-readable report of an Indian buffet process: summary.json and loadings.csv."""

from __future__ import annotations

from typing import Any

from mpibayes.hpc.ibp.report.summarise import AVERAGED, RunSummary
from mpibayes.hpc.report.tables import finite, machine_scalars, settled_json, summary_json
from mpibayes.io.export import csv_line


def csv(p: RunSummary) -> str:
    """Write one line per feature and column."""
    lines = [csv_line(["feature", "rows", "column", "loading", "sd"])]
    for f in p.features:
        for column, loading, sd in zip(p.run.cells.columns, f.loadings.tolist(), f.errors.tolist()):
            lines.append(csv_line([f.number, f.rows, column.name, repr(loading), repr(sd)]))
    return "".join(lines)


def numbers(p: RunSummary) -> dict[str, Any]:
    """Content of summary.json."""
    run, r = p.run, p.representative
    table = {"training_rows": run.n_rows, "columns": [c.name for c in run.cells.columns]}
    document = summary_json(
        run, zip(run.chains, p.chains), family={"family": "ibp"}, table=table, likelihood=run.likelihood,
        standardise=run.standardise, noise=run.noise, settled=settled_json(p.settled),
        scalars=machine_scalars(p.scalars), n_features={str(k): share for k, share in p.counts.items()},
        common_features={str(k): share for k, share in p.common.items()}, common_rows=p.common_rows,
        **{name: p.averaged.get(name) for name in AVERAGED}, kept_draws=p.n_kept, warnings=p.warnings,
    )  # fmt: skip
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
