"""Outcome in queries: probabilities of events and draws, in the clusters of one kept draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.data.events import Events
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.columns import Columns, Predictors
from mpibayes.hpc.outcome.levels import normal_points
from mpibayes.hpc.outcome.likelihoods import Likelihood, Softmax
from mpibayes.hpc.outcome.state import State
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io.rows import Column

QUANTILES = 32  # of eta in a new cluster, to average the probability of a range
THETA, SHIFT = 2**31 + 3, 2**31 + 4  # sub-streams of a new cluster's coefficients, and of `AskedOutcome.normals`


@dataclass(frozen=True)
class Coder:
    """Conversion between recorded cells and a regression. column: the outcome as in queries; y = (cell - centre) /
    unit."""

    column: Column
    likelihood: type[Likelihood]
    slopes: Predictors
    covariates: Predictors
    centre: float
    unit: float

    @classmethod
    def of(cls, columns: Columns, column: Column) -> Coder:
        """Make the conversion for the outcome's column as queries have it."""
        plain = replace(column, atoms=(), log=False, shape=None)
        return cls(plain, columns.likelihood, columns.slopes, columns.covariates, *columns.centre_and_unit)

    @property
    def predictors(self) -> list[str]:
        """Names of the predictors' columns."""
        return [term.column.name for of in (self.slopes, self.covariates) for term in of.terms]

    def answers(self, cells: Mapping[str, np.ndarray], n: int) -> Answers:
        """Return the predictors of n rows from recorded cells (n,) by column; predictors of other columns are 0."""
        return Answers(np.full(n, np.nan), self.slopes.of_cells(cells, n), self.covariates.of_cells(cells, n))

    def bounds(self, events: Events) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and greatest y of each event, (U,) each; of levels both are the event of `Softmax`."""
        if not self.likelihood.of_classes:
            low, high = events.low, events.high
            if self._rounds:
                low, high = np.where(low > 0.0, low - 0.5, -np.inf), high + 0.5
            return (low - self.centre) / self.unit, (high - self.centre) / self.unit
        if self.likelihood.of_levels:
            bits = 2.0 ** np.arange(len(self.column.levels))
            levels = bits[events.codes] if events.sets is None else events.sets @ bits
            return levels, levels
        y = self.likelihood.encode(np.arange(2))
        if events.sets is None:
            return y[events.codes], y[events.codes]
        one, two = events.sets.T
        return np.where(one, y[0], y[1]), np.where(two, y[1], y[0])

    @property
    def _rounds(self) -> bool:
        """True if counts have the law of a real number, recorded as the nearest count, or 0 below it."""
        return self.column.kind == "count" and self.likelihood.has_scale

    @property
    def _step(self) -> float:
        """Step of recorded values; 0 if continuous."""
        return 1.0 if self._rounds else self.column.resolution

    @property
    def everything(self) -> tuple[float, float]:
        """Bounds of an outcome of which nothing is known."""
        return (self._all, self._all) if self.likelihood.of_levels else (-np.inf, np.inf)

    @property
    def _all(self) -> float:
        return 2.0 ** len(self.column.levels) - 1.0

    def is_value(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return the mask of bounds of y that contain a single recorded value."""
        if self.likelihood.of_levels:
            return np.frexp(low)[0] == 0.5
        return high - low <= self._step / self.unit * (1.0 + 1e-9)

    def middle(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return y in the middle of bounds, or their first level."""
        if self.likelihood.of_levels:
            first = low.astype(np.int64)
            return np.log2((first & -first).astype(np.float64))
        with np.errstate(invalid="ignore"):
            return 0.5 * (low + high)

    def within(self, y: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return y moved into its bounds, if it is not."""
        if self.likelihood.of_levels:
            return np.where(low.astype(np.int64) >> y.astype(np.int64) & 1, y, self.middle(low, high))
        return np.clip(y, low, high)

    def recorded(self, y: np.ndarray) -> np.ndarray:
        """Return the recorded cells for y."""
        if self.likelihood.of_levels:
            return y
        if self.likelihood.of_classes:
            return np.where(self.likelihood.encode(np.ones(1))[0] == y, 1.0, 0.0)
        x, step = self.centre + self.unit * y, self._step
        x = np.round(x / step) * step + 0.0 if step else x
        return np.maximum(x, 0.0) if self._rounds else x

    @property
    def log_unit(self) -> float:
        """Log of the unit, to make densities per recorded unit."""
        return float(np.log(self.unit))


class AskedOutcome:
    """Outcome of one draw. Events are given as bounds of y that broadcast against eta."""

    def __init__(self, coder: Coder, state: State):
        self.coder, self.state = coder, state

    @property
    def n_clusters(self) -> int:
        """Number of clusters K, without the new one."""
        return len(self.state.theta)

    def log_between(
        self, k: int, at: Answers, low: np.ndarray, high: np.ndarray, normals: np.ndarray | None = None
    ) -> np.ndarray:  # fmt: skip
        """Return the log probability of events in cluster k (K: a new one) at predictors u and w (..., 1, D). Leading
        axes broadcast against those of low and high; the last axis of low and high is events. normals: where answers
        are averaged over predictors, normal quantiles for eta in a new cluster, used instead of averaging over eta."""
        law, w, v = self.state.law, at.w.astype(np.float64), at.u.astype(np.float64)
        density = np.where(low == high, self.coder.log_unit, 0.0)

        def eta(theta: np.ndarray) -> np.ndarray:
            own = [law.own(theta, c) for c in range(law.n_eta)]
            return law.by_eta(lambda c: w @ law.shared(self.state.beta, c) + own[c][0] + v @ own[c][1:])

        if k < self.n_clusters:
            return law.given.log_between(eta(self.state.theta[k]), low, high, law.nu, law.scale) - density
        middle, variance = eta(law.mean), [law.own(law.sd**2, c) for c in range(law.n_eta)]
        spread = law.by_eta(lambda c: np.sqrt(variance[c][0] + v**2 @ variance[c][1:]))
        if normals is not None:
            return law.given.log_between(middle + spread * normals, low, high, law.nu, law.scale) - density
        if law.likelihood.of_levels:
            return Softmax.log_of_events(law.likelihood.average_expectations(middle, spread), low)
        middle, spread, low, high = np.broadcast_arrays(middle, spread, low, high)
        out, value = np.empty(low.shape), self.coder.is_value(low, high)
        if value.any():
            y, width = 0.5 * (low + high)[value], (high - low)[value]
            log_width = np.log(np.where(width > 0.0, width, 1.0))
            out[value] = log_width + law.given.log_averages(y, middle[value], spread[value], law.nu, law.scale)
        if not value.all():
            eta = middle[~value, None] + spread[~value, None] * quantiles(QUANTILES)
            each = law.given.log_between(eta, low[~value, None], high[~value, None], law.nu, law.scale)
            out[~value] = np.logaddexp.reduce(each, axis=1) - np.log(QUANTILES)
        return out - density

    def normals(self, n: int, stream: Stream) -> np.ndarray:
        """Return n normal quantiles for eta in a new cluster, (n,), or (n, C) of a softmax, which are shifted by draws
        of the stream."""
        law = self.state.law
        shift = stream.at(SHIFT).uniforms(np.arange(law.n_eta))
        return normal_points(n, shift) if law.likelihood.of_levels else quantiles(n)

    def draw(
        self, answers: Answers, cluster: np.ndarray, named: np.ndarray, stream: Stream, ids: np.ndarray,
        low: np.ndarray, high: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """Draw y (n,) of rows in these clusters; a time between its bounds (n,) each, anything else without regard to
        them. named (n,): name of a row's new cluster, if it is in one: rows with the same name share coefficients.
        ids (n,): of the rows."""
        law, new = self.state.law, np.flatnonzero(cluster >= self.n_clusters)
        theta = self.state.theta[np.minimum(cluster, self.n_clusters - 1)]
        if len(new):
            each = named[new, None] * law.p + np.arange(law.p)
            normals = stream.at(THETA).normals(each.ravel()).reshape(each.shape)
            theta[new] = law.mean + law.sd * normals
        eta = replace(self.state, theta=theta).eta_of(answers, np.arange(len(theta)))
        if law.baseline is not None:
            return law.baseline.drawn_between(eta, low, high, stream, ids)
        return law.given.drawn(eta, law.nu, law.scale, stream, ids)


def quantiles(n: int) -> np.ndarray:
    """Return n standard normal quantiles, at the midpoints of n equal parts."""
    from scipy.special import ndtri  # slow to import

    return ndtri((np.arange(n) + 0.5) / n)
