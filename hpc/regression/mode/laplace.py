"""Uses of the Laplace approximation: coordinates to sample in, bright rows, and whether Firefly pays.

With bounds that touch at the mode, a row's gap at theta is about half the excess curvature of its bound times (x'(theta
- mode))^2, so the expected sum of gaps over theta ~ N(mode, covariance) is half a trace, whatever the number of rows. A
row is bright with probability 1 - exp(-gap), which is less than a large gap, and positive at the mode where bounds do
not touch there; so the bright count is averaged over draws of theta on some of the rows.
"""

from __future__ import annotations

import numpy as np

from mpibayes.errors import NumericalError
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum_everywhere
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.hpc.regression.likelihoods import Likelihood, likelihood_of
from mpibayes.hpc.regression.mode.fit import Fit, Quadratic, bound_statistics, every
from mpibayes.hpc.regression.mode.linear_algebra import cholesky

SAMPLE = 20_000  # rows on which bright rows are counted
DRAWS = 64  # draws of theta: the count varies among them by about sqrt(2 / P) of itself


def whitening(covariance: np.ndarray) -> np.ndarray:
    """Factor W (P, P), lower triangular, W W' = covariance: theta = mode + W u makes u roughly standard normal."""
    factor = cholesky(covariance)
    if factor is None:
        raise NumericalError(
            "the Laplace covariance is not positive definite",
            ["are predictors almost collinear? leave some out, or set a gaussian prior"],
        )
    return factor


def laplace_draws(fit: Fit, n_draws: int, seed: int = 0) -> np.ndarray:
    """Draws of N(mode, covariance), (n_draws, P); the same on every rank."""
    u = generator(seed, Purpose.LAPLACE).standard_normal((n_draws, len(fit.theta)))
    return fit.theta + np.einsum("jk,ik->ji", u, whitening(fit.covariance))


def expected_gap(fit: Fit, quadratic: Quadratic) -> float:
    """Expected sum of all gaps under the Laplace approximation: roughly an upper bound of the bright count.

    The gaps at the mode, plus half the trace of covariance times the excess curvature of the bounds.
    """
    k, d = quadratic.G.shape
    covariance = fit.covariance.reshape(k, d, k, d)
    bounds = np.einsum("kl,ij,kilj->", quadratic.A, quadratic.S, covariance)
    excess = bounds - (fit.covariance * fit.curvature).sum()
    return fit.log_likelihood - quadratic(fit.theta) + 0.5 * float(excess)


def predicted_bright(
    comm: Communicator,
    rows,
    n_shards: int,
    fit: Fit,
    *,
    quadratic: Quadratic | None = None,
    likelihood: Likelihood | None = None,
    seed: int = 0,
    sample: int = SAMPLE,
    n_draws: int = DRAWS,
) -> float:
    """Expected number of bright rows in the running chain, with the current bounds of `rows`. Collective.

    The mean of sum 1 - exp(-gap) over Laplace draws on every n-th row of each shard, with the sum of gaps, whose mean
    is `expected_gap`, as control variate; the same on every rank. quadratic: bound_statistics of these bounds; it and
    the likelihood are computed if not given.
    """
    likelihood = likelihood or likelihood_of(comm, rows)
    quadratic = quadratic or bound_statistics(comm, rows, n_shards, fit.theta, likelihood)
    n_rows = sum(comm.collect(sum(len(r.y) for _, r in rows)))
    stride = max(1, n_rows // sample)
    draws, parts = laplace_draws(fit, n_draws, seed), []
    for _, r in rows:
        few, bounds = every(r, stride, likelihood), np.ascontiguousarray(r.bounds[::stride])
        share = len(r.y) / max(len(few.y), 1)
        gaps = [likelihood.gap(few.linear(theta), few.y, bounds) for theta in draws]
        parts.append(share * np.array([-np.expm1(-gap).sum() for gap in gaps]))
    bright = shard_sum_everywhere(comm, parts, (n_draws,), n_shards)
    gap = _quadratic_gaps(fit, quadratic, draws)
    slope = ((bright - bright.mean()) * gap).sum() / ((gap - gap.mean()) * gap).sum()
    return max(0.0, float(bright.mean() - slope * (gap.mean() - expected_gap(fit, quadratic))))


def _quadratic_gaps(fit: Fit, quadratic: Quadratic, draws: np.ndarray) -> np.ndarray:
    """Sum of gaps at each draw, with the likelihood's quadratic approximation at the mode, (n_draws,)."""
    phi = draws - fit.theta
    curved = (np.einsum("ji,ik->jk", phi, fit.curvature) * phi).sum(axis=1)
    likelihood = fit.log_likelihood + (phi * fit.slope).sum(axis=1) - 0.5 * curved
    return likelihood - np.array([quadratic(theta) for theta in draws])
