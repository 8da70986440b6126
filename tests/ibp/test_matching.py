"""Features of two draws are matched by the rows that they share, in whatever order they come."""

import itertools

import numpy as np

from mpibayes.hpc.ibp.draws import Draw, shared_rows
from mpibayes.hpc.ibp.matching import difference, match, sorted_by_rows
from mpibayes.hpc.ibp.report.summarise import combinations
from mpibayes.hpc.ibp.state import Hyper


def draw_of(rows):
    """rows: (N, K) 0 or 1."""
    rows = np.asarray(rows, np.uint8)
    packed = np.packbits(rows.T, axis=1).reshape(rows.shape[1], -(-len(rows) // 8))
    cells = np.arange(rows.shape[1], dtype=float)[:, None]
    return Draw(1, len(rows), packed, Hyper(1.0, 1.0, np.ones(1), 1.0, "shared"), cells)


def test_rows_come_back_and_are_counted():
    rows = np.random.default_rng(1).random((37, 5)) < 0.3
    draw = draw_of(rows)
    assert (draw.rows() == rows).all()
    assert (draw.together == rows.T.astype(int) @ rows).all() and (draw.owned == rows.sum(axis=0)).all()


def test_the_difference_is_the_least_over_all_matchings():
    rng = np.random.default_rng(2)
    for k, m in ((0, 2), (2, 3), (3, 3), (4, 2)):
        a, b = rng.random((21, k)) < 0.5, rng.random((21, m)) < 0.5
        wide = max(k, m)
        pad = [np.pad(x, ((0, 0), (0, wide - x.shape[1]))) for x in (a, b)]
        least = min((pad[0] != pad[1][:, list(p)]).sum() for p in itertools.permutations(range(wide)))
        assert difference(draw_of(a).features, draw_of(b).features) == least
        assert shared_rows(draw_of(a).features, draw_of(b).features).shape == (k, m)


def test_a_permuted_draw_is_matched_to_itself():
    rows = np.random.default_rng(3).random((60, 6)) < 0.4
    order = np.array([3, 0, 5, 1, 4, 2])
    result = match(draw_of(rows), draw_of(rows[:, order]))
    assert (order[result.place] == np.arange(6)).all() and (result.alike == 1.0).all()
    assert difference(draw_of(rows).features, draw_of(rows[:, order]).features) == 0


def test_features_with_other_rows_are_no_match():
    a, b = np.zeros((20, 2), int), np.zeros((20, 2), int)
    a[:10, 0] = a[15:, 1] = b[2:10, 1] = b[:3, 0] = 1
    result = match(draw_of(a), draw_of(b))
    assert result.place.tolist() == [1, -1] and result.alike[0] == 0.8


def test_features_by_rows_and_combinations():
    rows = np.array([[0, 1, 0], [0, 1, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 1, 1]])
    draw = sorted_by_rows(draw_of(rows))
    assert draw.owned.tolist() == [4, 3, 1] and draw.cells[:, 0].tolist() == [1, 2, 0]
    result = {c.features: c.rows for c in combinations(draw)}
    assert result == {(1, 2): 3, (1,): 1, (3,): 1, (): 1}
