"""The search that a chain of several views starts from finds them, also where rows have settled in a product of two."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.columns.scan import of_views
from mpibayes.hpc.crosscat.start import evidence, search, views
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays
from tests.crosscat.report.runs import MOVES_EVERY

N, LEVELS = 1500, 4


def table(seed, clusters=(6, 6), columns=7):
    """Views of so many clusters, with as many columns each; and two columns of noise."""
    g = np.random.default_rng(seed)
    names, cells = [], []
    for view, n_clusters in enumerate(clusters):
        z = g.integers(n_clusters, size=N)
        for column in range(columns):
            law = g.dirichlet(np.full(LEVELS, 0.3), n_clusters).cumsum(axis=1)
            names.append(f"{view}{column}")
            cells.append((g.random(N)[:, None] > law[z]).sum(axis=1).clip(max=LEVELS - 1))
    for column in range(2):
        names.append(f"noise{column}")
        cells.append(g.integers(LEVELS, size=N))
    return table_from_arrays([(name, "categorical", part, list("abcd")) for name, part in zip(names, cells)])


def names_of(names):
    """The views of the columns that tell something."""
    return {frozenset(c for c in view if not c.startswith("noise")) for view in names} - {frozenset()}


def two_views(columns):
    names = [c.name for c in columns if not c.name.startswith("noise")]
    return {frozenset(c for c in names if c[0] == v) for v in "01"}


@pytest.mark.quick("2")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_views_are_found(seed):
    columns, rows = table(seed)
    settings = Settings(seed=seed, view_concentration="learn", split_merge=MOVES_EVERY)
    result = views.searched(columns, rows, settings, 0, 8)
    assert names_of(of.columns for of in result.views) == two_views(columns)


def settled(kind, seed):
    """A chain whose rows have settled while all columns were in one view."""
    columns, rows = table(seed)
    settings = Settings(seed=seed, shards=1, view_concentration="learn", column_moves=0)
    chain = kind(serial(), columns, lambda a, b: rows.take(slice(a, b)), N, settings)
    chain.start("one")
    for _ in range(25):
        chain.cycle()
    chain.settings = replace(settings, column_moves=None, view_moves=search.MOVES_PER_CYCLE)
    return chain, two_views(columns)


@pytest.mark.thorough
def test_a_product_of_two_views_is_parted():
    chain, right = settled(search.Searching, 5)
    chain.search()
    assert names_of(view.columns for view in chain.views) == right


@pytest.mark.thorough
def test_moves_that_have_to_come_back_do_not_part_it():
    """Reversible moves alone do not find the views, which is why there is a search."""
    chain, right = settled(Mixture, 5)
    for _ in range(16):
        chain.cycle()
    assert names_of(view.columns for view in chain.views) != right


def test_names_of_clusters_count():
    """Clusters of noise have many names: by log q of one of them, columns of noise seem to have many clusters."""
    columns, rows = table(7, (), 0)
    settings = Settings(seed=7, shards=1, view_concentration="learn")
    chain = search.Searching(serial(), columns, lambda a, b: rows.take(slice(a, b)), N, settings)
    chain.start("random", 200)
    chain.cycles = 1
    move, present = search.Better(chain, 0), of_views(chain.views)
    noise = -2 * N * np.log(LEVELS)  # their log evidence is less, but for chance
    assert move._evidence(np.arange(2), 0, present).log < noise + 20
    chain.evidence.clear()
    with mock.patch.object(evidence, "gammaln", lambda _: 0.0):
        assert move._evidence(np.arange(2), 0, present).log > noise + 100
