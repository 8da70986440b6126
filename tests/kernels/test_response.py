"""Sweeps beside an outcome, and passes over its rows, agree with their twin in plain Python."""

import numpy as np
import pytest

from mpibayes.hpc.outcome.bounds import BOUNDS
from mpibayes.hpc.outcome.likelihoods import LIKELIHOODS
from mpibayes.kernels import mixture
from mpibayes.kernels.mixture import response, twin, twin_response

from .tables import random_parameters, random_table

KINDS = {"logistic": 0, "student-t": 1, "normal": 2, "poisson": 3, "softmax": 4}
ETAS = {"softmax": 3}  # linear predictors of a row, else 1
N = 70


def outcome(rng, kind, p, d):
    """y with gaps, u, w, beta of random rows."""
    n_eta = ETAS.get(kind, 1)
    y = {
        "logistic": lambda: 2.0 * rng.integers(2, size=N) - 1.0,
        "poisson": lambda: rng.poisson(2.0, N).astype(float),
        "softmax": lambda: rng.integers(n_eta + 1, size=N).astype(float),
    }.get(kind, lambda: rng.normal(size=N))()
    y[rng.random(N) < 0.1] = np.nan
    return y, *(rng.normal(size=(N, m)).astype(np.float32) for m in (p - 1, d)), rng.normal(size=n_eta * d)


@pytest.mark.quick("1-logistic")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 3])
def test_sweeps(kind, p):
    """Instantiated clusters with anchors, and a tail that opens and closes: labels and coefficients of slots."""
    row0, seed, cycle, chain, n_clusters, free = 7, 3, 4, 1, 9, 3
    rng = np.random.default_rng([p, KINDS[kind]])
    rows, prior = random_table(rng, N, levels8=(2, 3), n_reals=1, n_tallies=1)
    y, u, w, beta = outcome(rng, kind, p, 2)
    n_eta = ETAS.get(kind, 1)
    priority = mixture.priorities(row0, N, seed, cycle, chain)
    anchored = np.argsort(priority)[: n_clusters - free]
    start = (rng.integers(0, free, size=N)).astype(np.int32)
    start[anchored] = free + np.arange(len(anchored))
    parameters = random_parameters(rng, prior, n_clusters, free, priority[anchored])
    theta = rng.normal(size=(n_eta * p, n_clusters))
    modules = (mixture, response), (twin, twin_response)
    held = [of.Instantiated(**parameters) for of, _ in modules]
    tails = [of.Tail(prior, 2.5, 0.2, 0.0) for of, _ in modules]
    offsets = [of.offsets(w, beta, y, n_eta) for _, of in modules]
    for ours, theirs in zip(*offsets):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    answers = [of.Response(KINDS[kind], y, u, *offsets[0], theta, theta[:, :0], 4.0, 0.7) for _, of in modules]
    z, opened = [start.copy() for _ in modules], 0
    for step in range(3):
        fresh, pick = rng.normal(size=(N, 2, n_eta * p)), rng.random(N)
        for (of, _), labels, g, tail, answer in zip(modules, z, held, tails, answers, strict=True):
            answer.renew(fresh, pick)
            of.sweep(rows, labels, row0, seed, cycle, step, chain, g, tail, prior, response=answer)
        assert np.array_equal(*z)
        slots = np.unique(z[0][z[0] >= 16]) - 16
        opened += len(slots)
        np.testing.assert_array_equal(answers[0].slots(slots), answers[1].slots(slots))
    assert opened > 5
    alone = [None, None], [of.Tail(prior, 4.0, 0.2, 0.0) for of, _ in modules]
    z = [np.full(N, -1, np.int32) for _ in modules]
    answers = [of.Response(KINDS[kind], y, u, *offsets[0], theta[:, :0], theta[:, :0]) for _, of in modules]
    for step in range(2):
        for (of, _), labels, g, tail, answer in zip(modules, z, *alone, answers, strict=True):
            answer.renew(fresh, pick)
            of.sweep(rows, labels, row0, seed, cycle, step, chain, g, tail, prior, response=answer)
        assert np.array_equal(*z)
    np.testing.assert_array_equal(*(answer.slots(np.unique(z[0])) for answer in answers))


