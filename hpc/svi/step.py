"""One step of variational inference on a parameter, and the guard that keeps it in its domain (docs/math.md 8.3).

A step takes the parameter to (1 - rate) old + rate target. Without noise this is a convex combination of two points of
an open convex cone, and stays there. With noise it may leave: a count falls below zero, a precision is no longer
positive definite. So the step is split into its value without noise, and the noise; the noise is reduced until at least
the fraction KEPT of the former is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

KEPT = 1e-3


@dataclass(frozen=True)
class Step:
    """rate: the step size, in (0, 1]. scale: number of all rows over that of the batch. guard: True to hold noise
    back."""

    rate: float
    scale: float
    guard: bool = True

    def to(self, old: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the parameter after a step without noise."""
        return target if self.rate == 1.0 else (1.0 - self.rate) * old + self.rate * target


def share_of_numbers(sure: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Largest t <= 1, elementwise, with sure + t noise >= KEPT sure; sure > 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(noise < (KEPT - 1.0) * sure, (KEPT - 1.0) * sure / noise, 1.0)


def share_of_matrices(sure: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Largest t <= 1 for each of K matrices that leaves sure + t noise - KEPT sure positive semidefinite, (K,).

    sure, noise: (K, D, D), sure positive definite. With sure = L L', t follows from the least eigenvalue of L^-1 noise
    L^-T.
    """
    inverse = np.linalg.inv(np.linalg.cholesky(sure))
    inside = inverse @ noise @ inverse.swapaxes(1, 2)
    least = np.linalg.eigvalsh(0.5 * (inside + inside.swapaxes(1, 2)))[:, 0]
    return share_of_numbers(np.ones(len(least)), least)
