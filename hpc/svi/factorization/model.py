"""Factorization of ratings with biases, and its variational approximation (docs/math.md 8.8).

    y_ij ~ N(mu + u_i' v_j + b_i + c_j, s),   a_i = (u_i, b_i) ~ N(m, S) of users,   g_j = (v_j, c_j) ~ N(n, R) of items

without biases a_i = u_i and g_j = v_j. The approximation is q(a_1) ... q(g_1) ..., Gaussians; s, m, S, n and R are
fixed, or learned by raising the bound. Users are rows: q(a_i) is solved from the items within a pass. First example of
Paisley, Fazelnia & Barr, with biases, and with the parameters that they fix learned.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from mpibayes.hpc.svi.factorization.ratings import Numbers, Ratings
from mpibayes.hpc.svi.factorization.triangles import in_both_halves, packed, unpacked
from mpibayes.hpc.svi.step import Step
from mpibayes.kernels.svi.factors import Users, rows, widths

LOG_TWO_PI = np.log(2.0 * np.pi)
LEAST_VARIANCE = 1e-12
SPREAD = 0.3  # standard deviation of the items' initial means, relative to that of their prior


@dataclass(frozen=True)
class State:
    """q of the items, and parameters shared by all users and items. natural (J, T + D): lower triangles of the
    precisions, and the precisions times the means. variance (1,): of a rating. center (1,): mu. user_mean (D,),
    user_covariance (D, D), item_mean, item_covariance: the priors. held (1,): number of items whose noise the guard
    held back in the last step."""

    natural: np.ndarray
    variance: np.ndarray
    center: np.ndarray
    user_mean: np.ndarray
    user_covariance: np.ndarray
    item_mean: np.ndarray
    item_covariance: np.ndarray
    held: np.ndarray

    def sound(self) -> bool:
        """True if every parameter lies in its domain."""
        d = len(self.user_mean)
        t = d * (d + 1) // 2
        if not (np.isfinite(self.natural).all() and self.variance[0] > 0):
            return False
        return bool(np.linalg.eigvalsh(unpacked(self.natural[:, :t])).min() > 0)


@dataclass(frozen=True)
class Moments:
    """Moments of the items under q: mean (J, D), covariance (J, T), and log determinants of the precisions (J,)."""

    mean: np.ndarray
    covariance: np.ndarray
    log_det: np.ndarray

    @property
    def second(self) -> np.ndarray:
        """Second moments E gg', (J, T)."""
        i, j = np.tril_indices(self.mean.shape[1])
        return self.covariance + self.mean[:, i] * self.mean[:, j]


@dataclass(frozen=True)
class Fixed:
    """Prior variances: initial values if they are learned. variance: of a rating. spread: of every factor of a user and
    an item. of_bias: of every bias; None for the same."""

    variance: float
    spread: float
    of_bias: float | None = None

    @classmethod
    def of_shares(cls, variance: float, rank: int, biased: bool) -> Fixed:
        """Variances for ratings of this variance: half of it goes to the error, and the other half equally to the parts
        of a rating, the product of the factors and two biases."""
        share = 0.5 * variance / (3 if biased else 1)
        return cls(0.5 * variance, float(np.sqrt(share / rank)), share)


