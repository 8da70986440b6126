"""Scores of the clusters' predictions of held-out outcomes, compared with regressions without clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpibayes.errors import MpibayesError
from mpibayes.hpc.crosscat.draws import Posterior, narrow
from mpibayes.hpc.crosscat.summaries.outcomes import Outcomes
from mpibayes.hpc.data.latent import OF_NEW_ROWS, OF_TABLE
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.columns import Predictors
from mpibayes.hpc.outcome.plain import Plain, fit
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.report.document import Field, Table, on_page, on_paper
from mpibayes.io.rows import Rows
from mpibayes.text import enumerated

DRAWS = 50
SCORED, FITTED = 20_000, 100_000  # most rows, evenly spaced
WIDEST = 300  # most predictors in the regression on all columns; the widest columns are left out
TENTHS = 10
PIECE = 4_096  # rows scored at a time
CLUSTERS, ALL_COLUMNS, COVARIATES, NONE = (
    "clusters and covariates", "regression on all columns", "regression on the covariates", "no predictors",
)  # fmt: skip


@dataclass(frozen=True)
class Scores:
    """Scores of held-out rows with an outcome. log_density: by model, log p(y | the rest) of each row in nats, in units
    of the table, (n,). of_class: by model, probability of the second class, (n,), for an outcome of two classes. second
    (n,) bool: True for that class. left_out: columns left out of the regression. of_classes: True if y is a class."""

    log_density: dict[str, np.ndarray]
    of_class: dict[str, np.ndarray]
    second: np.ndarray
    left_out: Sequence[str] = ()
    of_classes: bool = True

    def tenths(self, model: str) -> np.ndarray:
        """Return the calibration by tenths of the rows in order of probability, (T, 3): number of rows, mean
        probability, and share of the second class."""
        p = self.of_class[model]
        parts = np.array_split(np.argsort(p, kind="stable"), min(TENTHS, len(p)))
        return np.array([[len(at), p[at].mean(), self.second[at].mean()] for at in parts])


def scores_of(run: Posterior, kept: Sequence[tuple[int, int]]) -> Scores | None:
    """Score the held-out rows; None if no row is held out, none has an outcome, or their file is gone."""
    of = run.outcomes
    assert of is not None
    try:
        held = _held_out(run, of)
    except (MpibayesError, OSError):
        return None
    if held is None or not (known := np.flatnonzero(~np.isnan(held[1].y))).size:
        return None
    held = held[0].take(known), held[1].take(known), held[2].take(known)
    columns = of.columns
    y, likelihood = held[1].seen, columns.likelihood
    log_density, of_class = {}, {}
    log_density[CLUSTERS], of_class[CLUSTERS] = _by_clusters(run, of, kept, held[0], held[1])
    design, left_out = columns.of_all(of.data.stored, WIDEST)
    x, (seen, target) = after_one(design.of_rows(held[2])), _training(of, design)
    own, (seen_of_own, _) = of_answers(held[1]), _sample(of.answers)
    models = {ALL_COLUMNS: (x, seen), COVARIATES: (own, seen_of_own), NONE: (x[:, :1], seen[:, :1])}
    for name, (here, there) in models.items():
        if name == NONE or here.shape[1] > 1:
            plain = fit(of.law.given, there, target, columns.keys.degrees, columns.n_eta, errors=False)
            log_density[name], of_class[name] = plain.log_density(here, y), plain.expectations(here)
    unit = np.log(columns.centre_and_unit[1])
    log_density = {name: x - unit for name, x in log_density.items()}
    of_two = likelihood.of_classes and not likelihood.of_levels
    return Scores(log_density, of_class if of_two else {}, y > 0, left_out, likelihood.of_classes)


def of_answers(answers: Answers) -> np.ndarray:
    """Return the predictors of a regression on slopes and covariates alone, (n, q) float32."""
    return after_one(np.concatenate([answers.u, answers.w], axis=1))


def after_one(x: np.ndarray) -> np.ndarray:
    """Prepend a column of ones, for the intercept, to predictors."""
    return np.concatenate([np.ones((len(x), 1), np.float32), x], axis=1)


def without_clusters(of: Outcomes) -> Plain | None:
    """Fit the training rows' regression on slopes and covariates alone; None if no row has an outcome."""
    x, y = _sample(of.answers)
    return fit(of.law.given, x, y, of.columns.keys.degrees, of.columns.n_eta) if len(y) else None


def _sample(answers: Answers) -> tuple[np.ndarray, np.ndarray]:
    """Return predictors and outcomes of a sample of the rows with an outcome."""
    known = answers.take(_evenly(np.flatnonzero(~np.isnan(answers.y)), FITTED))
    return of_answers(known), known.seen


def _evenly(rows: np.ndarray, most: int) -> np.ndarray:
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


# --- rows -------------------------------------------------------------------------------------------------------------


