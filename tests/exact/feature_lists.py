"""Exact distribution of features on tables of a few rows, by enumerating their owners, and chains that start in it.

A class is the sorted tuple of its columns, each a number whose bit n says whether row n has the feature.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement

import numpy as np
from scipy.special import gammaln

from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.moves.ledger import Ledger
from mpibayes.hpc.ibp.state import Settings
from mpibayes.hpc.parallel.comm import serial
from tests.exact.compare import by_looks, judge

IBP3 = np.array([[1.2, -0.3], [0.9, 0.8], [2.3, 0.4]])
IBP4 = np.array([[1.0, 0.1], [-0.8, 1.1], [0.3, 1.0], [0.2, -0.1]])


class Law:
    """Probability p of every class with up to `most` features; other classes have negligible probability.

    noise_sd: of all columns, or a list with that of each; feature_sd is then in units of it.
    """

    def __init__(self, x, alpha, c, noise_sd, feature_sd, most=7, likelihood=True):
        self.x, (n, _) = x, x.shape
        part = isinstance(noise_sd, list)
        self.given = {"alpha": alpha, "c": c, "noise_sd": 1.0, "feature_sd": feature_sd, "likelihood": likelihood}
        self.given["noise"] = "column" if part else "shared"
        self.noise_sd = np.broadcast_to(np.array(noise_sd), x.shape[1]).astype(float)
        unit = self.noise_sd if part else np.ones(x.shape[1])
        histories = range(1, 2**n)
        self.classes = [z for k in range(most + 1) for z in combinations_with_replacement(histories, k)]
        self.counts = counts = np.zeros((len(self.classes), 2**n))  # how often a class has each column
        for count, z in zip(counts, self.classes):
            np.add.at(count, list(z), 1.0)
        has = np.arange(2**n)[:, None] >> np.arange(n) & 1
        m = has.sum(axis=1)
        log_rate = np.log(alpha * c) + gammaln(np.maximum(m, 1)) + gammaln(n - m + c) - gammaln(n + c)
        logs = counts @ log_rate - gammaln(counts + 1.0).sum(axis=1)
        if likelihood:
            shared = np.einsum("ch,hi,hj->cij", counts, has, has)  # features that two rows share, of each class
            for column, noise, feature in zip(x.T, self.noise_sd, unit * feature_sd):
                covariance = noise**2 * np.eye(n) + feature**2 * shared
                squares = np.einsum("i,cij,j->c", column, np.linalg.inv(covariance), column)
                logs -= 0.5 * (squares + np.linalg.slogdet(covariance)[1] + n * np.log(2.0 * np.pi))
        self.p = np.exp(logs - logs.max())
        self.p /= self.p.sum()
        self.index = {z: i for i, z in enumerate(self.classes)}

    def summaries(self):
        """(names, table): events, one a row over the classes."""
        n_features, histories = self.counts.sum(axis=1), range(1, self.counts.shape[1])
        events = {f"K={k}": n_features == k for k in range(int(n_features.max()) + 1)}
        events |= {f"some column {h:b}": self.counts[:, h] > 0 for h in histories}
        events |= {f"two columns {h:b}": self.counts[:, h] > 1 for h in histories}
        return list(events), np.array(list(events.values()), float)


class Moved:
    """A chain on a table, whose features can be set, for testing moves by themselves."""

    def __init__(self, law: Law, n_shards: int, seed: int, comm=None):
        self.law, self.comm = law, comm or serial()
        settings = Settings(seed=seed, shards=n_shards, moves=0, **law.given)
        n, d = law.x.shape
        self.chain = Buffet(self.comm, lambda a, b: law.x[a:b], n, d, settings)
        self.chain.hyper.noise_sd = law.noise_sd[: self.chain.n_columns].copy()

    def begin(self, number: int, z: tuple[int, ...]) -> None:
        """Start stream `number` at the features of a class."""
        chain = self.chain
        chain.chain, chain.cycles, chain.slots = number, 0, np.arange(len(z))
        for shard in chain.shards:
            first = int(chain.starts[shard.index])
            for i in range(len(shard.rows)):
                shard.rows.z[i] = 0
                shard.rows.z[i, 0] = sum((h >> (first + i) & 1) << k for k, h in enumerate(z))
        chain.summarise()

    def state(self) -> tuple[int, ...]:
        columns = self.chain.features()
        return tuple(sorted((columns.T.astype(np.int64) @ (1 << np.arange(len(columns)))).tolist()))

    def step(self, kinds) -> Ledger:
        self.chain.cycles += 1
        ledger = Ledger(self.chain)
        for number, propose in enumerate(kinds):
            propose(ledger, number)
        ledger.close()
        return ledger


def judge_moves(law: Law, kinds, n_shards: int, size: int, steps: int, seed: int, level: float, looks: int = 1):
    """Replicates from exact draws, each with `steps` rounds of moves; (verdict, moves accepted). looks: `by_looks`."""
    stream, moved, accepted = np.random.default_rng(seed), Moved(law, n_shards, seed), Counter()
    names, table = law.summaries()

    def replicate(number):
        moved.begin(number, law.classes[stream.choice(len(law.p), p=law.p)])
        visited = []
        for _ in range(steps):
            accepted.update(moved.step(kinds).accepted)
            visited.append(law.index.get(moved.state(), -1))
        return [v for v in visited if v >= 0]  # more features than enumerated: almost never

    def judged(seen):
        seen = [visited for visited in seen if visited]
        means = np.array([table[:, visited].mean(axis=1) for visited in seen])
        return judge(np.array([visited[-1] for visited in seen]), law.p, names, means, table @ law.p, level)

    return by_looks(lambda a, b: [replicate(number) for number in range(a, b)], judged, size, looks), accepted
