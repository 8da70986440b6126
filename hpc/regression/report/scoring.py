"""How well a regression predicts rows that it was not trained on: sums over rows, which may come in pieces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.regression.design import Built, Design
from mpibayes.hpc.regression.likelihoods import StudentT
from mpibayes.hpc.regression.predictive import Average

BINS = 20  # of probabilities, for the calibration


@dataclass
class Mean:
    """A running mean over rows, and its standard error."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, x: np.ndarray) -> None:
        self.n += len(x)
        self.total += float(np.sum(x))
        self.squares += float(np.sum(np.square(x, dtype=np.float64)))

    @property
    def value(self) -> float:
        return self.total / self.n if self.n else np.nan

    @property
    def error(self) -> float:
        spread = self.squares / self.n - self.value**2 if self.n > 1 else np.nan
        return float(np.sqrt(max(spread, 0.0) / (self.n - 1))) if self.n > 1 else np.nan


@dataclass
class Scores:
    """Of held-out rows; what a likelihood does not have has no rows.

    log_density: log predictive density a row, nats, averaged over draws; at_mean: with the posterior mean of theta.
    correct, correct_at_mean: whether the most probable class is the true one; by_frequency: of the most frequent class.
    squared, absolute: errors of the predictive mean in units of the response; covered: whether the response is between
    the 5 and 95 % points. counts, predicted, seen (C, BINS): rows by the probability of a class, the sum of these
    probabilities, and how many of the rows are of that class. places (BINS,): rows by the place of the response in
    their predictive distribution.
    """

    n_rows: int
    n_draws: int
    log_density: Mean = field(default_factory=Mean)
    at_mean: Mean = field(default_factory=Mean)
    correct: Mean = field(default_factory=Mean)
    correct_at_mean: Mean = field(default_factory=Mean)
    squared: Mean = field(default_factory=Mean)
    absolute: Mean = field(default_factory=Mean)
    covered: Mean = field(default_factory=Mean)
    response: Mean = field(default_factory=Mean)
    by_class: np.ndarray | None = None
    counts: np.ndarray | None = None
    predicted: np.ndarray | None = None
    seen: np.ndarray | None = None
    places: np.ndarray | None = None

    @property
    def by_frequency(self) -> float:
        """Accuracy of the most frequent class of these rows, or NaN."""
        return float(self.by_class.max() / self.by_class.sum()) if self.by_class is not None else np.nan

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self.squared.value))

    @property
    def rmse_of_mean(self) -> float:
        """What it would be with these rows' own mean as the prediction."""
        return float(np.sqrt(max(self.response.squares / self.response.n - self.response.value**2, 0.0)))


def score(blocks: Iterable[Built], average: Average, mean: np.ndarray, design: Design) -> Scores | None:
    """blocks: the rows; mean (K, D): the posterior mean of theta. None where there are no rows."""
    s, likelihood = Scores(0, len(average.theta)), average.likelihood
    alone = Average(likelihood, mean[None])
    n_classes = len(design.classes)
    if likelihood.numeric:
        s.places = np.zeros(BINS, np.int64)
    else:
        s.by_class = np.zeros(n_classes, np.int64)
        s.counts, s.predicted, s.seen = (np.zeros((n_classes, BINS)) for _ in range(3))
    for built in blocks:
        for start in range(0, len(built.x), average.batch):
            x, y = (a[start : start + average.batch] for a in (built.x, built.y))
            eta, eta_mean = average.linear(x), alone.linear(x)
            jacobian = np.log(design.scale)
            s.n_rows += len(y)
            s.log_density.add(average.log_density(eta, y) - jacobian)
            s.at_mean.add(alone.log_density(eta_mean, y) - jacobian)
            if likelihood.numeric:
                _add_numbers(s, likelihood, eta, y, design)
            else:
                true = likelihood.decode(y).astype(np.int64)
                _add_classes(s, likelihood.probabilities(eta).mean(axis=1), true)
                s.correct_at_mean.add(likelihood.probabilities(eta_mean)[:, 0].argmax(axis=1) == true)
    return s if s.n_rows else None


def _add_numbers(s: Scores, likelihood: StudentT, eta: np.ndarray, y: np.ndarray, design: Design) -> None:
    mean, _ = likelihood.moments(eta)
    error = design.scale * (y - mean)
    s.squared.add(error**2)
    s.absolute.add(np.abs(error))
    s.response.add(design.scale * y)  # about the column's mean: digits are kept
    place = likelihood.cdf(eta, y)
    s.covered.add((place >= 0.05) & (place <= 0.95))
    s.places += np.bincount(np.minimum((place * BINS).astype(int), BINS - 1), minlength=BINS)


def _add_classes(s: Scores, p: np.ndarray, true: np.ndarray) -> None:
    """p (n, C) of each class, true (n,) its number."""
    s.correct.add(p.argmax(axis=1) == true)
    s.by_class += np.bincount(true, minlength=len(s.by_class))
    cell = np.minimum((p * BINS).astype(int), BINS - 1)
    for c in range(p.shape[1]):
        s.counts[c] += np.bincount(cell[:, c], minlength=BINS)
        s.predicted[c] += np.bincount(cell[:, c], p[:, c], minlength=BINS)
        s.seen[c] += np.bincount(cell[true == c, c], minlength=BINS)
