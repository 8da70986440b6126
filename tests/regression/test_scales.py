"""Scales that the data choose."""

from dataclasses import replace

import numpy as np
import pytest
import scipy

from mpibayes.errors import DataError
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.regression.likelihoods import Logistic
from mpibayes.hpc.regression.mode.scales import choose_scale, joint_t_scale, log_predictive
from mpibayes.hpc.regression.prior import Prior
from tests.regression.problems import LIKELIHOODS, dealt, simulate

T = LIKELIHOODS["student-t"]


@pytest.mark.parametrize("prior", ["gaussian", "flat"])
@pytest.mark.parametrize("start", [0.01, 0.5, 30.0])
def test_joint_mode_of_coefficients_and_scale(prior, start):
    x, y = simulate(T, 800)
    given = Prior.of(prior, 0.7, 6)
    begun = replace(T, scale=start)
    scale, result = joint_t_scale(serial(), dealt(serial(), begun, x, y), 5, given, likelihood=begun)

    def loss(parameters):
        theta, s = parameters[:6], np.exp(parameters[6])
        total = scipy.stats.t.logpdf(y, 4.0, loc=x[:, :6].astype(float) @ theta, scale=s).sum()
        return -total - (scipy.stats.norm.logpdf(theta, scale=0.7).sum() if prior == "gaussian" else 0.0)

    best = scipy.optimize.minimize(loss, np.zeros(7), method="BFGS", options={"gtol": 1e-4})
    assert scale == pytest.approx(np.exp(best.x[6]), rel=1e-4)
    np.testing.assert_allclose(result.theta, best.x[:6], atol=1e-4)
    assert scale == pytest.approx(0.5, rel=0.15)  # what was simulated


@pytest.mark.parametrize("rounding", [0.0, 1e-8])
def test_a_response_without_error(rounding):
    x, y = simulate(T, 300)
    y = x[:, 1] - 2.0 * x[:, 2].astype(np.float64) + rounding * y
    rows = dealt(serial(), T, x, y)
    with pytest.raises(DataError, match="mode at 0") as caught:
        joint_t_scale(serial(), rows, 5, Prior.of("flat", 1.0, 6), likelihood=T)
    assert "give a scale" in str(caught.value)


def test_prior_scale_on_heldout_rows():
    """Coefficients of size 0.1 from few rows: a narrow prior predicts best; where all is flat nothing changes."""
    likelihood = Logistic(30)
    x, y = simulate(likelihood, 3_000, size=0.1)
    rows, heldout = dealt(serial(), likelihood, x[:300], y[:300]), dealt(serial(), likelihood, x[300:], y[300:])
    result = choose_scale("prior", serial(), rows, 5, heldout, 5, Prior.of("gaussian", 1.0, 30), likelihood=likelihood)
    assert 0.03 < result.value < 0.4 and not result.at_an_end
    assert max(result.log_predictive) == result.log_predictive[result.tried.index(result.value)]
    total, n = log_predictive(serial(), heldout, 5, result.fitted.theta, likelihood)
    assert (total / n, n) == (pytest.approx(max(result.log_predictive)), 2_700)
    direct = -np.logaddexp(0, -y[300:] * (x[300:, :30] @ result.fitted.theta)).sum()
    assert total == pytest.approx(direct, rel=1e-6)


def test_t_scale_on_heldout_rows():
    x, y = simulate(T, 3_000)
    rows, heldout = dealt(serial(), T, x[:2_000], y[:2_000]), dealt(serial(), T, x[2_000:], y[2_000:])
    result = choose_scale("t", serial(), rows, 5, heldout, 5, Prior.of("gaussian", 2.0, 6), likelihood=T)
    assert 0.35 < result.value < 0.7


def test_no_heldout_rows():
    x, y = simulate(T, 100)
    with pytest.raises(DataError, match="held-out rows"):
        choose_scale("t", serial(), dealt(serial(), T, x, y), 5, [], 5, Prior.of("gaussian", 2.0, 6), likelihood=T)


@pytest.mark.mpi(min_size=2)
def test_the_same_on_every_rank():
    comm, reported = world(), []
    x, y = simulate(T, 900)
    prior = Prior.of("laplace", 1.0, 6)
    for c in (serial(), comm):
        rows, heldout = dealt(c, T, x[:600], y[:600]), dealt(c, T, x[600:], y[600:], 3)
        scale, result = joint_t_scale(c, rows, 5, prior, likelihood=T)
        chosen = choose_scale("t", c, rows, 5, heldout, 3, prior, likelihood=T, grid=[0.2, 0.5, 1.0])
        reported.append((scale, result.theta, chosen.value, chosen.log_predictive))
    for alone, together in zip(*reported):
        assert np.array_equal(alone, together)
