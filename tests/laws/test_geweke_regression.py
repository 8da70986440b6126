"""Geweke's joint test of Firefly: cycles alternate with fresh responses given theta, and the prior must come back.

theta is drawn from the prior; then each step draws responses given theta, lights every row from its conditional, and
runs the program on that regression. The joint prior of (theta, responses, z) is invariant, so after any number of steps
theta, the log likelihood and the number of bright rows have their prior laws. Those of theta are known, the others come
from REFERENCE independent draws of the joint prior, by the code of the quadrature. Replicates are independent: t-tests,
LEVEL in all (Bonferroni).

Geweke, J. (2004), Getting it right: joint distribution tests of posterior simulators, JASA 99.
"""

import functools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from mpibayes.hpc.parallel.comm import serial
from tests.exact import production_firefly as production
from tests.exact import wrong_firefly as wrong
from tests.exact.compare import LOOKS, seed
from tests.exact.quadrature import Case
from tests.laws.geweke import LEVEL, worst_event

REFERENCE = 100_000
CYCLES, SHARDS = 2, 2
X = np.array([[1.0, -1.5], [1.0, -0.7], [1.0, -0.2], [1.0, 0.4], [1.0, 0.9], [1.0, 1.8]], np.float32).astype(float)
SOFTMAX = Case("softmax6", "softmax", X, np.zeros(6, int), (0.0,) * 6, "gaussian", 1.0, n_classes=3)
STUDENT = Case("student6", "student-t", X, np.zeros(6), (0.0,) * 2, "laplace", 0.7, nu=4.0, scale=0.6)
INTERCEPT = Case("logistic6", "logistic", X, np.zeros(6, int), (0.0,) * 2, "laplace", 0.7, intercept_scale=2.5)
WRONG_UPDATES = ("misprinted acceptance", "darkened rows proposed again")
REPLICATES = {"softmax6": 50, "student6": 100, "logistic6": 50}  # student6: needed to detect a wrong scale
STEPS = {"hmc": 0.5, "mala": 0.9, "slice": 2.0}


def functionals(case, theta, n_bright=None):
    """Compared functionals, (..., S): theta (..., P) with case.y (..., N); bounded where tails are heavy."""
    k = theta.shape[-1]
    scale, normal = case.prior_by_coefficient()
    half = scale * np.where(normal, stats.norm.ppf(0.75), np.log(2.0))
    out = [theta[..., j] > 0 for j in range(k)] + [np.abs(theta[..., j]) > half[j] for j in range(k)]
    out += [theta[..., i] * theta[..., j] > 0 for j in range(k) for i in range(j)]
    each = case.log_likelihoods(theta)
    out += [each.sum(-1), each.min(-1), (each.sum(-1) > -6.0)]
    if n_bright is not None:
        out += [n_bright, n_bright == 0, n_bright * np.abs(theta[..., 0])]
    return np.stack([np.asarray(v, float) for v in out], axis=-1)


@functools.cache
def expected(case, bright):
    """Means and standard errors (S,) of the functionals under the joint prior."""
    generator = np.random.Generator(np.random.Philox(seed(72)))
    theta = case.draw_prior(REFERENCE, generator)
    case = replace(case, y=case.draw_responses(theta, generator))
    n_bright = None
    if bright:
        gap = case.log_likelihoods(theta) - case.log_bounds(theta, xi=production.XI[case.likelihood])
        n_bright = (generator.random(gap.shape) < -np.expm1(-gap)).sum(axis=-1)
    values = functionals(case, theta, n_bright)
    mean, error = values.mean(axis=0), values.std(axis=0) / np.sqrt(REFERENCE)
    k = case.n_parameters
    known = 2 * k + k * (k - 1) // 2  # signs and medians: a half each
    mean[:known], error[:known] = 0.5, 0.0
    return mean, error


def geweke(case, bounds, move, default_seed, misread=lambda c: c, n_replicates=100, steps=8, looks=1, **settings):
    """(p, number of the worst functional, z). misread: the regression given to the program."""
    g = np.random.Generator(np.random.Philox(seed(default_seed)))
    settings = {"bounds": bounds, "theta_update": move, "step_size": STEPS[move], "q": 0.5, "burn_in": 0} | settings
    exact, error = expected(case, bounds == "untuned")

    def replicate(r):
        theta, seen = case.draw_prior(1, g)[0], []
        for t in range(steps):
            now = replace(case, y=case.draw_responses(theta, g))
            sampler = production.chain(
                serial(), misread(now), SHARDS, seed(default_seed), number=r * steps + t, **settings
            )
            sampler._predict = lambda: float("nan")  # for the user; most of the cost of a start
            sampler.start()
            reported = production.history(sampler, [theta], CYCLES)
            theta = reported["theta"][-1]
            seen.append(functionals(now, theta, reported["n_bright"][-1] if bounds == "untuned" else None))
        return seen

    def test(means):
        n = len(means)
        z = (means.mean(axis=0) - exact) / np.sqrt(means.var(axis=0, ddof=1) / n + error**2)
        return 2.0 * stats.t.sf(np.abs(z), n - 1), z

    return worst_event(replicate, test, n_replicates, looks)


@pytest.mark.quick("softmax6-untuned-hmc")
@pytest.mark.parametrize(
    "case, bounds, move",
    [(SOFTMAX, "untuned", "hmc"), (SOFTMAX, "tuned", "mala"), (STUDENT, "untuned", "slice"), (STUDENT, "tuned", "hmc")],
    ids=lambda value: getattr(value, "name", value),
)
def test_joint_prior_comes_back(case, bounds, move):
    p, worst, z = geweke(case, bounds, move, 71, n_replicates=REPLICATES[case.name])
    assert p >= LEVEL, f"functional {worst}, z {z:.2f} (seed {seed(71)})"


@pytest.mark.thorough
def test_joint_prior_with_an_intercept_comes_back():
    p, worst, z = geweke(INTERCEPT, "tuned", "hmc", 71, n_replicates=REPLICATES[INTERCEPT.name])
    assert p >= LEVEL, f"functional {worst}, z {z:.2f} (seed {seed(71)})"


@pytest.mark.quick("softmax6-darkened rows proposed again")
@pytest.mark.parametrize(
    "case, name",
    [(SOFTMAX, "darkened rows proposed again"), (STUDENT, "misprinted acceptance")],
    ids=lambda value: getattr(value, "name", value),
)
def test_wrong_updates_are_rejected(case, name):
    with wrong.PROGRAMS[name].in_place():
        p, worst, z = geweke(
            case, "untuned", "hmc", 71, n_replicates=REPLICATES[case.name], looks=LOOKS, in_python=True
        )
    assert p < LEVEL, f"functional {worst}, z {z:.2f}"


def next_class(case):
    """Wrong: classes counted from one, the last taken for the first."""
    return replace(case, y=(case.y + 1) % case.n_classes)


def scale_forgotten(case):
    """Wrong: a t distribution of scale 1."""
    return replace(case, scale=1.0)


def intercept_like_the_others(case):
    """Wrong: an intercept with the prior of the coefficients."""
    return replace(case, intercept_scale=None)


WRONG_MODELS = [(SOFTMAX, next_class), (STUDENT, scale_forgotten), (INTERCEPT, intercept_like_the_others)]


@pytest.mark.quick("case2-intercept_like_the_others")
@pytest.mark.parametrize("case, misread", WRONG_MODELS)
def test_wrong_models_are_rejected(case, misread):
    p, worst, z = geweke(case, "tuned", "hmc", 71, misread, REPLICATES[case.name], looks=LOOKS)
    assert p < LEVEL, f"functional {worst}, z {z:.2f}"
