"""A chain starts from the views of several searches, combined as rows that each fold leaves out tell."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Settings
from mpibayes.hpc.crosscat.start import combined as combining
from mpibayes.hpc.crosscat.start.changes import MAX_LOSS_PER_ROW, Change, unsuggested
from mpibayes.hpc.crosscat.start.combined import combined
from mpibayes.hpc.crosscat.start.crossvalidated import Scored, groups
from mpibayes.hpc.crosscat.start.related import Related
from mpibayes.hpc.crosscat.start.searches import Choice
from mpibayes.hpc.crosscat.start.strategy import SEARCHES
from mpibayes.hpc.crosscat.start.views import Found, Pilot
from mpibayes.hpc.parallel.comm import serial
from tests.crosscat.report.runs import MOVES_EVERY
from tests.crosscat.test_search import names_of, table
from tests.crosscat.test_searches import Data

SETTINGS = Settings(seed=3, view_concentration="learn", split_merge=MOVES_EVERY)
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

    def score(alone, columns, rows, fold, settings, chain, names, tree):
        scored.append(names)
        return Scored(
            float(len(names) % 2), Found(tuple(names), None, None), {frozenset([name]): 0.0 for name in names}
        )

    monkeypatch.setattr(combining, "scored", score)
    data = Data(*table(1, (6, 6, 6), 5))
    found, _ = combined(serial(), data, SETTINGS, 0, 3000, choice_of(WRONG))
    n = len(data.columns)
    work = sum(combining.work_of(len(names), n) for names in scored)
    assert max(Counter(scored).values()) <= 2 and work <= combining.work_in_all(3) * n
    assert sorted(name for view in found.views for name in view.columns) == sorted(c.name for c in data.columns)


@pytest.mark.parametrize("tie, depends, leaves", [(-0.004, False, True), (0.008, False, True), (0.02, False, False),
                                                  (0.008, True, False)])  # fmt: skip
def test_a_column_that_depends_on_none_leaves_for_less(tie, depends, leaves):
    """Its information about its view is off by more than it costs there; one that depends on a column stays."""
    units, between = [frozenset(name) for name in "abcd"], np.zeros((4, 4))
    for a, b in ((0, 1), (1, 2), *([(2, 3)] if depends else [])):
        between[a, b] = between[b, a] = 0.3
    ties = dict(zip(units, (0.2, 0.3, 0.3, tie)))

    scored = {
        names: Scored(0.0, None, {unit: ties[unit] if len(names) > 1 else 0.0 for unit in units if unit <= names})
        for names in map(frozenset, ("abcd", "abc", "d"))
    }

    class Work:
        columns, left, close = "abcd", 0.0, combining.CLOSE_PER_ROW
        related = Related([], units, between)
        known = scored
        gain, _difference = combining.Combining.gain, combining.Combining._difference
        worth = combining.Combining.worth

        def score(self, changes):
            return False

    proposed = partial(unsuggested, ties={names: of.ties for names, of in scored.items()}, related=Work.related)
    now, _ = combining.climbed(Work(), sets("abcd"), proposed, 1.0)
    assert now == (sets("abc", "d") if leaves else sets("abcd"))


LOOSE = {
    "alone": ([[[*A[1:]], [A[0]], B, [*C, *NOISE]], [[*A[1:]], [A[0]], [*B, *NOISE], C]], TRUTH),
    "apart": ([[A[:2], A[2:], B, [*C, *NOISE]], [A[:2], A[2:], [*B, *NOISE], C]], TRUTH),
}


@pytest.mark.thorough
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
    change = Change(frozenset([view]), frozenset([view - unit, unit]), 1, -MAX_LOSS_PER_ROW)
    work.score([change])
    ties = work.known[view].ties
    assert min(ties, key=lambda of: ties[of]) == unit and abs(ties[unit]) < 0.01 < min(ties[frozenset([a])] for a in A)
    assert change in unsuggested(frozenset([view]), {view: ties}, work.related)


def test_the_best_sets_are_chosen_and_not_the_worst(monkeypatch):
    """Scores by the true views: a set loses for each pair of columns that are wrongly together or apart."""

    def score(alone, columns, rows, fold, settings, chain, names, tree):
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


def single(ties):
    """The ties of single columns."""
    return {view: {unit: tie for unit, tie in of.items() if len(unit) == 1} for view, of in ties.items()}


def test_a_group_moves_that_every_search_has_wrong(monkeypatch):
    """B depends on A, and less on C, with which it is in every search. Apart it would score worse than with C."""

    def score(alone, columns, rows, fold, settings, chain, names, tree):
        a, b, c = (names >= frozenset(part) for part in PARTS)
        ties = dict.fromkeys(groups(names, [[name] for name in names], tree), 0.2)
        ties |= dict.fromkeys({frozenset(B), frozenset(C)} & ties.keys(), 0.03) if b and c else {}
        value = 0.09 * (a and b) + 0.03 * (b and c) - 0.3 * (a and c) - len(names)
        value -= 0.3 * sum(len(names & frozenset(part)) not in (0, 5) for part in PARTS)
        return Scored(value, Found(tuple(names), None, None), ties)

    monkeypatch.setattr(combining, "scored", score)
    between = np.kron([[0.9, 0.2, 0.1], [0.2, 0.9, 0.1], [0.1, 0.1, 0.9]], np.ones((5, 5)))
    units = [frozenset([name]) for part in PARTS for name in part] + [frozenset([name]) for name in NOISE]
    related = Related([*map(frozenset, PARTS)], units, np.pad(between, (0, 2)))
    monkeypatch.setattr(combining, "related", lambda *of: related)
    choice = choice_of([[A, [*B, *C], NOISE], [[*A, NOISE[0]], [*B, *C], [NOISE[1]]]], (-1.0, -2.0))
    of = serial(), Data(*table(4, (6, 6, 6), 5)), SETTINGS, 0, 3000, choice
    assert {frozenset([*A, *B]), frozenset(C)} <= names_of(view.columns for view in combined(*of)[0].views)
    unsuggested = combining.unsuggested
    monkeypatch.setattr(combining, "unsuggested", lambda now, ties, related: unsuggested(now, single(ties), related))
    monkeypatch.setattr(combining, "divided", lambda *of: [])
    wrong = names_of(view.columns for view in combined(*of)[0].views)
    assert frozenset([*B, *C]) in wrong, "the wrong one: single columns alone are tried elsewhere"


def close(scores, monkeypatch, tie=0.01, n_searches=SEARCHES):
    """Return a gain that is told after sets have these scores in the first and second look, and the looks."""
    looks = []

    def score(alone, columns, rows, fold, settings, chain, names, tree):
        looks.append((names, fold.tolist(), settings.seed))
        first, *later = scores[len(names)]
        value = later[0] if later and sum(of[0] == names for of in looks) > 1 else first
        return Scored(value, Found(tuple(names), None, None), {frozenset([name]): tie * len(names) for name in names})

    monkeypatch.setattr(combining, "scored", score)
    work = combining.Combining(serial(), Data(*table(4, (6, 6, 6), 5)), SETTINGS, 0, 3000, n_searches)
    work.left = np.inf
    return work, looks


def test_sets_that_score_closely_are_scored_on_another_deal_of_the_rows(monkeypatch):
    """Two views or one: their scores are 0.02 apart on one deal of the rows, and -0.04 on the other."""
    work, looks = close({5: (-1.0, -1.0), 10: (-1.98, -2.04)}, monkeypatch)
    change = Change(sets(A, B), sets([*A, *B]), 5)
    assert work.score([change]) and work.gain(change.before, change.after) == pytest.approx(-0.01)
    assert len(looks) == 6 and len({(tuple(fold), seed) for _, fold, seed in looks}) == 2
    assert not work.score([change]) and len(looks) == 6, "a third look adds little"
    work, looks = close({5: (-1.0, -1.0), 10: (-1.9, -2.04)}, monkeypatch)
    assert work.score([change]) and len(looks) == 3 and work.gain(change.before, change.after) == pytest.approx(0.1)


@pytest.mark.parametrize("gain, merged", [(0.012, True), (0.008, False)])
def test_two_views_become_one_for_more_than_a_change_needs(gain, merged, monkeypatch):
    work, _ = close({5: (-1.0,), 10: (-2.0 + gain,)}, monkeypatch)
    apart, whole = sets(A, B), sets([*A, *B])
    now, gained = combining.climbed(work, apart, lambda now: [Change(apart, whole, 5)], 3.0)
    assert (now == whole) == merged and gained == pytest.approx(gain * merged)
    monkeypatch.setattr(combining, "PER_VIEW", 0.0)
    now, _ = combining.climbed(work, apart, lambda now: [Change(apart, whole, 5)], 3.0)
    assert now == whole, "the wrong one: by gain alone"


def test_ties_place_a_column_where_scores_are_close(monkeypatch):
    """A column is tied to ten others by more than to five, but chances of the chains favour the five."""
    now, after = sets([*A, C[0]], [*B, *C[1:]]), sets(A, [*B, *C])
    work, looks = close({5: (-5.02,), 6: (-6.0,), 9: (-9.0,), 10: (-9.99,)}, monkeypatch)
    assert work.score([Change(now, after, 1)]) and len(looks) == 4
    assert work.gain(now, after) == pytest.approx(0.04) and work.gain(after, now) == pytest.approx(-0.04)
    monkeypatch.setattr(combining, "moved", lambda *of: None)
    assert work.gain(now, after) == pytest.approx(-0.01), "the wrong one: by scores"


@pytest.mark.parametrize("n_searches, gain", [(SEARCHES, -0.04), (2 * SEARCHES, 0.026)])
def test_scores_of_five_folds_decide_where_those_of_three_leave_it_to_ties(n_searches, gain, monkeypatch):
    """A column scores better alone, by less than the error of three folds and more than that of five."""
    now, after = sets(A), sets(A[1:], A[:1])
    work, _ = close({5: (-5.0,), 4: (-4.0,), 1: (-0.974,)}, monkeypatch, n_searches=n_searches)
    work.score([Change(now, after, 1)])
    assert work.gain(now, after) == pytest.approx(gain)


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
