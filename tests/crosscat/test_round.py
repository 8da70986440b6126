"""When moves are due: by the cycle's number and the size of the table alone."""

from mpibayes.hpc.crosscat.moves.round import EVERY, OFTEN, SELDOM, SMALL, due, due_for_views


def cycles(n_cells, every=None):
    return [cycle for cycle in range(1, 200) if due_for_views(every, cycle, n_cells)]


def test_moves_of_views_are_rarer_on_small_tables_once_rows_have_settled():
    first = list(range(1, OFTEN + 1))
    assert cycles(SMALL) == first + [c for c in range(OFTEN + 1, 200) if c % SELDOM == 0]
    assert cycles(SMALL + 1) == first + [c for c in range(OFTEN + 1, 200) if c % EVERY == 0]


def test_moves_of_rows_are_not():
    assert [c for c in range(OFTEN + 1, 200) if due(None, c)] == list(range(104, 200, EVERY))


def test_what_is_given_holds_throughout():
    assert cycles(SMALL, every=3) == list(range(3, 200, 3))
    assert not cycles(SMALL, every=0)
