"""Identifiability of a design on the training rows: coefficients without an estimate, or determined by the prior alone.

With a flat prior each of these is an error. With a proper prior the posterior is always proper, and all but an absent
class of the response are warnings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.errors import DataError
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum
from mpibayes.hpc.regression.design import Design, Term
from mpibayes.hpc.regression.mode.collinear import combinations
from mpibayes.text import counted

SHOWN = 10
MANY = 200  # a level with so many rows is slow to sample if a class is missing from it


def check_training(comm: Communicator, design: Design, rows, n_shards: int, flat: bool) -> list[str]:
    """Return warnings about the training rows, the same on every rank. Collective.

    rows: (shard index, kernels' Rows) of this rank's shards, in order. flat: True if any coefficient has no prior.
    Raises DataError, with all problems, on every rank.
    """
    survey = _join(comm.collect(_survey(design, [r for _, r in rows])))
    problems = _response_problems(design, survey)
    doubts, named = _doubts(design, survey)
    if 0 < survey["n"] < design.n_predictors:
        doubts.append(f"{counted(survey['n'], 'training row')}, fewer than the {design.n_predictors:,} predictors")
    elif survey["n"]:
        doubts += _collinear(comm, design, rows, n_shards, named)
    if flat:
        problems += doubts
    if problems:
        advice = ["a gaussian prior allows all but an absent response"] if flat and doubts else []
        raise DataError("the training rows do not determine the regression", [*_few(problems), *advice])
    lines = [f"{doubt}; the prior decides about it" for doubt in _few(doubts)]
    if unmet_levels := unmet(design, survey):
        more = f", and so with {counted(len(unmet_levels) - 1, 'more level')}" if len(unmet_levels) > 1 else ""
        slow = 'the prior alone ends such a coefficient, and Firefly moves it slowly: consider firefly.bounds = "none"'
        lines.append(f"{unmet_levels[0]}{more}: {slow}")
    return lines


def _survey(design: Design, rows: Sequence) -> dict:
    """Survey this rank's rows: their number, range and count of ones of each predictor, counts of classes, range of
    y."""
    d = design.n_predictors
    filled = [r for r in rows if len(r.y)]
    nothing = np.full(d, np.inf)
    return {
        "n": sum(len(r.y) for r in filled),
        "minimum": np.min([nothing, *(r.x[:, :d].min(axis=0) for r in filled)], axis=0),
        "maximum": np.max([-nothing, *(r.x[:, :d].max(axis=0) for r in filled)], axis=0),
        "ones": sum((np.count_nonzero(r.x[:, :d] == 1, axis=0) for r in filled), np.zeros(d, np.int64)),
        "together": sum((_together(design, r.x[:, :d], r.y) for r in filled), _nobody(design)),
        "classes": sum((_class_counts(design, r.y) for r in filled), np.zeros(len(design.classes), np.int64)),
        "y": (min((r.y.min() for r in filled), default=np.inf), max((r.y.max() for r in filled), default=-np.inf)),
    }


def _class_counts(design: Design, y: np.ndarray) -> np.ndarray:
    if not design.classes:
        return np.zeros(0, np.int64)
    return np.bincount(_codes(design, y), minlength=len(design.classes))


def _codes(design: Design, y: np.ndarray) -> np.ndarray:
    return design.likelihood.decode(y).astype(np.int64)


def _nobody(design: Design) -> np.ndarray:
    return np.zeros((len(design.classes), design.n_predictors), np.int64)


def _together(design: Design, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Number of rows of each class in which each predictor is 1, (classes, D)."""
    if not design.classes:
        return _nobody(design)
    codes = _codes(design, y)
    return np.stack([np.count_nonzero(x[codes == c] == 1, axis=0) for c in range(len(design.classes))])


def unmet(design: Design, survey: dict) -> list[str]:
    """List levels with many rows but none of some class: the prior alone bounds such a coefficient, on one side."""
    lines = []
    for term in design.terms:
        for i in range(0 if term.numeric else term.width - term.indicator):
            rows, together = survey["ones"][term.first + i], survey["together"][:, term.first + i]
            absent = [level for level, n in zip(design.classes, together) if not n]
            if rows >= MANY and absent:
                classes = ", ".join(repr(level) for level in absent[:SHOWN])
                level = term.column.levels[1 + i]
                lines.append(f"none of {rows:,} rows with {term.column.name} {level!r} has {design.response} {classes}")
    return lines


def _join(surveys: Sequence[dict]) -> dict:
    whole = {name: sum(s[name] for s in surveys) for name in ("n", "ones", "together", "classes")}
    whole["minimum"] = np.min([s["minimum"] for s in surveys], axis=0)
    whole["maximum"] = np.max([s["maximum"] for s in surveys], axis=0)
    whole["y"] = (min(s["y"][0] for s in surveys), max(s["y"][1] for s in surveys))
    return whole


def _response_problems(design: Design, survey: dict) -> list[str]:
    if not survey["n"]:
        return ["no training rows: every row has a missing cell in a used column"]
    absent = [level for level, n in zip(design.classes, survey["classes"]) if not n]
    if absent:
        levels = ", ".join(repr(level) for level in absent[:SHOWN])
        return [
            f"response '{design.response}': no training row has {levels}; leave such levels out of the schema, "
            "or import rows that have them"
        ]
    if not design.classes and survey["y"][0] == survey["y"][1]:
        return [f"response '{design.response}' is constant in the training rows"]
    return []


def _doubts(design: Design, survey: dict) -> tuple[list[str], set[int]]:
    """Describe predictors that do not vary in the training rows, and return their positions."""
    lines, named, n = [], set(), survey["n"]
    if not n:
        return lines, named
    for term in design.terms:
        name, width = term.column.name, term.width - term.indicator
        if term.numeric and survey["minimum"][term.first] == survey["maximum"][term.first]:
            lines.append(f"predictor '{name}' is constant in the training rows")
            named.add(term.first)
        elif not term.numeric:
            counts = survey["ones"][term.first : term.first + width]
            absent = [term.first + i for i in np.flatnonzero(counts == 0)]
            levels = [term.column.levels[1 + j - term.first] for j in absent]
            if _first_level_absent(term, survey):
                levels.insert(0, term.column.levels[0])
                absent.append(term.first + width - 1)  # determined by the other levels and the intercept
            if levels:
                examples = ", ".join(repr(level) for level in levels[:SHOWN])
                more = f" and {len(levels) - SHOWN:,} more" if len(levels) > SHOWN else ""
                lines.append(f"predictor '{name}': no training row has {examples}{more}")
                named.update(absent)
        blank = term.first + width
        if term.indicator and survey["minimum"][blank] == survey["maximum"][blank]:
            how = "every training row" if survey["ones"][blank] else "no training row"
            lines.append(f"predictor '{name}': {how} has a missing cell")
            named.add(blank)
    return lines, named


def _first_level_absent(term: Term, survey: dict) -> bool:
    return int(survey["ones"][term.first : term.first + term.width].sum()) == survey["n"]


def _collinear(comm: Communicator, design: Design, rows, n_shards: int, named: set[int]) -> list[str]:
    d = design.n_predictors
    gram = shard_sum(comm, [r.gram(np.ones(len(r.y))) for _, r in rows], (d, d), n_shards)
    lines = None
    if comm.rank == 0:
        rest = [j for j in range(d) if j not in named]
        combined = combinations(gram[np.ix_(rest, rest)], [design.names[j] for j in rest])
        lines = [f"collinear predictors: {line}" for line in combined]
    return comm.share(lines)


def _few(lines: Sequence[str]) -> list[str]:
    return [*lines[:SHOWN], f"and {len(lines) - SHOWN:,} more"] if len(lines) > SHOWN else list(lines)
