"""A state as a distribution over ratings (docs/math.md 8.9).

A rating has the mean mu + E u'v + E b + E c, and the variance s of the model plus that of u'v + b + c under q. Its
density is approximated by a Gaussian with these: a product of Gaussians is not Gaussian, but close where it matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum_everywhere
from mpibayes.hpc.svi.factorization.model import LOG_TWO_PI, Factorization, Moments, State
from mpibayes.hpc.svi.factorization.ratings import Ratings
from mpibayes.hpc.svi.factorization.triangles import in_both_halves, packed

USERS = 4096  # users solved at a time


@dataclass(frozen=True)
class Law:
    """Items under q, and shared parameters: enough for the ratings of users whose moments are known."""

    q: State
    items: Moments
    biased: bool

    @classmethod
    def of(cls, model: Factorization, q: State) -> Law:
        return cls(q, model.moments(q), model.biased)

    def ratings(
        self, mean: np.ndarray, covariance: np.ndarray, user: np.ndarray, item: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of ratings (n,). mean (m, D), covariance (m, T): moments of m users. user: index among
        these. item: the item's number."""
        d = self.items.mean.shape[1] - self.biased
        a, g, s, r = mean[user], self.items.mean[item], covariance[user], self.items.covariance[item]
        means = self.q.center[0] + np.einsum("nd,nd->n", a[:, :d], g[:, :d])
        one = [np.ones((len(a), 1))] if self.biased else []
        x, z = np.hstack([g[:, :d], *one]), np.hstack([a[:, :d], *one])
        if self.biased:
            means += a[:, d] + g[:, d]
        both = in_both_halves(mean.shape[1])
        i, j = np.tril_indices(mean.shape[1])
        variance = ((s * x[:, i] * x[:, j] + r * z[:, i] * z[:, j]) * both).sum(axis=1)
        t = d * (d + 1) // 2
        variance += (s[:, :t] * r[:, :t] * both[:t]).sum(axis=1)
        return means, self.q.variance[0] + variance

    def unknown_user(self) -> tuple[np.ndarray, np.ndarray]:
        """Moments (1, D), (1, T) of a user without ratings."""
        return self.q.user_mean[None], packed(self.q.user_covariance)[None]


def log_density(value: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Normal log densities of ratings, (n,)."""
    return -0.5 * (LOG_TWO_PI + np.log(variance) + (value - mean) ** 2 / variance)


class HeldOut:
    """Scores of the held-out ratings of this rank's shards. Collective."""

    def __init__(self, comm: Communicator, ascent: Any, held: Sequence[Ratings]):
        self.comm, self.ascent, self.held = comm, ascent, held
        count = np.array([sum(len(x.columns) for x in held)], np.int64)
        comm.sum_everywhere(count)
        self.n_ratings = int(count[0])

    def score(self) -> tuple[float, float]:
        """Root mean squared error, and mean log density, of the held-out ratings; NaN if there are none."""
        model, q = self.ascent.model, self.ascent.q
        law, parts = Law.of(model, q), []
        for x, out in zip(self.ascent.rows, self.held):
            part = np.zeros(2)
            for value, mean, variance in scored(model, law, x, out):
                part += [((value - mean) ** 2).sum(), log_density(value, mean, variance).sum()]
            parts.append(part)
        total = shard_sum_everywhere(self.comm, parts, (2,), self.ascent.n_shards)
        if not self.n_ratings:
            return np.nan, np.nan
        return float(np.sqrt(total[0] / self.n_ratings)), float(total[1] / self.n_ratings)


def scored(
    model: Factorization, law: Law, x: Ratings, out: Ratings
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (values, means, variances) of the ratings `out` of users that have the ratings x, several users at a
    time."""
    users = np.flatnonzero(np.diff(out.starts))
    for start in range(0, len(users), USERS):
        batch = users[start : start + USERS]
        mean, covariance = model.users(law.q, x, batch)
        lengths = np.diff(out.starts)[batch]
        first, last = out.starts[batch[0]], out.starts[batch[-1] + 1]
        who = np.repeat(np.arange(len(batch)), lengths)
        yield out.values[first:last].astype(np.float64), *law.ratings(mean, covariance, who, out.columns[first:last])
