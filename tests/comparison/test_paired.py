"""The paired difference of scores and its standard error."""

import numpy as np
import pytest

from mpibayes.hpc.comparison.figures import differences
from mpibayes.hpc.comparison.paired import difference, mean_of
from mpibayes.hpc.comparison.words import plus_minus

N, REPEATS, TRUE = 40, 2000, 0.3


def test_by_hand():
    d = difference(np.array([-1.0, -5.0, -2.0, -8.0]), np.array([-2.0, -5.5, -1.0, -9.5]))
    # differences 1, 0.5, -1, 1.5: mean 0.5, sum of squares about it 0.25 + 0 + 2.25 + 1 = 3.5
    assert d.n == 4 and d.mean == pytest.approx(0.5) and d.error == pytest.approx(np.sqrt(3.5 / 3 / 4))
    assert d.better == 0.75 and not d.decided
    assert d.without[0] == 2 and d.without[1:] == pytest.approx((1.0, np.sqrt(0.5 / 2 / 3)))
    assert d.hangs_on_one_row  # the other three have 1 ± 0.29


def test_one_row_and_equal_scores():
    assert np.isnan(difference(np.array([1.0]), np.array([0.0])).error)
    assert not difference(np.array([1.0]), np.array([0.0])).decided
    same = difference(np.arange(9.0), np.arange(9.0))
    assert (same.mean, same.error, same.decided, same.hangs_on_one_row) == (0.0, 0.0, False, False)


def test_differences_are_drawn(pictures):
    d = np.random.default_rng(1).normal(TRUE, 1.0, N)
    assert differences(d, difference(d, np.zeros(N)), "a", "b").startswith(b"\x89PNG")


def scores(g):
    """Two runs' scores of the same rows: rows differ by 5 nats, the runs by 0.5 about TRUE."""
    row = g.normal(-20.0, 5.0, N)
    return row + TRUE + g.normal(0.0, 0.5, N), row


def wrong_twin(a, b):
    """The error of the difference of two independent samples."""
    return mean_of(a)[1] ** 2 + mean_of(b)[1] ** 2


def judged(variance):
    """(mean of the estimated variances over that of the mean differences, share beyond two errors of the truth)."""
    g = np.random.default_rng(20)
    result = [(difference(a, b).mean, variance(a, b)) for a, b in (scores(g) for _ in range(REPEATS))]
    means, variances = np.array(result).T
    return variances.mean() / means.var(), float((np.abs(means - TRUE) > 2.0 * np.sqrt(variances)).mean())


def test_the_standard_error_is_right_and_an_unpaired_one_is_not():
    """Simulated. The variance of 2,000 means is known to 3.2 %, so that 15 % are 4.7 standard deviations; beyond two
    errors lie 5.2 % of Student's t with 39 degrees of freedom, +- 0.5 %: false alarms below 1e-5 together."""
    ratio, beyond = judged(lambda a, b: difference(a, b).error ** 2)
    assert 0.85 < ratio < 1.15 and 0.029 < beyond < 0.077
    ratio, beyond = judged(wrong_twin)
    assert not 0.85 < ratio < 1.15 and not 0.029 < beyond < 0.077


@pytest.mark.parametrize(
    ("mean", "error", "words"),
    [
        (0.412, 0.0312, "0.41 ± 0.03"), (0.04123, 0.00312, "0.041 ± 0.003"), (12.3, 2.4, "12.30 ± 2.40"),
            (0.412, 0.0123, "0.412 ± 0.012"),
        (0.0, 0.0, "0.00 ± 0.00"), (1.0, np.nan, "1.00 ± -"),
    ],
)  # fmt: skip
def test_in_words(mean, error, words):
    assert plus_minus(mean, error) == words
