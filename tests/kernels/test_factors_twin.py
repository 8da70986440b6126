"""Passes over users of a factorization agree with their plain twin, and hold noise back as it does."""

import numpy as np
import pytest

from mpibayes.kernels.svi import factors, factors_twin
from tests.svi.ratings import items_of, prior_of, table_of, triangle

KINDS = [(1, False), (1, True), (3, True), *((rank, biased) for rank in (5, 10, 20) for biased in (False, True))]


def problem(rank, biased, seed, users=21, items=13, most=12):
    rng = np.random.default_rng(seed)
    d = rank + biased
    lengths = rng.integers(0, most, size=users)
    lengths[3] = 0
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    columns = np.concatenate([np.sort(rng.choice(items, n, replace=False)) for n in lengths]).astype(np.int32)
    values = rng.normal(3.0, 1.0, size=starts[-1]).astype(np.float32)
    return rng, starts, columns, values, *items_of(rng, items, d), prior_of(rng, d)


def compare(rank, biased, seed, users=None, noise=None, guard=True, rate=None):
    """The kernel against the twin: sums, moments, bound, natural parameters, and whose noise was held back."""
    rng, starts, columns, values, mean, covariance, prior = problem(rank, biased, seed)
    d, n, items = rank + biased, len(starts) - 1, len(mean)
    t, kernel = d * (d + 1) // 2, factors.Users(d, biased)
    which = np.arange(n) if users is None else np.array(users)
    places = [np.arange(starts[i], starts[i + 1]) for i in which]
    numbers = rng.standard_t(3, size=sum(map(len, places))) if noise else None
    sums, numbered = np.zeros((2, items, kernel.sums_width))
    moments, more = np.empty((len(which), d + t)), {}
    if noise:
        more = {"numbers": numbers, "numbered": numbered, "guard": guard, **noise}
    old = fresh = None
    if rate is not None:
        old = np.stack([np.concatenate([triangle(p[0]), p[1]]) for p in (prior_of(rng, d) for _ in range(n))])
        fresh = np.full_like(old, np.nan)
        more |= {"old": old, "fresh": fresh, "rate": rate}
    mine = np.concatenate([triangle(prior[0]), prior[1]])
    table = table_of(kernel, mean, covariance, biased)
    run = (starts, None if users is None else which, columns, values, table, mine, 3.1, 1.7)
    # what a pass leaves behind is not added
    kernel(*run, np.zeros_like(sums), **(more | {"numbered": np.zeros_like(sums)} if noise else more))
    totals, held, broken = kernel(*run, sums, moments, **more)

    plain = [np.zeros((items, d, d)), np.zeros((items, d)), np.zeros(items)]
    noisy = [np.zeros((items, d, d)), np.zeros((items, d)), np.zeros(items)]
    at, left, bound, expected_held, second, first, rated = 0, 0.0, 0.0, 0, np.zeros((d, d)), np.zeros(d), 0
    for k, (i, place) in enumerate(zip(which, places)):
        r, c = values[place].astype(float) - 3.1, columns[place]
        each = None if numbers is None else numbers[at : at + len(place)]
        at += len(place)
        stepped = {} if old is None else {"old": (factors_twin.unpacked(old[i, :t]), old[i, t:]), "rate": rate}
        m, s, natural, used, plainly = factors_twin.user(
            c, r, mean, covariance, biased, prior, 1.7, numbers=each, guard=guard, **(noise or {}), **stepped
        )
        off = 1e-9 if used == 1.0 else 1e-2  # by 2^-24 of noise that leaves next to nothing of a precision
        for result, requested in ((moments[k, :d], m), (moments[k, d:], triangle(s))):
            np.testing.assert_allclose(result, requested, rtol=0, atol=off * np.abs(requested).max())
        if fresh is not None:
            requested = np.concatenate([triangle(natural[0]), natural[1]])
            np.testing.assert_allclose(fresh[i], requested, rtol=1e-6, atol=1e-6 * np.abs(requested).max())
        m, s = moments[k, :d], factors_twin.unpacked(moments[k, d:])
        factors_twin.added(c, r, m, s, biased, plain)
        if len(place):
            expected_held, rated = expected_held + (used < 1.0), rated + 1
            bound, second, first, left = (a + b for a, b in zip((bound, second, first, left), plainly))
        for j, value, e in zip(c, r, each if each is not None else ()):
            one = [np.zeros_like(x) for x in noisy]
            factors_twin.added([j], [value], m, s, biased, one)
            for whole, part in zip(noisy, one):
                whole += e * part
    once = factors.widths(d, biased)[1][0]
    for result, (gram, linear, count) in ((sums, plain), *([(numbered, noisy)] if noise else [])):
        np.testing.assert_allclose(result[:, :t], triangle(gram), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(result[:, once : once + d], linear, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(result[:, t - 1 if biased else t], count, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(totals[:t], triangle(second), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(totals[t : t + d], first, rtol=1e-10, atol=1e-10)
    requested = [left, bound, sum(map(len, places)), rated]
    np.testing.assert_allclose(totals[t + d :], requested, rtol=1e-10, atol=1e-10)
    assert (held, broken) == (expected_held, 0)
    return held


@pytest.mark.parametrize("rank, biased", KINDS)
def test_twins(rank, biased):
    compare(rank, biased, seed=rank)
    compare(rank, biased, seed=rank + 1, users=[0, 2, 3, 5, 7, 11, 12, 13, 20])
    compare(rank, biased, seed=rank + 2, noise={"effective": 4.0})
    compare(rank, biased, seed=rank + 3, noise={"spread": 0.3, "average": 0.07}, users=[1, 2, 3, 19], rate=0.6)


@pytest.mark.parametrize("rank, biased", [(2, True), (17, False)])
def test_twins_whose_noise_is_held_back(rank, biased):
    assert compare(rank, biased, seed=5, noise={"effective": 0.2}, rate=0.9) > 3
    assert compare(rank, biased, seed=6, noise={"spread": 20.0, "average": 0.0}) > 3


def test_shares_are_those_of_eigenvalues():
    rng = np.random.default_rng(3)
    kernel, d = factors.Users(6, True), 6
    root = rng.normal(size=(200, d, d))
    sure, noise = root @ root.swapaxes(1, 2) + 0.1 * np.eye(d), rng.normal(size=(200, d, d))
    noise = (noise + noise.swapaxes(1, 2)) * rng.gamma(0.3, size=(200, 1, 1))
    result = kernel.shares(triangle(sure), triangle(noise))
    requested = np.array([factors_twin.share(a, b) for a, b in zip(sure, noise)])
    assert 0.2 < (requested < 1.0).mean() < 0.8
    assert ((result <= requested * (1 + 1e-12)) & (result > requested - 2.0**-23)).all() and (
        result[requested == 1.0] == 1.0
    ).all()


def test_solved():
    rng = np.random.default_rng(4)
    root = rng.normal(size=(11, 4, 4))
    precision, linear = root @ root.swapaxes(1, 2) + np.eye(4), rng.normal(size=(11, 4))
    precision[7] -= 40.0 * np.eye(4)
    both, log_det = factors.Users(4, False).solved(np.concatenate([triangle(precision), linear], axis=1))
    there = np.arange(11) != 7
    np.testing.assert_allclose(both[there, :4], np.linalg.solve(precision, linear[:, :, None])[there, :, 0], rtol=1e-10)
    np.testing.assert_allclose(both[there, 4:], triangle(np.linalg.inv(precision))[there], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(log_det[there], np.linalg.slogdet(precision)[1][there], rtol=1e-12)
    assert np.isnan(log_det[7])


def test_what_does_not_fit_is_refused():
    _, starts, columns, values, mean, covariance, prior = problem(2, True, seed=1)
    kernel = factors.Users(3, True)
    part, table = np.concatenate([triangle(prior[0]), prior[1]]), table_of(kernel, mean, covariance, True)
    sums = np.zeros((len(mean), kernel.sums_width))
    good = {"starts": starts, "users": None, "columns": columns, "values": values, "table": table, "prior": part}
    for wrong in (
        {"users": np.array([21])}, {"users": np.array([-1])}, {"prior": part[1:]}, {"table": table[:4]},
        {"columns": columns[:-1]}, {"numbers": np.zeros(3)}, {"starts": starts[::-1].copy()},
        {"numbers": np.zeros(starts[-1])}, {"moments": np.zeros((3, 9))}, {"old": np.zeros((21, 9))},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            kernel(**{**good, **wrong}, center=0.0, sharpness=1.0, sums=sums)
    totals, held, broken = kernel(**{**good, "users": np.zeros(0, np.int64)}, center=0.0, sharpness=1.0, sums=sums)
    assert (totals == 0).all() and (sums == 0).all() and held == broken == 0