@pytest.mark.parametrize("kind", KINDS)
def test_passes(kind):
    """Values, slopes, and sums of squares, of labelled rows whose outcome is known."""
    rng = np.random.default_rng([9, KINDS[kind]])
    y, u, w, beta = outcome(rng, kind, 3, 2)
    n_eta = ETAS.get(kind, 1)
    z, theta = rng.integers(-1, 4, size=N).astype(np.int32), rng.normal(size=(4, 3 * n_eta))
    both = [of.slopes(KINDS[kind], z, y, u, w, theta, beta, 4.0, 0.7) for of in (response, twin_response)]
    np.testing.assert_allclose(*both, rtol=1e-7, atol=1e-6)
    if kind == "poisson":
        law = theta, beta, 4.0, 0.7, rng.normal(size=N)
        both = [of.slopes(KINDS[kind], z, y, u, w, *law) for of in (response, twin_response)]
        np.testing.assert_allclose(*both, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(*(of.squares(z, y, u, w, 4, n_eta) for of in (response, twin_response)), rtol=1e-12)


@pytest.mark.parametrize("kind", BOUNDS)
def test_bounds(kind):
    """Gaps and sums of the quadratic agree with their twin, and with likelihoods less bounds; bounds touch at their
    points and lie below the likelihood elsewhere."""
    rng, code, nu, scale = np.random.default_rng([11, KINDS[kind]]), KINDS[kind], 4.0, 0.7
    y, u, w, beta = outcome(rng, kind, 3, 2)
    z, theta = rng.integers(-1, 4, size=N).astype(np.int32), rng.normal(size=(4, 3))
    xi, bound, law = rng.exponential(2.0, N), BOUNDS[kind], LIKELIHOODS[kind]
    h, level = bound.at(xi, nu, scale)
    each = [of.gaps(code, z, y, u, w, theta, beta, h, level, nu) for of in (response, twin_response)]
    np.testing.assert_allclose(*each, rtol=1e-9, atol=1e-14)
    sums = [of.bound_sums(z, bound.slope(y, h), h, u, w, 4) for of in (response, twin_response)]
    np.testing.assert_allclose(*sums, rtol=1e-12, atol=1e-14)
    seen = (z >= 0) & ~np.isnan(y)
    eta = theta[z, 0] + (theta[z, 1:] * u).sum(axis=1) + w @ beta
    gap, slope = bound.gaps(eta, y, h, level, nu)
    np.testing.assert_allclose(each[0], np.where(seen, gap, 0.0), rtol=1e-9, atol=1e-14)
    touched = y - xi if law.has_scale else xi
    difference = law.log_density(eta[seen], y[seen], nu, scale) - law.log_density(touched[seen], y[seen], nu, scale)
    quadratic = bound.slope(y, h) * (eta - touched) - 0.5 * h * (eta**2 - touched**2)
    np.testing.assert_allclose(difference - quadratic[seen], gap[seen], rtol=1e-9, atol=1e-13)
    ends = [bound.gaps(eta + step, y, h, level, nu)[0] for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(((ends[0] - ends[1]) / 2e-6)[seen], slope[seen], rtol=1e-5, atol=1e-8)
    assert np.all(gap[seen] >= 0) and np.all(bound.gaps(touched, y, h, level, nu)[0][seen] < 1e-14)


def test_extremes_stay_finite():
    """Linear predictors beyond all exponentials have finite likelihoods and slopes."""
    none, z = np.zeros((3, 0), np.float32), np.zeros(3, np.int32)
    for kind, code in KINDS.items():
        y = np.array([1.0, 0.0 if kind == "softmax" else -1.0, 3.0])
        for theta in (-1e4, 1e4):
            of = np.full((1, ETAS.get(kind, 1)), theta)
            assert np.isfinite(response.slopes(code, z, y, none, none, of, np.zeros(0))).all()
