"""Long names, and reference levels: named, and cut off nowhere, on narrow terminals or in pictures."""

import csv
import io
import json

import numpy as np
import pytest
from matplotlib.text import Text

from mpibayes.hpc.regression.report import figures
from mpibayes.hpc.regression.report.coefficients import Summary
from mpibayes.hpc.report import drawing
from mpibayes.hpc.report.wide_table import Group, WideTable
from mpibayes.hpc.results.report import report
from mpibayes.terminal import Console

LONG = "highest level of education completed by 2020[doctorate or professional degree, abroad]"
WORDS = "a class with quite a long name, of many words"


def printed(part, width):
    paper = io.StringIO()
    Console(file=paper, width=width).print(part)
    return paper.getvalue()


@pytest.mark.parametrize("width, tables", [(160, 1), (80, 2), (50, 2)])
def test_a_wide_table_cuts_nothing_off(width, tables):
    rows = [[f"{10 * i + j}.12345" for j in range(4)] for i in range(2)]
    groups = [Group(("mean", "sd", "5 %", "95 %"), rows), Group(("ESS", "tail"), [("1,000", "2,000")] * 2)]
    groups.append(Group(("odds ratio",), [("1.5",), ("2.5",)]))
    text = printed(WideTable(["age", LONG], groups), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width and "…" not in text
    assert sum(line.startswith("age") for line in lines) == tables
    for word in ("mean", "sd", "5 %", "95 %", "ESS", "tail", "odds ratio", "1,000", "2.5", *rows[0], *rows[1]):
        assert f" {word} " in text.replace("\n", " \n"), word
    letters = "".join(line.split("  ")[0].replace(" ", "") for line in lines)
    assert letters.count(LONG.replace(" ", "")) == tables, text


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_reference_levels_are_named(runs, tmp_path, kind):
    paper = io.StringIO()
    folder = report(runs[kind], out=tmp_path / "r", console=Console(file=paper, width=80), full=True)
    words = " ".join(paper.getvalue().split())
    assert 'first of their column: job: "clerk"; smoker: "no".' in words and "…" not in words
    against = 'of the log odds of "yes" against "no"' if kind == "logistic" else "no class is the reference"
    assert against in words
    model = json.loads((folder / "summary.json").read_text())["model"]
    assert model["reference_levels"] == {"job": "clerk", "smoker": "no"}
    assert model["reference_class"] == ("no" if kind == "logistic" else None)
    result = {
        line["coefficient"]: line["reference"]
        for line in csv.DictReader((folder / "coefficients.csv").read_text().splitlines())
    }
    assert (result["(intercept)"], result["age"], result["job[cook]"], result["smoker[yes]"]) == ("", "", "clerk", "no")


def drawn(monkeypatch, draw, *arguments):
    """The texts of a picture, whole; none is beyond its edges."""
    kept = []
    monkeypatch.setattr(drawing, "png", lambda figure: kept.append(figure) or b"")
    draw(*arguments)
    (figure,) = kept
    figure.canvas.draw()
    beyond = {text for axes in figure.axes for text in axes.get_xticklabels()}  # some are not drawn
    texts = [text for text in figure.findobj(Text) if text.get_text() and text not in beyond]
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1, text.get_text()
    return [" ".join(text.get_text().split()) for text in texts]


@pytest.mark.parametrize("classes", [(), (WORDS, "b", "c")])
@pytest.mark.usefixtures("figures")
def test_the_forest_has_whole_names(monkeypatch, classes):
    k, names = max(1, len(classes)), ["", "age", f"{LONG} against none of them", "sex[male] against female"]
    size = np.linspace(-1.0, 1.0, 4 * k)
    summary = Summary(size, np.ones(4 * k), np.stack([size - 1, size, size + 1]), *np.ones((3, 4 * k)))
    texts = drawn(monkeypatch, figures.forest, summary, names, classes, "Log odds ratios", f"of {WORDS} against {LONG}")
    for text in (*names[1:], *classes, f"of {WORDS} against {LONG}"):
        assert not text or text in texts, texts


def test_a_name_without_end_is_cut_in_pictures():
    assert len(drawing.in_lines("x" * 10_000, 40).split("\n")) == 8 and drawing.in_lines("a", 40) == "a"
