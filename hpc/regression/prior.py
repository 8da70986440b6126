"""Prior of the coefficients, independent in each, and a smooth stand-in for the Laplace prior.

Intercepts have a separate Gaussian prior: they depend on the predictors' zero, not on the strength of an effect. The
mode and the curvature need two derivatives, which |t| lacks at 0: there |t| becomes sqrt(t^2 + b^2), whose curvature at
0, 1 / b^2, is the Laplace distribution's Fisher information. Densities are those of the true prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

KINDS = ("flat", "gaussian", "laplace")  # in the order of the kernels' FLAT, GAUSSIAN, LAPLACE


@dataclass(frozen=True)
class Prior:
    """Independent prior of the coefficients. kind: one of KINDS. scale (P,) float64: standard deviation or b of each,
    inf = flat. intercepts (P,) bool: those with a Gaussian prior whatever the kind."""

    kind: str
    scale: np.ndarray
    intercepts: np.ndarray

    @classmethod
    def of(cls, kind: str | int, scale, n_parameters: int) -> Prior:
        """Build a prior without intercepts from its name or the kernels' number, and one scale, or one per
        coefficient."""
        kind = kind if isinstance(kind, str) else KINDS[kind]
        scale = np.inf if kind == "flat" else scale
        scale = np.array(np.broadcast_to(np.asarray(scale, np.float64), n_parameters))
        return cls(kind, scale, np.zeros(n_parameters, bool))

    def with_intercepts(self, where: np.ndarray, scale: float) -> Prior:
        """Return a copy that treats the coefficients `where`, (P,) bool, as intercepts of this standard deviation; a
        flat prior stays flat in them."""
        scale = np.inf if self.kind == "flat" else scale
        return replace(self, scale=np.where(where, scale, self.scale), intercepts=np.array(where, bool))

    def rescaled(self, scale: float) -> Prior:
        """Return a copy with this scale for all coefficients but intercepts and flat ones."""
        return replace(self, scale=np.where(self.intercepts | self.flat, self.scale, scale))

    def proper(self, scale: float) -> Prior:
        """Return a copy with this scale where the prior is flat; Gaussian if it is flat in all."""
        kind = "gaussian" if self.kind == "flat" else self.kind
        return replace(self, kind=kind, scale=np.where(self.flat, scale, self.scale))

    @property
    def flat(self) -> np.ndarray:
        """Mask of the coefficients without a prior, (P,) bool."""
        return np.isinf(self.scale)

    @property
    def gaussian(self) -> np.ndarray:
        """Mask of the coefficients whose prior, if any, is Gaussian, (P,) bool."""
        return self.intercepts | (self.kind == "gaussian")

    @property
    def numbers(self) -> np.ndarray:
        """Kernels' number of each coefficient's kind, (P,) int32."""
        return np.where(self.gaussian, KINDS.index("gaussian"), KINDS.index(self.kind)).astype(np.int32)

    def in_words(self) -> str:
        """Describe the prior for a log."""
        if self.flat.all():
            return "flat prior"
        laws = [(self.kind, self.scale[~self.intercepts]), ("gaussian", self.scale[self.intercepts])]
        first, *of_intercept = [(kind, f"of scale {scale.min():.4g}") for kind, scale in laws if len(scale)]
        words = "{} prior {}".format(*first)
        return words + " (intercept: {} {})".format(*of_intercept[0]) if of_intercept else words

    def draw(self, stream: np.random.Generator) -> np.ndarray:
        """Draw coefficients, (P,), from a prior that is nowhere flat."""
        theta = (stream.laplace if self.kind == "laplace" else stream.normal)(0.0, self.scale)
        if self.kind == "laplace":
            theta[self.intercepts] = stream.normal(0.0, self.scale[self.intercepts])
        return theta

    def log_density(self, theta: np.ndarray) -> np.ndarray | float:
        """Normalised log density, summed over the last axis; a flat coordinate adds 0."""
        b, t, gaussian = self.scale[~self.flat], theta[..., ~self.flat], self.gaussian[~self.flat]
        normal = -0.5 * math.log(2 * math.pi) - np.log(b) - 0.5 * (t / b) ** 2
        return np.where(gaussian, normal, -np.log(2 * b) - np.abs(t) / b).sum(axis=-1)

    def smooth_log_density(self, theta: np.ndarray) -> float:
        """Log density with the smooth |t|, up to a constant."""
        u = theta / self.scale  # 0 where flat
        return float(-np.where(self.gaussian, 0.5 * u * u, np.sqrt(1.0 + u * u) - 1.0).sum())

    def smooth_slope(self, theta: np.ndarray) -> np.ndarray:
        """Gradient of `smooth_log_density`, (P,)."""
        u = theta / self.scale
        return -np.where(self.gaussian, u, u / np.sqrt(1.0 + u * u)) / self.scale

    def smooth_curvature(self, theta: np.ndarray) -> np.ndarray:
        """Minus the second derivatives of `smooth_log_density`, (P,)."""
        u = theta / self.scale
        return np.where(self.gaussian, 1.0, (1.0 + u * u) ** -1.5) / self.scale**2
