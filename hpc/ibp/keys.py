"""The sections of the configuration of an Indian buffet process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from mpibayes.hpc.config import keys
from mpibayes.hpc.config.section import (
    CYCLES,
    CYCLES_OR_NONE,
    POSITIVE,
    ROW_COUNT,
    Cycles,
    CyclesOrNone,
    Positive,
    RowCount,
    Section,
    key,
    none,
    tuples,
    whole,
)


class GammaPrior(Section):
    """alpha ~ Gamma(shape, rate)."""

    gamma: tuple[Positive, Positive]


class VariancePrior(Section):
    """A variance ~ inverse gamma (shape, scale)."""

    inverse_gamma: tuple[Positive, Positive]


MOST_POINTS = 1000  # most points of a grid
Concentration = Annotated[float, Field(ge=1e-6, le=1e6)]  # beyond, no two rows have anything in common
MOST_PIXELS = 65_536  # most in a row or column of a picture
Deviation = Annotated[Literal["learn"] | Positive | VariancePrior, BeforeValidator(tuples)]
DEVIATION = f'"learn", {POSITIVE}, or {{inverse_gamma = [shape, scale]}} of the variance, two such numbers'


class Data(keys.Data):
    heldout_cells: Annotated[Annotated[float, Field(gt=0, le=0.5)] | None, BeforeValidator(none)] = key(
        None,
        "share of the training rows' cells that are treated as missing, and scored (the same cells for any seed)",
        'a fraction in (0, 0.5], or "none"',
        of_the_model=True,
    )


class Model(keys.Model):
    family: Literal["ibp"] = key(
        "ibp", "Indian buffet process: features that rows share, each with a loading on every column", '"ibp"'
    )
    alpha: Annotated[Literal["learn"] | Positive | GammaPrior, BeforeValidator(tuples)] = key(
        "learn",
        "mass of the process: learned with the prior Gamma(1, 1), fixed, or learned with the prior {gamma = "
        "[shape, rate]}",
        f'"learn", {POSITIVE}, or {{gamma = [shape, rate]}}, two such numbers',
    )
    c: Annotated[
        Literal["learn"]
        | Concentration
        | Annotated[tuple[Concentration, ...], Field(min_length=1, max_length=MOST_POINTS)],
        BeforeValidator(tuples),
    ] = key(
        1.0,
        "concentration of the process, 1 for one parameter: fixed, or learned on a grid; more makes features rarer",
        f'"learn", a number above 0 (1e-6 to 1e6), or a list of 1 to {MOST_POINTS} such numbers',
    )
    noise_sd: Deviation = key(
        "learn",
        "standard deviation of the noise: learned, fixed, or learned with this prior of its square",
        DEVIATION,
    )
    feature_sd: Deviation = key(
        "learn",
        'standard deviation of a loading, with noise = "column" over the column\'s noise: learned, fixed, or '
        "learned with this prior of its square",
        DEVIATION,
    )
    noise: Literal["shared", "column"] = key(
        "shared", "one variance of the noise for all columns, or one for each", '"shared" or "column"'
    )
    standardise: bool = key(
        True, "columns are centred and divided by their standard deviation in the table", "true or false"
    )
    likelihood: bool = key(True, "false samples the prior on features: the cells are ignored", "true or false")


class Sampler(Section):
    sweeps_per_cycle: int = key(1, "passes over the rows between two exchanges", whole(1, 10_000), ge=1, le=10_000)
    opening: Literal["auto", "one", "all"] = key(
        "auto",
        "shards that open features in a cycle; auto: one",
        '"auto", "one" or "all"',
        decided_once=True,
    )
    moves: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles between rounds of moves; auto: 1 until cycle 100, then 4; 0: none",
        f'"auto" or {CYCLES_OR_NONE}',
    )
    init: Literal["subsample", "sequential", "random", "none"] = key(
        "subsample",
        "first features: a search on init_rows rows, seating these one by one, a draw of the prior, or none",
        '"subsample", "sequential", "random" or "none"',
    )
    init_rows: RowCount = key(2000, "rows of the search for features", ROW_COUNT)


Pixels = Annotated[int, Field(ge=1, le=MOST_PIXELS)]


class Report(Section):
    """Keys of [report]: display of features."""

    image: Annotated[
        tuple[Pixels, Pixels] | None,
        BeforeValidator(lambda v: tuples(none(v))),
    ] = key(
        None,
        "the columns are pixels of a picture of so many rows and columns, row after row: features are shown as "
        "pictures",
        f'[rows, columns], each {whole(1, MOST_PIXELS)}, or "none"',
        may_change=True,
    )


class Output(keys.Output):
    labels: Cycles = key(10, "cycles between kept draws", CYCLES)


SECTIONS: Mapping[str, type[Section]] = {
    "data": Data, "model": Model, "sampler": Sampler, "report": Report, "run": keys.Run, "output": Output,
}  # fmt: skip
NAMED: Mapping[str, type[Section]] = {"columns": keys.Column}
