"""Weights of rows, recognised by a column's name and distribution: a weight is the number of people that a row
represents, not one of their traits. So weights are left out, with a note on how to use them (`survey_weights`).

The trap is body weight. Three kinds of names are distinguished, by their words:

* `PURE`, which mean nothing else (pweight, fnlwgt, perwt): weights, if none is negative.
* A word for weight beside one for sampling (`final weight`, `samp_wt`): weights, if they look like it; else a question.
* A word for weight alone: weights if their mean is 1, as survey weights are scaled to be, and no other column describes
  bodies or things (height, length). A large mean with many digits, or in the hundreds, raises a question, as does a
  weight beside a survey's strata; all else is data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mpibayes.io.infer import Decision
from mpibayes.io.profile import Profile
from mpibayes.text import option

PURE = re.compile(
    r"p(er|ers|w)?(wt|wgt|weight|wght)s?|pwgtp|wgtp|f(nl|in|inal)(wt|wgt|weight)s?|psp?w(t|gt|ght|eight)|dweight|anweight"
    r"|(hh|svy|surv|samp|smp|smpl|rep)(wgt|weight)s?|(hh|svy|samp|smpl)wts?|repwtp|wtfinl|wtss(all|nr|ps)?|llcpwt|wt(mec|int|saf)\w*"
    r"|(marsup|ernl|earn|asec|gen|nat)wg?t|(a|i)weights?|ipt?w|ipcw|fexp|expfactor|gewichtung|hochrechnungsfaktor"
    r"|pond[eé]ration|ponderaci[oó]n|pondera"
)
WEIGHT = {"weight", "weights", "wt", "wts", "wgt", "wgts", "wght", "gewicht", "poids", "peso"}
SAMPLING = {
    "sampling", "sample", "samp", "survey", "svy", "final", "population", "pop", "design", "poststrat",
    "stratification", "calibrated", "calibration", "expansion", "inverse", "probability", "prob", "analytic",
    "analysis", "instance", "case", "respondent", "household", "hh", "person", "raked", "replicate", "normalized",
    "normalised", "trimmed",
}  # fmt: skip
BODIES = {
    "height", "heights", "ht", "hgt", "length", "len", "width", "depth", "thickness", "bmi", "waist", "girth", "hip",
    "chest", "diameter", "diam", "volume", "size", "age_weeks", "mpg", "brain", "body", "heart", "cm", "mm", "kg", "lb",
    "lbs", "diet", "dose", "feed", "sire", "litter", "chick", "calories",
}  # fmt: skip
NEAR_ONE, ONE = 0.1, 0.002  # distance from 1 allowed for the mean of weights; and for a mean that is 1 up to rounding
LARGE, SPREAD = 20.0, (0.3, 1.5)  # mean, and relative deviation, of weights that add up to a population
DIGITS, HUNDREDS = 1e5, 500.0  # mean over step of numbers that were not weighed; mean that may represent people
PEOPLE = 1e5  # mean of weights that represent people; in grams it would be that of cattle
DESIGN = {"strata", "stratum", "psu", "fpc", "secu"}  # columns of survey designs


def without_weights(
    profiles: Sequence[Profile], decisions: Sequence[Decision], kept: set[str], named: str | None = None
) -> list[Decision]:
    """Return the decisions with weights of rows left out, or with a question if in doubt. kept: columns exempt from it.
    named: the user's column of weights, beside which others are left out without advice."""
    words = [words_of(p.name) for p in profiles]
    result = list(decisions)
    for i, (p, d) in enumerate(zip(profiles, decisions, strict=True)):
        numbers = p.n_numbers == p.n_observed > 0 and not p.dates
        if p.kind is not None or p.name in kept or d.kind == "ignored" or d.error or not numbers:
            continue
        others = set().union(*(w for j, w in enumerate(words) if j != i and p.name not in profiles[j].name))
        verdict = _verdict(p, d, set(words[i]), bool(others & (BODIES | WEIGHT)), bool(others & DESIGN))
        data = f"if it is data: {option('kind', f'{p.name}=real')}"
        use = f"If it is, {option('weight', p.name)} keeps it for answers about the population"
        if verdict == "weight":
            result[i] = Decision(
                "ignored",
                reason=f"weight of the rows: mean {p.mean:.4g}",
                warning=f"column '{p.name}': looks like the weight of each row, as of a survey, and is left out. "
                + (f"{use}; {data}" if named is None else data[0].upper() + data[1:]),
            )
        elif verdict:
            advice = option("kind", f"{p.name}=ignored")
            advice = f"{option('weight', p.name)}, or {advice}" if named is None else advice
            question = f"column '{p.name}': is it the weight of each row, as of a survey? Then {advice}"
            result[i] = replace(d, warning="; ".join(filter(None, [d.warning, question])))
    return result


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case.

    >>> words_of("finalWeight_2019"), words_of("WTMEC2YR")
    (['final', 'weight'], ['wtmec', 'yr'])
    """
    parts = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return re.findall(r"[^\W\d_]+", parts.lower())


def _verdict(p: Profile, d: Decision, words: set[str], of_bodies: bool, of_survey: bool) -> str:
    """Classify a numeric column: "weight", "question" or "". of_bodies: the table has columns about bodies or things;
    of_survey: about a survey's design."""
    if p.minimum < 0 or p.n_distinct < 3:
        return ""
    if any(PURE.fullmatch(word) for word in words):
        return "weight"
    if not words & WEIGHT or p.n_missing:
        return ""
    spread = float(np.sqrt(p.scatter / p.n_observed)) / p.mean
    near_one = abs(p.mean - 1.0) <= NEAR_ONE and not p.all_integer
    is_one = abs(p.mean - 1.0) <= ONE and not p.all_integer
    adds_up = p.mean >= LARGE and SPREAD[0] <= spread <= SPREAD[1]
    if words & SAMPLING:
        return "weight" if is_one or ((near_one or adds_up) and not of_bodies) else "question"
    if words <= WEIGHT and (is_one or near_one):
        return "weight" if is_one or not of_bodies else "question"
    step = d.recording.resolution
    many_digits = not p.all_integer and (not step or p.mean >= DIGITS * step)
    if not words <= WEIGHT or of_bodies or not adds_up or not (many_digits or p.mean >= HUNDREDS):
        return ""
    return "weight" if of_survey or p.mean >= PEOPLE else "question"
