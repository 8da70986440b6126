"""A chain starts from the views of several searches, combined as rows that each fold leaves out tell."""

from dataclasses import replace
from functools import partial
from unittest.mock import Mock, patch

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Settings
from mpibayes.hpc.crosscat.start import combined as combining
from mpibayes.hpc.crosscat.start.combined import Change, Related, Scored, combined, divided, suggested, unsuggested
from mpibayes.hpc.crosscat.start.searches import Choice
from mpibayes.hpc.crosscat.start.views import Found, Pilot
from mpibayes.hpc.data.rows import Carve, in_blocks
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays
from tests.crosscat.test_search import LEVELS, names_of, table
from tests.crosscat.test_searches import Data

SETTINGS = Settings(seed=3, view_concentration="learn")
A, B, C = PARTS = [[f"{view}{column}" for column in range(5)] for view in "012"]
NOISE = ["noise0", "noise1"]
TRUTH = set(map(frozenset, PARTS))
WRONG = [[[*A, *B], C, NOISE], [A, [*B, *C, *NOISE]], [[*A, *C], [*B, *NOISE]]]  # views of three searches


def choice_of(searches, scores=(-1.0, -2.0, -3.0)):
    pilots = [Pilot([Found(tuple(names), None, None) for names in views], (1.0, 0.0)) for views in searches]
    return Choice(pilots[int(np.argmax(scores))], np.array(scores), 100, None, pilots)


def sets(*views):
    return frozenset(map(frozenset, views))


@pytest.mark.quick("0")
@pytest.mark.parametrize("best", [0, 1, 2])
def test_wrong_searches_are_combined_to_the_truth(best):
    """Each search has a view of columns of two kinds that other searches have apart; rows tell which are right."""
    data = Data(*table(4, (6, 6, 6), 5))
    choice = choice_of(WRONG, np.eye(3)[best])
    found, gain = combined(serial(), data, SETTINGS, 0, 3000, choice)
    assert names_of(view.columns for view in found.views) == TRUTH and gain > 0.1
    assert names_of(view.columns for view in choice.best.views) != TRUTH, "the best alone is wrong"


@pytest.mark.thorough
def test_a_division_by_dependence_where_no_search_has_it():
    data = Data(*table(5, (6, 6, 6), 5))
    wrong = [[[*A, *B], C, NOISE], [[*A, *B], [*C, *NOISE]], [[*A, *B], C, NOISE]]
    found, _ = combined(serial(), data, SETTINGS, 0, 3000, choice_of(wrong))
    assert names_of(view.columns for view in found.views) == TRUTH


@pytest.mark.thorough
def test_true_views_stay():
    data = Data(*table(6, (6, 6, 6), 5))
    found, gain = combined(serial(), data, SETTINGS, 0, 3000, choice_of([[A, B, C, NOISE], *WRONG[:2]]))
    assert names_of(view.columns for view in found.views) == TRUTH and gain < 0.05


@pytest.mark.parametrize("n", [0, 1, 3])
def test_searches_that_agree_are_not_compared(monkeypatch, n):
    monkeypatch.setattr(combining, "Combining", None)
    choice = choice_of(WRONG[:1] * n, [-1.0] * n) if n else replace(choice_of(WRONG), found=[])
    assert combined(serial(), Data(*table(1, (6, 6, 6), 5)), SETTINGS, 0, 3000, choice) == (choice.best, 0.0)


def test_work_is_bounded(monkeypatch):
    """Scores that like every change: the columns of all scored sets are at most `work_in_all` times the table's."""
    scored = []

    def score(alone, columns, rows, fold, settings, chain, names):
        scored.append(names)
        return Scored(
            float(len(names) % 2), Found(tuple(names), None, None), {frozenset([name]): 0.0 for name in names}
        )

    monkeypatch.setattr(combining, "scored", score)
    data = Data(*table(1, (6, 6, 6), 5))
    found, _ = combined(serial(), data, SETTINGS, 0, 3000, choice_of(WRONG))
    assert len(scored) == len(set(scored)) and sum(map(len, scored)) <= combining.work_in_all(3) * len(data.columns)
    assert sorted(name for view in found.views for name in view.columns) == sorted(c.name for c in data.columns)


def test_suggested():
    now, others = sets("ab", "c"), [sets("ab", "c"), sets("a", "bc")]
    changes = {change.after for change in suggested(now, others)}
    assert changes == {sets("a", "b"), sets("a", "bc"), sets("abc")}
    assert suggested(now, [now, now]) == []


