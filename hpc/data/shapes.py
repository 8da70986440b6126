"""Fit coordinates of real columns (`io.shape`) to the training rows at the first start of a run, by maximum likelihood,
as if the rows were one population, and decide which columns keep them (docs/math.md 1.8).

A mixture of normals cuts one skewed or long-tailed population into clusters. Coordinates in which it is normal prevent
that; they do harm if the shape comes from several populations. So they are used only if

* they draw tails in: tail <= MOST_TAIL;
* they gain more than log(n)/n nats a cell over the better of one normal and one log-normal;
* their BIC is at most SLACK nats a cell worse than that of the best of one to three normals;
* with views, they differ from a standard normal by at most MOST_MISFIT: a column in a view of its own gets clusters
  for what the form misses, such as hard edges, once there are enough cells to see it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from mpibayes.hpc.data.rows import Data
from mpibayes.io.shape import Shape

MOST_TAIL = 1.3  # 95 % of simulated single normal populations stay below
HOPELESS = 2.0  # if the fit of FEW cells has this tail, all cells are not fitted: their tail is hardly ever less
SLACK = 0.03
NORMALS = (1, 2, 3)
MOST_MISFIT = 0.8  # 98 % of simulated populations of this form stay below
FEWEST_CELLS = 50
MOST_ROWS = 10_000  # most rows examined, evenly spaced
MOST_CELLS = 1_000  # most cells for comparing mixtures of normals, evenly spaced in order
DIGITS = 12  # kept of each fitted number
FEW = 500  # cells of the first fit, evenly spaced in order
NEWTON, DAMPED, APART, CONVERGED = 100, 30, 1e-5, 1e-10  # Newton steps, tries of each, finite differences; nats a cell
ROUNDS, ENOUGH = 300, 1e-7  # rounds of EM, and the gain in nats a cell that ends them
SPREADS = (1e-140, 1e140)  # least and largest: squares outside are 0 or infinite
LEAST_DEVIATION = 1e-3  # of a normal in a mixture, relative to all cells
BOUNDS = ((-10.0, 10.0), (-7.0, 5.0), (-8.0, 8.0), (-3.0, 3.0))  # of center, log scale, skew and log tail
LOG_2_PI = float(np.log(2.0 * np.pi))


def fit_shapes(data: Data, views: bool, left_out: Collection[str] = ()) -> dict[str, Shape]:
    """Return by name the coordinates of the real columns that pass.

    views: True if the model has several. left_out: columns to model as recorded, in addition to those in blocks.
    """
    columns = [c for c in data.columns if c.block == "reals" and c.name not in left_out]
    if not columns or data.n_rows < FEWEST_CELLS:
        return {}
    places = np.unique(np.linspace(0, data.n_rows - 1, min(data.n_rows, MOST_ROWS)).astype(np.int64))
    rows = data.rows_at(places)
    fitted = {c.name: shape_of(rows.reals[:, c.index], c.log, views) for c in columns}
    return {name: shape for name, shape in fitted.items() if shape is not None}


def shape_of(t: np.ndarray, log: bool = False, views: bool = False) -> Shape | None:
    """Return the coordinates of a column with cells t (n,) on its scale, NaN if missing; None if they do not pass.

    log: True if t are logarithms. views: True if the column may have a view of its own.
    """
    t = np.sort(t[~np.isnan(t)])
    n = len(t)
    if n < FEWEST_CELLS or not SPREADS[0] < float(t[-1]) - float(t[0]) < SPREADS[1]:
        return None
    shape = maximum_likelihood(t)
    if shape.tail > MOST_TAIL or log_density(shape, t).mean() - _best_of_one(t, log) <= np.log(n) / n:
        return None
    if views and misfit(shape, t) > MOST_MISFIT:
        return None
    sample = t[np.unique(np.linspace(0, n - 1, min(n, MOST_CELLS)).astype(np.int64))]
    penalty = 0.5 * np.log(n) / n  # per parameter
    best = max(log_normals(sample, k) - (3 * k - 1) * penalty for k in NORMALS)
    return shape if log_density(shape, sample).mean() - 4 * penalty >= best - SLACK else None


def misfit(shape: Shape, t: np.ndarray) -> float:
    """Distance of the coordinates of t (n,) from standard normal: sqrt(n) times the largest difference of the
    distribution functions (Kolmogorov), at the middle of the steps of the empirical one."""
    from scipy.special import ndtr  # slow to import

    value, times = np.unique(t, return_counts=True)
    middle = (np.cumsum(times) - 0.5 * times) / len(t)
    return float(np.sqrt(len(t)) * np.abs(ndtr(shape.coordinate(value)) - middle).max())


def _best_of_one(t: np.ndarray, log: bool) -> float:
    """Mean log density of t under the better of one normal and one log-normal for the column's values."""
    if log:
        return max(_log_normal(np.exp(t - t.mean())), _log_normal(t))  # in a unit where no square is 0 or infinite
    scores = [_log_normal(t)]
    if t[0] > 0.0:
        scores.append(_log_normal(np.log(t)) - float(np.log(t).mean()))
    return max(scores)


def _log_normal(t: np.ndarray) -> float:
    """Mean log density of t under its maximum likelihood normal."""
    return float(-0.5 * (LOG_2_PI + 1.0) - np.log(t.std()))


