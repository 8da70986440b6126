"""Law of an outcome's coefficients: fixed and learned parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.outcome.baseline import Baseline
from mpibayes.hpc.outcome.likelihoods import Likelihood

WIDE = 2.5  # prior sd of a learned mean about that of the whole table, in units
SHAPE, RATE = 2.0, 1.0  # of the inverse gamma prior of a learned variance, in units
WIDE_SCALE = 1.5  # prior sd of the log of a learned scale s, about 0, the log of the standardised outcome's sd


@dataclass(frozen=True)
class Law:
    """Prior theta_k ~ N(mean, sd^2) in each cluster, beta ~ N(0, covariate_sd^2). nu, scale: of a numeric outcome.

    mean, sd (C p,), covariate_sd (C D,), with C = n_eta linear predictors of a row: 1, of a softmax one for each level
    but the first. centre (C p,): prior mean of a learned mean. unit: of learned parameters, the
    standard deviation of a numeric outcome. learns_*: parameters drawn in each cycle.
    n_fresh: number of coefficient vectors proposed for a new cluster.
    """

    likelihood: type[Likelihood]
    mean: np.ndarray
    sd: np.ndarray
    covariate_sd: np.ndarray
    centre: np.ndarray
    nu: float = 4.0
    scale: float = 1.0
    unit: float = 1.0
    learns_mean: bool = False
    learns_sd: bool = False
    learns_scale: bool = False
    n_fresh: int = 2
    n_eta: int = 1
    baseline: Baseline | None = None  # of times to an event

    @property
    def given(self) -> type[Likelihood] | Baseline:
        """Likelihood of an outcome as recorded: of times with their baseline."""
        return self.likelihood if self.baseline is None else self.baseline

    @property
    def p(self) -> int:
        """Number of coefficients of a cluster, C p."""
        return len(self.mean)

    @property
    def width(self) -> int:
        """Number of coefficients of a cluster in one linear predictor, the intercept first."""
        return len(self.mean) // self.n_eta

    def by_eta(self, of_each: Callable[[int], np.ndarray]) -> np.ndarray:
        """Return the array of a linear predictor; of a softmax the arrays of all, along a last axis."""
        if not self.likelihood.of_levels:
            return of_each(0)
        return np.stack([of_each(c) for c in range(self.n_eta)], axis=-1)

    def own(self, theta: np.ndarray, c: int) -> np.ndarray:
        """Return the coefficients (..., p) of the c-th linear predictor from those of clusters (..., C p)."""
        return theta[..., c * self.width : (c + 1) * self.width]

    def shared(self, beta: np.ndarray, c: int) -> np.ndarray:
        """Return the global coefficients (D,) of the c-th linear predictor."""
        d = len(self.covariate_sd) // self.n_eta
        return beta[c * d : (c + 1) * d]

    def drawn(self, theta: np.ndarray, stream: np.random.Generator) -> Law:
        """Draw mean and sd, where learned, given the clusters' coefficients theta (K, p); return a new law."""
        mean, sd, n = self.mean, self.sd, len(theta)
        if self.learns_mean:
            wide = (WIDE * self.unit) ** -2
            precision = n / sd**2 + wide
            at = (theta.sum(axis=0) / sd**2 + self.centre * wide) / precision
            mean = at + stream.standard_normal(self.p) / np.sqrt(precision)
            if self.baseline is not None:  # which has the level
                mean[0] = self.mean[0]
        if self.learns_sd:
            rate = RATE * self.unit**2 + 0.5 * ((theta - mean) ** 2).sum(axis=0)
            sd = np.sqrt(rate / stream.gamma(SHAPE + 0.5 * n, size=self.p))
        return replace(self, mean=mean, sd=sd)

    def log_prior(self, theta: np.ndarray, beta: np.ndarray) -> float:
        """Return the log density of the coefficients given mean and sd, normalised."""
        each = -0.5 * ((theta - self.mean) / self.sd) ** 2 - np.log(self.sd) - 0.5 * np.log(2 * np.pi)
        of_beta = -0.5 * (beta / self.covariate_sd) ** 2 - np.log(self.covariate_sd) - 0.5 * np.log(2 * np.pi)
        return float(each.sum() + of_beta.sum())

    @property
    def numbers(self) -> np.ndarray:
        """Learned parameters, for `of_numbers`."""
        of_times = [] if self.baseline is None else self.baseline.hazards
        return np.concatenate([self.mean, self.sd, [self.scale], of_times])

    def log_prior_of_scale(self) -> float:
        return -0.5 * (np.log(self.scale / self.unit) / WIDE_SCALE) ** 2


def of_numbers(law: Law, numbers: np.ndarray) -> Law:
    """Return the law with mean, sd, scale and baseline from the numbers of a state."""
    p, baseline = law.p, law.baseline
    if baseline is not None:
        baseline = replace(baseline, hazards=np.array(numbers[2 * p + 1 :]))
    return replace(law, mean=numbers[:p], sd=numbers[p : 2 * p], scale=float(numbers[2 * p]), baseline=baseline)
