"""Questions to the draws of a regression (`hpc.family.Asked`): the response, given all predictors.

A regression has no law of its predictors. Every predictor needs a value, unless missing ones have a coefficient of
their own (regression.missing = "indicator").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import gammaln, stdtr

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.regression.design import Design
from mpibayes.hpc.regression.draws import Posterior
from mpibayes.hpc.regression.predict import needed
from mpibayes.hpc.regression.predictive import Predictive
from mpibayes.io.recording import recorded
from mpibayes.io.rows import Column, Rows

DRAWS = 200
NARROW = 1e-4  # of the scale: an interval's probability is then its width times the density
REASON = "a regression has no law of its predictors, only one of the response given all of them"


def ask(run: Posterior, draws: int | None) -> Asked:
    """See `hpc.family.Queries`."""
    return Asked(run, draws)


class Asked:
    """See `hpc.family.Asked`."""

    refused: Mapping[str, str] = {}
    joint: Mapping[str, str] = {}
    linked, link_keys, joinable = False, {}, ()
    cannot = dict.fromkeys(
        (
            "surprisal of the table",
            "surprisal",
            "novelty",
            "similarity",
            "dependence",
            "predictors",
            "compare",
            "complete",
            "synthesize",
            "pairs",
        ),
        REASON,
    )
    weights = None
    shares = ""

    def __init__(self, run: Posterior, draws: int | None):
        run.read_traces()
        run.require_draws()
        self.n_kept = sum(int((c.trace["cycle"] > c.burn_in).sum()) for c in run.chains)
        self.design, columns = needed(run.design, run.data.columns)
        table = run.table
        self.like = table.having(columns)
        self.columns = [as_modelled(c) for c in columns]
        response = self.design.response
        self.answers = frozenset([response])
        self.run, self.n_rows, most = run, run.n_rows, max(1, (draws or DRAWS) // len(run.chains))
        likelihood = run.likelihood
        self._laws, chain_of = [], []
        for i, c in enumerate(run.chains):
            theta = c.trace["theta"][evenly(np.flatnonzero(c.trace["cycle"] > c.burn_in), most)]
            for each in theta.reshape(len(theta), self.design.n_classes, self.design.n_predictors):
                self._laws.append(ResponseLaw(Predictive(self.design, likelihood, each), self.columns))
                chain_of.append(i)
        self.chain_of = np.array(chain_of)

    def draws(self, names: Collection[str], some: slice = slice(None)) -> list[ResponseLaw]:
        """The draws, or some of them."""
        return self._laws[some]

    def may_lean(self, child: str, parent: str) -> bool:
        """No column does."""
        return False

    def partition(self) -> None:
        """There are no clusters."""

    def cluster_group(self, number: int, n: int | None, view: int) -> None:
        """There are none."""

    def training_numbers(self) -> np.ndarray:
        """Row numbers of the training rows in the table, from 0, int64 (N,)."""
        rows = self.run.data.training_rows
        return np.arange(self.n_rows) if rows is None else rows

    def recorded(self, numbers: np.ndarray) -> Rows:
        """Rows of the table by their numbers, ascending; of `columns` alone."""
        rows = self.run.data.recorded_at(numbers)
        stored, found = {c.name: c for c in self.run.data.stored}, Rows.missing(self.columns, len(numbers))
        for column in self.columns:
            mine = stored[column.name]
            getattr(found, column.block)[:, column.index] = getattr(rows, mine.block)[:, mine.index]
        return found


def as_modelled(column: Column) -> Column:
    """Numbers without atoms and logarithms; a count is a number in steps of 1."""
    if column.kind == "count":
        return replace(column, kind="real", resolution=1.0)
    return replace(column, atoms=(), log=False)


class ResponseLaw:
    """One draw as a law of the response; the state of a row is its linear predictors, and is NaN where a predictor is
    missing and such rows are dropped."""

    def __init__(self, draw: Predictive, columns: Sequence[Column]):
        self._draw, self._columns = draw, columns
        self.width = draw.likelihood.n_classes + 1

    @property
    def design(self) -> Design:
        return self._draw.design

    def given(self, known: Known) -> tuple[np.ndarray, list[np.ndarray]]:
        """Zeros (n,), and the linear predictors (n, K). Raises ConfigError where predictors lack."""
        eta = np.full((known.n_rows, len(self._draw.theta)), np.nan)
        x, places = self._draw.predictors(rows_of(known, self._columns, self.design))
        eta[places] = self._draw.linear(x)
        return np.zeros(known.n_rows), [eta]

    def log_given(self, wanted: Known, state: Sequence[np.ndarray]) -> np.ndarray:
        """Log probability of the response that is wanted of each row, (n,); 0 where it is missing."""
        for name in wanted.of:
            self._require(name)
        if not wanted.of:
            return np.zeros(wanted.n_rows)
        events, which = wanted.of[self.design.response]
        there = which < len(events)
        found = np.zeros(wanted.n_rows)
        p = self._probabilities(state[0], events, which)
        with np.errstate(divide="ignore"):
            found[there] = np.log(p[there])
        return found

    def masses(self, events: Events) -> Events:
        """Argument of `averaged`: the events themselves, since probabilities depend on the row."""
        self._require(events.column.name)
        return events

    def averaged(self, events: Events, state: Sequence[np.ndarray], masses: Events) -> np.ndarray:
        """Probabilities (n, U) of the response's events."""
        n = len(state[0])
        return np.column_stack([self._probabilities(state[0], masses, np.full(n, u)) for u in range(len(masses))])

    def simulate(self, known: Known, wanted: Collection[str], stream: Stream, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Recorded values (n,) of each column wanted: of predictors what is known, the response drawn."""
        rows = rows_of(known.without([self.design.response]), self._columns, self.design)
        _, (eta,) = self.given(known.without([self.design.response]))
        found = {}
        for column in self._columns:
            if column.name in wanted:
                x = getattr(rows, column.block)[:, column.index].astype(np.float64)
                found[column.name] = np.where(x == len(column.levels), np.nan, x) if column.levels else x
        response = self.design.response
        if response in wanted:
            there = ~np.isnan(eta[:, 0])
            y = np.full(len(ids), np.nan)
            drawn = self._draw.likelihood.draw(eta[there], stream.uniforms(ids[there]))
            blank = Rows.missing(self._columns, int(there.sum()))
            self.design.set_response(blank, np.arange(len(drawn)), drawn)
            column = self._column
            y[there] = getattr(blank, column.block)[:, column.index]
            if not column.levels:
                y[there] = recorded(column, None, y[there])
            if response in known.of:
                events, which = known.of[response]
                single(events)
                values = np.append(_values(events), np.nan)[which]
                y = np.where(np.isnan(values), y, values)
            found[response] = y
        return found

    @property
    def _column(self) -> Column:
        return next(c for c in self._columns if c.name == self.design.response)

    def _require(self, name: str) -> None:
        if name != self.design.response:
            raise ConfigError(f"column '{name}' is a predictor: {REASON}")

    def _probabilities(self, eta: np.ndarray, events: Events, which: np.ndarray) -> np.ndarray:
        """Probability of each row's event, (n,); a density where it is a number without a step; 1 without an event."""
        likelihood, design, there = self._draw.likelihood, self.design, which < len(events)
        found = np.ones(len(which))
        at = which[there]
        if events.column.levels:
            p = likelihood.probabilities(eta[there])
            if events.sets is not None:
                found[there] = (p * events.sets[at]).sum(axis=1)
            else:
                found[there] = p[np.arange(len(at)), events.codes[at]]
            return found
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
            found[there] = np.where(narrow, height * size, p)
        found[there & np.isnan(eta[:, 0])] = np.nan
        return found


def single(events: Events) -> None:
    """Raises ConfigError for ranges and sets of levels."""
    half = 0.5 * events.column.resolution
    wide = bool(len(events.low)) and bool(np.any(events.high - events.low > 2.0 * half * (1.0 + 1e-9) + 1e-300))
    if (events.sets is not None and events.column.levels) or (not events.column.levels and wide):
        raise ConfigError(f"column '{events.column.name}': a regression takes single values of its predictors")


def _values(events: Events) -> np.ndarray:
    """Recorded values of single events."""
    if events.column.levels:
        return events.codes.astype(np.float64)
    return 0.5 * (events.low + events.high)


def rows_of(known: Known, columns: Sequence[Column], design: Design) -> Rows:
    """Rows with the predictors that are known. Raises ConfigError where one lacks, or the response is known."""
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
