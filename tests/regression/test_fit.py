"""The posterior mode against SciPy and closed forms, on any number of ranks the same bits; bounds as a quadratic."""

import dataclasses
import math

import numpy as np
import pytest
import scipy

from mpibayes.errors import DataError
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.regression.likelihoods import Likelihood, Logistic, Softmax, StudentT
from mpibayes.hpc.regression.mode.fit import Objective, bound_statistics, fit
from mpibayes.hpc.regression.prior import Prior
from tests.regression.problems import LIKELIHOODS, dealt, rows_of, seed, simulate

PRIORS = ("gaussian", "laplace", "flat")
EVERY = [(name, prior) for name in LIKELIHOODS for prior in PRIORS if (name, prior) != ("softmax", "flat")]
LOGISTIC24 = (
    "2.04:+ -2.56:- .42:+ -.57:- -.45:+ -.22:- -2.02:- -.23:+ -.87:- 3.32:+ .23:+ -.35:- -.28:+ -.67:- -1.06:- -.39:+ "
    ".48:- -.24:- .96:+ -.2:- .02:- 1.55:+ .55:- -.51:+"
)


def plain_log_posterior(likelihood: Likelihood, prior: str, scale: float, x, y, theta) -> float:
    """Written from the textbook, with SciPy's densities; |t| as sqrt(t^2 + b^2)."""
    eta = x[:, : likelihood.n_predictors].astype(np.float64) @ theta.reshape(likelihood.n_classes, -1).T
    if isinstance(likelihood, Logistic):
        total = -np.logaddexp(0.0, -y * eta[:, 0]).sum()
    elif isinstance(likelihood, Softmax):
        total = (eta[np.arange(len(y)), y.astype(int)] - np.logaddexp.reduce(eta, axis=1)).sum()
    else:
        total = scipy.stats.t.logpdf(y, likelihood.nu, loc=eta[:, 0], scale=likelihood.scale).sum()
    if prior == "gaussian":
        total += scipy.stats.norm.logpdf(theta, scale=scale).sum()
    elif prior == "laplace":
        total -= (np.sqrt(theta**2 + scale**2) / scale).sum()
    return total


@pytest.mark.parametrize("name, prior", EVERY)
def test_mode_and_covariance_against_scipy(name, prior):
    likelihood, scale = LIKELIHOODS[name], 0.7
    x, y = simulate(likelihood, 900)
    result = fit(serial(), dealt(serial(), likelihood, x, y), 5, prior, scale, likelihood=likelihood)

    def loss(theta):
        return -plain_log_posterior(likelihood, prior, scale, x, y, theta)

    best = scipy.optimize.minimize(loss, np.zeros(likelihood.n_parameters), method="BFGS", options={"gtol": 1e-5})
    np.testing.assert_allclose(result.theta, best.x, atol=2e-5)
    assert loss(result.theta) <= best.fun + 1e-9
    step = 1e-4 * np.eye(likelihood.n_parameters)
    second = [
        [
            (loss(best.x + a + b) - loss(best.x + a - b) - loss(best.x - a + b) + loss(best.x - a - b)) / 4e-8
            for a in step
        ]
        for b in step
    ]
    np.testing.assert_allclose(result.covariance @ np.array(second), np.eye(len(step)), atol=2e-3)
    if prior != "laplace":  # there the density is that of the true prior
        assert result.log_posterior == pytest.approx(-loss(result.theta), rel=1e-12)


def test_the_posterior_of_logistic24():
    """tests/exact/numbers.md: the mode under N(0, 4 I)."""
    pairs = [pair.split(":") for pair in LOGISTIC24.split()]
    x = np.zeros((24, 8), np.float32)
    x[:, 0], x[:, 1] = [float(value) for value, _ in pairs], 1.0
    likelihood = Logistic(2)
    rows = rows_of(likelihood, x, np.array([1.0 if sign == "+" else -1.0 for _, sign in pairs]))
    result = fit(serial(), [(0, rows)], 1, "gaussian", 2.0, likelihood=likelihood)
    np.testing.assert_allclose(result.theta, [1.32197, -0.07440], atol=1e-5)


