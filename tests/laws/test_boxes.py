"""Normal variables within ranges: probabilities by another rule, and draws against rejection."""

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr
from scipy.stats import ks_2samp, multivariate_normal

from mpibayes.hpc.components import boxes
from mpibayes.hpc.components.boxes import draw_in_box, log_box, log_interval

INF = np.inf


def pair(rho: float, low, high) -> float:
    """Probability of a rectangle under a standard normal pair, by the trapezoidal rule in the angle of Sheppard's
    formula: d/dr P(X < h, Y < k) is the density of the pair at correlation r."""

    def below(h, k):
        t = np.linspace(0.0, np.arcsin(rho), 200_001)
        f = np.exp(-(h * h + k * k - 2.0 * h * k * np.sin(t)) / (2.0 * np.cos(t) ** 2)) / (2.0 * np.pi)
        return ndtr(h) * ndtr(k) + np.trapezoid(f, t)

    (a, b), (c, d) = np.clip([low, high], -9.0, 9.0).T
    return below(b, d) - below(a, d) - below(b, c) + below(a, c)


@pytest.mark.parametrize("rho", [0.0, 0.4, -0.95, 0.9999])
@pytest.mark.parametrize(
    ("low", "high"), [((-1.0, -2.0), (0.5, 0.0)), ((0.2, 0.1), (0.25, INF)), ((-INF, 1.0), (INF, 2.0))]
)
def test_rectangles(rho, low, high):
    covariance = np.array([[1.0, 3.0 * rho], [3.0 * rho, 9.0]])
    bounds = (np.array([of]) * [1.0, 3.0] + [0.3, -2.0] for of in (low, high))
    assert np.exp(log_box(np.array([[0.3, -2.0]]), covariance, *bounds))[0] == pytest.approx(
        pair(rho, low, high), abs=1e-8
    )


@pytest.mark.parametrize("chain", [True, False])
def test_three_of_them(chain):
    covariance = np.array([[1.0, 0.8, 0.56], [0.8, 1.0, 0.7], [0.56, 0.7, 1.0]])
    if not chain:
        covariance[0, 2] = covariance[2, 0] = 0.3
    low, high = np.array([-1.0, -INF, 0.1]), np.array([0.5, 0.7, INF])
    law = multivariate_normal(np.zeros(3), covariance, maxpts=400_000, abseps=1e-8, releps=1e-8)
    exact = law.cdf(np.minimum(high, 9.0), lower_limit=np.maximum(low, -9.0))
    assert np.exp(log_box(np.zeros((1, 3)), covariance, low[None], high[None]))[0] == pytest.approx(exact, abs=1e-6)


def test_far_out_there_are_still_digits():
    """Boxes of two independent variables, and of an irrelevant one."""
    covariance = np.array([[1.0, 1e-6], [1e-6, 1.0]])
    log_p = log_box(np.zeros((1, 2)), covariance, np.array([[25.0, -INF]]), np.array([[INF, -20.0]]))
    assert log_p[0] == pytest.approx(log_ndtr(-25.0) + log_ndtr(-20.0), abs=1e-3)
    assert log_interval(np.array([30.0]), np.array([INF]))[0] == pytest.approx(log_ndtr(-30.0))


def test_boxes_out_of_reach_have_no_probability():
    """Like ranges in clusters that are nowhere near."""
    covariance, low, high = np.array([[1.0, 0.5], [0.5, 1.0]]), np.full((1, 2), 50.0), np.full((1, 2), 60.0)
    assert log_box(np.zeros((1, 2)), covariance, low, high)[0] == -INF
    drawn = draw_in_box(np.zeros((1, 2)), covariance, low, high, np.full((1, 2), 0.5))
    assert drawn == pytest.approx(50.0, abs=0.1)


def ks(seed: int) -> list[float]:
    covariance, mean = np.array([[1.0, 1.8, 0.3], [1.8, 4.0, 0.5], [0.3, 0.5, 1.0]]), np.array([0.3, -0.2, 0.0])
    low, high = np.array([-0.5, 0.5, -1.0]), np.array([2.0, 1.5, INF])
    g, n = np.random.default_rng(seed), 3_000
    x = draw_in_box(*(np.tile(mean, (n, 1)), covariance), *(np.tile(a, (n, 1)) for a in (low, high)), g.random((n, 3)))
    assert ((x >= low) & (x <= high)).all()
    y = g.multivariate_normal(mean, covariance, 60_000)
    y = y[((y > low) & (y < high)).all(axis=1)]
    return [ks_2samp(x @ w, y @ w).pvalue for w in np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-2, 1, 0], [0, 1, -2]])]


def test_draws_are_those_that_rejection_leaves():
    assert min(ks(3)) > 2e-5  # once in 10,000 seeds


def test_draws_of_each_variable_by_itself_are_rejected(monkeypatch):
    monkeypatch.setattr(boxes, "_independent", lambda covariance: [[i] for i in range(len(covariance))])
    assert min(ks(3)) < 1e-8
