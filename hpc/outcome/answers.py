"""Outcome and predictors of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Answers:
    """Outcome y (n,) float64 of rows, NaN where missing; predictors, float32: u (n, p - 1) with the clusters'
    coefficients, w (n, D) with the global coefficients."""

    y: np.ndarray
    u: np.ndarray
    w: np.ndarray

    def take(self, rows: np.ndarray) -> Answers:
        """Return a subset of the rows."""
        return Answers(self.y[rows], self.u[rows], self.w[rows])