def _held_out(run: Posterior, of: Outcomes) -> tuple[Rows, Answers, Rows] | None:
    """Return a sample of held-out rows: cells as modelled, outcomes, and cells of all columns as recorded."""
    config, data = run.chains[0].config, of.data
    if config.heldout_path is not None:
        rows, _ = data.read_heldout_file(serial(), config.heldout_path, config.data.unseen, recorded=True)
        assert rows is not None
        numbers, source = _evenly(np.arange(len(rows)), SCORED), OF_NEW_ROWS
        rows = rows.take(numbers)
    elif data.heldout is not None:
        numbers, source = _evenly(data.heldout, SCORED), OF_TABLE
        rows = data.recorded_at(numbers)
    else:
        return None
    cells, answers = of.apart(rows, numbers, known=True)
    return run.data.as_modelled(cells, numbers, source), answers, rows


def _training(of: Outcomes, design: Predictors) -> tuple[np.ndarray, np.ndarray]:
    """Return predictors, after a 1, and outcomes of a sample of training rows."""
    known = _evenly(np.flatnonzero(~np.isnan(of.answers.y)), FITTED)
    parts = [design.of_rows(of.data.rows_at(at)) for at in np.array_split(known, -(-len(known) // SCORED))]
    return after_one(np.concatenate(parts)), of.answers.seen[known]


# --- by clusters ------------------------------------------------------------------------------------------------------


def _by_clusters(
    run: Posterior, of: Outcomes, kept: Sequence[tuple[int, int]], rows: Rows, answers: Answers
) -> tuple[np.ndarray, np.ndarray]:
    """Return log p(y | cells and predictors) and the expectation of y, averaged over draws, (n,) each; of a softmax the
    latter is (n, C + 1)."""
    shape = len(rows), of.n_expected
    drawn = [replace(d, labels=[narrow(z) for z in d.labels]) for _, d in run.states(evenly(kept, DRAWS))]
    of_cells, of_both, expected = (np.empty((len(drawn), *at)) for at in (shape[:1], shape[:1], shape))
    for d, (draw, law) in enumerate(zip(drawn, run.laws(drawn), strict=True)):
        state = of.state(draw)
        for at in (slice(i, i + PIECE) for i in range(0, len(rows), PIECE)):
            few = answers.take(at)
            view, part = draw.outcome_view, rows.take(at)
            terms, others = law.views[view].log_terms(law.rows_of(view, part)), law.log_density_without(view, part)
            in_view = np.logaddexp.reduce(terms, axis=1)
            each = state.expectations(few).reshape(*terms.shape, -1)
            expected[d, at] = (np.exp(terms - in_view[:, None])[:, :, None] * each).sum(axis=1)
            of_cells[d, at], of_both[d, at] = others + in_view, others + state.log_density(terms, few)
    total = np.logaddexp.reduce(of_cells, axis=0)
    mean = (np.exp(of_cells - total)[:, :, None] * expected).sum(axis=0)
    return np.logaddexp.reduce(of_both, axis=0) - total, mean if shape[1] > 1 else mean[:, 0]


# --- in the report ----------------------------------------------------------------------------------------------------


def parts(s: Scores) -> list[list[Any]]:
    """Return the scores of all models, and calibration, for the outcome's section."""
    classes, ours = s.of_classes, s.log_density[CLUSTERS]
    what = "log loss" if classes else "log density"
    n = len(ours)
    words = f"{n:,} held-out rows: {what} of the outcome, nats a row, given all other cells, "
    words += "the smaller the better." if classes else "the larger the better."
    if s.left_out:
        words += f" The regression on all columns is without {enumerated(s.left_out)}."
    sign = -1.0 if classes else 1.0
    lines = []
    for name, of in s.log_density.items():
        apart = sign * (of - ours)
        error = apart.std(ddof=1) / np.sqrt(n) if n > 1 and name != CLUSTERS else None
        lines.append([name, sign * float(of.mean()), None if error is None else float(apart.mean()), error])
    fields = [
        Field("prediction by"), Field(what, "number", digits=4),
        Field("difference", "number", "from the clusters'", digits=4),
        Field("±", "number", "standard error of the difference", digits=4),
    ]  # fmt: skip
    made = [[on_page(words), on_paper(words), Table("model", fields, lines)]]
    if s.of_class:
        words = "Calibration: tenths of these rows by their probability."
        fields = [
            Field("rows", "whole"), Field("predicted", "number", "mean probability", digits=3),
            Field("observed", "number", "share of these rows", digits=3),
        ]  # fmt: skip
        rows = [[int(k), float(p), float(share)] for k, p, share in s.tenths(CLUSTERS)]
        made.append([on_page(words), on_paper(words), Table("tenth", fields, rows)])
    return made


def numbers(s: Scores) -> dict[str, Any]:
    """Return the scores for summary.json."""
    ours, result = s.log_density[CLUSTERS], {}
    for name, of in s.log_density.items():
        error = float((of - ours).std(ddof=1) / np.sqrt(len(of))) if len(of) > 1 and name != CLUSTERS else None
        result[name] = {"log_density": float(of.mean()), "difference_error": error}
        if name in s.of_class:
            result[name]["calibration"] = [
                dict(zip(("rows", "predicted", "observed"), map(float, line))) for line in s.tenths(name)
            ]
    return {"rows": len(ours), "left_out": list(s.left_out), "models": result}
