"""Posterior mode by Newton's method over all ranks, its Laplace covariance, and the bounds as one quadratic.

Each rank holds the rows of its shards. An iteration costs two passes over the rows: one for log posterior and gradient,
one for the curvature, both summed in shard order on root, which solves for the step and broadcasts it. All bits are the
same on any number of ranks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.errors import DataError, NumericalError
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum, shard_sum_everywhere
from mpibayes.hpc.regression.likelihoods import Likelihood, likelihood_of
from mpibayes.hpc.regression.mode.collinear import combinations
from mpibayes.hpc.regression.mode.linear_algebra import cholesky, inverse, solve
from mpibayes.hpc.regression.prior import Prior
from mpibayes.kernels.firefly import Rows

MAX_ITERATIONS = 100
CONVERGED = 1e-8  # Newton decrement: squared step in posterior deviations. That step is taken; the next is 1e-16
HALVINGS = 30
SEPARATED = 1e-6  # a direction's least margin this close below 0, relative to its largest, is rounding
LOOK_FROM = 3  # iteration from which separation under a flat prior is checked
FEW_ROWS = 20_000  # rows, plus 20 per coefficient, for a first mode if there are eight times as many


@dataclass(frozen=True)
class Fit:
    """The mode and its surroundings, the same on every rank.

    theta (P,): the mode, with the smooth prior if that is laplace. covariance (P, P): inverse of curvature plus the
    prior's. slope (P,), curvature (P, P): first and minus second derivatives of the log likelihood at theta.
    log_posterior: log likelihood plus log prior at theta, normalised.
    """

    theta: np.ndarray
    covariance: np.ndarray
    log_posterior: float
    iterations: int
    log_likelihood: float
    slope: np.ndarray
    curvature: np.ndarray


@dataclass(frozen=True)
class Quadratic:
    """Sum of log B over all rows: c0 + <G, phi> - 1/2 sum_kl A_kl phi_k' S phi_l, phi = theta - theta0 as (K, D).

    theta0 (P,), S (D, D), A (K, K), G (K, D), c0; the same on every rank (docs/math.md 4.2).
    """

    theta0: np.ndarray
    S: np.ndarray
    A: np.ndarray
    G: np.ndarray
    c0: float

    def __call__(self, theta: np.ndarray) -> float:
        phi = (theta - self.theta0).reshape(self.G.shape)
        curved = np.einsum("ij,kj->ki", self.S, phi)
        return self.c0 + float((self.G * phi).sum() - 0.5 * (self.A * np.einsum("ki,li->kl", phi, curved)).sum())


class Objective:
    """Log posterior of all rows at theta, with its gradient and curvature. Every method is collective.

    rows: (shard index, kernels' Rows) of this rank's shards, in order.
    """

    def __init__(self, comm: Communicator, rows, n_shards: int, likelihood: Likelihood, prior: Prior):
        self.comm, self.rows, self.n_shards = comm, [r for _, r in rows], n_shards
        self.likelihood, self.prior = likelihood, prior
        self.theta: np.ndarray | None = None
        self.eta: list[np.ndarray] = []

    def linear(self, theta: np.ndarray) -> list[np.ndarray]:
        """Linear predictors (n, K) of this rank's rows, by shard."""
        return [r.linear(theta) for r in self.rows]

    def move(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Move to theta; return the smooth log posterior (up to a constant) and its gradient (P,), on every rank."""
        self.theta, self.eta = theta, self.linear(theta)
        parts, p = [], len(theta)
        with np.errstate(over="ignore", invalid="ignore"):
            for r, eta in zip(self.rows, self.eta):
                value = self.likelihood.log_density(eta, r.y).sum()
                parts.append(np.append(r.combine(self.likelihood.slope(eta, r.y)).ravel(), value))
        total = shard_sum(self.comm, parts, (p + 1,), self.n_shards)
        if self.comm.rank == 0:
            total[:p] += self.prior.smooth_slope(theta)
            total[p] += self.prior.smooth_log_density(theta)
        self.comm.broadcast(total)
        return float(total[p]), total[:p]

    def log_likelihood(self) -> float:
        """Log likelihood at theta, on every rank."""
        parts = [self.likelihood.log_density(eta, r.y).sum() for r, eta in zip(self.rows, self.eta)]
        return float(shard_sum_everywhere(self.comm, parts, (), self.n_shards))

    def curvature(self) -> np.ndarray:
        """Minus the second derivatives of the log likelihood at theta, (P, P); filled on root alone."""
        d, n_blocks = self.likelihood.n_predictors, self.likelihood.n_curvatures
        parts = [
            np.stack([r.gram(np.ascontiguousarray(w)) for w in self.likelihood.curvature(eta, r.y)])
            for r, eta in zip(self.rows, self.eta)
        ]
        blocks = shard_sum(self.comm, parts, (n_blocks, d, d), self.n_shards)
        return self.likelihood.join_curvatures(blocks)

    def weighted_least_squares(self) -> np.ndarray:
        """Positive definite substitute for the curvature, (D, D); filled on root alone."""
        d = self.likelihood.n_predictors
        parts = [r.gram(self.likelihood.weight(eta, r.y)) for r, eta in zip(self.rows, self.eta)]
        return shard_sum(self.comm, parts, (d, d), self.n_shards)

    def margins(self, direction: np.ndarray) -> tuple[float, float]:
        """Least y x'direction and largest |x'direction| over all rows; y = -1 or 1."""
        mine = [(r.y * eta[:, 0], np.abs(eta[:, 0])) for r, eta in zip(self.rows, self.linear(direction)) if len(eta)]
        each = self.comm.collect([(float(m.min()), float(a.max())) for m, a in mine])
        flat = [margin for rank in each for margin in rank]
        return min(m for m, _ in flat), max(a for _, a in flat)


def fit(
    comm: Communicator,
    rows,
    n_shards: int,
    prior: Prior | str | int,
    prior_scale=None,
    *,
    likelihood: Likelihood | None = None,
    start: np.ndarray | None = None,
    names: Sequence[str] | None = None,
) -> Fit:
    """Find the posterior mode and its curvature. Collective; the same Fit on every rank.

    rows: (shard index, kernels' Rows) of this rank's shards, in order. prior_scale: one number or (P,). likelihood: by
    default that of the rows; given for another scale, say. start: initial theta (P,). names: of the D predictors, for
    messages. Raises DataError if a flat prior leaves no mode (collinear or separable data), NumericalError if the
    iteration fails; on every rank.
    """
    likelihood = likelihood or likelihood_of(comm, rows)
    prior = prior if isinstance(prior, Prior) else Prior.of(prior, prior_scale, likelihood.n_parameters)
    if likelihood.needs_prior and prior.flat.any():
        raise DataError(likelihood.needs_prior)
    objective = Objective(comm, rows, n_shards, likelihood, prior)
    theta = _start(objective, names) if start is None else np.array(start, np.float64)
    value, gradient = objective.move(theta)
    for iteration in range(1, MAX_ITERATIONS + 1):
        step, decrement, curvature = _newton_step(objective, gradient, names)
        if likelihood.separable and prior.flat.any() and iteration >= LOOK_FROM:
            _refuse_separation(objective, theta, step, names)
        if decrement <= CONVERGED:
            break
        length = 1.0
        for _ in range(HALVINGS):
            trial = theta + length * step
            new, new_gradient = objective.move(trial)
            if new >= value + 1e-4 * length * decrement - 1e-13 * abs(value):
                break
            length *= 0.5
        else:
            raise NumericalError("the posterior mode was not found: no step of Newton's method raises the posterior")
        theta, value, gradient = trial, new, new_gradient
    else:
        raise NumericalError(
            f"the posterior mode was not found in {MAX_ITERATIONS} iterations",
            ["is a predictor on a very different scale? set standardise = true, or a gaussian prior"],
        )
    return _finish(objective, theta + step, curvature, iteration)


def bound_statistics(
    comm: Communicator, rows, n_shards: int, theta0: np.ndarray, likelihood: Likelihood | None = None
) -> Quadratic:
    """Sum of the current bounds of `rows`, about theta0. Collective; the same on every rank."""
    likelihood = likelihood or likelihood_of(comm, rows)
    k, d = likelihood.n_classes, likelihood.n_predictors
    parts = []
    for _, r in rows:
        eta, bounds = r.linear(theta0), np.asarray(r.bounds)
        weight, slope = likelihood.bound_terms(eta, r.y, bounds)
        c0 = likelihood.log_bound(eta, r.y, bounds).sum()
        parts.append(np.concatenate([r.gram(np.ascontiguousarray(weight)).ravel(), r.combine(slope).ravel(), [c0]]))
    total = shard_sum_everywhere(comm, parts, (d * d + k * d + 1,), n_shards)
    s, g = total[: d * d].reshape(d, d), total[d * d : -1].reshape(k, d)
    return Quadratic(np.array(theta0, np.float64), s.copy(), likelihood.bound_matrix, g.copy(), float(total[-1]))


def _newton_step(objective: Objective, gradient, names) -> tuple[np.ndarray, float, np.ndarray]:
    """Return (step (P,), Newton decrement) on every rank, and the likelihood's curvature on root."""
    comm, prior, theta = objective.comm, objective.prior, objective.theta
    curvature = objective.curvature()
    solved = np.full(len(theta) + 1, np.nan)
    if comm.rank == 0:
        _solve(curvature + np.diag(prior.smooth_curvature(theta)), gradient, solved)
    comm.broadcast(solved)
    if np.isnan(solved[-1]) and not objective.likelihood.log_concave:
        # far from the mode, use weighted least squares, whose steps always ascend
        weighted = objective.weighted_least_squares()
        if comm.rank == 0:
            _solve(weighted + np.diag(prior.smooth_curvature(theta)), gradient, solved)
        comm.broadcast(solved)
        if solved[-1] <= CONVERGED:
            raise NumericalError(
                "the posterior of the t regression has no curvature at its mode",
                ["too few rows for the predictors, or several modes? set a narrower prior, or a larger scale"],
            )
    if not np.isfinite(solved).all():
        _refuse_singular(objective, names)
    return solved[:-1], float(solved[-1]), curvature


def _solve(matrix: np.ndarray, gradient: np.ndarray, solved: np.ndarray) -> None:
    """Write (step, Newton decrement) into `solved`, unless the matrix is not positive definite."""
    factor = cholesky(matrix)
    if factor is not None:
        solved[:-1] = solve(factor, gradient)
        solved[-1] = (solved[:-1] * gradient).sum()


def _start(objective: Objective, names) -> np.ndarray:
    """Starting point of Newton's method, (P,): for a large table, the mode of every n-th row."""
    comm, likelihood, prior = objective.comm, objective.likelihood, objective.prior
    n_rows = sum(comm.collect(sum(len(r.y) for r in objective.rows)))
    stride = n_rows // max(FEW_ROWS, 20 * likelihood.n_parameters)
    if stride >= 8:
        few = [(0, every(r, stride, likelihood)) for r in objective.rows]
        with contextlib.suppress(NumericalError):
            return fit(comm, few, objective.n_shards, prior.proper(10.0), likelihood=likelihood).theta
    if not likelihood.log_concave:
        return _least_squares(objective, names)
    return np.zeros(likelihood.n_parameters)


def every(rows: Rows, stride: int, likelihood: Likelihood) -> Rows:
    """Every `stride`-th row of a shard, starting with its first."""
    return likelihood.rows(np.ascontiguousarray(rows.x[::stride]), np.ascontiguousarray(rows.y[::stride]))


def _least_squares(objective: Objective, names) -> np.ndarray:
    """Starting point of a t regression: ridge regression with residuals of variance scale^2."""
    comm, d, p = objective.comm, objective.likelihood.n_predictors, objective.likelihood.n_parameters
    parts = [
        np.concatenate([r.gram(np.ones(len(r.y))).ravel(), r.combine(np.array(r.y)[:, None]).ravel()])
        for r in objective.rows
    ]
    total = shard_sum(comm, parts, (d * d + d,), objective.n_shards)
    solved = np.full(p + 1, np.nan)
    if comm.rank == 0:
        ridge = objective.prior.smooth_curvature(np.zeros(p)) * objective.likelihood.scale**2
        _solve(total[: d * d].reshape(d, d) + np.diag(ridge), total[d * d :], solved)
    comm.broadcast(solved)
    if not np.isfinite(solved).all():
        _refuse_singular(objective, names)
    return solved[:-1]


def _finish(objective: Objective, theta, curvature, iterations: int) -> Fit:
    comm, p, prior = objective.comm, len(theta), objective.prior
    _, gradient = objective.move(theta)
    log_likelihood = objective.log_likelihood()
    arrays = np.empty((2 * p + 1, p))
    if comm.rank == 0:
        arrays[0] = gradient - prior.smooth_slope(theta)
        arrays[1 : p + 1] = curvature
        arrays[p + 1 :] = inverse(curvature + np.diag(prior.smooth_curvature(theta)))
    comm.broadcast(arrays)
    slope, curvature, covariance = arrays[0].copy(), arrays[1 : p + 1].copy(), arrays[p + 1 :].copy()
    log_posterior = log_likelihood + float(prior.log_density(theta))
    return Fit(theta, covariance, log_posterior, iterations, log_likelihood, slope, curvature)


def _refuse_separation(objective: Objective, theta, step, names) -> None:
    """Raise DataError if the likelihood rises forever along theta or the step, in coordinates with a flat prior."""
    for vector, tolerance in ((theta, 0.0), (step, SEPARATED)):
        direction = np.where(objective.prior.flat, vector, 0.0)
        least, largest = objective.margins(direction)
        if largest > 0 and (least >= -tolerance * largest if tolerance else least > 0):
            raise DataError(
                "the two classes can be separated by the predictors: with a flat prior the coefficients have no "
                "proper posterior",
                [
                    f"the likelihood keeps rising as these grow: {_largest(direction, names)}",
                    'set prior = "gaussian", or leave these predictors out',
                ],
            )


def _refuse_singular(objective: Objective, names) -> None:
    """Raise DataError naming predictors that are linear combinations of others, or NumericalError."""
    d = objective.likelihood.n_predictors
    gram = shard_sum(objective.comm, [r.gram(np.ones(len(r.y))) for r in objective.rows], (d, d), objective.n_shards)
    combined = objective.comm.share(combinations(gram, names) if objective.comm.rank == 0 else None)
    if combined:
        raise DataError(
            "collinear predictors: with a flat prior their coefficients have no proper posterior",
            [*combined, 'leave these predictors out, or set prior = "gaussian"'],
        )
    raise NumericalError(
        "the posterior mode was not found: the curvature there is singular",
        ['set prior = "gaussian" or a smaller prior_scale'],
    )


def _largest(direction: np.ndarray, names: Sequence[str] | None) -> str:
    order = np.argsort(-np.abs(direction), kind="stable")[:5]
    shown = [j for j in order if abs(direction[j]) > 1e-3 * abs(direction[order[0]])]
    return ", ".join(f"{names[j] if names else f'coefficient {j + 1}'} ({direction[j]:+.3g})" for j in shown)
