"""Configuration sections of a mixture and of a cross-categorization, which has several views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import BeforeValidator, Field

from mpibayes.hpc.components.block import default_grids
from mpibayes.hpc.config import keys
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.section import (
    CYCLES,
    POSITIVE,
    Cycles,
    Name,
    Positive,
    Section,
    key,
    tuples,
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
from mpibayes.hpc.crosscat.sampler_keys import Anneal, Sampler
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


Link = Annotated[tuple[Name, ...], Field(min_length=2, max_length=3)]


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
        Literal["auto", "none", "lines", "forest"] | Annotated[tuple[Link, ...], Field(min_length=1)],
        BeforeValidator(tuples),
    ] = key(
        "auto",
        "columns that depend on a parent column, in the same way in all clusters: categorical and boolean ones, and "
        "numeric ones on each other; lines: learned, linear, between numeric columns alone; forest: learned; or these "
        "links and no others; auto: lines in views, none in a mixture that lists no model.lines",
        '"auto", "none", "lines", "forest", or [[CHILD, PARENT], [CHILD, PARENT, PARENT], ...], each child once and no '
        "circles",
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
        "mixtures with links: cuts of numeric parents into bins; auto: at the octiles of the training rows at the "
        "first start, for columns without missing cells; none: no numeric parents; or these columns at these cuts",
        f'"auto", "none", or {{COLUMN = [cuts, ascending, {MOST_BINS - 1} at most], ...}}',
        decided_once=True,
        formerly="none",
    )
    lines: Annotated[
        Literal["auto", "none"] | Annotated[tuple[Name, ...], Field(min_length=2)], BeforeValidator(tuples)
    ] = key(
        "auto",
        "with links: real columns that may depend on each other linearly, and have no bins; auto: all without "
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
        "with links: numeric columns that may depend on categorical and boolean ones, and have no bins; "
        "auto: real ones without atoms, in no block, at the first start; none: no number does; or these, counts too",
        '"auto", "none", or [COLUMN, ...]',
        decided_once=True,
        formerly="none",
    )
    likelihood: bool = key(True, "false samples the prior on partitions: the cells are ignored", "true or false")

    @property
    def parents(self) -> str | dict[str, str]:
        """Links in the form of `view.Settings`."""
        if self.links == "auto" or (self.links == "lines" and not self.lined):
            return "none"
        return self.links if isinstance(self.links, str) else {child: first for child, first, *_ in self.links}

    @property
    def named_links(self) -> tuple[tuple[str, ...], ...]:
        """The links that are given: a child, its parent, and its second parent if it has two."""
        return () if isinstance(self.links, str) else self.links

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The links that are given, (child, parent); two of a column with two parents."""
        return [(child, parent) for child, *parents in self.named_links for parent in parents]

    @property
    def seconds(self) -> dict[str, str]:
        """Second parent of each column that is given two, by name."""
        return {child: more[0] for child, _, *more in self.named_links if more}

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
        """Prior of the concentration, an argument of `PitmanYor.of`."""
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
        listed = not isinstance(self.lines, str)  # a list asks for lines in a mixture, too
        return "lines" if (self.has_views or listed) and self.likelihood and self.lines != "none" else "none"

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
SEVERAL = {"mixture": False, "crosscat": True, "auto": True}  # the table decides what auto means: choice.py
OF_VIEWS = {  # keys without effect in a mixture
    "model": ("view_concentration", "view_discount"),
    "sampler": ("init_views", "searches", "column_moves", "view_moves", "group_moves", "column_powers"),
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

    @property
    def given(self) -> bool:
        return self.prior is not None


MOST_POINTS = 1000  # of a grid
OneOrGrid = Positive | Annotated[tuple[Positive, ...], Field(min_length=1, max_length=MOST_POINTS)]
ONE_OR_GRID = f"{POSITIVE}, or a list of 1 to {MOST_POINTS} such numbers"


class BlockPrior(Section):
    """Prior of a block of D columns. Parameters not given are learned; the default mean is the columns' mean."""

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
        """Return a block's default prior, without the mean, which comes from the table."""
        return {"prior": {name: grid.tolist() for name, grid in default_grids(len(given["columns"])).items()}}


class Output(keys.Output):
    labels: Cycles = key(
        10, "cycles between kept draws; from 8 on also cycles 1, 2, 4 and 8, for an early look", CYCLES
    )


SECTIONS: Mapping[str, type[Section]] = {
    "data": keys.Data, "model": Model, "sampler": Sampler, "anneal": Anneal, "outcome": Outcome, "run": keys.Run,
    "output": Output,
}  # fmt: skip
NAMED: Mapping[str, type[Section]] = {"columns": Column, "blocks": Block}


def priors(config: Config) -> dict[str, dict[str, Any]]:
    """Return the given (fixed) priors by column name, each a dictionary with the keys of the configuration."""
    return {name: c.prior.model_dump() for name, c in config.columns.items() if c.prior is not None}
