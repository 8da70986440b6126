"""Settings of a regression: response, predictors and prior."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from mpibayes.errors import ConfigError
from mpibayes.hpc.regression.likelihoods import LIKELIHOODS

MISSING = ("error", "drop", "indicator")
PRIORS = ("gaussian", "laplace", "flat")


@dataclass(frozen=True)
class Settings:
    """Section [regression] of a configuration. The constructor raises ConfigError with every mistake.

    predictors: None for all used columns but the response. standardise: True to express numeric columns in standard
    deviations about their mean. missing: rows with a missing predictor are an error, dropped, or kept with the column's
    mean (first level) and a 0/1 indicator predictor; a row with a missing response is an error or dropped. prior_scale:
    standard deviation (gaussian) or scale b (laplace) of every coefficient, or "heldout". intercept_scale: standard
    deviation of the intercept's own Gaussian prior, for each class; without effect if flat. scale: of the t
    distribution, in units of the response as the design gives it; "auto" is its joint mode with the coefficients,
    "heldout" the best on held-out rows.
    """

    likelihood: str
    response: str
    predictors: tuple[str, ...] | None = None
    standardise: bool = True
    intercept: bool = True
    missing: str = "error"
    prior: str = "gaussian"
    prior_scale: float | str = 2.5
    intercept_scale: float = 10.0
    degrees_of_freedom: float = 4.0
    scale: float | str = "auto"

    def __post_init__(self):
        problems = self._problems()
        if problems:
            raise ConfigError("the regression cannot be set up", problems)

    def _problems(self) -> list[str]:
        problems = []
        for name, allowed in (("likelihood", tuple(LIKELIHOODS)), ("missing", MISSING), ("prior", PRIORS)):
            if getattr(self, name) not in allowed:
                problems.append(f"{name} = {getattr(self, name)!r}; expected one of {', '.join(allowed)}")
        for name, words in (
            ("prior_scale", ("heldout",)), ("intercept_scale", ()), ("degrees_of_freedom", ()),
            ("scale", ("auto", "heldout")),
        ):  # fmt: skip
            value = getattr(self, name)
            if value not in words and not (isinstance(value, Real) and 0 < value < float("inf")):
                other = "".join(f' or "{word}"' for word in words)
                problems.append(f"{name} = {value!r}; expected a positive number{other}")
        if self.predictors is not None:
            if not self.predictors and not self.intercept:
                problems.append("no predictors and no intercept: there is nothing to estimate")
            if self.response in self.predictors:
                problems.append(f"'{self.response}' is the response and a predictor; take it out of predictors")
            twice = sorted({name for name in self.predictors if self.predictors.count(name) > 1})
            problems += [f"predictor '{name}' is listed twice" for name in twice]
        likelihood = LIKELIHOODS.get(self.likelihood)
        if likelihood and likelihood.needs_prior and self.prior == "flat":
            problems.append(likelihood.needs_prior)
        return problems
