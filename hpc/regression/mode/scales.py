"""Scales chosen from data: of the prior and of the t distribution on held-out rows, or of t at the joint mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.errors import DataError
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum_everywhere
from mpibayes.hpc.regression.likelihoods import Likelihood, likelihood_of
from mpibayes.hpc.regression.mode.fit import Fit, fit
from mpibayes.hpc.regression.prior import Prior

PRIOR_GRID = tuple(float(s) for s in np.geomspace(0.01, 10.0, 13))
T_GRID = tuple(float(s) for s in np.geomspace(0.05, 1.0, 14))  # in units of a standardised response
LEAST_SCALE = 1e-6  # in deviations of the response: predictors are float32, so smaller errors are rounding
ROUNDS = 50


@dataclass(frozen=True)
class Chosen:
    """The best value, its Fit, and for every value tried the mean log density of held-out rows at the mode."""

    value: float
    fitted: Fit
    tried: tuple[float, ...]
    log_predictive: tuple[float, ...]

    @property
    def at_an_end(self) -> bool:
        """True if the best value is the first or the last one tried, so that a better one may lie beyond."""
        return self.value in (min(self.tried), max(self.tried)) and len(self.tried) > 1


def choose_scale(
    of: str, comm: Communicator, rows, n_shards: int, heldout, n_blocks: int, prior: Prior, *, likelihood: Likelihood,
    grid: Sequence[float] | None = None,
) -> Chosen:  # fmt: skip
    """Choose the scale with the best held-out log predictive density. Collective.

    of: "prior", for all coefficients but intercepts and flat ones, or "t", for the t distribution. rows, heldout:
    (index, kernels' Rows) of this rank's shards and blocks of held-out rows, in order. grid: values to try.
    """
    if of == "prior":
        trials = [(v, likelihood, prior.rescaled(v)) for v in sorted(grid or PRIOR_GRID)]
    else:
        trials = [(v, replace(likelihood, scale=v), prior) for v in sorted(grid or T_GRID)]
    return _best(comm, rows, n_shards, heldout, n_blocks, trials)


def log_predictive(
    comm: Communicator, heldout, n_blocks: int, theta: np.ndarray, likelihood: Likelihood
) -> tuple[float, int]:
    """Sum of log L at theta over held-out rows, and their number; the same on every rank. Collective."""
    parts = [np.array([likelihood.log_density(r.linear(theta), r.y).sum(), len(r.y)]) for _, r in heldout]
    total, n = shard_sum_everywhere(comm, parts, (2,), n_blocks)
    return float(total), int(n)


def joint_t_scale(
    comm: Communicator, rows, n_shards: int, prior: Prior, *, likelihood: Likelihood | None = None
) -> tuple[float, Fit]:
    """Return (scale, Fit) at the joint mode of coefficients and scale, with a flat prior on log scale. Collective.

    Newton's method alternates between the coefficients and the log scale; they are nearly orthogonal, so a few rounds
    are enough. Raises DataError if the coefficients fit so many rows exactly that the mode is at scale 0.
    """
    likelihood = likelihood or likelihood_of(comm, rows)
    fitted = fit(comm, rows, n_shards, prior, likelihood=likelihood)
    for _ in range(ROUNDS):
        scale = _scale_given(comm, rows, n_shards, fitted.theta, likelihood)
        change = abs(np.log(scale / likelihood.scale))
        likelihood = replace(likelihood, scale=scale)
        fitted = fit(comm, rows, n_shards, prior, likelihood=likelihood, start=fitted.theta)
        if change < 1e-6:
            break
    return likelihood.scale, fitted


def _scale_given(comm: Communicator, rows, n_shards: int, theta: np.ndarray, likelihood: Likelihood) -> float:
    """Solve sum (nu + 1) r^2 / (nu s^2 + r^2) = N for s, by Newton's method on log s, in which the sum decreases."""
    nu, residuals = likelihood.nu, [(r.y - r.linear(theta)[:, 0]) ** 2 for _, r in rows]
    sizes = [
        np.array([len(r.y), np.count_nonzero(r2 == 0), r.y.sum(), (r.y**2).sum()])
        for (_, r), r2 in zip(rows, residuals)
    ]
    n, n_zero, total, squares = shard_sum_everywhere(comm, sizes, (4,), n_shards)
    least = LEAST_SCALE * np.sqrt(max(squares / n - (total / n) ** 2, 0.0))
    if n_zero * (nu + 1) >= n:
        raise _exact(n_zero, n)
    log_s = np.log(likelihood.scale)
    for _ in range(200):
        parts = []
        for r2 in residuals:
            share = r2 / (nu * np.exp(2.0 * log_s) + r2)
            parts.append(np.array([share.sum(), (share * (1.0 - share)).sum()]))
        share, slope = shard_sum_everywhere(comm, parts, (2,), n_shards)
        step = ((nu + 1) * share - n) / (2.0 * (nu + 1) * slope) if slope > 0 else -np.inf
        log_s += float(np.clip(step, -1.0, 1.0))
        if np.exp(log_s) < least:
            raise _exact(n_zero, n)
        if abs(step) < 1e-12:
            break
    return float(np.exp(log_s))


def _exact(n_zero: float, n: float) -> DataError:
    rows = f"{int(n_zero):,} of {int(n):,} rows exactly" if n_zero else "almost every row exactly"
    return DataError(
        f"the predictors determine the response of {rows}, so the scale of the t distribution has its mode at 0",
        ["give a scale (a number), or look for a predictor that repeats the response"],
    )


def _best(comm: Communicator, rows, n_shards: int, heldout, n_blocks: int, trials) -> Chosen:
    """Best of the trials (value, likelihood, prior), each fitted from the mode of the one before."""
    if not sum(comm.collect(sum(len(r.y) for _, r in heldout))):
        raise DataError("a scale cannot be chosen without held-out rows", ["set data.heldout, or give a number"])
    fits, scores, start = [], [], None
    for _, likelihood, prior in trials:
        fits.append(fit(comm, rows, n_shards, prior, likelihood=likelihood, start=start))
        start = fits[-1].theta
        total, n = log_predictive(comm, heldout, n_blocks, start, likelihood)
        scores.append(total / n)
    best = int(np.argmax(scores))
    values = tuple(value for value, _, _ in trials)
    return Chosen(values[best], fits[best], values, tuple(scores))
