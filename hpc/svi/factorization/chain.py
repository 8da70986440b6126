"""Variational inference of a factorization: `hpc.svi.chain.Ascent` with users as rows, and noise per rating.

Users lie in shards on ranks, and their contributions to the items are summed in the shards' order. The noise of a
rating is keyed by the cycle and its number among the training ratings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum_everywhere
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.hpc.svi.chain import Ascent, Settings
from mpibayes.hpc.svi.factorization.model import Factorization, Fixed, natural_of
from mpibayes.hpc.svi.factorization.ratings import Numbers, Ratings, Stepped


@dataclass(frozen=True)
class Kind:
    """Form of the model. center: subtract the mean of the ratings. variance, spread: see `model.Fixed`; None for half
    the variance of the ratings, and for `Fixed.of_shares`. own_count: the effective batch counts each user's and item's
    ratings, not all of them. stepped: users take steps instead of being solved from the items."""

    rank: int
    biased: bool = True
    learn: bool = True
    center: bool = True
    variance: float | None = None
    spread: float | None = None
    own_count: bool = True
    stepped: bool = False


class RatingsAscent(Ascent):
    """One chain. ratings_of(start, stop): ratings of training rows, called for the shards of this rank."""

    def __init__(
        self, comm: Communicator, kind: Kind, n_items: int, ratings_of: Callable[[int, int], Ratings], n_rows: int,
        settings: Settings, chain: int = 0,
    ):  # fmt: skip
        self.kind = kind
        none = Factorization(kind.rank, kind.biased, 1, Fixed(1.0, 1.0), kind.learn, 0.0, np.ones(1, bool))
        super().__init__(comm, none, ratings_of, lambda places: None, n_rows, settings, chain)
        counts = np.zeros(self.n_shards + n_items, np.int64)
        of_shards, of_items = counts[: self.n_shards], counts[self.n_shards :]
        for i, x in zip(self.shards, self.rows):
            of_shards[i] = len(x.columns)
            of_items += np.bincount(x.columns, minlength=n_items)
        comm.sum_everywhere(counts)
        firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(of_shards)])
        self.n_ratings = int(firsts[-1])
        of_users = [np.diff(x.starts).max(initial=0) for x in self.rows]
        self.most = max(int(of_items.max(initial=0)), *comm.collect(int(max(of_users, default=0))))
        for i, x in zip(self.shards, self.rows):
            x.first = int(firsts[i])
        mean, variance = self._mean_and_variance()
        fixed = Fixed.of_shares(max(variance, 2e-6), kind.rank, kind.biased)
        if kind.spread is not None:
            fixed = Fixed(fixed.variance, kind.spread)
        if kind.variance is not None:
            fixed = replace(fixed, variance=kind.variance)
        center = mean if kind.center else 0.0
        self.model: Factorization = Factorization(
            kind.rank, kind.biased, n_items, fixed, kind.learn, center, of_items > 0
        )
        self.q = self.model.first()
        if kind.stepped:
            prior = natural_of(self.q.user_mean, self.q.user_covariance)
            for x in self.rows:
                x.stepped = Stepped(np.tile(prior, (len(x), 1)), np.empty((len(x), len(prior))))
        self._taken = False  # a step was taken, and the pass after it not yet made

    def _load(self, ratings_of, i: int) -> Ratings:
        return ratings_of(int(self.starts[i]), int(self.starts[i + 1]))

    def _mean_and_variance(self) -> tuple[float, float]:
        """Mean and variance of the training ratings, the same on any number of ranks."""
        values = [x.values.astype(np.float64) for x in self.rows]
        first = shard_sum_everywhere(self.comm, [v.sum(keepdims=True) for v in values], (1,), self.n_shards)
        mean = float(first[0]) / max(1, self.n_ratings)
        parts = [((v - mean) ** 2).sum(keepdims=True) for v in values]
        second = shard_sum_everywhere(self.comm, parts, (1,), self.n_shards)
        return mean, float(second[0]) / max(1, self.n_ratings)

    def start(self) -> None:
        """Start with small random means of the items."""
        ids = np.arange(self.model.n_items * self.kind.rank)
        normals = Stream(self.settings.seed, Purpose.FIRST_MEANS, 0, self.chain).normals(ids)
        self.place(self.model.seeded(normals.reshape(-1, self.kind.rank)))

    def cycle(self) -> None:
        """Take one step; none if the chain has converged or left its domain."""
        self._taken = not (self.still() or self.broken)
        super().cycle()

    def _look(self) -> None:
        """Pass over the next batch. Users that take steps continue from the last pass, if its step was taken."""
        for x in self.rows if self.kind.stepped else ():
            if self._taken:
                x.stepped.now, x.stepped.next = x.stepped.next, x.stepped.now
            x.stepped.rate = min(1.0, self.settings.rate.at(self.cycles + 1))
        self._taken = False
        super()._look()

    # --- noise --------------------------------------------------------------------------------------------------------

    def _numbers(self, chosen: list[np.ndarray | None], n_batch: int, t: int) -> list[Numbers] | None:
        """Random numbers of each rating for the noise; in a batch of all ratings they depend on the batch size in
        ratings."""
        settings, effective = self.settings, self.settings.effective.at(t) if self.settings.effective else np.inf
        if settings.noise.kind == "none":
            return None
        if self.kind.own_count:
            if effective >= self.most:
                return None
            stream = self.noise_stream(t)
            return [Numbers(stream.normals(x.places(users)), effective) for x, users in zip(self.rows, chosen)]
        self._in_batch = self._ratings_of(chosen)
        if not settings.noise.at_work(self._in_batch, effective):
            return None
        ids = [x.places(users) for x, users in zip(self.rows, chosen)]
        each = settings.noise.numbers(self.comm, ids, self._in_batch, effective, self.noise_stream(t))
        parts = [of.sum(keepdims=True) for of in each]
        total = shard_sum_everywhere(self.comm, parts, (1,), self.n_shards)
        return [Numbers(of, 0.0, float(total[0]) / self._in_batch) for of in each]

    def _ratings_of(self, chosen: list[np.ndarray | None]) -> int:
        many = np.array([sum(x.count(users) for x, users in zip(self.rows, chosen))], np.int64)
        self.comm.sum_everywhere(many)
        return int(many[0])

    def _deviation(self, sums: np.ndarray, of_numbers: float, n_batch: int, t: int) -> np.ndarray:
        if self.kind.own_count:
            return self.model.own_deviation(sums, self.settings.effective.at(t))
        return super()._deviation(sums, of_numbers, self._in_batch, t)
