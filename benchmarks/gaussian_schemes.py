"""Published samplers of a Dirichlet-process mixture of Gaussians, in NumPy, for comparison only.

Zhang, M. M. (2016), "Distributed inference in Bayesian nonparametric models using partially collapsed MCMC" (report,
The University of Texas at Austin): the fully uncollapsed sampler of section 3.1, and the distributed hybrid of section
2.3.1 on simulated ranks with its warm start.  Neither leaves the posterior invariant (docs/exactness.md), which is why
they live here and not in the package.

Columns are independent given the cluster, each with a normal-inverse-chi-square prior, as in the package.
Every sampler is a generator that yields labels (N,) after each iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln


@dataclass(frozen=True)
class Prior:
    """NIX(mean, kappa, nu, variance), the same for every column."""

    mean: float = 0.0
    kappa: float = 0.04
    nu: float = 5.0
    variance: float = 1.0

    def posterior(self, x: np.ndarray):
        """Parameters (location (D,), kappa, nu, nu times variance (D,)) given the rows x (n, D) of one cluster."""
        n = len(x)
        centre = x.mean(axis=0) if n else np.zeros(x.shape[1])
        kappa, nu = self.kappa + n, self.nu + n
        scatter = ((x - centre) ** 2).sum(axis=0) + n * self.kappa / kappa * (self.mean - centre) ** 2
        return (self.kappa * self.mean + n * centre) / kappa, kappa, nu, self.nu * self.variance + scatter

    def draw(self, x: np.ndarray, generator) -> tuple[np.ndarray, np.ndarray]:
        """(mu, sigma2), each (D,), given the rows of one cluster; given none, from the base measure."""
        location, kappa, nu, spread = self.posterior(x)
        sigma2 = spread / generator.chisquare(nu, size=x.shape[1])
        return location + np.sqrt(sigma2 / kappa) * generator.standard_normal(x.shape[1]), sigma2

    def log_predictive(self, row: np.ndarray, x: np.ndarray) -> np.ndarray:
        """log f(row | rows of a cluster): a product of Student t densities; (...,) for row (..., D)."""
        location, kappa, nu, spread = self.posterior(x)
        scale = spread * (1.0 + 1.0 / kappa)  # nu times the squared scale of the t
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(np.pi * scale)
        return (constant - (nu + 1) / 2 * np.log1p((row - location) ** 2 / scale)).sum(axis=-1)


def log_density(x: np.ndarray, atoms) -> np.ndarray:
    """log f(x_n | theta_k), (N, K), for atoms [(mu, sigma2), ...]."""
    mu, sigma2 = (np.array(part) for part in zip(*atoms))
    square = (x[:, None, :] - mu) ** 2 / sigma2
    return -0.5 * (square + np.log(2 * np.pi * sigma2)).sum(axis=2)


def pick(logits: np.ndarray, generator) -> np.ndarray:
    """One index for every row of log weights (N, K)."""
    total = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    return (total <= generator.random(len(logits))[:, None] * total[:, -1:]).sum(axis=1)


def log_dirichlet(shape: np.ndarray, generator) -> np.ndarray:
    log_gamma = np.log(generator.standard_gamma(shape + 1.0)) + np.log(1.0 - generator.random(len(shape))) / shape
    return log_gamma - np.logaddexp.reduce(log_gamma)


def uncollapsed(x: np.ndarray, prior: Prior, concentration: float, seed: int, atoms: int = 5):
    """Section 3.1, from one cluster: occupied atoms and `atoms` from the base measure; weights and locations drawn."""
    generator = np.random.Generator(np.random.Philox(seed))
    z = np.zeros(len(x), dtype=np.int64)
    while True:
        _, z = np.unique(z, return_inverse=True)
        sizes = np.bincount(z)
        theta = [prior.draw(x[z == k], generator) for k in range(len(sizes))]
        theta += [prior.draw(x[:0], generator) for _ in range(atoms)]
        shape = np.concatenate([sizes, np.full(atoms, concentration / atoms)])
        z = pick(log_dirichlet(shape, generator) + log_density(x, theta), generator)
        yield z


def published(
    x: np.ndarray,
    prior: Prior,
    concentration: float,
    seed: int,
    ranks: int = 1,
    sweeps: int = 1,
    literal: bool = False,
    warm: bool = False,
):
    """Section 2.3.1 on simulated ranks, from one cluster; an iteration is `sweeps` passes and one sync.

    All occupied clusters are instantiated; rows on the chosen rank may also open and join clusters of the tail.
    literal: (2.10) as printed (counts over N, no likelihood for a new cluster); otherwise over M + alpha, with it.
    warm: all ranks open clusters at first, one fewer at every sync, until one is left.
    """
    generator = np.random.Generator(np.random.Philox(seed))
    n = len(x)
    rank_of = np.arange(n) * ranks // n
    z = np.zeros(n, dtype=np.int64)
    iteration = 0
    while True:
        _, z = np.unique(z, return_inverse=True)
        sizes = np.bincount(z)
        k1 = len(sizes)
        log_w = log_dirichlet(np.append(sizes, concentration).astype(float), generator)
        known = log_w[:k1] + log_density(x, [prior.draw(x[z == k], generator) for k in range(k1)])
        hot = max(1, ranks - iteration) if warm else 1
        chosen = generator.permutation(ranks)[:hot]
        for rank in range(ranks):
            mine = np.flatnonzero(rank_of == rank)
            tail: dict[int, list[int]] = {}
            for _ in range(sweeps):
                if rank not in chosen:
                    z[mine] = pick(known[mine], generator)
                    continue
                for i in mine:
                    if z[i] in tail:
                        tail[z[i]].remove(i)
                        if not tail[z[i]]:
                            del tail[z[i]]
                    m = sum(map(len, tail.values()))
                    total = n if literal else m + concentration
                    labels = list(tail)
                    weights = [np.log(len(tail[k])) + prior.log_predictive(x[i], x[tail[k]]) for k in labels]
                    fresh = np.log(concentration) + (0.0 if literal else prior.log_predictive(x[i], x[:0]))
                    logits = np.append(known[i], log_w[k1] - np.log(total) + np.array([*weights, fresh]))
                    j = int(pick(logits[None], generator)[0])
                    if j < k1:
                        z[i] = j
                        continue
                    # Labels of tail clusters are unique over ranks: (rank, first free number).
                    if j == len(logits) - 1:
                        label = next(v for v in range(k1 + rank, k1 + ranks * (n + 1), ranks) if v not in tail)
                        tail[label] = []
                    else:
                        label = labels[j - k1]
                    tail[label].append(int(i))
                    z[i] = label
        iteration += 1
        yield z.copy()


def package(x: np.ndarray, prior: Prior, concentration: float, seed: int, shards: int = 1, opening: str = "one"):
    """The package's sampler on `shards` shards in one process (the chain is the same on any number of ranks)."""
    from mpibayes.hpc.crosscat.chain import Mixture, Settings
    from mpibayes.hpc.parallel.comm import serial
    from mpibayes.io.table import table_from_arrays

    names = [f"x{d}" for d in range(x.shape[1])]
    columns, rows = table_from_arrays([(name, "real", x[:, d], None) for d, name in enumerate(names)])
    given = {"mean": prior.mean, "kappa": prior.kappa, "nu": prior.nu, "variance": prior.variance}
    settings = Settings(
        seed=seed,
        shards=shards,
        concentration=concentration,
        discount=0.0,
        sweeps_per_cycle=1,
        opening=opening,
        priors=dict.fromkeys(names, given),
    )
    mixture = Mixture(serial(), columns, lambda a, b: rows.take(np.arange(a, b)), len(x), settings)
    mixture.start("one")
    while True:
        mixture.cycle()
        yield mixture.view.labels()


