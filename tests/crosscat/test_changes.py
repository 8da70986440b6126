"""Changes of views that may predict better."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.start.changes import Change, apart, divided, moved, suggested, unsuggested
from mpibayes.hpc.crosscat.start.related import Related


def sets(*views):
    return frozenset(map(frozenset, views))


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
    """The closest views become one; a loose column or group leaves or joins a near view; all of a view can only join.
    The group of each view that the rest explains least is tried alone first."""
    a, b, c, d = units = [frozenset(name) for name in "abcd"]
    between = np.array([[0, 0.9, 0.2, 0], [0.9, 0, 0, 0.3], [0.2, 0, 0, 0], [0, 0.3, 0, 0]])
    related = Related([], units, between)
    ties = {a | b: {a: 0.03, b: 0.2}, d: {d: 0.0}}
    assert [change.after for change in unsuggested(sets("ab", "c", "d"), ties, related)] == [
        sets("abd"), sets("a", "b"), sets("b", "ac"),
    ]  # fmt: skip
    ties[a | b | d] = {a | b: 0.01, d: 0.02}
    changes = [change.after for change in unsuggested(sets("abd", "c"), ties, related)]
    assert changes == [sets("abcd"), sets("ab", "d"), sets("abc", "d")]
    ties = {a | b: {a: 0.03, b: 0.05}, c | d: {c: 0.07, d: 0.2}}
    related = Related([], units, np.pad(between[:3, :3], (0, 1)) + 0.1 * (1 - np.eye(4)))
    changes = [change.after for change in unsuggested(sets("ab", "cd"), ties, related)]
    assert changes[1:] == [sets("a", "b"), sets("c", "d"), sets("b", "acd"), sets("a", "bcd"), sets("d", "abc")]


@pytest.mark.parametrize("before, after, unit", [
    (("ab", "c"), ("a", "bc"), "b"), (("ab",), ("a", "b"), "a"), (("a", "bc"), ("abc",), "a"),
    (("abc", "d"), ("a", "bcd"), None), (("ab", "cd"), ("abcd",), None), (("ab", "cd"), ("ac", "bd"), None),
])  # fmt: skip
def test_moved(before, after, unit):
    move = moved(sets(*before, "x"), sets(*after, "x"), [frozenset(name) for name in "abcd"])
    assert (move and move[0]) == (unit and frozenset(unit))
    change = Change(sets(*before), sets(*after), 1)
    assert apart(change, [frozenset(name) for name in "abcd"]) == (0 if unit else len(after) - len(before))
    assert move is None or (move[0] <= move[1] in sets(*before) and move[0] <= move[2] in sets(*after))
