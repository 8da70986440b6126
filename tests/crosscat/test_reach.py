"""Numbers of completed tables from clusters whose parameters come from the prior's tails."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.laws import reach
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Column
from mpibayes.io.shape import Shape

LEVEL, CLUSTERS = 1e-4, 4000
AGE = Column("age", "real", "reals", 0, center=40.0, scale=20.0, minimum=0.0, maximum=100.0, resolution=1.0)
PARAMETERS, CELLS = (Stream(3, purpose, cycle=1) for purpose in (Purpose.COPY_PARAMETERS, Purpose.COPY_CELLS))
IDS = np.arange(CLUSTERS)
SHAPED = 3.0 - np.log(100.0), np.log(100.0) - 3.0


@pytest.fixture(scope="module")
def drawn():
    """The law of so many clusters without a cell, and a number of each."""
    kind = Components([AGE]).normal
    s = tuple(np.zeros((1, CLUSTERS), dtype) for dtype in (np.int64, np.float64, np.float64))
    law = kind.drawn(np.array([[40.0, 0.1, 1.0, 100.0]]), s, PARAMETERS)
    x = law.draw(0, np.zeros((CLUSTERS, 0)), IDS[:0], np.zeros(1, np.intp), IDS, CELLS, IDS)[:, 0]
    return law, x, reach.drawn_again(law, 0, AGE, x, IDS, replace(CELLS, sub=3), IDS)


def shares(law, x, at):
    """Places of numbers between 0 and 100 by their clusters' laws; uniform if they are drawn from these."""
    low, high, p = (stats.norm.cdf(y, law.location[0, at], law.scale[0, at]) for y in (0.0, 100.0, x[at]))
    clear = high - low > 1e-6  # beyond, distribution functions keep no digits
    return (p - low)[clear] / (high - low)[clear]


def test_numbers_out_of_reach_are_drawn_again_within_the_range(drawn):
    law, x, result = drawn
    far = (x < -50.0) | (x > 150.0)
    assert np.abs(x).max() > 10_000.0 and 0.05 < far.mean() < 0.5
    assert (result[~far] == x[~far]).all()
    assert (result[far] >= 0.0).all() and (result[far] <= 100.0).all()
    assert stats.kstest(shares(law, result, np.flatnonzero(far)), "uniform").pvalue > LEVEL
    assert stats.kstest(shares(law, np.clip(x, 0.0, 100.0), np.flatnonzero(far)), "uniform").pvalue < LEVEL


def test_rows_are_drawn_by_their_ids(drawn):
    law, x, result = drawn
    part = IDS[1::3]
    assert (reach.drawn_again(law, 0, AGE, x[part], part, replace(CELLS, sub=3), part) == result[part]).all()


@pytest.mark.parametrize(
    "changes, ends",
    [
        ({}, (0.0, 100.0)),
        ({"log": True, "center": 3.0, "scale": 1.0, "minimum": 1.0}, (0.0, np.log(100.0))),
        ({"log": True, "center": 3.0, "scale": 1.0, "atoms": (0.0,)}, (6.0 - np.log(100.0), np.log(100.0))),
        ({"log": True, "center": 0.0, "scale": 1.0, "shape": Shape(3.0, 1.0, 0.0, 1.0)}, SHAPED),
    ],
)
def test_the_range_is_on_the_scale_of_the_model(changes, ends):
    assert reach.range_of(replace(AGE, **changes)) == pytest.approx(ends)


def test_a_constant_column_has_no_reach(drawn):
    law, x, _ = drawn
    assert reach.drawn_again(law, 0, replace(AGE, minimum=5.0, maximum=5.0), x, IDS, CELLS, IDS) is x
