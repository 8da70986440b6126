"""One block of D real columns: normal-inverse-Wishart prior and its posterior in clusters (docs/math.md 1.6).

A block has hyperparameters (kappa, nu, variance), each fixed or learned on a grid, one after another given the others.
The prior's matrix is S_0 = nu variance diag(scale^2), where scale holds the columns' standard deviations; its location
is the columns' means unless given. With D = 1 this is the normal column of the same kappa and nu, with variance in
units of scale^2.

A cluster's scatter matrix is a packed lower triangle by rows, (0,0), (1,0), (1,1), ..., (pairs, K) in all clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mpibayes.hpc.components import normal
from mpibayes.hpc.components.grid import as_grid, draw_on_grid
from mpibayes.hpc.components.predictive import Predictive, cholesky
from mpibayes.kernels.common.functions import gammaln

KAPPA, NU, VARIANCE = range(3)
NAMES = ("kappa", "nu", "variance")
START = (normal.START[normal.KAPPA], normal.START[normal.NU], normal.START[normal.VARIANCE])  # nu: above D - 1


def n_pairs(width):
    """Number of entries of a packed triangle."""
    return width * (width + 1) // 2


@lru_cache(maxsize=128)
def triangle(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries of a packed triangle; read-only."""
    return np.tril_indices(width)


def unpack(pairs: np.ndarray) -> np.ndarray:
    """Unpack triangles (..., pairs, K) into symmetric matrices (..., K, D, D)."""
    width = int((2 * pairs.shape[-2]) ** 0.5)
    i, j = triangle(width)
    out = np.empty((*pairs.shape[:-2], pairs.shape[-1], width, width))
    out[..., i, j] = out[..., j, i] = np.moveaxis(pairs, -2, -1)
    return out


@dataclass
class Posterior:
    """Posterior of K clusters: location (K, D), kappa and nu (K,), and the lower triangle L of S_n = L L' (K, D, D)."""

    location: np.ndarray
    kappa: np.ndarray
    nu: np.ndarray
    lower: np.ndarray


def default_grids(width: int) -> dict[str, np.ndarray]:
    """Default grids on which the hyperparameters of a block of `width` columns are learned."""
    return dict(zip(NAMES, (normal.KAPPA_GRID, width - 1 + normal.NU_GRID, normal.VARIANCE_GRID)))


