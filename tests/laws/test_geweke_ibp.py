"""Geweke's joint test of features: hyperparameters and features come back to their prior, with missing cells.

As test_geweke.py: all is drawn from the joint prior; then each step runs one cycle of the program, and draws a fresh
table given features and hyperparameters, loadings from their prior. Exact expectations, LEVEL in all.
"""

from unittest import mock

import numpy as np
import pytest
from scipy import stats

from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.state import Gamma, Hyper, InverseGamma, Settings
from mpibayes.hpc.parallel.comm import serial
from tests.exact.compare import LOOKS, event_means, seed
from tests.exact.ibp import draw_prior, harmonic
from tests.exact.program_ibp import no_anchors
from tests.laws.geweke import LEVEL, worst_event

N, D = 7, 3
MASS, NOISE, FEATURE = Gamma(6.0, 3.0), InverseGamma(3.0, 4.0), InverseGamma(3.0, 2.0)
CS = (0.4, 3.0)
HOLES = np.zeros((N, D), bool)
HOLES[[0, 2, 5, 5, 5], [1, 0, 0, 1, 2]] = True  # row 5 has no cell at all


def draw_state(noise, g):
    """(features, hyper) from the prior."""
    alpha, c = g.gamma(MASS.shape) / MASS.rate, float(g.choice(CS))
    noises = NOISE.scale / g.gamma(NOISE.shape, size=D)
    if noise == "shared":
        noises[:] = noises[0]
    feature = FEATURE.scale / g.gamma(FEATURE.shape)
    return draw_prior(N, alpha, c, g), Hyper(float(alpha), c, np.sqrt(noises), float(np.sqrt(feature)), noise)


def draw_table(features, hyper, g):
    unit = hyper.noise_sd if hyper.noise == "column" else 1.0
    loadings = g.standard_normal((features.shape[1], D)) * hyper.feature_sd * unit
    return features @ loadings + g.standard_normal((N, D)) * hyper.noise_sd


QUARTERS = [0.25, 0.5, 0.75]
MASS_BOUNDS = stats.gamma(MASS.shape, scale=1.0 / MASS.rate).ppf(QUARTERS)
NOISE_BOUNDS, FEATURE_BOUNDS = (stats.invgamma(law.shape, scale=law.scale).ppf(QUARTERS) for law in (NOISE, FEATURE))


def events(features, hyper):
    """Indicators of the state whose prior probabilities `expected` knows."""
    k, shared = features.shape[1], features.astype(int) @ features.T.astype(int)
    out = [k == value for value in range(10)]
    out += [shared[0, 0] == 0, shared[N - 1, N - 1] == 0, shared[0, 3] == 0, shared[4, 5] == 0]
    out += [hyper.c == CS[0], hyper.c == CS[0] and k <= 4]
    out += [hyper.alpha < b for b in MASS_BOUNDS]
    out += [v**2 < b for v in hyper.noise_sd for b in NOISE_BOUNDS]
    out += [hyper.feature_sd**2 < b for b in FEATURE_BOUNDS]
    return np.array(out, float)


def expected():
    def of_k(c):  # a Gamma mixture of Poissons
        return stats.nbinom(MASS.shape, MASS.rate / (MASS.rate + harmonic(N, c)))

    def none(rate):  # probability of no feature with this rate per unit of mass
        return (MASS.rate / (MASS.rate + rate)) ** MASS.shape

    laws = [of_k(c) for c in CS]
    together = np.mean([none(1.0 / (1.0 + c)) for c in CS])  # Beta process: the mean of mu^2 is alpha / (1 + c)
    return np.array(
        [
            *np.mean([law.pmf(np.arange(10)) for law in laws], axis=0),
            *[none(1.0)] * 2,
            *[together] * 2,
            *[0.5, 0.5 * laws[0].cdf(4)],
            *QUARTERS * (D + 2),
        ]
    )


def geweke(noise, n_shards, opening, n_replicates, steps, default_seed, looks=1):
    """(p, index of the worst event, z)."""
    g = np.random.Generator(np.random.Philox(seed(default_seed)))
    settings = Settings(
        seed=seed(default_seed), shards=n_shards, alpha=MASS, c=CS, noise_sd=NOISE, feature_sd=FEATURE, noise=noise,
        opening=opening, sweeps_per_cycle=2,
    )  # fmt: skip
    buffet = Buffet(serial(), lambda a, b: np.where(HOLES, np.nan, 0.0)[a:b], N, D, settings)

    def replicate(r):
        features, hyper = draw_state(noise, g)
        seen = []
        for t in range(steps):
            table = draw_table(features, hyper, g)
            for shard in buffet.shards:
                shard.rows.x[:, :D] = table[buffet.starts[shard.index] : buffet.starts[shard.index + 1]]
            buffet.place(features, hyper, table, 1000 * r + t)
            buffet.cycle()
            features, hyper = buffet.features()[:, buffet.totals.owned > 0], buffet.hyper
            seen.append(events(features, hyper))
        return seen

    return worst_event(replicate, lambda means: event_means(means, expected()), n_replicates, looks)


@pytest.mark.quick("shared-3-one")
@pytest.mark.parametrize(
    "noise, n_shards, opening",
    [("shared", 1, "one"), ("shared", 3, "one"), ("column", 3, "all"), ("column", 7, "one")],
    ids=["shared-1-one", "shared-3-one", "column-3-all", "column-7-one"],
)
def test_joint_prior_comes_back(noise, n_shards, opening):
    p, worst, z = geweke(noise, n_shards, opening, 120, 8, 241)
    assert p >= LEVEL, f"event {worst}, z {z:.2f} (seed {seed(241)})"


def loadings_by_shared_noise():
    """Wrong: the loadings' prior is in units of the first column's noise, although every column has its own."""
    return mock.patch.object(update, "prior_variance", lambda h: float(h.feature_sd**2 / h.noise_sd[0] ** 2))


def noise_without_degrees():
    """Wrong: the loadings add to the sum of squares of a column's noise, but not to its degrees of freedom."""
    right = update.learn

    def learn(settings, totals, n, hyper, law, scale):
        hyper, a = right(settings, totals, n, hyper, law, scale)
        left = totals.squares - 2.0 * (a * totals.cells).sum(axis=0) + ((totals.together @ a) * a).sum(axis=0)
        left = left + (a**2).sum(axis=0) / hyper.feature_sd**2
        hyper.noise_sd = np.sqrt((NOISE.scale + 0.5 * left) / scale.gamma(NOISE.shape + 0.5 * n, size=D))
        return hyper, a

    return mock.patch.object(update, "learn", learn)


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [no_anchors, loadings_by_shared_noise, noise_without_degrees])
def test_wrong_programs_are_rejected(wrong):
    with wrong():
        p, worst, z = geweke("column", 3, "all", 200, 8, 241, LOOKS)
    assert p < LEVEL, f"event {worst}, z {z:.2f}"