def test_closed_forms():
    """One class alone: log odds of the intercept. A t with many degrees of freedom: ridge regression."""
    likelihood = Logistic(1)
    x = np.zeros((100, 8), np.float32)
    x[:, 0] = 1.0
    y = np.where(np.arange(100) < 73, 1.0, -1.0)
    result = fit(serial(), dealt(serial(), likelihood, x, y), 5, "flat", likelihood=likelihood)
    assert result.theta[0] == pytest.approx(math.log(73 / 27), abs=1e-10)
    assert result.covariance[0, 0] == pytest.approx(1 / 73 + 1 / 27, rel=1e-6)
    normal = StudentT(6, nu=1e9, scale=0.5)
    x, y = simulate(LIKELIHOODS["student-t"], 300)
    result = fit(serial(), dealt(serial(), normal, x, y), 5, "gaussian", 0.3, likelihood=normal)
    wide = x[:, :6].astype(np.float64)
    precision = wide.T @ wide / 0.25 + np.eye(6) / 0.09
    np.testing.assert_allclose(result.theta, np.linalg.solve(precision, wide.T @ y / 0.25), atol=1e-6)
    np.testing.assert_allclose(result.covariance, np.linalg.inv(precision), rtol=1e-5, atol=1e-9)


def test_a_t_regression_far_from_its_mode_is_found():
    """Outliers on one side, where the density is not log-concave; the fit starts from a bad point."""
    likelihood = StudentT(6, nu=1.5, scale=0.1)
    x, y = simulate(LIKELIHOODS["student-t"], 400)
    y[:60] += 500.0
    rows = dealt(serial(), likelihood, x, y)
    prior = Prior.of("gaussian", 10.0, 6)
    good = fit(serial(), rows, 5, prior, likelihood=likelihood)
    _, gradient = Objective(serial(), rows, 5, likelihood, prior).move(good.theta)
    assert np.abs(gradient).max() < 1e-3 and np.median(np.abs(y - x[:, :6] @ good.theta)) < 1.0
    other = fit(serial(), rows, 5, prior, likelihood=likelihood, start=np.full(6, 20.0))
    np.testing.assert_allclose(other.theta, good.theta, atol=1e-5)


def test_a_large_table_starts_from_some_of_its_rows():
    likelihood = LIKELIHOODS["logistic"]
    x, y = simulate(likelihood, 200_000)
    rows = dealt(serial(), likelihood, x, y)
    quick = fit(serial(), rows, 5, "gaussian", 2.5, likelihood=likelihood)
    slow = fit(serial(), rows, 5, "gaussian", 2.5, likelihood=likelihood, start=np.zeros(5))
    np.testing.assert_allclose(quick.theta, slow.theta, atol=1e-9)
    assert quick.iterations < slow.iterations


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name, prior", EVERY)
def test_same_bits_on_any_number_of_ranks(name, prior):
    """Also on more ranks than shards; every rank has the same Fit and the same quadratic."""
    likelihood = LIKELIHOODS[name]
    x, y = simulate(likelihood, 3_000)
    for n_shards in (1, 2, 7):
        reported = []
        for comm in (serial(), world()):
            rows = dealt(comm, likelihood, x, y, n_shards)
            result = fit(comm, rows, n_shards, prior, 1.0, likelihood=likelihood)
            for _, r in rows:
                r.tune(result.theta)
            quadratic = bound_statistics(comm, rows, n_shards, result.theta, likelihood)
            reported.append((*vars(result).values(), *vars(quadratic).values()))
        for alone, together in zip(*reported):
            assert np.array_equal(alone, together), f"seed {seed(7)}"


@pytest.mark.mpi
def test_failures_are_shared():
    comm, likelihood = world(), LIKELIHOODS["logistic"]
    x, _ = simulate(likelihood, 300)
    y = np.where(x[:, 1] > 0.2, 1.0, -1.0)
    with pytest.raises(DataError, match="separated"):
        fit(comm, dealt(comm, likelihood, x, y), 5, "flat", likelihood=likelihood)
    x[:, 4] = x[:, 2] + x[:, 3]
    y = np.where(np.arange(300) % 2, 1.0, -1.0)
    with pytest.raises(DataError, match="collinear") as caught:
        fit(comm, dealt(comm, likelihood, x, y), 5, "flat", likelihood=likelihood, names=list("abcde"))
    assert "'e' is a combination of 1 'c', 1 'd'" in str(caught.value)


