"""Small regressions whose posterior is known to many digits, with the distribution of Firefly's bright rows.

Computed by quadrature from textbook densities, vectorised over grid points, with no code in common with the program:
log L - log B as in docs/math.md 4.2, not the program's form of the gap. The rule is a product of Gauss-Legendre panels
that end at every threshold and at the kinks of the prior, so that events and Laplace priors are integrated as
accurately as smooth functions.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np
import scipy


@dataclass(frozen=True, eq=False)
class Case:
    """Rows x (N, D), responses y (N,) and a prior.

    likelihood: "logistic" (y 0 or 1), "softmax" (y < n_classes), "student-t". thresholds (P,): events theta_k > t_k are
    compared. theta is (..., P) everywhere, P = D times the number of classes for softmax, flattened class by class; y
    may have the same leading axes, then every theta has its own responses. intercept_scale: the first coefficient (of
    each class) is normal with this standard deviation, whatever the prior of the others.
    """

    name: str
    likelihood: str
    x: np.ndarray
    y: np.ndarray
    thresholds: tuple[float, ...]
    prior: str = "gaussian"
    prior_scale: float | tuple[float, ...] = 2.0
    n_classes: int = 1
    nu: float = 4.0
    scale: float = 1.0
    intercept_scale: float | None = None

    @property
    def n_rows(self) -> int:
        return len(self.x)

    @property
    def n_parameters(self) -> int:
        return self.x.shape[1] * self.n_classes

    def log_prior(self, theta):
        scale, normal = self.prior_by_coefficient()
        proper = np.isfinite(scale)  # others are flat, with density 1
        parts = [(law, at & proper) for law, at in ((scipy.stats.norm, normal), (scipy.stats.laplace, ~normal))]
        return sum(law.logpdf(theta[..., at], scale=scale[at]).sum(axis=-1) for law, at in parts if at.any())

    def prior_by_coefficient(self):
        """Standard deviation or b of each coefficient, (P,), and whether its prior is normal, (P,) bool; inf: flat."""
        scale = np.array(np.broadcast_to(self.prior_scale, self.n_parameters), float)
        normal = np.full(self.n_parameters, self.prior == "gaussian")
        if self.intercept_scale is not None:
            scale[:: self.x.shape[1]], normal[:: self.x.shape[1]] = self.intercept_scale, True
        return scale, normal

    def predictors(self, theta):
        """(..., N), or (..., N, K) for softmax."""
        if self.likelihood == "softmax":
            return np.einsum("nd,...kd->...nk", self.x, theta.reshape(*theta.shape[:-1], self.n_classes, -1))
        return theta @ self.x.T

    def log_likelihoods(self, theta):
        """log L_n, (..., N)."""
        eta = self.predictors(theta)
        if self.likelihood == "logistic":
            return scipy.special.log_expit((2 * self.y - 1) * eta)
        if self.likelihood == "softmax":
            return self._of_response(scipy.special.log_softmax(eta, axis=-1))
        return scipy.stats.t.logpdf((self.y - eta) / self.scale, self.nu) - np.log(self.scale)

    def log_bounds(self, theta, tuned_at=None, xi=1.5):
        """log B_n, (..., N): bounds that touch at the parameters tuned_at (P,), or untuned ones."""
        eta = self.predictors(theta)
        if self.likelihood == "logistic":
            xi = np.full(self.n_rows, xi) if tuned_at is None else np.abs(self.predictors(tuned_at))
            s = (2 * self.y - 1) * eta
            a = -np.tanh(xi / 2) / (4 * xi)
            return a * s**2 + s / 2 - a * xi**2 + xi / 2 - np.log1p(np.exp(xi))
        if self.likelihood == "softmax":
            psi = np.zeros((self.n_rows, self.n_classes)) if tuned_at is None else self.predictors(tuned_at)
            log_g = scipy.special.log_softmax(psi, axis=-1)
            d = eta - psi
            curvature = 0.5 * (np.eye(self.n_classes) - 1.0 / self.n_classes)
            slope = np.eye(self.n_classes)[self.y] - np.exp(log_g)
            return self._of_response(log_g) + (slope * d).sum(-1) - 0.5 * ((d @ curvature) * d).sum(-1)
        xi = np.full(self.n_rows, xi) if tuned_at is None else self.y - self.predictors(tuned_at)
        touch = scipy.stats.t.logpdf(xi / self.scale, self.nu) - np.log(self.scale)
        return touch - 0.5 * (self.nu + 1) * ((self.y - eta) ** 2 - xi**2) / (self.nu * self.scale**2 + xi**2)

    def _of_response(self, values):
        """Entries of values (..., N, K) for the observed responses."""
        y = np.broadcast_to(self.y, np.broadcast_shapes(values.shape[:-1], self.y.shape))
        values = np.broadcast_to(values, (*y.shape, self.n_classes))
        return np.take_along_axis(values, y[..., None], axis=-1)[..., 0]

    def log_joint(self, theta):
        return self.log_prior(theta) + self.log_likelihoods(theta).sum(axis=-1)

    def draw_responses(self, theta, generator):
        """Fresh responses (..., N) given theta."""
        eta = self.predictors(theta)
        if self.likelihood == "student-t":
            return eta + self.scale * generator.standard_t(self.nu, eta.shape)
        if self.likelihood == "logistic":
            return (generator.random(eta.shape) < scipy.special.expit(eta)).astype(np.int64)
        # Gumbel's trick: the largest of eta_k + G_k is class k with probability softmax(eta)_k.
        return (eta + generator.gumbel(size=eta.shape)).argmax(axis=-1)

    def draw_prior(self, size, generator):
        scale, normal = self.prior_by_coefficient()
        shape = size, self.n_parameters
        if normal.all():
            return generator.normal(0.0, scale, shape)
        return np.where(normal, generator.normal(0.0, scale, shape), generator.laplace(0.0, scale, shape))


class Posterior:
    """Grid points theta (G, P) of a case and their probabilities p (G,)."""

    def __init__(self, case: Case, nodes: int | None = None, far: float = 36.0):
        self.case = case
        self._bright = {}
        n = case.n_parameters
        nodes = nodes or (10 if n < 3 else 4)
        # Start away from the origin, where a Laplace prior has its kink.
        result = scipy.optimize.minimize(
            lambda t: -case.log_joint(t), np.full(n, 0.1), method="Nelder-Mead",
            options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 5000, "maxfev": 5000},
        )  # fmt: skip
        self.mode, top = result.x, -result.fun
        axes, weights = zip(*(self._axis(k, top - far, nodes) for k in range(n)))
        self.theta = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=-1)
        w = functools.reduce(np.multiply.outer, weights).ravel()
        log_joint = case.log_joint(self.theta)
        mass = w * np.exp(log_joint - top)
        self.log_evidence = top + np.log(mass.sum())
        self.p = mass / mass.sum()
        near = self.p > 1e-18  # the rest of the box is invisible in 15 digits
        self.theta, self.p, self.log_joint = self.theta[near], self.p[near], log_joint[near]

    def _axis(self, k: int, low: float, nodes: int):
        """Nodes and weights of one coordinate, over the interval where the profile is above `low`."""
        case, others = self.case, np.arange(self.case.n_parameters) != k

        def profile(t):
            def at(free):
                theta = np.empty(case.n_parameters)
                theta[k], theta[others] = t, free
                return -case.log_joint(theta)

            if not others.any():
                return -at(np.empty(0))
            return -scipy.optimize.minimize(at, self.mode[others], method="Nelder-Mead", options={"fatol": 0.05}).fun

        ends = []
        for sign in (-1.0, 1.0):
            step = 0.25
            while profile(self.mode[k] + sign * step) > low:
                step *= 1.25
            ends.append(self.mode[k] + sign * step)
        breaks = {case.thresholds[k]} | ({0.0} if case.prior == "laplace" else set())
        cuts = [ends[0], *sorted(b for b in breaks if ends[0] < b < ends[1]), ends[1]]
        width = (ends[1] - ends[0]) / 16
        edges = np.concatenate(
            [np.linspace(a, b, 1 + int(np.ceil((b - a) / width)))[:-1] for a, b in itertools.pairwise(cuts)]
            + [[ends[1]]]
        )
        u, w = np.polynomial.legendre.leggauss(nodes)
        half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
        return (middle[:, None] + half[:, None] * u).ravel(), (half[:, None] * w).ravel()

    def mean(self, values):
        """Posterior expectation of values (G, ...)."""
        return np.tensordot(self.p, values, axes=1)

    def bright(self, tuned_at=None, xi=1.5) -> dict[str, np.ndarray]:
        """`given_theta` at every grid point, cached."""
        key = (None if tuned_at is None else tuned_at.tobytes(), xi)
        if key not in self._bright:
            self._bright[key] = given_theta(self.case, self.theta, tuned_at, xi)
        return self._bright[key]

    def draw(self, size: int, generator) -> np.ndarray:
        """Draw grid points by their probability, (size, P): exact up to the spacing of the grid."""
        return self.theta[generator.choice(len(self.p), size=size, p=self.p)]


def given_theta(case: Case, theta, tuned_at=None, xi=1.5) -> dict[str, np.ndarray]:
    """Moments under the law of z given theta (G, P) of the number of bright rows and of log p(theta, z), each (G,).

    Rows are bright independently, with probability 1 - B/L (docs/math.md 4.1): "number" and "square" are the first two
    moments of their number, "none" is the probability that there is none, "lp" the mean of log p(theta, z).
    """
    log_b = case.log_bounds(theta, tuned_at, xi)
    gap = case.log_likelihoods(theta) - log_b
    assert gap.min() > -1e-9 * (1.0 + np.abs(log_b).max()), "a bound above its likelihood"
    gap = np.maximum(gap, 0.0)
    p = -np.expm1(-gap)
    # p log(e^gap - 1) -> 0 as the gap closes
    light = np.where(gap > 0.0, p * (gap + np.log(np.where(gap > 0.0, p, 1.0))), 0.0)
    number = p.sum(axis=1)
    return {
        "number": number,
        "square": number**2 + (p * (1.0 - p)).sum(axis=1),
        "none": np.exp(-gap.sum(axis=1)),
        "lp": case.log_prior(theta) + log_b.sum(axis=1) + light.sum(axis=1),
    }
