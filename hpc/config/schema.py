"""Every key of the configuration: its type, its default, what is expected of it, and a line of explanation.

The explanation is what `config.resolved.toml` shows; `expected` is what a message about a wrong value says. Loading,
line numbers and comparison are in `config.py`.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0}


def parse_duration(text: str | int | float) -> float:
    """Seconds of a length of time as people and SLURM write it; ValueError where it is not one, or not positive.

    >>> [parse_duration(t) for t in ("3h50m", "90m", "3600", "1-02:00:00", "02:00:00", "90:00", "1.5h")]
    [13800.0, 5400.0, 3600.0, 93600.0, 7200.0, 5400.0, 5400.0]
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = float(text)
    else:
        seconds = _seconds(str(text).strip().lower())
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(
            f"{text!r} is not a positive length of time such as 3h50m, 90m, 3600 (seconds), 02:00:00 or 1-02:00:00"
        )
    return seconds


def _seconds(text: str) -> float:
    """Seconds, or NaN where the text is no length of time."""
    if re.fullmatch(r"\d+(\.\d*)?", text):
        return float(text)
    if re.fullmatch(r"(\d+(\.\d*)?\s*(d|h|min|m|s)\s*)+", text):
        parts = re.findall(r"(\d+(?:\.\d*)?)\s*(d|h|min|m|s)", text)
        if len({unit for _, unit in parts}) == len(parts):
            return sum(float(number) * _UNITS[unit] for number, unit in parts)
    # SLURM: minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if match:
        days, *rest = match.groups()
        numbers = [int(n) for n in rest if n is not None]
        if days is not None:
            hours, minutes, seconds = [*numbers, 0, 0][:3]
            return ((int(days) * 24 + hours) * 60 + minutes) * 60.0 + seconds
        if len(numbers) == 3:
            return (numbers[0] * 60 + numbers[1]) * 60.0 + numbers[2]
        return numbers[0] * 60.0 + numbers[1]
    return math.nan


class Section(BaseModel):
    """A table of the file. Unknown keys are found by `config.py`, which knows the near misses."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _key(default: Any, about: str, expected: str) -> Any:
    return Field(default, description=about, json_schema_extra={"expected": expected})


Positive = Annotated[float, Field(gt=0)]
LENGTH_OF_TIME = 'a length of time: "3h50m", "90m", 3600 (seconds), "02:00:00", "1-02:00:00", or "none"'


class GammaPrior(Section):
    """alpha ~ Gamma(shape, rate), updated by Escobar and West's auxiliary variable (docs/math.md 2.4)."""

    gamma: tuple[Positive, Positive]


class DirichletPrior(Section):
    dirichlet: tuple[Annotated[float, Field(ge=1e-30)], ...] = Field(min_length=1)


class NormalPrior(Section):
    mean: float
    kappa: Positive
    nu: Positive
    variance: Positive


class RatePrior(Section):
    shape: Positive
    rate: Positive


