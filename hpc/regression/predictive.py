"""Predictive distributions of rows under draws of the coefficients.

A row's predictive distribution is the mean of p(y | x, theta_s) over draws s: class probabilities, or a mixture of
Student t distributions. Its log density is the log of the mean density, which is not the mean of log densities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from mpibayes.hpc.regression.likelihood import STUDENT, Likelihood, log_sum_exp, softmax

CELLS = 4_000_000  # numbers of a batch: rows times draws times classes, some tens of MiB
CLOSE = 1e-9  # a quantile is known to so many scales
ROUNDS = 60


@dataclass(frozen=True)
class Predictive:
    """theta (S, K, D): draws."""

    likelihood: Likelihood
    theta: np.ndarray

    @property
    def batch(self) -> int:
        """Rows that are to be worked on at a time."""
        return max(64, CELLS // (len(self.theta) * max(2, self.likelihood.n_classes)))

    def linear(self, x: np.ndarray) -> np.ndarray:
        """Linear predictors of rows x (n, W), (n, S, K)."""
        s, k, d = self.theta.shape
        return (x[:, :d].astype(np.float64) @ self.theta.reshape(s * k, d).T).reshape(len(x), s, k)

    def log_densities(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """log p(y | x, theta_s) of each row and draw, (n, S); eta: of `linear`, y (n,)."""
        n, s, k = eta.shape
        return self.likelihood.log_density(eta.reshape(n * s, k), np.repeat(y, s)).reshape(n, s)

    def log_density(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """log of the mean density, (n,)."""
        return log_sum_exp(self.log_densities(eta, y)) - np.log(eta.shape[1])

    def probabilities(self, eta: np.ndarray) -> np.ndarray:
        """Of each class in each draw, (n, S, C); logistic: of y = -1 and y = 1."""
        n, s, k = eta.shape
        if k == 1:
            eta, k = np.concatenate([np.zeros_like(eta), eta], axis=2), 2
        return softmax(eta.reshape(n * s, k)).reshape(n, s, k)

    def moments(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Student t: mean and standard deviation, (n,); inf where nu <= 2."""
        nu, scale = self._t()
        centre = eta[..., 0]
        inner = scale**2 * nu / (nu - 2.0) if nu > 2.0 else np.inf
        return centre.mean(axis=1), np.sqrt(centre.var(axis=1) + inner)

    def cdf(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Student t: probability of a response below y, (n,)."""
        nu, scale = self._t()
        return stdtr(nu, (y[:, None] - eta[..., 0]) / scale).mean(axis=1)

    def quantile(self, eta: np.ndarray, p: float) -> np.ndarray:
        """Student t: the value below which the response is with probability p, (n,).

        Newton's method, kept between the least and the largest of the draws' own quantiles, between which it lies.
        """
        nu, scale = self._t()
        centre = eta[..., 0]
        own = scale * float(stdtrit(nu, p))
        low, high = centre.min(axis=1) + own, centre.max(axis=1) + own
        q = centre.mean(axis=1) + own
        open_rows = np.arange(len(q))
        for _ in range(ROUNDS):
            u = (q[open_rows, None] - centre[open_rows]) / scale
            miss = stdtr(nu, u).mean(axis=1) - p
            slope = np.exp(self.likelihood.log_t((u * scale) ** 2)).mean(axis=1)
            above = miss > 0
            high[open_rows[above]] = q[open_rows[above]]
            low[open_rows[~above]] = q[open_rows[~above]]
            with np.errstate(divide="ignore", invalid="ignore"):
                step = q[open_rows] - miss / slope
            inside = (step >= low[open_rows]) & (step <= high[open_rows])
            new = np.where(inside, step, 0.5 * (low[open_rows] + high[open_rows]))
            done = np.abs(new - q[open_rows]) <= CLOSE * scale
            q[open_rows] = new
            open_rows = open_rows[~done]
            if not len(open_rows):
                break
        return q

    def _t(self) -> tuple[float, float]:
        if self.likelihood.family != STUDENT:
            raise ValueError("only a t regression has a predictive distribution of a number")
        return self.likelihood.nu, self.likelihood.scale
