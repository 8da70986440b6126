"""Student t regression: y a number, (y - eta) / s has a t distribution; bounds (xi^2), where they touch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.regression.likelihoods.likelihood import NUMERIC, Likelihood
from mpibayes.io.rows import Column
from mpibayes.kernels import firefly as kernels
from mpibayes.text import import_again, number

QUANTILES = {"q05": 0.05, "q50": 0.5, "q95": 0.95}
CLOSE = 1e-9  # accuracy of a quantile, in scales
ROUNDS = 60


class StudentT(Likelihood):
    """Robust regression on a number. Its predictive distribution is an equal mixture of t distributions, one per
    draw."""

    name, title = "student-t", "Student t"
    code = kernels.STUDENT
    numeric = has_scale = True
    log_concave = False
    untuned_at = 0.0
    n_bounds = 1

    @classmethod
    def response_problems(cls, column: Column) -> list[str]:
        if column.kind not in NUMERIC:
            other = "logistic" if len(column.levels) == 2 else "softmax"
            return [
                f"response '{column.name}' is {column.kind}; student-t needs a real or count column: "
                f'likelihood = "{other}"? Or, if it has numbers, {import_again(column.name, "real")}'
            ]
        if column.minimum == column.maximum:
            return [f"response '{column.name}' is constant ({column.minimum:g})"]
        return []

    def log_density(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.log_t((y - eta[:, 0]) ** 2)

    def log_t(self, r2: np.ndarray) -> np.ndarray:
        """Log density of the t distribution at squared residuals r2."""
        nu, s = self.nu, self.scale
        constant = math.lgamma(0.5 * (nu + 1)) - math.lgamma(0.5 * nu) - 0.5 * math.log(nu * math.pi) - math.log(s)
        return constant - 0.5 * (nu + 1) * np.log1p(r2 / (nu * s * s))

    def slope(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (self.weight(eta, y) * (y - eta[:, 0]))[:, None]

    def weight(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Weight of each row in the weighted least squares with the same slope, (n,)."""
        return (self.nu + 1) / (self.nu * self.scale**2 + (y - eta[:, 0]) ** 2)

    def curvature(self, eta: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        inner, r2 = self.nu * self.scale**2, (y - eta[:, 0]) ** 2
        return [(self.nu + 1) * (inner - r2) / (inner + r2) ** 2]

    def log_bound(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        xi2 = bounds[:, 0]
        slope = (self.nu + 1) / (self.nu * self.scale**2 + xi2)
        return self.log_t(xi2) - 0.5 * slope * ((y - eta[:, 0]) ** 2 - xi2)

    def bound_terms(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weight = (self.nu + 1) / (self.nu * self.scale**2 + bounds[:, 0])
        return weight, (weight * (y - eta[:, 0]))[:, None]

    def draw(self, eta: np.ndarray, u: np.ndarray) -> np.ndarray:
        from scipy.special import stdtrit

        return eta[:, 0] + self.scale * stdtrit(self.nu, np.clip(u, 2.0**-54, None))  # u may be 0

    def predictions(self, eta: np.ndarray, classes: Sequence[str], center: float, scale: float) -> dict:
        """Mean, standard deviation and quantiles of the response, in the table's units."""
        mean, sd = self.moments(eta)
        columns = {"mean": center + scale * mean, "sd": scale * sd}
        return columns | {name: center + scale * self.quantile(eta, p) for name, p in QUANTILES.items()}

    def moments(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation, (n,), of the mixture over draws of eta (n, S, 1); inf if nu <= 2."""
        centre = eta[..., 0]
        inner = self.scale**2 * self.nu / (self.nu - 2.0) if self.nu > 2.0 else np.inf
        return centre.mean(axis=1), np.sqrt(centre.var(axis=1) + inner)

    def cdf(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Distribution function of the mixture at y, (n,)."""
        from scipy.special import stdtr  # slow to import, and not needed by chains

        return stdtr(self.nu, (y[:, None] - eta[..., 0]) / self.scale).mean(axis=1)

    def quantile(self, eta: np.ndarray, p: float) -> np.ndarray:
        """Quantile of the mixture at probability p, (n,).

        Newton's method, bracketed by the least and the largest quantile of single draws.
        """
        from scipy.special import stdtr, stdtrit

        nu, scale = self.nu, self.scale
        centre = eta[..., 0]
        offset = scale * float(stdtrit(nu, p))
        low, high = centre.min(axis=1) + offset, centre.max(axis=1) + offset
        q = centre.mean(axis=1) + offset
        open_rows = np.arange(len(q))
        for _ in range(ROUNDS):
            u = (q[open_rows, None] - centre[open_rows]) / scale
            miss = stdtr(nu, u).mean(axis=1) - p
            slope = np.exp(self.log_t((u * scale) ** 2)).mean(axis=1)
            above = miss > 0
            high[open_rows[above]] = q[open_rows[above]]
            low[open_rows[~above]] = q[open_rows[~above]]
            with np.errstate(divide="ignore", invalid="ignore"):
                step = q[open_rows] - miss / slope
            inside = (step >= low[open_rows]) & (step <= high[open_rows])
            new = np.where(inside, step, 0.5 * (low[open_rows] + high[open_rows]))
            done = np.abs(new - q[open_rows]) <= CLOSE * scale
            q[open_rows] = new
            open_rows = open_rows[~done]
            if not len(open_rows):
                break
        return q

    def in_words(self, classes: Sequence[str]) -> str:
        return f"{self.nu:g} degrees of freedom, scale {number(self.scale)}"
