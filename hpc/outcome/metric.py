"""Metric in which the coefficients' posterior is about spherical: Cholesky factor of prior precision plus information.

The matrix is an arrow: a block per cluster, an arm between each cluster and the global coefficients, and their hub. Its
factor is L = [[L_k, 0], [C', T]] with L_k L_k' = block, C = L_k^-1 arm, T T' = hub - sum C'C.
"""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.outcome.law import Law

PRIOR_ROWS = 2.0  # pseudo-rows that smooth a cluster's mean outcome
OWN = 0.9  # share of a row's own outcome, in place of its cluster's mean, in its curvature where rows are weighed


def symmetric(triangles: np.ndarray, q: int) -> np.ndarray:
    """Return symmetric matrices, (K, q, q), from their lower triangles, row by row."""
    rows, columns = np.tril_indices(q)
    out = np.zeros((len(triangles), q, q))
    out[:, rows, columns] = out[:, columns, rows] = triangles
    return out


def gram_of(sums: np.ndarray, q: int) -> np.ndarray:
    """Return the sum of v v' in each cluster, (K, q, q), from the sums of `kernels.response.squares`."""
    return symmetric(sums[:, sums.shape[1] - q * (q + 1) // 2 :], q)


def smoothed(sums: np.ndarray, gram: np.ndarray, overall: np.ndarray) -> np.ndarray:
    """Return the mean outcome of each cluster, (K, C), shrunk towards that of all rows, (C,)."""
    return (sums[:, : len(overall)] + PRIOR_ROWS * overall) / (gram[:, 0, 0] + PRIOR_ROWS)[:, None]


def information(law: Law, sums: np.ndarray, own: np.ndarray | None = None) -> np.ndarray:
    """Return each cluster's information about (theta_k, beta), (K, C q, C q), with the curvature of a row at the mean
    outcome of its cluster: from the sums of `kernels.response.squares`, a function of the labels and the data alone.
    own: such sums with v = (1, sqrt y, sqrt y u, sqrt y w), where each row's outcome is its curvature."""
    c, q = law.n_eta, (law.p + len(law.covariate_sd)) // law.n_eta
    gram = gram_of(sums, q)
    overall = sums[:, :c].sum(axis=0) / max(1.0, float(gram[:, 0, 0].sum()))
    weight = law.likelihood.curvature(smoothed(sums, gram, overall), law.nu, law.scale)
    if own is not None:
        return (1.0 - OWN) * kronecker(weight[:, :, None], gram) + OWN * gram_of(own, q + 1)[:, 1:, 1:]
    first, shared = np.split(np.arange(c * q).reshape(c, q), [law.width], axis=1)
    order = np.concatenate([first.ravel(), shared.ravel()])
    return kronecker(weight.reshape(-1, c, c), gram)[:, order][:, :, order]


def kronecker(weight: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Return the Kronecker products of matrices, (K, c q, c q), from (K, c, c) and (K, q, q)."""
    size = weight.shape[1] * gram.shape[1]
    return (weight[:, :, None, :, None] * gram[:, None, :, None, :]).reshape(len(gram), size, size)


class Metric:
    """Metric of prior precision and `information` (K, q, q) about (theta_k, beta) in each cluster."""

    def __init__(self, law: Law, information: np.ndarray):
        p, d = law.p, len(law.covariate_sd)
        block = information[:, :p, :p] + np.diag(law.sd**-2.0)
        hub = information[:, p:, p:].sum(axis=0) + np.diag(law.covariate_sd**-2.0)
        self._block = np.linalg.inv(np.linalg.cholesky(block))
        self._arm = self._block @ information[:, :p, p:]
        of_arms = self._arm.reshape(p * len(information), d)
        self._hub = np.linalg.inv(np.linalg.cholesky(hub - of_arms.T @ of_arms))

    def whiten(self, theta: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Apply L^-1 to a gradient in the coefficients: the gradient in spherical coordinates."""
        a = (self._block @ theta[:, :, None])[:, :, 0]
        return a, self._hub @ (beta - np.tensordot(self._arm, a, axes=((0, 1), (0, 1))))

    def colour(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Apply L'^-1 to spherical coordinates: coefficients."""
        beta = self._hub.T @ b
        return (self._block.transpose(0, 2, 1) @ (a - self._arm @ beta)[:, :, None])[:, :, 0], beta
