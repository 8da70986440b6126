"""`mpibayes synthesize`: what is written, what is missing and merged, and what is refused. That rows have the right law
is tested in test_synthesis_exact.py."""

import csv
import datetime
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import mpibayes as mb
from mpibayes.hpc.cli import main
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.results.synthesize import synthesize
from mpibayes.hpc.synthetic import rows as synthetic_rows
from mpibayes.hpc.synthetic.rare import merging
from mpibayes.hpc.synthetic.training import look
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table
from tests.crosscat.report.runs import make_run

QUIET = {"console": Console(quiet=True)}
NAMES = ["who", "colour", "day", "mass", "wage", "likes", "sector", "visits"]
TABLES = 3


def people(n=400, seed=9):
    """Cells as people write them: a decimal comma, days first, "?" for what is missing, a blank for what is not liked;
    only workers have a wage, those of group 1 often do not say their mass and day, both; one is purple."""
    g, rows = np.random.default_rng(seed), []
    for i in range(n):
        k = int(g.random() < 0.5)
        works = g.random() < 0.6
        silent = bool(k) and g.random() < 0.6
        row = [
            f"p{i:03d}",
            "purple" if i == 7 else str(g.choice(["red", "blue"], p=(0.9, 0.1) if k else (0.1, 0.9))),
            "?" if silent else f"{g.integers(1, 29):02d}.0{1 + 3 * k}.2024",
            "?" if silent else f"{g.normal((60, 80)[k], 6):.1f}".replace(".", ","),
            f"{g.normal((900, 1500)[k], 90):.0f}" if works else "?",
            "x" if g.random() < (0.2, 0.8)[k] else "",
            "work" if works else "none",
            f"{g.poisson((2, 9)[k])}",
        ]
        rows.append(row)
    return rows


