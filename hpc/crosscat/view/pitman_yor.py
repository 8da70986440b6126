"""The Pitman-Yor prior on partitions and its concentration and discount (docs/math.md 1.1, 2.4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.components.grid import as_grid, draw_on_grid
from mpibayes.kernels.common import weights

LEARNED_CONCENTRATION = np.geomspace(0.05, 500.0, 41)
LEARNED_DISCOUNT = np.linspace(0.0, 0.9, 10)


def gamma_quantiles(shape: float, rate: float, n: int) -> np.ndarray:
    """Return the n quantiles of Gamma(shape, rate) at (i - 1/2) / n, i = 1, ..., n, increasing float64 (n,)."""
    p = (np.arange(n) + 0.5) / n
    if shape == 1.0:
        return -np.log1p(-p) / rate
    from scipy.special import gammaincinv  # slow to import

    return gammaincinv(shape, p) / rate


def log_sum(terms: np.ndarray) -> float:
    """Return log sum exp(terms) for finite terms, with the same bits as `scipy.special.logsumexp`."""
    top = terms.max()
    greatest = terms == top
    n = float(greatest.sum())
    return np.log1p(np.exp(np.where(greatest, -np.inf, terms) - top).sum() / n) + np.log(n) + top


def log_eppf(size: np.ndarray, concentration: float, discount: float) -> float:
    """Return the log probability of a partition with block sizes `size` (K,) int64, all positive."""
    return float(weights.log_eppf(size, np.array([concentration]), np.array([discount]))[0, 0])


@dataclass
class PitmanYor:
    """Prior of (concentration, discount): fixed, on a uniform product grid, or gamma (Escobar & West 1995)."""

    concentrations: np.ndarray = field(default_factory=lambda: LEARNED_CONCENTRATION)
    discounts: np.ndarray = field(default_factory=lambda: np.zeros(1))
    gamma: tuple[float, float] | None = None  # (shape, rate) of the prior of the concentration, with discount 0

    @classmethod
    def of(cls, concentration, discount) -> PitmanYor:
        """Make the prior from settings: a number is fixed, a list is a grid, "learn" the default grid,
        {"gamma": (a, b)} a gamma prior, with "points" a grid of that many of its quantiles. Raises ValueError for
        "auto", which a run resolves."""
        if isinstance(concentration, dict):
            if "points" not in concentration:
                return cls(np.ones(1), np.zeros(1), tuple(concentration["gamma"]))
            concentration = gamma_quantiles(*concentration["gamma"], concentration["points"])
        learn = isinstance(concentration, str)
        if learn and concentration != "learn":
            raise ValueError(f"a concentration that is {concentration}")
        alphas = LEARNED_CONCENTRATION if learn else as_grid(concentration)
        ds = LEARNED_DISCOUNT if isinstance(discount, str) else as_grid(discount)
        return cls(alphas, ds)

    @property
    def fixed(self) -> bool:
        return self.gamma is None and len(self.concentrations) * len(self.discounts) == 1

    def start(self) -> tuple[float, float]:
        """Return the grid point nearest to concentration 1 and the least discount; the mean of a gamma prior."""
        if self.gamma is not None:
            return self.gamma[0] / self.gamma[1], 0.0
        nearest = np.argmin(np.abs(np.log(np.maximum(self.concentrations, 1e-300))))
        return float(self.concentrations[nearest]), float(self.discounts[0])

    def log_prior(self, size: np.ndarray) -> float:
        """Return the log probability of a partition with block sizes (K,), concentration and discount integrated out.
        Raises ValueError for a gamma prior."""
        if self.gamma is not None:
            raise ValueError("a gamma prior of the concentration is not integrated out")
        terms = weights.log_eppf(size, self.concentrations, self.discounts)
        return float(log_sum(terms) - np.log(terms.size))

    def draw_prior(self, stream: np.random.Generator) -> tuple[float, float]:
        """Draw (concentration, discount) from the prior."""
        if self.gamma is not None:
            return stream.standard_gamma(self.gamma[0]) / self.gamma[1], 0.0
        i, j = stream.integers([len(self.concentrations), len(self.discounts)])
        return float(self.concentrations[i]), float(self.discounts[j])

    def draw(self, size: np.ndarray, current: float, stream: np.random.Generator) -> tuple[float, float]:
        """Draw (concentration, discount) given the block sizes `size` (K,), with weights integrated out."""
        if self.gamma is not None:
            return self._escobar_west(size, current, stream), 0.0
        if self.fixed:
            return float(self.concentrations[0]), float(self.discounts[0])
        log_weight = weights.log_eppf(size, self.concentrations, self.discounts)
        i, j = divmod(draw_on_grid(log_weight.ravel(), stream), len(self.discounts))
        return float(self.concentrations[i]), float(self.discounts[j])

    def _escobar_west(self, size, current, stream):
        a, b = self.gamma
        n_rows, n_clusters = int(size.sum()), len(size)
        rate = b - np.log(stream.beta(current + 1.0, n_rows))
        odds = (a + n_clusters - 1.0) / (n_rows * rate)
        shape = a + n_clusters - (stream.random() >= odds / (1.0 + odds))
        return stream.standard_gamma(shape) / rate
