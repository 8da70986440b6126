"""The regression without clusters: where its slopes vanish, and errors of the coefficients."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from mpibayes.hpc.outcome.baseline import Baseline
from mpibayes.hpc.outcome.likelihoods import LIKELIHOODS
from mpibayes.hpc.outcome.plain import SD, WIDE, fit
from mpibayes.hpc.parallel.streams import Purpose, Stream

N, TRUTH = 800, np.array([0.4, 1.0, -0.5])


def problem(name, g):
    x = np.column_stack([np.ones(N), g.normal(size=(N, 2))]).astype(np.float32)
    eta = x @ TRUTH
    return x, {
        "logistic": np.where(g.random(N) < 1.0 / (1.0 + np.exp(-eta)), 1.0, -1.0),
        "poisson": g.poisson(np.exp(eta)).astype(float),
        "normal": eta + 0.3 * g.normal(size=N),
        "student-t": eta + 0.3 * g.standard_t(4, size=N),
    }[name]


@pytest.mark.parametrize("name", [name for name, of in LIKELIHOODS.items() if not (of.of_levels or of.of_times)])
def test_it_is_the_mode(name):
    """Against a general optimiser; errors are those of the inverse of its Hessian, by differences."""
    of = LIKELIHOODS[name]
    x, y = problem(name, np.random.default_rng(1))
    plain = fit(of, x, y, 4.0)
    precision = np.array([WIDE**-2.0, SD**-2.0, SD**-2.0])

    def minus(v):
        scale = np.exp(v[3]) if of.has_scale else 1.0
        return 0.5 * precision @ v[:3] ** 2 - of.log_density(x @ v[:3], y, 4.0, scale).sum()

    start = np.zeros(3 + of.has_scale)
    best = minimize(minus, start, method="BFGS", options={"gtol": 1e-4})
    assert plain.coefficients == pytest.approx(best.x[:3], abs=1e-4)
    if of.has_scale:
        assert plain.scale == pytest.approx(np.exp(best.x[3]), rel=1e-3)
    at, h = np.append(plain.coefficients, np.log(plain.scale))[: len(start)], 1e-3
    steps = h * np.eye(len(start))[:3]
    hessian = [
        [minus(at + a + b) - minus(at + a - b) - minus(at - a + b) + minus(at - a - b) for a in steps] for b in steps
    ]
    expected = np.sqrt(np.diag(np.linalg.inv(np.array(hessian) / (4.0 * h * h))))
    assert plain.errors == pytest.approx(expected, rel=0.05)  # of a t, rows far from the mode count for 0, not less
    assert plain.log_density(x, y).sum() == pytest.approx(of.log_density(x @ at[:3], y, 4.0, plain.scale).sum())


def test_hazards_and_coefficients_of_times_are_at_their_mode():
    """Against a general optimiser over both, from other values; its coefficients have about these errors."""
    g = np.random.default_rng(2)
    x = np.column_stack([np.ones(N), g.normal(size=(N, 2))]).astype(np.float32)
    event, end = g.exponential(size=N) * np.exp(-x @ TRUTH), g.uniform(0.1, 3.0, size=N)
    y = np.where(event <= end, event, -end)
    of = Baseline(np.round(2.0**16 * np.array([0.0, 0.2, 0.5, 1.0])), 2.0**-16, np.ones(4))
    plain = fit(of, x, y, 4.0)

    def minus(v):
        now = replace(of, hazards=np.exp(v[2:]))
        return 0.5 * (v[:2] ** 2).sum() / SD**2 - now.log_density(x[:, 1:] @ v[:2], y, 4.0, 1.0).sum()

    best = minimize(minus, np.append(np.zeros(2), np.full(4, np.log(of.tick))), method="BFGS")
    assert plain.coefficients == pytest.approx([0.0, *best.x[:2]], abs=2e-3)
    assert np.log(plain.likelihood.hazards) == pytest.approx(best.x[2:], abs=5e-3)
    assert plain.errors[1:] == pytest.approx(np.sqrt(np.diag(best.hess_inv))[:2], rel=0.2)


def test_softmax_is_at_its_mode():
    """Slopes of the log density vanish there, and errors are those of its curvature, both by differences; two classes
    are a logistic regression."""
    of, g = LIKELIHOODS["softmax"], np.random.default_rng(4)
    x, _ = problem("normal", g)
    truth = np.array([[0.4, 1.0, -0.5], [-0.6, -1.0, 2.0]])
    y = of.drawn(x @ truth.T, 0.0, 1.0, Stream(3, Purpose.OUTCOME_CELLS, 0), np.arange(N))
    plain = fit(of, x, y, 4.0, 2)
    precision = np.array([WIDE**-2.0, SD**-2.0, SD**-2.0])

    def value(at):
        at = at.reshape(2, 3)
        return of.log_density(x @ at.T, y, 0.0, 1.0).sum() - 0.5 * (precision * at**2).sum()

    at, steps = plain.coefficients.ravel(), 1e-3 * np.eye(6)
    slope = np.array([value(at + step) - value(at - step) for step in steps]) / 2e-3
    assert np.abs(slope * plain.errors.ravel()).max() < 1e-2
    bend = [
        [value(at + a + b) - value(at + a - b) - value(at - a + b) + value(at - a - b) for a in steps] for b in steps
    ]
    assert plain.errors.ravel() == pytest.approx(np.sqrt(np.diag(np.linalg.inv(-np.array(bend) / 4e-6))), rel=0.02)
    assert np.abs((plain.coefficients - truth) / plain.errors).max() < 4.0
    of_two, logistic = (
        fit(of, x, 1.0 * (y > 0), 4.0, 1),
        fit(LIKELIHOODS["logistic"], x, np.where(y > 0, 1.0, -1.0), 4.0),
    )
    assert of_two.coefficients[0] == pytest.approx(logistic.coefficients, abs=1e-3)
    assert of_two.errors[0] == pytest.approx(logistic.errors, rel=1e-3)


def test_hard_cases_have_a_finite_mode():
    """Separated classes, one class alone, an outlier."""
    g = np.random.default_rng(2)
    x, y = problem("student-t", g)
    separated = fit(LIKELIHOODS["logistic"], x, np.where(x[:, 1] > 0.0, 1.0, -1.0), 4.0)
    assert 5.0 < separated.coefficients[1] < 100.0
    assert fit(LIKELIHOODS["logistic"], x, np.full(N, 1.0), 4.0).expectations(x).min() > 0.99
    y[0] = 1e6
    assert fit(LIKELIHOODS["student-t"], x, y, 4.0).coefficients == pytest.approx(TRUTH, abs=0.1)


@pytest.mark.parametrize("name", ["normal", "student-t", "logistic"])
def test_units_do_not_matter(name):
    """Incomes by year of birth, in dollars: predictions and errors are those of standard scores."""
    of = LIKELIHOODS[name]
    x, y = problem(name, np.random.default_rng(3))
    middle, unit = (1e5, 3e4) if of.has_scale else (0.0, 1.0)
    far = (x * [1.0, 20.0, 1e-4] + [0.0, 1960.0, 0.0]).astype(np.float32)
    near, there = fit(of, x, y, 4.0), fit(of, far, middle + unit * y, 4.0)
    assert far @ there.coefficients == pytest.approx(middle + unit * (x @ near.coefficients), abs=1e-3 * unit)
    assert there.errors[1:] == pytest.approx(unit * near.errors[1:] / [20.0, 1e-4], rel=1e-2)
    assert there.scale == pytest.approx(unit * near.scale if of.has_scale else 1.0, rel=1e-3)
