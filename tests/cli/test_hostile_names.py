"""Names and levels that would steer a terminal, pass for markup or for mathematics: they are shown, in every command,
and are true in files for programs."""

import csv
import io
import json
import os
import tomllib

import numpy as np
import pytest
from rich.console import Console as RichConsole

from mpibayes.errors import DataError
from mpibayes.hpc import cli
from mpibayes.hpc.parallel.launcher import RANK_VARIABLES
from mpibayes.io.schema import ColumnSchema, Schema, read_schema, schema_text
from mpibayes.io.table import Table
from mpibayes.terminal import Console, Text
from mpibayes.text import toml_string, visible, visible_lines
from tests.page.checks import problems

ESCAPES = "\x1b]0;owned\x07\x1b[2J"
LETTERS = "".join(map(chr, [*range(0x20), 0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
LETTERS += "\u200b\u200d\ufeff\u2028\u2029\U000e0041\ud800"
COLOUR, RESPONSE = f"co\rl{ESCAPES}our\nerror: forged", "$x_1$\u202e\x9b"
MARKUP, FORMULA = "[red]x[/red][/]</script><b>", r"$\frac"
LEVELS = ["red\x1b[31m", "[/]<!--<script>", "$x_1$", "_\u2028\nwarning: forged\u200b"]
CONFIG = """
[data]
table = "t.h5"
heldout = 0.1
[model]
family = "mixture"
[run]
cycles = 30
shards = 2
chains = {chains}
[output]
labels = 1
"""
REGRESSION = '[model]\nfamily = "regression"\nlikelihood = "softmax"\n[regression]\nresponse = {response}\n'


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def harmless(text):
    """Assert that the printed text has line breaks, and no other unprintable characters."""
    assert [line for line in text.split("\n") if not line.isprintable()] == []
    assert not any(line.startswith(("error: forged", "warning: forged")) for line in text.split("\n"))
    return text


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*words, code=0):
        assert cli.main([str(word) for word in words]) == code
        out, err = capsys.readouterr()
        return harmless(out) + harmless(err)

    return call


def rows(n=120):
    g = np.random.default_rng(3)
    z = g.integers(0, 2, n)
    colour = np.where(g.random(n) < 0.9, z, g.integers(0, 4, n))
    response = [colour[0], *(3 - colour[1:])]
    return [
        [LEVELS[c], f"{g.normal(5.0 * k):.3f}", f"{g.normal(-3.0 * k):.3f}", LEVELS[y]]
        for c, k, y in zip(colour, z, response)
    ]


def write(path, rows, header=(COLOUR, MARKUP, FORMULA, RESPONSE)):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def pictures_are_there(folder):
    assert len(list(folder.glob("*.png"))) >= 3
    assert problems((folder / "report.html").read_text(encoding="utf-8")) == []
    return harmless((folder / "report.txt").read_text(encoding="utf-8"))


def test_every_letter_is_printable():
    assert visible(LETTERS).isprintable() and visible_lines(f"a\n{LETTERS}").count("\n") == 2
    for text in ("Größe", "人口", "naïve 🙂", "a\\b"):
        assert visible(text) == text
    assert visible("\x1b\u202e\U000e0041\ud800\n") == r"\x1b\u202e\U000e0041\ud800\n"


def test_an_error_has_no_line_breaks_but_ours():
    error = DataError(f"t.csv{ESCAPES}\n", ["a\nerror: forged", "\x9b"])
    assert str(error).split("\n") == [r"t.csv\x1b]0;owned\x07\x1b[2J\n", r"  - a\nerror: forged", r"  - \x9b"]
    assert error.message.startswith("t.csv\x1b")  # for programs it is what it is


def test_texts_on_paper():
    """The same on a console of ours and, of a Text, on any."""
    from rich.table import Table as Grid

    for console in (Console(file=io.StringIO(), width=200), RichConsole(file=io.StringIO(), width=200, markup=False)):
        grid = Grid("[/]", box=None)
        grid.add_row(Text(f"{MARKUP} :smile: {ESCAPES}").append("\x1b").line("\x9b below"))
        console.print(grid)
        text = harmless(console.file.getvalue())
        assert f"{MARKUP} :smile: \\x1b" in text and "\\x9b below" in text.split("\n")[2]
    console = Console(file=io.StringIO(), width=200)
    console.print(f"[/]{ESCAPES} :smile:\n")
    assert console.file.getvalue() == "[/]\\x1b]0;owned\\x07\\x1b[2J :smile:\\n\n"


def test_toml_reads_back():
    text = "".join(c for c in LETTERS if c != "\ud800") + '"\\ü人'
    assert tomllib.loads(f"{toml_string(text)} = {toml_string(text)}") == {text: text}
    assert toml_string(text).isprintable()


@pytest.mark.thorough
def test_a_mixture_of_hostile_columns(command, tmp_path, monkeypatch, pictures):
    monkeypatch.setattr("mpibayes.hpc.report.drawing.DPI", 50)
    write("a.csv", rows())
    for name, chains in (("a.toml", 2), ("one.toml", 1)):
        (tmp_path / name).write_text(CONFIG.format(chains=chains))
    reported = command("import", "a.csv", "t.h5", "--write-schema", "s.toml")
    assert r"co\rl\x1b]0;owned\x07\x1b[2Jour\n" in reported and MARKUP in reported and r"red\x1b[31m" in reported
    assert command("import", "a.csv", "t.h5", "--schema", "s.toml", "--force")
    columns = {c.name: c for c in Table.open("t.h5").columns}
    assert list(columns) == [COLOUR, MARKUP, FORMULA, RESPONSE] and set(columns[COLOUR].levels) == set(LEVELS)
    assert harmless((tmp_path / "s.toml").read_text()) and read_schema("s.toml").columns[COLOUR].kind == "categorical"

    command("check", "a.toml", "--set", f"columns.{toml_string(MARKUP)}.use=true")
    command("run", "a.toml", "-o", "r[/]\x1b$x$", "--set", f"columns.{toml_string(COLOUR)}.use=true")
    command("status", "r[/]\x1b$x$")
    command("run", "one.toml", "-o", "one")
    command("status", "one")
    for folder in (tmp_path / "r[/]\x1b$x$", tmp_path / "one"):
        resolved = harmless((folder / "config.resolved.toml").read_text())
        assert folder.name == "one" or COLOUR in tomllib.loads(resolved)["columns"]
        for log in folder.rglob("*.log"):
            harmless(log.read_text())
        reported = command("report", folder)
        paper = pictures_are_there(folder / "report")
        assert any(visible(level)[:8] in reported + paper for level in LEVELS if not level.isprintable())
        summary = json.loads((folder / "report" / "summary.json").read_text())
        assert {c["column"] for c in summary["columns"]} == set(columns)
    assert command("export", "one", "--to", "csv", "-o", "trace\x1b.csv")
    write("new.csv", [["", *row[1:]] for row in rows()[:5]] + [["", "nan", "1", "new\x1b"]])
    assert r"new\x1b" in command("predict", "one", "new.csv", "-o", "p\x1b.csv", "--impute", "--unseen", "missing")
    with open("p\x1b.csv", newline="", encoding="utf-8") as file:
        header, first, *_ = csv.reader(file)
    assert f"imputed_{COLOUR}" in header and first[header.index(f"imputed_{COLOUR}")] in LEVELS


@pytest.mark.thorough
def test_a_regression_on_hostile_columns(command, tmp_path, pictures):
    write("a.csv", rows(), (COLOUR, MARKUP, FORMULA, RESPONSE))
    command("import", "a.csv", "t.h5")
    (tmp_path / "a.toml").write_text(
        CONFIG.format(chains=1)
        .replace('[model]\nfamily = "mixture"\n', "")
        .replace("cycles = 30", "cycles = 60")
        .replace("[output]\nlabels = 1\n", "")
        + REGRESSION.format(response=toml_string(RESPONSE))
    )
    command("run", "a.toml", "-o", "a")
    reported = command("report", "a")
    paper = pictures_are_there(tmp_path / "a" / "report")
    assert MARKUP in reported and MARKUP in paper and FORMULA in paper and visible(RESPONSE) in paper
    with open("a/report/coefficients.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert {line["class"] for line in lines} == set(LEVELS) and f"{COLOUR}[{LEVELS[1]}]" in {
        line["coefficient"] for line in lines
    }
    command("export", "a", "--to", "csv", "-o", "trace.csv")
    with open("trace.csv", newline="", encoding="utf-8") as file:
        header, first, *_ = csv.reader(file)
    assert len(first) == len(header) and f"theta[{LEVELS[0]},{FORMULA}]" in header
    command("predict", "a", "a.csv", "-o", "p.csv")


def test_errors_and_warnings(command, tmp_path):
    write("a.csv", rows())
    reported = command("import", "a.csv", "t.h5", "--kind", f"{ESCAPES}=real", "--drop", "[/]\x1b", code=2)
    assert r"no column '\x1b]0;owned" in reported and r"[/]\x1b" in reported
    reported = command("import", "a.csv", "t.h5", "--kind", f"{COLOUR}=real", code=3)
    assert r"column 'co\rl\x1b]0;owned" in reported
    command("import", f"no{ESCAPES}\n.csv", "t.h5", code=3)
    command("import", "a.csv", f"t{ESCAPES}\n.csv", code=2)
    command("import", "a.csv", "t.h5", f"--{ESCAPES}", code=2)
    command(f"[/]{ESCAPES}", code=2)
    command("import", "a.csv", "t.h5")
    config = tmp_path / "a\x1b\n[run].toml"
    config.write_text(CONFIG.format(chains=1) + f"[columns.{toml_string(ESCAPES)}]\nuse = true\n")
    assert r"\u001b]0;owned" in command("check", config.name, code=2)
    config.write_text(CONFIG.format(chains=1))
    command("run", config.name, "-o", "a", "--set", "run.cycles=2")
    assert tomllib.loads((tmp_path / "a" / "config.resolved.toml").read_text())["run"]["cycles"] == 2
    command("run", config.name, "--set", f"run.{ESCAPES}=2", code=2)
    write("new.csv", rows()[:5], (COLOUR, MARKUP, f"{FORMULA}{ESCAPES}", RESPONSE))
    assert f"has no column '{FORMULA}'" in command("predict", "a", "new.csv", "-o", "p.csv")
    write("new.csv", [["x\x1b\n", "1", "2", LEVELS[0]]])
    assert r"x\x1b" in command("predict", "a", "new.csv", "-o", "p.csv", "--force", "--unseen", "error", code=3)
    command("status", f"none{ESCAPES}", code=2)
    command("report", f"none{ESCAPES}", code=2)
    status = json.loads((tmp_path / "a" / "status.json").read_text()) | {"message": ESCAPES, "host": "\x9b[/]"}
    (tmp_path / "a" / "status.json").write_text(json.dumps(status))
    assert r"\x1b]0;owned" in command("status", "a")
    assert json.loads(command("status", "a", "--json"))["message"] == ESCAPES


def test_bytes_that_are_no_text(command, tmp_path):
    """Arguments that are not UTF-8 come as halves of surrogate pairs, which no file can hold."""
    write("a.csv", rows())
    bad = os.fsdecode(b"\xff")
    assert r"\udcff" in command("import", "a.csv", "t.h5", "--names", f"a,b,c,{bad}", code=3)
    assert r"\udcff" in command("import", "a.csv", "t.h5", "--missing", bad, code=2)
    assert r"\udcff" in command("import", f"{bad}.csv", "t.h5", code=3)
    command("import", "a.csv", "t.h5")
    (tmp_path / "a.toml").write_text(CONFIG.format(chains=1))
    assert r"\udcff" in command("check", "a.toml", "--set", f'data.table="{bad}.h5"', code=2)
    (tmp_path / bad).mkdir()
    for name in ("a.toml", "t.h5"):
        (tmp_path / bad / name).write_bytes((tmp_path / name).read_bytes())
    command("run", f"{bad}/a.toml", "-o", "there", code=2)


def test_pictures_show_names_as_they_are(monkeypatch, figures):
    """All texts of our pictures, those that matplotlib makes for ticks included, are letters and no formulas."""
    from matplotlib.figure import Figure
    from matplotlib.text import Text as Letters

    from mpibayes.hpc.crosscat.report import figures
    from mpibayes.hpc.report import drawing

    seen = []

    def look(figure):
        figure.canvas.draw()
        seen.extend(t for t in figure.findobj(Letters) if t.get_visible() and t.get_text())
        return b""

    monkeypatch.setattr(drawing, "png", look)

    @drawing.styled
    def names() -> Figure:
        figure = drawing.plot(4, 3)
        figure.subplots().set_title(drawing.shortened(f"{FORMULA} {ESCAPES} $a$", 60))
        return figure

    names()
    figures.cluster_sizes({"": np.array([[70.0, 30.0], [65.0, 35.0]])}, 100)
    assert any(t.get_text().startswith(FORMULA) for t in seen) and not any(t.get_parse_math() for t in seen)
    for t in seen:
        assert t.get_text().isprintable() and "mathdefault" not in t.get_text()


def test_a_comment_in_a_schema_stays_one():
    text = schema_text(Schema({"a": ColumnSchema("real")}), {"a": "constant: 'x\n[columns.b]'\x1b"})
    assert list(tomllib.loads(text)["columns"]) == ["a"] and text.count("\n") == len(text.splitlines())