def test_divided():
    tree = [frozenset("ab"), frozenset("cd"), frozenset("abc")]
    (change, other) = divided(sets("abcd", "ef", "g"), [*tree, frozenset("e")])
    assert change == Change(sets("abcd"), sets("abc", "d"), 1) and other.after == sets("e", "f")


def test_unsuggested():
    """The closest views become one; a loose column leaves or joins the nearest view; one by itself can only join."""
    units = [frozenset(name) for name in "abcd"]
    between = np.array([[0, 0.9, 0.2, 0], [0.9, 0, 0, 0.3], [0.2, 0, 0, 0], [0, 0.3, 0, 0]])
    ties = {frozenset("ab"): {frozenset("a"): 0.05, frozenset("b"): 0.2}, frozenset("d"): {frozenset("d"): 0.0}}
    known = {names: Scored(0.0, Found(tuple(names), None, None), of) for names, of in ties.items()}
    changes = unsuggested(sets("ab", "c", "d"), known, Related([], units, between))
    assert [change.after for change in changes] == [
        sets("abd"), sets("abd"), sets("a", "b"), sets("b", "ac"),
    ]  # fmt: skip
    assert all(change.least > 0 for change in changes)


@pytest.mark.parametrize("gain, leaves", [(-0.008, True), (-0.02, False), (0.004, True)])
def test_a_column_that_depends_on_nothing_leaves_for_less_than_it_needs_to_come_back(gain, leaves):
    """Two sets' scores differ by chance by as much as such a column costs or brings."""
    units, chain = [frozenset(name) for name in "abcd"], np.zeros((4, 4))
    chain[0, 1] = chain[1, 0] = chain[1, 2] = chain[2, 1] = 0.3
    ties = {frozenset(name): tie for name, tie in zip("abcd", (0.2, 0.3, 0.001, 0.003))}
    scores = {frozenset("abcd"): 0.0, frozenset("abc"): gain, frozenset("d"): 0.0, frozenset("abd"): 0.004}
    scores[frozenset("c")] = 0.0

    scored = {
        names: Scored(of, Found(tuple(names), None, None), {unit: tie for unit, tie in ties.items() if unit <= names})
        for names, of in scores.items()
    }

    class Work:
        columns, left = "abcd", 0.0
        known = scored

        def score(self, changes):
            return False

        gain = combining.Combining.gain

    proposed = partial(unsuggested, known=Work.known, related=Related([], units, chain))
    now, _ = combining.climbed(Work(), sets("abcd"), proposed, 1.0)
    assert now == (sets("abc", "d") if leaves else sets("abcd"))


LOOSE = {
    "alone": ([[[*A[1:]], [A[0]], B, [*C, *NOISE]], [[*A[1:]], [A[0]], [*B, *NOISE], C]], TRUTH),
    "apart": ([[A[:2], A[2:], B, [*C, *NOISE]], [A[:2], A[2:], [*B, *NOISE], C]], TRUTH),
}


@pytest.mark.parametrize("case", LOOSE)
def test_what_every_search_has_wrong(case):
    """A column alone joins the view on which it depends, and the parts of a view each other, though searches differ
    elsewhere only."""
    searches, right = LOOSE[case]
    found, _ = combined(serial(), Data(*table(4, (6, 6, 6), 5)), SETTINGS, 0, 3000, choice_of(searches, (-1.0, -2.0)))
    assert names_of(view.columns for view in found.views) == right


def test_a_column_leaves_the_view_that_every_search_gave_it():
    """Independent noise of many levels, of which a view's clusters say nothing."""
    data = Data(*table(4, (6, 6, 6), 5))
    searches = [[[*A, NOISE[0]], [*B, NOISE[1]], C], [[*A, NOISE[0]], [*B, *C], [NOISE[1]]]]
    work = combining.Combining(serial(), data, SETTINGS, 0, 3000)
    work.left = np.inf
    view, unit = frozenset(searches[0][0]), frozenset(NOISE[:1])
    change = Change(frozenset([view]), frozenset([view - unit, unit]), 1, -combining.MAX_LOSS_PER_ROW)
    work.score([change])
    ties = work.known[view].ties
    assert min(ties, key=lambda of: ties[of]) == unit and abs(ties[unit]) < 0.01 < min(ties[frozenset([a])] for a in A)
    assert change in unsuggested(frozenset([view]), work.known, work.related())


