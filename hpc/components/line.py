"""A real column that depends on another one in a line: a regression in each cluster, with a conjugate prior
(docs/math.md 1.10).

    x | u = a + b (u - m) + noise,  noise ~ N(0, s2),  s2 ~ Inv-chi2(nu, variance),
    a | s2 ~ N(mean, s2 / kappa),   b | s2 ~ N(0, s2 / (kappa^2 v))

for the parent u of mean m and variance v in the whole table. It equals the conditional law of the second column given
the first in a block of both (block.py), with S_0 = diag(kappa^2 v, nu variance) and nu degrees of freedom: statistics
and kernels are those of such a block with its first column given. Hyperparameters are (kappa, nu, variance), on the
grids of a normal column; mean is the column's own unless given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpibayes.errors import NumericalError
from mpibayes.hpc.components import normal
from mpibayes.hpc.components.grid import NO_WEIGHT, as_grid
from mpibayes.io.rows import Column
from mpibayes.kernels.mixture import updates

KAPPA, NU, VARIANCE = range(3)


def grids(column: Column, prior: Mapping[str, Any]) -> list[np.ndarray]:
    """Grids of the hyperparameters of a real column with this prior, in the order of `normal.NAMES`."""
    return [as_grid(prior[name]) if name in prior else g for name, g in zip(normal.NAMES, normal.default_grids(column))]


def mean_of(column: Column, prior: Mapping[str, Any]) -> float:
    """Prior mean of a column where its parent is at its mean."""
    given = as_grid(prior["mean"]) if "mean" in prior else ()
    return float(given[0]) if len(given) == 1 else column.center


class Posterior(NamedTuple):
    """Posterior of clusters, arrays of one shape: locations of both columns (given, location), kappa, nu, and of S_n
    the first pivot, the slope of the second column on the first, and the second pivot (rest)."""

    given: Any
    location: Any
    kappa: Any
    nu: Any
    first: Any
    slope: Any
    rest: Any


def posterior(kappa0, nu0, variance, square, middle, mean0, n, u, x, uu, ux, xx) -> Posterior:
    """Posterior given square, middle: the parent's variance and mean; n, u, x: count and means; uu, ux, xx: sums of
    products about the means. All arguments broadcast."""
    kappa, nu, weight = kappa0 + n, nu0 + n, n * kappa0 / (kappa0 + n)
    of_u, of_x = (np.where(n > 0, a - b, 0.0) for a, b in ((u, middle), (x, mean0)))
    first = kappa0**2 * square + uu + weight * of_u * of_u
    cross = ux + weight * of_u * of_x
    slope, least = cross / first, nu0 * variance
    rest = np.maximum(least + xx + weight * of_x * of_x - slope * cross, least)  # only rounding puts it below
    return Posterior(middle + of_u * (n / kappa), mean0 + of_x * (n / kappa), kappa, nu, first, slope, rest)


class Line:
    """A column that depends on another in a line, with the methods of a `block.Block` of two columns, the parent
    first."""

    width = 2

    def __init__(self, column: Column, prior: Mapping[str, Any] | None):
        parent = column.leans_on
        assert parent is not None
        self.column, self.name, self.columns = column, column.name, (column.name,)
        self._parent = np.array([[parent.scale**2], [parent.center]])
        self._square, self._middle, self._mean = parent.scale**2, parent.center, mean_of(column, prior or {})
        self.mean = np.array([parent.center, self._mean])
        self.grids = grids(column, prior or {})[1:]
        aims = (normal.START[normal.KAPPA], normal.START[normal.NU], column.scale**2 * normal.START[normal.VARIANCE])
        self.start = [g[np.argmin(np.abs(g - a))] for g, a in zip(self.grids, aims)]

    def spread(self, wishart: np.ndarray) -> np.ndarray:
        """Diagonal of S_0, (2,)."""
        return np.array([wishart[KAPPA] ** 2 * self._square, wishart[NU] * wishart[VARIANCE]])

    def of_normal(self, hyper: np.ndarray) -> np.ndarray:
        """Convert a normal column's hyperparameters to this column's: drop the mean, (3,)."""
        return hyper[1:]

    def as_normal(self, wishart: np.ndarray) -> np.ndarray:
        """Invert `of_normal`, (4,)."""
        return np.append(self._mean, wishart)

    def _given(self, wishart: np.ndarray, n, mean, scatter) -> tuple:
        return *wishart, self._square, self._middle, self._mean, n, *mean, *scatter

    def posterior(self, wishart: np.ndarray, n, mean, scatter) -> Posterior:
        """Posterior of K clusters. n (K,), mean (2, K), scatter (3, K)."""
        return posterior(*self._given(wishart, n, mean, scatter))

    def log_marginal_cells(self, wishart: np.ndarray, n, mean, scatter) -> np.ndarray:
        """Log marginal likelihood of each cluster, (K,)."""
        return self._marginals(wishart[None], n, mean, scatter)[1]

    def _marginals(self, points: np.ndarray, n, mean, scatter) -> tuple[np.ndarray, np.ndarray]:
        """See `updates.line_marginals`."""
        (u, x), (uu, ux, xx) = mean, scatter
        return updates.line_marginals(points, *self._parent, self._mean, n, u[None], x, uu[None], ux[None], xx)

    def side_odds(self, wishart: np.ndarray, n, mean, scatter) -> np.ndarray:
        """Coefficients for K / 2 pairs of clusters, as kernels/mixture/vector_odds.h reads them, (K / 2, 11)."""
        p = self.posterior(wishart, n, mean, scatter)
        root = np.sqrt(p.nu * p.kappa / (p.rest * (p.kappa + 1.0)))
        sides = np.stack([p.given, p.location, np.zeros_like(root), -p.slope * root, root], axis=1)
        level = np.log(root[1::2] / root[0::2])[:, None]
        return np.concatenate([level, sides[1::2], sides[0::2]], axis=1)

    def update(self, wishart: np.ndarray, n, mean, scatter, stream: np.random.Generator) -> np.ndarray:
        """Draw (kappa, nu, variance) from their grids given the partition, coordinate by coordinate, (3,)."""
        wishart, u = wishart.copy(), stream.random(sum(len(grid) > 1 for grid in self.grids))
        try:
            updates.draw_line(wishart, self.grids, self._parent.ravel(), self._mean, n, *mean, *scatter, u)
        except FloatingPointError:
            raise NumericalError(NO_WEIGHT) from None
        return wishart

    def draw(self, wishart: np.ndarray, n, mean, scatter, stream: np.random.Generator):
        """Draw location (2, K), factor (3, K) and constant (K,): log density = constant - 1/2 |U (x - location)|^2,
        where the first row of U is 0."""
        location, factor, constant = drawn([self], wishart[None], n[None], mean, scatter, [stream])
        return location, factor, constant[0]


def drawn(
    lines: Sequence[Line], wishart: np.ndarray, n, mean, scatter, streams: Sequence[np.random.Generator]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make the draws of `Line.draw` for B lines, one below the other. wishart (B, 3), n (B, K), mean (2 B, K), scatter
    (3 B, K)."""
    given = [(line._square, line._middle, line._mean) for line in lines]
    hyper = np.concatenate([wishart, given], axis=1).T[:, :, None]
    p = posterior(*hyper, n, mean[0::2], mean[1::2], scatter[0::3], scatter[1::3], scatter[2::3])
    gamma, z = np.empty_like(p.rest), np.empty((2, *p.rest.shape))
    for i, (stream, half) in enumerate(zip(streams, 0.5 * p.nu)):
        gamma[i], z[:, i] = stream.standard_gamma(half), stream.standard_normal((2, len(half)))
    location, factor = np.empty_like(mean), np.zeros(scatter.shape)
    root = factor[2::3] = np.sqrt(2.0 * gamma / p.rest)  # 1 / s
    slope = p.slope + z[0] / (root * np.sqrt(p.first))
    factor[1::3] = -slope * root
    location[0::2], location[1::2] = p.given, p.location + z[1] / (root * np.sqrt(p.kappa))
    return location, factor, np.log(root) - 0.5 * np.log(2.0 * np.pi)
