"""The prior of the coefficients, independent in each, and a smooth stand-in for the Laplace prior.

The mode and the curvature need two derivatives, which |t| lacks at 0: there |t| becomes sqrt(t^2 + b^2), whose
curvature at 0, 1 / b^2, is the Laplace distribution's Fisher information. Densities are those of the true prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

KINDS = ("flat", "gaussian", "laplace")  # in the order of the kernels' FLAT, GAUSSIAN, LAPLACE


@dataclass(frozen=True)
class Prior:
    """kind: one of KINDS; scale (P,) float64: standard deviation or b of each coefficient, inf = flat in it."""

    kind: str
    scale: np.ndarray

    @classmethod
    def of(cls, kind: str | int, scale, n_parameters: int) -> Prior:
        """Of a name or the kernels' number, and one scale or one for each coefficient."""
        kind = kind if isinstance(kind, str) else KINDS[kind]
        scale = np.inf if kind == "flat" else scale
        return cls(kind, np.array(np.broadcast_to(np.asarray(scale, np.float64), n_parameters)))

    @property
    def flat(self) -> np.ndarray:
        """In which coefficients there is no prior, (P,) bool."""
        return np.isinf(self.scale)

    def log_density(self, theta: np.ndarray) -> np.ndarray | float:
        """Normalised log density, summed over the last axis; a flat coordinate adds 0."""
        b, t = self.scale[~self.flat], theta[..., ~self.flat]
        if self.kind == "gaussian":
            return (-0.5 * math.log(2 * math.pi) - np.log(b) - 0.5 * (t / b) ** 2).sum(axis=-1)
        return (-np.log(2 * b) - np.abs(t) / b).sum(axis=-1)

    def smooth_log_density(self, theta: np.ndarray) -> float:
        """Up to a constant, with the smooth |t|."""
        u = theta / self.scale  # 0 where flat
        return float(-(0.5 * u * u if self.kind == "gaussian" else np.sqrt(1.0 + u * u) - 1.0).sum())

    def smooth_slope(self, theta: np.ndarray) -> np.ndarray:
        """Gradient of smooth_log_density, (P,)."""
        u = theta / self.scale
        return -(u if self.kind == "gaussian" else u / np.sqrt(1.0 + u * u)) / self.scale

    def smooth_curvature(self, theta: np.ndarray) -> np.ndarray:
        """Minus its second derivatives, (P,)."""
        u = theta / self.scale
        return (np.ones_like(u) if self.kind == "gaussian" else (1.0 + u * u) ** -1.5) / self.scale**2
