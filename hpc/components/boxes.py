"""Multivariate normal vectors with each variable in a range: probability, and draws given the ranges (docs/math.md
2.12).

One variable, the pivot, is integrated over by Gauss-Legendre; given the pivot the rest are normal again, and sets of
them that are then independent, as on two sides of a tree, are treated separately. Panels are as narrow as the integrand
requires: the edge of another variable's range is steep where it is nearly collinear with the pivot.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)
INTEGRALS = np.array([
    np.polynomial.legendre.legint(row, lbnd=-1) for row in np.eye(len(NODES))
])  # of each Legendre polynomial  # fmt: skip
TO_LEGENDRE = (
    (np.arange(len(NODES))[:, None] + 0.5) * np.polynomial.legendre.legvander(NODES, len(NODES) - 1).T * WEIGHTS
)
FAR, PANEL = 40.0, 0.5  # deviations beyond which the probability is 0; widest panel in deviations
APART = 1e-9  # correlation up to which variables count as independent
AT_ONCE = 1_000_000  # nodes
LOG_2PI = float(np.log(2.0 * np.pi))


def log_box(mean: np.ndarray, covariance: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the log probability of low <= x <= high, (n,), for n normal vectors with means (n, R) and a common
    covariance (R, R). low, high: (n, R)."""
    if len(covariance) == 1:
        scale = np.sqrt(covariance[0, 0])
        return log_interval((low[:, 0] - mean[:, 0]) / scale, (high[:, 0] - mean[:, 0]) / scale)
    total = np.zeros(len(mean))
    for part in _independent(covariance):
        of = mean[:, part], covariance[np.ix_(part, part)], low[:, part], high[:, part]
        if len(part) == 1:
            total += log_box(*of)
            continue
        for rows in _pieces(len(mean)):
            mine = of[0][rows], of[1], of[2][rows], of[3][rows]
            _, at, _, _, log_mass = _along(_pivot(mine), *mine)
            total[rows] += _by_row(len(mine[0]), at, log_mass)
    return total


def draw_in_box(
    mean: np.ndarray, covariance: np.ndarray, low: np.ndarray, high: np.ndarray, u: np.ndarray
) -> np.ndarray:
    """Draw vectors (n, R) given low <= x <= high, from uniforms u (n, R) inside (0, 1). Arguments as in `log_box`."""
    out = np.empty(mean.shape)
    for part in _independent(covariance):
        of = mean[:, part], covariance[np.ix_(part, part)], low[:, part], high[:, part]
        if len(part) == 1:
            out[:, part[0]] = in_interval(*(a.ravel() for a in of), u[:, part[0]])
            continue
        j = _pivot(of)
        others = np.delete(np.arange(len(part)), j)
        x, slope, rest = np.empty(len(mean)), of[1][others, j] / of[1][j, j], _given(of[1], j)
        for rows in _pieces(len(mean)):
            mine = of[0][rows], of[1], of[2][rows], of[3][rows]
            x[rows] = _drawn(*_along(j, *mine)[1:], u[rows, part[j]])
        x = np.clip(x, of[2][:, j], of[3][:, j])
        shifted = of[0][:, others] + (x - of[0][:, j])[:, None] * slope
        out[:, part[j]] = x
        out[:, np.array(part)[others]] = draw_in_box(
            shifted, rest, of[2][:, others], of[3][:, others], u[:, np.array(part)[others]]
        )
    return out


