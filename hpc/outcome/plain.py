"""Regression of an outcome without clusters, for comparison: posterior mode of its coefficients, and standard errors.

All coefficients but the intercept have the prior N(0, SD^2), just enough to keep them finite if classes are separated.
The prior is one of predictors and numbers in standard deviations, so that units do not matter; indicators are 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.outcome.baseline import Baseline
from mpibayes.hpc.outcome.likelihoods import Likelihood

SD, WIDE = 2.5, 100.0  # prior sd of coefficients, and of the intercept
STEP = 1e-4  # step of finite differences in eta and in the log of the scale
STEPS, ENOUGH = 50, 1e-6  # most Newton steps, and the gain in nats below which they end
HALVINGS = 20
SMALL = 1e-4  # change of all coefficients below which a baseline has its last fit
PIECE = 16_384  # rows whose products are formed together
LBFGS = {"maxiter": 500, "ftol": 1e-12, "gtol": 1e-4}
WITH_ERRORS = 2_000  # most coefficients of a softmax regression that get standard errors, else NaN
TOGETHER = 1 << 22  # numbers of several rows in memory together


@dataclass(frozen=True)
class Plain:
    """Fitted coefficients (q,), the first of the constant 1, and their standard errors; of a softmax (C, q). nu, scale:
    of a number."""

    likelihood: type[Likelihood] | Baseline
    coefficients: np.ndarray
    errors: np.ndarray
    nu: float
    scale: float

    def log_density(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return log L of the rows, (n,)."""
        return self.likelihood.log_density(x @ self.coefficients.T, y, self.nu, self.scale)

    def expectations(self, x: np.ndarray) -> np.ndarray:
        """Return the mean of each row's outcome, or the probability of its second class, (n,); of a softmax of all
        levels, (n, C + 1)."""
        return self.likelihood.expectation(x @ self.coefficients.T)


def fit(
    likelihood: type[Likelihood] | Baseline,
    x: np.ndarray,
    y: np.ndarray,
    nu: float,
    n_eta: int = 1,
    errors: bool = True,
) -> Plain:
    """Fit the regression. x (n, q) float32: predictors, the first column is 1; y (n,): outcome, nothing missing.
    errors: False if a softmax needs none, for their cost grows with the square of the number of coefficients."""
    if isinstance(likelihood, Baseline):
        return _of_times(likelihood, x, y)
    if likelihood.of_levels:
        return _of_levels(likelihood, x, y, n_eta, errors)
    if not likelihood.has_scale:
        return _fit(likelihood, x, y, nu)
    middle, unit = float(y.mean()), float(y.std()) or 1.0
    of = _fit(likelihood, x, (y - middle) / unit, nu)
    coefficients = unit * of.coefficients
    coefficients[0] += middle
    return Plain(likelihood, coefficients, unit * of.errors, nu, unit * of.scale)


def _of_times(baseline: Baseline, x: np.ndarray, times: np.ndarray) -> Plain:
    """Fit coefficients and baseline in turn; errors are those given the baseline."""
    of = Plain(baseline.fitted(times, np.zeros(len(x))), np.zeros(x.shape[1]), np.zeros(x.shape[1]), 0.0, 1.0)
    for _ in range(STEPS):
        before = of.coefficients
        of = _fit(of.likelihood, x, times, 0.0)
        of = replace(of, likelihood=baseline.fitted(times, x[:, 1:] @ of.coefficients[1:]))
        of.coefficients[0] = 0.0  # the baseline has the level
        if np.abs(of.coefficients - before).max() < SMALL:
            break
    return of


def _fit(likelihood: type[Likelihood] | Baseline, x: np.ndarray, y: np.ndarray, nu: float) -> Plain:
    """Fit the regression to numbers in standard deviations about their mean."""
    n, q = x.shape
    precision = _precision(x)
    mean = float(y.mean())
    scale = max(float(y.std()), 1e-6) if likelihood.has_scale else 1.0
    coefficients = np.zeros(q)
    coefficients[:1] = likelihood.centre([mean * n / (n + 2.0) if likelihood.of_classes else mean])

    def value(at: np.ndarray, eta: np.ndarray, scale: float) -> float:
        log_density = likelihood.log_density(eta, y, nu, scale)
        return float(log_density.sum()) - 0.5 * float(precision @ at**2)

    eta = x @ coefficients
    best = value(coefficients, eta, scale)
    for _ in range(STEPS):
        before = best
        slope, weight = _slopes(lambda e, s=scale: likelihood.log_density(e, y, nu, s), eta)
        step = np.linalg.solve(_gram(x, weight) + np.diag(precision), x.T @ slope - precision * coefficients)
        size = 1.0
        for _ in range(HALVINGS):
            trial = coefficients + size * step
            eta_there = x @ trial
            there = value(trial, eta_there, scale)
            if there >= best:
                coefficients, eta, best = trial, eta_there, there
                break
            size *= 0.5
        if likelihood.has_scale:
            scale, best = _scaled(lambda s, a=coefficients, e=eta: value(a, e, s), scale, best)
        if best - before < ENOUGH:
            break
    _, weight = _slopes(lambda e: likelihood.log_density(e, y, nu, scale), eta)
    covariance = np.linalg.inv(_gram(x, weight) + np.diag(precision))
    return Plain(likelihood, coefficients, np.sqrt(np.diag(covariance)), nu, scale)


