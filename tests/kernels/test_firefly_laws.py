"""The laws that the Firefly kernels claim: brightness given theta, and the joint chain's known expectations.

MPIBAYES_TEST_SEED sets another seed. Each test's false-alarm rate is stated; wrong sweeps (docs/math.md 4.3) must be
rejected by the same test.
"""

import os

import numpy as np
import pytest
from scipy.stats import binom, norm

from mpibayes.kernels import firefly
from mpibayes.kernels.firefly import GAUSSIAN, HMC, LOGISTIC, MALA, RANDOM_WALK, SLICE, Lights, Mover, Rows
from mpibayes.kernels.firefly import twin as twin_firefly

from .firefly_problems import NAMES, random_problem, record

LEVEL = 1e-4
SEED = int(os.environ.get("MPIBAYES_TEST_SEED", "30"))

# ---- z given theta ---------------------------------------------------------------------------------------------------


def frequencies(family, way, n_sweeps=2000, n=50):
    """(counts, probabilities, n_sweeps): how often each row was bright after one sweep from its law, theta fixed."""
    problem = random_problem(family, n)
    (rows,) = problem.shards(firefly, 1, untuned=True)
    theta = problem.theta0 + 1.0
    lights, counts = Lights(rows), np.zeros(n, int)
    for i in range(n_sweeps):
        lights.draw(theta, SEED, 2 * i, 0, 0)
        if way == "stale":  # wrong: bright rows go dark by gaps that are not those at theta
            lights.set_gap(lights.gap * 0.7)
            lights.sweep(theta, 0.3, False, SEED, 2 * i + 1, 0, 0)
        elif way != "draw":
            lights.sweep(theta, {"rare": 0.03, "often": 0.6}[way[1]], way[0] == "explicit", SEED, 2 * i + 1, 0, 0)
        counts[lights.bright] += 1
    return counts, -np.expm1(-rows.gaps(theta)), n_sweeps


def binomial_p(counts, probabilities, n):
    """The least two-sided p-value of the counts, times how many there are (Bonferroni)."""
    tail = np.minimum(binom.cdf(counts, n, probabilities), binom.sf(counts - 1, n, probabilities))
    return min(1.0, 2 * tail.min() * len(counts))


WAYS = ["draw", *((z, q) for z in ("implicit", "explicit") for q in ("rare", "often"))]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("family", NAMES, ids=NAMES.values())
def test_brightness_has_its_law(family, way):
    """Each row's frequency against 1 - exp(-gap): binomial, Bonferroni over rows. False alarms: 1e-4 a test."""
    counts, probabilities, n = frequencies(family, way)
    assert 0.02 < probabilities.mean() < 0.95
    p = binomial_p(counts, probabilities, n)
    assert p > LEVEL, f"p = {p}; MPIBAYES_TEST_SEED={SEED}"


def test_stale_gaps_are_noticed():
    assert binomial_p(*frequencies(LOGISTIC, "stale")) < LEVEL


@pytest.mark.parametrize("explicit", [False, True])
def test_sweeps_forget_how_they_began(explicit):
    """From all dark, 60 sweeps with q = 0.3 lead to the law as well. False alarms: 1e-4 a test."""
    problem, n = random_problem(LOGISTIC, 40), 600
    (rows,) = problem.shards(firefly, 1, untuned=True)
    theta, lights, counts = problem.theta0 + 1.0, Lights(rows), np.zeros(40, int)
    for i in range(n):
        lights.set_bright(np.empty(0, np.int32))
        for sweep in range(60):
            lights.sweep(theta, 0.3, explicit, SEED + i, sweep, 0, 0)
        counts[lights.bright] += 1
    assert binomial_p(counts, -np.expm1(-rows.gaps(theta)), n) > LEVEL, f"MPIBAYES_TEST_SEED={SEED}"


@pytest.mark.parametrize("q", [0.002, 0.1, 0.9])
def test_queries_have_their_mean(q):
    """All rows dark with a gap of 0: queries are Binomial(n, q). False alarms: 1e-4 a test."""
    rows = Rows(LOGISTIC, np.zeros((1000, 8), np.float32), np.ones(1000), 1)
    lights, n = Lights(rows), 300
    total = sum(lights.sweep([1.0], q, i % 2 == 0, SEED, i, 0, 0) for i in range(n))
    assert 2 * min(binom.cdf(total, 1000 * n, q), binom.sf(total - 1, 1000 * n, q)) > LEVEL, (
        f"MPIBAYES_TEST_SEED={SEED}"
    )