def log_interval(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the log probability of a <= z <= b for a standard normal z."""
    from scipy.special import log_ndtr  # slow to import

    with np.errstate(invalid="ignore", divide="ignore"):
        above = a + b > 0.0  # the other tail keeps the digits
        first, last = np.where(above, -b, a), np.where(above, -a, b)
        top = log_ndtr(last)
        return np.where(first < last, top + np.log1p(-np.exp(log_ndtr(first) - top)), -np.inf)


def in_interval(mean, variance, low, high, u) -> np.ndarray:
    """Draw normal numbers (n,) given low <= x <= high, from uniforms u (n,) inside (0, 1)."""
    from scipy.special import log_ndtr, ndtri_exp  # slow to import

    scale = np.sqrt(variance)
    a, b = (low - mean) / scale, (high - mean) / scale
    with np.errstate(invalid="ignore"):
        above = a + b > 0.0
    first, last, u = np.where(above, -b, a), np.where(above, -a, b), np.where(above, 1.0 - u, u)
    z = ndtri_exp(np.minimum(np.logaddexp(log_ndtr(first), np.log(u) + log_interval(first, last)), 0.0))
    return np.clip(mean + scale * np.where(above, -z, z), low, high)


def _independent(covariance: np.ndarray) -> list[list[int]]:
    """Split the variables into mutually independent sets."""
    scale, left, parts = np.sqrt(np.diagonal(covariance)), list(range(len(covariance))), []
    while left:
        part = [left.pop(0)]
        for i in part:  # the list grows as it is read
            near = [j for j in left if abs(covariance[i, j]) > APART * scale[i] * scale[j]]
            part += near
            left = [j for j in left if j not in near]
        parts.append(sorted(part))
    return parts


def _given(covariance: np.ndarray, j: int) -> np.ndarray:
    """Return the covariance of the other variables given variable j."""
    others, cross = np.delete(np.arange(len(covariance)), j), np.delete(covariance[:, j], j)
    rest = covariance[np.ix_(others, others)] - np.outer(cross, cross) / covariance[j, j]
    i = np.arange(len(others))
    rest[i, i] = np.maximum(rest[i, i], 1e-14 * np.diagonal(covariance)[others])  # rounding can leave nothing
    return rest


def _pivot(of: tuple) -> int:
    """Return the variable to integrate over: the one that leaves the smallest dependent sets, then the narrowest."""
    _, covariance, low, high = of
    width = np.mean(np.minimum((high - low) / np.sqrt(np.diagonal(covariance)), 2.0 * FAR), axis=0)
    left = [max(map(len, _independent(_given(covariance, j)))) for j in range(len(covariance))]
    return min(range(len(covariance)), key=lambda j: (left[j], width[j]))


def _along(
    j: int, mean: np.ndarray, covariance: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return j, and the panels of variable j: row (P,), ascending; start and half-width (P,); log of weight times
    integrand at the nodes (P, G)."""
    others, scale = np.delete(np.arange(len(covariance)), j), np.sqrt(covariance[j, j])
    slope, rest = covariance[others, j] / covariance[j, j], _given(covariance, j)
    edges = [mean[:, [j]] + scale * np.arange(-FAR, FAR + PANEL, PANEL)]
    for o, b, wide in zip(others, slope, np.sqrt(np.diagonal(rest))):
        if abs(b) * PANEL * scale > wide:  # an edge narrower than a panel
            step = wide / abs(b)
            sides = step * np.append(0.0, 2.0 ** np.arange(np.ceil(np.log2(PANEL * scale / step)) + 1.0))
            for bound in (low, high):
                at = mean[:, [j]] + (bound[:, [o]] - mean[:, [o]]) / b
                edges += [np.nan_to_num(at, posinf=np.inf, neginf=-np.inf) + of for of in (-sides, sides)]
    first, last = (np.clip(end[:, j], mean[:, j] - FAR * scale, mean[:, j] + FAR * scale) for end in (low, high))
    ends = np.sort(
        np.clip(np.concatenate([*edges, first[:, None], last[:, None]], axis=1), first[:, None], last[:, None])
    )
    at, panel = np.nonzero(np.diff(ends) > 0.0)
    start, half = ends[at, panel], 0.5 * (ends[at, panel + 1] - ends[at, panel])
    x = start[:, None] + half[:, None] * (1.0 + NODES)
    rows, z = np.repeat(at, len(NODES)), (x - mean[at, j][:, None]) / scale
    shifted = mean[rows][:, others] + scale * z.ravel()[:, None] * slope
    inner = log_box(shifted, rest, low[rows][:, others], high[rows][:, others]).reshape(x.shape)
    density = inner - 0.5 * (z * z + LOG_2PI) - np.log(scale)
    return j, at, start, half, density + np.log(half[:, None] * WEIGHTS)


def _by_row(n: int, at: np.ndarray, log: np.ndarray) -> np.ndarray:
    """Return the logs of sums over the panels of each row, (n,)."""
    top = np.full(n, -np.inf)
    np.maximum.at(top, at, log.max(axis=1))
    base = np.where(np.isfinite(top), top, 0.0)
    total = np.bincount(at, np.exp(log - base[at][:, None]).sum(axis=1), n)
    with np.errstate(divide="ignore"):
        return base + np.log(total)


def _drawn(at: np.ndarray, start: np.ndarray, half: np.ndarray, log_mass: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Draw a value for each row, with the density in a panel a polynomial through its values at the nodes."""
    n = len(u)
    top = np.full(n, -np.inf)
    np.maximum.at(top, at, log_mass.max(axis=1))
    mass = np.exp(log_mass - np.where(np.isfinite(top), top, 0.0)[at][:, None])
    if not len(at):  # every row has probability 0
        return np.zeros(n)
    total, before = np.bincount(at, mass.sum(axis=1), n), mass.sum(axis=1).cumsum()
    offset = np.append(0.0, np.bincount(at, mass.sum(axis=1), n).cumsum())
    target = np.minimum(offset[:-1] + u * total, offset[1:] * (1.0 - 1e-15))
    panel = np.minimum(np.searchsorted(before, target), len(at) - 1)
    panel = np.clip(panel, np.searchsorted(at, np.arange(n)), np.searchsorted(at, np.arange(n), "right") - 1)
    share = target - (before[panel] - mass[panel].sum(axis=1))
    below = TO_LEGENDRE @ (mass[panel] / WEIGHTS).T  # Legendre coefficients of the density, (G, n)
    below = INTEGRALS.T @ below
    t0, t1 = np.full(n, -1.0), np.ones(n)
    for _ in range(48):
        t = 0.5 * (t0 + t1)
        small = np.polynomial.legendre.legval(t, below, tensor=False) < share
        t0, t1 = np.where(small, t, t0), np.where(small, t1, t)
    return start[panel] + half[panel] * (1.0 + 0.5 * (t0 + t1))


def _pieces(n: int) -> Iterator[slice]:
    step = max(1, AT_ONCE // (200 * len(NODES)))
    return (slice(i, min(i + step, n)) for i in range(0, n, step))
