"""Cells drawn after drawing a cluster's parameters have the predictive distribution: tested on 2,000 clusters of the
same few rows. Each test is at level 1e-4, and rejects parameters that are not drawn."""

import numpy as np
import pytest
from scipy import stats

from mpibayes.hpc.components.product import Components
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Column

LEVEL, CLUSTERS = 1e-4, 2000
STREAM = Stream(8, Purpose.COPY_PARAMETERS, cycle=1)
NONE = np.zeros(0, np.intp)


def repeated(*statistics):
    """Statistics of CLUSTERS equal clusters."""
    return tuple(np.ascontiguousarray(np.repeat(np.array(s)[:, None], CLUSTERS, axis=1)) for s in statistics)


def drawn(law, n_members=1):
    """Draw a row of each cluster, (CLUSTERS, members)."""
    ids = np.arange(CLUSTERS)
    cells = Stream(8, Purpose.COPY_CELLS, cycle=1)
    return law.draw(0, np.zeros((CLUSTERS, 0)), NONE, np.arange(n_members), ids, cells, ids)


def p_of_counts(x, p):
    """p-value of the chi-square test of cells 0, 1, ..., the last including all above."""
    seen = np.bincount(np.minimum(x.astype(int), len(p) - 1), minlength=len(p))
    return stats.chisquare(seen, p / p.sum() * len(x)).pvalue


def test_levels():
    kind = Components([Column("c", "categorical", "codes8", 0, ("r", "s", "t"))]).categorical
    s = (repeated([2, 0, 1, 0])[0].astype(np.int32),)
    hyper = np.array([0.5])
    p = kind.predictive(hyper, s).theta[:3, 0].astype(float)
    law = kind.drawn(hyper, s, STREAM)
    assert np.ptp(law.theta[0, :-1]) > 0.5 and law.theta[:3, -1] == pytest.approx(1 / 3)
    assert p_of_counts(drawn(law)[:, 0], p) > LEVEL


def test_counts():
    kind = Components([Column("n", "count", "tallies", 0, center=2.0)]).poisson
    hyper, s = np.array([[1.2, 0.5]]), repeated([2], [3.0])
    shape, rate = 1.2 + 3.0, 0.5 + 2.0
    p = stats.nbinom.pmf(np.arange(8), shape, rate / (rate + 1.0))
    p = np.append(p, 1.0 - p.sum())
    assert p_of_counts(drawn(kind.drawn(hyper, s, STREAM))[:, 0], p) > LEVEL
    assert p_of_counts(stats.poisson.rvs(shape / rate, size=CLUSTERS, random_state=1), p) < LEVEL


def test_numbers():
    kind = Components([Column("x", "real", "reals", 0)]).normal
    hyper, s = np.array([[0.2, 0.3, 2.5, 0.6]]), repeated([3], [1.0], [2.0])
    predictive, law = kind.predictive(hyper, s), kind.drawn(hyper, s, STREAM)
    t = stats.t(predictive.nu[0, 0], predictive.location[0, 0], predictive.scale[0, 0])
    assert stats.kstest(drawn(law)[:, 0], t.cdf).pvalue > LEVEL
    new = predictive.quantile(0, np.full(5, CLUSTERS), np.linspace(0.1, 0.9, 5))
    assert law.quantile(0, np.full(5, CLUSTERS), np.linspace(0.1, 0.9, 5)) == pytest.approx(new)
    law.location[:, :-1], law.scale[:, :-1] = predictive.location[:, :-1], 1.0 / np.sqrt(law.scale[:, :-1] ** -2).mean()
    assert stats.kstest(drawn(law)[:, 0], t.cdf).pvalue < LEVEL


def test_blocks():
    columns = [Column(name, "real", "vectors", i) for i, name in enumerate("xy")]
    kind = Components(columns, None, {"b": {"columns": ("x", "y")}}).multinormal
    hyper, s = np.array([[0.3, 2.0, 0.5]]), repeated([2], [1.0, -1.0], [1.0, 0.5, 1.0])
    predictive, law = kind.predictive(hyper, s), kind.drawn(hyper, s, STREAM)
    p, x = predictive.blocks[0], drawn(law, 2)
    for weights in ((1.0, 0.0), (0.0, 1.0), (1.0, -2.0)):
        a = np.array(weights)
        t = stats.t(p.nu[0], a @ p.location[0], np.sqrt(a @ p.matrix[0] @ a / p.nu[0]))
        assert stats.kstest(x @ a, t.cdf).pvalue > LEVEL
    assert law.blocks[0].nu[-1] == p.nu[-1] and (law.blocks[0].matrix[-1] == p.matrix[-1]).all()
    law.blocks[0].location[:-1] = p.location[:-1]
    law.blocks[0].matrix[:-1] = np.median(law.blocks[0].matrix[:-1], axis=0)
    t = stats.t(p.nu[0], p.location[0, 0], np.sqrt(p.matrix[0, 0, 0] / p.nu[0]))
    assert stats.kstest(drawn(law, 2)[:, 0], t.cdf).pvalue < LEVEL
