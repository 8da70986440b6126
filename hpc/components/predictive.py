"""Multivariate t of the next row in each cluster, and its conditionals on part of the columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibayes.kernels.common.functions import gammaln

ROUNDING = 1e-14  # share of a variance that may be rounding error


def cholesky(matrix: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Lower triangles L with L L' = matrix (..., D, D), where no pivot can be less than `least` (..., D).

    S_n exceeds the diagonal S_0, so none of its pivots is below that of S_0. Rounding can violate this if columns
    repeat each other and the prior is narrow: such a pivot is raised to the bound, and the entries below it, which are
    rounding too, are set to 0. As in kernels/mixture/vectors_tail.h; each matrix is independent of the others.
    """
    rest, lower = matrix.copy(), np.zeros_like(matrix)
    for i in range(matrix.shape[-1]):
        sound = rest[..., i, i] > least[..., i]
        pivot = np.sqrt(np.where(sound, rest[..., i, i], least[..., i]))
        column = np.where(sound[..., None], rest[..., i + 1 :, i] / pivot[..., None], 0.0)
        lower[..., i, i], lower[..., i + 1 :, i] = pivot, column
        rest[..., i + 1 :, i + 1 :] -= column[..., :, None] * column[..., None, :]
    return lower


@dataclass
class Predictive:
    """Multivariate t of the next row in K clusters: location (K, D), matrix (K, D, D) = nu times the scale matrix, nu
    (K,) degrees of freedom. `seen` and `lacking` are columns; x (n, len(seen)) the seen cells of rows."""

    location: np.ndarray
    matrix: np.ndarray
    nu: np.ndarray

    def log_density(self, x: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Log density of the cells seen, (n, K)."""
        d = len(seen)
        norm, log_determinant, _ = self._norm(x, seen)
        constant = gammaln(0.5 * (self.nu + d)) - gammaln(0.5 * self.nu) - 0.5 * (d * np.log(np.pi) + log_determinant)
        return constant - 0.5 * (self.nu + d) * np.log1p(norm)

    def conditional(self, x: np.ndarray, seen: np.ndarray, lacking: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the lacking cells given the cells seen, (n, K, len(lacking)) each."""
        norm, mean, cross, slope = self._given(x, seen, lacking)
        rest = self.matrix[:, lacking, lacking] - (cross * slope).sum(axis=1)
        nu = self.nu + len(seen)
        # a t with nu <= 2 has no variance: the variance of nu = 3 stands in
        widen = np.where(nu > 2.0, nu / np.where(nu > 2.0, nu - 2.0, 1.0), 3.0)
        return mean, (widen / nu * (1.0 + norm))[:, :, None] * np.maximum(rest, 0.0)

    def single(self, x: np.ndarray, seen: np.ndarray, member: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Location and scale (n, K) and degrees of freedom (K,) of the t distribution of column `member` given x."""
        nu = self.nu + len(seen)
        if not len(seen):
            shape, matrix = (len(x), len(nu)), self.matrix[:, member, member]
            return np.broadcast_to(self.location[:, member], shape), np.broadcast_to(np.sqrt(matrix / nu), shape), nu
        norm, mean, cross, slope = self._given(x, seen, np.array([member]))
        rest = np.maximum(self.matrix[:, member, member] - (cross * slope).sum(axis=1)[:, 0], 0.0)
        return mean[:, :, 0], np.sqrt((1.0 + norm) * rest / nu), nu

    def draw(self, x: np.ndarray, seen: np.ndarray, lacking: np.ndarray, z: np.ndarray, log_gammas) -> np.ndarray:
        """Draw the lacking cells given the cells seen in the only cluster, (n, len(lacking)). z: standard normals of
        that shape. log_gammas(shape): logs of n Gamma(shape, 1) draws.

        The conditional is a t with nu' = nu + len(seen) degrees of freedom and scale matrix (1 + norm) / nu' times the
        Schur complement of the matrix; if nu is infinite it is a normal, and the matrix is the covariance.
        """
        norm, mean, cross, slope = self._given(x, seen, lacking)
        matrix = self.matrix[0][np.ix_(lacking, lacking)]
        lower = cholesky(matrix - cross[0].T @ slope[0], ROUNDING * np.diagonal(matrix))
        wide = np.ones(len(z))  # a normal
        if np.isfinite(self.nu[0]):
            half = np.exp(log_gammas(0.5 * (self.nu[0] + len(seen))))  # half a chi-square
            wide = np.sqrt(0.5 * (1.0 + norm[:, 0]) / half)
        return mean[:, 0] + wide[:, None] * (z[:, None, :] * lower).sum(axis=-1)  # BLAS would look at the other rows

    def _given(self, x, seen, lacking):
        """Return `_norm`, the location (n, K, len(lacking)) given the cells seen, and the matrices behind it."""
        norm, _, off = self._norm(x, seen)
        cross = self.matrix[:, seen[:, None], lacking]
        slope = np.linalg.solve(self.matrix[:, seen[:, None], seen], cross)
        mean = self.location[:, lacking] + np.einsum("nkd,kdm->nkm", off, slope)
        return norm, mean, cross, slope

    def _norm(self, x, seen):
        """Return (x - m)' matrix^-1 (x - m) (n, K), the log determinant of the matrix (K,), and x - m (n, K,
        len(seen))."""
        matrix = self.matrix[:, seen[:, None], seen]
        off = x[:, None, :] - self.location[:, seen]
        lower = np.linalg.cholesky(matrix)
        inverse = np.linalg.solve(lower, np.broadcast_to(np.eye(len(seen)), lower.shape))
        norm = (np.einsum("kij,nkj->nki", inverse, off) ** 2).sum(axis=-1)
        return norm, 2.0 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1), off
