"""Keys of [outcome]: an outcome of the rows of a mixture, with a regression in each cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from mpibayes.hpc.config.section import POSITIVE, Name, Positive, Section, key, tuples

Names = Annotated[tuple[Name, ...], BeforeValidator(tuples)]
Number = Annotated[float, Field(ge=-1e15, le=1e15)]
Numbers = Annotated[tuple[Number, ...], Field(min_length=1)]
Scales = Annotated[tuple[Positive, ...], Field(min_length=1)]
STEPS = 5  # updates of all coefficients in a cycle with kernel = "firefly"
MOST = 16  # coefficients that are tried for a new cluster


class Outcome(Section):
    of_the_model: ClassVar[bool] = True

    column: Name | None = key(
        None,
        "column that a regression in each cluster explains, of a cross-categorization in one view; it is no column of "
        "the model then",
        "the name of a column",
    )
    covariates: Names = key((), "columns with the same coefficients in all clusters", "a list of names of columns")
    slopes: Names = key(
        (), "columns with coefficients of their own in each cluster, beside its intercept", "a list of names of columns"
    )
    likelihood: Literal["auto", "logistic", "softmax", "student-t", "normal", "poisson", "survival"] = key(
        "auto",
        "likelihood of the outcome; auto: logistic of two levels, softmax of more, poisson of counts, survival of "
        "times to an event, student-t of other numbers",
        '"auto", "logistic", "softmax", "student-t", "normal", "poisson" or "survival"',
    )
    kernel: Literal["hmc", "firefly"] = key(
        "hmc",
        "update of all coefficients: Hamiltonian Monte Carlo on all rows; firefly: on bright rows, after burn-in "
        "(logistic and student-t)",
        '"hmc" or "firefly"',
    )
    steps: Literal["auto"] | Annotated[int, Field(ge=1, le=1000)] = key(
        "auto", f"such updates in a cycle; auto: 1, of firefly {STEPS}", '"auto" or a whole number from 1 to 1000'
    )
    mean: Annotated[Literal["learn"] | Number | Numbers, BeforeValidator(tuples)] = key(
        "learn",
        "mean of the clusters' coefficients, the intercept first, then slopes; learn: about that of all rows",
        '"learn", a number, or a list of one number each',
    )
    sd: Annotated[Literal["learn"] | Positive | Scales, BeforeValidator(tuples)] = key(
        "learn", "standard deviation of the clusters' coefficients", f'"learn", {POSITIVE}, or a list of such numbers'
    )
    covariate_sd: Annotated[Positive | Scales, BeforeValidator(tuples)] = key(
        2.5, "standard deviation of the prior of the covariates' coefficients", f"{POSITIVE}, or a list of such numbers"
    )
    standardise: bool = key(
        True,
        "numeric covariates and slopes, and the outcome of a normal or t, in standard deviations about their mean",
        "true or false",
    )
    degrees: Positive = key(4.0, "degrees of freedom of student-t", POSITIVE)
    scale: Literal["learn"] | Positive = key(
        "learn", "scale of normal and student-t, in units of the (standardised) outcome", f'"learn" or {POSITIVE}'
    )
    auxiliary: int = key(
        2, "coefficients that are tried for a new cluster", f"a whole number from 1 to {MOST}", ge=1, le=MOST
    )

    @property
    def taken(self) -> Collection[str]:
        return () if self.column is None else (self.column,)

    @property
    def predictors(self) -> tuple[str, ...]:
        return (*self.slopes, *self.covariates)
