"""Logistic regression: y = -1 or 1, log L = -log(1 + exp(-y eta)); bounds (a, c) of Jaakkola & Jordan (2000)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.regression.likelihoods.classes import OfClasses, quoted, softmax
from mpibayes.io.rows import Column
from mpibayes.kernels import firefly as kernels


class Logistic(OfClasses):
    """Logistic regression on two classes; y = 1 is the second one."""

    name = title = "logistic"
    code = kernels.LOGISTIC
    separable = True
    untuned_at = 1.5
    odds = True
    coefficients_title = "Log odds ratios"
    n_bounds = 2

    @classmethod
    def response_problems(cls, column: Column) -> list[str]:
        if len(column.levels) > 2:
            name, n_levels = column.name, len(column.levels)
            return [f"response '{name}' has {n_levels:,} levels; logistic needs two: likelihood = \"softmax\"?"]
        return super().response_problems(column)

    @staticmethod
    def encode(cells: np.ndarray) -> np.ndarray:
        return 2.0 * cells.astype(np.float64) - 1.0

    @staticmethod
    def decode(y: np.ndarray) -> np.ndarray:
        return (y + 1.0) / 2.0

    def log_density(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        s = eta[:, 0]
        return 0.5 * y * s - _log_2cosh_half(s)

    def slope(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 0.5 * (y[:, None] - np.tanh(0.5 * eta))

    def curvature(self, eta: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        e = np.exp(-np.abs(eta[:, 0]))
        return [e / (1.0 + e) ** 2]

    def log_bound(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        s = eta[:, 0]
        return bounds[:, 0] * s * s + 0.5 * y * s + bounds[:, 1]

    def bound_terms(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        a = bounds[:, 0]
        return -2.0 * a, (2.0 * a * eta[:, 0] + 0.5 * y)[:, None]

    def draw(self, eta: np.ndarray, u: np.ndarray) -> np.ndarray:
        return 2.0 * super().draw(eta, u) - 1.0

    def probabilities(self, eta: np.ndarray) -> np.ndarray:
        return softmax(np.concatenate([np.zeros_like(eta), eta], axis=-1))

    def in_words(self, classes: Sequence[str]) -> str:
        return f"the probability of {quoted(classes[1])}"


def _log_2cosh_half(s: np.ndarray) -> np.ndarray:
    """log(2 cosh(s / 2)) without overflow."""
    size = np.abs(s)
    return 0.5 * size + np.log1p(np.exp(-size))
