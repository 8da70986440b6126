"""The sections of the configuration of a mixture, and of a cross-categorization, which has several views."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import AfterValidator, BeforeValidator, Field

from mpibayes.hpc.components.block import default_grids
from mpibayes.hpc.config import keys
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.section import (
    CYCLES,
    CYCLES_OR_NONE,
    LENGTH_OF_TIME,
    MOST_ROWS,
    POSITIVE,
    ROW_COUNT,
    Cycles,
    CyclesOrNone,
    Duration,
    Name,
    Positive,
    RowCount,
    Section,
    key,
    none,
    tuples,
    whole,
)
from mpibayes.hpc.crosscat.given_priors import (
    ALPHA,
    DISCOUNT,
    GAMMA_GRID,
    LEARNED,
    PRIORS,
    Alpha,
    Discount,
    GammaGrid,
    GammaPrior,
    prior_words,
    table_kinds,
)
from mpibayes.hpc.data.lines import MOST_MISSING
from mpibayes.hpc.outcome.keys import Outcome
from mpibayes.io.shape import Shape

Skew = Annotated[float, Field(ge=-100, le=100)]
ShapesByColumn = Annotated[
    dict[Name, tuple[Annotated[float, Field(ge=-1e150, le=1e150)], Positive, Skew, Positive]], Field(min_length=1)
]


MOST_BINS = 31
Cut = Annotated[float, Field(ge=-1e150, le=1e150, allow_inf_nan=False)]
BinsByColumn = Annotated[
    dict[Name, Annotated[tuple[Cut, ...], Field(min_length=1, max_length=MOST_BINS - 1)]], Field(min_length=1)
]


class Model(keys.Model):
    latent: ClassVar[bool] = True

    family: Literal["auto", "mixture", "crosscat"] = key(
        "auto",
        "mixture: one partition of the rows; crosscat: views of the columns, each with a partition of its own; "
        "auto: crosscat from 40 rows and 3 columns on",
        '"auto", "mixture" or "crosscat"',
        decided_once=True,
    )
    concentration: Annotated[Alpha | GammaPrior | GammaGrid, BeforeValidator(tuples)] = key(
        "auto",
        f"alpha of the rows; {LEARNED}; without points: with the continuous prior (one view and discount = 0 only)",
        f"{ALPHA}, {GAMMA_GRID} or {{gamma = [shape, rate]}}, each {POSITIVE}",
        decided_once=True,
    )
    discount: Annotated[Discount, BeforeValidator(tuples)] = key(
        0.0,
        "d of the Pitman-Yor process, 0 for a Dirichlet process; learn: on 0, 0.1, ... 0.9; or on the points of a list",
        DISCOUNT,
    )
    view_concentration: Annotated[Alpha | GammaGrid, BeforeValidator(tuples)] = key(
        "auto",
        f"alpha of the columns over views; {LEARNED}",
        f"{ALPHA}, or {GAMMA_GRID}, shape and rate each {POSITIVE}",
        decided_once=True,
    )
    view_discount: Annotated[Discount, BeforeValidator(tuples)] = key(
        0.0, "d of the columns over views; learn: on 0, 0.1, ... 0.9; or on the points of a list", DISCOUNT
    )
    real: Literal["recorded", "as is"] = key(
        "recorded",
        "real columns with the steps, atoms and scales that the import found; or as plain normal values, whose "
        "scores are densities",
        '"recorded" or "as is"',
    )
    shapes: Annotated[Literal["auto", "none"] | ShapesByColumn, BeforeValidator(tuples)] = key(
        "auto",
        "coordinates in which skew or long-tailed real columns are normal; auto: fitted at the first start, for "
        "columns that pass a test (stricter with views); none: columns as they are; or these columns with these "
        "numbers",
        '"auto", "none", or {COLUMN = [center, scale, skew, tail], ...} with scale and tail above 0',
        decided_once=True,
        formerly="none",
    )
    links: Annotated[
        Literal["auto", "none", "lines", "forest"] | Annotated[tuple[tuple[Name, Name], ...], Field(min_length=1)],
        BeforeValidator(tuples),
    ] = key(
        "auto",
        "columns that depend on a parent column, in the same way in all clusters: categorical and boolean ones, and "
        "numbers on numbers; lines: learned, between numbers alone; forest: learned; or these links and no others; "
        "auto: lines in views, none in a mixture",
        '"auto", "none", "lines", "forest", or [[CHILD, PARENT], ...], each child once and no circles',
        decided_once=True,
        formerly="none",
    )
    link_base: Literal["uniform", "learned"] = key(
        "uniform",
        "level probabilities about which those of the clusters vary in each context of a parent; learned: of the whole "
        "table",
        '"uniform" or "learned"',
    )
    bins: Annotated[Literal["auto", "none"] | BinsByColumn, BeforeValidator(tuples)] = key(
        "auto",
        "mixtures with links: cuts of numeric parents into bins; auto: at the eighths of the training rows at the "
        "first start, for columns without missing cells; none: no numeric parents; or these columns at these cuts",
        f'"auto", "none", or {{COLUMN = [cuts, ascending, {MOST_BINS - 1} at most], ...}}',
        decided_once=True,
        formerly="none",
    )
    lines: Annotated[
        Literal["auto", "none"] | Annotated[tuple[Name, ...], Field(min_length=2)], BeforeValidator(tuples)
    ] = key(
        "auto",
        "with links: real columns that may depend on each other in lines, and have no bins; auto: all without "
        f"atoms, in no block, with at most {100 * MOST_MISSING:.0f} % missing cells, at the first start; none: no "
        "number depends on another; or these",
        '"auto", "none", or [COLUMN, COLUMN, ...]',
        decided_once=True,
        formerly="none",
    )
    children: Annotated[
        Literal["auto", "none"] | Annotated[tuple[Name, ...], Field(min_length=1)], BeforeValidator(tuples)
    ] = key(
        "auto",
        "with links: columns of numbers that may depend on categorical and boolean ones, and have no bins; "
        "auto: real ones without atoms, in no block, at the first start; none: no number does; or these, counts too",
        '"auto", "none", or [COLUMN, ...]',
        decided_once=True,
        formerly="none",
    )
    likelihood: bool = key(True, "false samples the prior on partitions: the cells are ignored", "true or false")

    @property
    def parents(self) -> str | dict[str, str]:
        """The links as `view.Settings` has them."""
        if self.links == "auto" or (self.links == "lines" and not self.lined):
            return "none"
        return self.links if isinstance(self.links, str) else dict(self.links)

    @property
    def learns_links(self) -> bool:
        """True if links are part of the state."""
        return self.parents in ("forest", "lines")

    @property
    def links_levels(self) -> bool:
        """True if columns with levels may depend on others."""
        return self.links not in ("auto", "none", "lines")

    @property
    def law(self) -> Any:
        """Prior of the concentration, as `PitmanYor.of` takes it."""
        return _plain(self.concentration)

    @property
    def view_law(self) -> Any:
        """Prior of the concentration of columns over views; None where there is one view."""
        return _plain(self.view_concentration) if self.has_views else None

    @property
    def plain(self) -> bool:
        return self.real == "as is"

    @property
    def shaped(self) -> Mapping[str, Shape]:
        return {} if isinstance(self.shapes, str) or self.plain else {n: Shape(*s) for n, s in self.shapes.items()}

    @property
    def fits_shapes(self) -> bool:
        return self.shapes == "auto" and self.likelihood and not self.plain

    @property
    def binned(self) -> Mapping[str, tuple[float, ...]]:
        return {} if isinstance(self.bins, str) or not self.links_levels or self.has_views else self.bins

    @property
    def fits_bins(self) -> bool:
        return self.bins == "auto" and self.links_levels and self.likelihood and not self.has_views

    @property
    def lined(self) -> tuple[str, ...]:
        return () if isinstance(self.lines, str) or self.links in ("auto", "none") else self.lines

    @property
    def links_by_default(self) -> str:
        if self.links != "auto":
            return ""
        return "lines" if self.has_views and self.likelihood and self.lines != "none" else "none"

    @property
    def fits_lines(self) -> bool:
        return self.lines == "auto" and self.links not in ("auto", "none") and self.likelihood

    @property
    def born(self) -> tuple[str, ...]:
        return () if isinstance(self.children, str) or not self.links_levels else self.children

    @property
    def fits_children(self) -> bool:
        return self.children == "auto" and self.links_levels and self.likelihood

    @property
    def has_views(self) -> bool:
        """True if there may be several views. "auto" is not decided yet, so keys of views are allowed."""
        return SEVERAL[self.family]

    @property
    def needs_views(self) -> bool:
        """True if the model has several views whatever the table."""
        return NEEDED[self.family]


def _plain(given: Any) -> Any:
    return given.model_dump() if isinstance(given, Section) else given


NEEDED = {"mixture": False, "crosscat": True, "auto": False}
SEVERAL = {"mixture": False, "crosscat": True, "auto": True}  # what auto means, the table decides: choice.py
OF_VIEWS = {  # keys that a mixture has no use for
    "model": ("view_concentration", "view_discount"),
    "sampler": ("init_views", "init_rows", "searches", "column_moves", "view_moves", "column_powers"),
}


class Column(keys.Column):
    prior: Annotated[Union[*PRIORS, None], BeforeValidator(tuples)] = key(
        None,
        "fixes the column's hyperparameters, which are learned otherwise; grid: the points on which a level's "
        "pseudo-count is learned",
        " or ".join(
            f"{prior_words(kind, 'one positive number a level', 'positive numbers')} for "
            f"{' and '.join(table_kinds(kind))} columns"
            for kind in dict.fromkeys(PRIORS.values())
        )
        + "; numbers up to 1e300, of a mean up to 1e150",
    )


MOST_POINTS = 1000  # of a grid
OneOrGrid = Positive | Annotated[tuple[Positive, ...], Field(min_length=1, max_length=MOST_POINTS)]
ONE_OR_GRID = f"{POSITIVE}, or a list of 1 to {MOST_POINTS} such numbers"


class BlockPrior(Section):
    """Prior of a block of D columns. Parameters that are not given are learned; the mean is by default the columns'"""

    kappa: OneOrGrid | None = key(None, "rows that the prior's mean counts for", ONE_OR_GRID)
    nu: OneOrGrid | None = key(None, "degrees of freedom, above D - 1", ONE_OR_GRID)
    variance: OneOrGrid | None = key(None, "in units of each column's own", ONE_OR_GRID)
    mean: tuple[Annotated[float, Field(ge=-1e150, le=1e150)], ...] | None = key(
        None, "the prior's mean", "a list of one number a column, each at most 1e150 in size"
    )


