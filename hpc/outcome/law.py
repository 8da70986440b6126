"""Law of an outcome's coefficients: fixed and learned parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.outcome.likelihoods import Likelihood

WIDE = 2.5  # prior sd of a learned mean about that of the whole table, in units
SHAPE, RATE = 2.0, 1.0  # of the inverse gamma prior of a learned variance, in units
WIDE_SCALE = 1.5  # prior sd of the log of a learned scale s, about 0, the log of the standardised outcome's sd


@dataclass(frozen=True)
class Law:
    """Prior theta_k ~ N(mean, sd^2) in each cluster, beta ~ N(0, covariate_sd^2). nu, scale: of a numeric outcome.

    mean, sd (p,), covariate_sd (D,). centre (p,): prior mean of a learned mean. unit: of learned parameters, the
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

    @property
    def p(self) -> int:
        """Number of coefficients of a cluster."""
        return len(self.mean)

    def drawn(self, theta: np.ndarray, stream: np.random.Generator) -> Law:
        """Draw mean and sd, where learned, given the clusters' coefficients theta (K, p); return a new law."""
        mean, sd, n = self.mean, self.sd, len(theta)
        if self.learns_mean:
            wide = (WIDE * self.unit) ** -2
            precision = n / sd**2 + wide
            at = (theta.sum(axis=0) / sd**2 + self.centre * wide) / precision
            mean = at + stream.standard_normal(self.p) / np.sqrt(precision)
        if self.learns_sd:
            rate = RATE * self.unit**2 + 0.5 * ((theta - mean) ** 2).sum(axis=0)
            sd = np.sqrt(rate / stream.gamma(SHAPE + 0.5 * n, size=self.p))
        return replace(self, mean=mean, sd=sd)

    def log_prior(self, theta: np.ndarray, beta: np.ndarray) -> float:
        """Return the log density of the coefficients given mean and sd, normalised."""
        each = -0.5 * ((theta - self.mean) / self.sd) ** 2 - np.log(self.sd) - 0.5 * np.log(2 * np.pi)
        of_beta = -0.5 * (beta / self.covariate_sd) ** 2 - np.log(self.covariate_sd) - 0.5 * np.log(2 * np.pi)
        return float(each.sum() + of_beta.sum())

    def log_prior_of_scale(self) -> float:
        return -0.5 * (np.log(self.scale / self.unit) / WIDE_SCALE) ** 2


def of_numbers(law: Law, numbers: np.ndarray) -> Law:
    """Return the law with mean, sd and scale from the numbers of a state."""
    return replace(law, mean=numbers[: law.p], sd=numbers[law.p : 2 * law.p], scale=float(numbers[-1]))