@dataclass
class Factorization:
    """The model of `n_items` items and vectors of `rank` numbers; see the module. center: mu. rated: mask of the items
    with a training rating."""

    rank: int
    biased: bool
    n_items: int
    fixed: Fixed
    learn: bool
    center: float
    rated: np.ndarray
    _kernel: Users = field(init=False, repr=False)
    _solved: tuple[State, Moments, np.ndarray] | None = field(default=None, init=False, repr=False)

    def __post_init__(self):
        self._kernel = Users(self.d, self.biased)

    @property
    def d(self) -> int:
        """Length of a vector, including the bias."""
        return self.rank + self.biased

    @property
    def t(self) -> int:
        return self.d * (self.d + 1) // 2

    @property
    def form(self) -> tuple[int, int]:
        """Shape of the sums over users: one row per item, and two for quantities that belong to no single item."""
        return self.n_items + 2, sum(widths(self.d, self.biased)[1])

    @property
    def spreads(self) -> np.ndarray:
        """Prior variances of the elements of a vector, (D,)."""
        of_bias = self.fixed.spread if self.fixed.of_bias is None else self.fixed.of_bias
        return np.array([self.fixed.spread] * self.rank + [of_bias] * self.biased)

    def first(self) -> State:
        """The prior as a state."""
        d, covariance = self.d, np.diag(self.spreads)
        natural = np.tile(natural_of(np.zeros(d), covariance), (self.n_items, 1))
        return State(
            natural, np.array([self.fixed.variance]), np.array([self.center]), np.zeros(d), covariance,
            np.zeros(d), covariance, np.zeros(1),
        )  # fmt: skip

    def seeded(self, normals: np.ndarray) -> State:
        """Initial state: items' means are SPREAD times `normals` (J, rank) in standard deviations of the prior, their
        variances a tenth of the prior's."""
        q, natural = self.first(), np.zeros((self.n_items, self.t + self.d))
        spread = self.fixed.spread
        natural[:, : self.t] = packed(np.diag(10.0 / self.spreads))
        natural[:, self.t : self.t + self.rank] = 10.0 / spread * SPREAD * np.sqrt(spread) * normals
        return replace(q, natural=natural)

    # --- items --------------------------------------------------------------------------------------------------------

    def moments(self, q: State) -> Moments:
        """Moments of the items under q."""
        return self._of(q)[0]

    def _of(self, q: State) -> tuple[Moments, np.ndarray]:
        """Moments of the items, and the table that users are solved against (kernels/svi/factors.pyx)."""
        if self._solved is None or self._solved[0] is not q:
            both, log_det = self._kernel.solved(q.natural)
            moments = Moments(np.ascontiguousarray(both[:, : self.d]), both[:, self.d :], log_det)
            self._solved = q, moments, self._table(moments)
        return self._solved[1:]

    def _table(self, m: Moments) -> np.ndarray:
        once, times = widths(self.d, self.biased)[0]
        d, t, second = self.d, self.t, m.second
        table = rows(self.n_items, once + times)
        table[:, :t] = second
        table[:, once : once + d] = m.mean
        if self.biased:  # x = (v, 1): E xx' has E v' in its last row, and E c^2 instead of 1
            table[:, t - d : t - 1] = m.mean[:, :-1]
            table[:, t : t + d - 1] = second[:, t - d : t - 1]
            table[:, t + d - 1] = m.mean[:, -1]
        return table

    # --- users --------------------------------------------------------------------------------------------------------

    def accumulate(
        self, q: State, x: Ratings, rows: np.ndarray | None, numbers: Numbers | None, sums: np.ndarray
    ) -> float:
        """Solve users under q, and add them to `sums` (1 or 2, *form): sums over ratings, and over ratings times their
        random numbers. Returns the users' part of the bound with the best q(a_i)."""
        d, t, prior = self.d, self.t, natural_of(q.user_mean, q.user_covariance)
        noisy = {} if numbers is None else numbers.arguments(sums[1])
        old = x.stepped
        if old is not None:
            noisy |= {"old": old.now, "fresh": old.next, "rate": old.rate}
        totals, held, broken = self._kernel(
            x.starts, rows, x.columns, x.values, self._of(q)[1], prior, q.center[0], 1.0 / q.variance[0], sums[0],
            **noisy,
        )  # fmt: skip
        sums[0, -2, :t] += totals[:t]
        left, bound, ratings, users = totals[t + d :]
        sums[0, -1, : d + 5] += [*totals[t : t + d], left, ratings, users, held, broken]
        constant = 0.5 * users * (-np.linalg.slogdet(q.user_covariance)[1] - prior[t:] @ q.user_mean)
        return float(bound + constant - 0.5 * ratings * (LOG_TWO_PI + np.log(q.variance[0])))

    def users(self, q: State, x: Ratings, which: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Means (m, D) and covariances (m, T) of users under q."""
        prior = natural_of(q.user_mean, q.user_covariance)
        moments = np.empty((len(x) if which is None else len(which), self.t + self.d))
        table, sharpness = self._of(q)[1], 1.0 / q.variance[0]
        self._kernel(x.starts, which, x.columns, x.values, table, prior, q.center[0], sharpness, None, moments)
        return moments[:, : self.d], moments[:, self.d :]

    # --- a step -------------------------------------------------------------------------------------------------------

    def own_deviation(self, sums: np.ndarray, effective: float) -> np.ndarray:
        """Noise to add to each item's sums when its effective batch is `effective` of its ratings, about the mean of
        the item's random numbers. sums (2, *form); the random numbers are standard normals."""
        total, weighted = sums
        at = self.t - 1 if self.biased else self.t
        count = np.maximum(total[:, at], 1.0)
        spread = np.sqrt(np.maximum(count / effective - 1.0, 0.0))
        return spread[:, None] * (weighted - (weighted[:, at] / count)[:, None] * total)

    def step(self, q: State, total: np.ndarray, noise: np.ndarray | None, step: Step) -> tuple[State, int]:
        """Return the state after a step, and the number of parts held back: if learned, the variance and the users'
        prior, then q of the items, then their prior if learned. Nothing is learned if the guard has just acted.

        total: the batch's sums. noise: noise to add to them, or None. Each user and each item is a part.
        """
        t, users, held, broken = self.t, *total[-1, self.d + 2 : self.d + 5]
        # a precision that the guard has cut is not informative; a batch may have no ratings
        learn = self.learn and not held and not q.held[0] and users > 0
        if learn:
            q = self._learned_of_users(q, total, step)
        scale, sharpness = step.scale, 1.0 / q.variance[0]
        natural = step.to(q.natural, natural_of(q.item_mean, q.item_covariance) + scale * sharpness * self._wide(total))
        if learn:
            q, natural = self._learned_of_items(q, natural, step)
        held_items = 0
        if noise is not None:
            more = step.rate * scale * sharpness * self._wide(noise)
            if step.guard:
                share = self._kernel.shares(natural[:, :t].copy(), more[:, :t].copy())
                held_items = (share < 1.0).sum()
                more *= share[:, None]
            natural = natural + more
        natural = np.full_like(natural, np.nan) if broken else natural
        return replace(q, natural=natural, held=np.array([held_items], np.float64)), int(held + held_items)

    def _wide(self, total: np.ndarray) -> np.ndarray:
        """Extract the items' G and h from sums, (J, T + D)."""
        once = widths(self.d, self.biased)[1][0]
        of_items = total[:-2]
        return np.concatenate([of_items[:, : self.t], of_items[:, once : once + self.d]], axis=1)

    def _learned_of_users(self, q: State, total: np.ndarray, step: Step) -> State:
        """Return the state with the variance and the users' prior that maximise the bound, or a step towards them: from
        users as solved without noise."""
        d, t = self.d, self.t
        left, ratings, users = np.maximum(total[-1, d : d + 3], [0.0, 1.0, 1.0])
        variance = np.maximum(step.to(q.variance, np.array([left / ratings])), LEAST_VARIANCE)
        first, second = total[-1, :d] / users, unpacked(total[-2, :t]) / users
        mean, covariance = _prior(q.user_mean, q.user_covariance, first, second, step)
        return replace(q, variance=variance, user_mean=mean, user_covariance=covariance)

    def _learned_of_items(self, q: State, natural: np.ndarray, step: Step) -> tuple[State, np.ndarray]:
        """Return the state with the items' prior likewise, from items without noise; and the items' parameters, with
        unrated items at the prior."""
        both = self._kernel.solved(natural)[0]
        m = Moments(both[self.rated, : self.d], both[self.rated, self.d :], np.zeros(0))
        first, second = m.mean.mean(axis=0), unpacked(m.second.mean(axis=0))
        mean, covariance = _prior(q.item_mean, q.item_covariance, first, second, step)
        natural[~self.rated] = natural_of(mean, covariance)
        return replace(q, item_mean=mean, item_covariance=covariance), natural

    # --- the bound ----------------------------------------------------------------------------------------------------

    def bound(self, q: State) -> float:
        """The bound without the users' part: minus the divergences of q(g_j) from the prior."""
        m, d = self.moments(q), self.d
        precision = np.linalg.inv(q.item_covariance)
        apart = m.mean - q.item_mean
        square = np.einsum("jd,de,je->j", apart, precision, apart)
        trace = m.covariance @ (packed(precision) * in_both_halves(d))
        log_det = np.linalg.slogdet(q.item_covariance)[1]
        return -0.5 * float((square + trace - d + log_det + m.log_det).sum())


def _prior(mean, covariance, first, second, step: Step) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance after a step towards first and second moments (D,), (D, D)."""
    first, second = step.to(mean, first), step.to(covariance + np.outer(mean, mean), second)
    spread = second - np.outer(first, first)
    return first, 0.5 * (spread + spread.T)


def natural_of(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Natural parameters: lower triangle of the precision, and the precision times the mean, (T + D,)."""
    precision = np.linalg.inv(covariance)
    precision = 0.5 * (precision + precision.T)
    return np.concatenate([packed(precision), precision @ mean])
