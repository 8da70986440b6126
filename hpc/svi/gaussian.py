"""Mixture of Gaussians with full precision matrices, and its variational approximation (docs/math.md 8.4).

    pi ~ Dirichlet(alpha, ..., alpha),  mu_j ~ N(0, c I),  Lambda_j ~ Wishart(a, B),  x ~ N(mu_j, Lambda_j^-1)

with Wishart(a, B) proportional to |Lambda|^((a - D - 1) / 2) exp(-tr(B Lambda) / 2), of mean a B^-1. The approximation
is q(pi) q(mu) q(Lambda) q(z), of the same families. Third example of Paisley, Fazelnia & Barr, with (27) and (29)
corrected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import digamma, gammaln, multigammaln

from mpibayes.hpc.svi.step import Step, share_of_matrices, share_of_numbers
from mpibayes.kernels.svi.gaussian import Pass

LOG_TWO_PI = np.log(2.0 * np.pi)


@dataclass(frozen=True)
class Prior:
    """Prior of the mixture. alpha: of each component. mean_variance: c. degrees: a > D - 1. scale: B = scale I."""

    alpha: float
    mean_variance: float
    degrees: float
    scale: float


@dataclass(frozen=True)
class State:
    """q, by its natural parameters up to constants. alpha (K,). q(mu_j): precision (K, D, D), and linear (K, D), the
    precision times the mean. q(Lambda_j): degrees (K,), scatter (K, D, D)."""

    alpha: np.ndarray
    precision: np.ndarray
    linear: np.ndarray
    degrees: np.ndarray
    scatter: np.ndarray

    @cached_property
    def covariance(self) -> np.ndarray:
        """Covariance of the component means under q, (K, D, D)."""
        return np.linalg.inv(self.precision)

    @cached_property
    def mean(self) -> np.ndarray:
        """Mean of the component means under q, (K, D)."""
        return np.ascontiguousarray(np.linalg.solve(self.precision, self.linear[:, :, None])[:, :, 0])

    @cached_property
    def root(self) -> np.ndarray:
        """Inverse of the lower Cholesky factor of each scatter, (K, D, D)."""
        return np.linalg.inv(np.linalg.cholesky(self.scatter))

    @cached_property
    def mean_precision(self) -> np.ndarray:
        """Mean of each Lambda, (K, D, D)."""
        return self.degrees[:, None, None] * (self.root.swapaxes(1, 2) @ self.root)

    @cached_property
    def log_det_precision(self) -> np.ndarray:
        """Mean of each log |Lambda|, (K,)."""
        d = self.linear.shape[1]
        halves = 0.5 * (self.degrees[:, None] - np.arange(d))
        log_det_scatter = -2.0 * np.log(np.diagonal(self.root, axis1=1, axis2=2)).sum(axis=1)
        return digamma(halves).sum(axis=1) + d * np.log(2.0) - log_det_scatter

    def sound(self) -> bool:
        """True if every parameter lies in its domain."""
        d = self.linear.shape[1]
        matrices = np.concatenate([self.precision, self.scatter])
        if not (np.isfinite(matrices).all() and np.isfinite(self.linear).all()):
            return False
        return bool(self.alpha.min() > 0 and self.degrees.min() > d - 1 and np.linalg.eigvalsh(matrices).min() > 0)


@dataclass(frozen=True)
class Sums:
    """Sums over rows weighted by their responsibilities: rows (K,), and first (K, D) and second (K, D, D) moments about
    the component means of the state that gave the responsibilities."""

    rows: np.ndarray
    first: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, packed: np.ndarray, d: int) -> Sums:
        """Unpack the kernel's sums (K, 1 + D + D (D + 1) / 2), with second moments as lower triangles."""
        second = np.zeros((len(packed), d, d))
        i, j = np.tril_indices(d)
        second[:, i, j] = packed[:, 1 + d :]
        second[:, j, i] = packed[:, 1 + d :]
        return cls(packed[:, 0], packed[:, 1 : 1 + d], second)

    def about(self, moved: np.ndarray) -> np.ndarray:
        """Second moments about points shifted by `moved` (K, D) from the present ones."""
        across = moved[:, :, None] * self.first[:, None, :]
        shift = self.rows[:, None, None] * moved[:, :, None] * moved[:, None, :]
        return self.second - across - across.swapaxes(1, 2) + shift


