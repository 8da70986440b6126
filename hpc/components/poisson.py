"""Count columns: Poisson likelihood, gamma prior on the rate (docs/math.md 1.4).

Hyperparameters are rows (shape, rate) of a (Q, 2) array, each fixed or learned on a grid. The factor 1 / x! of every
cell does not depend on the partition; it enters `log_joint` once, as a constant of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpibayes.hpc.components.component import Array, PriorKey
from mpibayes.hpc.components.grid import Grids, as_grid
from mpibayes.hpc.components.masses import log_negative_binomial
from mpibayes.hpc.components.single import InContexts, Numbers, with_new
from mpibayes.hpc.parallel.streams import Stream, cells
from mpibayes.io.rows import Column, Rows
from mpibayes.kernels.common.functions import gammaln

NAMES = ("shape", "rate")
SHAPE_GRID = np.geomspace(0.05, 50.0, 13)
RATE_GRID = np.geomspace(0.01, 100.0, 17)  # in units of 1 / (mean of the column)


class NegativeBinomial(Numbers):
    """Law of count columns (see `Law`): Poisson with rate ~ Gamma(shape, rate)."""

    def __init__(self, kind: Poisson, gamma: np.ndarray, *s: np.ndarray):
        n, total = with_new(*s)
        self.shape, self.rate = gamma[:, 0, None] + total, gamma[:, 1, None] + n
        mean = self.shape / self.rate
        shift = mean - np.array([c.center for c in kind.columns]).reshape(-1, 1)
        super().__init__(kind.substreams[0], shift, mean * (1.0 + 1.0 / self.rate) + shift**2)

    def quantile(self, column: int | np.ndarray, clusters: np.ndarray, u: np.ndarray) -> np.ndarray:
        shape, rate = (a[column, clusters] for a in (self.shape, self.rate))
        from scipy.stats import nbinom  # slow to import

        return nbinom.ppf(u, shape, rate / (rate + 1.0))

    def log_masses(self, column: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Log probability of the numbers from low to high (..., 1) in every cluster, (..., K + 1)."""
        return log_negative_binomial(self.shape[column], self.rate[column], low, high)

    def within(
        self, column: int | np.ndarray, clusters: np.ndarray, low: np.ndarray, high: np.ndarray, u: np.ndarray
    ) -> np.ndarray:
        """Quantiles (n,) at u (n,) of each cluster's distribution truncated to the numbers from low to high."""
        shape, rate = (a[column, clusters] for a in (self.shape, self.rate))
        from scipy.stats import nbinom  # slow to import

        return _between(nbinom(shape, rate / (rate + 1.0)), low, high, u)


