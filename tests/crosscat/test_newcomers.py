"""Rows that came to a run start in clusters of their own, found among them alone."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.start import newcomers
from mpibayes.hpc.crosscat.start.subsample import IDLE
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.table import table_from_arrays
from tests.crosscat.test_searches import Data

OLD, NEW = 200, 120
KINDS = np.concatenate([np.random.default_rng(3).integers(0, 3, OLD), np.random.default_rng(4).integers(3, 5, NEW)])
LABELS = np.where(np.arange(OLD + NEW) < OLD, KINDS, IDLE)


def chain(comm, n_new=NEW, shards=2, **settings):
    """A chain of two views, of columns by which all kinds of rows differ, and rows without a label."""
    g = np.random.default_rng(5)
    cells = [np.where(g.random(OLD + NEW) < 0.95, KINDS, g.integers(0, 5, OLD + NEW)) for _ in range(8)]
    columns, rows = table_from_arrays([(f"c{i}", "categorical", x, list("abcde")) for i, x in enumerate(cells)])
    rows = rows.take(slice(0, OLD + n_new))
    settings = Settings(seed=11, shards=shards, view_concentration="learn", **settings)
    names = [c.name for c in columns]
    views = [names[:5], names[5:]]
    mixture = Mixture(comm, columns, lambda a, b: rows.take(slice(a, b)), OLD + n_new, settings, views=views)
    return mixture, Data(columns, rows), [LABELS[: OLD + n_new]] * 2


def test_new_kinds_of_rows_have_clusters_of_their_own():
    mixture, data, labels = chain(serial())
    result = newcomers.with_newcomers(serial(), data, mixture, labels)
    for z in result:
        assert np.array_equal(z[:OLD], LABELS[:OLD]) and z[OLD:].min() == 3
        counts = [np.bincount(z[kind == KINDS], minlength=9) for kind in (3, 4)]
        assert len({int(of.argmax()) for of in counts}) == 2
        assert all(of.max() > 0.9 * of.sum() for of in counts)
    assert np.array_equal(data.asked[0], np.arange(OLD, OLD + NEW))
    mixture.start(result)
    assert not mixture.growing and mixture.cycle().active_rows == OLD + NEW


def test_many_rows_are_seated_by_the_first_cycle(monkeypatch):
    monkeypatch.setattr(newcomers, "MAX_ROWS", 60)
    mixture, data, labels = chain(serial())
    a, b = newcomers.with_newcomers(serial(), data, mixture, labels)
    assert (a == IDLE).sum() == NEW - 60 and np.array_equal(a == IDLE, b == IDLE)
    assert set(np.flatnonzero(a != IDLE)) == {*range(OLD), *data.asked[0].tolist()}
    mixture.start([a, b])
    assert mixture.growing and mixture.cycle().active_rows == OLD + NEW


@pytest.mark.parametrize("n_new, settings", [(newcomers.MIN_ROWS - 1, {}), (NEW, {"likelihood": False})])
def test_few_rows_and_none_that_are_looked_at_stay_idle(n_new, settings):
    mixture, data, labels = chain(serial(), n_new, **settings)
    assert newcomers.with_newcomers(serial(), data, mixture, labels) is labels and not data.asked


@pytest.mark.mpi(min_size=2)
def test_the_same_clusters_on_ranks():
    comm = world()
    alone = newcomers.with_newcomers(serial(), *chain(serial())[1::-1], chain(serial())[2])
    mixture, data, labels = chain(comm)
    for a, b in zip(alone, newcomers.with_newcomers(comm, data, mixture, labels), strict=True):
        assert np.array_equal(a, b)