@dataclass
class Gaussian:
    """The model of K components and D columns; see the module."""

    prior: Prior
    n_components: int
    n_columns: int
    _pass: Pass = field(init=False, repr=False)

    def __post_init__(self):
        self._pass = Pass(self.n_components, self.n_columns)

    @property
    def form(self) -> tuple[int, int]:
        """Shape of the sums over rows that `accumulate` fills."""
        d = self.n_columns
        return self.n_components, 1 + d + d * (d + 1) // 2

    def first(self) -> State:
        """The prior as a state."""
        k, d, p = self.n_components, self.n_columns, self.prior
        unit = np.broadcast_to(np.eye(d), (k, d, d))
        precision, scatter = unit / p.mean_variance, p.scale * unit
        return State(np.full(k, p.alpha), precision, np.zeros((k, d)), np.full(k, p.degrees), scatter)

    def weight(self, q: State) -> np.ndarray:
        """Expected number of rows of each component, (K,)."""
        return q.alpha - self.prior.alpha

    def seeded(self, x: np.ndarray, n_rows: int, rng: np.random.Generator) -> State:
        """Initial state: one step from the prior, with each row of a sample assigned to the nearest of K centers.

        x: float64 (n, D). The centers are those of k-means++ (Arthur & Vassilvitskii 2007), drawn with `rng`.
        """
        nearest, from_nearest = np.zeros(len(x), np.int64), np.full(len(x), np.inf)
        for j in range(self.n_components):
            every = from_nearest.sum()
            p = None if j == 0 or not every > 0 else from_nearest / every
            squared = ((x - x[rng.choice(len(x), p=p)]) ** 2).sum(axis=1)
            nearest[squared < from_nearest] = j
            from_nearest = np.minimum(from_nearest, squared)
        total, lower = np.zeros(self.form), np.tril_indices(self.n_columns)
        for j in range(self.n_components):
            members = x[nearest == j]
            total[j] = np.concatenate(
                [[len(members)], members.sum(axis=0), np.einsum("ni,nk->ik", members, members)[lower]]
            )
        return self.step(self.first(), total, None, Step(1.0, n_rows / len(x)))[0]

    # --- rows ---------------------------------------------------------------------------------------------------------

    def accumulate(
        self, q: State, x: np.ndarray, rows: np.ndarray | None, numbers: np.ndarray | None, sums: np.ndarray
    ) -> float:
        """Sum responsibilities of rows under q into `sums`; return the rows' part of the bound with the best q(z).

        x: float64 (n, D), C-contiguous. rows: indices, int64, None for all. numbers: float64, one for each of these
        rows, or None. sums (1 or 2, *form), added to: sums over the rows, and over the rows times their numbers.
        """
        constant, factor = self.densities(q)
        return self._pass(x, rows, numbers, q.mean, factor, constant, sums)

    def densities(self, q: State) -> tuple[np.ndarray, np.ndarray]:
        """Return constant (K,) and lower triangular factor (K, D, D): the expectation under q of log pi_j N(x | mu_j,
        Lambda_j^-1) is constant - |factor (x - mean)|^2."""
        weight = digamma(q.alpha) - digamma(q.alpha.sum())
        spread = np.einsum("kij,kji->k", q.mean_precision, q.covariance)
        constant = weight + 0.5 * (q.log_det_precision - self.n_columns * LOG_TWO_PI - spread)
        return constant, np.sqrt(0.5 * q.degrees)[:, None, None] * q.root

    # --- a step -------------------------------------------------------------------------------------------------------

    def step(self, q: State, total: np.ndarray, noise: np.ndarray | None, step: Step) -> tuple[State, int]:
        """Return the state after a step, and the number of its parts that the guard held back.

        total: the batch's sums. noise: noise to add to them, or None. q(mu) comes first, then q(Lambda) with its new
        moments, and q(pi). Each q(mu_j), q(Lambda_j) and count of q(pi) is a part.
        """
        p, d, m = self.prior, self.n_columns, q.mean
        sums = Sums.of(step.scale * total, d)
        extra = None if noise is None else Sums.of(step.rate * step.scale * noise, d)
        held = Held(step.guard)
        eye, each = np.eye(d), (slice(None), None, None)

        sharp = q.mean_precision
        precision = step.to(q.precision, eye / p.mean_variance + sharp * sums.rows[each])
        linear = step.to(q.linear, np.einsum("kij,kj->ki", sharp, sums.first + sums.rows[:, None] * m))
        if extra is not None:
            more = sharp * extra.rows[each]
            share = held.back(share_of_matrices, precision, more)
            precision = precision + share[each] * more
            pull = np.einsum("kij,kj->ki", sharp, extra.first + extra.rows[:, None] * m)
            linear = linear + share[:, None] * pull
        moved = State(q.alpha, precision, linear, q.degrees, q.scatter)

        by, blur = moved.mean - m, moved.covariance
        degrees = step.to(q.degrees, p.degrees + sums.rows)
        scatter = step.to(q.scatter, p.scale * eye + sums.about(by) + sums.rows[each] * blur)
        alpha = step.to(q.alpha, p.alpha + sums.rows)
        if extra is not None:
            more = extra.about(by) + extra.rows[each] * blur
            share = held.back(_share_of_wishart, (scatter, degrees - (d - 1)), (more, extra.rows))
            scatter, degrees = scatter + share[each] * more, degrees + share * extra.rows
            alpha = alpha + held.back(share_of_numbers, alpha, extra.rows) * extra.rows
        scatter = 0.5 * (scatter + scatter.swapaxes(1, 2))
        return State(alpha, 0.5 * (precision + precision.swapaxes(1, 2)), linear, degrees, scatter), held.count

    # --- the bound ----------------------------------------------------------------------------------------------------

    def bound(self, q: State) -> float:
        """The bound without the rows' part: minus the divergences of q(pi), q(mu) and q(Lambda) from the prior."""
        p, k, d = self.prior, self.n_components, self.n_columns
        total, expected = q.alpha.sum(), digamma(q.alpha) - digamma(q.alpha.sum())
        of_weights = gammaln(total) - gammaln(q.alpha).sum() - gammaln(k * p.alpha) + k * gammaln(p.alpha)
        of_weights += ((q.alpha - p.alpha) * expected).sum()
        length = np.trace(q.covariance, axis1=1, axis2=2) + (q.mean**2).sum(axis=1)
        of_means = 0.5 * (length / p.mean_variance - d + d * np.log(p.mean_variance))
        of_means += 0.5 * np.linalg.slogdet(q.precision)[1]
        trace = np.trace(q.mean_precision, axis1=1, axis2=2)
        of_precisions = _log_constant(q.degrees, np.linalg.slogdet(q.scatter)[1], d)
        of_precisions -= _log_constant(np.float64(p.degrees), d * np.log(p.scale), d)
        of_precisions += 0.5 * ((q.degrees - p.degrees) * q.log_det_precision - q.degrees * d + p.scale * trace)
        return -float(of_weights + of_means.sum() + of_precisions.sum())


@dataclass
class Held:
    """The guard, which counts the parts of a step whose noise it reduced. Without a guard all noise passes."""

    guard: bool
    count: int = 0

    def back(self, share, sure, noise) -> np.ndarray:
        if not self.guard:
            return np.ones(len(noise if isinstance(noise, np.ndarray) else noise[1]))
        shares = share(sure, noise)
        self.count += int((shares < 1.0).sum())
        return shares


def _share_of_wishart(sure: tuple[np.ndarray, np.ndarray], noise: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Largest share of the noise that keeps the scatters, and the degrees beyond D - 1, in their domains."""
    return np.minimum(share_of_matrices(sure[0], noise[0]), share_of_numbers(sure[1], noise[1]))


def _log_constant(degrees: np.ndarray, log_det_scatter: np.ndarray | float, d: int) -> np.ndarray:
    """Log normalising constant of a Wishart density."""
    return 0.5 * degrees * (log_det_scatter - d * np.log(2.0)) - multigammaln(0.5 * degrees, d)