class TestSeparation:
    likelihood = LIKELIHOODS["logistic"]

    def fit(self, x, y, prior="flat", scale=None):
        rows = dealt(serial(), self.likelihood, x, y)
        names = ["one", "a", "b", "c", "d"]
        return fit(serial(), rows, 5, prior, scale, likelihood=self.likelihood, names=names)

    def test_complete(self):
        x, _ = simulate(self.likelihood, 500)
        y = np.where(x[:, 1] - 2 * x[:, 3] > 0.1, 1.0, -1.0)
        with pytest.raises(DataError, match="separated") as caught:
            self.fit(x, y)
        line = caught.value.problems[0]
        assert line.index("c (") < line.index("a (") and 'prior = "gaussian"' in str(caught.value)
        assert np.isfinite(self.fit(x, y, "gaussian", 2.5).theta).all()

    def test_quasi_complete(self):
        """All rows with d = 1 are of one class; the others overlap."""
        x, y = simulate(self.likelihood, 500)
        x[:, 4] = np.arange(500) % 10 == 0
        y[x[:, 4] == 1] = 1.0
        with pytest.raises(DataError, match="separated") as caught:
            self.fit(x, y)
        assert "grow: d (+" in caught.value.problems[0]
        assert np.isfinite(self.fit(x, y, "laplace", 2.5).theta).all()

    def test_one_row_short_of_it(self):
        x, y = simulate(self.likelihood, 500)
        x[:, 4] = np.arange(500) % 10 == 0
        y[x[:, 4] == 1] = 1.0
        y[0] = -1.0
        assert 2.0 < self.fit(x, y).theta[4] < 8.0

    def test_only_the_flat_coordinates_count(self):
        """Separable along a coordinate with a proper prior is no matter; along a flat one it is."""
        x, _ = simulate(self.likelihood, 500)
        y = np.where(x[:, 1] > 0, 1.0, -1.0)
        scale = np.full(5, 1.0)
        scale[0] = np.inf
        assert np.isfinite(self.fit(x, y, "gaussian", scale).theta).all()
        scale[1] = np.inf
        with pytest.raises(DataError, match="separated"):
            self.fit(x, y, "gaussian", scale)


def test_softmax_needs_a_proper_prior():
    likelihood = LIKELIHOODS["softmax"]
    rows = dealt(serial(), likelihood, *simulate(likelihood, 100))
    with pytest.raises(DataError, match="proper"):
        fit(serial(), rows, 5, "flat", likelihood=likelihood)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("tuned", [True, False])
def test_the_quadratic_is_the_sum_of_the_bounds(name, tuned):
    """The bounds are bounds, touch where they should, and the kernels agree about the gaps (docs/math.md 4.2)."""
    likelihood = LIKELIHOODS[name]
    x, y = simulate(likelihood, 600)
    rows = dealt(serial(), likelihood, x, y)
    mode = fit(serial(), rows, 5, "gaussian", 2.0, likelihood=likelihood).theta
    for _, r in rows:
        r.tune(mode) if tuned else r.untune(1.5)
    quadratic = bound_statistics(serial(), rows, 5, mode, likelihood)
    rng = np.random.default_rng(seed(2))
    for size in (0.0, 0.1, 3.0):
        theta = mode + size * rng.normal(size=len(mode))
        eta = [r.linear(theta) for _, r in rows]
        log_l = np.concatenate([likelihood.log_density(e, r.y) for e, (_, r) in zip(eta, rows)])
        log_b = np.concatenate([likelihood.log_bound(e, r.y, r.bounds) for e, (_, r) in zip(eta, rows)])
        gaps = np.concatenate([r.gaps(theta) for _, r in rows])
        assert (log_l - log_b).min() > -1e-12 * np.abs(log_b).max()
        assert quadratic(theta) == pytest.approx(log_b.sum(), rel=1e-12)
        np.testing.assert_allclose(gaps, np.maximum(log_l - log_b, 0), atol=1e-11 * max(1.0, np.abs(log_b).max()))
        if tuned and size == 0.0:
            np.testing.assert_allclose(log_l, log_b, atol=1e-12)
    assert quadratic.A.shape == (likelihood.n_classes,) * 2 and quadratic.S.shape == (likelihood.n_predictors,) * 2


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_slope_and_curvature_are_derivatives(name):
    likelihood = LIKELIHOODS[name]
    rows = dealt(serial(), likelihood, *simulate(likelihood, 200))
    for prior in ("gaussian", "laplace"):
        objective = Objective(serial(), rows, 5, likelihood, Prior.of(prior, 0.3, likelihood.n_parameters))
        theta = np.random.default_rng(seed(5)).normal(size=likelihood.n_parameters)
        step = 1e-5 * np.eye(len(theta))
        value = [(objective.move(theta + e)[0] - objective.move(theta - e)[0]) / 2e-5 for e in step]
        slope = np.array([(objective.move(theta + e)[1] - objective.move(theta - e)[1]) / 2e-5 for e in step])
        _, gradient = objective.move(theta)
        curvature = objective.curvature() + np.diag(objective.prior.smooth_curvature(theta))
        np.testing.assert_allclose(gradient, value, atol=1e-4)
        np.testing.assert_allclose(curvature, -slope, atol=1e-6 * np.abs(curvature).max())


