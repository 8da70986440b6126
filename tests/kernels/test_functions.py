"""Special functions of the kernels have the bits of SciPy's, which are their twins."""

import numpy as np
import pytest
from scipy import special

from mpibayes.hpc.crosscat.view.pitman_yor import gamma_quantiles, log_sum
from mpibayes.kernels.common.functions import expit, gammaln, xlogx

SCALES = (1e-300, 1e-3, 1.0, 3.0, 13.0, 40.0, 1e3, 1e5, 1e9, 1e307)


def positive():
    g = np.random.default_rng(1)
    return np.concatenate([*(g.random(2_000) * scale for scale in SCALES), np.arange(3_000) / 2])


def test_log_gamma():
    x = np.append(positive(), [np.inf, np.nan, 2.6e305])
    np.testing.assert_array_equal(gammaln(x), special.gammaln(x))
    assert [gammaln(v) for v in x[:50].tolist()] == special.gammaln(x[:50]).tolist()
    assert np.isnan(gammaln(-0.5)) and np.isnan(gammaln(np.array([-1.0]))[0])


def test_others():
    x = positive()
    np.testing.assert_array_equal(xlogx(x), special.xlogy(x, x))
    odds = np.concatenate([np.log(x[x > 0]), -x[x < 1e5], [np.inf, -np.inf]])
    np.testing.assert_array_equal(expit(odds), special.expit(odds))


@pytest.mark.parametrize("of", [gammaln, expit, xlogx])
def test_shapes(of):
    x = np.arange(1.0, 13.0).reshape(3, 4)
    np.testing.assert_array_equal(of(x.T), of(x).T)
    np.testing.assert_array_equal(of(np.arange(1, 4)), of(x[0, :3]))
    assert of(x[:0]).shape == (0, 4) and isinstance(of(np.int64(3)), float) and of(3) == of(np.array(3.0))


@pytest.mark.parametrize("shape", [(1,), (41,), (41, 10)])
def test_log_sum(shape):
    g = np.random.default_rng(2)
    for scale in (0.1, 3.0, 400.0):
        terms = np.round(g.normal(size=shape) * scale, 1)  # so that some are equal
        assert log_sum(terms) == special.logsumexp(terms)


def test_quantiles_of_the_default_prior():
    p = (np.arange(41) + 0.5) / 41
    np.testing.assert_allclose(gamma_quantiles(1.0, 2.0, 41), special.gammaincinv(1.0, p) / 2.0, rtol=1e-15)
    np.testing.assert_array_equal(gamma_quantiles(1.5, 2.0, 41), special.gammaincinv(1.5, p) / 2.0)
