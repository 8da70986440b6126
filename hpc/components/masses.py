"""Log probabilities that a number is in an interval, or log densities of its value.

An interval of width 0 is a value, and its "probability" is the density. Intervals keep their digits in the tails: a
narrow one is density times width, a wide one a difference of distribution functions on the side where they are small.
"""

from __future__ import annotations

import numpy as np

from mpibayes.io import recording
from mpibayes.io.rows import Column
from mpibayes.kernels.common.functions import gammaln

NARROW, WIDE = 0.03, 0.5  # widths, in units of the scale, up to which one point, or three, will do for the integral
TINY = 1e-290  # a probability below it has lost digits
LOG_2PI = float(np.log(2.0 * np.pi))
NODES, WEIGHTS = np.polynomial.legendre.leggauss(3)


def log_t(location, scale, nu, low, high) -> np.ndarray:
    """Return the log probability of low <= x <= high under t distributions, or normal ones if every nu is infinite; log
    density where low == high. Arguments broadcast.

    >>> float(np.round(np.exp(log_t(0.0, 1.0, np.array([1.0]), -1.0, 1.0))[0], 6)) 0.5
    """
    a, b, normal = (low - location) / scale, (high - location) / scale, np.isinf(nu).all()
    constant = -0.5 * LOG_2PI
    if not normal:
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu)
    with np.errstate(invalid="ignore"):
        width = b - a
    wide = width > WIDE
    if wide.all():
        return log_between(a, b, nu)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle, size = 0.5 * (a + b), np.where(width > 0.0, np.log(width), -np.log(scale))
        if width.max() <= NARROW:
            if normal:
                return constant + size - 0.5 * middle * middle
            return constant + size - 0.5 * (nu + 1.0) * np.log(1.0 + middle * middle / nu)
        squares = ((middle + 0.5 * node * width) ** 2 for node in NODES)
        if normal:
            powers = [-0.5 * p for p in squares]
        else:
            powers = [-0.5 * (nu + 1.0) * np.log(1.0 + p) for p in (p / nu for p in squares)]
        total = sum(np.exp(e) * (0.5 * w) for e, w in zip(powers, WEIGHTS))
        narrow = constant + size + np.log(total)
        if (total < TINY).any():
            top = np.maximum.reduce(powers)
            far = constant + size + top + np.log(sum(np.exp(e - top) * (0.5 * w) for e, w in zip(powers, WEIGHTS)))
            narrow = np.where((total < TINY) & np.isfinite(top), far, narrow)
    if not wide.any():
        return narrow
    a, b, nu = (np.broadcast_to(x, wide.shape)[wide] for x in (a, b, nu))
    narrow[wide] = log_between(a, b, nu)
    return narrow


def log_between(a, b, nu) -> np.ndarray:
    """Return the log probability of a <= t <= b under standard t distributions, as a difference of distribution
    functions."""
    from scipy.special import log_ndtr, ndtr, stdtr  # slow to import

    with np.errstate(divide="ignore", invalid="ignore"):
        right = a + b > 0.0  # the mirror image is in the left tail
        a, b = np.where(right, -b, a), np.where(right, -a, b)
        if np.isinf(nu).all():
            p = ndtr(b) - ndtr(a)
            if not (p < TINY).any():
                return np.log(p)
            below = log_ndtr(b)
            far = below + np.log1p(-np.exp(log_ndtr(a) - below))
            return np.where((p < TINY) & np.isfinite(below), far, np.log(p))
        return np.log(stdtr(nu, b) - stdtr(nu, a))


def log_negative_binomial(shape, rate, low, high) -> np.ndarray:
    """Return the log probability of low <= x <= high, whole numbers, for a Poisson count whose mean is Gamma(shape,
    rate). Arguments broadcast."""
    if np.array_equal(low, high):
        p = low * -np.log1p(rate) + shape * -np.log1p(1.0 / rate)
        return p + gammaln(shape + low) - gammaln(shape) - gammaln(low + 1.0)
    from scipy.special import betainc  # slow to import

    p, last = rate / (rate + 1.0), np.where(np.isfinite(high), high, 1e300)
    first = np.maximum(low, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = betainc(shape, last + 1.0, p) - np.where(first > 0.0, betainc(shape, np.maximum(first, 1.0), p), 0.0)
        above = np.where(first > 0.0, betainc(np.maximum(first, 1.0), shape, 1.0 - p), 1.0)
        above = above - np.where(np.isfinite(high), betainc(last + 1.0, shape, 1.0 - p), 0.0)
        return np.log(np.maximum(np.where(above < 0.5, above, below), 0.0))


def log_real(column: Column, location, scale, nu, low, high) -> np.ndarray:
    """Return the log probability that a column's recorded number is from low to high under t distributions on the
    model's scale; log density where low == high. Arguments broadcast."""
    if not column.log and column.shape is None:
        return log_t(location, scale, nu, low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        low_, high_ = (np.maximum(low, 0.0), high) if column.log else (low, high)
        first, last = recording.coordinate(column, low_), recording.coordinate(column, high_)
        result = log_t(location, scale, nu, first, last)
        return np.where(low == high, result + recording.log_slope(column, last), result)
