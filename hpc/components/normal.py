"""Real columns: normal likelihood, normal-inverse-chi-square prior (docs/math.md 1.5).

Hyperparameters are rows (mean, kappa, nu, variance) of an (R, 4) array. Each is fixed or learned on a grid, one after
another given the others. The default grids depend on the column's mean and standard deviation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpibayes.hpc.components.component import Array, PriorKey
from mpibayes.hpc.components.grid import Grids, as_grid
from mpibayes.hpc.components.masses import log_between
from mpibayes.hpc.components.single import InContexts, Numbers, with_new
from mpibayes.hpc.parallel.streams import Stream, cells
from mpibayes.io.recording import log_cells
from mpibayes.io.rows import Column, Rows
from mpibayes.kernels.common.functions import gammaln

MEAN, KAPPA, NU, VARIANCE = range(4)
NAMES = ("mean", "kappa", "nu", "variance")
START = (0.0, 0.1, 2.0, 0.25)  # mean and variance in units of the column's standard deviation
MEAN_GRID = np.linspace(-2.0, 2.0, 9)
KAPPA_GRID = np.geomspace(0.01, 1.0, 9)
NU_GRID = 2.0 ** np.arange(7)  # exact powers of two: the kernels score such columns together
VARIANCE_GRID = np.geomspace(1e-4, 1.0, 13)  # bounded below: the density at a repeated value is unbounded


def default_grids(column: Column) -> tuple[np.ndarray, ...]:
    """Default grids on which the hyperparameters of a column are learned."""
    center, scale = column.center, column.scale
    return center + scale * MEAN_GRID, KAPPA_GRID, NU_GRID, scale**2 * VARIANCE_GRID


def posterior(normal: np.ndarray, n, mean, scatter):
    """Posterior (mean, kappa, nu, nu * variance) given moments, each shaped as `n`. normal is (R, 4) or broadcasts."""
    m0, kappa0, nu0, variance0 = (normal[..., i, None] for i in range(4))
    kappa, nu = kappa0 + n, nu0 + n
    location = (kappa0 * m0 + n * mean) / kappa
    spread = nu0 * variance0 + scatter + n * kappa0 / kappa * (m0 - mean) ** 2
    return location, kappa, nu, spread


def merge_moments(a: tuple, b: tuple) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Moments (n, mean, scatter) of the union of the rows of `a` and `b` (Chan, Golub & LeVeque 1983)."""
    (n_a, mean_a, scatter_a), (n_b, mean_b, scatter_b) = a, b
    n = n_a + n_b
    share = n_b / np.maximum(n, 1)
    step = np.where(n_b > 0, mean_b - mean_a, 0.0)
    return n, mean_a + step * share, scatter_a + (scatter_b + step * step * (n_a * share))


