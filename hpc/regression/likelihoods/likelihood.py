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
    """Base class. A new likelihood is a class that defines what is declared here, a kernel, and an entry in
    `LIKELIHOODS`.

    n_classes: K, rows of coefficients. nu, scale: degrees of freedom and scale s, for the t distribution alone.
    """

    n_predictors: int
    n_classes: int = 1
    nu: float = 4.0
    scale: float = 1.0

    name: ClassVar[str]  # in a configuration
    title: ClassVar[str]  # in a report, before "regression"
    code: ClassVar[int]  # the kernels' number
    numeric: ClassVar[bool] = False  # the response is a number, not a class
    has_scale: ClassVar[bool] = False  # nu and scale apply; the response may be standardised
    log_concave: ClassVar[bool] = True  # if False, `weight` is defined
    separable: ClassVar[bool] = False  # a plane may separate two classes; then a flat prior leaves no mode
    needs_prior: ClassVar[str] = ""  # reason why a flat prior never gives a proper posterior; "" if it may
    untuned_at: ClassVar[float | None] = None  # default of firefly.xi, where untuned bounds touch; None: no such bounds
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
        """K, from the levels of the response."""
        return 1

    @staticmethod
    def encode(cells: np.ndarray) -> np.ndarray:
        """Encode the cells of a response, level numbers or values, as y, float64; missing cells become anything."""
        return cells.astype(np.float64)

    @staticmethod
    def decode(y: np.ndarray) -> np.ndarray:
        """Invert `encode`, float64."""
        return y

    # --- densities and bounds -----------------------------------------------------------------------------------------

    def log_density(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Log L of each row, (n,)."""
        raise NotImplementedError

    def slope(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Gradient d log L / d eta, (n, K)."""
        raise NotImplementedError

    def curvature(self, eta: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        """Return `n_curvatures` weights (n,) that make up -d2 log L / d eta_k d eta_j."""
        raise NotImplementedError

    def join_curvatures(self, blocks: np.ndarray) -> np.ndarray:
        """Minus the second derivatives (P, P) in theta, from the sums (n_curvatures, D, D) of weight times x x'."""
        return blocks[0]

    @property
    def n_bounds(self) -> int:
        """Number of values that define a row's bound, B."""
        raise NotImplementedError

    def log_bound(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Log bound of each row, log B (n,)."""
        raise NotImplementedError

    def bound_terms(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (curvature weight (n,), slope (n, K)) of log B at eta; the curvature is the weight times
        `bound_matrix`."""
        raise NotImplementedError

    @property
    def bound_matrix(self) -> np.ndarray:
        """Matrix A (K, K) of the classes in the curvature of the bounds."""
        return np.ones((1, 1))

    def gap(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Gap delta = log L - log B >= 0 of each row, (n,)."""
        return np.maximum(self.log_density(eta, y) - self.log_bound(eta, y, bounds), 0.0)

    # --- predictions --------------------------------------------------------------------------------------------------

    def draw(self, eta: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Draw a response y for each row, (n,), where the distribution function passes u (n,), uniform in [0, 1)."""
        raise NotImplementedError

    def predictions(self, eta: np.ndarray, classes: Sequence[str], center: float, scale: float) -> dict[str, Any]:
        """Columns of a prediction, by name: the response given draws of eta (n, S, K), averaged over draws.

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
        """Convert rows to the kernels' form. x: (n, D), or already padded, and then not copied."""
        x = padded(x, self.n_predictors)
        return kernels.Rows(self.code, x, y, self.n_predictors, self.n_classes, self.nu, self.scale)


def padded(x: np.ndarray, n_predictors: int) -> np.ndarray:
    """Return x with rows zero-padded to a multiple of LANES numbers; x itself if they are."""
    width = -(-n_predictors // LANES) * LANES
    if x.shape[1] == width and x.dtype == np.float32 and x.flags.c_contiguous:
        return x
    out = np.zeros((len(x), width), np.float32)
    out[:, :n_predictors] = x[:, :n_predictors]
    return out
