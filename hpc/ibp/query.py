"""Questions to the kept draws of an Indian buffet process (`hpc.family.Asked`; docs/math.md 2.12, 7.10).

Given a row's features of a draw, and its number of own features, its cells are independent normals. So a draw is a
mixture over these combinations, and all of them are summed over: a draw may have up to MOST features.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr, ndtri

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.ibp.draws import Posterior
from mpibayes.hpc.ibp.predictive import Law
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.io.rows import Column, Rows

DRAWS = 50
MOST = 12  # features whose combinations are summed over
NEGLIGIBLE = 1e-25  # share of rows with as many features of their own as are not summed over
NARROW = 1e-5  # of a standard deviation: an interval's probability is then its width times the density
COMBINATION, PLACE = range(2)  # sub-streams: which features a row has; a cell
CANNOT = {
    "surprisal of the table": "leaving a training row out of draws of features is not worked out; name new rows with "
    "--rows",
    "complete": "it is for mixtures and cross-categorizations; of features, `mpibayes query RUN simulate --rows FILE` "
    "draws the missing cells of new rows",
    "pairs": "it is for mixtures and cross-categorizations, which draw whole rows",
    "synthesize": "it is for mixtures and cross-categorizations; of features, `mpibayes query RUN simulate -n 1000` "
    "draws rows",
}


def ask(run: Posterior, draws: int | None) -> Asked:
    """See `hpc.family.Queries`."""
    return Asked(run, draws)


class Asked:
    """See `hpc.family.Asked`."""

    refused: Mapping[str, str] = {}
    joint: Mapping[str, str] = {}
    linked, link_keys, joinable = False, {}, ()
    cannot = CANNOT
    weights = None
    shares = "share of the features of either row that both have"
    answers = None

    def __init__(self, run: Posterior, draws: int | None):
        home = run.chains[0].home
        if not run.likelihood:
            raise ConfigError(f"{home}: sampled the prior (model.likelihood = false), which says nothing about rows")
        run.read_traces()  # which also tell what belongs to the burn-in
        self.n_kept = len(run.require_kept())
        self.run, self._wanted = run, evenly(run.kept(), draws or DRAWS)
        table = run.table
        self.like = table.having(run.data.stored)
        self.columns = [as_modelled(c) for c in run.data.stored]
        self.chain_of = np.array([chain for chain, _ in self._wanted])
        self.n_rows = run.n_rows

    def draws(self, names: Collection[str], some: slice = slice(None)) -> list[FeatureLaw]:
        """The kept draws, or some of them; each is a law of all columns. Raises ConfigError for too many features."""
        return list(self.labelled(names, some=some, rows=False))

    def labelled(
        self, names: Collection[str], places: np.ndarray | None = None, some: slice = slice(None), rows: bool = True
    ) -> Iterator[FeatureLaw]:
        """Draws one by one, with the features of training rows."""
        for _, draw in self.run.states(self._wanted[some]):
            if len(draw) > MOST:
                raise ConfigError(
                    f"{self.run.chains[0].home}: a draw has {len(draw)} features, and questions sum over all "
                    f"combinations of up to {MOST}; `mpibayes predict` has densities and missing cells of new rows"
                )
            law = FeatureLaw(self.run.cells, draw.law())
            if rows:
                law.rows = draw.rows() if places is None else draw.rows()[places]
            yield law

    def may_lean(self, child: str, parent: str) -> bool:
        """No column does."""
        return False

    def partition(self) -> None:
        """Features are no clusters."""

    def cluster_group(self, number: int, n: int | None, view: int) -> None:
        """There are none."""

    def views(self, names: Sequence[str]) -> np.ndarray:
        """All columns are in one, in every draw, (D, C)."""
        return np.zeros((len(self._wanted), len(names)), np.int64)

    def training_numbers(self) -> np.ndarray:
        """Row numbers of the training rows in the table, from 0, int64 (N,)."""
        rows = self.run.data.training_rows
        return np.arange(self.n_rows) if rows is None else rows

    def recorded(self, numbers: np.ndarray) -> Rows:
        """Rows of the table by their numbers, ascending, as they are recorded."""
        return self.run.data.recorded_at(numbers)


def as_modelled(column: Column) -> Column:
    """Every column is normal given its features: without atoms and logarithms, a count a number in steps of 1."""
    if column.kind == "count":
        return replace(column, kind="real", resolution=1.0)
    return replace(column, atoms=(), log=False)


class FeatureLaw:
    """One draw as a law of rows: P combinations of features, those without own ones first. rows (N, K): training rows'.

    combinations (2^K, K) of 0 and 1; location (2^K, D) and spread (P,) of the cells in the model's units; of the p-th
    combination the features are those of p modulo 2^K.
    """

    def __init__(self, cells: Cells, law: Law):
        k = len(law.probability)
        self.cells, self.names, self.rows = cells, {c.name for c in cells.columns}, None
        self.combinations = (np.arange(1 << k)[:, None] >> np.arange(k) & 1).astype(np.float64)
        self.location = np.einsum("pk,kd->pd", self.combinations, law.means)
        self.noise_sd = law.noise_sd
        with np.errstate(divide="ignore", invalid="ignore"):
            has, lacks = np.log(law.probability), np.log1p(-law.probability)
            log = np.where(self.combinations > 0.0, has, lacks).sum(axis=1)
        own = np.arange(_most_own(law.own) + 1)
        log_own = -law.own + (own * np.log(law.own) - gammaln(own + 1.0) if law.own > 0.0 else 0.0 * own)
        wide = 1.0 + np.einsum("pk,kl,pl->p", self.combinations, law.spread, self.combinations)
        self.spread = np.sqrt(wide + own[:, None] * law.ratio).ravel()
        log = (log + log_own[:, None]).ravel()
        top = log.max()
        self.log_weight = log - top - np.log(np.exp(log - top).sum())
        self.number_of = {c.name: d for d, c in enumerate(cells.columns)}

    @property
    def width(self) -> int:
        return len(self.log_weight)

    @property
    def views(self) -> list[FeatureLaw]:
        """The only one: it has all columns."""
        return [self]

    def given(self, known: Known) -> tuple[np.ndarray, list[np.ndarray]]:
        """Log probability of what is known of each row, (n,), and, given it, that of each combination, (n, P)."""
        log_p, weight = self._weighted(known, np.broadcast_to(self.log_weight, (known.n_rows, self.width)))
        return log_p, [weight]

    def log_given(self, wanted: Known, weights: Sequence[np.ndarray]) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return self._weighted(wanted, np.log(weights[0]))[0]

    def _weighted(self, known: Known, log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total = log.copy()
        for events, which in known.of.values():
            table = self.log_masses(events)
            total += np.append(table, np.zeros((1, self.width)), axis=0)[which]
        top = total.max(axis=1)
        base = np.where(np.isfinite(top), top, 0.0)[:, None]
        weight = np.exp(total - base)
        each = weight.sum(axis=1)
        with np.errstate(divide="ignore"):
            log_p = np.log(each) + base[:, 0]
        weight = np.where(each[:, None] > 0.0, weight / np.where(each > 0.0, each, 1.0)[:, None], 1.0 / self.width)
        return log_p, weight

    def log_masses(self, events: Events) -> np.ndarray:
        """Log probability of each event of a column under every combination, (U, P); a density where low == high."""
        d = self.number_of[events.column.name]
        low, high = ((x - self.cells.center[d]) / self.cells.scale[d] for x in (events.low, events.high))
        sd = self.spread * self.noise_sd[d]
        location = np.tile(self.location[:, d], self.width // len(self.location))
        a, b = ((x[:, None] - location) / sd for x in (low, high))
        found = np.empty(a.shape)
        with np.errstate(invalid="ignore", divide="ignore"):
            width = high - low
            narrow = ~(width > NARROW * sd.max())
            size = np.where(width == 0.0, -np.log(self.cells.scale[d]), np.log(width))[narrow, None]
            middle = 0.5 * (a[narrow] + b[narrow])
            found[narrow] = size - np.log(sd) - 0.5 * np.log(2.0 * np.pi) - 0.5 * middle**2
            right = a[~narrow] + b[~narrow] > 0.0  # the mirror image is in the left tail
            first, last = np.where(right, -b[~narrow], a[~narrow]), np.where(right, -a[~narrow], b[~narrow])
            most = log_ndtr(last)
            found[~narrow] = most + np.log1p(-np.exp(log_ndtr(first) - most))
        return found

    def masses(self, events: Events) -> np.ndarray:
        """Probability of each event of a column under every combination, (P, U)."""
        return np.ascontiguousarray(np.exp(self.log_masses(events)).T)

    def weight(self, name: str) -> np.ndarray:
        """Weights of the combinations, (P,)."""
        return np.exp(self.log_weight)

    def averaged(self, events: Events, weights: Sequence[np.ndarray], masses: np.ndarray) -> np.ndarray:
        return weights[0] @ masses

    def inverses(self, known: Known, weights: Sequence[np.ndarray]) -> np.ndarray:
        """1 / p(what is known of a column | of the others), (n, C), by weights given all of it; NaN: not known."""
        found = np.empty((known.n_rows, len(known.of)))
        for c, (events, which) in enumerate(known.of.values()):
            log = np.append(self.log_masses(events), np.zeros((1, self.width)), axis=0)[which]
            inverse = (weights[0] * np.exp(-np.maximum(log, -600.0))).sum(axis=1)
            found[:, c] = np.where(which < len(events), inverse, np.nan)
        return found

    def opens(self, weights: Sequence[np.ndarray]) -> np.ndarray:
        """Probability of a feature of its own, (n,)."""
        return weights[0][:, len(self.combinations) :].sum(axis=1)

    def shared(self, names: Sequence[str], place: int | None, known: Known) -> np.ndarray:
        """Shared features of each labelled row (N,) and the row at `place`, or a row with these known cells: the share,
        among features that either has, of those that both have; 1 where neither has any. A row's own features do not
        count."""
        kinds, of = np.unique(self.rows, axis=0, return_inverse=True)
        if place is not None:
            others, weight = self.rows[place][None].astype(np.float64), np.ones(1)
        else:
            weight = self.given(known.repeat(1))[1][0][0].reshape(-1, len(self.combinations)).sum(axis=0)
            others = self.combinations
        kinds = kinds.astype(np.float64)
        both = kinds @ others.T
        either = kinds.sum(axis=1)[:, None] + others.sum(axis=1) - both
        return (np.where(either > 0.0, both / np.maximum(either, 1.0), 1.0) @ weight)[of.ravel()]

    def simulate(self, known: Known, wanted: Collection[str], stream: Stream, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Recorded values (n,) of each column wanted: of what is known, or drawn given what is known of others."""
        _, (weight,) = self.given(known)
        below = np.cumsum(weight, axis=1)
        u = replace(stream, sub=COMBINATION).uniforms(ids)
        chosen = np.minimum((below <= u[:, None] * below[:, -1:]).sum(axis=1), self.width - 1)
        found = {}
        for name in sorted(wanted):
            d = self.number_of[name]
            low, high = np.full(len(ids), -np.inf), np.full(len(ids), np.inf)
            if name in known.of:
                events, which = known.of[name]
                seen = which < len(events)
                low[seen], high[seen] = events.low[which[seen]], events.high[which[seen]]
            found[name] = self._drawn(d, chosen, low, high, replace(stream, sub=PLACE).uniforms(d << 32 | ids))
        return found

    def _drawn(self, d: int, chosen: np.ndarray, low: np.ndarray, high: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Cells of a column within bounds, by the inverse of the distribution function; in the column's steps."""
        center, scale, sd = self.cells.center[d], self.cells.scale[d], self.spread[chosen] * self.noise_sd[d]
        location = self.location[chosen % len(self.location), d]
        a, b = (((x - center) / scale - location) / sd for x in (low, high))
        right = a > 0.0  # the mirror image keeps its digits
        first, last = np.where(right, -b, a), np.where(right, -a, b)
        v = np.where(right, 1.0 - u, u)
        z = ndtri(np.clip(ndtr(first) + v * (ndtr(last) - ndtr(first)), 1e-300, 1.0 - 1e-16))
        z = np.where(right, -z, z)
        x = np.clip((location + sd * z) * scale + center, low, high)
        column = as_modelled(self.cells.columns[d])
        if not column.resolution:
            return x
        half = 0.5 * column.resolution
        return np.clip(np.round(x / column.resolution) * column.resolution, low + half, high - half)


def _most_own(mean: float) -> int:
    """The number of own features beyond which rows are so rare that no cells make up for it."""
    n, share = 0, np.exp(-mean)
    while (share > NEGLIGIBLE or n < mean) and n < 64:
        n += 1
        share *= mean / n
    return n
