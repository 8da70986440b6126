"""Steps of a factorization, and its bound, against plain references, regression and finite differences."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mpibayes.hpc.svi.factorization.model import Fixed
from tests.svi.ratings import (
    SURE,
    bound,
    first_of,
    looked,
    made,
    model_of,
    plain_bound,
    plain_moments,
    plain_step,
    plain_users,
    square,
    stepped,
    triangle,
)  # fmt: skip

KINDS = pytest.mark.parametrize("biased, learn", [(False, False), (True, False), (False, True), (True, True)])
ITEMS = 9


def problem(biased, learn, seed=1, rank=2, users=24):
    x = made(users, ITEMS, rank, biased, seed)
    model = model_of(x, ITEMS, rank, biased, learn)
    return x, model, first_of(model, seed)


@KINDS
def test_bounds_after_steps(biased, learn):
    """Compare with steps and a bound in plain NumPy, user by user and term by term."""
    x, model, q = problem(biased, learn)
    plain = q
    for _ in range(6):
        assert bound(model, q, x) == pytest.approx(plain_bound(plain, x, biased), rel=1e-11)
        q, (plain, _) = stepped(model, q, x), plain_step(plain, x, biased, learn)
    np.testing.assert_allclose(q.natural, plain.natural, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(q.user_covariance, plain.user_covariance, rtol=1e-9)


@KINDS
def test_a_step_with_stale_moments_has_other_bounds(biased, learn):
    """The wrong twin: items are solved from users as they were a step ago."""
    x, _, q = problem(biased, learn)
    right = wrong = q
    _, users = plain_step(q, x, biased, learn)
    for _ in range(3):
        right, _ = plain_step(right, x, biased, learn)
        fresh = plain_users(wrong, x, *plain_moments(wrong), biased)
        wrong, users = plain_step(wrong, x, biased, learn, stale=users)[0], fresh
    best = plain_bound(right, x, biased)
    assert abs(plain_bound(wrong, x, biased) - best) > 1e-4 * abs(best)


@KINDS
@pytest.mark.parametrize("rank", [1, 5])
def test_batch_steps_never_lower_the_bound(biased, learn, rank):
    x = made(150, 40, rank, biased, seed=rank)
    model = model_of(x, 40, rank, biased, learn)
    q, result = first_of(model), []
    for _ in range(150):
        result.append(bound(model, q, x))
        q = stepped(model, q, x)
    result = np.array(result)
    assert (np.diff(result) >= -1e-10 * np.abs(result[1:])).all() and result[-1] - result[0] > 1.0


@pytest.mark.parametrize("biased", [False, True])
def test_items_that_are_known_leave_regressions(biased):
    """A user is a Bayesian linear regression if the items have no spread: its evidence and posterior."""
    x, model, q = problem(biased, False)
    rng = np.random.default_rng(3)
    d = model.d
    g, sharp = rng.normal(size=(ITEMS, d)), 1e9
    root = rng.normal(size=(d, d))
    prior, at = root @ root.T + np.eye(d), rng.normal(size=d)
    natural = np.concatenate([np.tile(triangle(sharp * np.eye(d)), (ITEMS, 1)), sharp * g], axis=1)
    q = replace(q, natural=natural, user_covariance=prior, user_mean=at)
    evidence = 0.0
    mean, covariance = model.users(q, x)
    for i in range(len(x)):
        subset = slice(x.starts[i], x.starts[i + 1])
        design, y = g[x.columns[subset]].copy(), x.values[subset] - 3.0
        if biased:
            y = y - design[:, -1]
            design[:, -1] = 1.0
        if len(y):
            noise = q.variance[0] * np.eye(len(y))
            evidence += multivariate_normal.logpdf(y, design @ at, design @ prior @ design.T + noise)
        precision = np.linalg.inv(prior) + design.T @ design / q.variance[0]
        expected = np.linalg.solve(precision, np.linalg.solve(prior, at) + design.T @ y / q.variance[0])
        np.testing.assert_allclose(mean[i], expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(square(covariance[i]), np.linalg.inv(precision), rtol=1e-6, atol=1e-7)
    assert looked(model, q, x)[0] == pytest.approx(evidence, rel=1e-6)


def test_below_the_evidence_and_close():
    """One rating, one factor: log p(y) by quadrature over the item, given which it is a regression."""
    x = made(2, 1, 1, False, seed=1)
    x.starts, x.columns, x.values = np.array([0, 1, 1]), np.zeros(1, np.int32), np.array([4.2], np.float32)
    model = model_of(x, 1, 1, False, False, fixed=Fixed(0.5, 1.0))
    v = np.linspace(-10.0, 10.0, 20_001)
    prior = np.exp(-0.5 * v**2) / np.sqrt(2 * np.pi)
    spread = 0.5 + v**2
    density = np.exp(-0.5 * (x.values[0] - 3.0) ** 2 / spread) / np.sqrt(2 * np.pi * spread)
    evidence = np.log(np.trapezoid(prior * density, v))
    q = first_of(model)
    for _ in range(200):
        q = stepped(model, q, x)
    assert 0.0 < evidence - bound(model, q, x) < np.log(2.0) + 0.1  # q has one of two modes that mirror each other


@pytest.mark.parametrize("biased", [False, True])
def test_gradients_by_finite_differences(biased):
    """Gradients of the bound with the best q of users. Along a change of an item's natural parameters the slope is the
    change of its mean statistics, times (target - parameter)."""
    x, model, q = problem(biased, False, seed=2)
    rng, eps, j, d, t = np.random.default_rng(5), 1e-5, 3, model.d, model.t
    q = stepped(model, q, x)
    q = replace(q, natural=q.natural * rng.uniform(0.8, 1.4, size=(ITEMS, 1)))  # not the best
    root = rng.normal(size=(d, d))
    along = np.concatenate([triangle(root @ root.T), rng.normal(size=d)])

    def slope(change):
        return (bound(model, change(eps), x) - bound(model, change(-eps), x)) / (2 * eps)

    def moved(e):
        natural = q.natural.copy()
        natural[j] += e * along
        return replace(q, natural=natural)

    def statistics(state):
        mean, covariance = plain_moments(state)
        return mean[j], covariance[j] + np.outer(mean[j], mean[j])

    goal = stepped(model, q, x)
    (a1, a2), (b1, b2) = statistics(moved(eps)), statistics(moved(-eps))
    gap = goal.natural[j] - q.natural[j]
    expected = ((a1 - b1) @ gap[t:] - 0.5 * ((a2 - b2) * square(gap[:t])).sum()) / (2 * eps)
    assert abs(expected) > 0.05
    assert slope(moved) == pytest.approx(expected, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("biased", [False, True])
def test_what_is_learned_by_finite_differences(biased):
    """Slopes of the bound in the variance and in the priors are those of Gaussians, with what learning aims at in the
    place of their sample moments."""
    x, model, q = problem(biased, False, seed=2)
    rng, d = np.random.default_rng(5), model.d
    for _ in range(3):
        q = stepped(model, q, x)
    root = 0.3 * rng.normal(size=(2, d, d))
    priors = root @ root.swapaxes(1, 2) + np.eye(d)
    q = replace(q, user_mean=rng.normal(size=d), user_covariance=priors[0], item_covariance=priors[1])
    model.rated[:] = True  # the bound has all items
    total = looked(model, q, x)[1][0]
    ratings, users = total[-1, d + 1 : d + 3]
    goal = model._learned_of_items(model._learned_of_users(q, total, SURE), q.natural.copy(), SURE)[0]
    at, by = rng.normal(size=d), rng.normal(size=(d, d))
    by = by + by.T

    def slope(**along):
        def moved(e):
            return replace(q, **{name: getattr(q, name) + e * change for name, change in along.items()})

        return (bound(model, moved(1e-5), x) - bound(model, moved(-1e-5), x)) / 2e-5

    ratio = goal.variance[0] / q.variance[0]
    assert slope(variance=q.variance) == pytest.approx(0.5 * ratings * (ratio - 1.0), rel=1e-6)
    for of, n in (("user", users), ("item", ITEMS)):
        mean, covariance = getattr(q, f"{of}_mean"), getattr(q, f"{of}_covariance")
        apart, inverse = getattr(goal, f"{of}_mean") - mean, np.linalg.inv(covariance)
        assert slope(**{f"{of}_mean": at}) == pytest.approx(n * apart @ inverse @ at, rel=1e-6, abs=1e-6)
        spread = getattr(goal, f"{of}_covariance") + np.outer(apart, apart)
        expected = 0.5 * n * np.trace((inverse @ spread @ inverse - inverse) @ by)
        assert slope(**{f"{of}_covariance": by}) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_learning_raises_the_bound_and_finds_what_made_the_ratings():
    x = made(400, 60, 2, True, seed=4, share=0.5, sd=0.5)
    model = model_of(x, 60, 2, True, True)
    q = first_of(model)
    for _ in range(100):
        q = stepped(model, q, x)
    fixed = model_of(x, 60, 2, True, False)
    other = first_of(fixed)
    for _ in range(100):
        other = stepped(fixed, other, x)
    assert bound(model, q, x) > bound(fixed, other, x) + 100.0
    assert q.variance[0] == pytest.approx(0.25, rel=0.05)  # of 11,600 ratings, 1 standard error is 1.4 %


def test_a_batch_without_ratings_teaches_nothing():
    x, model, q = problem(True, True)
    sums = np.zeros((1, *model.form))
    model.accumulate(q, x, np.array([1]), None, sums)  # who has rated nothing
    after = model.step(q, sums[0], None, SURE)[0]
    assert after.sound() and (after.user_covariance == q.user_covariance).all() and after.variance == q.variance
