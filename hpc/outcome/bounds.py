"""Quadratic lower bounds B <= L of an outcome's likelihood, log B = c + g eta - h eta^2 / 2 (docs/math.md 4.2).

A bound touches L at a point xi >= 0, an |eta| or a residual. `level` is what the gap log L - log B needs beside h.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Bound(Protocol):
    """Bounds of one likelihood. Arrays are of rows, (n,) float64."""

    @staticmethod
    def points(eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the points at which bounds touch at eta."""

    @staticmethod
    def at(xi: np.ndarray, nu: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """Return (h, level) of bounds that touch at xi."""

    @staticmethod
    def slope(y: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Return g."""

    @staticmethod
    def gaps(
        eta: np.ndarray, y: np.ndarray, h: np.ndarray, level: np.ndarray, nu: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return log L - log B >= 0, and its slope in eta."""


class Logistic(Bound):
    """Jaakkola & Jordan (2000). level: log 2 cosh(xi / 2) - h xi^2 / 2."""

    @staticmethod
    def points(eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.abs(eta)

    @staticmethod
    def at(xi: np.ndarray, nu: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
        far = np.maximum(xi, 1e-3)
        h = np.where(xi > 1e-3, np.tanh(0.5 * far) / (2.0 * far), 0.25 - xi * xi / 48.0)
        return h, _log_two_cosh(xi) - 0.5 * h * xi * xi

    @staticmethod
    def slope(y: np.ndarray, h: np.ndarray) -> np.ndarray:
        return 0.5 * y

    @staticmethod
    def gaps(
        eta: np.ndarray, y: np.ndarray, h: np.ndarray, level: np.ndarray, nu: float
    ) -> tuple[np.ndarray, np.ndarray]:
        gap = level - _log_two_cosh(eta) + 0.5 * h * eta * eta
        return np.maximum(gap, 0.0), h * eta - 0.5 * np.tanh(0.5 * eta)


class StudentT(Bound):
    """A tangent in the squared residual. level: xi^2 / (nu s^2 + xi^2)."""

    @staticmethod
    def points(eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.abs(y - eta)

    @staticmethod
    def at(xi: np.ndarray, nu: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
        total = nu * scale**2 + xi * xi
        return (nu + 1.0) / total, xi * xi / total

    @staticmethod
    def slope(y: np.ndarray, h: np.ndarray) -> np.ndarray:
        return h * y

    @staticmethod
    def gaps(
        eta: np.ndarray, y: np.ndarray, h: np.ndarray, level: np.ndarray, nu: float
    ) -> tuple[np.ndarray, np.ndarray]:
        r = y - eta
        u = r * r * h / (nu + 1.0) - level
        return np.maximum(0.5 * (nu + 1.0) * (u - np.log1p(u)), 0.0), -h * r * u / (1.0 + u)


def _log_two_cosh(x: np.ndarray) -> np.ndarray:
    """Return log(2 cosh(x / 2))."""
    size = np.abs(x)
    return 0.5 * size + np.log1p(np.exp(-size))


BOUNDS: dict[str, type[Bound]] = {"logistic": Logistic, "student-t": StudentT}
"""Bounds by likelihood; a Poisson's falls faster than any parabola, and a normal needs none."""
