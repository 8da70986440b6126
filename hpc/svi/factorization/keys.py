"""The sections of the configuration of a factorization of ratings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from mpibayes.hpc.config import keys
from mpibayes.hpc.config.section import CYCLES, POSITIVE, Cycles, Positive, Section, key, none
from mpibayes.hpc.svi import keys as svi


class Data(keys.Data):
    single: ClassVar[bool] = True

    table: str = key(
        ...,
        "the sparse table that `mpibayes import --sparse` wrote: users are its rows, items its columns",
        "the path of a table",
        path=True,
    )
    heldout: Annotated[Annotated[float, Field(gt=0, le=0.5)] | None, BeforeValidator(none)] = key(
        None,
        "share of the ratings, each by itself, that are scored, not trained on",
        'a fraction in (0, 0.5] or "none"',
        of_the_model=True,
    )


class Model(keys.Model):
    sparse: ClassVar[bool] = True

    family: Literal["svi"] = key("svi", "variational inference: an approximation of the posterior", '"svi"')
    likelihood: Literal["factorization"] = key(
        "factorization", "ratings as products of users' and items' factors, and biases", '"factorization"'
    )
    rank: int = key(10, "factors of users and items", "a whole number from 1 to 100", ge=1, le=100)
    biases: bool = key(True, "give users and items a bias each", "true or false")
    learn: bool = key(
        True,
        "learn the variance of a rating, and means and covariances of the priors; false: fixed",
        "true or false",
    )
    center: bool = key(True, "subtract the mean rating first", "true or false")
    variance: Literal["auto"] | Positive = key(
        "auto",
        "variance of a rating given the factors: the start of learning, or fixed; auto: half the variance of the "
        "ratings, and 0.5 where it is fixed with a number for prior_variance",
        f'"auto" or {POSITIVE}',
    )
    prior_variance: Literal["auto"] | Positive = key(
        "auto",
        "prior variance of every factor and bias: the start of learning, or fixed; auto: half the variance of the "
        "ratings, divided evenly among products of factors, users' and items' biases",
        f'"auto" or {POSITIVE}',
        decided_once=True,
    )


class Step(svi.Step):
    noise: Literal["none", "svi+"] = key(
        "none", "noise besides that of the batch: none, or Gaussian weights of ratings (svi+)", '"none" or "svi+"'
    )
    count: Literal["own", "all"] = key(
        "own",
        "ratings that step.effective refers to: own: those of each user and item, which have noise if they have "
        "more; all: those of the whole batch",
        '"own" or "all"',
    )
    users: Literal["solved", "stepped"] = key(
        "solved",
        "solved: each user is the best for the items as they are; stepped: users take steps as items do",
        '"solved" or "stepped"',
    )


class Run(keys.Run):
    cycles: Cycles = key(100, "maximal number of steps; raise it to extend a finished run", CYCLES, may_change=True)


Output = svi.Output

SECTIONS: Mapping[str, type[Section]] = {
    "data": Data, "model": Model, "step": Step, "run": Run, "output": Output,
}  # fmt: skip
NAMED: Mapping[str, type[Section]] = {"columns": keys.Column}
