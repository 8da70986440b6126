"""The Firefly kernels against their plain twin, against exact arithmetic, and where they must refuse."""

import decimal
from decimal import Decimal

import numpy as np
import pytest

from mpibayes.kernels import firefly
from mpibayes.kernels.firefly import (
    FLAT,
    GAUSSIAN,
    HMC,
    LAPLACE,
    LOGISTIC,
    MALA,
    RANDOM_WALK,
    SLICE,
    SOFTMAX,
    STUDENT,
    Lights,
    Mover,
    Rows,
    Target,
)
from mpibayes.kernels.firefly import twin as twin_firefly

from .firefly_problems import MIXED, NAMES, NU, SCALE, Problem, random_problem, record

LIKELIHOODS = pytest.mark.parametrize("likelihood", NAMES, ids=NAMES.values())
UPDATES = {"hmc": HMC, "mala": MALA, "random-walk": RANDOM_WALK, "slice": SLICE}
STEPS = {"hmc": 0.03, "mala": 0.04, "random-walk": 0.03, "slice": 0.5}
KEY = {"seed": 7, "cycle": 3, "chain": 1, "shard": 2}
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


def near(problem, size=0.3, seed=5):
    return problem.theta0 + size * np.random.default_rng(seed).normal(size=len(problem.theta0))


def both(problem, n_shards=1, untuned=False):
    return [problem.shards(kernels, n_shards, untuned) for kernels in (firefly, twin_firefly)]


# ---- against the twin ------------------------------------------------------------------------------------------------


