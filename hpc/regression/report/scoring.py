"""Scores of a regression on held-out rows: sums over rows, which may be added in pieces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.regression.design import Built, Design
from mpibayes.hpc.regression.law import Average

BINS = 20  # of predicted probabilities, for the calibration


@dataclass
class Mean:
    """Running mean over rows, and its standard error."""

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
    """Scores of held-out rows. log_density: log predictive density per row, nats, averaged over draws; at_mean: at the
    posterior mean of theta."""

    n_draws: int
    n_rows: int = 0
    log_density: Mean = field(default_factory=Mean)
    at_mean: Mean = field(default_factory=Mean)

    def add(self, average: Average, mean: Average, x: np.ndarray, y: np.ndarray, design: Design) -> None:
        """Add rows with predictors x (n, W) and responses y (n,). mean: the posterior mean alone."""
        eta, eta_mean = average.linear(x), mean.linear(x)
        jacobian = np.log(design.scale)
        self.n_rows += len(y)
        self.log_density.add(average.log_density(eta, y) - jacobian)
        self.at_mean.add(mean.log_density(eta_mean, y) - jacobian)
        self._add_predictions(average.likelihood, eta, eta_mean, y, design)


@dataclass
class ClassScores(Scores):
    """Scores for classes. correct, correct_at_mean: share of rows whose most probable class is the true one. by_class
    (C,): rows of each class. counts, predicted, seen (C, BINS): rows by the predicted probability of a class, sum of
    these probabilities, and number of these rows in the class."""

    correct: Mean = field(default_factory=Mean)
    correct_at_mean: Mean = field(default_factory=Mean)
    by_class: np.ndarray | int = 0
    counts: np.ndarray | float = 0.0
    predicted: np.ndarray | float = 0.0
    seen: np.ndarray | float = 0.0

    def _add_predictions(self, likelihood, eta, eta_mean, y, design) -> None:
        n_classes = len(design.classes)
        true = likelihood.decode(y).astype(np.int64)
        p = likelihood.probabilities(eta).mean(axis=1)
        self.correct.add(p.argmax(axis=1) == true)
        self.correct_at_mean.add(likelihood.probabilities(eta_mean)[:, 0].argmax(axis=1) == true)
        self.by_class += np.bincount(true, minlength=n_classes)
        cell = np.minimum((p * BINS).astype(int), BINS - 1)
        each = range(n_classes)
        self.counts += np.array([np.bincount(cell[:, c], minlength=BINS) for c in each], float)
        self.predicted += np.array([np.bincount(cell[:, c], p[:, c], minlength=BINS) for c in each])
        self.seen += np.array([np.bincount(cell[true == c, c], minlength=BINS) for c in each], float)

    @property
    def by_frequency(self) -> float:
        """Accuracy of always predicting the most frequent class of these rows."""
        return float(self.by_class.max() / self.by_class.sum())


@dataclass
class NumberScores(Scores):
    """Scores for numbers. squared, absolute: errors of the predictive mean in units of the response. covered: share of
    responses between the 5 and 95 % quantiles. places (BINS,): rows by the position of the response in its predictive
    distribution."""

    squared: Mean = field(default_factory=Mean)
    absolute: Mean = field(default_factory=Mean)
    covered: Mean = field(default_factory=Mean)
    response: Mean = field(default_factory=Mean)
    places: np.ndarray | int = 0

    def _add_predictions(self, likelihood, eta, eta_mean, y, design) -> None:
        mean, _ = likelihood.moments(eta)
        error = design.scale * (y - mean)
        self.squared.add(error**2)
        self.absolute.add(np.abs(error))
        self.response.add(design.scale * y)  # about the column's mean, to keep digits
        place = likelihood.cdf(eta, y)
        self.covered.add((place >= 0.05) & (place <= 0.95))
        self.places += np.bincount(np.minimum((place * BINS).astype(int), BINS - 1), minlength=BINS)

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self.squared.value))

    @property
    def rmse_of_mean(self) -> float:
        """RMSE of predicting every row by the mean of these rows."""
        return float(np.sqrt(max(self.response.squares / self.response.n - self.response.value**2, 0.0)))


def score(blocks: Iterable[Built], average: Average, mean: np.ndarray, design: Design) -> Scores | None:
    """Score the rows of `blocks`; None if there are none. mean (K, D): the posterior mean of theta."""
    scores = (NumberScores if design.likelihood.numeric else ClassScores)(len(average.theta))
    alone = Average(average.likelihood, mean[None])
    for built in blocks:
        for start in range(0, len(built.x), average.batch):
            here = slice(start, start + average.batch)
            scores.add(average, alone, built.x[here], built.y[here], design)
    return scores if scores.n_rows else None