class Rates(NegativeBinomial):
    """Law of count columns with drawn rates (Q, K) of the clusters; a new cluster's rate is integrated out."""

    def __init__(self, kind: Poisson, gamma: np.ndarray, s: tuple, rates: np.ndarray):
        super().__init__(kind, gamma, *s)
        self._rates = rates

    def quantile(self, column: int | np.ndarray, clusters: np.ndarray, u: np.ndarray) -> np.ndarray:
        result, old = np.empty(len(u)), clusters < self._rates.shape[1]
        column = np.broadcast_to(column, len(u))
        result[old] = PoissonLaw(self._rates[column[old], clusters[old]]).ppf(u[old])
        if not old.all():
            result[~old] = super().quantile(column[~old], clusters[~old], u[~old])
        return result

    def log_masses(self, column: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        result, rates = super().log_masses(column, low, high), self._rates[column]
        from scipy.special import gammainc, gammaincc

        first, last = np.maximum(low, 0.0), np.where(np.isfinite(high), high, 1e300)
        above = np.where(first > 0.0, gammainc(np.maximum(first, 1.0), rates), 1.0) - gammainc(last + 1.0, rates)
        below = gammaincc(last + 1.0, rates) - np.where(first > 0.0, gammaincc(np.maximum(first, 1.0), rates), 0.0)
        with np.errstate(divide="ignore"):
            result[..., : len(rates)] = np.log(np.maximum(np.where(above < 0.5, above, below), 0.0))
        return result

    def within(
        self, column: int | np.ndarray, clusters: np.ndarray, low: np.ndarray, high: np.ndarray, u: np.ndarray
    ) -> np.ndarray:
        result, old = np.empty(len(u)), clusters < self._rates.shape[1]
        column = np.broadcast_to(column, len(u))
        result[old] = _between(PoissonLaw(self._rates[column[old], clusters[old]]), low[old], high[old], u[old])
        if not old.all():
            result[~old] = super().within(column[~old], clusters[~old], low[~old], high[~old], u[~old])
        return result


class PoissonLaw:
    """Poisson distributions with these rates (n,), with the bits of `scipy.stats.poisson`, which takes a second to
    load."""

    def __init__(self, rates: np.ndarray):
        self._rates = rates

    def cdf(self, x: np.ndarray) -> np.ndarray:
        from scipy.special import pdtr

        return self._probability(pdtr, x, 0.0)

    def sf(self, x: np.ndarray) -> np.ndarray:
        from scipy.special import pdtrc

        return self._probability(pdtrc, x, 1.0)

    def _probability(self, of, x: np.ndarray, below: float) -> np.ndarray:
        result = of(np.where((x >= 0.0) & np.isfinite(x), x, 0.0), self._rates)
        return np.where(x < 0.0, below, np.where(x == np.inf, 1.0 - below, result))

    def ppf(self, p: np.ndarray) -> np.ndarray:
        return self._quantile(p, p == 0.0, p == 1.0)

    def isf(self, q: np.ndarray) -> np.ndarray:
        return self._quantile(1.0 - q, q == 1.0, q == 0.0)

    def _quantile(self, p: np.ndarray, least: np.ndarray, most: np.ndarray) -> np.ndarray:
        from scipy.special import pdtr, pdtrik

        above = np.ceil(pdtrik(p, self._rates))
        below = np.maximum(above - 1.0, 0.0)
        x = np.where(pdtr(below, self._rates) >= p, below, above)
        return np.where(least, -1.0, np.where(most, np.inf, x))


def _between(law, low: np.ndarray, high: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Integer quantiles at u of a law truncated to low..high, computed in its smaller tail."""
    below, above = law.cdf(low - 1.0), law.sf(low - 1.0)
    left = law.ppf(below + u * (law.cdf(high) - below))
    last = law.sf(high)
    right = law.isf(last + (1.0 - u) * (above - last))
    x = np.clip(np.where(below < 0.5, left, right), low, high)
    return np.where(np.isfinite(x), x, low)


class Poisson(InContexts):
    """All count columns of a view. A column's prior: None or {"shape": number or grid, "rate": ...}.

    Statistics are the count and the sum of observed cells, each (P, K); the sum is exact below 2^53.
    """

    name, hyper, hyper_form = "poisson", "gamma", (2,)
    hyper_names = ("shape", "rate")
    stored = ("tallies",)
    prior_forms = ((PriorKey("shape"), PriorKey("rate")),)
    statistics = Array("tally_n", "part", np.int64), Array("tally_sum", "part", wire=np.int64)
    parameters = Array("log_rate", "part"), Array("rate", "part")
    odds = "count", np.float64
    exact, measured = True, False
    summed_out = 0, 1
    substreams = (2,)

    def __init__(self, columns: Sequence[Column], priors: Mapping, joint: Mapping):
        super().__init__(columns)
        self.odds_form = (len(self.columns), 2)
        grids = [[], []]
        self._start = np.empty((len(self), 2))
        for q, column in enumerate(columns):
            prior, center = priors.get(column.name) or {}, max(float(column.center), 1e-6)
            part = [as_grid(prior[n]) if n in prior else g for n, g in zip(NAMES, (SHAPE_GRID, RATE_GRID / center))]
            self._start[q] = [g[np.argmin(np.abs(np.log(g / a)))] for g, a in zip(part, (1.0, 1.0 / center))]
            for i in range(2):
                grids[i].append(part[i])
        self.grids = [Grids(g) for g in grids]

    def prior(self, gamma: np.ndarray) -> dict[str, np.ndarray]:
        return {"gamma": self.wide(gamma)}

    def log_base(self, rows: Rows) -> float:
        """Log of the 1 / x! of the observed cells."""
        return -float(np.nansum(gammaln(rows.tallies + 1.0)))

    def merge(self, a: tuple, b: tuple) -> tuple[np.ndarray, ...]:
        return tuple(x + y for x, y in zip(a, b))

    def log_marginal_at(self, gamma: np.ndarray, s: tuple, column: int, power: float) -> float:
        """Log marginal likelihood at a power, without the 1 / x!."""
        parts = self.parts(slice(column, column + 1))
        (n, total), (shape, rate) = (power * a[parts] for a in s), gamma[column]
        return float((gammaln(shape + total) - gammaln(shape) + shape * np.log(rate)
                      - (shape + total) * np.log(rate + n)).sum())  # fmt: skip

    def draw_at(self, gamma: np.ndarray, s: tuple, column: int, power: float, stream: Stream):
        drawn = self.draw(gamma, tuple(power * a for a in s), slice(column, column + 1), stream)
        return tuple(power * a for a in drawn)

    def cell_moments(self, s: tuple):
        raise NotImplementedError("the cells are counted as they are")

    def side_odds(self, gamma: np.ndarray, s: tuple) -> np.ndarray:
        """Coefficients of the log odds of a cell x: x [0] - [1]."""
        (n, total), gamma = s, self.wide(gamma)
        rate = (gamma[:, 0, None] + total) / (gamma[:, 1, None] + n)
        log_rate = np.log(rate)
        numbers = [log_rate[:, 1::2] - log_rate[:, 0::2], rate[:, 1::2] - rate[:, 0::2]]
        return np.ascontiguousarray(np.stack(numbers).transpose(2, 1, 0))

    def predictive(self, gamma: np.ndarray, s: tuple) -> NegativeBinomial:
        return NegativeBinomial(self, self.wide(gamma), *s)

    def drawn(self, gamma: np.ndarray, s: tuple, stream: Stream) -> Rates:
        return Rates(self, self.wide(gamma), s, self.draw(gamma, s, slice(0, len(self)), stream)[1])

    def update(self, gamma: np.ndarray, s: tuple, columns: slice, stream: Stream) -> np.ndarray:
        """Draw hyperparameters coordinate by coordinate."""
        return self.updated(gamma, s, columns, self.grids, stream.at(self.substreams[0]))

    def draw(self, gamma: np.ndarray, s: tuple, columns: slice, stream: Stream) -> tuple[np.ndarray, ...]:
        """Draw (log_rate, rate): log probability = x log_rate - rate - log x!.

        The id of a draw is the index of its column of cells and that of its cluster.
        """
        parts, stream = self.parts(columns), stream.at(self.substreams[0])
        (n, total), gamma = (a[parts] for a in s), self.wide(gamma)[parts]
        shape = gamma[:, 0, None] + total
        log_rate = stream.log_gammas(shape, cells(parts.start, *shape.shape)) - np.log(gamma[:, 1, None] + n)
        return log_rate, np.exp(log_rate)

    @staticmethod
    def log_terms(parameters: tuple[np.ndarray, ...], x: np.ndarray, k: np.ndarray) -> np.ndarray:
        """See `Normal.log_terms`; omits the 1 / x!."""
        log_rate, rate = (a[:, k] for a in parameters)
        return (x * log_rate - rate).T
