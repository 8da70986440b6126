"""Laplace importance sampling: a check of the chain, and a sampler of its own if the posterior is nearly normal.

Draws of N(mode, covariance) are weighted by posterior over density. Their Kish effective size and the Pareto shape k of
the largest weights measure their reliability: below 0.7 means and deviations can be trusted (Vehtari, Simpson, Gelman,
Yao & Gabry 2024, "Pareto smoothed importance sampling"). A draw costs a pass over all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum_everywhere
from mpibayes.hpc.regression.mode.fit import Fit
from mpibayes.hpc.regression.mode.laplace import laplace_draws, whitening
from mpibayes.hpc.regression.prior import Prior

DRAWS = 1000
RELIABLE = 0.7  # Pareto k beyond which weighted means converge too slowly to be useful


@dataclass(frozen=True)
class Weighted:
    """Draws (J, P) and their normalised, smoothed weights (J,); weighted mean and sd (P,) of the posterior.

    n_effective: Kish's effective size of the weights before smoothing. pareto_k: shape of their tail, NaN if there are
    too few draws to judge. log_evidence: of the model.
    """

    draws: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    n_effective: float
    pareto_k: float
    log_evidence: float

    @property
    def reliable(self) -> bool:
        return self.pareto_k < RELIABLE


def importance_sample(
    comm: Communicator, rows, n_shards: int, fit: Fit, prior: Prior, n_draws: int = DRAWS, seed: int = 0
) -> Weighted:
    """Return weighted Laplace draws. Collective; the same on every rank. rows: (shard index, kernels' Rows), in
    order."""
    draws = laplace_draws(fit, n_draws, seed)
    parts = [np.array([r.log_likelihood(theta) for theta in draws]) for _, r in rows]
    log_posterior = shard_sum_everywhere(comm, parts, (n_draws,), n_shards) + prior.log_density(draws)
    log_ratio = log_posterior - _log_normal(fit, draws)
    raw = np.exp(log_ratio - log_ratio.max())
    smooth, k = pareto_smoothed(log_ratio - log_ratio.max())
    weight = smooth / smooth.sum()
    mean = (weight[:, None] * draws).sum(axis=0)
    sd = np.sqrt((weight[:, None] * (draws - mean) ** 2).sum(axis=0))
    log_evidence = float(log_ratio.max() + np.log(raw.mean()))
    return Weighted(draws, weight, mean, sd, kish(raw), k, log_evidence)


def kish(weight: np.ndarray) -> float:
    """Effective number of draws, (sum w)^2 / sum w^2 (Kish 1965)."""
    return float(weight.sum() ** 2 / (weight**2).sum())


def pareto_smoothed(log_weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Replace the largest weights by quantiles of a generalised Pareto fitted to them; return weights (J,) and shape k.

    log_weight (J,): largest 0. The tail is the min(J / 5, 3 sqrt(J)) largest weights (Vehtari et al. 2024, section 3).
    Below 25 draws nothing is smoothed and k is NaN.
    """
    weight, n = np.exp(log_weight), len(log_weight)
    n_tail = int(np.ceil(min(0.2 * n, 3.0 * np.sqrt(n))))
    if n_tail < 5:
        return weight, float("nan")
    order = np.argsort(log_weight, kind="stable")
    tail, cutoff = order[-n_tail:], weight[order[-n_tail - 1]]
    excess = weight[tail] - cutoff
    if not excess[0] >= 0 or excess[-1] <= np.finfo(float).tiny or excess[-1] < 1e-14 * weight[tail[-1]]:
        return weight, float("-inf")  # all equal
    k, sigma = fit_pareto(np.maximum(excess, np.finfo(float).tiny))
    p = (np.arange(n_tail) + 0.5) / n_tail
    quantile = sigma * (-np.log1p(-p) if abs(k) < 1e-12 else np.expm1(-k * np.log1p(-p)) / k)
    weight[tail] = np.minimum(cutoff + quantile, 1.0)
    return weight, k


def fit_pareto(x: np.ndarray) -> tuple[float, float]:
    """Fit (k, sigma) of a generalised Pareto distribution to ascending positive x (n,) (Zhang & Stephens 2009).

    k is shrunk towards 0.5 with the weight of 10 observations (Vehtari et al. 2024, appendix G).
    """
    n = len(x)
    m = 30 + int(np.sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    theta = 1.0 / x[-1] + (1.0 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3.0 * quartile)
    k_each = np.log1p(-theta[:, None] * x).mean(axis=1)
    profile = n * (np.log(-theta / k_each) - k_each - 1.0)
    weight = np.exp(profile - profile.max())
    weight /= weight.sum()
    best = float((theta * weight).sum())
    k = float(np.log1p(-best * x).mean())
    return (n * k + 5.0) / (n + 10.0), -k / best


def _log_normal(fit: Fit, draws: np.ndarray) -> np.ndarray:
    """Log density of N(mode, covariance) at draws (J, P)."""
    factor = whitening(fit.covariance)
    u = np.array(draws - fit.theta).T
    for i in range(len(factor)):
        u[i] = (u[i] - np.einsum("k,kj->j", factor[i, :i], u[:i])) / factor[i, i]
    p = len(factor)
    return -0.5 * (u**2).sum(axis=0) - np.log(np.diagonal(factor)).sum() - 0.5 * p * np.log(2.0 * np.pi)
