"""Priors that a mixture's configuration can set: of concentrations and discounts, and of columns."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, create_model, model_validator

from mpibayes.hpc.components.component import Component, PriorKey
from mpibayes.hpc.components.kinds import KINDS
from mpibayes.hpc.components.survival import Survival
from mpibayes.hpc.config.section import MOST_POINTS, Positive, Section, grid_of
from mpibayes.hpc.crosscat.view.pitman_yor import gamma_quantiles
from mpibayes.io.rows import STORED

# --- of concentrations and discounts ----------------------------------------------------------------------------------


class GammaPrior(Section):
    """alpha ~ Gamma(shape, rate), updated by Escobar and West's auxiliary variable (docs/math.md 2.4)."""

    gamma: tuple[Positive, Positive]


class GammaGrid(Section):
    """Gamma(shape, rate) on a grid: `points` equally weighted quantiles."""

    gamma: tuple[Positive, Positive]
    points: Annotated[int, Field(ge=1, le=MOST_POINTS)]

    @model_validator(mode="after")
    def _within_range(self) -> GammaGrid:
        quantiles = gamma_quantiles(*self.gamma, self.points)
        if not (quantiles[0] > 0 and quantiles[-1] < math.inf):
            raise ValueError("the first or the last quantile is beyond double precision")
        return self


Concentration = Annotated[float, Field(gt=-1, le=1e9)]
Alpha = Literal["auto", "learn"] | Concentration | grid_of(Annotated[float, Field(gt=0, le=1e9)])
_Discount = Annotated[float, Field(ge=0, lt=1)]
Discount = Literal["learn"] | _Discount | grid_of(_Discount)
# Meaning of "auto" at a first start, for rows and for columns over views, in TOML's form. With the wide grid of
# "learn", one heavy-tailed population splits into a cluster per three rows; with this one not, at the same held-out
# score.
AUTO_CONCENTRATION = {"gamma": [1.0, 1.0], "points": 41}
GRID = f"a list of 1 to {MOST_POINTS} different numbers"
ALPHA = f'"auto", "learn", a number above -discount, at most 1e9, {GRID} above 0'
GAMMA_GRID = f"{{gamma = [shape, rate], points = 1 to {MOST_POINTS}}}"
DISCOUNT = f'a number in [0, 1), {GRID} in [0, 1), or "learn"'
LEARNED = (
    "auto: learned on 41 quantiles of Gamma(1, 1); learn: on a log-even grid from 0.05 to 500; a number fixes it; a "
    "list: learned on its points; points: on so many quantiles of Gamma(shape, rate)"
)


# --- of columns -------------------------------------------------------------------------------------------------------


def _sections_of(kind: type[Component]) -> list[type[Section]]:
    """Return the sections of a column's prior for this kind, one per form."""

    def of(key: PriorKey) -> Any:
        number = Annotated[float, Field(ge=key.least, le=key.most)]
        if key.by_level:
            return Annotated[tuple[number, ...], Field(min_length=1)]
        return grid_of(number) if key.grid else number

    forms = [{key.name: (of(key), ...) for key in form} for form in kind.prior_forms]
    names = [f"{kind.__name__}Prior{number or ''}" for number in range(len(forms))]
    return [create_model(name, __base__=Section, __module__=__name__, **form) for name, form in zip(names, forms)]


def prior_words(kind: type[Component], by_level: str = "...", grid: str = "...") -> str:
    """Describe how a kind's prior is written."""

    def of(key: PriorKey) -> str:
        numbers = by_level if key.by_level else grid if key.grid else ""
        return f"{key.name} = [{numbers}]" if numbers else key.name

    return " or ".join(f"{{{', '.join(map(of, form))}}}" for form in kind.prior_forms)


def table_kinds(kind: type[Component]) -> list[str]:
    """Return the kinds of table columns that have the same forms of prior as `kind`."""
    return [name for name, other in MODELLED.items() if other.prior_forms == kind.prior_forms]


CODED = {"survival": Survival}  # cells are in another array in memory
MODELLED = {name: kind for kind in KINDS for name, arrays in STORED.items() if arrays[0] in kind.stored}
MODELLED = {name: kind for name, kind in MODELLED.items() if name not in CODED} | CODED
FORMS = {kind.prior_forms: kind for kind in reversed(KINDS)}  # the first kind with each set of forms
PRIORS = {prior: kind for kind in KINDS if FORMS[kind.prior_forms] is kind for prior in _sections_of(kind)}
globals().update({prior.__name__: prior for prior in PRIORS})  # pickles, which ranks exchange, refer to classes by name