def at_power(s: tuple, power: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Moments with every row counted with weight `power`."""
    n, mean, scatter = s
    return power * n, mean, power * scatter


class Student(Numbers):
    """Law of real columns (see `Law`): t distributions with nu degrees of freedom."""

    def __init__(self, kind: Normal, normal: np.ndarray, *s: np.ndarray):
        self.location, kappa, self.nu, spread = posterior(normal, *with_new(*s))
        variance = spread / self.nu * (1.0 + 1.0 / kappa)
        self.scale = np.sqrt(variance)
        # a t with nu <= 2 has no variance: the variance of nu = 3 stands in
        variance = variance * np.where(self.nu > 2.0, self.nu / np.where(self.nu > 2.0, self.nu - 2.0, 1.0), 3.0)
        shift = self.location - np.array([c.center for c in kind.columns]).reshape(-1, 1)
        super().__init__(kind.substreams[0], shift, variance + shift**2)

    def quantile(self, column: int, clusters: np.ndarray, u: np.ndarray) -> np.ndarray:
        from scipy.special import stdtrit  # slow to import

        location, scale, nu = (a[column, clusters] for a in (self.location, self.scale, self.nu))
        return location + scale * stdtrit(nu, u)

    def log_masses(self, column: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """See `NegativeBinomial.log_masses`."""
        location, scale = self.location[column], self.scale[column]
        return log_between((low - location) / scale, (high - location) / scale, self.nu[column])

    def within(self, column: int, clusters: np.ndarray, low: np.ndarray, high: np.ndarray, u: np.ndarray) -> np.ndarray:
        """See `NegativeBinomial.within`. Computed in the left tail, where distribution functions keep their digits."""
        from scipy.special import stdtr, stdtrit  # slow to import

        location, scale, nu = (a[column, clusters] for a in (self.location, self.scale, self.nu))
        a, b = (low - location) / scale, (high - location) / scale
        with np.errstate(invalid="ignore"):
            right = a + b > 0.0
        a, b, u = np.where(right, -b, a), np.where(right, -a, b), np.where(right, 1.0 - u, u)
        first, last = stdtr(nu, a), stdtr(nu, b)
        t = np.clip(stdtrit(nu, first + u * (last - first)), a, b)
        t = np.where(np.isfinite(t), t, np.where(np.isfinite(b), b, a))  # too far out to differ from 0
        return location + scale * np.where(right, -t, t)


class Normal(InContexts):
    """All real columns of a view that are modelled one by one. A column's prior: None or {"mean": number or grid, ...}.

    Statistics are moments of the observed cells: count, mean, and sum of squares about the mean, each (P, K).
    """

    name, hyper, hyper_form = "normal", "normal", (4,)
    hyper_names = ("mean", "kappa", "nu", "variance")
    stored = ("reals",)
    prior_forms = (
        (PriorKey("mean", least=-1e150, most=1e150), PriorKey("kappa"), PriorKey("nu"), PriorKey("variance")),
    )
    statistics = Array("real_n", "part", np.int64), Array("real_mean", "part"), Array("real_scatter", "part")
    parameters = Array("location", "part"), Array("half_precision", "part"), Array("constant", "part")
    odds = "real", np.float64
    exact, measured = False, True
    summed_out = MEAN, VARIANCE
    substreams = 1, 3  # 1: grids and precisions; 3: means

    def __init__(self, columns: Sequence[Column], priors: Mapping, joint: Mapping):
        super().__init__(columns)
        self.odds_form = (len(self.columns), 5)
        grids = [[], [], [], []]
        self._start = np.empty((len(self), 4))
        for r, column in enumerate(columns):
            prior, center, scale = priors.get(column.name) or {}, column.center, column.scale
            aim = (center, START[KAPPA], START[NU], scale**2 * START[VARIANCE])
            part = [as_grid(prior[name]) if name in prior else g for name, g in zip(NAMES, default_grids(column))]
            self._start[r] = [g[np.argmin(np.abs(g - a))] for g, a in zip(part, aim)]
            for i in range(4):
                grids[i].append(part[i])
        self.grids = [Grids(g) for g in grids]

    def prior(self, normal: np.ndarray) -> dict[str, np.ndarray]:
        return {"normal": self.wide(normal)}

    def log_base(self, rows: Rows) -> float:
        return float(log_cells(self.columns, rows).sum())

    def merge(self, a: tuple, b: tuple) -> tuple[np.ndarray, ...]:
        return merge_moments(a, b)

    def log_marginal_at(self, normal: np.ndarray, s: tuple, column: int, power: float) -> float:
        (_, kappa0, nu0, variance0), parts = normal[column], self.parts(slice(column, column + 1))
        moments = tuple(a[parts] for a in at_power(s, power))
        _, kappa, nu, spread = posterior(normal[column], *moments)
        of_nu = gammaln(0.5 * nu) - gammaln(0.5 * nu0) - 0.5 * moments[0] * np.log(np.pi)
        of_spread = 0.5 * nu0 * np.log(nu0 * variance0) - 0.5 * nu * np.log(spread)
        return float((of_nu + 0.5 * np.log(kappa0 / kappa) + of_spread).sum())

    def draw_at(self, normal: np.ndarray, s: tuple, column: int, power: float, stream: Stream):
        location, half_precision, constant = self.draw(normal, at_power(s, power), slice(column, column + 1), stream)
        return location, power * half_precision, power * constant

    def cell_moments(self, s: tuple) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return s

    def side_odds(self, normal: np.ndarray, s: tuple) -> np.ndarray:
        """Coefficients of the log odds of a cell x: [0] - [2] (x - [1])^2 + [4] (x - [3])^2."""
        location, kappa, nu, spread = posterior(self.wide(normal), *s)
        half = 0.5 / (spread * (kappa + 1.0) / (nu * kappa))
        level = 0.5 * np.log(half[:, 1::2] / half[:, 0::2])
        numbers = [level, location[:, 1::2], half[:, 1::2], location[:, 0::2], half[:, 0::2]]
        return np.ascontiguousarray(np.stack(numbers).transpose(2, 1, 0))

    def predictive(self, normal: np.ndarray, s: tuple) -> Student:
        return Student(self, self.wide(normal), *s)

    def drawn(self, normal: np.ndarray, s: tuple, stream: Stream) -> Student:
        law = self.predictive(normal, s)
        location, half_precision, _ = self.draw(normal, s, slice(0, len(self)), stream)
        law.location[:, :-1], law.scale[:, :-1], law.nu[:, :-1] = location, np.sqrt(0.5 / half_precision), np.inf
        return law

    def update(self, normal: np.ndarray, s: tuple, columns: slice, stream: Stream) -> np.ndarray:
        """Draw hyperparameters coordinate by coordinate."""
        return self.updated(normal, s, columns, self.grids, stream.at(self.substreams[0]))

    def draw(self, normal: np.ndarray, s: tuple, columns: slice, stream: Stream) -> tuple[np.ndarray, ...]:
        """Draw location, half_precision, constant: log density = constant - half_precision (x - location)^2.

        The id of a draw is the index of its column of cells and that of its cluster.
        """
        precisions, means = (stream.at(sub) for sub in self.substreams)
        parts = self.parts(columns)
        location, kappa, nu, spread = posterior(self.wide(normal)[parts], *(a[parts] for a in s))
        ids = cells(parts.start, *location.shape)
        precision = 2.0 * np.exp(precisions.log_gammas(0.5 * nu, ids)) / spread
        mu = location + means.normals(ids) / np.sqrt(kappa * precision)
        return mu, 0.5 * precision, 0.5 * np.log(precision / (2.0 * np.pi))

    @staticmethod
    def log_terms(parameters: tuple[np.ndarray, ...], x: np.ndarray, k: np.ndarray) -> np.ndarray:
        """Log densities (n, U) of cells (n,) in clusters (n,), given the parameters of U columns of cells as in
        `draw`."""
        location, half_precision, constant = (a[:, k] for a in parameters)
        return (constant - half_precision * (x - location) ** 2).T
