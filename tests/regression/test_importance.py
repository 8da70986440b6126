"""Laplace importance sampling against exact integrals, and its diagnostics against known cases and ArviZ."""

import numpy as np
import pytest

from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.regression.likelihoods import Logistic, StudentT
from mpibayes.hpc.regression.mode.fit import fit
from mpibayes.hpc.regression.mode.importance import fit_pareto, importance_sample, kish, pareto_smoothed
from mpibayes.hpc.regression.prior import Prior
from tests.regression.problems import LIKELIHOODS, dealt, rows_of, seed, simulate
from tests.regression.test_fit import LOGISTIC24


def test_kish():
    assert kish(np.ones(50)) == 50.0
    assert kish(np.array([1.0, 0.0, 0.0])) == 1.0
    assert kish(np.array([3.0, 1.0])) == pytest.approx(16 / 10)


@pytest.mark.parametrize("k", [-0.3, 0.0, 0.3, 0.7, 1.2])
def test_the_shape_of_a_pareto_sample_is_found(k):
    """Standard error of k about (1 + k) / sqrt(n); five of them."""
    u = np.sort(np.random.default_rng(seed(8)).random(4_000))
    x = 2.0 * (-np.log1p(-u) if k == 0 else np.expm1(-k * np.log1p(-u)) / k)
    result, sigma = fit_pareto(x)
    assert result == pytest.approx(k, abs=5 * (1 + abs(k)) / 4_000**0.5)
    assert sigma == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0, 8.0])
def test_smoothing_as_arviz_does_it(spread):
    arviz = pytest.importorskip("arviz")
    log_weight = spread * np.random.default_rng(seed(9)).normal(size=1_000)
    log_weight -= log_weight.max()
    weight, k = pareto_smoothed(log_weight)
    expected, expected_k = arviz.psislw(log_weight.copy())
    assert k == pytest.approx(float(expected_k), abs=1e-9)
    np.testing.assert_allclose(weight / weight.sum(), np.exp(np.asarray(expected)), rtol=1e-9)


def test_weights_that_need_no_smoothing():
    weight, k = pareto_smoothed(np.zeros(100))
    assert k == -np.inf and np.array_equal(weight, np.ones(100))
    weight, k = pareto_smoothed(np.log(np.arange(1.0, 11.0) / 10))
    assert np.isnan(k) and weight[-1] == 1.0


def test_logistic24_against_its_quadrature():
    """tests/exact/numbers.md: means, variances; the error of 20,000 draws is 0.005 of a deviation."""
    pairs = [pair.split(":") for pair in LOGISTIC24.split()]
    x = np.zeros((24, 8), np.float32)
    x[:, 0], x[:, 1] = [float(value) for value, _ in pairs], 1.0
    likelihood, prior = Logistic(2), Prior.of("gaussian", 2.0, 2)
    rows = [(0, rows_of(likelihood, x, np.array([1.0 if sign == "+" else -1.0 for _, sign in pairs])))]
    result = importance_sample(serial(), rows, 1, fit(serial(), rows, 1, prior), prior, 20_000, seed(1))
    np.testing.assert_allclose(result.mean, [1.587820, -0.046412], atol=0.03)
    np.testing.assert_allclose(result.sd**2, [0.495016, 0.237262], rtol=0.06)
    assert result.reliable and result.n_effective > 10_000 and result.weight.sum() == pytest.approx(1.0)


def test_a_normal_posterior_needs_no_weights():
    """Its evidence is known: the normal integral."""
    likelihood, prior = StudentT(6, nu=1e7, scale=0.5), Prior.of("gaussian", 0.7, 6)
    x, y = simulate(LIKELIHOODS["student-t"], 200)
    rows = dealt(serial(), likelihood, x, y)
    mode = fit(serial(), rows, 5, prior, likelihood=likelihood)
    result = importance_sample(serial(), rows, 5, mode, prior, 200)
    assert result.n_effective > 199.9
    np.testing.assert_allclose(result.weight, 1 / 200, rtol=0.02)
    _, log_det = np.linalg.slogdet(mode.covariance)
    assert result.log_evidence == pytest.approx(mode.log_posterior + 0.5 * log_det + 3 * np.log(2 * np.pi), abs=1e-3)


def test_a_posterior_that_is_far_from_normal_is_told():
    """A handful of rows and a nearly flat prior: heavy tails of the ratio."""
    likelihood, prior = LIKELIHOODS["logistic"], Prior.of("laplace", 50.0, 5)
    x, y = simulate(likelihood, 7)
    rows = dealt(serial(), likelihood, x, y)
    result = importance_sample(serial(), rows, 5, fit(serial(), rows, 5, prior), prior, 1_000)
    assert not result.reliable or result.n_effective < 200


@pytest.mark.mpi(min_size=2)
def test_the_same_on_every_rank():
    comm, likelihood = world(), LIKELIHOODS["softmax"]
    prior, (x, y) = Prior.of("gaussian", 1.0, 12), simulate(likelihood, 300)
    reported = []
    for c in (serial(), comm):
        rows = dealt(c, likelihood, x, y)
        reported.append(importance_sample(c, rows, 5, fit(c, rows, 5, prior), prior, 100))
    for alone, together in zip(vars(reported[0]).values(), vars(reported[1]).values()):
        assert np.array_equal(alone, together)
