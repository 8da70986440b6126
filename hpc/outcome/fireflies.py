"""Firefly Monte Carlo for an outcome's coefficients (docs/math.md 2.16): updates that look at the bright rows alone.

A row is bright with probability 1 - B / L, at the labels that a cycle's sweeps and moves leave. Given which rows are
bright, the coefficients have a density of sums over all rows, a quadratic, and one factor for each bright row. Root
has both, and updates the coefficients as often as it likes; between updates a sweep on every shard renews the bright
rows. They are forgotten at the end of the cycle. Bounds touch the likelihood at points that are chosen once, at the
end of burn-in, and never change: before, coefficients are drawn by Hamiltonian Monte Carlo on all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.outcome.bounds import BOUNDS, Bound
from mpibayes.hpc.outcome.law import Law
from mpibayes.hpc.outcome.metric import Metric, symmetric
from mpibayes.hpc.parallel.reduce import shard_sum
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.mixture import response as kernels

if TYPE_CHECKING:
    from mpibayes.hpc.outcome.outcome import Outcome

LOOKED_AT = 0.02  # share of the dark rows that a sweep between updates looks at; a constant, not to depend on the state


class Fireflies:
    """Bounds and brightness of one chain's rows. Every public method but `put` is collective.

    after: cycle at whose end the points are chosen. points: float32 (n,) of each of this rank's shards; None before.
    """

    def __init__(self, outcome: Outcome, after: int):
        self.outcome, self.after = outcome, after
        self.points: list[np.ndarray] | None = None
        self._bound = BOUNDS[outcome.law.likelihood.name]
        self._bounds: list[tuple[np.ndarray, ...]] = []  # g, h and level of the rows of each shard
        self._scale = np.nan  # of these bounds

    def freeze(self, z: Sequence[np.ndarray]) -> None:
        """Choose the points: where bounds touch at the present coefficients and labels."""
        outcome, points = self.outcome, []
        for labels, a in zip(z, outcome.answers):
            theta = np.where(labels[:, None] >= 0, outcome.theta[np.maximum(labels, 0)], outcome.law.mean)
            eta = kernels.offsets(a.w, outcome.beta, a.y)[0] + theta[:, 0] + (theta[:, 1:] * a.u).sum(axis=1)
            points.append(np.nan_to_num(self._bound.points(eta, a.y)))
        self.put(points)

    def put(self, points: Sequence[np.ndarray]) -> None:
        """Set the points of this rank's shards."""
        self.points, self._scale = [np.asarray(of, np.float32) for of in points], np.nan

    def draw(self, z: Sequence[np.ndarray], cycle: int, stream: np.random.Generator) -> None:
        """Update all coefficients given the labels z of this rank's shards. stream: root's."""
        outcome, answers = self.outcome, self.outcome.answers
        root, (k, p), q = outcome.comm.rank == 0, outcome.theta.shape, outcome.law.p + len(outcome.beta)
        self._set_bounds()
        parts = [kernels.bound_sums(of, *b[:2], a.u, a.w, k) for of, b, a in zip(z, self._bounds, answers)]
        sums = shard_sum(outcome.comm, parts, (k, q + q * (q + 1) // 2), outcome.n_shards)
        dark = Dark(outcome.law, sums) if root else None
        metric = Metric(outcome.law, dark.information) if root else None
        bright = [self._light(i, labels, cycle) for i, labels in enumerate(z)]
        for step in range(outcome.steps):
            if step:
                bright = [self._sweep(i, labels, bright[i], cycle, step) for i, labels in enumerate(z)]
            rows = self._gather(z, bright)
            if root:
                given = Given(dark, self._bound, p, rows)
                outcome.trajectory(lambda of=given: of.value_and_slopes(outcome.theta, outcome.beta), metric, stream)
            outcome.share()

    # --- a shard ------------------------------------------------------------------------------------------------------

    def _set_bounds(self) -> None:
        """Compute the bounds at the points; those of a Student's t depend on its scale."""
        law = self.outcome.law
        if law.scale != self._scale:
            self._bounds, self._scale = [], law.scale
            for of, a in zip(self.points, self.outcome.answers):
                h, level = self._bound.at(of.astype(np.float64), law.nu, law.scale)
                self._bounds.append((self._bound.slope(a.y, h), h, level))

    def _gaps(self, i: int, z: np.ndarray, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return log L - log B of rows of this rank's i-th shard, 0 without label or outcome."""
        outcome, a, (_, h, level) = self.outcome, self.outcome.answers[i], self._bounds[i]
        code, of = outcome.law.likelihood.code, (z[rows], a.y[rows], a.u[rows], a.w[rows])
        return kernels.gaps(code, *of, outcome.theta, outcome.beta, h[rows], level[rows], outcome.law.nu)

    def _stream(self, i: int, cycle: int, step: int) -> np.random.Generator:
        """Return the stream of a shard's brightness."""
        outcome, sub = self.outcome, self.outcome.shards[i].index | step << 32
        return generator(outcome.seed, Purpose.OUTCOME_LIGHT, cycle, sub, outcome.chain)

    def _light(self, i: int, z: np.ndarray, cycle: int) -> np.ndarray:
        """Draw every row of a shard; return the bright ones, ascending."""
        gap, u = self._gaps(i, z), self._stream(i, cycle, 0).random(len(z))
        rows = np.flatnonzero(u < gap)  # 1 - exp(-gap) is less
        return rows[u[rows] < -np.expm1(-gap[rows])]

    def _sweep(self, i: int, z: np.ndarray, bright: np.ndarray, cycle: int, step: int) -> np.ndarray:
        """Renew the bright rows of a shard implicitly (docs/math.md 4.3)."""
        stream, q = self._stream(i, cycle, step), LOOKED_AT
        with np.errstate(over="ignore"):
            stay = stream.random(len(bright)) * np.expm1(self._gaps(i, z, bright)) >= q
        hits = np.zeros(0, np.int64)
        while not len(hits) or hits[-1] < len(z):
            skips = stream.geometric(q, size=int(q * len(z)) + 16)
            hits = np.concatenate([hits, (hits[-1] if len(hits) else -1) + np.cumsum(skips)])
        hits = np.setdiff1d(hits[hits < len(z)], bright, assume_unique=True)
        with np.errstate(over="ignore"):
            lit = stream.random(len(hits)) * q < np.expm1(self._gaps(i, z, hits))
        return np.sort(np.concatenate([bright[stay], hits[lit]]))

    def _gather(self, z: Sequence[np.ndarray], bright: Sequence[np.ndarray]) -> np.ndarray | None:
        """Send all bright rows to root, in row order: cluster, y, h, level, u, w."""
        comm, parts = self.outcome.comm, []
        for labels, rows, a, (_, h, level) in zip(z, bright, self.outcome.answers, self._bounds):
            parts.append(np.column_stack([labels[rows], a.y[rows], h[rows], level[rows], a.u[rows], a.w[rows]]))
        width = 3 + self.outcome.law.p + len(self.outcome.beta)
        mine, lengths = np.concatenate([np.zeros((0, width)), *parts]), np.zeros(comm.size, np.int64)
        lengths[comm.rank] = len(mine)
        comm.sum_everywhere(lengths)
        return comm.gather_to_root(mine, lengths.tolist())


class Dark:
    """Sums over all rows in the density of the coefficients. sums: of `kernels.response.bound_sums`.

    information (K, q, q): the sum of h v v' in each cluster, v = (1, u, w).
    """

    def __init__(self, law: Law, sums: np.ndarray):
        p, q = law.p, law.p + len(law.covariate_sd)
        self.law, self.information = law, symmetric(sums[:, q:], q)
        self.block, self.arm = self.information[:, :p, :p], self.information[:, :p, p:]
        self.hub = self.information[:, p:, p:].sum(axis=0)
        self.own, self.shared = sums[:, :p], sums[:, p:q].sum(axis=0)


class Given:
    """Density of the coefficients given which rows are bright. rows: see `Fireflies._gather`; p: coefficients of a
    cluster."""

    def __init__(self, dark: Dark, bound: type[Bound], p: int, rows: np.ndarray):
        self.dark, self.bound = dark, bound
        self.z, (self.y, self.h, self.level) = rows[:, 0].astype(np.int64), np.ascontiguousarray(rows[:, 1:4].T)
        self.v = np.column_stack([np.ones(len(rows)), rows[:, 4 : 3 + p]])
        self.w = np.ascontiguousarray(rows[:, 3 + p :])

    def value_and_slopes(self, theta: np.ndarray, beta: np.ndarray) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
        """Return the log density up to a constant, and its gradient; not finite where a bright row's gap is 0."""
        dark, law = self.dark, self.dark.law
        inner, arm = (dark.block @ theta[:, :, None])[:, :, 0], dark.arm @ beta
        value = float((theta * (dark.own - 0.5 * inner - arm)).sum() + beta @ (dark.shared - 0.5 * dark.hub @ beta))
        of_theta = dark.own - inner - arm - (theta - law.mean) / law.sd**2
        of_beta = dark.shared - dark.hub @ beta - np.tensordot(dark.arm, theta, axes=((0, 1), (0, 1)))
        of_beta -= beta / law.covariate_sd**2
        eta = (theta[self.z] * self.v).sum(axis=1) + self.w @ beta
        with np.errstate(all="ignore"):
            gap, slope = self.bound.gaps(eta, self.y, self.h, self.level, law.nu)
            rest = -np.expm1(-gap)
            value += float((gap + np.log(rest)).sum()) + law.log_prior(theta, beta)
            slope /= rest
        for a in range(theta.shape[1]):
            of_theta[:, a] += np.bincount(self.z, slope * self.v[:, a], len(theta))
        return value, (of_theta, of_beta + slope @ self.w)