def _of_levels(likelihood: type[Likelihood], x: np.ndarray, y: np.ndarray, n_eta: int, with_errors: bool) -> Plain:
    """Fit a softmax regression by L-BFGS, in coordinates in which the predictors' products are an identity."""
    from scipy.optimize import minimize  # slow to import

    precision, pieces = _precision(x), [slice(i, i + PIECE) for i in range(0, len(x), PIECE)]
    q, bound = len(precision), 0.25 * _gram(x, np.ones(len(x))) + np.diag(precision)
    inverse = np.linalg.inv(np.linalg.cholesky(bound))

    def value_and_slope(point: np.ndarray) -> tuple[float, np.ndarray]:
        coefficients = point.reshape(n_eta, q) @ inverse
        value, slope = 0.5 * float((precision * coefficients**2).sum()), precision * coefficients
        for rows in pieces:
            log_p = likelihood.log_probabilities(x[rows] @ coefficients.T)
            own = y[rows, None] == np.arange(1.0, n_eta + 1.0)
            value -= float(np.take_along_axis(log_p, y[rows, None].astype(np.intp), axis=1).sum())
            slope += (np.exp(log_p[:, 1:]) - own).T @ x[rows]
        return value, (slope @ inverse.T).ravel()

    best = minimize(value_and_slope, np.zeros(n_eta * q), jac=True, method="L-BFGS-B", options=LBFGS)
    coefficients = best.x.reshape(n_eta, q) @ inverse
    errors = np.full((n_eta, q), np.nan)
    if with_errors and n_eta * q <= WITH_ERRORS:
        bend = _bend(x, likelihood.expectation(x @ coefficients.T)[:, 1:], precision)
        errors = np.sqrt(np.diag(np.linalg.inv(bend))).reshape(n_eta, q)
    return Plain(likelihood, coefficients, errors, 0.0, 1.0)


def _bend(x: np.ndarray, p: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Return minus the second derivatives of a softmax's log density, (C q, C q): the sum of (diag p - p p') (x) x x'
    over rows with probabilities p (n, C), and the prior's."""
    c, q = p.shape[1], x.shape[1]
    bend, step = np.zeros((c, q, c, q)), max(1, TOGETHER // (c * q))
    of_all = bend.reshape(c * q, c * q)
    for rows in (slice(i, i + step) for i in range(0, len(x), step)):
        each = (p[rows, :, None] * x[rows, None, :]).reshape(-1, c * q)
        of_all -= each.T @ each
    for d in range(c):
        bend[d, :, d] += _gram(x, p[:, d]) + np.diag(precision)
    return of_all


def _precision(x: np.ndarray) -> np.ndarray:
    """Return the prior precision of each coefficient, (q,)."""
    at, size = _units(x)
    precision = (size / SD) ** 2
    precision[0] = WIDE**-2.0 / (1.0 + ((at / size)[1:] ** 2).sum())  # where predictors are 0, which may be far away
    return precision


def _units(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and standard deviations of predictors, (q,) each; 0 and 1 for those that are only 0 or 1."""
    pieces = [x[i : i + PIECE] for i in range(0, len(x), PIECE)]
    mean = sum(piece.sum(axis=0, dtype=np.float64) for piece in pieces) / len(x)
    square = sum(((piece - mean) ** 2).sum(axis=0) for piece in pieces) / len(x)
    counts = ~np.all([((piece == 0) | (piece == 1)).all(axis=0) for piece in pieces], axis=0) & (square > 0.0)
    return np.where(counts, mean, 0.0), np.where(counts, np.sqrt(square), 1.0)


def _slopes(of: Callable[[np.ndarray], np.ndarray], eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first derivatives of log L in eta and minus the second, (n,) each, by differences. The latter are 0
    where log L is convex, as for a t far from its mode."""
    below, here, above = of(eta - STEP), of(eta), of(eta + STEP)
    return (above - below) / (2.0 * STEP), np.maximum((2.0 * here - below - above) / STEP**2, 0.0)


def _gram(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the sum of w v v' over the rows v of x."""
    total = np.zeros((x.shape[1], x.shape[1]))
    for rows in (slice(i, i + PIECE) for i in range(0, len(x), PIECE)):
        piece = x[rows].astype(np.float64)
        total += piece.T @ (weight[rows, None] * piece)
    return total


def _scaled(of: Callable[[float], float], scale: float, best: float) -> tuple[float, float]:
    """Improve the scale by a Newton step in its log; return it and the log density there."""
    below, above = of(scale * math.exp(-STEP)), of(scale * math.exp(STEP))
    bend = (2.0 * best - below - above) / STEP**2
    step = (above - below) / (2.0 * STEP) / bend if bend > 0.0 else math.copysign(1.0, above - below)
    for _ in range(HALVINGS):
        there = of(scale * math.exp(max(-1.0, min(1.0, step))))
        if there >= best:
            return scale * math.exp(max(-1.0, min(1.0, step))), there
        step *= 0.5
    return scale, best
