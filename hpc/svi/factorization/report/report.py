"""The report of a factorization: its text, its pictures, items.csv and summary.json."""

from __future__ import annotations

from typing import Any

from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.report.tables import Report, finite
from mpibayes.hpc.svi.factorization import keys
from mpibayes.hpc.svi.factorization.draws import Posterior
from mpibayes.hpc.svi.factorization.report.sections import sections, top, verdict
from mpibayes.hpc.svi.factorization.report.summarise import RunSummary, extremes, summarise
from mpibayes.hpc.svi.factorization.report.tables import parts
from mpibayes.hpc.svi.report import shared
from mpibayes.io.export import csv_line

ENDS = 10  # items at each end of a factor in summary.json


def make(run: Posterior) -> Report:
    """See `report.report`."""
    summary = summarise(run)
    pictures = _pictures(summary)
    return Report(
        lambda: parts(summary), _machine(summary, list(pictures)), pictures, {"items.csv": _csv(summary)},
        verdict=verdict(summary), top=lambda: top(summary), sections=lambda: sections(summary, pictures),
        chains=run.chains,
    )  # fmt: skip


def _pictures(p: RunSummary) -> dict[str, Picture]:
    """File names and PNG bytes."""
    from mpibayes.hpc.svi.factorization.report import figures
    from mpibayes.hpc.svi.report.figures import bounds

    pictures = {"bound.png": bounds(p.run.chains, p.best.chain)}
    if p.n_heldout:
        pictures["rmse.png"] = figures.scores(p.run.chains, p.best.chain)
    if p.factors.shape[1] > 1:
        pictures["factors.png"] = figures.factors(p.factors[:, :2], p.ratings, p.names)
    return pictures


def _csv(p: RunSummary) -> str:
    """A line for each item."""
    lines = [csv_line([p.run.table.names[1], "ratings", "bias", *(f"factor_{k + 1}" for k in range(p.run.model.rank))])]
    for name, n, bias, factors in zip(p.names, p.ratings.tolist(), p.bias.tolist(), p.factors.tolist()):
        lines.append(csv_line([name, n, f"{bias:.6g}", *(f"{x:.6g}" for x in factors)]))
    return "".join(lines)


def _machine(p: RunSummary, pictures: list[str]) -> dict[str, Any]:
    """summary.json."""
    run, model, best = p.run, p.run.config.of(keys.Model), p.best_chain

    def ends(values) -> dict[str, list[dict[str, Any]]]:
        both = extremes(values, min(ENDS, len(values)))
        named = [[{"item": p.names[j], "value": float(values[j])} for j in end.tolist()] for end in both]
        return dict(zip(("highest", "lowest"), named))

    of_model = {"likelihood": model.likelihood, "rank": model.rank}
    table = {
        "users": run.n_rows, "items": len(p.names), "training_ratings": int(p.ratings.sum()),
        "heldout_ratings": p.n_heldout,
    }  # fmt: skip
    results = {
        "rmse": finite(best.rmse),
        "heldout_lpd": finite(best.heldout),
        "mean": p.turned.center,
        "rating_sd": float(p.best.q.variance[0] ** 0.5),
        "parts": [{"part": name, "sd": sd} for name, sd in p.shares()],
        "biases": ends(p.bias) if p.turned.biased else None,
        "factors": [
            {"factor": k + 1, "sd": float(s), **ends(p.factors[:, k])} for k, s in enumerate(p.turned.strength)
        ],
    }
    return shared.document(p, pictures, of_model, table, results)