def test_a_view_of_many_clusters_scores_better_than_its_halves():
    """Short chains from one cluster find too few clusters of so many columns: a gain of 0.001."""
    g, n = np.random.default_rng(1), 3000
    z, cells, names = g.integers(30, size=n), [], [f"c{i}" for i in range(8)]
    for name in names:
        level = g.integers(LEVELS, size=30)
        part = np.where(g.random(n) < 0.6, g.integers(LEVELS, size=n), level[z])
        cells.append((name, "categorical", part, None))
    work = combining.Combining(serial(), Data(*table_from_arrays(cells)), SETTINGS, 0, 3000)
    work.left, halves = np.inf, sets(names[:4], names[4:])
    work.score([Change(halves, sets(names), 4)])
    assert work.gain(halves, sets(names)) > 0.015


@pytest.mark.parametrize("n, searches, n_folds", [(9000, 3, 2), (5000, 3, 3), (9000, 8, 5), (900, 4, 5)])
def test_more_searches_than_by_default_are_compared_on_more_rows(n, searches, n_folds):
    """Folds of equal size, and each from all parts of the table."""

    def right(stream):
        fold = combining.folds(stream, n, 3000, searches)
        size, of_first = np.bincount(fold), np.bincount(fold[: n // 2], minlength=n_folds)
        return len(size) == n_folds and np.ptp(size) <= 1 and np.ptp(of_first) < 0.3 * n / n_folds

    assert right(np.random.default_rng(1))
    in_order = Mock(permutation=lambda n: np.arange(n) * n_folds // n)
    with patch.object(combining, "FOLDS", 2):
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
    fold, names = combining.folds(g, n, 100, 8), frozenset(c.name for c in columns)
    of = serial(), columns, Carve(columns, {})(rows)
    score, leaking = (combining.scored(*of, dealt, SETTINGS, 0, names).score for dealt in (fold, fold.view(Leaking)))
    assert fold.max() == 4 and score < truth - 0.5 and leaking > truth


def test_the_best_sets_are_chosen_and_not_the_worst(monkeypatch):
    """Scores by the true views: a set loses for each pair of columns that are wrongly together or apart."""

    def score(alone, columns, rows, fold, settings, chain, names):
        pairs = sum(len(names & of) ** 2 for of in TRUTH) - 0.5 * len(names) ** 2
        return Scored(0.01 * pairs, Found(tuple(names), None, None), {frozenset([name]): 0.0 for name in names})

    monkeypatch.setattr(combining, "scored", score)
    of = serial(), Data(*table(4, (6, 6, 6), 5)), SETTINGS, 0, 3000
    for number in (3, 8):
        choice = choice_of((WRONG * 3)[:number], -np.arange(float(number)))
        found, gain = combined(*of, choice)
        assert names_of(view.columns for view in found.views) == TRUTH and gain > 0.1
    real = combining.Combining.gain
    worst = lambda *of: -gain if np.isfinite(gain := real(*of)) else gain  # noqa: E731
    for wrong in (worst, lambda *of: -np.inf):  # the other keeps the views of the first search
        monkeypatch.setattr(combining.Combining, "gain", wrong)
        found, _ = combined(*of, choice)
        assert names_of(view.columns for view in found.views) != TRUTH


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
        combining.scored(serial(), in_blocks(columns, s.blocks), Carve(columns, s.blocks)(rows), fold, s, 0, names)
        for (columns, rows), s in ((whole, settings), (part, own))
    )
    assert one.score == other.score and one.found.columns == ("c1", "c3", "c4")


@pytest.mark.quick(ranks=(2, 3))
@pytest.mark.mpi(min_size=2)
def test_the_same_on_any_number_of_ranks():
    from mpibayes.hpc.parallel.comm import world

    run = partial(
        combined, data=Data(*table(2, (6, 6, 6), 5)), settings=SETTINGS, chain=1, n_rows=400, choice=choice_of(WRONG)
    )

    def result_of(found, gain):
        return [(view.columns, None if view.statistics is None else view.statistics.size.tolist())
                for view in found.views], gain  # fmt: skip

    ranks = result_of(*run(world()))
    alone = result_of(*run(serial())) if world().rank == 0 else None
    assert world().share(alone) == ranks
