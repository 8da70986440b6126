"""Draws by log weights and the Pitman-Yor prior beside the NumPy lines that they stand for."""

import numpy as np
import pytest
from scipy import special

from mpibayes.kernels.common.weights import log_eppf, pick, picks


def drawn(log_weight, u):
    cumulative = np.exp(log_weight - log_weight.max()).cumsum()
    return int(cumulative.searchsorted(u * cumulative[-1], "right"))


@pytest.mark.parametrize("scale", [0.1, 3.0, 100.0])
def test_picks(scale):
    g = np.random.default_rng(1)
    for width in (1, 2, 9, 70):
        log_weight = g.normal(size=(200, width)) * scale
        log_weight[:, 1:][g.random((200, width - 1)) < 0.2] = -np.inf
        u = np.append(g.random(198), [0.0, np.nextafter(1.0, 0.0)])
        expected = [drawn(*of) for of in zip(log_weight, u)]
        assert [pick(*of) for of in zip(log_weight, u.tolist())] == expected == picks(log_weight, u).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers(bad):
    for log_weight in ([0.0, bad], [bad, 0.0], [-np.inf, -np.inf]):
        assert pick(np.array(log_weight), 0.5) == -1
        assert picks(np.array([log_weight]), np.array([0.5])).tolist() == [-1]
    with pytest.raises(ValueError):
        pick(np.zeros(0), 0.5)
    with pytest.raises(ValueError):
        picks(np.zeros((2, 3)), np.zeros(3))


@pytest.mark.parametrize("n_clusters", [1, 2, 8, 9, 17, 130, 300])
def test_log_eppf(n_clusters):
    g = np.random.default_rng(2)
    size, alpha, d = g.integers(1, 500, n_clusters), np.array([0.05, 1.0, 300.0]), np.array([0.0, 0.3, 0.9])
    opened = np.log(alpha[:, None, None] + np.arange(1, n_clusters) * d[:, None]).sum(axis=-1)
    seated = special.gammaln(alpha + size.sum()) - special.gammaln(alpha + 1.0)
    blocks = (special.gammaln(size - d[:, None]) - special.gammaln(1.0 - d[:, None])).sum(axis=-1)
    np.testing.assert_allclose(log_eppf(size, alpha, d), opened - seated[:, None] + blocks, rtol=1e-13, atol=1e-12)
    assert np.isfinite(log_eppf(size, np.array([-0.2]), np.array([0.5]))).all()  # -d < alpha <= 0
