"""Law of an outcome's coefficients: what is fixed, and what is learned with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.outcome.likelihoods import Likelihood

WIDE = 2.5  # sd of the law of a learned mean, about the whole table's, in units
SHAPE, RATE = 2.0, 1.0  # of the inverse gamma law of a learned variance, in units
WIDE_SCALE = 1.5  # sd of the log of a learned scale s, about 0: that of the standardised outcome


@dataclass(frozen=True)
class Law:
    """theta_k ~ N(mean, sd^2) in each cluster, beta ~ N(0, covariate_sd^2); nu, scale: of a number.

    mean, sd (p,), covariate_sd (D,). centre (p,): about which a learned mean is; unit: of what is learned, the
    outcome's standard deviation where it is a number. learns_*: what is drawn in each cycle.
    n_fresh: coefficients that are tried for a new cluster.
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
        """Coefficients of a cluster."""
        return len(self.mean)

    def drawn(self, theta: np.ndarray, stream: np.random.Generator) -> Law:
        """A copy with mean and sd drawn given the clusters' coefficients (K, p), where they are learned."""
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
        """Log density of coefficients given mean and sd, normalised."""
        each = -0.5 * ((theta - self.mean) / self.sd) ** 2 - np.log(self.sd) - 0.5 * np.log(2 * np.pi)
        of_beta = -0.5 * (beta / self.covariate_sd) ** 2 - np.log(self.covariate_sd) - 0.5 * np.log(2 * np.pi)
        return float(each.sum() + of_beta.sum())

    def log_prior_of_scale(self) -> float:
        return -0.5 * (np.log(self.scale / self.unit) / WIDE_SCALE) ** 2


def of_numbers(law: Law, numbers: np.ndarray) -> Law:
    """A law with the mean, sd and scale of a state."""
    return replace(law, mean=numbers[: law.p], sd=numbers[law.p : 2 * law.p], scale=float(numbers[-1]))
