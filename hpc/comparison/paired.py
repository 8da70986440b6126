"""The difference between two runs' scores of the same rows, paired by row.

Rows differ far more from each other than two models do on any of them. Pairing removes the variation between rows, so
the standard error of the mean difference is that of the differences, s / sqrt(n), never that of two independent
samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ERRORS = 2.0  # standard errors beyond which a difference is decided
FEW = 30  # least rows for a reliable standard error


@dataclass(frozen=True)
class Difference:
    """mean: first run's scores minus the second's, nats per row; error: its standard error over n rows, NaN for one
    row. better: share of the rows that the first predicts better. without: index of the row furthest from the mean, and
    mean and error without it."""

    n: int
    mean: float
    error: float
    better: float
    without: tuple[int, float, float] | None = None

    @property
    def decided(self) -> bool:
        """True if the difference is beyond two standard errors."""
        return _beyond(self.mean, self.error)

    @property
    def hangs_on_one_row(self) -> bool:
        """True if the result changes without one row."""
        if self.without is None:
            return False
        _, mean, error = self.without
        return self.decided != _beyond(mean, error) or (self.decided and (mean > 0) != (self.mean > 0))


def difference(first: np.ndarray, second: np.ndarray) -> Difference:
    """Paired difference of two runs' log scores (n,) of the same rows, n at least 1."""
    d = first - second
    mean, error = mean_of(d)
    far = int(np.abs(d - mean).argmax())
    without = (far, *mean_of(np.delete(d, far))) if len(d) > 2 else None
    return Difference(len(d), mean, error, float((d > 0).mean()), without)


def mean_of(x: np.ndarray) -> tuple[float, float]:
    """Mean and standard error of (n,) independent values; the error of one value is NaN."""
    error = float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else np.nan
    return float(x.mean()), error


def _beyond(mean: float, error: float) -> bool:
    return bool(np.isfinite(error) and abs(mean) > ERRORS * error)