def test_prior_densities():
    theta = np.array([0.3, -2.0, 5.0])
    scale = np.array([0.5, 2.0, np.inf])
    gaussian, laplace = Prior.of("gaussian", scale, 3), Prior.of("laplace", scale, 3)
    assert gaussian.log_density(theta) == pytest.approx(scipy.stats.norm.logpdf(theta[:2], scale=scale[:2]).sum())
    assert laplace.log_density(theta) == pytest.approx(scipy.stats.laplace.logpdf(theta[:2], scale=scale[:2]).sum())
    assert Prior.of("flat", 2.5, 3).log_density(theta) == 0.0 and Prior.of(0, None, 3).flat.all()
    assert dataclasses.asdict(Prior.of(1, 2.0, 2))["kind"] == "gaussian"


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_intercepts_have_a_gaussian_prior_of_their_own(kind):
    """The first coefficient of each of two classes; with densities by SciPy, and derivatives of them."""
    where = np.array([True, False, False] * 2)
    prior = Prior.of(kind, 0.5, 6).with_intercepts(where, 10.0)
    theta = np.array([4.0, 0.3, -2.0, -9.0, 1.0, 0.7])
    law = {"gaussian": scipy.stats.norm, "laplace": scipy.stats.laplace}[kind]
    expected = scipy.stats.norm.logpdf(theta[where], scale=10.0).sum() + law.logpdf(theta[~where], scale=0.5).sum()
    assert prior.log_density(theta) == pytest.approx(expected)
    slope, curvature = prior.smooth_slope(theta), prior.smooth_curvature(theta)
    np.testing.assert_allclose(slope[where], -theta[where] / 100.0)
    np.testing.assert_allclose(curvature[where], 0.01)
    assert (np.abs(slope[~where]) > 0.3).all()
    other = prior.rescaled(2.0)  # as a scale that held-out rows choose
    assert other.scale.tolist() == [10.0, 2.0, 2.0] * 2 and other.kind == kind
    draws = np.array([prior.draw(np.random.default_rng([seed(9), i])) for i in range(2000)])
    normal = scipy.stats.kstest(draws[:, where].ravel(), scipy.stats.norm(scale=10.0).cdf).pvalue
    assert normal > 1e-4 < scipy.stats.kstest(draws[:, ~where].ravel(), law(scale=0.5).cdf).pvalue
    assert Prior.of("flat", 1.0, 6).with_intercepts(where, 10.0).flat.all()


def test_a_wide_prior_leaves_the_intercept_where_the_likelihood_has_it():
    """The unpenalised intercept of 3 responses in 2,000 is log(3/1997); the narrow prior pulls it towards 0."""
    likelihood, y = LIKELIHOODS["logistic"], np.full(2000, -1.0)
    x = np.zeros((2000, 8), np.float32)
    x[:, 0], x[:, 1] = 1.0, np.tile([-1.0, 1.0], 1000)
    y[[3, 500, 1201]] = 1.0
    likelihood = dataclasses.replace(likelihood, n_predictors=2)
    rows = dealt(serial(), likelihood, x, y)
    narrow = Prior.of("gaussian", 1.0, 2)
    wide = narrow.with_intercepts(np.array([True, False]), 10.0)
    result = [fit(serial(), rows, 5, prior, likelihood=likelihood).theta[0] for prior in (narrow, wide)]
    assert result[0] > -5.6 and result[1] == pytest.approx(np.log(3 / 1997), abs=0.25), result
