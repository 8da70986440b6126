"""Shape of a real column: sinh-arcsinh coordinates in which a single population is normal (Jones & Pewsey 2009).

A number t on the column's scale (itself, or its logarithm) has the coordinate

    y = sinh(tail asinh((t - center) / scale) - skew)

which increases with t. tail below 1 shortens long tails, skew above 0 a long right tail (docs/math.md 1.8).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FARTHEST = 1e150  # of coordinates: squares of larger numbers overflow


class Shape(NamedTuple):
    """center and scale are in units of t; scale and tail are positive."""

    center: float
    scale: float
    skew: float
    tail: float

    def coordinate(self, t: np.ndarray) -> np.ndarray:
        """Coordinate y of t, at most FARTHEST in size; NaN stays NaN."""
        u = self.tail * np.arcsinh((t - self.center) / self.scale) - self.skew
        return np.sinh(np.clip(u, -_LARGEST, _LARGEST))

    def number(self, y: np.ndarray) -> np.ndarray:
        """Number t with coordinate y."""
        a = (np.arcsinh(y) + self.skew) / self.tail
        return self.center + self.scale * np.sinh(np.clip(a, -_LARGEST, _LARGEST))

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """log dy/dt at y: the log Jacobian that converts a density of y to one of t."""
        a = np.abs((np.arcsinh(y) + self.skew) / self.tail)
        log_cosh = a + np.log1p(np.exp(-2.0 * a)) - np.log(2.0)
        return np.log(self.tail / self.scale) + np.log(np.hypot(1.0, y)) - log_cosh


_LARGEST = float(np.arcsinh(FARTHEST))
