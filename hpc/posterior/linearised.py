"""Variance of weighted shares by Taylor linearisation, as in survey software (docs/math.md 2.12)."""

from __future__ import annotations

import numpy as np


def linearised_variance(in_group: np.ndarray, squares: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Variance of the weighted shares p of K groups, (K,): n/(n - 1) sum_i w_i^2 (z_i - p)^2 / W^2,
    by Taylor linearisation, treating rows as drawn with replacement (Särndal, Swensson & Wretman 1992).

    in_group, squares (K,): sums of w and w^2 over a group's rows; weights (N,): of all rows.
    """
    n, total = len(weights), weights.sum()
    p = in_group / total
    residuals = np.maximum(squares * (1.0 - 2.0 * p) + p**2 * (weights**2).sum(), 0.0)
    variance: np.ndarray = residuals / total**2 * (n / (n - 1) if n > 1 else np.nan)
    return variance
