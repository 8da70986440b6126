"""The exact law of features on tables of a few rows, by enumeration of who has what, and chains that start in it.

A class is the sorted tuple of its columns, each a number whose bit n says whether row n has the feature.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement

import numpy as np
from scipy.special import gammaln
from scipy.stats import multivariate_normal

from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.moves.ledger import Ledger
from mpibayes.hpc.ibp.state import Settings
from mpibayes.hpc.parallel.comm import serial
from tests.exact.compare import by_looks, judge

IBP3 = np.array([[1.2, -0.3], [0.9, 0.8], [2.3, 0.4]])
IBP4 = np.array([[1.0, 0.1], [-0.8, 1.1], [0.3, 1.0], [0.2, -0.1]])


class Law:
    """p of every class with up to `most` features; the others have next to nothing of it.

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
        m = np.array([bin(h).count("1") for h in range(2**n)])
        rate = alpha * c * np.exp(gammaln(np.maximum(m, 1)) + gammaln(n - m + c) - gammaln(n + c))
        logs = []
        for z in self.classes:
            log_p = sum(k * np.log(rate[h]) - gammaln(k + 1.0) for h, k in Counter(z).items())
            if likelihood:
                has = np.array([[h >> i & 1 for h in z] for i in range(n)], float).reshape(n, len(z))
                for column, noise, feature in zip(x.T, self.noise_sd, unit * feature_sd):
                    covariance = noise**2 * np.eye(n) + feature**2 * has @ has.T
                    log_p += multivariate_normal.logpdf(column, np.zeros(n), covariance)
            logs.append(log_p)
        self.p = np.exp(np.array(logs) - max(logs))
        self.p /= self.p.sum()
        self.index = {z: i for i, z in enumerate(self.classes)}
        self.n_features = np.array([len(z) for z in self.classes])

    def summaries(self):
        """(names, table): events, one a row over the classes."""
        names, rows = [], []
        for k in range(int(self.n_features.max()) + 1):
            names.append(f"K={k}")
            rows.append(self.n_features == k)
        for h in range(1, 2 ** len(self.x)):
            names.append(f"some column {h:b}")
            rows.append([h in z for z in self.classes])
        for h in range(1, 2 ** len(self.x)):
            names.append(f"two columns {h:b}")
            rows.append([z.count(h) > 1 for z in self.classes])
        return names, np.array(rows, float)


class Moved:
    """A chain on a table, whose features can be set, for moves alone."""

    def __init__(self, law: Law, n_shards: int, seed: int, comm=None):
        self.law, self.comm = law, comm or serial()
        settings = Settings(seed=seed, shards=n_shards, moves=0, **law.given)
        n, d = law.x.shape
        self.chain = Buffet(self.comm, lambda a, b: law.x[a:b], n, d, settings)
        self.chain.hyper.noise_sd = law.noise_sd[: self.chain.n_columns].copy()

    def begin(self, number: int, z: tuple[int, ...]) -> None:
        """Stream `number`, and the features of a class."""
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
        return [v for v in visited if v >= 0]  # more features than enumerated: next to never

    def judged(seen):
        seen = [visited for visited in seen if visited]
        means = np.array([table[:, visited].mean(axis=1) for visited in seen])
        return judge(np.array([visited[-1] for visited in seen]), law.p, names, means, table @ law.p, level)

    return by_looks(lambda a, b: [replicate(number) for number in range(a, b)], judged, size, looks), accepted
