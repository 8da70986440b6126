"""Columns that a search starts from are in groups that depend on each other."""

from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Settings
from mpibayes.hpc.crosscat.start import dependence as start
from mpibayes.hpc.crosscat.start import search, views
from mpibayes.hpc.crosscat.start.dependence import between_units, branches, dependence, linked
from mpibayes.hpc.crosscat.start.dependence import grouped as grouped_by
from mpibayes.io.table import table_from_arrays

N = 3_000
ALONE = ("gap1", "gap2", "n1", "n2")
GROUPS = {frozenset(f"{of}{i}" for i in range(1, 5)) for of in "ab"} | {frozenset([name]) for name in ALONE}


def table(g):
    """Two factors of four columns each, of different kinds; two columns of noise, and two whose gaps coincide."""
    one, two = g.integers(5, size=N), g.normal(size=N)
    of_one = [("categorical", np.where(g.random(N) < 0.6, one, g.integers(5, size=N)), list("abcde")) for _ in range(3)]
    of_two = [("real", two + g.normal(size=N), None) for _ in range(3)]
    gap = g.random(N) < 0.5
    gaps = [("real", np.where(gap, np.nan, g.normal(size=N)), None) for _ in range(2)]
    noise = [("categorical", g.integers(2, size=N), list("ab")), ("real", g.normal(size=N), None)]
    counts = [("count", g.poisson(2 + one), None), ("count", g.poisson(np.exp(two)), None)]
    named = zip(["a1", "a2", "a3", "b1", "b2", "b3", "gap1", "gap2", "n1", "n2", "a4", "b4"],
                [*of_one, *of_two, *gaps, *noise, *counts])  # fmt: skip
    return table_from_arrays([(name, *of) for name, of in named])


def grouped(columns, rows, units, n_groups):
    return grouped_by(linked(between_units(columns, rows, units)), len(units), n_groups)


@pytest.mark.parametrize("seed", range(5))
def test_groups(seed):
    columns, rows = table(np.random.default_rng(seed))
    names = [c.name for c in columns]
    group = grouped(columns, rows, [(name,) for name in names], 6)
    result = {frozenset(names[i] for i in np.flatnonzero(group == g)) for g in range(6)}
    assert result == GROUPS  # what is missing tells nothing


def test_columns_that_stay_together_are_as_close_as_the_closest_of_them():
    columns, rows = table(np.random.default_rng(7))
    units = [("n2", "b1"), ("n1", "a1"), *((name,) for name in ("a2", "a3", "a4", "b2", "b3", "b4", "gap1", "gap2"))]
    group = grouped(columns, rows, units, 4)
    assert group[0] == group[5] == group[6] == group[7] and group[1] == group[2] == group[3] == group[4]
    assert len(set(group[[0, 1, 8, 9]])) == 4


def test_dependence_is_that_of_the_table_of_two_columns():
    g = np.random.default_rng(3)
    x, y = g.integers(3, size=500), g.integers(3, size=500)
    y = np.where(g.random(500) < 0.7, x, y)
    columns, rows = table_from_arrays([("x", "categorical", x, list("abc")), ("y", "categorical", y, list("abc"))])
    p = np.bincount(3 * x + y, minlength=9).reshape(3, 3) / 500
    a, b = p.sum(axis=1), p.sum(axis=0)
    reported = 500 * (p * np.log(p / np.outer(a, b))).sum() - 2.0 - 2.0 * np.sqrt(2.0)
    least = 500 * min(-(a * np.log(a)).sum(), -(b * np.log(b)).sum())
    assert dependence(columns, rows)[0, 1] == pytest.approx(reported / least)


def test_branches_are_what_has_been_joined():
    columns, rows = table(np.random.default_rng(1))
    names = [c.name for c in columns]
    tree = linked(between_units(columns, rows, [(name,) for name in names]))
    result = {frozenset(names[i] for i in of) for of in branches(tree)}
    assert {group for group in GROUPS if len(group) > 1} <= result
    assert all(1 < len(of) < len(names) for of in result)
    assert branches(linked(between_units(columns[:1], rows, [(names[0],)]))) == []


def test_few_units_are_each_a_group():
    columns, rows = table(np.random.default_rng(1))
    assert grouped(columns, rows, [(c.name,) for c in columns], 16).tolist() == list(range(12))


def test_too_many_columns_are_dealt_in_turn():
    columns, rows = table(np.random.default_rng(1))
    with mock.patch.object(start, "MAX_COLUMNS", 11):
        assert grouped(columns, rows, [(c.name,) for c in columns], 5).tolist() == [i % 5 for i in range(12)]


def test_a_search_starts_from_groups_whose_rows_settle_first():
    columns, rows = table(np.random.default_rng(2))
    settings = Settings(seed=2, view_concentration="learn")
    no_trials = mock.patch.object(search.Trials, "run", lambda self: None)
    with mock.patch.multiple(search, MAX_CYCLES=0, UNITS_PER_CYCLE=100), no_trials:  # no cycle in which columns move
        result = views.found_by(views.searched(columns, rows, settings, 0, 6)).views
        assert {frozenset(of.columns) for of in result} == GROUPS
        assert all(len(of.statistics) > 1 for of in result if len(of.columns) == 4)
        in_turn = lambda tree, n_units, n: np.arange(n_units) % n  # noqa: E731  the wrong one
        with mock.patch.object(views, "grouped", in_turn):
            result = views.found_by(views.searched(columns, rows, settings, 0, 6)).views
        assert {frozenset(of.columns) for of in result} != GROUPS


def test_a_column_without_cells_tells_nothing():
    columns, rows = table_from_arrays(
        [
            ("x", "real", np.full(40, np.nan), None), ("y", "real", np.arange(40.0), None),
            ("z", "categorical", np.zeros(40, int), ["a"]),
        ]
    )  # fmt: skip
    assert (dependence(columns, rows)[~np.eye(3, dtype=bool)] == 0.0).all()
