"""When moves are due: by the cycle's number and the size of the table alone."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.moves import round as rounds
from mpibayes.hpc.crosscat.moves.round import EVERY, OFTEN, SELDOM, SELDOM_FOR_VIEWS, SMALL, due, due_for_views
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays

LAST = 400


def cycles(n_cells, every=None, searched=False):
    return [cycle for cycle in range(1, LAST) if due_for_views(every, cycle, n_cells, searched)]


def test_moves_of_views_are_rarer_on_small_tables_once_rows_have_settled():
    first = list(range(1, OFTEN + 1))
    assert cycles(SMALL) == first + [c for c in range(OFTEN + 1, LAST) if c % SELDOM_FOR_VIEWS == 0]
    assert cycles(SMALL + 1) == first + [c for c in range(OFTEN + 1, LAST) if c % EVERY == 0]


def test_moves_of_views_are_rarer_there_from_the_start_after_a_search():
    rare = [c for c in range(OFTEN + 1, LAST) if c % SELDOM_FOR_VIEWS == 0]
    assert cycles(SMALL, searched=True) == list(range(SELDOM, OFTEN + 1, SELDOM)) + rare
    assert cycles(SMALL + 1, searched=True) == cycles(SMALL + 1)


def test_moves_of_rows_are_rarer_there_too_but_less_so():
    assert [c for c in range(OFTEN + 1, 200) if due(None, c, SMALL + 1)] == list(range(104, 200, EVERY))
    assert [c for c in range(OFTEN + 1, 200) if due(None, c, SMALL)] == list(range(104, 200, SELDOM))


def test_what_is_given_holds_throughout():
    assert cycles(SMALL, every=3) == list(range(3, LAST, 3))
    assert not cycles(SMALL, every=0)


def chain():
    g = np.random.default_rng(1)
    columns, rows = table_from_arrays([(name, "boolean", g.integers(2, size=20), ["a", "b"]) for name in "xyz"])
    settings = Settings(seed=1, shards=1, view_concentration="learn", view_moves=2)
    return Mixture(serial(), columns, lambda start, stop: rows.take(slice(start, stop)), 20, settings)


@pytest.mark.parametrize("small, expected", [(60, [1, 2, 3, 16]), (59, [1, 2, 3, 4, 8, 12, 16])])
def test_a_chain_keeps_to_it_from_its_start_and_once_continued(small, expected, monkeypatch):
    """Moves on 60 cells, rarer from the fourth cycle on."""
    monkeypatch.setattr(rounds, "SMALL", small)
    monkeypatch.setattr(rounds, "OFTEN", 3)
    monkeypatch.setattr(rounds, "SELDOM_FOR_VIEWS", 16)
    monkeypatch.setattr(rounds.due, "__defaults__", (0, 1, 3))
    whole = chain()
    whole.start("one")
    assert [c for c in range(1, 17) if whole.cycle().view_moves_tried] == expected
    later = chain()
    later.start("one")
    later.resume(10)
    assert [c for c in range(11, 17) if later.cycle().view_moves_tried] == [c for c in expected if c > 10]
