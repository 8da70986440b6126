"""Geweke's joint test: cycles alternate with fresh tables given the partition, and preserve the prior.

Partition, hyperparameters and table are drawn from their joint prior; then each step runs one cycle of the program on
the table and draws a new table given partition and hyperparameters (parameters from their prior).  The joint prior is
invariant, so after any number of steps every event has its prior probability, known here in closed form.  Replicates
are independent: t-tests with exact expectations, LEVEL in all (Bonferroni).  Every kind of column, with missing cells.

Geweke, J. (2004), Getting it right: joint distribution tests of posterior simulators, JASA 99.
"""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from scipy.special import gammaln

from mpibayes.hpc.components import normal
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels.mixture import updates
from tests.exact import production, wrong_cycles
from tests.exact.compare import LOOKS, replicate_means, seed
from tests.exact.enumerate import draw_prior_partition, log_law_of_clusters
from tests.laws.geweke import LEVEL, worst_event

N = 8
ALPHAS, DISCOUNTS = (0.5, 4.0), (0.0, 0.5)
SYMMETRIC = (0.2, 2.0)
MEANS, VARIANCES = (-1.0, 1.0), (0.3, 3.0)
SHAPES, RATES = (0.5, 3.0), (0.4, 2.0)
PRIORS = {
    "c": {"grid": list(SYMMETRIC)},
    "x": {"mean": list(MEANS), "kappa": [0.5], "nu": [3.0], "variance": list(VARIANCES)},
    "n": {"shape": list(SHAPES), "rate": list(RATES)},
    "x (1 or not 1)": {"grid": list(SYMMETRIC)},  # see test_recorded.py
}
LEVELS = 3
ANY = Hyper(1.0, 0.0, np.ones(1), np.array([[0.0, 0.5, 3.0, 1.0]]), np.ones((1, 2)))
HOLES = {"c": [3, 6], "x": [0, 6], "n": [5, 6]}  # row 6 has no cell at all


def draw_table(z, hyper, g):
    """Draw (columns, rows) of a table given the partition z and the hyperparameters."""
    k = z.max() + 1
    theta = g.dirichlet(np.full(LEVELS, hyper.dirichlet[0]), size=k)
    mean, kappa, nu, variance = hyper.normal[0]
    sigma2 = nu * variance / g.chisquare(nu, size=k)
    mu = mean + np.sqrt(sigma2 / kappa) * g.standard_normal(k)
    rate = g.standard_gamma(hyper.gamma[0, 0], size=k) / hyper.gamma[0, 1]
    c = np.array([g.choice(LEVELS, p=theta[j]) for j in z])
    x = mu[z] + np.sqrt(sigma2[z]) * g.standard_normal(N)
    n = g.poisson(rate[z]).astype(float)
    c[HOLES["c"]], x[HOLES["x"]], n[HOLES["n"]] = -1, np.nan, np.nan
    return table_from_arrays(
        [("c", "categorical", c, ("u", "v", "w")), ("x", "real", x, None), ("n", "count", n, None)]
    )


def draw_hyper(template, g):
    return replace(
        template,
        concentration=float(g.choice(ALPHAS)),
        discount=float(g.choice(DISCOUNTS)),
        dirichlet=np.array([g.choice(SYMMETRIC) for _ in template.dirichlet]),
        normal=np.array([[g.choice(MEANS), 0.5, 3.0, g.choice(VARIANCES)]]),
        gamma=np.array([[g.choice(SHAPES), g.choice(RATES)]]),
    )


def events(z, hyper, rows):
    """Indicators of the state whose prior probabilities `expected` knows."""
    k = len(np.unique(z))
    out = [k == j for j in range(1, N + 1)]
    out += [z[0] == z[1], z[0] == z[7], z[3] == z[4], z[6] == z[7]]
    out += [hyper.concentration == ALPHAS[0], hyper.discount == DISCOUNTS[0], hyper.dirichlet[0] == SYMMETRIC[0]]
    out += [hyper.normal[0, 0] == MEANS[0], hyper.normal[0, 3] == VARIANCES[0]]
    out += [hyper.gamma[0, 0] == SHAPES[0], hyper.gamma[0, 1] == RATES[0]]
    code = rows.codes8[:, 0]
    out += [code[0] == code[1], code[1] == code[7], rows.reals[1, 0] > 0, rows.tallies[0, 0] == 0]
    return np.array(out, dtype=float)


