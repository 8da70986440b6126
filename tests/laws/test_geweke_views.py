"""Geweke's joint test of several views: columns' views, rows' partitions and hyperparameters come back to their prior.

As test_geweke.py: they are drawn from their joint prior; then each step draws a fresh table given them, and runs one
cycle of the program, in which rows and columns move, views split and merge. Three columns, one of each kind, with
missing cells. Replicates are independent: t-tests with exact expectations, LEVEL in all (Bonferroni).
"""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.columns.cells import Held
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays
from tests.exact import crosscat
from tests.exact.compare import LOOKS, replicate_means, seed
from tests.exact.enumerate import draw_prior_partition, log_eppf, log_law_of_clusters, partitions
from tests.exact.test_crosscat import hypers_left_behind
from tests.exact.view_transitions import cores
from tests.laws.geweke import LEVEL, worst_event
from tests.laws.test_geweke import LEVELS, MEANS, PRIORS, RATES, SHAPES, SYMMETRIC, VARIANCES

REPLICATES = 50
N = 6
NAMES = ("c", "x", "n")
HOLES = {"c": [3], "x": [0, 5], "n": [4, 5]}
PROCESS = {name: list(points) for name, points in crosscat.GRIDS.items()}


def points(of):
    return [(a, d) for a in PROCESS[of + "concentration"] for d in PROCESS[of + "discount"]]


def draw_hypers(g):
    """Draw the hyperparameters of each column."""
    return [
        np.array(g.choice(SYMMETRIC)),
        np.array([g.choice(MEANS), 0.5, 3.0, g.choice(VARIANCES)]),
        np.array([g.choice(SHAPES), g.choice(RATES)]),
    ]


def draw_table(labels, hypers, g):
    """Draw (columns, rows) of a table given each column's partition and hyperparameters."""
    (z_c, z_x, z_n), (symmetric, (mean, kappa, nu, variance), (shape, rate)) = labels, hypers
    theta = g.dirichlet(np.full(LEVELS, float(symmetric)), size=N)
    sigma2 = nu * variance / g.chisquare(nu, size=N)
    mu = mean + np.sqrt(sigma2 / kappa) * g.standard_normal(N)
    c = np.array([g.choice(LEVELS, p=theta[k]) for k in z_c])
    x = mu[z_x] + np.sqrt(sigma2[z_x]) * g.standard_normal(N)
    n = g.poisson((g.standard_gamma(shape, size=N) / rate)[z_n]).astype(float)
    c[HOLES["c"]], x[HOLES["x"]], n[HOLES["n"]] = -1, np.nan, np.nan
    return table_from_arrays(
        [("c", "categorical", c, ("u", "v", "w")), ("x", "real", x, None), ("n", "count", n, None)]
    )


def events(views, labels, hypers, process):
    """Indicators of the state whose prior probabilities `expected` knows."""
    first = {}
    views = [first.setdefault(v, len(first)) for v in views]
    out = [views == list(v) for v in partitions(3).tolist()]
    out += [process[0] == PROCESS["view_concentration"][0], process[1] == PROCESS["view_discount"][0]]
    for z in labels:
        out += [len(set(z)) == k for k in range(1, N + 1)] + [z[0] == z[1], z[3] == z[5]]
    symmetric, normal, gamma = hypers
    out += [symmetric == SYMMETRIC[0], normal[0] == MEANS[0], normal[3] == VARIANCES[0]]
    out += [gamma[0] == SHAPES[0], gamma[1] == RATES[0]]
    return np.array(out, float)


def expected():
    views = [np.mean([np.exp(log_eppf(np.bincount(v), *p)) for p in points("view_")]) for v in partitions(3)]
    clusters = np.mean([np.exp(log_law_of_clusters(N, *p)) for p in points("")], axis=0)
    together = np.mean([(1 - d) / (1 + a) for a, d in points("")])
    return np.array([*views, 0.5, 0.5, *[*clusters, together, together] * 3, *[0.5] * 5])


def geweke(n_shards, n_replicates, steps, default_seed, looks=1):
    """(p, index of the worst event, z)."""
    g = np.random.Generator(np.random.Philox(seed(default_seed)))
    columns, rows = draw_table(np.zeros((3, N), int), draw_hypers(g), g)
    settings = Settings(
        seed=seed(default_seed), shards=n_shards, priors=PRIORS, split_merge=1, column_moves=1, **PROCESS
    )
    mixture = Mixture(serial(), columns, lambda a, b: rows.take(np.arange(a, b)), N, settings)
    units = [(name,) for name in NAMES]

    def draw(n, of):
        return draw_prior_partition(n, *points(of)[g.integers(len(points(of)))], g)

    def replicate(r):
        views, hypers = draw(3, "view_"), draw_hypers(g)
        labels = np.array([draw(N, "") for _ in range(3)])[views]
        crosscat.place(mixture, units, views.tolist(), labels, r * crosscat.STRIDE, hypers)
        seen = []
        for t in range(steps):
            _, rows = draw_table(np.array(labels), hypers, g)
            held = Held(mixture.columns, [rows.take(np.arange(s.start, s.start + len(s))) for s in mixture.shards])
            for view in mixture.views:
                cells = mixture.of_columns(view.columns, [held])[2]
                for i, shard in enumerate(view.shards):
                    shard.rows = cells(i)
            mixture.resume(r * crosscat.STRIDE + t)
            mixture.cycle()
            views, labels = crosscat.state(mixture, units)
            hypers = crosscat.hypers_of(mixture, units)
            seen.append(events(views, labels, hypers, mixture.process))
        return seen

    return worst_event(replicate, lambda means: replicate_means(means, expected()), n_replicates, looks)


@pytest.mark.thorough
def test_joint_prior_of_views_comes_back():
    with cores(3):
        p, worst, z = geweke(3, REPLICATES, 6, 161)
    assert p >= LEVEL, f"event {worst}, z {z:.2f} (seed {seed(161)})"


@pytest.mark.thorough
def test_hyperparameters_left_behind_are_rejected():
    with hypers_left_behind(), cores(3):
        p, worst, z = geweke(3, REPLICATES, 6, 161, LOOKS)
    assert p < LEVEL, f"event {worst}, z {z:.2f}"
