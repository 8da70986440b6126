"""Geweke's joint test (see test_geweke.py) on a table with a block of two columns beside a categorical one.

Partition, hyperparameters and table are drawn from their joint prior; steps alternate a cycle of the program with a
fresh table given partition and hyperparameters. After any number of steps every event has its prior probability.
Replicates are independent: t-tests with exact expectations, LEVEL in all (Bonferroni).
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.data.rows import Carve, in_blocks
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays
from tests.exact import production, wrong_vectors
from tests.exact.compare import LOOKS, replicate_means, seed
from tests.exact.enumerate import draw_prior_partition, log_law_of_clusters
from tests.laws.geweke import LEVEL, worst_event

N = 7
ALPHAS = (0.5, 4.0)
KAPPAS, NUS, VARIANCES = (0.2, 2.0), (2.2, 6.0), (0.2, 1.5)
BLOCKS = {
    "g": {
        "columns": ("a", "b"),
        "prior": {"kappa": list(KAPPAS), "nu": list(NUS), "variance": list(VARIANCES), "mean": [0.5, -1.0]},
    }
}
PRIORS = {"c": {"dirichlet": [0.8, 0.8]}}
MISSING = [2, 5]  # rows without the block


def draw_table(z, wishart, square, g):
    """Draw cells (N, 2) of the block and codes of the other column, given the partition z; square: of the columns'
    scale."""
    kappa, nu, variance = wishart
    spread = nu * variance * square
    x = np.empty((N, 2))
    for k in range(z.max() + 1):
        covariance = stats.invwishart.rvs(nu, np.diag(spread), random_state=g)
        mean = g.multivariate_normal([0.5, -1.0], covariance / kappa)
        part = z == k
        x[part] = g.multivariate_normal(mean, covariance, size=part.sum())
    theta = g.dirichlet([0.8, 0.8], size=z.max() + 1)
    code = (g.random(N) < theta[z, 1]).astype(np.int64)
    x[MISSING] = np.nan
    return x, code


def table(x, code):
    columns = [("a", "real", x[:, 0], None), ("b", "real", x[:, 1], None), ("c", "categorical", code, ("u", "v"))]
    return table_from_arrays(columns)


def events(z, hyper, x):
    k = len(np.unique(z))
    out = [k == j for j in range(1, N + 1)]
    out += [z[0] == z[1], z[2] == z[6], z[3] == z[4], hyper.concentration == ALPHAS[0]]
    out += [hyper.wishart[0, i] == grid[0] for i, grid in enumerate((KAPPAS, NUS, VARIANCES))]
    return np.array([*out, x[0, 0] > 0.5, x[1, 1] > -1.0], dtype=float)


def expected():
    law = np.mean([np.exp(log_law_of_clusters(N, a, 0.0)) for a in ALPHAS], axis=0)
    together = np.mean([1.0 / (1.0 + a) for a in ALPHAS])
    return np.array([*law, *[together] * 3, *[0.5] * 6])


def geweke(n_shards, n_replicates, steps, default_seed, looks=1):
    """(p, index of the worst event, z)."""
    g = np.random.Generator(np.random.Philox(seed(default_seed)))
    columns, rows = table(*draw_table(np.zeros(N, int), (0.2, 6.0, 0.2), np.ones(2), g))
    carve = Carve(columns, BLOCKS)
    settings = Settings(
        seed=seed(default_seed),
        shards=n_shards,
        concentration=list(ALPHAS),
        priors=PRIORS,
        blocks=BLOCKS,
        split_merge=4,
    )
    carved = carve(rows)
    made = Mixture(serial(), in_blocks(columns, BLOCKS), lambda a, b: carved.take(slice(a, b)), N, settings)
    square = made.view.components.multinormal.blocks[0].square  # the scale of S_0 is that of the first table throughout

    def replicate(r):
        wishart = np.array([[g.choice(KAPPAS), g.choice(NUS), g.choice(VARIANCES)]])
        hyper = replace(made.view.hyper, concentration=float(g.choice(ALPHAS)), wishart=wishart)
        z = draw_prior_partition(N, hyper.concentration, 0.0, g)
        seen = []
        for t in range(steps):
            x, code = draw_table(z, hyper.wishart[0], square, g)
            fresh = carve(table(x, code)[1])
            for shard in made.view.shards:
                shard.rows = fresh.take(np.arange(shard.start, shard.start + len(shard)))
            production.place(made, z, r * production.STRIDE + t, hyper)
            made.cycle()
            z, hyper = np.unique(made.view.labels(), return_inverse=True)[1], made.view.hyper
            seen.append(events(z, hyper, x))
        return seen

    return worst_event(replicate, lambda means: replicate_means(means, expected()), n_replicates, looks)


@pytest.mark.thorough
@pytest.mark.parametrize("n_shards", [1, 3])
def test_joint_prior_comes_back(n_shards):
    p, worst, z = geweke(n_shards, 40, 10, 71)
    assert p >= LEVEL, f"event {worst}, z {z:.2f} (seed {seed(71)})"


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [wrong_vectors.one_degree_short, wrong_vectors.scatter_about_the_prior])
def test_wrong_programs_are_rejected(wrong):
    with wrong():
        p, worst, z = geweke(3, 40, 10, 71, LOOKS)
    assert p < LEVEL, f"event {worst}, z {z:.2f}"