def expected():
    pairs = [(a, d) for a in ALPHAS for d in DISCOUNTS]
    law = np.mean([np.exp(log_law_of_clusters(N, a, d)) for a, d in pairs], axis=0)
    together = np.mean([(1 - d) / (1 + a) for a, d in pairs])
    agree = np.mean([(m + 1) / (LEVELS * m + 1) for m in SYMMETRIC])
    same_level = together * agree + (1 - together) / LEVELS
    zero = np.mean([(b / (b + 1)) ** a for a in SHAPES for b in RATES])
    return np.array([*law, *[together] * 4, *[0.5] * 7, same_level, same_level, 0.5, zero])


def geweke(
    n_shards, n_replicates, steps, default_seed, opening="one", draw=draw_table, start=ANY, law=expected, looks=1
):
    """(p, index of the worst event, z). draw, start, law: the tables, hyperparameters of one, and the events' law."""
    g = np.random.Generator(np.random.Philox(seed(default_seed)))
    start = draw(np.zeros(N, int), start, g)
    settings = Settings(
        seed=seed(default_seed), shards=n_shards, concentration=list(ALPHAS), discount=list(DISCOUNTS), opening=opening,
        priors=PRIORS, split_merge=4,
    )  # fmt: skip
    mixture = Mixture(serial(), start[0], lambda a, b: start[1].take(np.arange(a, b)), N, settings)

    def replicate(r):
        hyper = draw_hyper(mixture.view.hyper, g)
        z = draw_prior_partition(N, hyper.concentration, hyper.discount, g)
        seen = []
        for t in range(steps):
            rows = draw(z, hyper, g)[1]
            for shard in mixture.view.shards:
                shard.rows = rows.take(np.arange(shard.start, shard.start + len(shard)))
            production.place(mixture, z, r * production.STRIDE + t, hyper)
            mixture.cycle()
            z, hyper = np.unique(mixture.view.labels(), return_inverse=True)[1], mixture.view.hyper
            seen.append(events(z, hyper, rows))
        return seen

    return worst_event(replicate, lambda means: replicate_means(means, law()), n_replicates, looks)


def hyperparameters_of_scattered_rows():
    """Wrong: hyperparameters of real columns are drawn as if rows scattered twice as far."""
    right = normal.Normal.update

    def update(self, hyper, s, columns, stream):
        return right(self, hyper, (s[0], s[1], 4.0 * s[2]), columns, stream)

    return mock.patch.object(normal.Normal, "update", update)


def missing_counted_as_seen():
    """Wrong: missing categorical cells enter the denominators of the grid update."""
    right = updates.grid_scores

    def grid_scores(levels, offsets, columns, grid, base=None):
        scores = right(levels, offsets, columns, grid, base)
        for score, c in zip(scores, columns, strict=True):
            n_levels = offsets[c + 1] - offsets[c] - 1
            total = (n_levels * grid.points[: grid.n])[:, None] + levels[offsets[c] : offsets[c + 1] - 1].sum(axis=0)
            score += (gammaln(total) - gammaln(total + levels[offsets[c + 1] - 1])).sum(axis=1)
        return scores

    return mock.patch.object(updates, "grid_scores", grid_scores)


@pytest.mark.thorough
@pytest.mark.parametrize("n_shards", [1, 4])
def test_joint_prior_comes_back(n_shards):
    p, worst, z = geweke(n_shards, 40, 12, 51)
    assert p >= LEVEL, f"event {worst}, z {z:.2f} (seed {seed(51)})"


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [hyperparameters_of_scattered_rows, missing_counted_as_seen, wrong_cycles.no_anchors])
def test_wrong_programs_are_rejected(wrong):
    with wrong():
        p, worst, z = geweke(4, 40, 12, 51, looks=LOOKS)
    assert p < LEVEL, f"event {worst}, z {z:.2f}"