class Block:
    """One block. name: the block's. columns: their names. center, scale (D,): mean and standard deviation of each
    column. prior: any of {"kappa": number or grid, "nu": ..., "variance": ..., "mean": (D,)}."""

    def __init__(self, name: str, columns: Sequence[str], center, scale, prior=None):
        prior = {key: value for key, value in (prior or {}).items() if value is not None}
        self.name, self.columns = name, tuple(columns)
        self.width = d = len(self.columns)
        self.mean = np.asarray(prior.get("mean", center), np.float64)
        self.square = np.asarray(scale, np.float64) ** 2
        aims = (START[KAPPA], d - 1 + START[NU], START[VARIANCE])
        self.grids = [as_grid(prior[key]) if key in prior else g for key, g in default_grids(d).items()]
        self.start = [g[np.argmin(np.abs(g - a))] for g, a in zip(self.grids, aims)]

    def spread(self, wishart: np.ndarray) -> np.ndarray:
        """Diagonal of S_0, (..., D), for wishart (..., 3)."""
        return (wishart[..., NU] * wishart[..., VARIANCE])[..., None] * self.square

    def posterior(self, wishart: np.ndarray, n, mean, scatter) -> Posterior:
        """Posterior of K clusters. wishart (..., 3); n (K,), mean (D, K), scatter (pairs, K)."""
        kappa0, nu0 = wishart[..., KAPPA, None], wishart[..., NU, None]
        kappa, nu = kappa0 + n, nu0 + n
        off = np.where(n > 0, mean - self.mean[:, None], 0.0).T
        location = self.mean + off * (n / kappa)[..., None]
        weight = (n * kappa0 / kappa)[..., None, None]
        matrix = unpack(scatter) + weight * (off[:, :, None] * off[:, None, :])
        spread = self.spread(wishart)[..., None, :]
        diagonal = np.arange(self.width)
        matrix[..., diagonal, diagonal] += spread
        return Posterior(location, kappa, nu, cholesky(matrix, np.broadcast_to(spread, matrix.shape[:-1])))

    def predictive(self, wishart: np.ndarray, n, mean, scatter) -> Predictive:
        """Predictive law of the next row in each cluster; the last is for a new cluster."""
        blank = (np.append(a, np.zeros((*a.shape[:-1], 1), a.dtype), axis=-1) for a in (n, mean, scatter))
        p = self.posterior(wishart, *blank)
        matrix = (p.lower @ p.lower.swapaxes(-1, -2)) * ((p.kappa + 1.0) / p.kappa)[:, None, None]
        return Predictive(p.location, matrix, p.nu - self.width + 1.0)

    def side_odds(self, wishart: np.ndarray, n, mean, scatter) -> np.ndarray:
        """Coefficients for K / 2 pairs of clusters, as kernels/mixture/vector_odds.h reads them, (K / 2, 1 + 2 (D +
        pairs))."""
        p = self.posterior(wishart, n, mean, scatter)
        widen = np.sqrt((p.kappa + 1.0) / (p.kappa * (p.nu - self.width + 1.0)))
        lower = p.lower * widen[:, None, None]
        factor = np.linalg.solve(lower, np.broadcast_to(np.eye(self.width), lower.shape))
        log_diagonal = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        i, j = np.tril_indices(self.width)
        sides = np.concatenate([p.location, factor[:, i, j]], axis=1)
        level = (log_diagonal[1::2] - log_diagonal[0::2])[:, None]
        return np.concatenate([level, sides[1::2], sides[0::2]], axis=1)

    def log_marginal_cells(self, wishart: np.ndarray, n, mean, scatter) -> np.ndarray:
        """Log marginal likelihood of each cluster, (..., K)."""
        d, post = self.width, self.posterior(wishart, n, mean, scatter)
        kappa0, nu0 = wishart[..., KAPPA, None], wishart[..., NU, None]
        log_determinant = 2.0 * np.log(np.diagonal(post.lower, axis1=-2, axis2=-1)).sum(axis=-1)
        return (
            log_multigamma(0.5 * post.nu, d)
            - log_multigamma(0.5 * nu0, d)
            + 0.5 * d * np.log(kappa0 / post.kappa)
            + 0.5 * nu0 * np.log(self.spread(wishart)).sum(axis=-1)[..., None]
            - 0.5 * post.nu * log_determinant
            - 0.5 * n * d * np.log(np.pi)
        )

    def update(self, wishart: np.ndarray, n, mean, scatter, stream: np.random.Generator) -> np.ndarray:
        """Draw (kappa, nu, variance) from their grids given the partition, coordinate by coordinate, (3,)."""
        wishart = wishart.copy()
        for i, grid in enumerate(self.grids):
            if len(grid) > 1:
                score = np.empty(len(grid))
                for point, value in enumerate(grid):  # one point at a time: each needs K matrices
                    wishart[i] = value
                    score[point] = self.log_marginal_cells(wishart, n, mean, scatter).sum()
                wishart[i] = grid[draw_on_grid(score, stream)]
        return wishart

    def draw(self, wishart: np.ndarray, n, mean, scatter, stream: np.random.Generator):
        """Draw location (D, K), factor (pairs, K) and constant (K,): log density = constant - 1/2 |U (x - location)|^2.

        With S_n = L L', the precision U' U is Wishart(nu_n, S_n^-1) for U = R' L^-1, R the upper triangle of normal
        deviates whose squared diagonal entry i = 1..D is chi-square with nu_n - D + i degrees of freedom (Bartlett
        1933, columns counted from the last): U is lower triangular. mu = m_n + U^-1 z / sqrt(kappa_n).
        """
        d, k, post = self.width, len(n), self.posterior(wishart, n, mean, scatter)
        degrees = post.nu[:, None] - d + 1.0 + np.arange(d)
        rotated = np.zeros((k, d, d))
        rotated[:, *np.tril_indices(d, -1)] = stream.standard_normal((k, n_pairs(d) - d))
        rotated[:, np.arange(d), np.arange(d)] = np.sqrt(2.0 * stream.standard_gamma(0.5 * degrees))
        inverse = np.linalg.solve(post.lower, np.broadcast_to(np.eye(d), post.lower.shape))
        factor = np.tril(rotated @ inverse)
        z = stream.standard_normal((k, d, 1)) / np.sqrt(post.kappa)[:, None, None]
        location = post.location + np.linalg.solve(factor, z)[..., 0]
        log_diagonal = np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
        i, j = np.tril_indices(d)
        return location.T, factor[:, i, j].T, log_diagonal - 0.5 * d * np.log(2.0 * np.pi)


def log_multigamma(a: np.ndarray, d: int) -> np.ndarray:
    """Log of the multivariate gamma function at each element of a."""
    return gammaln(a[..., None] - 0.5 * np.arange(d)).sum(axis=-1) + 0.25 * d * (d - 1) * np.log(np.pi)
