"""Law for queries of the outcome of a mixture's rows (docs/math.md 2.16), jointly with its predictors, on which it
depends even within clusters.

Given cluster k, predictors are independent of each other and of all other columns, and p(y | k) is the average of
p(y | k, predictors) over them. Predictors with a known value keep it; the rest are drawn from the cluster, within what
is known of them. Predictors in other views have to have a value: the outcome is independent of these views given them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.crosscat.laws.cell_draws import CellDraws
from mpibayes.hpc.crosscat.laws.view_law import ViewLaw
from mpibayes.hpc.data.events import Events, Known, of_values
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.asked import AskedOutcome
from mpibayes.hpc.parallel.streams import Purpose, Stream

MOST, LEAST = 256, 32  # draws of predictors per cluster that an answer averages over
TOGETHER = 1 << 20  # numbers of a cluster in memory together
TRIES = 64  # proposed sets of predictors, of which one is chosen where the outcome is known and they are not
COVERED = 0.999  # total probability from which events count as covering the whole column


class Alike(NamedTuple):
    """Rows with the same known predictors and the same knowledge of the rest. rows (n,): their numbers; cells: known
    values (n,) by predictor; others: what is known of the rest, as one row."""

    rows: np.ndarray
    cells: Mapping[str, np.ndarray]
    others: Known


class OutcomeLaw:
    """Joint law of the outcome and its predictors; see `blocks.JointLaw`. view: without the outcome. outside:
    predictors in other views."""

    def __init__(self, of: AskedOutcome, view: ViewLaw):
        self.of, self.view = of, view
        self.name, every = of.coder.column.name, of.coder.predictors
        self.predictors = [name for name in every if name in view.names]
        self.outside = [name for name in every if name not in view.names]
        self.names = [self.name, *self.predictors]

    def knows(self, known: Known) -> bool:
        return any(name in known.of for name in (*self.names, *self.outside))

    def require(self, known: Known) -> None:
        """Raise ConfigError unless each row has a value of every predictor in another view."""
        for name in self.outside:
            if name not in known.of or np.isnan(_values(*known.of[name])).any():
                raise ConfigError(
                    f"column '{self.name}' is the run's outcome, and in a draw its predictor '{name}' is in another "
                    f"view: give '{name}' a value, too"
                )

    def beside(self, known: Known, drawn: Mapping[str, np.ndarray]) -> Known:
        """Add drawn cells (n,) of the predictors in other views to what is known of rows, unless the outcome is known,
        on which these cells depend."""
        if self.name in known.of:
            return known
        coder, of = self.of.coder, {}
        for column in (term.column for part in (coder.slopes, coder.covariates) for term in part.terms):
            if column.name in self.outside and column.name in drawn:
                values, which = np.unique(drawn[column.name], return_inverse=True)
                of[column.name] = of_values(replace(column, atoms=(), log=False), values), which
        return known.join(Known(known.n_rows, of))

    def score(self, known: Known) -> np.ndarray:
        total = np.zeros((known.n_rows, len(self.view.log_weight)))
        for name in self.predictors:
            if name in known.of:
                events, which = known.of[name]
                table = self.view.log_masses(events)
                total += np.append(table, np.zeros((1, table.shape[1])), axis=0)[which]
        if self.name in known.of:
            events, which = known.of[self.name]
            there = np.flatnonzero(which < len(events))
            low, high = (end[which[there], None] for end in self.of.coder.bounds(events))
            for alike in self._alike(known.take(there)):
                p = self._averaged(alike, low[alike.rows], high[alike.rows])
                with np.errstate(divide="ignore"):
                    total[there[alike.rows]] += np.log(p[:, 0])
        return total

    def given(self, known: Known, given: Known | None) -> np.ndarray:
        if given is None or not self.knows(given):
            return self.score(known)
        before = self.score(given)
        return self.score(known.join(given)) - np.where(np.isfinite(before), before, 0.0)

    def log_masses(self, events: Events) -> np.ndarray:
        if events.column.name != self.name:
            return self.view.log_masses(events)
        if self.outside:  # see `averaged`
            return np.full((len(events), len(self.view.log_weight)), np.nan)
        with np.errstate(divide="ignore"):
            return np.log(self._masses(events, Known(1, {}))[0])

    def averaged(self, events: Events, weight: np.ndarray, given: Known) -> np.ndarray:
        if events.column.name == self.name:
            out = np.empty((len(weight), len(events)))
            for alike, p in self._each(events, given):
                out[alike] = (p * weight[alike][:, None]).sum(axis=2)
            return out
        masses = np.exp(self.view.log_masses(events))
        if self.name not in given.of:
            return weight @ masses.T
        return self._of_predictor(events, weight, given.without([events.column.name]), masses)

    def drawn(
        self, draws: CellDraws, known: Known, names: Collection[str], cluster: np.ndarray, stream: Stream,
        ids: np.ndarray, without: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Return recorded values (n,) of the columns `names`, by the parameters of `draws`; other arguments as in
        `CellDraws.cells`. Where the outcome is known and a predictor is not, one of TRIES draws of the predictors is
        chosen with probability proportional to the outcome's likelihood."""
        cells = {name: draws.single(name, known, cluster, stream, ids, without) for name in self.predictors}
        if self.name in names or self.name in known.of:
            self.require(known)
            cells |= {name: _values(*known.of[name]) for name in self.outside}
        own = replace(stream, purpose=Purpose.OUTCOME_CELLS)
        events, which = known.of.get(self.name, (None, np.zeros(len(ids), np.intp)))
        if events is None:
            low, high = (np.full(len(ids), end) for end in self.of.coder.everything)
        else:
            low, high = (np.append(end, 0.0)[which] for end in self.of.coder.bounds(events))
            least, most = self.of.coder.everything
            low, high = (np.where(which < len(events), end, far) for end, far in ((low, least), (high, most)))
            there = np.flatnonzero(which < len(events))
            if len(there) and any(name in names and self._lacks(known, name, there).any() for name in self.predictors):
                again = self._predictors_given(
                    draws, known.take(there), cluster[there], own, ids[there], without, low[there], high[there]
                )
                for name, x in again.items():
                    cells[name][there] = x
        result = {name: x for name, x in cells.items() if name in names}
        if self.name in names:
            result[self.name] = self._outcomes(draws, cells, cluster, own, ids, low, high)
        return result

    # --- averages -----------------------------------------------------------------------------------------------------

    def _alike(self, known: Known) -> Iterator[Alike]:
        """Yield the rows grouped by what is known of their predictors."""
        self.require(known)
        every = [*self.predictors, *self.outside]
        values = {name: _values(*known.of[name]) for name in every if name in known.of}
        n, others = known.n_rows, np.full((known.n_rows, len(every)), -2)
        for c, name in enumerate(every):
            if name in values:
                others[:, c] = np.where(np.isnan(values[name]), known.of[name][1], -1)
        kinds, of = np.unique(others, axis=0, return_inverse=True)
        for i, kind in enumerate(kinds):
            rows = np.flatnonzero(of.ravel() == i) if len(kinds) > 1 else np.arange(n)
            there = {name: values[name][rows] for name, event in zip(every, kind) if event == -1}
            rest = [name for name, event in zip(every, kind) if event >= 0]
            yield Alike(rows, there, known.only(rest).take(rows[:1]))

    def _averaged(self, alike: Alike, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return probabilities (n, U, K + 1) of events of the outcome by cluster. low, high: (n, U) or (1, U)."""
        coder, n, k = self.of.coder, len(alike.rows), len(self.view.log_weight)
        here, m, normals = coder.answers(alike.cells, n), 1, None
        if free := [name for name in self.predictors if name not in alike.cells]:
            m = int(np.clip(8_192 // max(low.shape[1], 1), LEAST, MOST))
            drawn = self._draws_of(free, alike.others, m, k)
            there = coder.answers(drawn, m * k)
            normals = self.of.normals(m, self._stream)[None, :, None]
        out = np.empty((n, low.shape[1], k))
        step = max(1, TOGETHER // (m * low.shape[1] * self.of.state.law.n_eta))
        for rows in (slice(i, i + step) for i in range(0, n, step)):
            ends = [end[rows if len(end) > 1 else slice(None)][:, None] for end in (low, high)]
            for j in range(k):
                u, w = (x[rows][:, None, None] for x in (here.u, here.w))
                if free:
                    of_cluster = slice(j * m, (j + 1) * m)
                    u, w = u + there.u[of_cluster][None, :, None], w + there.w[of_cluster][None, :, None]
                log_p = self.of.log_between(j, Answers(np.zeros(0), u, w), *ends, normals)
                out[rows, :, j] = np.exp(log_p).mean(axis=1)
        return out

    def _draws_of(self, names: Collection[str], known: Known, m: int, k: int) -> dict[str, np.ndarray]:
        """Draw m cells of the predictors `names` in each of the k clusters, (k m,)."""
        ids, cluster = np.arange(k * m), np.repeat(np.arange(k), m)
        return CellDraws(self.view).cells(names, known.take(np.zeros(k * m, np.intp)), cluster, self._stream, ids)

    @property
    def _stream(self) -> Stream:
        """Stream of the draws that answers average over."""
        return Stream(0, Purpose.OUTCOME_PREDICTORS, **self.view.key)

    def _masses(self, events: Events, given: Known) -> np.ndarray:
        """Return probabilities (n, U, K + 1) of events of the outcome in every cluster."""
        low, high = (end[None] for end in self.of.coder.bounds(events))
        out = np.empty((given.n_rows, len(events), len(self.view.log_weight)))
        for alike in self._alike(given):
            out[alike.rows] = self._averaged(alike, low, high)
        return out

    def _each(self, events: Events, given: Known) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield (rows, their probabilities as in `_masses`), a slice of rows at a time."""
        step = max(1, TOGETHER // (len(events) * len(self.view.log_weight)))
        for rows in (slice(i, i + step) for i in range(0, given.n_rows, step)):
            yield rows, self._masses(events, given.take(rows))

    def _of_predictor(self, events: Events, weight: np.ndarray, given: Known, masses: np.ndarray) -> np.ndarray:
        """Return probabilities (n, U) of events of a predictor given the outcome. masses (U, K + 1): of the events
        within clusters."""
        n_events, k = masses.shape
        out = np.empty((len(weight), n_events))
        step = max(1, TOGETHER // masses.size)
        for rows in (slice(i, min(i + step, len(out))) for i in range(0, len(out), step)):
            part, n = given.take(rows), len(out[rows])
            of = events, np.tile(np.arange(n_events), n)
            each = part.take(np.repeat(np.arange(n), n_events)).join(Known(len(of[1]), {events.column.name: of}))
            table = self.score(each).reshape(n, n_events, k)
            whole = (masses.sum(axis=0) > COVERED).all()
            total = np.logaddexp.reduce(table, axis=1) if whole else self.score(part)
            table -= np.where(np.isfinite(total), total, 0.0)[:, None]
            out[rows] = (np.exp(table) * weight[rows, None]).sum(axis=2)
        return out

    # --- draws --------------------------------------------------------------------------------------------------------

    def _lacks(self, known: Known, name: str, rows: np.ndarray) -> np.ndarray:
        """Return the mask of rows without a known value of a predictor."""
        return np.isnan(_values(*known.of[name])[rows]) if name in known.of else np.ones(len(rows), bool)

    def _predictors_given(self, draws: CellDraws, known, cluster, stream, ids, without, low, high):
        """Draw recorded values (n,) of predictors given the outcome."""
        n = len(ids)
        stream = replace(stream, purpose=Purpose.OUTCOME_PREDICTORS)
        again, many = np.repeat(np.arange(n), TRIES), np.repeat(ids, TRIES) * TRIES + np.tile(np.arange(TRIES), n)
        of = known.take(again)
        cells = {name: draws.single(name, of, cluster[again], stream, many, without) for name in self.predictors}
        there = {name: _values(*of.of[name]) for name in self.outside}
        a, log_p = self.of.coder.answers(cells | there, n * TRIES), np.empty(n * TRIES)
        for k in np.unique(cluster):
            at = np.flatnonzero(cluster[again] == k)
            part = Answers(np.zeros(0), a.u[at][:, None], a.w[at][:, None])
            ends = low[again][at, None], high[again][at, None]
            log_p[at] = self.of.log_between(min(int(k), self.of.n_clusters), part, *ends)[:, 0]
        log_p = log_p.reshape(n, TRIES)
        below = np.cumsum(np.exp(log_p - log_p.max(axis=1, keepdims=True)), axis=1)
        u = stream.at(TRIES).uniforms(ids)
        at = np.arange(n) * TRIES + np.minimum((below <= u[:, None] * below[:, -1:]).sum(axis=1), TRIES - 1)
        return {name: x[at] for name, x in cells.items()}

    def _outcomes(self, draws: CellDraws, cells, cluster, stream, ids, low, high) -> np.ndarray:
        """Draw recorded outcomes (n,) between bounds of y; where TRIES draws all miss, take the nearer bound."""
        coder = self.of.coder
        answers, named = coder.answers(cells, len(ids)), cluster - self.of.n_clusters if draws.more else ids
        y, at = coder.middle(low, high), np.flatnonzero(~coder.is_value(low, high))
        for again in range(TRIES):
            if len(at):
                y[at] = self.of.draw(
                    answers.take(at), cluster[at], named[at], stream.at(again), ids[at], low[at], high[at]
                )
                at = at[coder.within(y[at], low[at], high[at]) != y[at]]
        return coder.recorded(coder.within(y, low, high))


def _values(events: Events, which: np.ndarray) -> np.ndarray:
    """Return each row's known value (n,), the middle of an interval; NaN where several values are possible."""
    column = events.column
    if events.sets is not None:
        return np.full(len(which), np.nan)
    if column.levels:
        return np.append(events.codes.astype(np.float64), np.nan)[which]
    low, high = (np.where(np.isfinite(x), x, y) for x, y in ((events.low, events.high), (events.high, events.low)))
    middle = np.where(np.isfinite(low) & np.isfinite(high), 0.5 * (low + high), np.nan)
    atoms = np.array([*column.atoms, np.nan])
    return np.append(np.where(events.codes >= 0, atoms[events.codes], middle), np.nan)[which]
