"""One draw of the coefficients of a regression as a law of its response (`hpc.law.Law`), and averages over draws.

Predictors are given and never modelled. Every predictor needs a value, unless missing ones have a separate coefficient
(regression.missing = "indicator"). The average of p(y | x, theta_s) over draws s is a mixture, whose log density is the
log of the mean density, not the mean of log densities.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.special import gammaln, stdtr

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.hpc.regression.design import Design
from mpibayes.hpc.regression.likelihoods.classes import OfClasses, log_sum_exp
from mpibayes.hpc.regression.likelihoods.likelihood import Likelihood
from mpibayes.io.recording import recorded
from mpibayes.io.rows import Column, Rows

CELLS = 4_000_000  # numbers in a batch: rows times draws times classes, some tens of MiB
NARROW = 1e-4  # relative to the scale: a narrower interval's probability is its width times the density
REASON = "a regression has no law of its predictors, only one of the response given all of them"


@dataclass(frozen=True)
class Law:
    """One draw theta (K, D) as a law of the response, given the predictors. columns: those that questions use."""

    design: Design
    likelihood: Likelihood
    theta: np.ndarray
    columns: Sequence[Column] = ()

    def log_density(self, rows: Rows) -> np.ndarray:
        """log p(response | predictors, theta) of each row in the table's units, (n,): 0 where the response is missing,
        NaN where a predictor is missing and such rows are dropped. Raises DataError for unusable predictors."""
        x, places = self.predictors(rows)
        y, blank = self.design.response_of(rows)
        seen = ~blank[places]
        value = np.full(len(rows), np.nan)
        value[places] = 0.0
        value[places[seen]] = self.likelihood.log_density(self.linear(x[seen]), y[places[seen]])
        value[places[seen]] -= np.log(self.design.scale)
        return value

    def predictors(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return x of the rows that have all needed cells, and the positions of these rows."""
        built = self.design.build(rows, response=False)
        return built.x, np.arange(len(rows)) if built.kept is None else built.kept

    def linear(self, x: np.ndarray) -> np.ndarray:
        """Linear predictors, (n, K), each row by itself: rounding in a matrix product depends on the neighbouring
        rows."""
        eta: np.ndarray = np.einsum("nd,kd->nk", x[:, : self.theta.shape[1]].astype(np.float64), self.theta)
        return eta

    @property
    def width(self) -> int:
        return self.likelihood.n_classes + 1

    def given(self, known: Known) -> Given:
        """See `hpc.law.Law`. Raises ConfigError if a predictor is missing."""
        eta = np.full((known.n_rows, len(self.theta)), np.nan)
        x, places = self.predictors(rows_of(known, self.columns, self.design))
        eta[places] = self.linear(x)
        return Given(self, eta)

    def masses(self, events: Events) -> None:
        """Return None: probabilities depend on the row. Raises ConfigError for a column that is not the response."""
        self.require(events.column.name)

    def require(self, name: str) -> None:
        """Raise ConfigError for a column that is not the response."""
        if name != self.design.response:
            raise ConfigError(f"column '{name}' is a predictor: {REASON}")

    def simulate(self, known: Known, names: Collection[str], stream: Stream, ids: np.ndarray) -> dict[str, np.ndarray]:
        """See `hpc.law.Law`: predictors take their known values, the response is drawn."""
        response = self.design.response
        on_them = known.without([response])
        rows, eta = rows_of(on_them, self.columns, self.design), self.given(on_them).eta
        result = {}
        for column in self.columns:
            if column.name in names:
                x = getattr(rows, column.block)[:, column.index].astype(np.float64)
                result[column.name] = np.where(x == len(column.levels), np.nan, x) if column.levels else x
        if response in names:
            there = ~np.isnan(eta[:, 0])
            y = np.full(len(ids), np.nan)
            y[there] = self.design.recorded(self.likelihood.draw(eta[there], stream.uniforms(ids[there])))
            column = next(c for c in self.columns if c.name == response)
            if not column.levels:
                y[there] = recorded(column, None, y[there])
            if response in known.of:
                events, which = known.of[response]
                single(events)
                values = np.append(_values(events), np.nan)[which]
                y = np.where(np.isnan(values), y, values)
            result[response] = y
        return result


