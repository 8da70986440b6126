"""Whitening, the bright count that is foretold, and the cost that follows."""

import numpy as np
import pytest

from mpibayes.errors import NumericalError
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.regression.cost import cost
from mpibayes.hpc.regression.likelihoods import likelihood_of
from mpibayes.hpc.regression.mode.fit import bound_statistics, fit
from mpibayes.hpc.regression.mode.laplace import expected_gap, laplace_draws, predicted_bright, whitening
from tests.regression.problems import LIKELIHOODS, dealt, rows_of, seed, simulate


def fitted(comm, likelihood, x, y, tuned: bool = True, prior: str = "gaussian"):
    rows = dealt(comm, likelihood, x, y)
    result = fit(comm, rows, 5, prior, 1.0, likelihood=likelihood)
    for _, r in rows:
        r.tune(result.theta) if tuned else r.untune(1.5)
    return rows, result


def test_whitening():
    a = np.random.default_rng(3).normal(size=(40, 50))
    factor = whitening(a @ a.T)
    np.testing.assert_allclose(factor @ factor.T, a @ a.T, atol=1e-10)
    assert np.array_equal(factor, np.tril(factor))
    with pytest.raises(NumericalError, match="positive definite"):
        whitening(a[:, :30] @ a[:, :30].T)


def test_draws_have_the_covariance():
    likelihood = LIKELIHOODS["softmax"]
    _, result = fitted(serial(), likelihood, *simulate(likelihood, 500))
    draws = laplace_draws(result, 20_000, seed(5))
    u = np.linalg.solve(whitening(result.covariance), (draws - result.theta).T)
    assert np.abs(u.mean(axis=1)).max() < 4 / 20_000**0.5 and np.abs(np.cov(u) - np.eye(12)).max() < 6 / 20_000**0.5


@pytest.mark.quick("logistic-tuned-gaussian", "student-t-untuned-gaussian")
@pytest.mark.parametrize("prior", ["gaussian", "laplace"])
@pytest.mark.parametrize("tuned", [True, False], ids=["tuned", "untuned"])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_bright_rows_against_brute_force(name, tuned, prior):
    """Compare with the kernels' probabilities at 3,000 other Laplace draws; both means have an error below 1 %."""
    likelihood = LIKELIHOODS[name]
    x, y = simulate(likelihood, 4_000)
    rows, result = fitted(serial(), likelihood, x, y, tuned, prior)
    reported = predicted_bright(serial(), rows, 5, result)
    draws = laplace_draws(result, 3_000, seed(99))
    bright = np.mean([sum(-np.expm1(-r.gaps(theta)).sum() for _, r in rows) for theta in draws])
    assert reported == pytest.approx(bright, rel=0.05)
    if tuned:  # where gaps are small, they are the probabilities
        quadratic = bound_statistics(serial(), rows, 5, result.theta)
        gap = np.mean([sum(r.gaps(theta).sum() for _, r in rows) for theta in draws])
        assert expected_gap(result, quadratic) == pytest.approx(gap, rel=0.1)
        assert reported < 1.05 * expected_gap(result, quadratic)


def test_the_bright_count_does_not_depend_on_the_number_of_rows():
    likelihood, reported = LIKELIHOODS["logistic"], []
    x, y = simulate(likelihood, 64_000)
    for n in (4_000, 64_000):  # of the second, every third row is looked at
        rows, result = fitted(serial(), likelihood, x[:n], y[:n])
        reported.append(predicted_bright(serial(), rows, 5, result))
    assert reported[0] == pytest.approx(reported[1], rel=0.15)


@pytest.mark.mpi(min_size=2)
def test_the_same_on_every_rank():
    comm, likelihood = world(), LIKELIHOODS["student-t"]
    x, y = simulate(likelihood, 2_000)
    reported = []
    for c in (serial(), comm):
        rows, result = fitted(c, likelihood, x, y)
        reported.append(predicted_bright(c, rows, 5, result, sample=600))
    assert reported[0] == reported[1]


def test_cost():
    """HMC on all rows is advised for few rows and where much is bright, Firefly for many rows."""
    assert cost(1_000, 7, 11).advises_full and cost(12_214, 6_000, 51).advises_full
    large = cost(1_000_000, 60, 51)
    assert large.speed_up > 50 and not large.advises_full
    ratios = [cost(n, 60, 51).speed_up for n in (10**4, 10**5, 10**6, 10**7)]
    assert ratios == sorted(ratios)


def test_kernels_rows_know_their_model():
    for likelihood in LIKELIHOODS.values():
        rows = [(0, rows_of(likelihood, *simulate(likelihood, 20)))]
        assert likelihood_of(serial(), rows) == likelihood