def _tuples(value: Any) -> Any:
    """TOML has lists; the sections hold tuples, which nobody can change."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _none(value: Any) -> Any:
    """TOML has no null; the word `none` takes a value back."""
    return None if value == "none" else value


def _duration(value: Any) -> Any:
    value = _none(value)
    return value if value is None else parse_duration(value)


def _rising(knots: Any) -> Any:
    """Knots of a piecewise schedule: passes and fractions rise, and in the end every row is in."""
    if isinstance(knots, str):
        return knots
    passes, fractions = zip(*knots)
    if (
        not all(a < b for numbers in (passes, fractions) for a, b in pairwise(numbers))
        or fractions[-1] < 1
        or passes[-1] < 1
    ):
        raise ValueError("passes and fractions must rise, to the fraction 1.0 after 1 pass or later")
    return knots


class Data(Section):
    table: str = _key(..., "the typed table that `mpibayes import` wrote; relative to this file", "the path of a table")
    heldout: Annotated[
        Annotated[float, Field(gt=0, le=0.5)] | Annotated[str, Field(min_length=1)] | None, BeforeValidator(_none)
    ] = _key(
        None,
        "rows kept out of training and scored: a fraction, or the path of a .h5, CSV or Parquet file",
        'a fraction in (0, 0.5], the path of a file, or "none"',
    )
    unseen: Literal["error", "missing"] = _key(
        "error",
        "a level of held-out or new rows that the table does not have: stop, or take the cell as missing",
        '"error" or "missing"',
    )


class Model(Section):
    family: Literal["mixture", "logistic", "softmax", "student-t"] = _key(
        "mixture",
        "clusters of the rows (mixture), or a regression of one column on others (see [regression])",
        '"mixture", "logistic", "softmax" or "student-t"',
    )
    concentration: Annotated[Literal["learn"] | float | GammaPrior, BeforeValidator(_tuples)] = _key(
        "learn",
        "alpha: learned on a grid, fixed to a number, or {gamma = [shape, rate]} for Escobar and West's update",
        '"learn", a number above -discount, or {gamma = [shape, rate]} with both above 0',
    )
    discount: Literal["learn"] | Annotated[float, Field(ge=0, lt=1)] = _key(
        0.0, "d of the Pitman-Yor process; 0 is the Dirichlet process", 'a number in [0, 1), or "learn"'
    )
    likelihood: bool = _key(True, "false samples the prior: the table's cells are ignored", "true or false")


class ColumnSettings(Section):
    prior: Annotated[DirichletPrior | NormalPrior | RatePrior | None, BeforeValidator(_tuples)] = _key(
        None,
        "fixes the column's hyperparameters, which are learned otherwise",
        "{dirichlet = [one positive number a level]} for categorical and boolean columns, "
        "{mean, kappa, nu, variance} for real ones, or {shape, rate} for counts",
    )
    use: bool = _key(True, "false leaves the column out of the model", "true or false")


OneOrGrid = Positive | Annotated[tuple[Positive, ...], Field(min_length=1)]
ONE_OR_GRID = "a number above 0, or a list of such numbers"


class BlockPrior(Section):
    """Of a block of D columns; what is not given is learned, but for the mean, which is then the columns' own."""

    kappa: OneOrGrid | None = _key(None, "rows that the prior's mean counts for", ONE_OR_GRID)
    nu: OneOrGrid | None = _key(None, "degrees of freedom, above D - 1", ONE_OR_GRID)
    variance: OneOrGrid | None = _key(None, "in units of each column's own", ONE_OR_GRID)
    mean: tuple[float, ...] | None = _key(None, "the prior's mean", "a list of one number a column")


MOST_JOINT = 64  # columns of a block


class BlockSettings(Section):
    columns: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(min_length=2, max_length=MOST_JOINT),
        BeforeValidator(_tuples),
    ] = _key(
        ...,
        "real columns that are modelled jointly, with a full covariance in each cluster",
        f"a list of the names of 2 to {MOST_JOINT} real columns",
    )
    prior: Annotated[BlockPrior | None, BeforeValidator(_tuples)] = _key(
        None,
        "fixes hyperparameters (a number) or says where they are learned (a grid); the variance is in units of each "
        "column's own; the mean, if not given, is the columns' own",
        "{kappa, nu, variance, mean} or some of these: kappa, nu (above D - 1 for D columns) and variance each a "
        "number above 0 or a list of such numbers, mean a list of one number a column",
    )


class Sampler(Section):
    strategy: Literal["auto", "anneal", "sequential+gibbs", "prior+gibbs"] = _key(
        "auto",
        "how the chain starts: one cluster that moves split (auto), a growing subsample (see [anneal]), all rows "
        "seated one by one, or clusters drawn from the prior",
        '"auto", "anneal", "sequential+gibbs" or "prior+gibbs"',
    )
    split_merge: Literal["auto"] | Annotated[int, Field(ge=0)] = _key(
        "auto",
        "cycles between two rounds of split and merge moves; auto: every cycle at first, later every fourth; 0: none",
        '"auto" or a whole number, 0 or more',
    )
    init: Literal["auto", "one", "random", "sequential", "prior", "overdispersed", "labels"] = _key(
        "auto",
        "the first partition: as strategy says (auto), one cluster, init_clusters random ones, rows seated one by one, "
        "a draw of the prior, a random number of random clusters, or init_labels",
        '"auto", "one", "random", "sequential", "prior", "overdispersed" or "labels"',
    )
    init_clusters: int = Field(
        64, ge=1, description='clusters of init = "random"', json_schema_extra={"expected": "a whole number, 1 or more"}
    )
    init_labels: Annotated[Annotated[str, Field(min_length=1)] | None, BeforeValidator(_none)] = _key(
        None,
        'labels of init = "labels": a text file (its last line is taken) or a run directory; relative to this file',
        "the path of a text file with one line of labels, or of a run directory",
    )
    sweeps_per_cycle: int = Field(
        1,
        ge=1,
        description="passes over the rows between two syncs",
        json_schema_extra={"expected": "a whole number, 1 or more"},
    )
    opening: Literal["auto", "one", "all"] = _key(
        "auto",
        'shards that open clusters in a cycle; both are exact, "all" needs discount = 0',
        '"auto", "one" or "all"',
    )
    hyper_every: int = Field(
        1,
        ge=1,
        description="cycles between two hyperparameter updates",
        json_schema_extra={"expected": "a whole number, 1 or more"},
    )


