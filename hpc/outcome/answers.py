"""The outcome's part of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Answers:
    """The outcome of rows, y (n,) float64, NaN where it is missing; the predictors u (n, p - 1) of the clusters'
    coefficients and w (n, D) of the global ones, float32."""

    y: np.ndarray
    u: np.ndarray
    w: np.ndarray

    def take(self, rows: np.ndarray) -> Answers:
        """Some of the rows."""
        return Answers(self.y[rows], self.u[rows], self.w[rows])
