"""Names and traits of clusters by columns whose categories are in order."""

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import Normalize

from mpibayes.hpc.crosscat.report.distribution import in_words
from mpibayes.hpc.crosscat.report.heat_map import _cell
from mpibayes.hpc.crosscat.report.names import MOST_LEVELS, against_the_whole, name_clusters
from mpibayes.hpc.crosscat.report.ordered import place, telling_run
from mpibayes.hpc.crosscat.report.profiles import ColumnProfile
from mpibayes.hpc.crosscat.report.traits import trait
from mpibayes.io.rows import Column


def profile(p, overall, levels=("1", "2", "3", "4", "5"), order=(0, 1, 2, 3, 4)):
    p, one = np.array(p).T, np.ones(len(p))
    return ColumnProfile("q05", "q05", "categorical", one, 0 * one, 0 * one, 0.0, 1.0, np.zeros((0, 0)),
                         np.array(overall), levels, p, order=order)  # fmt: skip


EVEN = [0.2] * 5


@pytest.mark.parametrize(
    ("p", "words", "label"),
    [
        ([0.1, 0.1, 0.11, 0.3, 0.39], "high (4 or 5), 69 %", "high (4 or 5), 69 %"),
        ([0.48, 0.49, 0.01, 0.01, 0.01], "low (1 or 2), 97 %", "low (1 or 2)"),
        ([0.05, 0.1, 0.7, 0.1, 0.05], "= 3, 70 %", "= 3, 70 %"),
        ([0.02, 0.02, 0.32, 0.32, 0.32], "high (4 or 5), 64 %", "high (4 or 5), 64 %"),
    ],
)
def test_a_run_of_levels_is_named(p, words, label):
    t = trait(profile([p], EVEN), 0)
    assert t.value == words and t.label == f"q05 {label}" and not t.lacking
    assert t.what == "ordered" and t.overall.endswith("%") and str(t).startswith(f"q05 {words} (overall ")


def test_order_is_that_of_the_scale_and_not_of_the_table():
    """Levels sorted as text: 5-9 after 10-19."""
    levels = ("10-19", "20-29", "5-9")
    t = trait(profile([[0.1, 0.05, 0.85]], [1 / 3] * 3, levels, (2, 0, 1)), 0)
    assert t.value == "low (5-9), 85 %"
    shown = against_the_whole(profile([[0.1, 0.05, 0.85]], [1 / 3] * 3, levels, (2, 0, 1)))
    assert list(shown.levels) == ["5-9", "10-19", "20-29"] and shown.p[0].tolist() == [0.85, 0.1, 0.05]
    assert shown.ordered


def test_without_an_order_levels_are_as_they_were():
    t = trait(profile([[0.1, 0.1, 0.11, 0.3, 0.39]], EVEN, order=()), 0)
    assert t.what == "level" and "high" not in t.value


def test_many_levels_in_order_stay_in_it():
    """A profile keeps those levels that differ most."""
    levels = tuple(str(v) for v in range(40))
    overall = np.full(40, 1 / 40)
    p = np.where(np.arange(40) < 30, 0.0, 0.1)
    shown = against_the_whole(profile([p], overall, levels, tuple(range(39, -1, -1))))
    assert len(shown.levels) == MOST_LEVELS and list(map(int, shown.levels)) == sorted(map(int, shown.levels))[::-1]
    assert {str(v) for v in range(30, 40)} <= set(shown.levels)


def test_the_picture_shows_the_run_that_is_named():
    made = profile([[0.1, 0.1, 0.11, 0.3, 0.39]], EVEN)
    looks = Normalize(-3.0, 3.0), colormaps["RdBu_r"]
    assert _cell(made, 0, looks, looks)[1] == ["4 or 5", "69 %"]


@pytest.mark.parametrize("ordered", [None, True, False])
def test_a_distribution_is_in_order(ordered):
    """The order is the one that the import recorded; else that of the bands that the levels are."""
    levels = ("5-9", "20-29", "10-19") if ordered else ("20-29", "5-9", "10-19")
    column = Column("age", "categorical", "codes8", 0, levels, ordered=ordered)
    codes = np.array([levels.index(text) for text in ("20-29", "20-29", "5-9")])
    result = in_words([column], {"age": codes})
    assert [part.split()[0] for part in result.split(", ")] == {
        None: ["5-9", "10-19", "20-29"], True: ["5-9", "20-29", "10-19"], False: ["20-29", "5-9", "10-19"],
    }[ordered]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_the_run_says_most(seed):
    g = np.random.default_rng(seed)
    p, q = g.dirichlet(np.ones(6)), g.dirichlet(np.ones(6))

    def gain(i, j):
        a, b = p[i : j + 1].sum(), q[i : j + 1].sum()
        return a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b)) if a > b else -1.0

    best = max(((i, j) for i in range(6) for j in range(i, min(i + 3, 6))), key=lambda run: gain(*run))
    assert telling_run(p, q) == best and place(0, 2, 6) == "low" and place(3, 5, 6) == "high"


def test_names_of_clusters_have_the_scale():
    c = profile([[0.1, 0.1, 0.11, 0.3, 0.39], [0.5, 0.4, 0.05, 0.03, 0.02]], EVEN)
    assert name_clusters([[trait(c, 0)], [trait(c, 1)]]) == ["q05 high (4 or 5), 69 %", "q05 low (1 or 2)"]
