"""The page without a browser: it is well-formed, escapes what comes from tables, has what it was given, is small."""

import base64
import json
import time

import numpy as np
import pytest

from mpibayes.hpc.report.document import Details, Document, Field, Figure, Levels, Matrix, Numbers, Section, Table
from mpibayes.hpc.report.page import page as module
from mpibayes.hpc.report.page.markup import markup
from mpibayes.hpc.report.page.pack import MOST_PAIRS, packed
from mpibayes.hpc.report.page.page import as_json, page
from mpibayes.text import visible
from tests.page.checks import Page, parts_of, problems, strings
from tests.page.made import HOSTILE, report

LARGEST = 6_000_000  # bytes of a page of 500 clusters and 500 columns


def sixteen(text, shape):
    return np.frombuffer(base64.b64decode(text), "<u2").reshape(shape) / 65_535


def test_hostile_names_are_texts():
    text = page(report(n_clusters=16, n_columns=16, levels=16, names=HOSTILE))
    assert problems(text) == []
    assert visible(HOSTILE[0]) in " ".join(Page(text).words)
    assert {visible(name) for name in HOSTILE} <= set(strings(parts_of(text)))  # "$title" is no place of the template


@pytest.mark.parametrize("name", [name for name in HOSTILE if "<" in name])
def test_what_is_not_escaped_is_seen(name, monkeypatch):
    """The same check rejects a page that escapes its texts but not its data, and one that escapes no text."""
    assert problems(page(report(names=[name]))) == []
    with monkeypatch.context() as patched:
        patched.setattr(module, "as_json", lambda data: json.dumps(data, ensure_ascii=False))
        assert problems(page(report(names=[name])))
    if name[1] != "!":
        monkeypatch.setattr("mpibayes.hpc.report.page.markup.escaped", str)
        assert problems(page(report(names=[name])))


def test_json_in_a_script():
    data = [{"a": "</script><!--<script>&\u2028\u2029é", "b": [1.5, None]}]
    text = as_json(data)
    assert json.loads(text) == data and not set(text) & set("<>&\u2028\u2029")
    with pytest.raises(ValueError):
        as_json([float("nan")])


def test_what_is_packed_comes_out_again():
    p = np.array([[0.25, 0.75], [1.0, 0.0], [0.1, 0.9]])
    apart = np.array([0.5, 1.25, 70.0])
    missing = np.array([0.0, 0.5, 1.0])
    columns = [
        Levels("a", ["x", "y"], np.array([0.4, 0.6]), p, apart, missing, 0.3),
        Numbers("b", (1.0, 2.0), np.array([1.0, np.nan, 123456.7]), np.array([0.5, np.nan, 0.1]), apart),
    ]
    rows = [[1, "first", 0.123456789], [2, "second", float("nan")], [3, None, 1e300]]
    fields = [Field("#", "whole"), Field("name"), Field("value", "number")]
    made = packed(Table("cluster", fields, rows, Details(columns, "nats"), ["one", "two", "three"]))
    assert made["rows"] == [[1, "first", 0.12346], [2, "second", None], [3, None, 1e300]]
    levels, numbers = made["details"]["columns"]
    assert np.abs(sixteen(levels["p"], (3, 2)) - p).max() < 1e-5 and levels["overall"] == [0.4, 0.6]
    assert np.abs(sixteen(levels["missing"], 3) - missing).max() < 1e-5
    assert (sixteen(levels["apart"], 3) * 65_535).round().tolist() == [500, 1250, 65_535]  # at most
    assert numbers["mean"] == [1.0, None, 123460.0] and "missing" not in numbers


def test_a_matrix_is_its_lower_triangle():
    share = np.array([[1.0, 0.2, 0.0], [0.2, 1.0, 0.6], [0.0, 0.6, 1.0]])
    made = packed(Matrix(["a", "b", "c"], share, [2, 3], "words"))
    assert list(base64.b64decode(made["share"])) == [51, 0, 153] and made["ends"] == [2, 3]
    many = packed(Matrix([str(i) for i in range(1500)], np.ones((1500, 1500)), [700, 1200, 1500], "words"))
    assert len(many["names"]) == 1000 and many["ends"] == [700, 1000] and many["left_out"] == 500


def test_many_levels_leave_those_that_tell():
    p = np.full((4, 60), 1 / 60)
    p[2] = 0.0
    p[2, 59] = 1.0
    made = packed(Table("cluster", [Field("#", "whole")], [[k] for k in range(4)], Details(
        [Levels("a", [f"l{v}" for v in range(60)], np.full(60, 1 / 60), p, np.zeros(4))], "nats",
    )))  # fmt: skip
    column = made["details"]["columns"][0]
    assert "l59" in column["levels"] and len(column["levels"]) == 24 and column["more"] == 36


@pytest.mark.thorough
def test_500_clusters_of_500_columns():
    """Its size is bounded, and what is left out is the details of the smallest clusters."""
    started = time.process_time()
    text = page(report(n_clusters=500, n_columns=500, n_numeric=100, levels=5))
    assert time.process_time() - started < 20.0
    assert len(text.encode()) < LARGEST and problems(text) == []
    (browse,) = (part for part in parts_of(text) if part["part"] == "browse")
    assert len(browse["rows"]) == 500 and browse["details"]["n"] == 500
    made = report(n_clusters=500, n_columns=1000, n_numeric=0, levels=50)
    many = page(made)
    (browse,) = (part for part in parts_of(many) if part["part"] == "browse")
    assert browse["details"]["n"] == MOST_PAIRS // 1000 and len(many.encode()) < 1.5 * LARGEST


def test_a_picture_is_part_of_the_file(tmp_path, pictures):
    """Names in two pictures do not meet; one that is too large is an image."""
    from mpibayes.hpc.report.drawing import plot, styled

    @styled
    def draw(n):
        figure = plot(4.0, 3.0)
        axes = figure.subplots()
        axes.plot(np.arange(n) % 7, label="<b>&")
        axes.scatter(np.arange(5), np.arange(5))
        axes.set_title("<script>&\"'")
        return figure

    figures = [Figure("a.png", draw(50), "one <b>"), Figure("b.png", draw(50), "two")]
    verdict = report().verdict
    made = Document([], verdict, [Section("pictures", "Pictures", figures)], {})
    text = page(made)
    assert problems(text) == [] and text.count("<svg") == 2 and "&lt;script&gt;" in text and "clip" in text
    large = draw(50)
    large.svg = "<svg>" + " " * 700_000
    figures[:] = [Figure("a.png", large, "one")]
    assert problems(page(made)) == [] and "data:image/png;base64," in page(made)


def test_texts_keep_their_styles():
    from mpibayes.terminal import Text

    text = Text("Title", style="bold").line("what <it> says", style="not bold dim")
    assert markup(text) == '<h3>Title</h3><p><span class="dim">what &lt;it&gt; says</span></p>' or "<h3>" in markup(
        text
    )
    assert markup(Text("a").append("b\x1b", style="cyan")) == '<p>a<span class="name">b\\x1b</span></p>'
    with pytest.raises(TypeError, match="no int"):
        markup(3)
