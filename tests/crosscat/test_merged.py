"""Views of a panel become one where lines between their columns predict better."""

from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Settings
from mpibayes.hpc.crosscat.start import crossvalidated, merged
from mpibayes.hpc.crosscat.start.changes import Change
from mpibayes.hpc.crosscat.start.combined import Combining
from mpibayes.hpc.crosscat.start.searches import Choice
from mpibayes.hpc.crosscat.start.views import Found, Pilot
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays
from tests.crosscat.test_searches import Data

SETTINGS = Settings(seed=3, view_concentration="learn")
APART, WHOLE = [{"time", "price"}, {"size", "sales"}], [{"time", "price", "size", "sales"}]


def panel(grows=True, seed=1, lined=True):
    """30 units in 30 years: two numbers follow the year, and two the unit, which grow at its own pace or not at all."""
    g = np.random.default_rng(seed)
    unit, time = np.divmod(np.arange(900), 30)
    size = g.normal(0, 30, 30)[unit] + grows * g.normal(0, 1.0, 30)[unit] * time
    cells = {"time": time + g.normal(0, 0.1, 900), "price": 2 * time + g.normal(0, 2, 900)}
    cells |= {"size": size + g.normal(0, 0.5, 900), "sales": 3 * size + time + g.normal(0, 3, 900)}
    columns, rows = table_from_arrays([(name, "real", of, None) for name, of in cells.items()])
    return Data([replace(column, line=lined) for column in columns], rows.take(g.permutation(900)))


def pilot_of(*views):
    return Pilot([Found(tuple(sorted(names)), None, None) for names in views], (1.0, 0.0))


def start(data, links="lines", size=20.0, scores=(-1.0, -2.0), views=APART):
    found = pilot_of(*views)
    sized = [replace(view, statistics=mock.Mock(size=np.full(9, size))) for view in found.views]
    choice = Choice(replace(found, views=sized), np.array(scores), 90)
    result, gain = merged.merged(serial(), data, SETTINGS, 0, 3000, choice, found, links)
    return [set(view.columns) for view in result.views], gain


def test_lines_make_one_view_of_two():
    views, gain = start(panel())
    assert views == WHOLE and gain > 0.2
    wrong = Combining(serial(), panel(), SETTINGS, 0, 3000)
    wrong.left = np.inf
    change = Change(frozenset(map(frozenset, APART)), frozenset(map(frozenset, WHOLE)), 2)
    wrong.score([change])
    assert wrong.gain(change.before, change.after) < 0.0, "the wrong one: scored without lines"


def test_views_that_no_line_joins_stay():
    assert start(panel(grows=False))[0] == APART


@pytest.mark.parametrize(
    "of", [{"links": "none"}, {"links": {"size": "time"}}, {"size": 50.0}, {"scores": ()}, {"views": WHOLE}]
)
def test_other_tables_are_not_scored_again(monkeypatch, of):
    monkeypatch.setattr(merged, "Combining", None)
    assert start(panel(), **of) == (of.get("views", APART), 0.0)


def test_nor_are_views_without_numbers_in_lines(monkeypatch):
    monkeypatch.setattr(merged, "Combining", None)
    assert start(panel(lined=False)) == (APART, 0.0)


def test_of_many_rows_a_tenth_is_left_out(monkeypatch):
    """Chains have the other rows, and all of these."""
    fold = crossvalidated.left_out(np.random.default_rng(1), 5000)
    assert (fold == 0).sum() == 500 and set(fold.tolist()) == {0, crossvalidated.FOR_ALL}
    data, rows = panel(), []
    of = serial(), data.columns, data.rows, crossvalidated.left_out(np.random.default_rng(1), 900), SETTINGS, 0
    real = crossvalidated.chain_on
    monkeypatch.setattr(crossvalidated, "chain_on", lambda *of: rows.append(len(of[2])) or real(*of))
    with mock.patch.object(crossvalidated, "BURN_IN_CYCLES", 4):
        score = crossvalidated.scored(*of, frozenset(APART[0])).score
    assert rows == [810] and -12 < score < -4
    deal = partial(Combining, serial(), data, SETTINGS, 0)
    for many, n_folds in ((900, 1), (901, 3)):
        monkeypatch.setattr("mpibayes.hpc.crosscat.start.combined.MANY_ROWS", many)
        assert deal(3000, once=True).looks[0].max() + 1 == n_folds and deal(3000).looks[0].max() == 2


@pytest.mark.mpi(min_size=2)
def test_the_same_on_any_number_of_ranks():
    from mpibayes.hpc.parallel.comm import world

    found, data = pilot_of(*APART), panel()
    sized = [replace(view, statistics=mock.Mock(size=np.full(9, 20.0))) for view in found.views]
    choice = Choice(replace(found, views=sized), np.array([-1.0, -2.0]), 90)

    def result_of(comm):
        result, gain = merged.merged(comm, data, SETTINGS, 0, 3000, choice, found, "lines")
        return [view.columns for view in result.views], gain

    alone = result_of(serial())
    assert result_of(world()) == alone and len(alone[0]) == 1
