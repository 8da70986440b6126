"""Probabilities of a softmax's levels, averaged over the coefficients of a new cluster.

A level is drawn as the one whose eta_l + G_l is the largest, with independent Gumbel variables G_l. If eta_l ~ N(m_l,
s_l^2) are independent, so are these sums, whose densities are f_l and distribution functions F_l: for any number of
levels

    E p_l = integral of f_l(x) prod_{j != l} F_j(x) dx,        F_l(x) = E exp(-exp(eta_l - x)).

Both integrals are trapezoid rules, whose error is about exp(-pi^2 / STEP): 2e-6.
"""

from __future__ import annotations

import functools
import math

import numpy as np

STEP = 0.75  # of x, and of eta where its sd is larger than that
REACH = 5.0  # sd of eta that are summed over; one more (TILT) where small probabilities depend on them
TILT = 1.0
BELOW, ABOVE = 3.5, 15.0  # reach of x beyond eta: exp(-exp(3.5)) and exp(-15) are left out
GRADE = 0.5  # the largest sd of a row's eta is rounded up to a multiple of it, which alone decides its points
WIDEST = 30.0  # if eta has a larger sd, all are divided: which one is largest stays the same
MOST_LOG = 700.0  # exp of it is finite
TOGETHER = 1 << 15  # numbers of several rows that are worked on together, in the processor's cache


def averages(at: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return E p_l, (..., C + 1), for eta ~ N(at, spread^2), (..., C), of all levels but the first, whose eta is 0."""
    at, spread = np.broadcast_arrays(at, spread)
    shape = (*at.shape[:-1], at.shape[-1] + 1)
    at, spread = (x.reshape(-1, x.shape[-1]) for x in (at, spread))
    shrink = np.minimum(1.0, WIDEST / np.maximum(spread.max(axis=1), 1.0))[:, None]
    at, spread = at * shrink, spread * shrink
    out = np.empty((len(at), shape[-1]))
    grades = np.maximum(1.0, np.ceil(spread.max(axis=1) / GRADE))
    for grade in np.unique(grades):
        rows, most = np.flatnonzero(grades == grade), GRADE * float(grade)
        for few in np.array_split(rows, -(-rows.size * _points_of(most) * shape[-1] // TOGETHER)):
            out[few] = _averages(at[few], spread[few], most)
    return out.reshape(shape)


def _reach(most: float) -> float:
    return (REACH + min(most, TILT)) * most


def _points_of(most: float) -> int:
    """Return the number of points of x where sd of eta are at most `most`."""
    return math.ceil((2.0 * _reach(most) + BELOW + ABOVE) / STEP) + 1


def _averages(at: np.ndarray, spread: np.ndarray, most: float) -> np.ndarray:
    """Return `averages` of rows (n, C), whose spread is at most `most`."""
    first = np.maximum(at.max(axis=1), 0.0) - _reach(most) - BELOW
    x = first[:, None] + STEP * np.arange(_points_of(most))
    of_at = np.exp(np.minimum(at[:, :, None] - x[:, None], MOST_LOG))
    below, density, rate, term = np.zeros((4, *of_at.shape))
    for z, weight in zip(*_normal(most)):
        np.multiply(of_at, np.exp(spread * z)[:, :, None], out=rate)
        np.minimum(rate, MOST_LOG, out=rate)
        np.exp(np.negative(rate, out=term), out=term)
        term *= weight
        below += term
        term *= rate
        density += term
    rate = np.exp(np.minimum(-x, MOST_LOG))[:, None]
    below = np.concatenate([np.exp(-rate), below], axis=1)
    density = np.concatenate([rate * below[:, :1], density], axis=1)
    p = (below.prod(axis=1, keepdims=True) * density / np.maximum(below, 1e-300)).sum(axis=2)
    return p / p.sum(axis=1, keepdims=True)


@functools.lru_cache(64)
def _normal(most: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points of a standard normal, and their weights, for functions of eta of sd at most `most`."""
    step = min(1.0, STEP / most)
    n = math.ceil(_reach(most) / most / step)
    z = step * np.arange(-n, n + 1)
    weight = np.exp(-0.5 * z * z)
    return z, weight / weight.sum()


def normal_points(n: int, shift: np.ndarray) -> np.ndarray:
    """Return n points (n, c) that are spread as a standard normal: a sequence by powers of a generalised golden ratio,
    folded by the tent map. Under a uniform shift (c,) each point is a standard normal."""
    from scipy.special import ndtri  # slow to import

    c, ratio = len(shift), 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (c + 1.0))
    share = (shift + np.arange(1.0, n + 1.0)[:, None] * ratio ** -np.arange(1.0, c + 1.0)) % 1.0
    return ndtri((1.0 - np.abs(2.0 * share - 1.0)).clip(1e-12, 1.0 - 1e-12))
