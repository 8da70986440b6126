"""Outcome of a mixture as part of its chain: coefficients of the clusters and global coefficients (docs/math.md 2.16).

State between cycles: theta of every cluster, beta, and the law's learned parameters. In a sweep the likelihood of a
row's outcome is a factor of its scores; a new cluster takes one of a few coefficient vectors drawn from the law.
Between sweeps all coefficients are drawn jointly by Hamiltonian Monte Carlo, in a metric that depends on the labels and
the data alone, not on the coefficients: on all rows, or on those that `Fireflies` light.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.baseline import Baseline
from mpibayes.hpc.outcome.law import Law, of_numbers
from mpibayes.hpc.outcome.metric import Metric, information
from mpibayes.hpc.outcome.state import State
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator
from mpibayes.kernels.mixture import response as kernels

if TYPE_CHECKING:
    from mpibayes.hpc.outcome.fireflies import Fireflies

LEAPFROGS = 6
LONG, SHORT = 0.4, 0.05  # step sizes in spherical coordinates; short steps escape
ESCAPE = 0.05  # share of trajectories of short steps
JITTER = 0.2
SCALE_STEPS = 2  # random-walk steps of log s per cycle
ASCENT, ENOUGH = 40, 1e-3  # most steps to the first coefficients, and the gain in nats below which they end


class Outcome:
    """Coefficients of one chain. Every public method but `response` and `take` is collective.

    answers: of this rank's shards, in order. entry: cycle after which labels depend on the outcome. steps: updates of
    all coefficients in a cycle. fireflies: None without Firefly Monte Carlo.
    """

    def __init__(
        self,
        comm: Communicator,
        shards: Sequence[Shard],
        answers: Sequence[Answers],
        n_shards: int,
        law: Law,
        seed: int,
        chain: int,
        entry: int = 0,
        steps: int = 1,
    ):
        self.comm, self.shards, self.answers, self.n_shards = comm, shards, answers, n_shards
        self.law, self.seed, self.chain, self.entry = law, seed, chain, entry
        self.steps = steps
        self.fireflies: Fireflies | None = None
        self.theta, self.beta = law.mean[None].copy(), np.zeros(len(law.covariate_sd))
        self.accepted = np.nan  # probability of the last trajectory, on root
        self.log_likelihood = np.nan  # on root
        self._by_outcome = [_times_root(a) for a in answers] if law.likelihood.weighs_rows else []
        self._offsets: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._new = np.zeros((law.p, 0))
        self._n_idle = 0  # of the rows that n and _log_base leave out
        n_parts = 0 if law.baseline is None else len(law.baseline.starts)
        self._events = np.zeros(n_parts)  # of these rows in each part of the time axis, on root
        self._exposed: tuple[Baseline, list[np.ndarray]] | None = (
            None  # log H of the rows of each shard under a baseline
        )
        self._count([a.y for a in answers])

    def _count(self, y: Sequence[np.ndarray]) -> None:
        """Count the known of these outcomes of this rank's shards, and sum the terms that the kernels leave out."""
        law, seen = self.law, [of[~np.isnan(of)] for of in y]
        parts = [np.array([law.likelihood.log_base(of, law.nu, 1.0), float(len(of))]) for of in seen]
        sums = shard_sum(self.comm, parts, (2,), self.n_shards)
        self.comm.broadcast(sums)
        self._log_base, self.n = sums.tolist()

    # --- in the sweeps ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Prepare the sweeps of a cycle. Not collective."""
        self._new = np.zeros((self.law.p, 0))
        each = zip(self.shards, self.answers, self._log_exposed())
        self._offsets = {shard.index: self.offsets(a, log_h) for shard, a, log_h in each}

    def offsets(self, a: Answers, log_h: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the terms of linear predictors that are the same in all clusters, see `kernels.response.offsets`.
        log_h: log H, if it is known."""
        offset, odds = kernels.offsets(a.w, self.beta, a.y, self.law.n_eta)
        if self.law.baseline is not None:
            offset += self.law.baseline.log_cumulative(a.seen) if log_h is None else log_h
        return offset, odds

    @property
    def passes(self) -> int:
        """Number of gradients in a draw of all coefficients."""
        steps = 0 if self.fireflies is not None else self.steps * (1 + LEAPFROGS)
        return max(1, steps) + (SCALE_STEPS if self.law.learns_scale else 0)

    def response(self, shard: int, clusters: np.ndarray, slots: np.ndarray) -> kernels.Response:
        """Return the outcome of a shard's rows for its sweeps, under the coefficients of `clusters`, with those of
        `slots` in the first slots of the shard's tail."""
        a = next(a for s, a in zip(self.shards, self.answers) if s.index == shard)
        law, theta = self.law, self.theta
        of = a.y, a.u, *self._offsets[shard], theta[clusters].T, theta[slots].T, law.nu, law.scale
        return kernels.Response(law.likelihood.code, *of)

    def renew(self, response: kernels.Response, first: int, key: Mapping[str, int], sweep: int) -> None:
        """Draw proposed coefficients of new clusters in a sweep for each row of a shard. first: number of its first
        row."""
        law, n = self.law, len(response)
        rows = first + np.arange(n, dtype=np.int64)
        form = n, law.n_fresh, law.p
        ids = np.arange(first * law.n_fresh * law.p, (first + n) * law.n_fresh * law.p)  # by row, vector, coefficient
        normals = Stream(purpose=Purpose.OUTCOME_FRESH, sub=sweep, **key).normals(ids).reshape(form)
        pick = Stream(purpose=Purpose.OUTCOME_PICK, sub=sweep, **key).uniforms(rows)
        normals *= law.sd
        normals += law.mean
        response.renew(normals, pick)

    def take(self, response: kernels.Response, occupied: np.ndarray) -> None:
        """Keep the coefficients of the clusters that remain in a tail."""
        self._new = response.slots(occupied)

    # --- between the sweeps -------------------------------------------------------------------------------------------

    def follow(self, kept: np.ndarray, n_opened: int, root: int) -> None:
        """Set the clusters' coefficients after a cycle: of kept clusters, then of the tail's, held by rank `root`."""
        new = np.ascontiguousarray(self._new.T) if self.comm.rank == root else np.zeros((n_opened, self.law.p))
        self.comm.broadcast(new, root)
        self.theta = np.concatenate([self.theta[kept], new])

    def count(self, z: Sequence[np.ndarray], n_idle: int) -> None:
        """Leave idle rows, whose labels z are negative, out of the outcome. n_idle: their number on all ranks."""
        if n_idle or self._n_idle:
            self._count([a.y[labels >= 0] for labels, a in zip(z, self.answers)])
        self._n_idle = n_idle

    def forget(self, n_clusters: int) -> None:
        """Set the clusters' coefficients to their prior mean. Not collective."""
        self.theta = np.tile(self.law.mean, (n_clusters, 1))

    def start(self, z: Sequence[np.ndarray], n_clusters: int) -> None:
        """Set all coefficients near their mode given the labels z of this rank's shards."""
        self.forget(n_clusters)
        metric, size, best, step = self._metric(z), -np.inf, None, 1.0
        for _ in range(ASCENT):
            value, slopes = self._value_and_slopes(z)
            go = None
            if self.comm.rank == 0:
                if value > size:
                    gain, size = value - size, value
                    best = self.theta, self.beta, metric.colour(*metric.whiten(*slopes))
                    go = None if gain < ENOUGH and step == 1.0 else min(1.0, 2.0 * step)
                else:
                    go = 0.5 * step if step > 1e-6 else None
                theta, beta, (a, b) = best
                self.theta, self.beta = (theta + (go or 0.0) * a, beta + (go or 0.0) * b)
            go = self.comm.share(go)
            self.share()
            if go is None:
                break
            step = go

    def draw(self, z: Sequence[np.ndarray], cycle: int) -> None:
        """Draw the law's mean and sd, all coefficients, and the scale, given the labels z of this rank's shards."""
        stream = generator(self.seed, Purpose.OUTCOME, cycle, 0, self.chain)
        if self.comm.rank == 0:
            self.law = self.law.drawn(self.theta, stream)
        if self.law.baseline is not None:
            self._draw_baseline(z, stream)
        if self.fireflies is not None and self.fireflies.points is not None:
            self.fireflies.draw(z, cycle, stream)
            value = self._value_and_slopes(z)[0]
        else:
            metric = self._metric(z)
            for _ in range(self.steps):
                value = self.trajectory(lambda: self._value_and_slopes(z), metric, stream)
        if self.law.learns_scale:
            value = self._walk_scale(z, stream, value)
        self.share()
        if self.fireflies is not None and self.fireflies.points is None and cycle >= self.fireflies.after:
            self.fireflies.freeze(z)
        self._rate(value)

    def rate(self, z: Sequence[np.ndarray]) -> None:
        """Compute the log likelihood anew, after a change of the labels z of this rank's shards."""
        self._rate(self._value_and_slopes(z)[0])

    def _rate(self, value: float) -> None:
        """Keep the log likelihood, on root. value: log density of the coefficients. Not collective."""
        if self.comm.rank == 0:
            rest = self.n * math.log(self.law.scale) if self.law.likelihood.has_scale else 0.0
            self.log_likelihood = value - self.law.log_prior(self.theta, self.beta) + self._log_base - rest
            if self.law.baseline is not None:
                self.log_likelihood += self.law.baseline.log_rest(self._events)

    def log_joint(self) -> float:
        """Return the log density of outcome and coefficients given the labels, on root. Not collective."""
        learned = self.law.log_prior_of_scale() if self.law.learns_scale else 0.0
        learned += self.law.baseline.log_prior() if self.law.baseline is not None else 0.0
        return self.log_likelihood + self.law.log_prior(self.theta, self.beta) + learned

    @property
    def now(self) -> State:
        """Present coefficients."""
        return State(self.law, self.theta, self.beta)

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays for checkpoints and kept draws."""
        return {"theta": self.theta.copy(), "beta": self.beta.copy(), "law": self.law.numbers}

    def restore(self, theta: np.ndarray, beta: np.ndarray, law: np.ndarray) -> None:
        """Set the state. Not collective."""
        self.theta, self.beta = np.array(theta, np.float64), np.array(beta, np.float64)
        self.law = of_numbers(self.law, law)

    # --- times to an event --------------------------------------------------------------------------------------------

    def _log_exposed(self) -> Sequence[np.ndarray | None]:
        """Return log H of the rows of each of this rank's shards; None without a baseline. Not collective."""
        now = self.law.baseline
        if now is None:
            return [None] * len(self.answers)
        if self._exposed is None or not np.array_equal(now.hazards, self._exposed[0].hazards):
            self._exposed = now, [now.log_cumulative(a.seen) for a in self.answers]
        return self._exposed[1]

    def exposures(self, z: Sequence[np.ndarray], k: int) -> np.ndarray:
        """Return the sum of H over the rows of each of the clusters z, (K,), on root."""
        parts = []
        for labels, a, log_h in zip(z, self.answers, self._log_exposed()):
            rows = np.flatnonzero((labels >= 0) & ~np.isnan(a.y))
            parts.append(np.bincount(labels[rows], np.exp(log_h[rows]), k))
        return shard_sum(self.comm, parts, (k,), self.n_shards)

    def _draw_baseline(self, z: Sequence[np.ndarray], stream: np.random.Generator) -> None:
        """Draw the hazards given all coefficients; then move some of their level, on which no likelihood depends, into
        the clusters' intercepts by a Metropolis step. stream: root's."""
        parts, law = [], self.law
        for labels, a in zip(z, self.answers):
            of = a.take(np.flatnonzero((labels >= 0) & ~np.isnan(a.y)))
            eta = self.now.eta_of(of, labels[(labels >= 0) & ~np.isnan(a.y)])
            parts.append(law.baseline.sums(of.seen, eta))
        sums = shard_sum(self.comm, parts, (3, len(law.baseline.starts)), self.n_shards)
        if self.comm.rank == 0:
            self._events, baseline = sums[0], law.baseline.drawn_given(sums, stream)
            by = law.mean[0] - self.theta[:, 0].mean() + law.sd[0] / len(self.theta) ** 0.5 * stream.standard_normal()
            if stream.random() < math.exp(min(0.0, baseline.log_shift(by))):
                baseline, self.theta = baseline.shifted(by), self.theta.copy()
                self.theta[:, 0] += by
            self.law = replace(law, baseline=baseline)

    # --- Hamiltonian Monte Carlo --------------------------------------------------------------------------------------

    def _metric(self, z: Sequence[np.ndarray]) -> Metric | None:
        """Return the metric for labels z, on root."""
        k, own = len(self.theta), None
        sums = self.squares(z, k)
        if self.law.likelihood.weighs_rows:
            own = self._squares(z, self._by_outcome, k, 1)
        return Metric(self.law, information(self.law, sums, own)) if self.comm.rank == 0 else None

    def _value_and_slopes(self, z: Sequence[np.ndarray]) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
        """Return the log density of the coefficients given the labels, up to terms of the scale, and its gradient, on
        root. All ranks take root's coefficients first."""
        law = self.law
        self.share()
        values, of_theta, of_beta = self.slopes(z, self.theta)
        of_theta -= (self.theta - law.mean) / law.sd**2
        of_beta -= self.beta / law.covariate_sd**2
        return float(values.sum()) + law.log_prior(self.theta, self.beta), (of_theta, of_beta)

    def slopes(self, z: Sequence[np.ndarray], theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return each cluster's log likelihood (K,), and the gradient in theta and beta, on root. z: clusters; theta
        (K, p): their coefficients, the same on all ranks."""
        law, (k, p), d = self.law, theta.shape, len(self.beta)
        of = theta, self.beta, law.nu, law.scale
        code, shifts = law.likelihood.code, self._log_exposed()
        each = zip(z, self.answers, shifts)
        parts = [kernels.slopes(code, labels, a.y, a.u, a.w, *of, shift) for labels, a, shift in each]
        sums = shard_sum(self.comm, parts, (k + 1 + k * p + d,), self.n_shards)
        return sums[:k], sums[k + 1 : k + 1 + k * p].reshape(k, p), sums[k + 1 + k * p :]

    def squares(self, z: Sequence[np.ndarray], k: int) -> np.ndarray:
        """Return the sums of `kernels.response.squares` over all rows of clusters 0..k-1, on root."""
        return self._squares(z, self.answers, k, 0)

    def _squares(self, z: Sequence[np.ndarray], answers: Sequence[Answers], k: int, more: int) -> np.ndarray:
        """Return `squares` of other predictors, of which there are `more`."""
        c = self.law.n_eta
        q = (self.law.p + len(self.beta)) // c + more
        parts = [kernels.squares(labels, a.y, a.u, a.w, k, c) for labels, a in zip(z, answers)]
        return shard_sum(self.comm, parts, (k, c + q * (q + 1) // 2), self.n_shards)

    def share(self) -> None:
        """Broadcast root's coefficients and law."""
        if self.comm.size == 1:
            return
        (k, p), law = self.theta.shape, self.law
        message = np.concatenate([self.theta.ravel(), self.beta, law.numbers])
        self.comm.broadcast(message)
        d = len(self.beta)
        self.theta, self.beta = message[: k * p].reshape(k, p), message[k * p : k * p + d]
        self.law = of_numbers(law, message[k * p + d :])

    def trajectory(self, look: Callable, metric: Metric | None, stream: np.random.Generator) -> float:
        """Run one trajectory of the coefficients, accepted or not; return their log density, on root. look: returns the
        log density of the present coefficients, and its gradient, on root. Collective if `look` is."""
        root = self.comm.rank == 0
        start = self.theta, self.beta
        value, slopes = look()
        if root:
            size = LONG if stream.random() < 1.0 - ESCAPE else SHORT
            size *= 1.0 + JITTER * (2.0 * stream.random() - 1.0)
            a, b = stream.standard_normal(self.theta.shape), stream.standard_normal(len(self.beta))
            before = value - 0.5 * (np.sum(a * a) + np.sum(b * b))
        for _ in range(LEAPFROGS):
            if root:
                up, over = metric.whiten(*slopes)
                a, b = a + 0.5 * size * up, b + 0.5 * size * over
                move = metric.colour(size * a, size * b)
                self.theta, self.beta = self.theta + move[0], self.beta + move[1]
            now, slopes = look()
            if root:
                up, over = metric.whiten(*slopes)
                a, b = a + 0.5 * size * up, b + 0.5 * size * over
        if not root:
            return np.nan
        gain = now - 0.5 * (np.sum(a * a) + np.sum(b * b)) - before
        self.accepted = math.exp(min(0.0, gain)) if np.isfinite(gain) else 0.0
        if stream.random() < self.accepted:
            return now
        self.theta, self.beta = start
        return value

    def _walk_scale(self, z: Sequence[np.ndarray], stream: np.random.Generator, value: float) -> float:
        """Update the scale by random-walk Metropolis given all coefficients; return the log density, on root."""
        for _ in range(SCALE_STEPS):
            old, size = self.law, 2.4 / math.sqrt(2.0 * self.n + 1.0)
            self.law = replace(old, scale=old.scale * math.exp(size * stream.standard_normal()))
            now, _ = self._value_and_slopes(z)
            if self.comm.rank == 0:
                gain = now - value - self.n * (math.log(self.law.scale) - math.log(old.scale))
                gain += self.law.log_prior_of_scale() - old.log_prior_of_scale()
                if stream.random() < math.exp(min(0.0, gain)):
                    value = now
                else:
                    self.law = old
        return value


def _times_root(a: Answers) -> Answers:
    """Return predictors, a 1 before those of clusters, times the root of each row's outcome."""
    root = np.sqrt(a.y)[:, None]
    u = root * np.column_stack([np.ones(len(a.y)), a.u])
    return Answers(a.y, u.astype(np.float32), np.ascontiguousarray(root * a.w, np.float32))
