"""Steps of Gaussian mixtures, and their bound, against references, quadrature and finite differences."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.special import polygamma
from scipy.stats import gamma, norm

from mpibayes.hpc.svi.finite_dirichlet import of as finite_dirichlet
from mpibayes.hpc.svi.gaussian import Gaussian, Prior, State
from mpibayes.hpc.svi.step import Step
from tests.svi.cases import GMM24, SURE, bound, clouds, gmm24, looked, packed, plain_step, responsibilities


def batch_bounds(step, n):
    """Bounds on gmm24, before each of n steps by `step(model, q, x)`, and after the last."""
    x, model, q = gmm24()
    result = [bound(model, q, x)]
    for _ in range(n):
        q = step(model, q, x)
        result.append(bound(model, q, x))
    return result


def batch(model, q, x):
    return model.step(q, looked(model, q, x)[1][0], None, SURE)[0]


def test_reference_bounds():
    result = batch_bounds(batch, 20)
    assert [result[t] for t in GMM24] == pytest.approx(list(GMM24.values()), rel=0, abs=1e-6)


def test_a_step_with_stale_moments_has_other_bounds():
    """The wrong twin: q(Lambda) with the moments of q(mu) before it. The plain step itself is right."""
    plain = batch_bounds(lambda model, q, x: plain_step(model, q, responsibilities(model, q, x), x), 5)
    stale = batch_bounds(lambda model, q, x: plain_step(model, q, responsibilities(model, q, x), x, stale=True), 5)
    for t in (1, 2, 5):
        assert abs(plain[t] - GMM24[t]) < 1e-6 < 1e-3 < abs(stale[t] - GMM24[t])


@pytest.mark.parametrize("rate, scale", [(1.0, 1.0), (0.3, 7.0)])
def test_the_plain_step(rate, scale):
    """Any state with any responsibilities, not only its own."""
    rng, x = np.random.default_rng(3), clouds(50, 4, 3, seed=1)
    model = Gaussian(Prior(0.7, 5.0, 6.0, 0.8), 3, 4)
    q = model.seeded(x, 50, rng)
    share = rng.dirichlet(np.ones(3), size=50).T
    result, held = model.step(q, packed(share, x, q.mean), None, Step(rate, scale))
    expected = plain_step(model, q, share, x, rate, scale)
    assert held == 0
    for field in fields(State):
        np.testing.assert_allclose(getattr(result, field.name), getattr(expected, field.name), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("d, k, alpha", [(1, 2, 1.0), (2, 5, 0.5), (5, 8, 2.0), (8, 20, 0.05)])
def test_batch_steps_never_lower_the_bound(d, k, alpha):
    x = clouds(400, d, 5, seed=d)
    model = Gaussian(Prior(alpha, 10.0, d + 2.0, 1.0), k, d)
    q, result = model.seeded(x, 400, np.random.default_rng(0)), []
    for _ in range(80):
        result.append(bound(model, q, x))
        q = batch(model, q, x)
    result = np.array(result)
    assert (np.diff(result) >= -1e-10 * np.abs(result[1:])).all() and result[-1] - result[0] > 1.0


def test_below_the_evidence_and_close():
    """One component of one column: log p(x) by quadrature. The gap is that of a mean apart from its precision."""
    x = np.array([-1.2, 0.3, 0.4, 1.9, 0.8])
    model = Gaussian(Prior(1.0, 4.0, 3.0, 0.6), 1, 1)

    mu, log_precision = np.meshgrid(np.linspace(-9.0, 9.0, 721), np.linspace(-9.0, 5.0, 561), indexing="ij")
    precision = np.exp(log_precision)
    joint = norm.pdf(x[:, None, None], mu, precision**-0.5).prod(axis=0) * norm.pdf(mu, 0.0, 2.0)
    joint *= gamma.pdf(precision, 1.5, scale=1 / 0.3) * precision  # of the logarithm
    evidence = np.log(joint.sum() * (18.0 / 720) * (14.0 / 560))
    q = model.seeded(x[:, None], 5, np.random.default_rng(0))
    for _ in range(50):
        q = batch(model, q, x[:, None])
    assert 0.0 < evidence - bound(model, q, x[:, None]) < 0.1


def test_gradients_by_finite_differences():
    """Gradients of the bound with the best q(z), at any state. For q(pi) the slope is the Fisher matrix times (target -
    alpha). Along a change of any natural parameter that q(mu) or q(Lambda) has, it is the change of the mean
    statistics, times (target - parameter), with the others as they are."""
    x = clouds(60, 2, 3, seed=5)
    model = Gaussian(Prior(0.7, 5.0, 4.0, 0.8), 3, 2)
    q = replace(model.seeded(x, 60, np.random.default_rng(1)), alpha=np.array([9.0, 30.0, 14.0]))
    # far from the best, so that slopes are well above the rounding of a bound over eps, about 1e-8
    q = replace(q, linear=q.linear + 9.0, degrees=q.degrees + 4.0, scatter=1.5 * q.scatter)
    share, eps = responsibilities(model, q, x), 1e-5

    def slope(change):
        ahead, behind = (bound(model, change(sign * eps), x) for sign in (1, -1))
        return (ahead - behind) / (2 * eps)

    target = model.prior.alpha + share.sum(axis=1)
    fisher = np.diag(polygamma(1, q.alpha)) - polygamma(1, q.alpha.sum())
    gradient = [slope(lambda e, j=j: replace(q, alpha=q.alpha + e * (np.arange(3) == j))) for j in range(3)]
    np.testing.assert_allclose(gradient, fisher @ (target - q.alpha), rtol=1e-6, atol=2e-8)

    rng = np.random.default_rng(2)
    goal = plain_step(model, q, share, x)  # its q(mu) is the target given q(Lambda)
    by, pull = rng.normal(size=(2, 2)), rng.normal(size=2)
    by = by + by.T

    def moved(e, j=1):
        precision, linear = q.precision.copy(), q.linear.copy()
        precision[j] += e * by
        linear[j] += e * pull
        return replace(q, precision=precision, linear=linear)

    def of_mean(state, j=1):  # statistics mu, mu mu' of the natural parameters linear, -precision / 2
        return state.mean[j], state.covariance[j] + np.outer(state.mean[j], state.mean[j])

    (a1, a2), (b1, b2) = of_mean(moved(eps)), of_mean(moved(-eps))
    expected = ((a1 - b1) @ (goal.linear[1] - q.linear[1])) / (2 * eps)
    expected -= 0.5 * ((a2 - b2) * (goal.precision[1] - q.precision[1])).sum() / (2 * eps)
    assert abs(expected) > 0.1
    assert slope(moved) == pytest.approx(expected, rel=1e-6, abs=2e-8)

    stay = plain_step(model, q, share, x, stale=True)  # its q(Lambda) is the target given q(mu)

    def turned(e, j=2):
        degrees, scatter = q.degrees.copy(), q.scatter.copy()
        degrees[j] += e * 1.7
        scatter[j] += e * by
        return replace(q, degrees=degrees, scatter=scatter)

    def of_precision(state, j=2):  # statistics log |Lambda|, Lambda of degrees / 2, -scatter / 2
        return state.log_det_precision[j], state.mean_precision[j]

    (a1, a2), (b1, b2) = of_precision(turned(eps)), of_precision(turned(-eps))
    expected = 0.5 * (a1 - b1) * (stay.degrees[2] - q.degrees[2]) / (2 * eps)
    expected -= 0.5 * ((a2 - b2) * (stay.scatter[2] - q.scatter[2])).sum() / (2 * eps)
    assert abs(expected) > 0.1
    assert slope(turned) == pytest.approx(expected, rel=1e-6, abs=2e-8)


def test_finite_dirichlet_leaves_components_empty():
    """Three clouds, 15 components: few are left, where weights of 1 each keep more."""
    x = clouds(600, 2, 3, seed=8, apart=6.0)
    prior, left = Prior(1.0, 10.0, 4.0, 1.0), {}
    for name, part in (("gaussian", prior), ("finite", finite_dirichlet(prior, 15))):
        model = Gaussian(part, 15, 2)
        q = model.seeded(x, 600, np.random.default_rng(2))
        for _ in range(300):
            q = batch(model, q, x)
        left[name] = int((model.weight(q) > 1.0).sum())
    assert finite_dirichlet(prior, 15).alpha == 1.0 / 15 and left["finite"] <= left["gaussian"] and left["finite"] <= 5


def test_a_start_does_not_depend_on_equal_rows():
    """Fewer different rows than components: k-means++ runs out of places, and the state is sound."""
    x = np.repeat(np.array([[0.0, 1.0], [2.0, 0.5]]), 10, axis=0)
    model = Gaussian(Prior(1.0, 10.0, 4.0, 1.0), 6, 2)
    q = model.seeded(x, 20, np.random.default_rng(0))
    for _ in range(10):
        q = batch(model, q, x)
    assert q.sound() and np.isfinite(bound(model, q, x))