def assigned(new: np.ndarray, x: np.ndarray, z: np.ndarray, prior: Prior) -> np.ndarray:
    """The most probable cluster of each new row (M, D), given labelled rows x (N, D); (M,) int64."""
    clusters = [x[z == k] for k in np.unique(z)]
    return np.argmax([np.log(len(rows)) + prior.log_predictive(new, rows) for rows in clusters], axis=0)


def f1(z: np.ndarray, truth: np.ndarray) -> float:
    """F1 score of pairs of rows put together, against the pairs that are together in truth."""
    table = np.zeros((z.max() + 1, truth.max() + 1))
    np.add.at(table, (z, truth), 1.0)

    def pairs(m):
        return (m * (m - 1.0) / 2.0).sum()

    result, real = pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    return float(2.0 * pairs(table) / (result + real)) if result + real else 1.0


def two_gaussians(n: int, dimension: int, separation: float, generator):
    """Section 3.1's data: n rows, half at separation * 1, half at -separation * 1, identity covariance."""
    truth = np.arange(n) % 2
    generator.shuffle(truth)
    return np.where(truth[:, None] == 0, -separation, separation) + generator.standard_normal((n, dimension)), truth


def stick_breaking_gaussians(n: int, dimension: int, concentration: float, prior: Prior, generator):
    """Section 3.2's data: stick-breaking weights, locations from the base measure, n rows."""
    weights, left = [], 1.0
    while left > 1e-6:
        piece = generator.beta(1.0, concentration)
        weights.append(left * piece)
        left *= 1.0 - piece
    truth = generator.choice(len(weights), size=n, p=np.array(weights) / sum(weights))
    _, truth = np.unique(truth, return_inverse=True)
    atoms = [prior.draw(np.zeros((0, dimension)), generator) for _ in range(truth.max() + 1)]
    mu, sigma2 = (np.array(part)[truth] for part in zip(*atoms))
    return mu + np.sqrt(sigma2) * generator.standard_normal(mu.shape), truth
