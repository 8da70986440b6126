"""Log probabilities of intervals keep their digits where the probability itself is below the smallest number."""

import numpy as np
import pytest

from mpibayes.hpc.components.masses import log_t


@pytest.mark.parametrize("width", [0.01, 0.3, 2.0])  # one point, three, distribution functions
@pytest.mark.parametrize("nu", [np.inf, 900.0])
def test_far_intervals_are_continued_where_probabilities_underflow(width, nu):
    """Against sums of log densities on a fine grid; the parameters are arrays as in questions."""
    for middle in (5.0, 30.0, 60.0, -60.0, 300.0):
        if np.isfinite(nu) and width > 0.5 and abs(middle) > 30.0:
            continue  # a difference of two distribution functions of t, which scipy has without logarithms
        x = middle + width * (np.arange(20_000) + 0.5) / 20_000 - 0.5 * width
        log = log_t(0.0, 1.0, nu, x, x) + np.log(width / 20_000)
        exact = log.max() + np.log(np.exp(log - log.max()).sum())
        low, high = np.array([middle - 0.5 * width]), np.array([middle + 0.5 * width])
        got = log_t(0.0, 1.0, nu, low, high)
        step = width * abs(middle)  # one and three points are rough where the density falls within the interval
        assert got[0] == pytest.approx(exact, abs=1e-3 + (0.0 if width > 0.5 else step))


def test_an_impossible_interval_stays_impossible():
    end = np.array([-np.inf])
    assert not np.isfinite(log_t(0.0, 1.0, np.inf, end, end)).any()
    assert log_t(
        np.zeros(2), np.ones(2), np.inf, np.array([-np.inf, 50.0]), np.array([-50.0, np.inf])
    ) == pytest.approx([-1254.8313611, -1254.8313611])