@LIKELIHOODS
@pytest.mark.parametrize("untuned", [False, True])
@pytest.mark.parametrize("n, n_predictors", [(1, 1), (13, 5), (200, 8), (131, 51)])
def test_rows_agree_with_the_twin(likelihood, untuned, n, n_predictors):
    problem = random_problem(likelihood, n, n_predictors)
    (rows,), (twin,) = both(problem, untuned=untuned)
    rng, theta = np.random.default_rng(3), near(problem)
    np.testing.assert_allclose(rows.bounds, twin.bounds, **CLOSE)
    np.testing.assert_allclose(rows.linear(theta), twin.linear(theta), **CLOSE)
    np.testing.assert_allclose(rows.gaps(theta), twin.gaps(theta), **CLOSE)
    weights, v = rng.normal(size=n), rng.normal(size=(n, problem.n_classes))
    np.testing.assert_allclose(rows.gram(weights), twin.gram(weights), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(rows.combine(v), twin.combine(v), **CLOSE)
    gradient, expected = np.full((2, rows.n_parameters), np.nan)
    np.testing.assert_allclose(
        rows.log_likelihood(theta, gradient), twin.log_likelihood(theta, expected), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(gradient, expected, rtol=1e-11, atol=1e-11)
    assert rows.log_likelihood(theta) == rows.log_likelihood(theta, gradient)


@LIKELIHOODS
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("q", [0.0, 1e-3, 0.07, 0.5, 1.0])
def test_sweeps_agree_with_the_twin(likelihood, explicit, q):
    """Several sweeps, so that rows of every kind occur: stay bright, go dark, go bright, are hit while bright."""
    problem = random_problem(likelihood, 700)
    (rows,), (twin_rows,) = both(problem)
    lights, twin, theta = Lights(rows), twin_firefly.Lights(twin_rows), near(problem, 2.0)
    lights.draw(theta, **KEY)
    twin.draw(theta, **KEY)
    assert np.array_equal(lights.bright, twin.bright) and 10 < lights.n_bright < 600
    for cycle in range(4):
        key = {**KEY, "cycle": cycle}
        assert lights.sweep(theta, q, explicit, **key) == twin.sweep(theta, q, explicit, **key)
        assert np.array_equal(lights.bright, twin.bright) and lights.bright.dtype == np.int32
        np.testing.assert_allclose(lights.gap, twin.gap, rtol=1e-9, atol=1e-13)
        for mine, other in zip(lights.gather(), twin.gather(), strict=True):
            np.testing.assert_allclose(mine, other, **CLOSE)
        assert (lights.sweep(theta, 0.0, explicit, **key), lights.n_bright) == (0, twin.n_bright)


@LIKELIHOODS
@pytest.mark.parametrize("prior", [FLAT, GAUSSIAN, LAPLACE, MIXED], ids=["flat", "gaussian", "laplace", "mixed"])
def test_targets_agree_with_the_twin_and_with_the_model(likelihood, prior):
    """value = log prior + sum of log L + sum of log(B/L) over dark and of log(1 - B/L) over bright rows; gradients are
    those of differences."""
    problem = random_problem(likelihood, 150, prior=prior)
    theta, values = near(problem), []
    for kernels in (firefly, twin_firefly):
        shards = problem.shards(kernels, 3)
        target, lights = problem.target(kernels, shards), [kernels.Lights(rows) for rows in shards]
        for shard, one in enumerate(lights):
            one.draw(theta, **{**KEY, "shard": shard})
        target.load(lights)
        gradient = np.empty(len(theta))
        values.append((target.value(theta, gradient), *gradient))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-10, atol=1e-9)
    shards, full = problem.shards(firefly, 3), 0.0
    target, lights = problem.target(firefly, shards), [Lights(rows) for rows in shards]
    target.load_full(shards)
    for shard, rows in enumerate(shards):
        lights[shard].draw(theta, **{**KEY, "shard": shard})
        gap = rows.gaps(theta)
        dark = np.setdiff1d(np.arange(rows.n), lights[shard].bright)
        full += np.sum(-gap[dark]) + np.sum(np.log(-np.expm1(-gap[lights[shard].bright])))
    assert target.n_rows == 150
    np.testing.assert_allclose(target.value(theta) + full, values[0][0], rtol=1e-11)
    target.load(lights)
    for p, slope in enumerate(values[0][1:]):
        step = 1e-5 * np.eye(len(theta))[p]
        difference = (target.value(theta + step) - target.value(theta - step)) / 2e-5
        np.testing.assert_allclose(slope, difference, rtol=1e-5, atol=2e-5)


@pytest.mark.quick(every=4)
@LIKELIHOODS
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("white", [False, True])
@pytest.mark.parametrize("loaded", ["bright", "arrays", "full"])
def test_updates_agree_with_the_twin(likelihood, update, white, loaded):
    problem = random_problem(likelihood, 120)
    p = len(problem.theta0)
    mixing = np.random.default_rng(4).normal(size=(p, p)) / p + np.diag(np.linspace(0.5, 2, p)) if white else None
    reported = []
    for kernels in (firefly, twin_firefly):
        shards, theta = problem.shards(kernels, 2), near(problem)
        target, lights = problem.target(kernels, shards), [kernels.Lights(rows) for rows in shards]
        mover = kernels.Mover(UPDATES[update], p, mixing)
        trace = []
        for cycle in range(12):
            for shard, one in enumerate(lights):
                one.draw(theta, 3, cycle, 0, shard)
            if loaded == "bright":
                target.load(lights)
            elif loaded == "arrays":
                parts = [one.gather() for one in lights]
                target.load_arrays(
                    *(np.concatenate(a) for a in zip(*parts, strict=True)), np.array([one.n_bright for one in lights])
                )
            else:
                target.load_full(shards)
            accept, evaluations = mover.step(target, theta, STEPS[update], 3, 5, cycle, 2)
            trace.append([accept, evaluations, target.log_density, *theta])
            if loaded != "full":
                gap = np.concatenate([rows.gaps(theta)[one.bright] for rows, one in zip(shards, lights, strict=True)])
                np.testing.assert_allclose(target.gap, gap, rtol=1e-10, atol=1e-13)
        reported.append(trace)
    np.testing.assert_allclose(reported[0], reported[1], rtol=1e-7, atol=1e-8)
    assert len({tuple(row[3:]) for row in reported[0]}) > 3, "theta never moved"


@pytest.mark.parametrize("update", UPDATES)
@LIKELIHOODS
def test_cycles_agree_with_the_twin(likelihood, update):
    problem, reported = random_problem(likelihood, 100), []
    for kernels in (firefly, twin_firefly):
        shards, theta, out = problem.shards(kernels, 2), near(problem), record(15, len(problem.theta0))
        lights, target = [kernels.Lights(rows) for rows in shards], problem.target(kernels, shards)
        for shard, one in enumerate(lights):
            one.draw(theta, 1, 0, 0, shard)
        tuning = kernels.start_tuning(0.1, sum(one.n_bright for one in lights))
        mover = kernels.Mover(UPDATES[update], len(theta), np.eye(len(theta)))
        kernels.cycles(lights, target, mover, theta, tuning, 1.0, False, 3, 1, 1, 0, 15, 8, out)
        reported.append((out, tuning))
    for name, values in reported[0][0].items():
        np.testing.assert_allclose(values, reported[1][0][name], rtol=1e-7, atol=1e-8, err_msg=name)
    np.testing.assert_allclose(reported[0][1], reported[1][1], rtol=1e-9)
    assert reported[0][1][2] == 8


# ---- against exact arithmetic ----------------------------------------------------------------------------------------


def exact_gap(likelihood, x, y, theta, theta0):
    """log L - log B of one row in 60 digits, from log L itself and the bound's definition (docs/math.md 4.2)."""
    x, theta, theta0 = [Decimal(float(v)) for v in x], *(
        [[Decimal(float(v)) for v in row] for row in t] for t in (theta, theta0)
    )  # fmt: skip
    eta, at = ([sum(a * b for a, b in zip(row, x, strict=True)) for row in t] for t in (theta, theta0))
    if likelihood == LOGISTIC:
        s, xi = eta[0], abs(at[0])

        def log_cosh(u):
            return abs(u) / 2 + (1 + (-abs(u)).exp()).ln()

        tanh = (1 - (-xi).exp()) / (1 + (-xi).exp())
        a = -tanh / (4 * xi) if xi else Decimal(-1) / 8
        return -log_cosh(s) + log_cosh(xi) - a * (s * s - xi * xi)
    if likelihood == STUDENT:
        nu, r2, xi2 = Decimal(NU), (Decimal(y) - eta[0]) ** 2, (Decimal(y) - at[0]) ** 2
        spread = nu * Decimal(SCALE) ** 2
        return (nu + 1) / 2 * ((r2 - xi2) / (spread + xi2) - ((spread + r2) / (spread + xi2)).ln())
    n_k = len(eta)

    def log_sum(v):
        return max(v) + sum((e - max(v)).exp() for e in v).ln()

    g = [(e - log_sum(at)).exp() for e in at]
    d = [a - b for a, b in zip(eta, at, strict=True)]
    quadratic = (sum(v * v for v in d) - sum(d) ** 2 / n_k) / 4
    return quadratic - (log_sum(eta) - log_sum(at) - sum(a * b for a, b in zip(g, d, strict=True)))


@pytest.mark.quick(every=5)
@LIKELIHOODS
@pytest.mark.parametrize("far", [0.0, 1e-9, 1e-8, 1e-6, 1e-4, 1e-2, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("at", [0.0, 1e-4, 1.0, 30.0])
def test_gaps_near_and_far_from_touching(likelihood, far, at):
    """Gaps from 1e-18 to 1e4: the error stays below 1e-15 times the size of the terms that are subtracted."""
    rng = np.random.default_rng([int(far * 1e9), int(at * 1e4)])
    problem = random_problem(likelihood, 40, 3)
    theta0 = at * rng.normal(size=(problem.n_classes, 3))
    theta = theta0 + far * rng.normal(size=theta0.shape)
    problem.theta0 = theta0.ravel()
    (rows,) = problem.shards(firefly, 1)
    gap, eta = rows.gaps(theta.ravel()), np.abs(rows.linear(theta.ravel())).max(axis=1)
    with decimal.localcontext() as context:
        context.prec = 60
        exact = [
            float(exact_gap(likelihood, x[:3], y, theta, theta0)) for x, y in zip(problem.x, problem.y, strict=True)
        ]
    size = 1 + eta + np.abs(rows.linear(theta0.ravel())).max(axis=1) + (np.abs(rows.y) if likelihood == STUDENT else 0)
    assert (gap >= 0).all()
    np.testing.assert_array_less(np.abs(gap - exact), 2e-15 * (size + size**2 * min(1, far)) + 4e-15 * np.abs(exact))


@pytest.mark.parametrize("s", [1e-160, 1e-3, 5.0, 40.0, 800.0, 1e5, 1e100])
def test_the_likelihood_is_never_below_its_bound(s):
    """Logistic, touching points 0 to 800: the bound on its own is at most L, up to rounding (docs/math.md 4.2)."""
    x = np.zeros((600, 8), np.float32)
    x[:, 0] = np.concatenate([np.linspace(-1, 1, 599), [0]])
    rows = Rows(LOGISTIC, x, np.ones(600), 1)
    for xi in (0.0, 1e-4, 1.5, 30.0, 800.0):
        rows.untune(xi)
        a, c = rows.bounds.T
        eta = rows.linear([s])[:, 0]
        log_l = eta / 2 - np.logaddexp(eta / 2, -eta / 2)
        assert (log_l - (a * eta**2 + eta / 2 + c) > -1e-13 * (1 + np.abs(log_l) + xi)).all()
        assert (rows.gaps([s]) >= 0).all()


def one_row_target(likelihood, gap_of_zero=False):
    """A single bright row with x = 1, tuned at 1, a flat prior and no bounds: value = log L~."""
    problem = Problem(
        likelihood, 1, 2 if likelihood == SOFTMAX else 1, np.eye(1, 8, dtype=np.float32), np.ones(1), None
    )
    problem.theta0 = np.ones(problem.n_classes)
    if likelihood == SOFTMAX:
        problem.theta0[1] = 0.25
    (rows,) = problem.shards(firefly, 1)
    p = problem.n_classes
    target = Target(
        likelihood, 1, p, NU, SCALE, problem.theta0, np.zeros((1, 1)), np.zeros((p, p)), np.zeros(p), 0.0, FLAT,
        np.ones(p),
    )  # fmt: skip
    lights = Lights(rows)
    lights.set_bright(np.array([0]))
    target.load([lights])
    return rows, lights, target, problem.theta0


@LIKELIHOODS
def test_log_brightness_where_the_naive_form_overflows(likelihood):
    """log(e^gap - 1): gaps of 1e-14 to 1e5; and -infinity, never NaN, where the gap is 0."""
    rows, lights, target, theta0 = one_row_target(likelihood)
    for far in (1e-6, 1e-3, 1.0, 40.0, 700.0, 2e3):
        theta = theta0.copy()
        theta[0] += far
        gap, gradient = rows.gaps(theta)[0], np.empty(len(theta))
        assert gap > 0
        expected = np.log(np.expm1(gap)) if gap < 700 else gap
        np.testing.assert_allclose(target.value(theta, gradient), expected, rtol=1e-14, atol=1e-14)
        assert np.isfinite(gradient).all()
    theta = theta0.copy()
    assert rows.gaps(theta)[0] < 1e-15
    if rows.gaps(theta)[0] == 0:
        assert target.value(theta) == -np.inf
        lights.refresh(theta)
        assert lights.sweep(theta, 0.5, False, **KEY) <= 1 and lights.n_bright == 0, "it has to go dark"
        lights.draw(theta, **KEY)
        assert lights.n_bright == 0
        lights.set_bright(np.array([0]))
        target.load([lights])
    for broken in (np.nan, np.inf, -np.inf, 1e200):
        theta[0] = broken
        assert not target.value(theta) < np.inf or target.value(theta) == -np.inf


@pytest.mark.parametrize("update", UPDATES)
@LIKELIHOODS
def test_a_state_that_is_not_finite_is_rejected(likelihood, update):
    """Steps so long that every proposal overflows: theta stays, and the numbers told are finite."""
    _, _, target, theta0 = one_row_target(likelihood)
    theta, mover = theta0 + 0.5, Mover(UPDATES[update], len(theta0))
    if likelihood == SOFTMAX:
        theta[0] += 1
    start = theta.copy()
    for cycle in range(5):
        accept, _ = mover.step(target, theta, 1e250, 3, 1, cycle, 0)
        assert np.isfinite(target.log_density)
        assert update == "slice" or (accept == 0 and np.array_equal(theta, start))


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_what_remote_raises_comes_out():
    problem = random_problem(LOGISTIC, 50)
    shards = problem.shards(firefly, 2)
    target, theta, calls = problem.target(firefly, shards), near(problem), []

    def remote(at, gradient):
        calls.append(at)
        if len(calls) > 2:
            raise RuntimeError("the other rank is gone")
        if gradient is not None:
            gradient[:] = 0
        return 0.0

    target.remote = remote
    with pytest.raises(RuntimeError, match="the other rank is gone"):
        Mover(HMC, 5).step(target, theta, 0.1, 6, 1, 0, 0)
    assert len(calls) == 3
    with pytest.raises(RuntimeError, match="the other rank is gone"):
        target.value(theta)
    target.remote = None
    target.load([Lights(rows) for rows in shards])
    assert np.isfinite(target.value(theta))


def test_refusals():
    problem = random_problem(LOGISTIC, 20)
    (rows,) = problem.shards(firefly, 1)
    lights, target = Lights(rows), problem.target(firefly, [rows])
    with pytest.raises(ValueError, match="float32 array of 8 columns"):
        Rows(LOGISTIC, problem.x.astype(float), problem.y, 5)
    with pytest.raises(ValueError, match="-1 and"):
        Rows(LOGISTIC, problem.x, np.zeros(20), 5)
    with pytest.raises(ValueError, match=r"classes 0\.\.2"):
        Rows(SOFTMAX, problem.x, problem.y, 5, 3)
    with pytest.raises(ValueError, match="beyond its 3 predictors"):
        Rows(LOGISTIC, problem.x, problem.y, 3)
    with pytest.raises(ValueError, match="ascending positions below 20"):
        lights.set_bright(np.array([3, 3]))
    with pytest.raises(ValueError, match="ascending positions below 20"):
        lights.set_bright(np.array([3, 20]))
    with pytest.raises(ValueError, match="not a probability"):
        lights.sweep(problem.theta0, 1.5, False, **KEY)
    target.load([lights])
    lights.set_bright(np.array([3, 4]))
    with pytest.raises(ValueError, match="load them again"):
        target.value(problem.theta0)
    with pytest.raises(ValueError, match="add up to 3, not to 2"):
        target.load_arrays(*lights.gather(), np.array([3]))
    with pytest.raises(ValueError, match="another model"):
        target.load([Lights(random_problem(STUDENT).shards(firefly, 1)[0])])
    with pytest.raises(ValueError, match="to write to"):
        Mover(HMC, 5).step(target, list(problem.theta0), 0.1, 1, 0, 0, 0)
    with pytest.raises(ValueError, match="theta has shape"):
        rows.gaps(np.zeros(4))
