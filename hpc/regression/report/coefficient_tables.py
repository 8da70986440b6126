"""The coefficients in a regression's report: as sampled, in the table's units, and their reference levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.posterior.scalars import r_hat_in_words
from mpibayes.hpc.regression.likelihoods.classes import quoted
from mpibayes.hpc.regression.report.coefficients import Summary, by_importance, units
from mpibayes.hpc.regression.report.summarise import RunSummary
from mpibayes.hpc.report.document import PAGE, PAPER, Field, Rounded, Section, Table, on_page, on_paper
from mpibayes.text import number

LISTED = 30  # most coefficients in the table on paper; coefficients.csv has them all
LISTED_NUMERIC = 15  # the same in the table's units
TOP = 12  # coefficients on the terminal
POINTS = (
    Field("mean", "number", group=1), Field("sd", "number", group=1), Field("5 %", "number", group=1),
    Field("50 %", "number", on=PAPER, group=1), Field("95 %", "number", group=1),
    Field("5 to 95 %", "interval", "with a line at 0", PAGE),
)  # fmt: skip
ODDS = (
    Field("odds ratio", "number", "exponential of the 50 % point", group=2),
    Field("5 %", "number", on=PAPER, group=2), Field("95 %", "number", on=PAPER, group=2),
)  # fmt: skip
JUDGED = (
    Field("against", "text", on=PAGE), Field("ESS", "whole", "effective draws, bulk", group=3),
    Field("tail", "whole", "effective draws of its tails", PAPER, group=3), Field("R-hat", "number", group=3),
)  # fmt: skip
UNIT = (Field("unit", "number", "of the predictor, in the table's units: the standard deviation", group=4),)


def section(p: RunSummary) -> Section:
    """Section with all coefficients as sampled."""
    design, s = p.run.design, p.shown
    rows = []
    for j in by_importance(s, design).tolist():
        judged = [design.references[j % design.n_predictors] or None, _whole(s.ess_bulk[j]), _whole(s.ess_tail[j])]
        rows.append([*_row(p, s, j), *judged, Rounded(s.r_hat[j], r_hat_in_words(s.r_hat[j]))])
    table = _table(p, rows, JUDGED, LISTED)
    return Section("coefficients", "Coefficients", [[*_about(p), table], *_references(p)])


def section_in_units(p: RunSummary) -> Section:
    """Section with all coefficients in the table's units: numeric predictors and intercepts first, and alone on
    paper."""
    from mpibayes.terminal import Text

    design, s = p.run.design, p.original
    d, unit = design.n_predictors, units(design)
    numeric = {t.first for t in design.terms if t.numeric} | ({0} if design.intercept else set())
    if design.likelihood.numeric:
        numeric = set(range(d))
    places = sorted(by_importance(p.shown, design).tolist(), key=lambda j: j % d not in numeric)
    most = min(LISTED_NUMERIC, sum(j % d in numeric for j in places))
    words = "Of numeric predictors, a coefficient of one unit; intercepts where they all are 0."
    if design.likelihood.numeric:
        words = f"Of {design.response}; numeric predictors by one unit; the intercept where they all are 0."
    title = Text("In the table's own units", style="bold").line(words, style="not bold dim")
    table = _table(p, [[*_row(p, s, j), unit[j % d]] for j in places], UNIT, most)
    return Section("original", "Coefficients in the table's own units", [[on_page(words), on_paper(title), table]])


def standing_out(p: RunSummary) -> Table:
    """Table of the coefficients that stand out most, for the terminal."""
    design, s = p.run.design, p.shown
    places = [j for j in by_importance(s, design).tolist() if not (design.intercept and j % design.n_predictors == 0)]
    fields = ODDS if p.odds else (POINTS[0], POINTS[2], POINTS[4])
    rows = []
    for j in places:
        low, middle, high = _odds(s, j) if p.odds else (s.quantiles[0, j], s.mean[j], s.quantiles[2, j])
        spread = max((high - low) / 3.3, 1e-12)
        rows.append([p.names[j], *(Rounded(x, near(x, spread)) for x in (middle, low, high))])
    shown = [Field("coefficients that stand out"), *(Field(field.heading, "number") for field in fields)]
    return Table("coefficient", shown, rows, most=TOP)


def _table(p: RunSummary, rows: Sequence[Sequence[Any]], last: Sequence[Field], most: int) -> Table:
    fields = [Field("coefficient"), *POINTS, *(ODDS if p.odds else ()), *last]
    return Table("coefficient", fields, rows, caption="coefficients.csv has them all, to all digits", most=most)


def _row(p: RunSummary, s: Summary, j: int) -> list[Any]:
    """Row of a table: the name of a coefficient, its quantiles, and those of its odds ratio."""
    design, sd = p.run.design, s.sd[j]
    low, middle, high = (float(x) for x in s.quantiles[:, j])
    interval = None if design.intercept and j % design.n_predictors == 0 else (low, middle, high)
    row = [p.names[j], *(Rounded(x, near(x, sd)) for x in (s.mean[j], sd, low, middle, high)), interval]
    if p.odds:
        low, middle, high = _odds(s, j)
        spread = max((high - low) / 3.3, 1e-12)
        row += [Rounded(x, near(x, spread)) for x in (middle, low, high)]
    return row


def _odds(s: Summary, j: int) -> tuple[float, float, float]:
    with np.errstate(over="ignore"):
        low, middle, high = np.exp(s.quantiles[:, j])
    return low, middle, high


def _whole(x: float) -> int | None:
    return round(x) if np.isfinite(x) else None


def _about(p: RunSummary) -> list[Any]:
    """Explain the meaning of the coefficients, on the page and on paper."""
    from mpibayes.terminal import Text

    design = p.run.design
    text = Text("Coefficients", style="bold")
    if p.odds:
        words = f"of the log odds of {quoted(design.classes[1])} against {quoted(design.reference_class)}"
        text.line(words, style="not bold dim")
    away = p.shown.away_from_zero.reshape(design.n_classes, -1)[:, int(design.intercept) :]
    n, away = away.size, int(away.sum())
    words = "those furthest from 0 first, in posterior standard deviations"
    if n:
        words += f"; for {away:,} of {n:,} the 5 to 95 % interval excludes 0"
    text.line(words, style="not bold dim")
    if design.n_classes > 1:
        words = "of each class less the mean of all classes: the same added to all changes nothing but the prior"
        text.line(f"no class is the reference: {words}", style="not bold dim")
    words = "Those furthest from 0 come first. Levels are compared with the first of their column"
    words += "; numeric predictors are in standard deviations" if design.standardise else ""
    words += "; each less the mean of all classes." if design.n_classes > 1 else "."
    return [on_page(words), on_paper(text)]


def _references(p: RunSummary) -> list[Any]:
    """Reference level of each categorical predictor."""
    from mpibayes.terminal import Text

    levels = p.run.design.reference_levels
    if not levels:
        return []
    words = "; ".join(f"{name}: {quoted(level)}" for name, level in levels.items())
    return [
        on_paper(Text(f"Levels are compared with the first of their column: {words}.", style="dim", overflow="fold"))
    ]


def near(x: float, sd: float) -> str:
    """Format a number with as many digits as an uncertainty of `sd` allows, with two digits of the latter."""
    if not (np.isfinite(x) and np.isfinite(sd)):
        return "-" if not np.isfinite(x) else number(x)
    digits = 1 - int(np.floor(np.log10(sd))) if sd > 0 else 3
    if digits > 5 and 0.5 < x < 2.0:  # the odds ratio of a small unit
        return f"{x:.{min(digits, 9)}f}"
    if digits > 5 or abs(x) >= 1e7:
        return f"{x:.3g}"
    return f"{x:,.{max(digits, 0)}f}"
