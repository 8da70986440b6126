"""A column's likelihood at a power: cells that all occur twice, at power 1/2, are equivalent to the cells at power
1."""

from dataclasses import replace

import numpy as np
import pytest

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.parallel.streams import Purpose, Stream
from tests.laws import test_components as single
from tests.laws import test_vectors as vectors

MEANS = ("real_mean", "vector_mean")


def cases():
    """Yield (kind, hyperparameters, statistics) of three clusters, with columns of every kind, and one that depends on
    another."""
    z = np.arange(30) % 3
    components, hyper, rows = single.mixed_table(5, 30, 0.2)
    s = single.statistics(components, rows, z, 3)
    for kind in components.kinds[:3]:
        yield pytest.param(kind, getattr(hyper, kind.hyper), s.of(kind), id=kind.name)
    linked = Categorical([replace(components.categorical.columns[0], contexts=2)], {}, {})
    levels = np.random.default_rng(6).integers(9, size=(8, 3)).astype(np.int32)
    levels[3] = 0  # cells of a context that lack are counted in the last row
    yield pytest.param(linked, linked.start(), (levels,), id="linked")
    components, hyper, rows = vectors.joint_table(7, 30, (2, 3))
    kind, s = components.multinormal, vectors.statistics(rows, z, 3)
    yield pytest.param(kind, hyper.wishart, s.of(kind), id=kind.name)


@pytest.mark.parametrize("kind, hyper, s", list(cases()))
def test_half_of_twice_as_much_is_the_same(kind, hyper, s):
    twice = tuple(a if array.name in MEANS else 2 * a for array, a in zip(kind.statistics, s))
    whole = kind.log_marginal(hyper, s, slice(0, len(kind)))
    stream = Stream(seed=8, purpose=Purpose.PARAMETERS, cycle=1)
    for column in range(len(kind)):
        halves = kind.log_marginal_at(hyper, twice, column, 0.5)
        assert halves == pytest.approx(whole[column], rel=1e-12)
        assert kind.log_marginal_at(hyper, s, column, 1.0) == pytest.approx(whole[column], rel=1e-12)
        assert kind.log_marginal_at(hyper, s, column, 0.0) == 0.0
        drawn, expected = (kind.draw_at(hyper, of, column, power, stream) for of, power in ((twice, 0.5), (s, 1.0)))
        plain = kind.draw(hyper, s, slice(column, column + 1), stream)
        weight = {"location": 1.0, "vector_location": 1.0, "vector_factor": 0.5**0.5}
        for array, a, b, c in zip(kind.parameters, drawn, expected, plain):
            np.testing.assert_allclose(a, weight.get(array.name, 0.5) * b, rtol=1e-6)
            np.testing.assert_allclose(b, c, rtol=1e-6)