@dataclass(frozen=True)
class Given:
    """Law of the response given the predictors of n rows. eta (n, K): linear predictors, NaN where a predictor is
    missing and such rows are dropped."""

    law: Law
    eta: np.ndarray

    @property
    def log_p(self) -> np.ndarray:
        """Zeros (n,): predictors have no probability."""
        return np.zeros(len(self.eta))

    def log_density(self, target: Known) -> np.ndarray:
        """Log probability of the target response of each row, (n,); 0 where it is unknown."""
        for name in target.of:
            self.law.require(name)
        if not target.of:
            return np.zeros(target.n_rows)
        events, which = target.of[self.law.design.response]
        there = which < len(events)
        result = np.zeros(target.n_rows)
        p = self._probabilities(events, which)
        with np.errstate(divide="ignore"):
            result[there] = np.log(p[there])
        return result

    def averaged(self, events: Events, masses: None) -> np.ndarray:
        """Probabilities (n, U) of the response's events."""
        n = len(self.eta)
        return np.column_stack([self._probabilities(events, np.full(n, u)) for u in range(len(events))])

    def _probabilities(self, events: Events, which: np.ndarray) -> np.ndarray:
        """Probability of each row's event, (n,); the density of a number without a step; 1 without an event."""
        likelihood, design, eta, there = self.law.likelihood, self.law.design, self.eta, which < len(events)
        result = np.ones(len(which))
        at = which[there]
        if events.column.levels:
            p = cast(OfClasses, likelihood).probabilities(eta[there])
            if events.sets is not None:
                result[there] = (p * events.sets[at]).sum(axis=1)
            else:
                result[there] = p[np.arange(len(at)), events.codes[at]]
            return result
        low, high = ((x[at] - design.center) / design.scale for x in (events.low, events.high))
        a, b = ((x - eta[there, 0]) / likelihood.scale for x in (low, high))
        nu = likelihood.nu
        with np.errstate(invalid="ignore"):
            narrow = ~(b - a > NARROW)
            right = a + b > 0.0  # the mirror image is in the left tail
            p = stdtr(nu, np.where(right, -a, b)) - stdtr(nu, np.where(right, -b, a))
            middle = 0.5 * (a + b)
            constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu)
            height = np.exp(constant - 0.5 * (nu + 1.0) * np.log1p(middle**2 / nu))
            size = np.where(b > a, b - a, 1.0 / (likelihood.scale * design.scale))
            result[there] = np.where(narrow, height * size, p)
        result[there & np.isnan(eta[:, 0])] = np.nan
        return result


def single(events: Events) -> None:
    """Raise ConfigError for ranges and sets of levels."""
    half = 0.5 * events.column.resolution
    wide = bool(len(events.low)) and bool(np.any(events.high - events.low > 2.0 * half * (1.0 + 1e-9) + 1e-300))
    if (events.sets is not None and events.column.levels) or (not events.column.levels and wide):
        raise ConfigError(f"column '{events.column.name}': a regression takes single values of its predictors")


def _values(events: Events) -> np.ndarray:
    """Recorded values of single events."""
    if events.column.levels:
        return events.codes.astype(np.float64)
    middle: np.ndarray = 0.5 * (events.low + events.high)
    return middle


def rows_of(known: Known, columns: Sequence[Column], design: Design) -> Rows:
    """Return rows with the known predictors. Raises ConfigError if one is missing, or the response is known."""
    if design.response in known.of:
        raise ConfigError(f"column '{design.response}' is the response: {REASON}; it cannot be given")
    needed_ = [t.column.name for t in design.terms if not t.indicator and t.column.name not in known.of]
    if needed_:
        more = f", and {len(needed_) - 6} more" if len(needed_) > 6 else ""
        raise ConfigError(f"{REASON}; give a value of each: {', '.join(needed_[:6])}{more}")
    rows, by_name = Rows.missing(columns, known.n_rows), {c.name: c for c in columns}
    for name, (events, which) in known.of.items():
        single(events)
        column = by_name[name]
        getattr(rows, column.block)[:, column.index] = np.append(_values(events), column.blank)[which]
    return rows


@dataclass(frozen=True)
class Average:
    """Draws theta (S, K, D) of one likelihood, evaluated together; rows are given by their predictors x (n, W)."""

    likelihood: Likelihood
    theta: np.ndarray

    @classmethod
    def of(cls, draws: Iterable[Law]) -> Average:
        draws = list(draws)
        return cls(draws[0].likelihood, np.stack([draw.theta for draw in draws]))

    @property
    def batch(self) -> int:
        """Rows to work on at a time."""
        return max(64, CELLS // (len(self.theta) * max(2, self.likelihood.n_classes)))

    def linear(self, x: np.ndarray) -> np.ndarray:
        """Linear predictors of the rows, (n, S, K)."""
        s, k, d = self.theta.shape
        eta: np.ndarray = (x[:, :d].astype(np.float64) @ self.theta.reshape(s * k, d).T).reshape(len(x), s, k)
        return eta

    def log_densities(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """log p(y | x, theta_s) of each row and draw, (n, S). eta: from `linear`. y: (n,)."""
        n, s, k = eta.shape
        return self.likelihood.log_density(eta.reshape(n * s, k), np.repeat(y, s)).reshape(n, s)

    def log_density(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Log of the mean density over draws, (n,)."""
        log_p: np.ndarray = log_sum_exp(self.log_densities(eta, y)) - np.log(eta.shape[1])
        return log_p
