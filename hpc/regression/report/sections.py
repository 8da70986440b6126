"""The report of a regression as the terminal and the page open it: the verdict, the coefficients that stand out, and
sections to look all of them up in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpibayes.hpc.posterior.scalars import ENOUGH_ESS, ENOUGH_R_HAT, r_hat_in_words
from mpibayes.hpc.regression.report import mixing, tables
from mpibayes.hpc.regression.report.coefficient_tables import near
from mpibayes.hpc.regression.report.coefficients import Summary, by_importance, units
from mpibayes.hpc.regression.report.scoring import ClassScores
from mpibayes.hpc.regression.report.summarise import RunSummary
from mpibayes.hpc.regression.scalars import SCALARS
from mpibayes.hpc.report.document import BAD, DOUBT, GOOD, Browse, Field, Section, Traces, Verdict, pictured
from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.report.tables import fixed, head, plain_table, sentence, use_it, warned
from mpibayes.text import counted, percent

TOP = 12  # coefficients on the terminal
PICTURES = {
    "coefficients.png": "The coefficients furthest from 0: mean, 5 to 95 %",
    "mixing.png": "Draws and autocorrelation of the coefficients with the fewest effective draws",
    "heldout.png": "Held-out rows: how well the predictions are calibrated",
}


def verdict(p: RunSummary) -> Verdict:
    """Verdict: the result, whether the chains agree, and what to do next."""
    ess, r_hat = p.shown.ess_bulk, p.shown.r_hat
    known = np.isfinite(r_hat).any() and np.isfinite(ess).any()
    several = len(p.chains) > 1
    if mixing.contradicted(len(p.chains), r_hat) or _contradicted(p):
        sound = BAD
    else:
        sound = GOOD if known and not p.warnings else DOUBT
    chains = ["There are too few draws to say."]
    if known:
        agree = np.nanmax(r_hat) <= ENOUGH_R_HAT
        who = f"{len(p.chains)} chains" if several else "The halves of the one chain"
        least = f"R-hat is at most {r_hat_in_words(np.nanmax(r_hat))}"
        enough = f"at least {fixed(np.nanmin(ess), 0)} effective draws of each coefficient"
        chains = [f"{'Yes' if agree else 'No'}: {who}; {least}, with {enough} ({ENOUGH_ESS:.0f} are wanted)."]
    if p.importance is not None and p.importance.trusted:
        agrees = "agrees" if p.importance.agrees else "does not agree"
        chains.append(f"A second opinion, by importance sampling, {agrees} with them.")
    steps = use_it(p.run, sound) or ["Look at the coefficients, and at the held-out rows."]
    return Verdict(_found(p), chains, steps, sound, warnings=warned(p.warnings))


def _contradicted(p: RunSummary) -> bool:
    return p.importance is not None and p.importance.trusted and not p.importance.agrees


def _found(p: RunSummary) -> list[str]:
    design = p.run.design
    away = p.shown.away_from_zero.reshape(design.n_classes, -1)[:, int(design.intercept) :]
    m = p.run.likelihood
    sentences = [
        sentence(
            f"{m.title} regression of {design.response} on {counted(p.n_rows, 'row')}: {m.in_words(design.classes)}"
        )
    ]
    if away.size:
        sentences.append(
            f"Of {away.sum():,} of {counted(away.size, 'coefficient')} the 5 to 95 % interval leaves out 0."
        )
    s = p.scores
    if isinstance(s, ClassScores):
        sentences.append(
            f"Of {s.n_rows:,} held-out rows {percent(s.correct.value)} are predicted right; the most frequent class "
            f"alone would get {percent(s.by_frequency)}."
        )
    elif s is not None:
        error = s.squared.error / (2.0 * s.rmse) if s.rmse > 0 else 0.0
        sentences.append(
            f"Predictions of {s.n_rows:,} held-out rows are off by {near(s.rmse, error)} (root mean square); their own "
            f"mean is off by {near(s.rmse_of_mean, error)}."
        )
    return sentences


def top(p: RunSummary) -> list[Any]:
    """The coefficients that stand out most."""
    from mpibayes.terminal import Text

    design, s = p.run.design, p.shown
    places = [j for j in by_importance(s, design).tolist() if not (design.intercept and j % design.n_predictors == 0)]
    odds = p.odds
    table = plain_table("coefficients that stand out", "odds ratio" if odds else "mean", "5 %", "95 %")
    for j in places[:TOP]:
        with np.errstate(over="ignore"):
            low, middle, high = np.exp(s.quantiles[:, j]) if odds else (s.quantiles[0, j], s.mean[j], s.quantiles[2, j])
        spread = max((high - low) / 3.3, 1e-12)
        table.add_row(Text(p.names[j]), *(near(x, spread) for x in (middle, low, high)))
    if len(places) > TOP:
        table.caption, table.caption_justify = f"{len(places) - TOP:,} more", "left"
    return [table]


def sections(p: RunSummary, pictures: Mapping[str, Picture]) -> list[Section]:
    """Sections of the page below the verdict, in order."""
    made = [
        Section(
            "coefficients",
            "Coefficients",
            [_about_coefficients(p), _browse(p), *pictured(pictures, PICTURES, "coefficients.png")],
        )
    ]
    if p.original is not None:
        made.append(
            Section("original", "Coefficients in the table's own units", [
                "Of numeric predictors, a coefficient of one unit; intercepts where they all are 0.",
                _browse(p, p.original),
            ])
        )  # fmt: skip
    if p.scores is not None:
        made.append(
            Section("heldout", "Held-out rows", [tables.score_lines(p), *pictured(pictures, PICTURES, "heldout.png")])
        )
    parts = [Traces(p.run.chains, SCALARS), tables.scalar_lines(p)]
    parts += [tables.chain_lines(p)] if len(p.chains) > 1 else []
    parts += [tables.efficiency_lines(p), *tables.second_opinion(p), *pictured(pictures, PICTURES, "mixing.png")]
    made.append(Section("chains", "Chains", parts))
    return [*made, Section("about", "What was run", [head(p.run.chains, tables.about(p))])]


def _about_coefficients(p: RunSummary) -> str:
    design = p.run.design
    text = "Those that stand out most from 0 come first. Levels are compared with the first of their column"
    text += "; numeric predictors are in standard deviations" if design.standardise else ""
    return text + ("; each less the mean of all classes." if design.n_classes > 1 else ".")


def _browse(p: RunSummary, of: Summary | None = None) -> Browse:
    """All coefficients: as they were sampled, or, of, in the table's units."""
    design, s = p.run.design, of or p.shown
    d, unit = design.n_predictors, units(design)
    fields = [
        Field("coefficient"), Field("mean", "number"), Field("sd", "number"), Field("5 %", "number"),
        Field("95 %", "number"), Field("5 to 95 %", "interval", "with a line at 0"),
    ]  # fmt: skip
    fields += [Field("odds ratio", "number", "exponential of the 50 % point")] if p.odds else []
    fields += [Field("unit", "number", "of the predictor, in the table's units")] if of else [
        Field("against"), Field("ESS", "whole", "effective draws, bulk"), Field("R-hat", "number"),
    ]  # fmt: skip
    rows = []
    for j in by_importance(p.shown, design).tolist():
        low, middle, high = (float(x) for x in s.quantiles[:, j])
        row = [
            p.names[j],
            s.mean[j],
            s.sd[j],
            low,
            high,
            None if design.intercept and j % d == 0 else (low, middle, high),
        ]
        with np.errstate(over="ignore"):
            row += [np.exp(middle)] if p.odds else []
        ess = p.shown.ess_bulk[j]
        judged = [design.references[j % d] or None, round(ess) if np.isfinite(ess) else None, p.shown.r_hat[j]]
        rows.append([*row, *([unit[j % d]] if of else judged)])
    return Browse("coefficient", fields, rows, caption="coefficients.csv has them all, to all digits")
