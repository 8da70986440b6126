"""The predictive distribution of the response: of one draw of the coefficients, and averaged over draws.

Predictors are given and never modelled. The average of p(y | x, theta_s) over draws s is a mixture, whose log density
is the log of the mean density, not the mean of log densities.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.hpc.regression.design import Design, blank_cells
from mpibayes.hpc.regression.likelihoods import Likelihood
from mpibayes.hpc.regression.likelihoods.classes import log_sum_exp
from mpibayes.io.rows import Column, Rows

CELLS = 4_000_000  # numbers of a batch: rows times draws times classes, some tens of MiB


@dataclass(frozen=True)
class Predictive:
    """One draw theta (K, D) as a distribution over rows: of the response, given the predictors."""

    design: Design
    likelihood: Likelihood
    theta: np.ndarray

    def log_density(self, rows: Rows) -> np.ndarray:
        """log p(response | predictors, theta) of each row in the table's units, (n,): 0 where the response is missing,
        NaN where a predictor is and such rows are dropped. Raises DataError for predictors that cannot be used."""
        x, places = self.predictors(rows)
        y, blank = self.design.response_of(rows)
        seen = ~blank[places]
        value = np.full(len(rows), np.nan)
        value[places] = 0.0
        value[places[seen]] = self.likelihood.log_density(self.linear(x[seen]), y[places[seen]])
        value[places[seen]] -= np.log(self.design.scale)
        return value

    def simulate(self, given: Rows, columns: Sequence[Column], stream: Stream, first_row: int = 0) -> Rows:
        """`given` with missing responses drawn from this distribution, where `columns` has the response.

        A row's draw depends on `stream` and its number alone, which counts from first_row. A response stays missing
        where a predictor is missing and such rows are dropped. Raises ConfigError where `columns` has predictors with
        missing cells, which are never drawn.
        """
        drawn = given.take(slice(None))
        others = [c.name for c in columns if c.name != self.design.response and blank_cells(given, c).any()]
        if others:
            raise ConfigError(f"a regression has no distribution of its predictors: {', '.join(others)}")
        blank = blank_cells(given, self.design.response_column)
        if any(c.name == self.design.response for c in columns) and blank.any():
            x, places = self.predictors(given)
            missing = blank[places]
            places = places[missing]
            y = self.likelihood.draw(self.linear(x[missing]), stream.uniforms(first_row + places))
            self.design.set_response(drawn, places, y)
        return drawn

    def predictors(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """x of the rows that have all that is needed, and which these are."""
        built = self.design.build(rows, response=False)
        return built.x, np.arange(len(rows)) if built.kept is None else built.kept

    def linear(self, x: np.ndarray) -> np.ndarray:
        """Linear predictors, (n, K), each row's by itself: a product of matrices rounds by the rows beside it."""
        return np.einsum("nd,kd->nk", x[:, : self.theta.shape[1]].astype(np.float64), self.theta)


@dataclass(frozen=True)
class Average:
    """Draws theta (S, K, D) of one likelihood, worked on together; rows are given by their predictors x (n, W)."""

    likelihood: Likelihood
    theta: np.ndarray

    @classmethod
    def of(cls, draws: Iterable[Predictive]) -> Average:
        draws = list(draws)
        return cls(draws[0].likelihood, np.stack([draw.theta for draw in draws]))

    @property
    def batch(self) -> int:
        """Rows to work on at a time."""
        return max(64, CELLS // (len(self.theta) * max(2, self.likelihood.n_classes)))

    def linear(self, x: np.ndarray) -> np.ndarray:
        """Linear predictors of the rows, (n, S, K)."""
        s, k, d = self.theta.shape
        return (x[:, :d].astype(np.float64) @ self.theta.reshape(s * k, d).T).reshape(len(x), s, k)

    def log_densities(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """log p(y | x, theta_s) of each row and draw, (n, S); eta: of `linear`, y (n,)."""
        n, s, k = eta.shape
        return self.likelihood.log_density(eta.reshape(n * s, k), np.repeat(y, s)).reshape(n, s)

    def log_density(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """log of the mean density, (n,)."""
        return log_sum_exp(self.log_densities(eta, y)) - np.log(eta.shape[1])
