"""The pass over rows under a mixture of Gaussians agrees with its plain twin."""

import numpy as np
import pytest

from mpibayes.kernels.svi import twin
from mpibayes.kernels.svi.gaussian import Pass


def problem(k, d, n, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    mean, factor = spread * rng.normal(size=(k, d)), np.tril(rng.normal(size=(k, d, d)))
    return rng, rng.normal(size=(n, d)) * 2 + spread, mean, factor, rng.normal(size=k)


def form(k, d):
    return k, 1 + d + d * (d + 1) // 2


@pytest.mark.parametrize(
    "k, d, n, spread", [(1, 1, 1, 1.0), (5, 3, 1000, 0.3), (50, 8, 777, 20.0), (2, 1, 65, 1.0), (7, 17, 200, 1.0)]
)
@pytest.mark.parametrize("some", [False, True])
def test_twins(k, d, n, spread, some):
    rng, x, mean, factor, constant = problem(k, d, n, seed=k + d, spread=spread)
    rows = rng.integers(n, size=(n + 1) // 2) if some else None
    numbers = rng.normal(size=n if rows is None else len(rows)) if some else None
    result, expected = (np.zeros((2, *form(k, d))) for _ in range(2))
    run = Pass(k, d)
    run(x, rows, numbers, mean, factor, constant, np.zeros_like(result))  # what a pass leaves behind is not added
    one = run(x, rows, numbers, mean, factor, constant, result)
    other = twin.accumulate(x, rows, numbers, mean, factor, constant, expected)
    assert one == pytest.approx(other, rel=1e-13, abs=1e-11)
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-12 * np.abs(expected).max())
    assert (result[1] == 0).all() == (numbers is None)


def test_what_is_unlikely_counts_as_nothing():
    """Responsibilities end at 10^-12 of the row's greatest, and not before."""
    x, factor, constant = np.zeros((3, 1)), np.ones((2, 1, 1)), np.array([0.0, 0.0])
    for away, there in ((5.25, True), (5.26, False)):  # exp(-5.2565^2) is 1e-12
        sums = np.zeros((1, 2, 3))
        Pass(2, 1)(x, None, None, np.array([[0.0], [away]]), factor, constant, sums)
        assert (sums[0, 1, 0] > 0) == there


def test_rows_that_are_not_there():
    _, x, mean, factor, constant = problem(2, 3, 5, seed=0)
    run, sums = Pass(2, 3), np.zeros((1, *form(2, 3)))
    assert run(x, np.zeros(0, np.int64), None, mean, factor, constant, sums) == 0.0 and (sums == 0).all()
    for rows, numbers in ((np.array([5]), None), (np.array([-1]), None), (None, np.ones(4))):
        with pytest.raises(ValueError):
            run(x, rows, numbers, mean, factor, constant, np.zeros((2, *form(2, 3))))
