"""Pictures: what would mislead, seen without looking."""

from dataclasses import replace

import numpy as np
import pytest

from mpibayes.hpc.crosscat.report import figures, heat_map
from mpibayes.hpc.crosscat.report.profiles import ColumnProfile
from mpibayes.hpc.crosscat.report.traits import picture, trait
from mpibayes.hpc.report import drawing
from tests.crosscat.report.test_chains import make_chain

pytestmark = pytest.mark.usefixtures("figures")


def real(name, divergence, mean):
    """A real column of mean 0 and deviation 1 over all rows, in len(divergence) clusters."""
    divergence = np.asarray(divergence, float)
    none = np.zeros(len(divergence))
    information, overall = float(divergence.mean()), np.array([0.0, 1.0])
    mean = np.asarray(mean, float)
    return ColumnProfile(
        name,
        name,
        "real",
        divergence,
        none,
        none,
        0.0,
        information,
        np.full((len(mean),) * 2, 0.9),
        overall,
        mean=mean,
        sd=none + 1.0,
    )


def axes_of(monkeypatch, draw, *args):
    """The panels of a picture."""
    kept = []
    monkeypatch.setattr(drawing, "png", lambda figure: kept.append(figure) or b"")
    draw(*args)
    return kept[0]


def test_profiles_fit_a_screen_and_say_what_they_leave_out(monkeypatch):
    columns = [real(f"a rather long name, number {i}", [1.0 + i, 0.0] * 15, [2.0, 0.0] * 15) for i in range(40)]
    columns.append(real("dull", [0.0] * 30, [0.0] * 30))
    chosen, names = picture(columns), [[f"x {k}", "y = yes"] for k in range(20)]
    figure = axes_of(monkeypatch, heat_map.heat_map, chosen, np.full(20, 10), names, 300, "Profiles", 35, columns)
    assert figure.get_figwidth() * 150 <= 2010
    words = [text.get_text() for text in figure.texts]
    assert (
        "20 of 35 clusters, the largest; 11 of 41 columns, those that separate these clusters (1 much the same in all)"
    ) in words


def test_the_picture_has_the_columns_that_name_its_clusters():
    """The picture would have one of two near twins, and a cluster's name the other."""
    columns = [real(f"c{i}", [9.0 - 0.1 * i] * 4, [2.0] * 4) for i in range(20)]
    assert "c19" not in {c.name for c in picture(columns)}
    named = [[trait(columns[19], k), trait(columns[18], k), trait(columns[17], k)] for k in range(4)]
    chosen = [c.name for c in picture(columns, traits=named)]
    assert {"c18", "c19"} <= set(chosen) and "c17" not in chosen and len(chosen) == 11


def test_small_means_are_not_0():
    """1.3 kg among tons; but a mean that is 0 but for rounding is 0."""
    looks = (lambda z: z, lambda z: "white"), (lambda z: z, lambda z: "white")
    tons = replace(real("mass", [1.0, 1.0], [1.3, 2.0]), overall=np.array([1500.0, 1900.0]), sd=np.array([0.2, np.nan]))
    assert heat_map._cell(tons, 0, *looks)[1] == ["1.3"]
    around_0 = replace(real("x", [1.0, 1.0], [1e-17, -1e-4]), sd=np.array([0.0, 1.0]))
    assert [heat_map._cell(around_0, k, *looks)[1] for k in (0, 1)] == [["0"], ["0"]]


def test_a_head_does_not_list_atoms():
    atoms = "Inclination_radians (0.785398163 or 0.907571211 or 1.507964474 or another value)"
    assert " ".join(heat_map._head(atoms)) == "Inclination_radians (which value)"
    assert heat_map._head("gain (0 or not 0)") == ["gain (0 or not 0)"]


def test_long_words_break_where_people_break_them():
    assert heat_map._wrapped("Manufacturing-durable goods") == ["Manufacturing-", "durable goods"]
    assert heat_map._wrapped("Government/Commercial") == ["Government/", "Commercial"]
    assert heat_map._wrapped("Sun-Synchronous") == ["Sun-Synchronous"]
    assert heat_map._wrapped("InternalMedicine") == ["Internal", "Medicine"]


def test_both_parts_of_a_column_with_atoms_are_one_column(monkeypatch):
    """`gain = 0` and the rest of gain; the rest of loss says nothing."""
    columns = [real("gain = 0", [1.0, 0.0], [2.0, 0.0]), real("gain", [1.0, 0.5], [2.0, 0.0])]
    columns += [real("loss = 0", [1.0, 0.0], [2.0, 0.0]), real("loss", [0.0, 0.0], [0.0, 0.0])]
    columns = [replace(c, title=c.name.partition(" ")[0]) for c in columns]
    separate = "1 of 2 columns, those that separate these clusters"
    for shown, words in ((columns[:3], "all 2 columns"), (columns[:2], separate)):
        given = (shown, np.full(2, 10), [["x"], ["y"]], 20, "Profiles", 2, columns)
        texts = [text.get_text() for text in axes_of(monkeypatch, heat_map.heat_map, *given).texts]
        assert f"all 2 clusters; {words}" in texts


def test_a_number_like_all_rows_has_no_text():
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    look = Normalize(-3, 3), colormaps["GnBu"]
    column = real("x", [0.0, 1.0], [0.0, 2.0])
    assert heat_map._cell(column, 0, look, look) == (heat_map.EMPTY, [])
    assert heat_map._cell(column, 1, look, look)[1] == ["2"]


def test_a_single_column_has_its_number_in_every_cluster(monkeypatch):
    """Few rows say little; but the clusters are ranges of this column, and named for them."""
    column = real("x", [0.05, 1.0], [7.5, -3.5])
    for columns, filled in (([column], ["7.5", "-3.5"]), ([column, real("y", [1.0, 0.0], [1.0, 0.0])], ["-3.5"])):
        given = [column], np.full(2, 10), [["x 7.5"], ["x -3.5"]], 20, "Profiles", 2, columns
        figure = axes_of(monkeypatch, heat_map.heat_map, *given)
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        assert [text for text in texts if text in ("7.5", "-3.5")] == filled


def test_ticks_are_whole_numbers_without_an_offset():
    formatter = drawing.plain()
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.yaxis.set_major_formatter(formatter)
    for low, step, expected in ((123.12, 0.005, "123.125"), (2_056_392.0, 0.5, "2,056,392.5"), (-550_000, 1e3, None)):
        axes.set_ylim(low, low + 4 * step)
        formatter.set_locs([low, low + step, low + 2 * step])
        assert formatter(low + step) == (expected or "\N{MINUS SIGN}549,000") and not formatter.get_offset()


def test_better_scores_are_never_cut_off(monkeypatch):
    score = np.concatenate([[-90.0, -20.0, -5.0], np.full(17, -10.0) + 0.01 * np.arange(17)])
    chain = make_chain(burn_in=5, log_joint=np.zeros(20), heldout_lpd=score)
    figure = axes_of(monkeypatch, figures.held_out, [chain])
    (axes,) = figure.axes
    low, high = axes.get_ylim()
    assert low > -20 and high > -5 and "down to -90.0" in axes.get_title(loc="right")


@pytest.mark.parametrize("burn_in, shaded, lines", [((5, 5), 1, 0), ((5, 8), 0, 2)])
def test_phases_are_shaded_where_they_are_the_same(burn_in, shaded, lines):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    keys = drawing.phases(axes, [make_chain(burn_in=b, log_joint=np.zeros(20)) for b in burn_in])
    assert (len(axes.patches), len(axes.lines), len(keys)) == (shaded, lines, 1)