def read(path):
    with open(path, newline="") as file:
        return list(csv.reader(file, delimiter=";"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthesize")
    with open(folder / "t.csv", "w", newline="") as file:
        csv.writer(file, delimiter=";").writerows([NAMES, *people()])
    kinds = {"visits": "count", "mass": "real", "wage": "real"}
    import_table([folder / "t.csv"], folder / "t.h5", kinds=kinds, missing=["?"], drop=["who"])
    make_run(folder / "run", Table.open(folder / "t.h5"), cycles=16, burn_in=8, chains=2, heldout=0.1)
    return folder


@pytest.fixture(scope="module")
def tables(place):
    done = synthesize(place / "run", place / "tables", copies=TABLES, rows=2000, **QUIET)
    assert [p.name for p in done.paths] == [f"synthetic-{i}.csv" for i in range(1, 1 + TABLES)]
    return [read(path) for path in done.paths]


def test_tables_have_the_form_of_the_source(tables):
    form = {
        "colour": "red|blue|purple", "day": r"\d\d\.\d\d\.202\d|", "mass": r"\d+,\d|", "wage": r"-?\d+|",
        "likes": "x|", "sector": "work|none", "visits": r"\d+",
    }  # fmt: skip
    for table in tables:
        assert table[0] == NAMES[1:] and len(table) == 2001
        for row in table[1:]:
            for name, cell in zip(NAMES[1:], row):
                assert re.fullmatch(form[name], cell), (name, cell)
    assert tables[0] != tables[1] != tables[2]


def test_tables_are_read_as_the_source_was(place, tables):
    like = Table.open(place / "t.h5")
    from mpibayes.io.recode import read_like

    rows = read_like(like, place / "tables" / "synthetic-1.csv")
    likes = next(c for c in like.columns if c.name == "likes")
    assert len(rows) == 2000 and not likes.is_missing(rows.codes8[:, likes.index]).any()


def cells(table, name):
    return np.array([row[NAMES.index(name) - 1] for row in table[1:]])


def test_cells_are_missing_as_in_the_data(tables):
    """Mass and day are missing together, in group 1 alone, which is red; a wage is missing where nobody works, and
    nowhere else. Bounds are more than 5 standard errors wide."""
    source = [row[1:] for row in [NAMES, *people()]]
    for table in tables:
        for name in ("mass", "day"):
            share = (cells(table, name) == "").mean()
            assert abs(share - (cells(source, name) == "?").mean()) < 0.1
        lacks = cells(table, "mass") == ""
        assert (lacks == (cells(table, "day") == "")).mean() > 0.9
        red = cells(table, "colour") == "red"
        assert lacks[red].mean() > 3 * lacks[~red].mean()
        assert ((cells(table, "wage") == "") == (cells(table, "sector") == "none")).all()


def test_no_cell_is_missing_where_none_is_asked_for(place, tmp_path):
    done = synthesize(place / "run", tmp_path / "none", copies=1, missing="none", **QUIET)
    table = read(done.paths[0])
    assert done.n_rows == 360
    assert not any((cells(table, name) == "").any() for name in NAMES[1:] if name != "likes")


def test_fewer_rows_are_the_first_of_more(place, tables, tmp_path, monkeypatch):
    """Rows do not depend on batches, nor a table on the others' number where its draw is the same."""
    monkeypatch.setattr(synthetic_rows, "BATCH", 77)
    synthesize(place / "run", tmp_path / "few", copies=TABLES, rows=300, **QUIET)
    for i, table in enumerate(tables, 1):
        assert read(tmp_path / "few" / f"synthetic-{i}.csv") == table[:301]
    synthesize(place / "run", tmp_path / "other", copies=TABLES, rows=300, seed=2, **QUIET)
    assert read(tmp_path / "other" / "synthetic-1.csv") != tables[0][:301]


@pytest.mark.thorough
def test_tables_do_not_depend_on_ranks(place, tmp_path, mpirun):
    program = "import sys; from mpibayes.hpc.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["synthesize", str(place / "run"), "--copies", str(TABLES), "--rows", "200", "--judge", "--key", "day"]
    for ranks in (1, 2):
        done = mpirun(ranks, "-c", program, *command, "-o", str(tmp_path / f"on-{ranks}"), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("3 synthetic tables of 200 rows") == 1
    for name in [f"synthetic-{i}.csv" for i in range(1, 1 + TABLES)] + ["judge.json", "judge.csv"]:
        assert (tmp_path / "on-1" / name).read_bytes() == (tmp_path / "on-2" / name).read_bytes(), name


def test_another_form_has_types(place, tmp_path):
    done = synthesize(place / "run", tmp_path / "tables", copies=1, form="parquet", **QUIET)
    assert "not written as parquet" in done.notes[0]
    table = pq.read_table(done.paths[0])
    assert table.column_names == NAMES[1:]
    assert isinstance(next(d for d in table["day"].to_pylist() if d), datetime.date)
    assert table["visits"].to_pylist()[0] == int(table["visits"].to_pylist()[0])


def test_rare_levels_are_merged(place, tmp_path):
    """Only one row is purple; with it the next rarest level is merged until there are 10."""
    done = synthesize(place / "run", tmp_path / "tables", copies=2, rows=4000, rare=10, **QUIET)
    assert any("colour are 'other'" in note for note in done.notes)
    for path in done.paths:
        result = set(cells(read(path), "colour"))
        assert "purple" not in result and "other" in result and len(result) == 2
        assert set(cells(read(path), "sector")) == {"work", "none"}


def test_a_level_called_other_is_not_mixed_up(place):
    asking = Asking(place / "run")
    training = look(asking)
    (colour,) = (c for c in asking.columns if c.name == "colour")
    from dataclasses import replace

    renamed = replace(colour, levels=("other", "purple", "red"))
    counts = {"colour": np.array([200, 3, 15])}
    done = merging(replace(training, counts=counts), [renamed], 10)
    assert done.name == {"colour": "other_"} and done.merged["colour"].tolist() == [False, True, True]
    assert done.coded("colour", np.array([0, 1, 2, 3])).tolist() == [0, 4, 4, 3]
    counts = {"colour": np.array([200, 0, 15])}  # only a held-out row is purple: nobody joins it
    assert merging(replace(training, counts=counts), [renamed], 10).merged["colour"].tolist() == [False, True, False]
    assert not merging(replace(training, counts=counts), [renamed], 0).merged


def test_rare_atoms_come_as_other_numbers(tmp_path):
    """60 of 200 have 0 and 12 have 99999, values of their own."""
    g = np.random.default_rng(2)
    gains = [0.0] * 120 + [99999.0] * 12 + [float(round(x)) for x in np.exp(g.normal(7, 0.6, 108))]
    lines = [f"{int(x)},{'a' if i % 3 else 'b'},{g.normal():.3f}" for i, x in enumerate(gains)]
    (tmp_path / "g.csv").write_text("\n".join(["gain,kind,z", *lines]) + "\n")
    import_table([tmp_path / "g.csv"], tmp_path / "g.h5", kinds={"gain": "real"})
    table = Table.open(tmp_path / "g.h5")
    assert {0.0, 99999.0} <= set(table.columns[0].atoms)
    make_run(tmp_path / "run", table, cycles=8, burn_in=4)
    for rare, there in ((0, True), (13, False)):
        done = synthesize(tmp_path / "run", tmp_path / f"rare-{rare}", copies=1, rows=3000, rare=rare, **QUIET)
        result = [float(row.split(",")[0]) for row in done.paths[0].read_text().splitlines()[1:]]
        assert (result.count(99999.0) > 20) == there and result.count(0.0) > 1000
        assert any("recurring value" in note for note in done.notes) != there


def test_from_python(place, tables):
    run = mb.open(place / "run", frames="pandas")
    result = run.synthesize(300, copies=TABLES)
    assert [list(frame.columns) for frame in result] == [NAMES[1:]] * TABLES
    assert result[1]["sector"].tolist() == [row[5] for row in tables[1][1:301]]
    judged = run.judge(200, copies=1, target="colour", key="sector")
    assert "disclosed" in judged["measure"] and "colour" in judged.title


def test_mistakes_are_found_before_any_work(place, tmp_path, capsys):
    run, out = str(place / "run"), str(tmp_path / "out")
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "synthetic-9.csv").write_text("x")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "synthetic-2.csv").write_text("x")
    (tmp_path / "judged").mkdir()
    (tmp_path / "judged" / "judge.csv").write_text("x")
    for words, arguments, code in (
        ("16 draws after burn-in", [run, "--copies", "17", "-o", out], 2),
        ("0 is not in the range", [run, "--copies", "0", "-o", out], 2),
        ("Missing option '-o'", [run], 2),
        ("each table is a file", [run, "--copies", "2", "-o", f"{out}.csv"], 2),
        ("such as synthetic-9.csv", [run, "--copies", "3", "-o", str(tmp_path / "many")], 2),
        ("synthetic-2.csv: exists and is kept", [run, "--copies", "3", "-o", str(tmp_path / "there")], 2),
        ("judge.csv: exists and is kept", [run, "--copies", "3", "--judge", "-o", str(tmp_path / "judged")], 2),
        ("are for --judge", [run, "--key", "colour", "-o", out], 2),
        ("no column 'colr'", [run, "--judge", "--key", "colr", "-o", out], 2),
        ("is also the target", [run, "--judge", "--key", "colour", "--target", "colour", "-o", out], 2),
        ("no-file.csv", [run, "--source", "no-file.csv", "-o", out], 3),
    ):
        assert main(["synthesize", *arguments]) == code, words
        text = capsys.readouterr().err
        assert words in text.replace("\n", " ") and "Traceback" not in text, text
    assert not list(tmp_path.glob("out*/*")) and (tmp_path / "there" / "synthetic-2.csv").read_text() == "x"
    assert main(["synthesize", run, "--copies", "3", "-o", str(tmp_path / "there"), "--force"]) == 0
    assert len(read(tmp_path / "there" / "synthetic-2.csv")) == 361
    for wrong in ({"n": 0}, {"copies": 0}, {"rare": -1}, {"missing": "some"}):
        with pytest.raises(mb.ConfigError, match=next(iter(wrong)) if "n" not in wrong else "rows"):
            mb.open(run).synthesize(**wrong)
