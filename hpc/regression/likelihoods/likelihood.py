"""Interface of a regression's likelihood: the law of a row's response given its K linear predictors.

Functions are elementwise over rows: eta (n, K) float64, y (n,) float64 and `bounds` (n, B) float64 as the kernels keep
them. The bounds: docs/math.md 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mpibayes.io.rows import Column
from mpibayes.kernels import firefly as kernels

LANES = 8  # a row of predictors is padded to a multiple of this many numbers
NUMERIC = ("real", "count")  # kinds of columns whose cells are numbers; those of others are levels


@dataclass(frozen=True)
class Likelihood:
    """A new one is a class with what is declared here, its kernel, and its place in `LIKELIHOODS`.

    n_classes: K, rows of coefficients. nu, scale: degrees of freedom and scale s of the t distribution alone.
    """

    n_predictors: int
    n_classes: int = 1
    nu: float = 4.0
    scale: float = 1.0

    name: ClassVar[str]  # in a configuration
    title: ClassVar[str]  # in a report, before "regression"
    code: ClassVar[int]  # the kernels' number
    numeric: ClassVar[bool] = False  # the response is a number, not a class
    has_scale: ClassVar[bool] = False  # nu and scale mean something; the response may be standardised
    log_concave: ClassVar[bool] = True  # if not, there is `weight`
    separable: ClassVar[bool] = False  # two classes may lie on two sides of a plane; then a flat prior leaves no mode
    needs_prior: ClassVar[str] = ""  # why a flat prior never leaves a proper posterior; "" where it may
    untuned_at: ClassVar[float | None] = None  # where untuned bounds touch, unless firefly.xi says; None: it cannot
    odds: ClassVar[bool] = False  # the exponential of a coefficient is an odds ratio
    coefficients_title: ClassVar[str] = "Coefficients"
    n_curvatures: ClassVar[int] = 1

    # --- the response -------------------------------------------------------------------------------------------------

    @classmethod
    def response_problems(cls, column: Column) -> list[str]:
        """Reasons why a column cannot be the response; empty if it can."""
        raise NotImplementedError

    @staticmethod
    def n_classes_of(levels: Sequence[str]) -> int:
        """K, by the levels of the response."""
        return 1

    @staticmethod
    def encode(cells: np.ndarray) -> np.ndarray:
        """y float64 of the cells of a response, level numbers or values; of a missing cell anything."""
        return cells.astype(np.float64)

    @staticmethod
    def decode(y: np.ndarray) -> np.ndarray:
        """The cells of such y, float64."""
        return y

    # --- densities and bounds -----------------------------------------------------------------------------------------

    def log_density(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """log L of each row, (n,)."""
        raise NotImplementedError

    def slope(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """d log L / d eta, (n, K)."""
        raise NotImplementedError

    def curvature(self, eta: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        """Weights (n,), `n_curvatures` of them, that make up -d2 log L / d eta_k d eta_j."""
        raise NotImplementedError

    def join_curvatures(self, blocks: np.ndarray) -> np.ndarray:
        """Minus the second derivatives (P, P) in theta, by the sums (n_curvatures, D, D) of weight times x x'."""
        return blocks[0]

    @property
    def n_bounds(self) -> int:
        """B: numbers that fix a row's bound."""
        raise NotImplementedError

    def log_bound(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """log B of each row, (n,)."""
        raise NotImplementedError

    def bound_terms(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(curvature weight (n,), slope (n, K)) of log B at eta; the curvature is the weight times `bound_matrix`."""
        raise NotImplementedError

    @property
    def bound_matrix(self) -> np.ndarray:
        """A (K, K): how the classes enter the curvature of the bounds."""
        return np.ones((1, 1))

    def gap(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """delta = log L - log B >= 0 of each row, (n,)."""
        return np.maximum(self.log_density(eta, y) - self.log_bound(eta, y, bounds), 0.0)

    # --- predictions --------------------------------------------------------------------------------------------------

    def draw(self, eta: np.ndarray, u: np.ndarray) -> np.ndarray:
        """A response y of each row, (n,), where the distribution function passes u (n,), uniform in [0, 1)."""
        raise NotImplementedError

    def predictions(self, eta: np.ndarray, classes: Sequence[str], center: float, scale: float) -> dict[str, Any]:
        """Columns of a prediction, by name: what draws of eta (n, S, K) make of the response, averaged over draws.

        classes: levels of the response. center, scale: a numeric response is center + scale y.
        """
        raise NotImplementedError

    # --- words and sizes ----------------------------------------------------------------------------------------------

    def in_words(self, classes: Sequence[str]) -> str:
        """Describe the model for a report; classes: levels of the response."""
        raise NotImplementedError

    @property
    def n_parameters(self) -> int:
        return self.n_classes * self.n_predictors

    def rows(self, x: np.ndarray, y: np.ndarray) -> kernels.Rows:
        """Rows as the kernels have them; x (n, D), or padded already, and then it is not copied."""
        x = padded(x, self.n_predictors)
        return kernels.Rows(self.code, x, y, self.n_predictors, self.n_classes, self.nu, self.scale)


def padded(x: np.ndarray, n_predictors: int) -> np.ndarray:
    """x with its rows filled with zeros to a multiple of LANES numbers; itself where they are."""
    width = -(-n_predictors // LANES) * LANES
    if x.shape[1] == width and x.dtype == np.float32 and x.flags.c_contiguous:
        return x
    out = np.zeros((len(x), width), np.float32)
    out[:, :n_predictors] = x[:, :n_predictors]
    return out