class Block(keys.Block):
    prior: Annotated[BlockPrior | None, BeforeValidator(tuples)] = key(
        None,
        "a number fixes a hyperparameter, a list is the grid on which it is learned; the variance is in units of "
        "each column's own; the mean is by default the columns' own",
        "{kappa, nu, variance, mean} or some of these: kappa, nu (above D - 1 for D columns) and variance each a "
        "number above 0 or a list of such numbers, mean a list of one number a column",
    )

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Default prior of a block where none is given, without the mean, which comes from the table."""
        return {"prior": {name: grid.tolist() for name, grid in default_grids(len(given["columns"])).items()}}


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


MOST_CLUSTERS = 65_536


class Sampler(Section):
    strategy: Literal["auto", "anneal", "sequential+gibbs", "prior+gibbs"] = key(
        "auto",
        "how a chain starts: auto: all rows in one cluster, which moves split, with views after a search for "
        "views; anneal: a growing subsample, see [anneal]; sequential+gibbs: all rows seated one by one; "
        "prior+gibbs: a draw of the prior; further chains of auto are overdispersed",
        '"auto", "anneal", "sequential+gibbs" or "prior+gibbs"',
    )
    split_merge: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles between rounds of split and merge moves of clusters; auto: 1 until cycle 100 (several views take "
        "turns, each at least every fourth), then 4; 0: none",
        f'"auto" or {CYCLES_OR_NONE}',
    )
    init: Literal["auto", "one", "random", "sequential", "prior", "overdispersed", "labels"] = key(
        "auto",
        "first partition: auto: by the strategy; one cluster; random: init_clusters random ones; sequential: rows "
        "seated one by one; prior: a draw of the prior; overdispersed: a random number of random clusters; labels: "
        "init_labels",
        '"auto", "one", "random", "sequential", "prior", "overdispersed" or "labels"',
        decided_once=True,
    )
    init_clusters: int = key(
        64, 'number of clusters for init = "random"', whole(1, MOST_CLUSTERS), ge=1, le=MOST_CLUSTERS
    )
    init_labels: Annotated[Name | None, BeforeValidator(none)] = key(
        None,
        'for init = "labels": a text file (its last line counts) or a run directory, also one of the table before '
        "rows were appended",
        "the path of a text file with one line of labels, or of a run directory",
        path=True,
    )
    init_views: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_CLUSTERS)] = key(
        "auto",
        "views at the start of a search (groups of dependent columns), or random views where init_rows is 0; auto: "
        "16, or as many as columns",
        f'"auto" or {whole(1, MOST_CLUSTERS)}',
        decided_once=True,
    )
    init_rows: Literal["auto"] | Annotated[int, Field(ge=0, le=MOST_ROWS)] = key(
        "auto",
        "rows of the search for views; auto: 3,000 (10,000 of a single search) where init is auto; 0: no search",
        f'"auto" or {whole(0, MOST_ROWS)}',
        decided_once=True,
    )
    searches: Literal["auto"] | Annotated[int, Field(ge=1, le=1000)] = key(
        "auto",
        "searches for views per chain; the one that best predicts a tenth of the training rows (at most 3,000), "
        "unseen by all, is kept; auto: 3, or 1 below 500 training rows",
        f'"auto" or {whole(1, 1000)}',
        decided_once=True,
    )
    column_moves: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles between moves of columns; auto: 1 until cycle 20 (splits and merges of views: 100), then 4 (splits "
        "and merges on at most 500,000 cells: 16); 0: none",
        f'"auto" or {CYCLES_OR_NONE}',
    )
    view_moves: int = key(2, "splits and merges of views that such a cycle proposes", whole(0, 10_000), ge=0, le=10_000)
    column_powers: CyclesOrNone = key(
        0, "cycles between two draws of a column's view in which rows follow the column; 0: none", CYCLES_OR_NONE
    )
    link_moves: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "learned links: cycles between draws of all links; auto: after 3, 10, 25, 50, 75 and 100 cycles, then "
        "every 100; 0: none",
        f'"auto" or {CYCLES_OR_NONE}',
    )
    sweeps_per_cycle: int = key(1, "passes over the rows between two exchanges", whole(1, 10_000), ge=1, le=10_000)
    opening: Literal["auto", "one", "all"] = key(
        "auto",
        "shards that open clusters in a cycle; auto: one; all needs discount = 0",
        '"auto", "one" or "all"',
        decided_once=True,
    )
    hyper_every: Cycles = key(1, "cycles between updates of hyperparameters", CYCLES)


Knot = tuple[Annotated[float, Field(ge=0, lt=1e6)], Annotated[float, Field(gt=0, le=1)]]


class Anneal(Section):
    """Subsample annealing: how the rows of the chain's start become all rows."""

    retired: ClassVar[Mapping[str, str]] = {"strata": "subsamples have no strata, which did not raise the score"}

    schedule: Annotated[
        Literal["linear", "geometric", "constant", "sequential", "seconds"]
        | Annotated[tuple[Knot, ...], Field(min_length=1)],
        BeforeValidator(tuples),
        AfterValidator(_rising),
    ] = key(
        "linear",
        "active rows grow with the assignments made (linear), by a constant factor (geometric), all at once "
        "(constant), in one pass that seats all (sequential), by the clock (seconds), or linearly between [passes, "
        "fraction]",
        '"linear", "geometric", "constant", "sequential", "seconds", or knots [[passes, fraction], ...], both rising, '
        "to the fraction 1.0 after 1 pass or later",
    )
    passes: Annotated[float, Field(ge=1, lt=1e6)] = key(
        10.0, "work of the growth, in passes over all rows", "a number from 1 to 1e6"
    )
    start_rows: Literal["auto"] | RowCount = key(
        "auto",
        "rows of the first subsample; auto: a quarter of all, at most 1,000",
        f'"auto" or {ROW_COUNT}',
        decided_once=True,
    )
    seconds: Duration = key(
        None,
        'with schedule = "seconds": time until all rows are in; two runs from one seed may then differ',
        LENGTH_OF_TIME,
    )


def growing_schedule(sampler: Sampler, anneal: Anneal) -> bool:
    """True if the chain starts from a subsample that grows."""
    return sampler.strategy == "anneal" and anneal.schedule not in ("constant", "sequential")


class Output(keys.Output):
    labels: Cycles = key(10, "cycles between kept draws", CYCLES)


SECTIONS: Mapping[str, type[Section]] = {
    "data": keys.Data, "model": Model, "sampler": Sampler, "anneal": Anneal, "outcome": Outcome, "run": keys.Run,
    "output": Output,
}  # fmt: skip
NAMED: Mapping[str, type[Section]] = {"columns": Column, "blocks": Block}


def priors(config: Config) -> dict[str, dict[str, Any]]:
    """Given (fixed) priors by column name, each a dictionary with the keys of the configuration."""
    return {name: c.prior.model_dump() for name, c in config.columns.items() if c.prior is not None}
