"""Rules between the keys of [outcome], and between these keys and the table."""

from __future__ import annotations

from collections.abc import Mapping

from mpibayes.hpc.config.against_table import nearest_column
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.places import Report, shown
from mpibayes.hpc.outcome.keys import Outcome
from mpibayes.hpc.regression.likelihoods.likelihood import NUMERIC
from mpibayes.io.rows import Column
from mpibayes.text import counted

WITHOUT_SCALE = "logistic", "softmax", "poisson", "survival"
MOST_LOG = 100  # largest absolute mean of log odds and log rates


def likelihood_of(outcome: Outcome, column: Column) -> str:
    """Return the name of the likelihood, with "auto" decided by the outcome's column."""
    if outcome.likelihood != "auto":
        return outcome.likelihood
    if column.kind == "survival":
        return "survival"
    if column.kind not in NUMERIC:
        return "softmax" if len(column.levels) > 2 else "logistic"
    return "poisson" if column.kind == "count" else "student-t"


def between_keys(outcome: Outcome, report: Report) -> None:
    """Report contradictions inside [outcome]."""
    if outcome.column is None:
        for name in outcome.model_fields_set - {"column"}:
            report.add(("outcome", name), "given, but there is no outcome.column; set it, or take this out")
        return
    for key, names in (("covariates", outcome.covariates), ("slopes", outcome.slopes)):
        if outcome.column in names:
            report.add(("outcome", key), f"{shown(outcome.column)} is the outcome itself; take it out")
        for name in sorted({name for name in names if names.count(name) > 1}):
            report.add(("outcome", key), f"{shown(name)} is listed twice")
    for name in sorted(set(outcome.covariates) & set(outcome.slopes)):
        report.add(("outcome", "slopes"), f"{shown(name)} is among the covariates, too; take it out of one of them")


def without_effect(outcome: Outcome) -> dict[tuple[str, str], str]:
    """Return the keys of [outcome] that have no effect, each with the setting that disables it."""
    if outcome.column is None:
        return {("outcome", key): "outcome.column is not set" for key in Outcome.model_fields if key != "column"}
    idle = {}
    if outcome.likelihood in WITHOUT_SCALE:
        idle = {("outcome", "scale"): f"outcome.likelihood = {shown(outcome.likelihood)}"}
    if outcome.likelihood in (*WITHOUT_SCALE, "normal"):
        idle["outcome", "degrees"] = f"outcome.likelihood = {shown(outcome.likelihood)}"
    return idle


def against_table(config: Config, columns: Mapping[str, Column], report: Report) -> None:
    """Report an outcome or predictors that the table lacks or that are unsuitable."""
    from mpibayes.hpc.outcome.bounds import BOUNDS
    from mpibayes.hpc.outcome.likelihoods import LIKELIHOODS

    outcome = config.of(Outcome)
    if outcome.column is None:
        return
    column = columns.get(outcome.column)
    if column is None:
        hint = nearest_column(outcome.column, list(columns))
        report.add(("outcome", "column"), f"the table has no column {shown(outcome.column)}; {hint}")
    elif column.kind == "survival" and likelihood_of(outcome, column) != "survival":
        what = f'{shown(outcome.column)} is of times to an event: set outcome.likelihood = "survival", or take it out'
        report.add(("outcome", "likelihood"), what)
    else:
        likelihood = likelihood_of(outcome, column)
        key = "column" if outcome.likelihood == "auto" else "likelihood"  # the one that was chosen against the other
        for problem in LIKELIHOODS[likelihood].problems(column):
            report.add(("outcome", key), problem)
        _check_values(outcome, likelihood, report)
        if outcome.kernel == "firefly" and likelihood not in BOUNDS:
            which = " and ".join(BOUNDS)
            what = f'{shown(likelihood)} has no kernel = "firefly"; {which} have one. Set kernel = "hmc"'
            report.add(("outcome", "kernel"), what)
    for key, names in (("covariates", outcome.covariates), ("slopes", outcome.slopes)):
        for name in names:
            problem = _problem(columns.get(name), name, list(columns))
            if problem:
                report.add(("outcome", key), problem)
    if column is not None and all(name in columns for name in outcome.predictors):
        n_own, n_shared = (sum(_width(columns[of]) for of in names) for names in (outcome.slopes, outcome.covariates))
        n_eta = len(column.levels) - 1 if likelihood_of(outcome, column) == "softmax" and len(column.levels) > 2 else 1
        own = n_eta * (1 + n_own), "coefficient of a cluster"
        shared = n_eta * n_shared, "coefficient of the covariates" if n_eta > 1 else "predictor of the covariates"
        for key, (n, what) in {"mean": own, "sd": own, "covariate_sd": shared}.items():
            given = getattr(outcome, key)
            if isinstance(given, tuple) and len(given) != n:
                text = f"has {counted(len(given), 'number')}, expected {n}: one for each {what}"
                report.add(("outcome", key), f"{text} (a column of levels has one for every level but the first)")


def _check_values(outcome: Outcome, likelihood: str, report: Report) -> None:
    """Report values that have no effect under a likelihood, and intercepts that are implausibly large."""
    for _, name in without_effect(outcome.model_copy(update={"likelihood": likelihood})):
        if getattr(outcome, name) != Outcome.model_fields[name].default:
            report.add(("outcome", name), f"given, but {shown(likelihood)} has no use for it; take it out")
    mean = outcome.mean if isinstance(outcome.mean, tuple) else (outcome.mean,)
    if likelihood in WITHOUT_SCALE and isinstance(mean[0], float) and abs(mean[0]) > MOST_LOG:
        what = {"poisson": "the log of a mean count", "survival": "the log of a hazard ratio"}.get(
            likelihood, "log odds"
        )
        report.add(("outcome", "mean"), f"got {shown(mean[0])}, expected {what}, from -{MOST_LOG} to {MOST_LOG}")


def _width(column: Column) -> int:
    """Return the number of coefficients of a predictor."""
    return 1 if column.kind in NUMERIC else len(column.levels) - 1


def _problem(column: Column | None, name: str, names: list[str]) -> str:
    """Return the reason why a column cannot be a predictor; "" if it can."""
    if column is None:
        return f"the table has no column {shown(name)}; {nearest_column(name, names)}"
    if column.kind == "survival":
        return f"{shown(name)} is of times to an event, which cannot be a predictor"
    if column.n_missing:
        lacks = f"column {shown(name)} lacks {counted(column.n_missing, 'cell')}"
        return f"{lacks}; predictors of the outcome must have none missing. Impute them, or take it out"
    constant = column.minimum == column.maximum if column.kind in NUMERIC else len(column.levels) < 2
    return f"column {shown(name)} is constant; take it out" if constant else ""
