"""Machine-readable report of a regression: summary.json and coefficients.csv."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from mpibayes.hpc.regression.keys import Firefly
from mpibayes.hpc.regression.report.coefficients import LEVELS, Summary, units
from mpibayes.hpc.regression.report.scoring import ClassScores, NumberScores, Scores
from mpibayes.hpc.regression.report.summarise import RunSummary
from mpibayes.hpc.report.tables import finite, machine_scalars, summary_json
from mpibayes.io.export import csv_line

Coefficient = dict[str, Any]  # a line of coefficients.csv; None if not applicable


def coefficients(p: RunSummary) -> list[Coefficient]:
    """One line per coefficient, in the order of the design."""
    design, lines = p.run.design, []
    d = design.n_predictors
    unit = units(design)
    for j in range(len(p.theta)):
        line: dict[str, Any] = {"class": design.classes[j // d]} if design.n_classes > 1 else {}
        line["coefficient"] = design.names[j % d]
        line["reference"] = design.references[j % d] or None
        line |= _numbers(p.shown, j)
        for name in ("ess_bulk", "ess_tail", "r_hat"):
            line[name] = finite(float(getattr(p.shown, name)[j]))
        if p.odds:
            line |= _odds("odds_ratio", p.shown, j)
        line["unit"] = finite(float(unit[j % d]))
        line |= _numbers(p.original or p.shown, j, "original_")
        if p.odds:
            line |= _odds("original_odds_ratio", p.original or p.shown, j)
        lines.append(line)
    return lines


def _numbers(s: Summary, j: int, prefix: str = "") -> dict[str, float | None]:
    values = {"mean": s.mean[j], "sd": s.sd[j]} | {_point(q): v for q, v in zip(LEVELS, s.quantiles[:, j])}
    return {prefix + name: finite(float(v)) for name, v in values.items()}


def _odds(name: str, s: Summary, j: int) -> dict[str, float | None]:
    with np.errstate(over="ignore"):
        low, middle, high = np.exp(s.quantiles[:, j])
    values = {name: middle, f"{name}_{_point(LEVELS[0])}": low, f"{name}_{_point(LEVELS[2])}": high}
    return {key: finite(float(v)) for key, v in values.items()}


def _point(q: float) -> str:
    return f"q{round(100 * q):02d}"


def csv(lines: Sequence[Coefficient]) -> str:
    return csv_line(list(lines[0])) + "".join(csv_line(list(line.values())) for line in lines)


def numbers(p: RunSummary, lines: Sequence[Coefficient]) -> dict[str, Any]:
    """Content of summary.json."""
    run, e, t, s = p.run, p.efficiency, p.theta, p.run.settings
    document = summary_json(
        run,
        zip(run.chains, p.chains),
        family={"family": "regression", "likelihood": s.likelihood},
        table={"training_rows": run.n_rows, "training_rows_used": p.n_rows},
        model={
            "response": run.design.response,
            "classes": list(run.design.classes),
            "reference_class": run.design.reference_class,
            "reference_levels": run.design.reference_levels,
            "predictors": [term.column.name for term in run.design.terms],
            "coefficients": len(t),
            "standardise": s.standardise,
            "intercept": s.intercept,
            "missing": s.missing,
            "prior": s.prior,
            "prior_scale": finite(run.prior_scale),
            "intercept_scale": s.intercept_scale if s.intercept and s.prior != "flat" else None,
            "degrees_of_freedom": s.degrees_of_freedom if run.likelihood.has_scale else None,
            "scale": run.likelihood.scale if run.likelihood.has_scale else None,
        },
        sampler=run.chains[0].config.of(Firefly).model_dump(),
        scalars=machine_scalars(p.scalars),
        efficiency={
            "ess_min": finite(e.least),
            "ess_median": finite(e.median),
            "cycles": e.cycles,
            "seconds": e.seconds,
            "queries": e.queries,
            **_pairs("ess_per_1000_cycles", e.per(e.cycles / 1000)),
            **_pairs("ess_per_second", e.per(e.seconds)),
            **_pairs("ess_per_1000_queries", e.per(e.queries / 1000)),
        },
        coefficients=list(lines),
        heldout=None if p.scores is None else _machine_scores(p.scores, p.run.design.classes),
        laplace_importance_sampling=None,
        warnings=p.warnings,
    )
    if run.design.n_classes > 1:
        document["sampled"] = [{"name": name, **_numbers(t, j)} for j, name in enumerate(p.names)]
    if p.importance is not None:
        o = p.importance
        document["laplace_importance_sampling"] = {k: finite(v) for k, v in asdict(o).items()} | {
            "mean_at": p.names[o.mean_at], "sd_at": p.names[o.sd_at], "agrees": o.agrees if o.trusted else None,
        }  # fmt: skip
    return document


def _pairs(name: str, values: tuple[float, float]) -> dict[str, float | None]:
    return {f"{name}_min": finite(values[0]), f"{name}_median": finite(values[1])}


def _machine_scores(s: Scores, classes: tuple[str, ...]) -> dict[str, Any]:
    def mean(m, name):
        return {name: finite(m.value), f"{name}_error": finite(m.error)} if m.n else {}

    document: dict[str, Any] = {"rows": s.n_rows, "draws": s.n_draws}
    document |= mean(s.log_density, "log_predictive_density")
    document |= mean(s.at_mean, "log_density_at_posterior_mean")
    if isinstance(s, ClassScores):
        document |= mean(s.correct, "accuracy") | mean(s.correct_at_mean, "accuracy_at_posterior_mean")
        document["accuracy_of_the_most_frequent_class"] = s.by_frequency
        document["classes"] = dict(zip(classes, s.by_class.tolist()))
        document["calibration"] = {
            label: {"rows": s.counts[c].tolist(), "predicted": s.predicted[c].tolist(), "seen": s.seen[c].tolist()}
            for c, label in enumerate(classes)
        }
    if isinstance(s, NumberScores):
        document |= {"rmse": s.rmse, "rmse_of_the_mean": s.rmse_of_mean}
        document |= mean(s.absolute, "mean_absolute_error") | mean(s.covered, "coverage_of_90_percent_intervals")
        document["places"] = s.places.tolist()
    return document
