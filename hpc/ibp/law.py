"""One draw of an Indian buffet process as a law of rows (`hpc.law.JointLaw`; docs/math.md 2.12, 7.10).

Given a row's features, and its number of own ones, its cells are independent normals: a draw is a mixture over these
combinations. Densities and moments of rows sum over them as in `features.py`; questions sum over all of them, for up to
MOST features.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr, ndtri

from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.ibp.features import Features
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.hpc.posterior.asked import plain
from mpibayes.io.rows import Rows

MOST = 12  # most features whose combinations are summed over
NEGLIGIBLE = 1e-25  # share of rows with more own features than are summed over
NARROW = 1e-5  # standard deviations: a narrower interval's probability is its width times the density
COMBINATION, PLACE = range(2)  # sub-streams: the features of a row; a cell


class Law:
    """One draw as a law of all columns. rows (N, K): features of training rows, if requested."""

    rows: np.ndarray  # set with the features of requested rows

    def __init__(self, cells: Cells, features: Features):
        self.cells, self.features = cells, features
        self.number_of = {c.name: d for d, c in enumerate(cells.columns)}

    # --- densities and moments of rows --------------------------------------------------------------------------------

    def log_density(self, rows: Rows) -> np.ndarray:
        """Log density of the observed cells of each row, (n,) float64."""
        return self.scored(rows)[0]

    def scored(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Log densities, and the approximate share of the density left out, (n,): 0 up to ENUMERATED features."""
        x = self.cells.of(rows)
        density, neglected = self.features.log_density(x)
        return density - np.where(np.isnan(x), 0.0, self.cells.log_scale).sum(axis=1), neglected

    def members(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return (log density (n,), probability of each of the draw's features given the observed cells (n, K))."""
        x = self.cells.of(rows)
        density, p = np.empty(len(x)), np.zeros((len(x), len(self.features.probability)))
        for part in self.features.found(x):
            log = part.log_density()
            density[part.rows] = log
            for _, at, weight in part.weights(log):
                p[part.rows[at]] += part.shares(weight, at)
        return density - np.where(np.isnan(x), 0.0, self.cells.log_scale).sum(axis=1), p

    def moments(self, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the results of `members`, and the mean and mean square of every cell as if unseen, given the observed
        cells, (n, D) each, in the model's units."""
        x, law = self.cells.of(rows), self.features
        k = len(law.probability)
        density, p = np.empty(len(x)), np.zeros((len(x), k))
        mean, square = np.zeros(x.shape), np.zeros(x.shape)
        for part in law.found(x):
            at = part.rows
            density[at] = log = part.log_density()
            fixed, loadings = np.einsum("nk,kd->nd", part.base.astype(np.float64), law.means), law.means[part.free]
            both, wide = np.zeros((len(at), *part.free.shape[1:] * 2)), np.zeros(len(at))
            share = np.zeros((len(at), k))
            for n_own, of, weight in part.weights(log):
                share[of] += part.shares(weight, of)
                both[of] += part.pairs(weight)
                wide[of] += (weight * (part.spread[of] + n_own * law.ratio)).sum(axis=1)
            p[at] = share
            mean[at] = np.einsum("nk,kd->nd", share, law.means)
            square[at] = fixed * (2.0 * mean[at] - fixed) + np.einsum(
                "nuv,nud,nvd->nd", both, loadings, loadings, optimize=True
            )
            square[at] += wide[:, None] * law.noise_sd**2
        return density - np.where(np.isnan(x), 0.0, self.cells.log_scale).sum(axis=1), p, mean, square

    # --- questions ----------------------------------------------------------------------------------------------------

    @cached_property
    def all(self) -> Combinations:
        """All combinations of features."""
        return Combinations.of(self.features)

    @property
    def width(self) -> int:
        return len(self.all.log_weight)

    @property
    def names(self) -> Collection[str]:
        return self.number_of.keys()

    @property
    def views(self) -> list[Law]:
        """The only view: it has all columns."""
        return [self]

    def given(self, known: Known) -> Given:
        """See `hpc.law.Law`."""
        return Given(self, known)

    def log_masses(self, events: Events) -> np.ndarray:
        """Log probability of each event of a column under every combination, (U, P); a density where low == high."""
        d = self.number_of[events.column.name]
        low, high = ((x - self.cells.center[d]) / self.cells.scale[d] for x in (events.low, events.high))
        sd = self.all.spread * self.features.noise_sd[d]
        location = np.tile(self.all.location[:, d], self.width // len(self.all.location))
        a, b = ((x[:, None] - location) / sd for x in (low, high))
        result = np.empty(a.shape)
        with np.errstate(invalid="ignore", divide="ignore"):
            width = high - low
            narrow = ~(width > NARROW * sd.max())
            size = np.where(width == 0.0, -np.log(self.cells.scale[d]), np.log(width))[narrow, None]
            middle = 0.5 * (a[narrow] + b[narrow])
            result[narrow] = size - np.log(sd) - 0.5 * np.log(2.0 * np.pi) - 0.5 * middle**2
            right = a[~narrow] + b[~narrow] > 0.0  # the mirror image is in the left tail
            first, last = np.where(right, -b[~narrow], a[~narrow]), np.where(right, -a[~narrow], b[~narrow])
            most = log_ndtr(last)
            result[~narrow] = most + np.log1p(-np.exp(log_ndtr(first) - most))
        return result

    def masses(self, events: Events) -> np.ndarray:
        """Probability of each event of a column under every combination, (P, U)."""
        return np.ascontiguousarray(np.exp(self.log_masses(events)).T)

    def weight(self, name: str) -> np.ndarray:
        """Weights of the combinations, (P,)."""
        weight: np.ndarray = np.exp(self.all.log_weight)
        return weight

    def linked_pairs(
        self, a: Sequence[str], b: Sequence[str], events: Mapping[str, Events]
    ) -> Iterator[tuple[str, str, np.ndarray, float]]:
        """Yield nothing: no columns are linked."""
        return iter(())

    def shared(self, names: Sequence[str], place: int | None, known: Known) -> np.ndarray:
        """Similarity of each labelled row (N,) to the row at `place`, or to a row with these known cells: the number of
        features that both have over the number that either has; 1 if neither has any. A row's own features do not
        count."""
        kinds, of = np.unique(self.rows, axis=0, return_inverse=True)
        if place is not None:
            others, weight = self.rows[place][None].astype(np.float64), np.ones(1)
        else:
            weight = self.given(known.repeat(1)).weight[0].reshape(-1, len(self.all.patterns)).sum(axis=0)
            others = self.all.patterns
        kinds = kinds.astype(np.float64)
        both = kinds @ others.T
        either = kinds.sum(axis=1)[:, None] + others.sum(axis=1) - both
        share: np.ndarray = (np.where(either > 0.0, both / np.maximum(either, 1.0), 1.0) @ weight)[of.ravel()]
        return share

    def simulate(self, known: Known, names: Collection[str], stream: Stream, ids: np.ndarray) -> dict[str, np.ndarray]:
        """See `hpc.law.Law`."""
        below = np.cumsum(self.given(known).weight, axis=1)
        u = replace(stream, sub=COMBINATION).uniforms(ids)
        chosen = np.minimum((below <= u[:, None] * below[:, -1:]).sum(axis=1), self.width - 1)
        result = {}
        for name in sorted(names):
            d = self.number_of[name]
            low, high = np.full(len(ids), -np.inf), np.full(len(ids), np.inf)
            if name in known.of:
                events, which = known.of[name]
                seen = which < len(events)
                low[seen], high[seen] = events.low[which[seen]], events.high[which[seen]]
            result[name] = self._drawn(d, chosen, low, high, replace(stream, sub=PLACE).uniforms(d << 32 | ids))
        return result

    def _drawn(self, d: int, chosen: np.ndarray, low: np.ndarray, high: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Draw cells of a column within bounds, by inverting the distribution function; rounded to the column's
        steps."""
        center, scale, sd = (
            self.cells.center[d],
            self.cells.scale[d],
            self.all.spread[chosen] * self.features.noise_sd[d],
        )
        location = self.all.location[chosen % len(self.all.location), d]
        a, b = (((x - center) / scale - location) / sd for x in (low, high))
        right = a > 0.0  # the mirror image keeps its digits
        first, last = np.where(right, -b, a), np.where(right, -a, b)
        v = np.where(right, 1.0 - u, u)
        z = ndtri(np.clip(ndtr(first) + v * (ndtr(last) - ndtr(first)), 1e-300, 1.0 - 1e-16))
        z = np.where(right, -z, z)
        x: np.ndarray = np.clip((location + sd * z) * scale + center, low, high)
        column = plain(self.cells.columns[d])
        if not column.resolution:
            return x
        half = 0.5 * column.resolution
        stepped: np.ndarray = np.clip(np.round(x / column.resolution) * column.resolution, low + half, high - half)
        return stepped


class Given:
    """See `hpc.law.GivenJoint`. weight (n, P): probability of each combination given the known cells of the row."""

    def __init__(self, law: Law, known: Known):
        self._law, self._known = law, known
        prior = np.broadcast_to(law.all.log_weight, (known.n_rows, law.width))
        self.log_p, self.weight = self._weighted(known, prior)

    def log_density(self, target: Known) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return self._weighted(target, np.log(self.weight))[0]

    def averaged(self, events: Events, masses: np.ndarray) -> np.ndarray:
        p: np.ndarray = self.weight @ masses
        return p

    def inverses(self) -> np.ndarray:
        result = np.empty((self._known.n_rows, len(self._known.of)))
        for c, (events, which) in enumerate(self._known.of.values()):
            log = np.append(self._law.log_masses(events), np.zeros((1, self._law.width)), axis=0)[which]
            inverse = (self.weight * np.exp(-np.maximum(log, -600.0))).sum(axis=1)
            result[:, c] = np.where(which < len(events), inverse, np.nan)
        return result

    def opens(self) -> np.ndarray:
        """Probability that the row has a feature of its own, (n,)."""
        p: np.ndarray = self.weight[:, len(self._law.all.patterns) :].sum(axis=1)
        return p

    def _weighted(self, known: Known, log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total = log.copy()
        for events, which in known.of.values():
            table = self._law.log_masses(events)
            total += np.append(table, np.zeros((1, self._law.width)), axis=0)[which]
        top = total.max(axis=1)
        base = np.where(np.isfinite(top), top, 0.0)[:, None]
        weight = np.exp(total - base)
        each = weight.sum(axis=1)
        with np.errstate(divide="ignore"):
            log_p = np.log(each) + base[:, 0]
        weight = np.where(each[:, None] > 0.0, weight / np.where(each > 0.0, each, 1.0)[:, None], 1.0 / self._law.width)
        return log_p, weight


@dataclass(frozen=True)
class Combinations:
    """P combinations of a draw's features, those without own ones first; combination p has the features of p modulo
    2^K. log_weight (P,); patterns (2^K, K) of 0 and 1; location (2^K, D) and spread (P,) of the cells in the model's
    units."""

    log_weight: np.ndarray
    patterns: np.ndarray
    location: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, law: Features) -> Combinations:
        k = len(law.probability)
        patterns = (np.arange(1 << k)[:, None] >> np.arange(k) & 1).astype(np.float64)
        location = np.einsum("pk,kd->pd", patterns, law.means)
        with np.errstate(divide="ignore", invalid="ignore"):
            has, lacks = np.log(law.probability), np.log1p(-law.probability)
            log = np.where(patterns > 0.0, has, lacks).sum(axis=1)
        part = np.arange(_most_own(law.own) + 1)
        log_own = -law.own + (part * np.log(law.own) - gammaln(part + 1.0) if law.own > 0.0 else 0.0 * part)
        wide = 1.0 + np.einsum("pk,kl,pl->p", patterns, law.spread, patterns)
        spread = np.sqrt(wide + part[:, None] * law.ratio).ravel()
        log = (log + log_own[:, None]).ravel()
        top = log.max()
        return cls(log - top - np.log(np.exp(log - top).sum()), patterns, location, spread)


def _most_own(mean: float) -> int:
    """Number of own features beyond which rows are so rare that no cells make up for it."""
    n, share = 0, np.exp(-mean)
    while (share > NEGLIGIBLE or n < mean) and n < 64:
        n += 1
        share *= mean / n
    return n