def log_density(shape: Shape, t: np.ndarray) -> np.ndarray:
    """Log density of t (n,) if its coordinate is standard normal."""
    y = shape.coordinate(t)
    return shape.log_slope(y) - 0.5 * (y * y + LOG_2_PI)


def maximum_likelihood(t: np.ndarray) -> Shape:
    """Coordinates in which t (n,), ascending, is closest to standard normal, rounded to DIGITS; fitted to FEW of the
    cells alone if these are HOPELESS."""
    middle, spread = float(t.mean()), float(t.std())
    x = (t - middle) / spread
    few = x[np.unique(np.linspace(0, len(x) - 1, min(len(x), FEW)).astype(np.int64))]
    fitted = _least(lambda p: _loss(p, few), np.zeros(4))  # start: y = (t - mean) / deviation, tail 1, skew 0
    if fitted[3] < np.log(HOPELESS):
        fitted = _least(lambda p: _loss(p, x), fitted)
    m, log_s, skew, log_tail = fitted
    numbers = middle + spread * m, spread * np.exp(log_s), skew, np.exp(log_tail)
    return Shape(*(float(f"{number:.{DIGITS}g}") for number in numbers))


def _least(loss: Callable[[np.ndarray], tuple[Any, np.ndarray]], p: np.ndarray) -> np.ndarray:
    """Minimise the loss near p within BOUNDS by Newton's method: the Hessian from differences of the gradient, its
    eigenvalues made positive, steps damped until they descend. Parameters that the gradient presses against a bound
    stay there. (scipy.optimize takes a third of a second to import.)"""
    low, high = np.array(BOUNDS).T
    value, gradient = loss(p)
    damping, gain = 1e-3, np.inf
    for _ in range(NEWTON):
        free = ~(((p <= low) & (gradient > 0.0)) | ((p >= high) & (gradient < 0.0)))
        if gain < CONVERGED or not free.any():
            break
        apart = APART * np.eye(len(p))[free]
        slopes = loss(np.concatenate([p + apart, p - apart]))[1]
        hessian = ((slopes[: len(apart)] - slopes[len(apart) :]) / (2.0 * APART))[:, free]
        curvature, axes = np.linalg.eigh(0.5 * (hessian + hessian.T))
        curvature = np.maximum(np.abs(curvature), 1e-8)
        for _ in range(DAMPED):
            step = np.zeros(len(p))
            step[free] = -(axes / (curvature + damping)) @ (axes.T @ gradient[free])
            there = np.clip(p + step, low, high)
            new, slope = loss(there)
            if new < value:
                break
            damping *= 8.0
        else:
            break
        p, value, gradient, gain = there, new, slope, value - new
        damping /= 8.0
    return p


def _loss(parameters: np.ndarray, x: np.ndarray) -> tuple[Any, np.ndarray]:
    """Minus the mean log density of x (n,) up to a constant, (...,), and its gradient by center, log scale, skew and
    log tail (..., 4), at parameters (4,); at several (k, 4) the gradient alone, which is all that differences need."""
    m, log_s, skew, log_tail = parameters.T[..., None]
    s, tail = np.exp(log_s), np.exp(log_tail)
    z = (x - m) / s
    a, root = np.arcsinh(z), np.hypot(1.0, z)
    u = np.clip(tail * a - skew, -300.0, 300.0)
    y, slope = np.sinh(u), np.cosh(u)
    by_u = np.tanh(u) - y * slope
    by_z = by_u * tail / root - z / (root * root)
    means = [np.add.reduce(t, -1) / x.size for t in (by_z, z * by_z, by_u, by_u * tail * a)]
    gradient = np.array([means[0] / s[..., 0], means[1] + 1.0, means[2], -means[3] - 1.0]).T
    if parameters.ndim > 1:
        return None, gradient
    score = np.log(slope) - 0.5 * y * y + log_tail - log_s - np.log(root)
    return -score.mean(), gradient


def log_normals(t: np.ndarray, k: int) -> float:
    """Mean log density of t, ascending, under the best mixture of k normals that EM finds from two starts: equal parts
    in order, and a wide normal around narrower ones."""
    if k == 1:
        return _log_normal(t)
    parts = np.array_split(t, k)
    around = [t, *np.array_split(t[len(t) // 10 : -(len(t) // 10)], k - 1)]
    return max(_expectation_maximisation(t, of) for of in (parts, around))


def _expectation_maximisation(t: np.ndarray, parts: list[np.ndarray]) -> float:
    least = LEAST_DEVIATION * t.std()
    mean, sd = np.array([p.mean() for p in parts]), np.array([max(p.std(), least) for p in parts])
    weight, score = np.full(len(parts), 1.0 / len(parts)), -np.inf
    for _ in range(ROUNDS):
        log = np.log(weight / sd) - 0.5 * (((t[:, None] - mean) / sd) ** 2 + LOG_2_PI)
        total = np.logaddexp.reduce(log, axis=1)
        last, score = score, float(total.mean())
        if score - last < ENOUGH:
            break
        share = np.exp(log - total[:, None])
        n = np.maximum(share.sum(axis=0), 1e-12)
        weight, mean = n / len(t), (share * t[:, None]).sum(axis=0) / n
        sd = np.maximum(np.sqrt((share * (t[:, None] - mean) ** 2).sum(axis=0) / n), least)
    return score