Knot = tuple[Annotated[float, Field(ge=0, lt=1e6)], Annotated[float, Field(gt=0, le=1)]]


class Anneal(Section):
    """Subsample annealing: how the rows of the chain's start become all rows."""

    schedule: Annotated[
        Literal["linear", "geometric", "constant", "sequential", "seconds"]
        | Annotated[tuple[Knot, ...], Field(min_length=1)],
        BeforeValidator(_tuples),
        AfterValidator(_rising),
    ] = _key(
        "linear",
        "how the subsample grows with the passes spent; or knots [[passes, fraction], ...]; or by the clock (seconds); "
        "constant and sequential have all rows from the first cycle on",
        '"linear", "geometric", "constant", "sequential", "seconds", or knots [[passes, fraction], ...], both rising, '
        "to the fraction 1.0 after 1 pass or later",
    )
    passes: Annotated[float, Field(ge=1, lt=1e6)] = _key(
        10.0, "what growing may cost: assignments a row of the table", "a number, 1 or more"
    )
    start_rows: Literal["auto"] | Annotated[int, Field(ge=1)] = _key(
        "auto",
        "rows of the first subsample; auto is a quarter of the rows, at most 1000",
        '"auto" or a whole number, 1 or more',
    )
    seconds: Annotated[float | None, BeforeValidator(_duration)] = _key(
        None,
        'time until all rows are in, of schedule = "seconds"; such a run cannot be repeated from its seed alone',
        LENGTH_OF_TIME,
    )
    strata: Annotated[str, Field(min_length=1)] = _key(
        "none",
        "strata of the subsample, so that rare rows enter early: none, clusters (coarse ones that a pilot finds), or a "
        "categorical or boolean column",
        '"none", "clusters", or the name of a categorical or boolean column',
    )


class Regression(Section):
    """What a regression is: its columns, its prior."""

    response: Annotated[str, Field(min_length=1)] | None = _key(
        None,
        "the column that is explained: boolean or of two levels (logistic), categorical (softmax), real or count "
        "(student-t)",
        "the name of a column",
    )
    predictors: Annotated[
        Literal["all"] | tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_tuples)
    ] = _key(
        "all",
        "the columns that explain it, a coefficient each, or one for each level but the first; all: all used columns",
        '"all", or a list of names of columns',
    )
    intercept: bool = _key(True, "a constant among the predictors", "true or false")
    standardise: bool = _key(
        True,
        "real and count columns are centred and divided by their standard deviation in the table, also the response of "
        "student-t",
        "true or false",
    )
    missing: Literal["error", "drop", "indicator"] = _key(
        "error",
        "rows with missing cells: stop, leave them out, or mark a column's missing cells by a predictor of their own "
        "(rows without a response are then left out)",
        '"error", "drop" or "indicator"',
    )
    prior: Literal["gaussian", "laplace", "flat"] = _key(
        "gaussian", "prior of every coefficient", '"gaussian", "laplace" or "flat"'
    )
    prior_scale: Literal["heldout"] | Positive = _key(
        2.5,
        "standard deviation of the Gaussian prior, scale b of the Laplace prior exp(-|x|/b); heldout: the best of a "
        "grid on data.heldout",
        'a number above 0, or "heldout"',
    )
    degrees_of_freedom: Positive = _key(4.0, "of student-t", "a number above 0")
    scale: Literal["auto", "heldout"] | Positive = _key(
        "auto",
        "of student-t, in units of the (standardised) response, and fixed in the chain; auto: the most probable one "
        "together with the coefficients; heldout: the best of a grid on data.heldout",
        'a number above 0, "auto" or "heldout"',
    )


