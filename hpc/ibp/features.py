"""One draw of an Indian buffet process as a distribution over rows (docs/math.md 7.10).

Weights, loadings and features without owners are integrated out. Given the features Z of the N training rows, a new row
has the k-th of them with probability m_k / (N + c), and kappa ~ Poisson(alpha c / (N + c)) own features that no other
row has; then x ~ N(z A, s V), cells independent, where V is diagonal with the noise variances and

    A = M Z'X,    M = (Z'Z + I / ratio)^-1,    s = 1 + z M z' + kappa ratio

where ratio is the variance of a loading over the noise's. The sum over z runs over all 2^K for up to ENUMERATED
features, else over those near the best one found: see `Features.near`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import gammaln

from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.state import Hyper

ENUMERATED = 10  # most features whose combinations are all summed over
FREE = 12  # most free features of a row beyond ENUMERATED: the least certain ones, in all combinations
SURE = 20.0  # nats lost by a flip: such features stay as in the row's best combination
MOST_OWN = 64  # most own features of a row
NEGLIGIBLE = 37.0  # nats below the sum: terms smaller than this are left out, below float64's last bit
CELLS = 1 << 18  # rows times combinations worked on at a time


@dataclass
class Found:
    """Combinations of features of several rows, with their log probabilities.

    rows (n,): row numbers. base (n, K) bool: features in every combination. free (n, u): features that vary;
    combination p has free[:, j] where bit j of p is set. residual, spread (n, P): squared residual in units of the
    noise, and s without own features. terms: for each number of own features, log p(x, z, kappa) (m, P) of the rows
    `at` (m,) for which it is not negligible. neglected (n,): approximate share of p(x) in other combinations.
    """

    rows: np.ndarray
    base: np.ndarray
    free: np.ndarray
    residual: np.ndarray
    spread: np.ndarray
    terms: list[tuple[int, np.ndarray, np.ndarray]]
    neglected: np.ndarray

    def log_density(self) -> np.ndarray:
        """Log of the sum of all terms, (n,)."""
        total = np.full(len(self.rows), -np.inf)
        for _, at, log in self.terms:
            total[at] = np.logaddexp(total[at], _log_sum(log))
        return total

    def weights(self, log_density: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield (own features, rows at, probability (m, P)), given the rows' cells."""
        for n_own, at, log in self.terms:
            yield n_own, at, np.exp(log - log_density[at][:, None])

    def pairs(self, probability: np.ndarray) -> np.ndarray:
        """Sum `probability` (m, P) over combinations with both features of each pair in `free`, (m, u, u)."""
        u = self.free.shape[1]
        bits = (np.arange(1 << u)[:, None] >> np.arange(u) & 1).astype(np.float64)
        both = (bits[:, :, None] * bits[:, None, :]).reshape(len(bits), u * u)
        return np.einsum("np,pq->nq", probability, both).reshape(len(probability), u, u)

    def shares(self, probability: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Sum `probability` (m, P), of rows `at` (m,), over combinations with each feature, (m, K)."""
        u = self.free.shape[1]
        bits = (np.arange(1 << u)[:, None] >> np.arange(u) & 1).astype(np.float64)
        shares = self.base[at] * probability.sum(axis=1)[:, None]
        np.put_along_axis(shares, self.free[at], np.einsum("np,pu->nu", probability, bits), axis=1)
        return shares


@dataclass(frozen=True)
class Features:
    """The features of one draw, as the distribution of a row.

    means: A (K, D). spread: M (K, K). probability (K,) of each feature. own: mean number of new features. noise_sd
    (D,), ratio: see the module.
    """

    means: np.ndarray
    spread: np.ndarray
    probability: np.ndarray
    own: float
    noise_sd: np.ndarray
    ratio: float

    @classmethod
    def of(cls, together: np.ndarray, cells: np.ndarray, n_rows: int, hyper: Hyper) -> Features:
        """Build from sums over the training rows. together (K, K): number of rows with both features. cells (K, D):
        sums over the rows with each feature."""
        k, ratio = len(together), update.prior_variance(hyper)
        spread = np.zeros((0, 0))
        if k:
            spread = cho_solve(cho_factor(together + np.eye(k) / ratio), np.eye(k))
            spread = 0.5 * (spread + spread.T)
        means = np.einsum("kl,ld->kd", spread, cells)
        rows = n_rows + hyper.c
        return cls(means, spread, np.diag(together) / rows, hyper.alpha * hyper.c / rows, hyper.noise_sd, ratio)

    # --- as one message -----------------------------------------------------------------------------------------------

    def packed(self) -> np.ndarray:
        parts = (self.means, self.spread, self.probability, self.noise_sd, np.array([self.own, self.ratio]))
        return np.concatenate([part.ravel() for part in parts])

    @classmethod
    def unpacked(cls, message: np.ndarray, k: int, d: int) -> Features:
        cuts = np.cumsum([k * d, k * k, k, d])
        means, spread, probability, noise, rest = np.split(message, cuts)
        return cls(means.reshape(k, d), spread.reshape(k, k), probability, float(rest[0]), noise, float(rest[1]))

    # --- sums over combinations ---------------------------------------------------------------------------------------

    def found(self, x: np.ndarray) -> Iterator[Found]:
        """Yield the combinations of rows with cells x (n, D), NaN if missing, in parts; a row's do not depend on
        others."""
        k = len(self.probability)
        step = max(1, CELLS >> min(k, FREE))
        for start in range(0, len(x), step):
            part = x[start : start + step]
            problem = _Problem.of(self, part)
            rows, none = np.arange(start, start + len(part)), np.zeros(len(part))
            if k <= ENUMERATED:
                base, free = np.zeros((len(part), k), bool), np.tile(np.arange(k), (len(part), 1))
                yield self._summed(problem, rows, base, free, none)
                continue
            best, order, unsure, gain = self.near(problem)
            for u in range(0, FREE + 1, 2):
                at = np.flatnonzero((unsure <= u) & (unsure > u - 2) if u < FREE else unsure > u - 2)
                if len(at):
                    free, rest = order[at, :u], order[at, u:]
                    neglected = np.exp(np.minimum(np.take_along_axis(gain[at], rest, axis=1), 0.0)).sum(axis=1)
                    base = best[at].copy()
                    np.put_along_axis(base, free, False, axis=1)
                    yield self._summed(problem.take(at), rows[at], base, free, neglected)

    def near(self, p: _Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Find the best combination of each row's features by single flips, starting from none and from all of them,
        with the number of own features that then fits the row best.

        Returns the combination, bool (n, K); the features, least certain first, (n, K); the number of uncertain ones,
        (n,): those on which the two searches differ, or whose flip costs less than SURE; and the gain of every flip,
        (n, K) nats.
        """
        best, differ, gain = self._best(p, np.zeros(len(p.square)))
        n_own = self._own_features(p, best)
        far = np.flatnonzero(n_own)
        if len(far):  # own features that explain the row change the cost of flips
            best[far], differ[far], gain[far] = self._best(p.take(far), n_own[far] * self.ratio)
        unsure = np.where(differ, np.inf, gain)
        return best, np.argsort(-unsure, axis=1, kind="stable"), (unsure > -SURE).sum(axis=1), gain

    def _best(self, p: _Problem, extra: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the better end of two climbs, where the two differ, and the gains of flips there; extra (n,): added to
        s."""
        first, second = (self._climbed(p, np.full(p.left.shape, start), extra) for start in (False, True))
        better = (second[1] > first[1])[:, None]
        return np.where(better, second[0], first[0]), first[0] != second[0], np.where(better, second[2], first[2])

    def _own_features(self, p: _Problem, z: np.ndarray) -> np.ndarray:
        """Most probable number of own features given the others z, (n,) int64."""
        if self.own <= 0.0:
            return np.zeros(len(z), np.int64)
        has, n_own = z.astype(np.float64), np.arange(MOST_OWN + 1)
        left = p.left - np.einsum("nkl,nl->nk", p.gram, has)
        square = p.square - ((p.left + left) * has).sum(axis=1)
        s = 1.0 + (np.einsum("kl,nl->nk", self.spread, has) * has).sum(axis=1)[:, None] + n_own * self.ratio
        log = n_own * np.log(self.own) - gammaln(n_own + 1.0) - 0.5 * p.n_seen[:, None] * np.log(s)
        return (log - 0.5 * square[:, None] / s).argmax(axis=1)

    def _climbed(self, p: _Problem, z: np.ndarray, extra: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Make the best flip of each row until none gains; return features, log p(x, z) up to a constant, gains of
        flips."""
        everyone, half = np.arange(len(z)), 0.5 * p.n_seen[:, None]
        odds, squares = np.log(self.probability) - np.log1p(-self.probability), np.diagonal(p.gram, axis1=1, axis2=2)
        for _ in range(10 * z.shape[1]):
            has = z.astype(np.float64)
            left = p.left - np.einsum("nkl,nl->nk", p.gram, has)
            square = (p.square - ((p.left + left) * has).sum(axis=1))[:, None]
            lean = np.einsum("kl,nl->nk", self.spread, has)
            spread, sign = (1.0 + extra + (lean * has).sum(axis=1))[:, None], 1.0 - 2.0 * has
            then, wide = square - sign * 2.0 * left + squares, spread + sign * 2.0 * lean + np.diag(self.spread)
            gain = sign * odds - half * np.log(wide / spread) - 0.5 * (then / wide - square / spread)
            flip = gain.argmax(axis=1)
            gains = gain[everyone, flip] > 1e-9
            if not gains.any():
                break
            z[everyone[gains], flip[gains]] ^= True
        value = (has * odds).sum(axis=1) - (half * np.log(spread) + 0.5 * square / spread)[:, 0]
        return z, value, gain

    def _summed(
        self, p: _Problem, rows: np.ndarray, base: np.ndarray, free: np.ndarray, neglected: np.ndarray
    ) -> Found:
        has, n = base.astype(np.float64), len(rows)
        left = p.left - np.einsum("nkl,nl->nk", p.gram, has)
        square = p.square - ((p.left + left) * has).sum(axis=1)
        lean = np.einsum("kl,nl->nk", self.spread, has)
        pick = np.arange(n)[:, None]
        gram = p.gram[np.arange(n)[:, None, None] if len(p.gram) > 1 else 0, free[:, :, None], free[:, None, :]]
        spread = self.spread[free[:, :, None], free[:, None, :]]
        odds = np.log(self.probability) - np.log1p(-self.probability)
        residual = square[:, None] + _forms(-2.0 * left[pick, free], gram)
        wide = (1.0 + (lean * has).sum(axis=1))[:, None] + _forms(2.0 * lean[pick, free], spread)
        prior = (np.log1p(-self.probability).sum() + (has * odds).sum(axis=1))[:, None] + _forms(odds[free], None)
        residual = np.maximum(residual, 0.0)
        constant = prior - self.own - p.constant[:, None]
        half = 0.5 * p.n_seen[:, None]
        terms = [(0, np.arange(n), constant - half * np.log(wide) - 0.5 * residual / wide)]
        if self.own > 0.0:
            least, most = (wide.min(axis=1)[:, None], wide.max(axis=1)[:, None])
            n_own = np.arange(1, MOST_OWN + 1)
            log_own = n_own * np.log(self.own) - gammaln(n_own + 1.0)
            bound = log_own - half * np.log(least + n_own * self.ratio)
            bound = bound - 0.5 * residual.min(axis=1)[:, None] / (most + n_own * self.ratio) - p.constant[:, None]
            needed = bound - self.own > _log_sum(terms[0][2])[:, None] - NEGLIGIBLE
            for kappa in n_own[needed.any(axis=0)].tolist():
                at = np.flatnonzero(needed[:, kappa - 1])
                s = wide[at] + kappa * self.ratio
                log = constant[at] + log_own[kappa - 1] - half[at] * np.log(s) - 0.5 * residual[at] / s
                terms.append((kappa, at, log))
        return Found(rows, base, free, residual, wide, terms, neglected)

    def log_density(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density of the observed cells of each row, (n,), and the approximate share of the density that the sum
        left out, (n,)."""
        density, neglected = np.empty(len(x)), np.empty(len(x))
        for part in self.found(x):
            density[part.rows], neglected[part.rows] = part.log_density(), part.neglected
        return density, neglected


@dataclass
class _Problem:
    """Products of rows with the means, in units of the noise, over the observed cells. left (n, K); gram (n, K, K), or
    (1, K, K) if no cell is missing; square, n_seen, constant (n,): squared length, number of cells, log normalising
    constant of the normal density."""

    left: np.ndarray
    gram: np.ndarray
    square: np.ndarray
    n_seen: np.ndarray
    constant: np.ndarray

    @classmethod
    def of(cls, law: Features, x: np.ndarray) -> _Problem:
        seen = ~np.isnan(x)
        y = np.where(seen, x / law.noise_sd, 0.0)
        w = law.means / law.noise_sd
        if seen.all():
            gram = np.einsum("kd,ld->kl", w, w)[None]
        else:
            gram = np.einsum("nd,kld->nkl", seen.astype(np.float64), w[:, None] * w[None])
        n_seen = seen.sum(axis=1).astype(np.float64)
        constant = 0.5 * n_seen * np.log(2.0 * np.pi) + np.where(seen, np.log(law.noise_sd), 0.0).sum(axis=1)
        return cls(np.einsum("nd,kd->nk", y, w), gram, np.einsum("nd,nd->n", y, y), n_seen, constant)

    def take(self, at: np.ndarray) -> _Problem:
        gram = self.gram if len(self.gram) == 1 else self.gram[at]
        return _Problem(self.left[at], gram, self.square[at], self.n_seen[at], self.constant[at])


def _forms(linear: np.ndarray, square: np.ndarray | None) -> np.ndarray:
    """linear . p + p square p' for all 0/1 patterns p, (n, 2^u); linear (n, u), square (n, u, u) symmetric, or None."""
    n, u = linear.shape
    out = np.zeros((n, 1 << u))
    for j in range(u):
        here = out[:, : 1 << j] + linear[:, j : j + 1]
        if square is not None:
            cross = np.zeros((n, 1))
            for i in range(j):
                cross = np.concatenate([cross, cross + square[:, i, j : j + 1]], axis=1)
            here = here + square[:, j, j : j + 1] + 2.0 * cross
        out[:, 1 << j : 2 << j] = here
    return out


def _log_sum(log: np.ndarray) -> np.ndarray:
    most = log.max(axis=1)
    return most + np.log(np.exp(log - most[:, None]).sum(axis=1))
