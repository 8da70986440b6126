"""The sections of a regression's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from mpibayes.hpc.config import keys
from mpibayes.hpc.config.section import (
    CYCLES,
    CYCLES_OR_NONE,
    POSITIVE,
    Cycles,
    CyclesOrNone,
    Name,
    Positive,
    Section,
    key,
    tuples,
    whole,
)


class Model(keys.Model):
    family: Literal["regression"] = key("regression", "one column explained by others", '"regression"')
    likelihood: Literal["logistic", "softmax", "student-t"] = key(
        ...,
        "distribution of the response: two classes (logistic), more (softmax), numbers with outliers (student-t)",
        '"logistic", "softmax" or "student-t"',
    )


class Regression(Section):
    """Keys of [regression]: columns and prior."""

    of_the_model: ClassVar[bool] = True

    response: Name = key(
        ...,
        "column to explain: boolean or of two levels (logistic), categorical (softmax), real or count (student-t)",
        "the name of the column to explain",
    )
    predictors: Annotated[Literal["all"] | tuple[Name, ...], BeforeValidator(tuples)] = key(
        "all",
        "columns that explain it; a categorical one has a coefficient for each level but the first; all: all used "
        "columns",
        '"all", or a list of names of columns',
    )
    intercept: bool = key(True, "a constant among the predictors", "true or false")
    standardise: bool = key(
        True,
        "numeric columns, and the response of student-t, are in standard deviations about their mean",
        "true or false",
    )
    missing: Literal["error", "drop", "indicator"] = key(
        "error",
        "rows with missing cells: stop, leave the rows out, or mark a column's missing cells by a predictor of "
        "their own (rows without a response are then left out)",
        '"error", "drop" or "indicator"',
    )
    prior: Literal["gaussian", "laplace", "flat"] = key(
        "gaussian", "prior of every coefficient but the intercept; flat: of all", '"gaussian", "laplace" or "flat"'
    )
    prior_scale: Literal["heldout"] | Positive = key(
        2.5,
        "standard deviation of the Gaussian prior, or b of the Laplace prior exp(-|x|/b); heldout: the best of a "
        "grid on data.heldout",
        f'{POSITIVE}, or "heldout"',
    )
    intercept_scale: Positive = key(
        10.0,
        "standard deviation of the intercept's own Gaussian prior (softmax: of each class; student-t: in units of "
        "the response)",
        POSITIVE,
    )
    degrees_of_freedom: Positive = key(4.0, "degrees of freedom of student-t", POSITIVE)
    scale: Literal["auto", "heldout"] | Positive = key(
        "auto",
        "scale of student-t, fixed in the chain, in units of the (standardised) response; auto: the most probable; "
        "heldout: the best of a grid on data.heldout",
        f'{POSITIVE}, "auto" or "heldout"',
    )


class Firefly(Section):
    """Keys of [firefly]: settings of Firefly Monte Carlo."""

    bounds: Literal["tuned", "untuned", "none"] = key(
        "tuned",
        "bounds touch the likelihood at the posterior mode (tuned) or at xi (untuned); none: every row in every step",
        '"tuned", "untuned" or "none"',
    )
    theta_update: Literal["hmc", "mala", "random-walk", "slice"] = key(
        "hmc", "update of the coefficients", '"hmc", "mala", "random-walk" or "slice"'
    )
    z_update: Literal["implicit", "explicit"] = key(
        "implicit",
        "update of the bright rows: dark rows are proposed at rate q (implicit), or rows are redrawn at rate q "
        "(explicit)",
        '"implicit" or "explicit"',
    )
    q: Literal["auto"] | Annotated[float, Field(gt=0, le=1)] = key(
        "auto", "rate of z_update; auto: follows the number of bright rows in burn-in", '"auto" or a number in (0, 1]'
    )
    xi: Literal["auto"] | Annotated[float, Field(ge=0, le=1e6)] = key(
        "auto",
        "where untuned bounds touch: a logit (auto: 1.5), or a residual of student-t (auto: 0); those of softmax "
        "touch at equal probabilities",
        '"auto" or a number from 0 to 1e6',
    )
    whiten: bool = key(True, "sample in coordinates in which Laplace's approximation is spherical", "true or false")
    step_size: Literal["auto"] | Positive = key(
        "auto", "step size in these coordinates; auto: adapted in burn-in", f'"auto" or {POSITIVE}'
    )
    leapfrog_steps: int = key(4, "leapfrog steps of one hmc update", whole(1, 10_000), ge=1, le=10_000)
    refresh: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles between hmc steps on all rows, after which all rows are redrawn bright or dark; auto: a seventh of "
        'the time with theta_update = "hmc" and whiten, otherwise none; 0: none',
        f'"auto" or {CYCLES_OR_NONE}',
    )
    init: Literal["laplace", "map", "prior"] = key(
        "laplace",
        "first coefficients: a draw of Laplace's approximation (further chains: twice as wide), the mode, or a "
        "draw of the prior",
        '"laplace", "map" or "prior"',
    )


class Run(keys.Run):
    cycles: Cycles = key(
        20_000, "maximal length of a chain; raise it to extend a finished run", CYCLES, may_change=True
    )


class Output(keys.Output):
    log_posterior: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles between computations of the log posterior from all rows; auto: for a tenth of the rows evaluated; "
        "0: never",
        f'"auto" or {CYCLES_OR_NONE}',
    )


SECTIONS: Mapping[str, type[Section]] = {
    "data": keys.Data, "model": Model, "regression": Regression, "firefly": Firefly, "run": Run, "output": Output,
}  # fmt: skip
NAMED: Mapping[str, type[Section]] = {"columns": keys.Column}