class Firefly(Section):
    """How a regression is sampled: Firefly Monte Carlo."""

    bounds: Literal["tuned", "untuned", "none"] = _key(
        "tuned",
        "where the likelihoods' lower bounds touch: at the posterior's mode, at xi, or no bounds (every row is looked "
        "at in every step)",
        '"tuned", "untuned" or "none"',
    )
    theta_update: Literal["hmc", "mala", "random-walk", "slice"] = _key(
        "hmc", "update of the coefficients given the bright rows", '"hmc", "mala", "random-walk" or "slice"'
    )
    z_update: Literal["implicit", "explicit"] = _key(
        "implicit",
        "which rows are bright: Metropolis-Hastings with dark rows proposed at rate q, or rows drawn anew at rate q",
        '"implicit" or "explicit"',
    )
    q: Literal["auto"] | Annotated[float, Field(gt=0, le=1)] = _key(
        "auto", "that rate; auto follows the number of bright rows in burn-in", '"auto" or a number in (0, 1]'
    )
    xi: Literal["auto"] | Annotated[float, Field(ge=0)] = _key(
        "auto",
        "where untuned bounds touch: a logit (auto: 1.5) or a residual of student-t (auto: 0); those of softmax touch "
        "at equal probabilities",
        '"auto" or a number, 0 or more',
    )
    whiten: bool = _key(True, "coordinates in which Laplace's approximation is spherical", "true or false")
    step_size: Literal["auto"] | Positive = _key(
        "auto", "in these coordinates; auto: adapted in burn-in", '"auto" or a number above 0'
    )
    leapfrog_steps: int = Field(
        4, ge=1, description="of one hmc update", json_schema_extra={"expected": "a whole number, 1 or more"}
    )
    refresh: Literal["auto"] | Annotated[int, Field(ge=0)] = _key(
        "auto",
        "cycles between two hmc steps on all rows, after which the brightness of every row is drawn anew; auto: a "
        "seventh of the time (theta_update = hmc), else 0, none",
        '"auto" or a whole number, 0 or more',
    )
    init: Literal["laplace", "map", "prior"] = _key(
        "laplace",
        "first coefficients: a draw of Laplace's approximation (of several chains the others from one twice as wide), "
        "the mode, or a draw of the prior",
        '"laplace", "map" or "prior"',
    )


class Run(Section):
    seed: int = Field(
        0,
        ge=0,
        lt=2**63,
        description="names the random streams",
        json_schema_extra={"expected": "a whole number from 0 to 2^63 - 1"},
    )
    shards: Literal["auto"] | Annotated[int, Field(ge=1)] = _key(
        "auto", "fixed pieces of the table; not more ranks than shards can work", '"auto" or a whole number, 1 or more'
    )
    cycles: int = Field(
        1000, ge=1, description="length of the chain; raise it to extend a finished run (a regression's: 20000)",
        json_schema_extra={"expected": "a whole number, 1 or more"},
    )  # fmt: skip
    burn_in: Literal["auto"] | Annotated[int, Field(ge=0)] = _key(
        "auto",
        "cycles left out of summaries; auto is a fifth of cycles, counted from the end of an annealed start, decided "
        "at the first start",
        '"auto" or a whole number, 0 or more',
    )
    chains: int = Field(
        1,
        ge=1,
        description="independent chains, in DIR/chain-1 and so on",
        json_schema_extra={"expected": "a whole number, 1 or more"},
    )
    checkpoint_minutes: float = Field(
        5.0, gt=0, description="minutes between two checkpoints", json_schema_extra={"expected": "a number above 0"}
    )
    max_time: Annotated[float | None, BeforeValidator(_duration)] = _key(
        None,
        "stop at a checkpoint before this much time has passed (seconds here; 3h50m and 1-02:00:00 are understood)",
        LENGTH_OF_TIME,
    )


class Output(Section):
    thin: int = Field(
        1,
        ge=1,
        description="cycles between two lines of the trace",
        json_schema_extra={"expected": "a whole number, 1 or more"},
    )
    labels: int = Field(
        10,
        ge=1,
        description="cycles between two kept draws of the labels",
        json_schema_extra={"expected": "a whole number, 1 or more"},
    )
    log_posterior: Literal["auto"] | Annotated[int, Field(ge=0)] = _key(
        "auto",
        "cycles between two looks at all rows of a regression, for log_posterior in the trace; auto: a tenth of the "
        "rows that are looked at; 0: never",
        '"auto" or a whole number, 0 or more',
    )


SECTIONS: dict[str, type[Section]] = {
    "data": Data, "model": Model, "sampler": Sampler, "anneal": Anneal, "regression": Regression, "firefly": Firefly,
    "run": Run, "output": Output,
}  # fmt: skip

NAMED: dict[str, type[Section]] = {"columns": ColumnSettings, "blocks": BlockSettings}  # [columns.NAME]
INNER: dict[tuple[str, str], type[Section]] = {("blocks", "prior"): BlockPrior}  # tables whose keys are told one by one

CYCLES_OF_REGRESSION = 20_000
# Sections, and keys of sections, that one kind of model has no use for.
OF_MIXTURES = (
    "sampler", "anneal", "model.concentration", "model.discount", "model.likelihood", "output.labels",
)  # fmt: skip
OF_REGRESSIONS = ("regression", "firefly", "output.log_posterior")


def expected(key: tuple[str, ...]) -> str:
    """What the value of a key such as ("run", "seed"), ("columns", "age", "use") or ("blocks", "body", "prior", "nu")
    must be, in words."""
    section = INNER[key[0], key[2]] if len(key) > 3 else NAMED.get(key[0]) or SECTIONS[key[0]]
    return str(section.model_fields[key[-1]].json_schema_extra["expected"])
