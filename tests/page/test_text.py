"""A document as text: which parts of it paper has, in which order, and how a table looks there."""

import io

import pytest

from mpibayes.hpc.report.document import (
    DOUBT,
    PAGE,
    PAPER,
    Document,
    Field,
    Matrix,
    Rounded,
    Section,
    Styled,
    Table,
    Verdict,
    on_page,
    on_paper,
)
from mpibayes.hpc.report.drawing import plot, styled
from mpibayes.hpc.report.page.page import page
from mpibayes.hpc.report.text import opening, print_parts, text_of
from mpibayes.terminal import Console

FIELDS = (
    Field("#", "whole"), Field("name"), Field("share", "share", digits=2), Field("rows", "whole"),
    Field("inside", "number", on=PAGE), Field("error", "number", on=PAPER),
)  # fmt: skip
ROWS = [
    [1, Styled("red", "red, or so"), 0.61, 6100, 1.5, Rounded(0.123456, "0.12")],
    [2, "[blue]\x1b", 0.29, None, 2.5, Rounded(float("nan"), "-")],
    [3, None, 0.1, 10, 3.5, Rounded(1.0, "1.0")],
]


def lines(part, width=100):
    paper = io.StringIO()
    Console(file=paper, width=width).print(part)
    return [line.rstrip() for line in paper.getvalue().splitlines()]


def document(sections):
    return Document([], Verdict(["Found."], [], [], DOUBT), sections, {})


def test_a_table_on_paper():
    """Texts after the first numbers come last; its numbers are as they are to be read; the page has other columns."""
    table = Table("thing", FIELDS, ROWS, caption="nothing else", most=2, more="more elsewhere")
    assert lines(table) == [
        "#  share   rows  error  name",
        "1   0.61  6,100   0.12  red, or so",
        "2   0.29      -      -  [blue]\\x1b",
        "1 more elsewhere; nothing else",
    ]
    assert [field.heading for field in table.on(PAGE)[0]] == ["#", "name", "share", "rows", "inside"]
    brief = Table("thing", FIELDS, ROWS, caption=lambda n: f"{n} shown").brief(1, ("#", "name"), "things")
    assert lines(brief) == ["#  things", "1  red", "1 shown"]


def test_columns_of_a_group_stay_together():
    fields = [Field("name"), *(Field(f"{g}{i}", "whole", group=g) for g in (1, 2) for i in (1, 2))]
    table = Table("thing", fields, [["a name of many letters", 1, 2, 3, 4]], caption="below")
    assert lines(table, 35) == [
        "name                    11  12", "a name of many letters   1   2", "",
        "name                    21  22", "a name of many letters   3   4", "below",
    ]  # fmt: skip


def test_paper_has_the_run_before_the_results():
    """The page the other way round; an empty line is between blocks, and none within; parts of one medium are there."""
    sections = [
        Section("results", "Results", [["first", "second"], on_page("on the page"), "third"]),
        Section("browse", "Browse", ["not here"], PAGE),
        Section("chains", "Chains", [on_paper("warning"), Matrix(["a"], None, [1], "")]),
        Section("about", "About", ["about it"]),
    ]
    made = document(sections)
    assert text_of(made) == "about it\n\nwarning\n\nfirst\nsecond\n\nthird\n"
    sections[2] = Section("chains", "Chains", [on_paper("warning")])
    text = page(made)
    order = [text.index(f"<p>{word}</p>") for word in ("first", "on the page", "third", "not here", "about it")]
    assert order == sorted(order) and "<p>warning</p>" not in text and 'id="chains"' not in text


def test_commands_stand_on_whole_lines():
    """After the sentences, on a narrow terminal too; on the page each in a block of its own."""
    command = f"mpibayes export {'a long path/' * 12}run --to clusters --groups 3 -o groups.csv"
    verdict = Verdict(["Found."], [], ["Use the groups."], commands=[("write the group of each row", command)])
    made = Document([], verdict, [], {}, subject="")
    paper = io.StringIO()
    print_parts(Console(file=paper, width=60), opening(made))
    printed = paper.getvalue().splitlines()
    assert printed[-2:] == ["To write the group of each row:", f"  {command}"]
    assert "What to do next       Use the groups." in map(str.rstrip, printed)
    words = "".join(f" <span>{word}</span>" for word in command.split(" "))  # not broken inside
    assert f"<pre>{words[1:]}</pre>" in page(made)


@pytest.mark.parametrize("before, place", [(("chains",), 1), (("nowhere", "about"), 2), (("nowhere",), 3), ((), 3)])
def test_a_section_is_added_in_its_place(before, place):
    made = document([Section(name, name, ["words"]) for name in ("results", "chains", "about")])
    made.add(Section("pairs", "Pairs", ["words"]), before)
    assert [section.name for section in made.sections].index("pairs") == place


def test_a_figure_is_laid_out_once(monkeypatch, pictures):
    """It is drawn once for each of its two forms."""
    import matplotlib.figure
    import matplotlib.layout_engine

    calls = {"layout": 0, "draw": 0}

    def counted(name, real):
        def call(*args, **kwargs):
            calls[name] += 1
            return real(*args, **kwargs)

        return call

    engine = matplotlib.layout_engine.ConstrainedLayoutEngine
    monkeypatch.setattr(engine, "execute", counted("layout", engine.execute))
    monkeypatch.setattr(matplotlib.figure.Figure, "draw", counted("draw", matplotlib.figure.Figure.draw))

    @styled
    def draw():
        figure = plot(2.0, 1.0)
        figure.subplots().plot([1, 2])
        return figure

    picture = draw()
    assert picture.startswith(b"\x89PNG") and "<svg" in picture.svg and calls == {"layout": 1, "draw": 2}