# ---- theta and z together: logistic24 of tests/exact/numbers.md ------------------------------------------------------

VALUES = np.array([2.04, -2.56, 0.42, -0.57, -0.45, -0.22, -2.02, -0.23, -0.87, 3.32, 0.23, -0.35, -0.28, -0.67, -1.06,
                   -0.39, 0.48, -0.24, 0.96, -0.2, 0.02, 1.55, 0.55, -0.51])  # fmt: skip
SIGNS = "+-+-+--+-++-+--+--+--+-+"
MEAN, N_BRIGHT, ABOVE_ONE, VARIANCES = (1.587820, -0.046412), 1.741505, 0.79297, (0.495016, 0.237262)


def logistic24(kernels=firefly):
    """(lights, target): untuned bounds at 1.5, prior N(0, 4 I)."""
    x = np.zeros((24, 8), np.float32)
    x[:, 0], x[:, 1] = VALUES, 1
    y = np.array([1.0 if sign == "+" else -1.0 for sign in SIGNS])
    rows = kernels.Rows(LOGISTIC, x, y, 2)
    rows.untune(1.5)
    a, c = rows.bounds.T
    target = kernels.Target(
        LOGISTIC, 2, 1, 4.0, 1.0, np.zeros(2), rows.gram(-2 * a), np.eye(1), rows.combine(y[:, None] / 2), c.sum(),
        GAUSSIAN, np.full(2, 2.0),
    )  # fmt: skip
    return kernels.Lights(rows), target


def batch_z(values, exact, n_batches=100):
    """Standardised distance of a chain's mean from the exact one, by batch means."""
    means = values[: len(values) // n_batches * n_batches].reshape(n_batches, -1).mean(axis=1)
    return (means.mean() - exact) / (means.std(ddof=1) / np.sqrt(n_batches))


@pytest.mark.quick(every=4)
@pytest.mark.parametrize("z", ["regular", *((z, q) for z in ("implicit", "explicit") for q in (0.1, 0.5))], ids=str)
@pytest.mark.parametrize("kind, step", [(HMC, 0.35), (MALA, 0.6), (RANDOM_WALK, 0.9), (SLICE, 2.0)])
def test_logistic24(kind, step, z):
    """Means of theta, its square, P(theta_1 > 1) and the bright count, each at level 1e-5: 6e-5 a test."""
    how, q = ("regular", 0.0) if z == "regular" else z
    lights, target = logistic24()
    theta, n = np.array(MEAN), 60_000
    lights.draw(theta, SEED, 0, 0, 0)
    if how == "regular":
        target.load_full([lights.rows])
    out, mover = record(n, 2), Mover(kind, 2, np.array([[0.7, 0.0], [0.08, 0.48]]))
    firefly.cycles(
        [] if how == "regular" else [lights], target, mover, theta, firefly.start_tuning(step, 1.7), -q,
        how == "explicit", 3, SEED, 1, 0, n, 0, out,
    )  # fmt: skip
    theta = out["theta"]
    checks = {
        "theta_1": (theta[:, 0], MEAN[0]), "theta_2": (theta[:, 1], MEAN[1]),
        "theta_1^2": (theta[:, 0] ** 2, VARIANCES[0] + MEAN[0] ** 2),
        "theta_2^2": (theta[:, 1] ** 2, VARIANCES[1] + MEAN[1] ** 2),
        "above one": (theta[:, 0] > 1.0, ABOVE_ONE), "bright": (out["bright"], N_BRIGHT),
    }  # fmt: skip
    if how == "regular":
        del checks["bright"]
    z = {name: batch_z(np.asarray(values, float), exact) for name, (values, exact) in checks.items()}
    assert max(map(abs, z.values())) < norm.isf(0.5e-5), f"{z}; MPIBAYES_TEST_SEED={SEED}"


def test_the_printed_inequality_is_noticed():
    """The twin with Algorithm 2 as printed (bright if L~ / q < u) is far from the law (docs/math.md 4.3)."""
    rows, theta = logistic24(twin_firefly)[0].rows, np.array(MEAN)
    rng, gap, counts, bright = np.random.default_rng(SEED), rows.gaps(theta), np.zeros(24), np.zeros(24, bool)
    brightness, q, n = np.expm1(gap), 0.1, 2000
    for _ in range(n):
        u = rng.random((2, 24))
        bright = np.where(bright, u[0] * brightness >= q, (u[1] < q) & (rng.random(24) > brightness / q))
        counts += bright
    assert binomial_p(counts, -np.expm1(-gap), n) < LEVEL
