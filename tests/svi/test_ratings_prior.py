"""The prior that ratings suggest (`prior_variance = "auto"`)."""

import numpy as np
import pytest

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.svi.chain import Settings
from mpibayes.hpc.svi.factorization.chain import Kind, RatingsAscent
from mpibayes.hpc.svi.factorization.law import HeldOut
from mpibayes.hpc.svi.factorization.model import Fixed
from mpibayes.hpc.svi.factorization.ratings import Ratings
from tests.svi.ratings import made

ITEMS, CYCLES = 30, 20


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rank", [1, 4, 10])
def test_half_of_the_variance_is_dealt_evenly(rank, biased):
    """Simulated ratings, drawn from the prior, have the given variance, and the products of factors the share of a
    bias. The standard deviation of either is below 1 % in 100,000 draws."""
    fixed, rng, n = Fixed.of_shares(7.0, rank, biased), np.random.default_rng(rank), 100_000
    u, v = rng.normal(0.0, fixed.spread**0.5, (2, n, rank))
    product = (u * v).sum(axis=1)
    biases = rng.normal(0.0, fixed.of_bias**0.5, (2, n)).sum(axis=0) if biased else np.zeros(n)
    assert (product + biases + rng.normal(0.0, fixed.variance**0.5, n)).var() == pytest.approx(7.0, rel=0.05)
    assert product.var() == pytest.approx(fixed.of_bias, rel=0.05)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("spread, right", [(None, True), (1.0, False)])
def test_the_unit_of_ratings_does_not_matter(biased, spread, right):
    """Errors in tenths of the unit are ten times as large, and the bound is that of the same density. A prior in
    numbers is the wrong twin."""
    x = made(80, ITEMS, 2, biased, seed=3)
    result = []
    for times in (1.0, 10.0):
        ratings = Ratings(x.starts, x.columns, np.float32(times) * x.values)
        of = lambda a, b: ratings  # noqa: E731, B023
        chain = RatingsAscent(serial(), Kind(2, biased, False, spread=spread), ITEMS, of, 80, Settings(shards=1))
        chain.start()
        for _ in range(CYCLES):
            chain.cycle()
        rmse = HeldOut(serial(), chain, [ratings]).score()[0]
        result.append((np.log(rmse / times), chain.bound / len(x.values) + np.log(times)))
    np.testing.assert_array_equal(np.abs(np.diff(result, axis=0)) < 1e-3, right)
