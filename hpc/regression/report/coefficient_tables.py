"""The coefficients in a regression's report: as they were sampled, in the table's units, and against which levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.posterior.scalars import r_hat_in_words
from mpibayes.hpc.regression.likelihoods.classes import quoted
from mpibayes.hpc.regression.report.coefficients import Summary, by_importance, units
from mpibayes.hpc.regression.report.summarise import RunSummary
from mpibayes.hpc.report.tables import fixed
from mpibayes.hpc.report.wide_table import Group, WideTable
from mpibayes.text import number

LISTED = 30  # coefficients in the table, at most; coefficients.csv has them all
LISTED_NUMERIC = 15  # in the table's units
POINTS = ("mean", "sd", "5 %", "50 %", "95 %")
ODDS = ("odds ratio", "5 %", "95 %")


def coefficients(p: RunSummary) -> list[Any]:
    """A heading, the table, and the levels that have no coefficient."""
    places, s = by_importance(p.shown, p.run.design)[:LISTED].tolist(), p.shown
    judged = [(fixed(s.ess_bulk[j], 0), fixed(s.ess_tail[j], 0), r_hat_in_words(s.r_hat[j])) for j in places]
    groups = [_points(s, places), Group(("ESS", "tail", "R-hat"), judged), *_odds(p, s, places)]
    return [_title(p), WideTable([p.names[j] for j in places], groups), *_references(p)]


def _title(p: RunSummary) -> Any:
    from mpibayes.terminal import Text

    design = p.run.design
    text = Text("Coefficients", style="bold")
    if p.odds:
        words = f"of the log odds of {quoted(design.classes[1])} against {quoted(design.reference_class)}"
        text.line(words, style="not bold dim")
    away = p.shown.away_from_zero.reshape(design.n_classes, -1)[:, int(design.intercept) :]
    n, away = away.size, int(away.sum())
    words = "those that stand out most from 0 first, in posterior standard deviations"
    if n:
        words += f"; of {away:,} of {n:,} the interval from 5 to 95 % does not have 0 in it"
    text.line(words, style="not bold dim")
    if design.n_classes > 1:
        words = "of each class less the mean of all classes: the same added to all changes nothing but the prior"
        text.line(f"no class is the reference: {words}", style="not bold dim")
    if len(p.shown) > LISTED:
        text.line(f"{LISTED} of {len(p.shown):,}; coefficients.csv has them all", style="not bold dim")
    return text


def _references(p: RunSummary) -> list[Any]:
    """The level of each categorical predictor that its other levels are compared with."""
    from mpibayes.terminal import Text

    levels = p.run.design.reference_levels
    if not levels:
        return []
    words = "; ".join(f"{name}: {quoted(level)}" for name, level in levels.items())
    return ["", Text(f"Levels are compared with the first of their column: {words}.", style="dim", overflow="fold")]


def in_the_tables_units(p: RunSummary) -> list[Any]:
    from mpibayes.terminal import Text

    design, s = p.run.design, p.original
    d, unit = design.n_predictors, units(design)
    numeric = {t.first for t in design.terms if t.numeric} | ({0} if design.intercept else set())
    if design.likelihood.numeric:
        numeric = set(range(d))
    places = [j for j in by_importance(p.shown, design).tolist() if j % d in numeric]
    title = Text("In the table's own units", style="bold")
    words = "of numeric predictors, a coefficient of one unit; intercepts where they all are 0"
    if design.likelihood.numeric:
        words = f"of {design.response}; numeric predictors by one unit; the intercept where they all are 0"
    title.line(words, style="not bold dim")
    if len(places) > LISTED_NUMERIC:
        title.line(f"{LISTED_NUMERIC} of {len(places):,}; coefficients.csv has them all", style="not bold dim")
    places = places[:LISTED_NUMERIC]
    of_columns = [(number(unit[j % d]) if np.isfinite(unit[j % d]) else "",) for j in places]
    groups = [Group(("sd of the column",), of_columns), _points(s, places), *_odds(p, s, places)]
    return [title, WideTable([p.names[j] for j in places], groups)]


def _points(s: Summary, places: Sequence[int]) -> Group:
    return Group(POINTS, [[near(x, s.sd[j]) for x in (s.mean[j], s.sd[j], *s.quantiles[:, j])] for j in places])


def _odds(p: RunSummary, s: Summary, places: Sequence[int]) -> list[Group]:
    return [Group(ODDS, [_odds_cells(s, j) for j in places])] if p.odds else []


def _odds_cells(s: Summary, j: int) -> list[str]:
    with np.errstate(over="ignore"):
        low, middle, high = np.exp(s.quantiles[:, j])
    spread = max((high - low) / 3.3, 1e-12)
    return [near(x, spread) for x in (middle, low, high)]


def near(x: float, sd: float) -> str:
    """A number with as many digits as an uncertainty of `sd` allows, two of its own."""
    if not (np.isfinite(x) and np.isfinite(sd)):
        return "-" if not np.isfinite(x) else number(x)
    digits = 1 - int(np.floor(np.log10(sd))) if sd > 0 else 3
    if digits > 5 and 0.5 < x < 2.0:  # an odds ratio of a small unit
        return f"{x:.{min(digits, 9)}f}"
    if digits > 5 or abs(x) >= 1e7:
        return f"{x:.3g}"
    return f"{x:,.{max(digits, 0)}f}"
