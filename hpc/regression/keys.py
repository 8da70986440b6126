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
        "of the response given the predictors: two classes (logistic), more (softmax), or numbers with outliers "
        "(student-t)",
        '"logistic", "softmax" or "student-t"',
    )


class Regression(Section):
    """Keys of [regression]: columns and prior."""

    of_the_model: ClassVar[bool] = True

    response: Name = key(
        ...,
        "the column that is explained: boolean or of two levels (logistic), categorical (softmax), real or count "
        "(student-t)",
        "the name of the column to explain",
    )
    predictors: Annotated[Literal["all"] | tuple[Name, ...], BeforeValidator(tuples)] = key(
        "all",
        "the columns that explain it, a coefficient each, or one for each level but the first; all: all used columns",
        '"all", or a list of names of columns',
    )
    intercept: bool = key(True, "a constant among the predictors", "true or false")
    standardise: bool = key(
        True,
        "real and count columns are centred and divided by their standard deviation in the table, also the response of "
        "student-t",
        "true or false",
    )
    missing: Literal["error", "drop", "indicator"] = key(
        "error",
        "rows with missing cells: stop, leave them out, or mark a column's missing cells by a predictor of their own "
        "(rows without a response are then left out)",
        '"error", "drop" or "indicator"',
    )
    prior: Literal["gaussian", "laplace", "flat"] = key(
        "gaussian", "prior of every coefficient but the intercept", '"gaussian", "laplace" or "flat"'
    )
    prior_scale: Literal["heldout"] | Positive = key(
        2.5,
        "standard deviation of the Gaussian prior, scale b of the Laplace prior exp(-|x|/b); heldout: the best of a "
        "grid on data.heldout",
        f'{POSITIVE}, or "heldout"',
    )
    intercept_scale: Positive = key(
        10.0,
        "standard deviation of the intercept's own Gaussian prior (softmax: of each class); prior = flat: it has none",
        POSITIVE,
    )
    degrees_of_freedom: Positive = key(4.0, "of student-t", POSITIVE)
    scale: Literal["auto", "heldout"] | Positive = key(
        "auto",
        "of student-t, in units of the (standardised) response, and fixed in the chain; auto: the most probable one "
        "together with the coefficients; heldout: the best of a grid on data.heldout",
        f'{POSITIVE}, "auto" or "heldout"',
    )


class Firefly(Section):
    """Keys of [firefly]: settings of Firefly Monte Carlo."""

    bounds: Literal["tuned", "untuned", "none"] = key(
        "tuned",
        "where the likelihoods' lower bounds touch: at the posterior's mode, at xi, or no bounds (every row is looked "
        "at in every step)",
        '"tuned", "untuned" or "none"',
    )
    theta_update: Literal["hmc", "mala", "random-walk", "slice"] = key(
        "hmc", "update of the coefficients given the bright rows", '"hmc", "mala", "random-walk" or "slice"'
    )
    z_update: Literal["implicit", "explicit"] = key(
        "implicit",
        "which rows are bright: Metropolis-Hastings with dark rows proposed at rate q, or rows drawn anew at rate q",
        '"implicit" or "explicit"',
    )
    q: Literal["auto"] | Annotated[float, Field(gt=0, le=1)] = key(
        "auto", "that rate; auto follows the number of bright rows in burn-in", '"auto" or a number in (0, 1]'
    )
    xi: Literal["auto"] | Annotated[float, Field(ge=0, le=1e6)] = key(
        "auto",
        "where untuned bounds touch: a logit (auto: 1.5) or a residual of student-t (auto: 0); those of softmax touch "
        "at equal probabilities",
        '"auto" or a number from 0 to 1e6',
    )
    whiten: bool = key(True, "coordinates in which Laplace's approximation is spherical", "true or false")
    step_size: Literal["auto"] | Positive = key(
        "auto", "in these coordinates; auto: adapted in burn-in", f'"auto" or {POSITIVE}'
    )
    leapfrog_steps: int = key(4, "of one hmc update", whole(1, 10_000), ge=1, le=10_000)
    refresh: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles between two hmc steps on all rows, after which the brightness of every row is drawn anew; auto: a "
        "seventh of the time with theta_update = hmc and whiten, else 0, none",
        f'"auto" or {CYCLES_OR_NONE}',
    )
    init: Literal["laplace", "map", "prior"] = key(
        "laplace",
        "first coefficients: a draw of Laplace's approximation (of several chains the others from one twice as wide), "
        "the mode, or a draw of the prior",
        '"laplace", "map" or "prior"',
    )


class Run(keys.Run):
    cycles: Cycles = key(20_000, "length of the chain; raise it to extend a finished run", CYCLES, may_change=True)


class Output(keys.Output):
    log_posterior: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles between two looks at all rows, for log_posterior in the trace; auto: a tenth of the rows that are "
        "looked at; 0: never",
        f'"auto" or {CYCLES_OR_NONE}',
    )


SECTIONS: Mapping[str, type[Section]] = {
    "data": keys.Data, "model": Model, "regression": Regression, "firefly": Firefly, "run": Run, "output": Output,
}  # fmt: skip
NAMED: Mapping[str, type[Section]] = {"columns": keys.Column}
