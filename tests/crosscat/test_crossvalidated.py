"""Scores of sets of columns, by rows that each fold leaves out."""

from dataclasses import replace
from unittest.mock import Mock, patch

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Settings
from mpibayes.hpc.crosscat.start import crossvalidated
from mpibayes.hpc.crosscat.start.changes import Change
from mpibayes.hpc.crosscat.start.combined import Combining
from mpibayes.hpc.data.rows import Carve, in_blocks
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays
from tests.crosscat.test_search import LEVELS, table
from tests.crosscat.test_searches import Data

SETTINGS = Settings(seed=3, view_concentration="learn")


@pytest.mark.thorough
def test_a_view_of_many_clusters_scores_better_than_its_halves():
    """Short chains from one cluster find too few clusters of so many columns: a gain of 0.001."""
    g, n = np.random.default_rng(1), 3000
    z, cells, names = g.integers(30, size=n), [], [f"c{i}" for i in range(8)]
    for name in names:
        level = g.integers(LEVELS, size=30)
        part = np.where(g.random(n) < 0.6, g.integers(LEVELS, size=n), level[z])
        cells.append((name, "categorical", part, None))
    work = Combining(serial(), Data(*table_from_arrays(cells)), SETTINGS, 0, 3000)
    work.left, whole = np.inf, frozenset([frozenset(names)])
    halves = frozenset(map(frozenset, (names[:4], names[4:])))
    work.score([Change(halves, whole, 4)])
    assert work.gain(halves, whole) > 0.015


@pytest.mark.parametrize("n, searches, n_folds", [(9000, 3, 2), (5000, 3, 3), (9000, 8, 5), (900, 4, 5)])
def test_more_searches_than_by_default_are_compared_on_more_rows(n, searches, n_folds):
    """Folds of equal size, and each from all parts of the table."""

    def right(stream):
        fold = crossvalidated.folds(stream, n, 3000, searches)
        size, of_first = np.bincount(fold), np.bincount(fold[: n // 2], minlength=n_folds)
        return len(size) == n_folds and np.ptp(size) <= 1 and np.ptp(of_first) < 0.3 * n / n_folds

    assert right(np.random.default_rng(1))
    in_order = Mock(permutation=lambda n: np.arange(n) * n_folds // n)
    with patch.object(crossvalidated, "FOLDS", 2):
        assert right(np.random.default_rng(1)) == (searches == 3), "the wrong one: two folds, whatever the searches"
    assert not right(in_order), "the wrong one: the first rows of the table are a fold"


class Leaking(np.ndarray):
    """The wrong folds: a chain on the others has all rows."""

    def __ne__(self, fold):
        return np.ones(len(self), bool)


def test_a_fold_is_predicted_by_rows_of_the_others_alone():
    """Clusters that are learned predict other rows less well than the true ones, and their own rows better."""
    g, n, n_columns = np.random.default_rng(1), 200, 20
    law = g.dirichlet(np.full(LEVELS, 0.3), (8, n_columns))
    z, log_cells = g.integers(8, size=n), np.zeros((n, 8))
    cells = (g.random((n, n_columns, 1)) > law[z].cumsum(axis=2)).sum(axis=2).clip(max=LEVELS - 1)
    for i in range(n_columns):
        log_cells += np.log(law[:, i, cells[:, i]].T)
    truth = np.logaddexp.reduce(log_cells - np.log(8), axis=1).mean()
    columns, rows = table_from_arrays([(f"c{i}", "categorical", cells[:, i], list("abcd")) for i in range(n_columns)])
    fold, names = crossvalidated.folds(g, n, 100, 8), frozenset(c.name for c in columns)
    of = serial(), columns, Carve(columns, {})(rows)
    score, leaking = (
        crossvalidated.scored(*of, dealt, SETTINGS, 0, names).score for dealt in (fold, fold.view(Leaking))
    )
    assert fold.max() == 4 and score < truth - 0.5 and leaking > truth


def test_groups():
    """The units, and both sides of each division by the tree, except a single unit and all others."""
    units, tree = [["a"], ["b"], ["c", "d"], ["e"]], [frozenset("ab"), frozenset("abcd"), frozenset("abxy")]
    assert crossvalidated.groups(frozenset("abcde"), units, tree) == [
        *map(frozenset, ["a", "b", "cd", "e", "ab", "cde"])
    ]
    assert crossvalidated.groups(frozenset("e"), units[3:], tree) == [frozenset("e")]


@pytest.mark.parametrize("given, every", [(None, crossvalidated.CYCLES_PER_ROUND), (0, (0, 0)), (2, (2, 2))])
def test_rounds_of_moves_are_rare_after_burn_in(monkeypatch, given, every):
    seen, advance = [], crossvalidated.advance
    spy = lambda mixture, n: seen.append(mixture.settings.split_merge) or advance(mixture, n)  # noqa: E731
    monkeypatch.setattr(crossvalidated, "advance", spy)
    columns, rows = table(4, (6, 6, 6), 5)
    rows, names = Carve(columns, {})(rows), frozenset(column.name for column in columns[:3])
    settings = replace(SETTINGS, split_merge=given)
    crossvalidated.scored(serial(), columns, rows, np.arange(len(rows)) % 2, settings, 0, names)
    assert seen == [every[0], *[every[1]] * (len(seen) // 2 - 1)] * 2


@pytest.mark.quick("categorical")
@pytest.mark.parametrize("kind", ["categorical", "real", "block", "links"])
def test_a_set_scores_as_in_a_table_of_its_columns(kind):
    g = np.random.default_rng(1)
    z, cells = g.integers(3, size=300), []
    for i in range(6):
        part = (z + g.integers(2, size=300) + i) % 4 if kind in ("categorical", "links") else z + g.normal(size=300)
        cells.append(
            (f"c{i}", "categorical", part, list("abcd")) if part.dtype.kind == "i" else (f"c{i}", "real", part, None)
        )
    settings = replace(SETTINGS, view_concentration=None)
    if kind == "block":
        settings = replace(settings, blocks={"b": {"columns": ["c1", "c3"]}, "other": {"columns": ["c0", "c2"]}})
    if kind == "links":
        settings = replace(settings, links={"c3": "c1", "c2": "c0"})
    fold, names = np.arange(300) % 3, frozenset(["c1", "c3", "c4"])
    whole, part = table_from_arrays(cells), table_from_arrays([cell for cell in cells if cell[0] in names])
    own = replace(settings, blocks={b: of for b, of in settings.blocks.items() if names.issuperset(of["columns"])})
    own = replace(own, links={"c3": "c1"} if kind == "links" else own.links)
    one, other = (
        crossvalidated.scored(serial(), in_blocks(columns, s.blocks), Carve(columns, s.blocks)(rows), fold, s, 0, names)
        for (columns, rows), s in ((whole, settings), (part, own))
    )
    assert one.score == other.score and one.found.columns == ("c1", "c3", "c4")
