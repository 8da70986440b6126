"""When a round of split and merge moves is due: by the cycle's number and the size of the table alone."""

from mpibayes.hpc.crosscat.moves.round import EVERY, OFTEN, SELDOM, SMALL, due, later


def cycles(n_cells, **of):
    return [cycle for cycle in range(1, 200) if due(None, cycle, late=later(n_cells), **of)]


def test_rounds_are_rarer_on_small_tables_once_the_partition_has_shape():
    first = list(range(1, OFTEN + 1))
    assert cycles(SMALL) == first + [c for c in range(OFTEN + 1, 200) if c % SELDOM == 0]
    assert cycles(SMALL + 1) == first + [c for c in range(OFTEN + 1, 200) if c % EVERY == 0]


def test_columns_are_rarer_before():
    """A scan of columns: every cycle until 20, every fourth until 100."""
    found = cycles(SMALL, often=20)
    assert found[:20] == list(range(1, 21)) and found[20:40] == list(range(24, 101, 4)) and found[40] == 112


def test_views_take_turns():
    each = [cycles(SMALL, view=view, n_views=5) for view in range(5)]
    late = [[cycle for cycle in of if cycle > OFTEN] for of in each]
    assert all(len(of) == 6 for of in late) and len(set().union(*late)) == 30  # never two at once


def test_what_is_given_holds_throughout():
    assert [c for c in range(1, 300) if due(3, c, late=SELDOM)] == list(range(3, 300, 3))
    assert not any(due(0, c, late=SELDOM) for c in range(1, 300))
