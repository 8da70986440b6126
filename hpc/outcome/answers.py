"""Outcome and predictors of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Answers:
    """Outcome y (n,) float64 of rows, NaN where missing; predictors, float32: u (n, p - 1) with the clusters'
    coefficients, w (n, D) with the global coefficients. times (n,): of an outcome that is a time to an event, as in a
    table; y is then 1 of an event, 0 if censored."""

    y: np.ndarray
    u: np.ndarray
    w: np.ndarray
    times: np.ndarray | None = None

    @property
    def seen(self) -> np.ndarray:
        """The outcome as densities take it: y, or times."""
        return self.y if self.times is None else self.times

    def take(self, rows: np.ndarray | slice) -> Answers:
        """Return a subset of the rows."""
        times = None if self.times is None else self.times[rows]
        return Answers(self.y[rows], self.u[rows], self.w[rows], times)

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """Return the rows of all parts, in order."""
        y, u, w = (np.concatenate([getattr(part, name) for part in parts]) for name in ("y", "u", "w"))
        times = [part.times for part in parts if part.times is not None]
        return cls(y, u, w, np.concatenate(times) if times else None)
