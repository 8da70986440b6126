"""Baseline hazard of an outcome that is a time to an event: the hazard of a row is that of the baseline times exp(eta)
(docs/math.md 2.16).

It is constant on each part of the time axis. Given it, the event of a row is a Poisson count with log rate eta + log H,
H its cumulative baseline hazard; given all coefficients each constant has a gamma posterior. Times are as in a table:
negative if censored, see `io.spells`; the hazards are per tick, densities in the column's unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from mpibayes.hpc.outcome.likelihoods import Poisson, points
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io import spells
from mpibayes.io.rows import Column

SHAPE = 1.0  # of the gamma prior of each hazard, whose mean is the events per time of the whole table
MOST_ETA = 690.0  # as in kernels/mixture/layout.h
SHORTEST = 1 / 128  # of the first part, as which shorter times count: events at 0 alone would have infinite hazards
LEAST = 1e-300  # least cumulative hazard


@dataclass(frozen=True)
class Baseline:
    """Likelihood of times given eta; methods as in `Likelihood`. starts (E + 1,): of the parts, in ticks; hazards
    (E + 1,), per tick; shape, rate: of their gamma prior, the rate in ticks."""

    of_classes: ClassVar[bool] = False
    of_levels: ClassVar[bool] = False
    has_scale: ClassVar[bool] = False

    starts: np.ndarray
    tick: float
    hazards: np.ndarray
    shape: float = SHAPE
    rate: float = 1.0

    @classmethod
    def of(cls, column: Column, sums: np.ndarray | None = None) -> Baseline:
        """Make the baseline of a column's parts, with hazards at their posterior mean given the `sums` of all rows at
        eta = 0; None: without any row."""
        starts = spells.ends_in_ticks(column)
        bare = cls(starts, spells.tick(column), np.ones(len(starts)))
        if sums is None:
            return bare
        events, exposure = bare.exposed(sums)
        rate = max(exposure.sum(), 1.0) / max(events.sum(), 1.0)
        return replace(bare, rate=rate, hazards=(SHAPE + events) / (rate + exposure))

    @cached_property
    def before(self) -> np.ndarray:
        """Cumulative hazard at the start of each part, (E + 1,)."""
        return np.concatenate([[0.0], np.cumsum(self.hazards[:-1] * np.diff(self.starts))])

    @property
    def ends(self) -> np.ndarray:
        """Ends of all parts but the last, (E,), in the column's unit."""
        return self.starts[1:] * self.tick

    def split(self, times: np.ndarray, whole: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Return the part of each time, and ticks into it. whole: of whole ticks, as cells are, and at least a small
        part of the first; an event at the end of a part lies in it."""
        ticks = np.abs(times) / self.tick
        ticks = np.maximum(np.round(ticks), SHORTEST * max(self.starts[1], 1.0)) if whole else ticks
        part = np.searchsorted(self.starts[1:], ticks, side="left")
        return part, ticks - self.starts[part]

    def cumulative(self, times: np.ndarray, whole: bool = True) -> np.ndarray:
        """Return the cumulative hazard H up to each time."""
        part, ticks = self.split(times, whole)
        return self.before[part] + self.hazards[part] * ticks

    def log_cumulative(self, times: np.ndarray) -> np.ndarray:
        """Return log H of rows, (n,); 0 where the time is missing."""
        return np.log(np.where(np.isnan(times), 1.0, np.maximum(self.cumulative(np.nan_to_num(times)), LEAST)))

    def sums(self, times: np.ndarray, eta: np.ndarray | None = None) -> np.ndarray:
        """Return for each part the number of events, and of the rows that were last seen in it the sums of exp(eta) and
        of exp(eta) times the ticks spent there, (3, E + 1). times (n,): nothing missing; eta: 0 by default."""
        part, ticks = self.split(times)
        risk = np.ones(len(times)) if eta is None else _risk(eta)
        of = ~(times < 0.0), risk, risk * ticks
        return np.stack([np.bincount(part, each, len(self.starts)) for each in of])

    def exposed(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return events and exposures, in ticks, of each part, (E + 1,) each, from `sums`."""
        events, ended, spent = sums
        beyond = np.cumsum(ended[::-1])[::-1] - ended
        return events, spent + beyond * np.append(np.diff(self.starts), 0.0)

    def fitted(self, times: np.ndarray, eta: np.ndarray) -> Baseline:
        """Return the most probable hazards given eta (n,), without their prior."""
        events, exposure = self.exposed(self.sums(times, eta))
        return replace(self, hazards=np.maximum(events, 0.5) / np.maximum(exposure, 1.0))

    # --- draws on root ------------------------------------------------------------------------------------------------

    def drawn_given(self, sums: np.ndarray, stream: np.random.Generator) -> Baseline:
        """Draw the hazards given the `sums` of all rows."""
        events, exposure = self.exposed(sums)
        hazards = stream.gamma(self.shape + events) / (self.rate + exposure)
        return replace(self, hazards=np.maximum(hazards, LEAST))

    def shifted(self, by: float) -> Baseline:
        """Return the baseline with which all rows have the same hazards if `by` is added to every eta."""
        return replace(self, hazards=self.hazards * math.exp(-by))

    def log_shift(self, by: float) -> float:
        """Return the log prior density of all log hazards after `shifted`, less that before."""
        if by < -MOST_ETA:
            return -math.inf
        return -self.shape * len(self.hazards) * by - self.rate * float(self.hazards.sum()) * math.expm1(-by)

    def log_prior(self) -> float:
        """Return the log prior density of the hazards in the column's unit, normalised."""
        n, log_h = len(self.hazards), np.log(self.hazards)
        constant = self.shape * math.log(self.rate) - math.lgamma(self.shape) + math.log(self.tick)
        return n * constant + float(((self.shape - 1.0) * log_h - self.rate * self.hazards).sum())

    def log_rest(self, events: np.ndarray) -> float:
        """Return the terms of the log likelihood that do not depend on eta, from the events of each part."""
        return float(events @ np.log(self.hazards / self.tick))

    # --- as a likelihood ----------------------------------------------------------------------------------------------

    @staticmethod
    def centre(mean: list[float]) -> list[float]:
        """Return the eta at which a regression starts."""
        return [0.0 for _ in mean]

    def _log_hazard(self, times: np.ndarray) -> np.ndarray:
        return np.log(self.hazards / self.tick)[self.split(times)[0]]

    def log_density(self, eta: np.ndarray, y: np.ndarray, nu: float, scale: float) -> np.ndarray:
        of_event = np.where(y < 0.0, 0.0, eta + self._log_hazard(y))
        return of_event - _risk(eta) * self.cumulative(y)

    def log_averages(self, y: np.ndarray, at: np.ndarray, spread: np.ndarray, nu: float, scale: float) -> np.ndarray:
        log_h, event = self.log_cumulative(y), np.where(y < 0.0, 0.0, 1.0)
        return Poisson.log_averages(event, at + log_h, spread, nu, scale) + event * (self._log_hazard(y) - log_h)

    def expectation(self, eta: np.ndarray) -> np.ndarray:
        """Return the probabilities that the event comes after each of `ends`, (..., E)."""
        return np.exp(-_risk(eta)[..., None] * self.before[1:])

    def average_expectations(self, at: np.ndarray, spread: np.ndarray) -> np.ndarray:
        eta, log_weight = points(at, spread)
        weight, risk = np.exp(log_weight), _risk(eta)
        return np.stack([np.exp(-risk * before) @ weight for before in self.before[1:]], axis=1)

    def log_between(self, eta: np.ndarray, low: np.ndarray, high: np.ndarray, nu: float, scale: float) -> np.ndarray:
        risk = _risk(eta)
        first, last = (-risk * self.cumulative(np.maximum(x, 0.0), whole=False) for x in (low, high))
        with np.errstate(divide="ignore", invalid="ignore"):
            between = first + np.log(-np.expm1(last - first))
            at = self.log_density(eta, np.where(np.isfinite(low), np.maximum(low, 0.0), 0.0), nu, scale)
        return np.where(low == high, np.where(low < 0.0, -np.inf, at), np.where(high < 0.0, -np.inf, between))

    def drawn(self, eta: np.ndarray, nu: float, scale: float, stream: Stream, ids: np.ndarray) -> np.ndarray:
        return self.drawn_between(eta, np.zeros(len(ids)), np.full(len(ids), np.inf), stream, ids)

    def drawn_between(
        self, eta: np.ndarray, low: np.ndarray, high: np.ndarray, stream: Stream, ids: np.ndarray
    ) -> np.ndarray:  # fmt: skip
        """Draw times (n,) between bounds (n,) each, in the column's unit."""
        first, last = (self.cumulative(np.maximum(x, 0.0), whole=False) for x in (low, high))
        risk = _risk(eta)
        aim = first - np.log1p(stream.uniforms(ids) * np.expm1(-risk * (last - first))) / risk
        part = np.searchsorted(self.before[1:], aim, side="left")
        return (self.starts[part] + (aim - self.before[part]) / self.hazards[part]) * self.tick


def _risk(eta: np.ndarray) -> np.ndarray:
    """Return exp(eta), neither 0 nor infinite."""
    return np.exp(np.clip(eta, -MOST_ETA, MOST_ETA))
