"""Survival columns: times to an event, censored or not, with a hazard that is constant on each part of the time axis
and gamma priors on hazards (docs/math.md 1.11).

Hyperparameters are rows (shape, rate) of a (C, 2) array, each fixed or learned on a grid, the rate in the column's unit
of time. Internally times are whole ticks (`io.spells`), so that all sums are exact; densities of an event are per tick,
and `log_base` converts them to the column's unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpibayes.hpc.components.component import Array, PriorKey
from mpibayes.hpc.components.grid import as_grid, pick_on_grid
from mpibayes.hpc.components.single import OneByOne, one_uniform, with_new
from mpibayes.hpc.parallel.streams import Stream, cells
from mpibayes.io import spells
from mpibayes.io.rows import Column, Rows
from mpibayes.io.spells import PARTS
from mpibayes.kernels.common.functions import gammaln

NAMES = ("shape", "rate")
SHAPE_GRID = np.geomspace(0.05, 50.0, 13)
RATE_GRID = np.geomspace(0.01, 100.0, 17)  # in units of the time per event
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


class Times:
    """Law of the event's time (see `Law`), with hazards integrated out or drawn.

    shape, rate (C, PARTS, K + 1): posterior of each hazard, per tick. drawn (C, PARTS, K): hazards of the clusters.
    """

    n_bytes = 0  # negligible

    def __init__(self, kind: Survival, hazard: np.ndarray, s: tuple, drawn: np.ndarray | None = None):
        self._kind = kind
        self.shape, self.rate = kind.posterior(hazard, with_new(*s))
        self._drawn = drawn
        self._every = np.arange(self.shape.shape[-1])
        parts = np.arange(PARTS)[:, None]
        lost = [self._lost(c, kind.widths[c][:, None], parts, self._every) for c in range(len(kind))]
        # minus the log probability of reaching the start of a part
        self._before = [np.cumsum(each, axis=0) - each for each in lost]

    def _lost(self, column: int, ticks: np.ndarray, part: np.ndarray, k: np.ndarray) -> np.ndarray:
        """Minus the log probability of surviving `ticks` in a part, in clusters k. Arguments broadcast."""
        shape, rate = self.shape[column][part, k], self.rate[column][part, k]
        result = shape * np.log1p(ticks / rate)
        if self._drawn is None:
            return result
        old = k < self._drawn.shape[-1]
        return np.where(old, self._drawn[column][part, np.where(old, k, 0)] * ticks, result)

    def log_survival(self, column: int, time: np.ndarray, k: np.ndarray) -> np.ndarray:
        """Log probability that the event comes after a time, in the column's unit, in clusters k. Arguments
        broadcast."""
        part, ticks = self._kind.split(column, time)
        lost = self._before[column][part, k] + self._lost(column, ticks, part, k)
        return np.where(np.isposinf(time), -np.inf, -lost)

    def log_probability(self, column: int, low: np.ndarray, high: np.ndarray, k: np.ndarray) -> np.ndarray:
        """Log probability of times from low to high in clusters k; the log density, in the column's unit, where low
        equals high. Arguments broadcast."""
        first, last = (self.log_survival(column, np.maximum(x, 0.0), k) for x in (low, high))
        with np.errstate(divide="ignore", invalid="ignore"):
            between = first + np.log(-np.expm1(np.where(np.isposinf(high), -np.inf, last - first)))
        between = np.where(high < 0.0, -np.inf, between)
        return np.where(low == high, first + self._log_hazard(column, low, k), between)

    def log_masses(self, column: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Log probability of times from low to high (U, 1) in every cluster, (U, K + 1); see `log_probability`."""
        return self.log_probability(column, low, high, self._every)

    def _log_hazard(self, column: int, time: np.ndarray, k: np.ndarray) -> np.ndarray:
        """Log hazard at a time, both in the column's unit, of the part that contains the event. Arguments broadcast."""
        part, ticks = self._kind.split(column, time, whole=True)
        h = self.shape[column][part, k] / (self.rate[column][part, k] + ticks)
        if self._drawn is not None:
            old = k < self._drawn.shape[-1]
            h = np.where(old, self._drawn[column][part, np.where(old, k, 0)], h)
        return np.where(time < 0.0, -np.inf, np.log(h / self._kind.ticks[column]))

    def quantile(self, column: int, clusters: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Times (n,) by which the event has come with probability u in each cluster."""
        return self._reached(column, clusters, -np.log1p(-np.minimum(u, 1.0 - 2.0**-53)))

    def _reached(self, column: int, clusters: np.ndarray, aim: np.ndarray) -> np.ndarray:
        """Times (n,) beyond which the event comes with probability exp(-aim)."""
        before = self._before[column][:, clusters]
        last = len(self._kind.columns[column].ends)
        part = (before[1 : last + 1] <= aim).sum(axis=0)
        rest = aim - np.take_along_axis(before, part[None], axis=0)[0]
        shape, rate = (a[column][part, clusters] for a in (self.shape, self.rate))
        with np.errstate(over="ignore"):
            within = rate * np.expm1(rest / shape)
        if self._drawn is not None:
            old = clusters < self._drawn.shape[-1]
            within[old] = rest[old] / self._drawn[column][part[old], clusters[old]]
        return (self._kind.starts[column][part] + within) * self._kind.ticks[column]

    def within(self, column: int, clusters: np.ndarray, low: np.ndarray, high: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Quantiles (n,) at u of the event's time truncated to low..high."""
        first, last = (self.log_survival(column, np.maximum(x, 0.0), clusters) for x in (low, high))
        return np.clip(self._reached(column, clusters, -first - np.log1p(u * np.expm1(last - first))), low, high)

    def log_density(self, column, x, seen):
        raise NotImplementedError("a single cell is there or not")

    def averages(self, column, x, seen, lacking, weight) -> list[np.ndarray]:
        """Moments of the time, capped at the greatest time of the table: the capped time alone always has a mean."""
        c = self._kind.columns[column]
        ends = np.unique([0.0, *(end for end in c.ends if end < c.maximum), c.maximum])
        node = 0.5 * (ends[1:] - ends[:-1])[:, None] * NODES + 0.5 * (ends[1:] + ends[:-1])[:, None]
        step = (0.5 * (ends[1:] - ends[:-1])[:, None] * WEIGHTS).ravel()
        survival = np.exp(self.log_survival(column, node.reshape(-1, 1), self._every))
        mean, square = step @ survival, (2.0 * step * node.ravel()) @ survival
        shift = mean - c.center
        return [weight @ np.column_stack([shift, square - 2.0 * c.center * mean + c.center**2])]

    def draw(self, column, x, seen, lacking, clusters, stream: Stream, ids) -> np.ndarray:
        return self.quantile(column, clusters, one_uniform(stream, self._kind.substreams[0], column, ids))[:, None]


class Survival(OneByOne):
    """All survival columns of a view. A column's prior: None or {"shape": number or grid, "rate": ...}.

    Statistics of every part of the time axis: events, rows last seen in it, and the ticks that these rows spent in it;
    (C PARTS, K) each. The exposure of a part adds its whole width for every row last seen in a later part.
    """

    name, hyper, hyper_form = "survival", "hazard", (2,)
    hyper_names = NAMES
    stored = ("spells",)
    prior_forms = ((PriorKey("shape"), PriorKey("rate")),)
    statistics = (
        Array("spell_events", "part", np.int64), Array("spell_ended", "part", np.int64), Array("spell_time", "part"),
    )  # fmt: skip
    parameters = Array("spell_start", "start"), Array("spell_hazard", "part")
    odds = "spell", np.float64
    exact = measured = False
    substreams = (2**31 + 8,)  # after those of blocks

    def __init__(self, columns: Sequence[Column], priors: Mapping, joint: Mapping):
        self.columns, n = tuple(columns), np.arange(len(columns) + 1)
        self.cuts, self.cost = {"column": n, "part": PARTS * n, "start": 2 * PARTS * n}, np.full(len(self), 64.0)
        self.odds_form = (len(self), 3 * PARTS)
        self.ticks = np.array([spells.tick(c) for c in columns])
        self.widths, self.starts = np.zeros((2, len(self), PARTS))
        self._start, self.grids = np.empty((len(self), 2)), []
        for i, column in enumerate(columns):
            ends = spells.ends_in_ticks(column)
            self.widths[i, : len(ends) - 1], self.starts[i] = np.diff(ends), ends[-1]
            self.starts[i, : len(ends)] = ends
            prior, unit = priors.get(column.name) or {}, column.rest_scale
            part = [as_grid(prior[n]) if n in prior else g for n, g in zip(NAMES, (SHAPE_GRID, RATE_GRID * unit))]
            self._start[i] = [g[np.argmin(np.abs(np.log(g / a)))] for g, a in zip(part, (1.0, unit))]
            self.grids.append(part)

    def prior(self, hazard: np.ndarray) -> dict[str, np.ndarray]:
        return {"hazard": hazard, "spell_gamma": self._in_ticks(hazard), "spell_width": self.widths.ravel()}

    def log_base(self, rows: Rows) -> float:
        return float(sum(spells.log_ticks(c, rows.spells[:, c.index]).sum() for c in self.columns))

    def merge(self, a: tuple, b: tuple) -> tuple[np.ndarray, ...]:
        return tuple(x + y for x, y in zip(a, b))

    def log_marginal(self, hazard: np.ndarray, s: tuple, columns: slice) -> np.ndarray:
        return self._log_marginals(hazard, s)[columns].sum(axis=1)

    def log_marginal_clusters(self, hazard: np.ndarray, s: tuple) -> np.ndarray:
        return self._log_marginals(hazard, s).sum(axis=0)

    def log_marginal_at(self, hazard: np.ndarray, s: tuple, column: int, power: float) -> float:
        shape, rate = self._in_ticks(hazard)[column]
        return float(log_marginal(shape, rate, *(power * a[column] for a in self.exposed(s))).sum())

    def draw_at(self, hazard: np.ndarray, s: tuple, column: int, power: float, stream: Stream):
        drawn = self.draw(hazard, tuple(power * a for a in s), slice(column, column + 1), stream)
        return tuple(power * a for a in drawn)

    def cell_moments(self, s: tuple):
        raise NotImplementedError("a censored time is not a measurement")

    def side_odds(self, hazard: np.ndarray, s: tuple) -> np.ndarray:
        """For each column, the difference between the sides of the arrays that `draw` returns, at posterior means."""
        shape, rate = self.posterior(hazard, s)
        start, mean = self._scores(shape / rate)
        each = np.concatenate([start, mean], axis=1)
        return np.ascontiguousarray((each[..., 1::2] - each[..., 0::2]).transpose(2, 0, 1))

    def predictive(self, hazard: np.ndarray, s: tuple) -> Times:
        return Times(self, hazard, s)

    def without(self, s: tuple, column: int, x: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, ...]:
        """Statistics (C PARTS, n) of each row's cluster without the row's cell x (n,) in a column."""
        events, ended, time = (a[:, clusters].copy() for a in s)
        seen = np.flatnonzero(~np.isnan(x))
        part, event, ticks = spells.decoded(x[seen])
        at = PARTS * column + part, seen
        events[at] -= event
        ended[at] -= 1
        time[at] -= ticks
        return events, ended, time

    def drawn(self, hazard: np.ndarray, s: tuple, stream: Stream) -> Times:
        return Times(self, hazard, s, self._draw(hazard, s, slice(0, len(self)), stream))

    def update(self, hazard: np.ndarray, s: tuple, columns: slice, stream: Stream) -> np.ndarray:
        """Draw hyperparameters coordinate by coordinate; draws are named as in `grid.draw_numbers`."""
        hazard, exposed = hazard.copy(), self.exposed(s)
        ids = np.arange(2 * columns.start, 2 * columns.stop)
        u = stream.at(self.substreams[0]).uniforms(ids).reshape(-1, 2)
        for column, both in zip(range(columns.start, columns.stop), u):
            events, exposure = (a[column] for a in exposed)
            for i, grid in enumerate(self.grids[column]):
                if len(grid) > 1:
                    points = np.tile(hazard[column], (len(grid), 1))
                    points[:, i] = grid
                    points[:, 1] /= self.ticks[column]
                    score = log_marginal(*points.T[..., None, None], events, exposure).sum(axis=(1, 2))
                    hazard[column, i] = grid[pick_on_grid(score[None], both[i : i + 1])[0]]
        return hazard[columns]

    def draw(self, hazard: np.ndarray, s: tuple, columns: slice, stream: Stream) -> tuple[np.ndarray, ...]:
        """Draw spell_start, spell_hazard: log density of a cell = start[2 part + event] - hazard[part] ticks."""
        h = self._draw(hazard, s, columns, stream)
        start, h = self._scores(h, columns)
        return tuple(np.ascontiguousarray(a.reshape(-1, a.shape[-1])) for a in (start, h))

    def _draw(self, hazard: np.ndarray, s: tuple, columns: slice, stream: Stream) -> np.ndarray:
        """Draw hazards (columns, PARTS, K) per tick. The id of a draw is the index of its part in the kind and that of
        its cluster."""
        shape, rate = (a[columns] for a in self.posterior(hazard, s))
        flat = shape.reshape(-1, shape.shape[-1])
        ids = cells(PARTS * columns.start, *flat.shape)
        log_gamma = stream.at(self.substreams[0]).log_gammas(flat, ids).reshape(shape.shape)
        return np.exp(np.maximum(log_gamma - np.log(rate), -690.0))

    def _scores(self, h: np.ndarray, columns: slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return the start scores (columns, 2 PARTS, K) and the hazards."""
        lost = h * self.widths[columns, :, None]
        before = np.cumsum(lost, axis=1) - lost
        both = np.stack([-before, np.log(h) - before], axis=2)
        return both.reshape(h.shape[0], 2 * PARTS, h.shape[-1]), h

    def split(self, column: int, time: np.ndarray, whole: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Part of times in the column's unit, and ticks into it; infinity becomes 0. whole: choose the part by whole
        ticks, as cells do; an event at a cut lies before it."""
        ticks = np.where(np.isfinite(time), time, 0.0) / self.ticks[column]
        last = len(self.columns[column].ends)
        part = np.searchsorted(self.starts[column, 1 : last + 1], np.round(ticks) if whole else ticks, side="left")
        return part, np.maximum(ticks - self.starts[column][part], 0.0)

    def exposed(self, s: tuple) -> tuple[np.ndarray, np.ndarray]:
        """Events and exposures, in ticks, of each part, (C, PARTS, K) each."""
        events, ended, time = (a.reshape(len(self), PARTS, a.shape[-1]) for a in s)
        beyond = np.cumsum(ended[:, ::-1], axis=1)[:, ::-1] - ended
        return events, time + beyond * self.widths[:, :, None]

    def posterior(self, hazard: np.ndarray, s: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Shapes and rates, per tick, of the hazards' posterior, (C, PARTS, K) each."""
        gamma, (events, exposure) = self._in_ticks(hazard), self.exposed(tuple(s))
        return gamma[:, 0, None, None] + events, gamma[:, 1, None, None] + exposure

    def _in_ticks(self, hazard: np.ndarray) -> np.ndarray:
        return np.column_stack([hazard[:, 0], hazard[:, 1] / self.ticks])

    def _log_marginals(self, hazard: np.ndarray, s: tuple) -> np.ndarray:
        """Log marginal likelihood by column and cluster, (C, K)."""
        gamma = self._in_ticks(hazard)[:, :, None, None]
        return log_marginal(gamma[:, 0], gamma[:, 1], *self.exposed(s)).sum(axis=1)


def log_marginal(shape, rate, events, exposure) -> np.ndarray:
    """Log of the integral over h of Gamma(h; shape, rate) h^events exp(-h exposure). Arguments broadcast."""
    more = gammaln(shape + events) - gammaln(shape) - events * np.log(rate + exposure)
    return more - shape * np.log1p(exposure / rate)
