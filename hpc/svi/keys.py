"""The sections of the configuration of variational inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from mpibayes.hpc.config import keys
from mpibayes.hpc.config.section import CYCLES, POSITIVE, ROW_COUNT, Cycles, Positive, RowCount, Section, key, tuples

Rate = Annotated[float, Field(gt=0, le=1)]


class GrowingSize(Section):
    """growing t in cycle t."""

    growing: Positive


class DecayingRate(Section):
    """(t + delay)^-decay in cycle t."""

    delay: Annotated[float, Field(ge=0, le=1e9)] = 1.0
    decay: Annotated[float, Field(gt=0.5, le=1)] = 0.7


class GrowingRate(Section):
    """growing t in cycle t, 1 at most."""

    growing: Positive


class Model(keys.Model):
    family: Literal["svi"] = key("svi", "variational inference: an approximation of the posterior", '"svi"')
    likelihood: Literal["gaussian", "finite-dirichlet"] = key(
        "gaussian",
        "a mixture of Gaussians with full covariances; finite-dirichlet: with alpha / components for each, so that "
        "components that are not needed stay empty",
        '"gaussian" or "finite-dirichlet"',
    )
    components: int = key(10, "components of the mixture", "a whole number from 1 to 10000", ge=1, le=10000)
    alpha: Positive = key(
        1.0,
        "Dirichlet prior of the weights: of each component; finite-dirichlet: of all together",
        POSITIVE,
    )
    mean_variance: Positive = key(10.0, "prior variance of a component's mean, in each column", POSITIVE)
    degrees: Literal["auto"] | Positive = key(
        "auto",
        "degrees of freedom of the Wishart prior of a component's precision; auto: the number of columns plus 2",
        '"auto" or a number above the number of columns less 1, at most 1e100',
    )
    scale: Positive = key(
        1.0,
        "scale of this prior in each column; with degrees = auto the prior mean of a component's variance",
        POSITIVE,
    )
    standardise: bool = key(
        True, "columns are centred and divided by their standard deviation in the table", "true or false"
    )


class Step(Section):
    """Keys of [step]: a cycle's batch, step size and noise."""

    batch: Annotated[Literal["all"] | RowCount | GrowingSize, BeforeValidator(tuples)] = key(
        "all",
        "rows of a cycle, chosen anew each time: all, a number, or {growing = g} for g t in cycle t",
        f'"all", {ROW_COUNT}, or {{growing = {POSITIVE}}}',
    )
    rate: Annotated[Rate | DecayingRate | GrowingRate, BeforeValidator(tuples)] = key(
        1.0,
        "step size: a number, {delay = d, decay = k} for (t + d)^-k in cycle t, or {growing = g} for g t, at most 1",
        "a number above 0 and at most 1, {delay = 0 to 1e9, decay = above 0.5 and at most 1}, or "
        f"{{growing = {POSITIVE}}}",
    )
    noise: Literal["none", "svi+", "positive"] = key(
        "none",
        "noise besides that of the batch: none, Gaussian weights of rows (svi+), or positive weights of the same "
        "variance",
        '"none", "svi+" or "positive"',
    )
    effective: Annotated[RowCount | GrowingSize | None, BeforeValidator(tuples)] = key(
        None,
        "with noise: it is as large as of a batch of so many rows: a number, or {growing = g} for g t in cycle t",
        f"{ROW_COUNT}, or {{growing = {POSITIVE}}}",
    )
    guard: Literal["shrink", "none"] = key(
        "shrink",
        "where noise would take a parameter out of its domain: shrink the noise, or end the run with an error",
        '"shrink" or "none"',
    )
    tolerance: float = key(
        1e-10,
        "with all rows, rate 1 and no noise: relative gain of the bound below which the remaining cycles do nothing",
        "a number from 0 to 1",
        may_change=True,
        ge=0,
        le=1,
    )


class Output(keys.Output):
    kept: Literal["auto"] | Cycles = key(
        "auto",
        "cycles between kept states, whose bound is of all rows; auto: a twentieth of run.cycles, for ratings a tenth",
        f'"auto" or {CYCLES}',
        decided_once=True,
    )


SECTIONS: Mapping[str, type[Section]] = {
    "data": keys.Data, "model": Model, "step": Step, "run": keys.Run, "output": Output,
}  # fmt: skip
NAMED: Mapping[str, type[Section]] = {"columns": keys.Column}
