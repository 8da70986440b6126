"""`mpibayes complete`: what is written, and what is refused. That cells are drawn as they should be is tested in
test_copies.py and tests/laws/test_drawn.py."""

import csv
import gzip
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import mpibayes as mb
from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.cli import main
from mpibayes.hpc.results.complete import complete
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table
from tests.crosscat.report.runs import make_run

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"console": Console(quiet=True)}
NAMES = ["who", "colour", "age", "mass", "day", "visits", "remark"]
COPIES = 3


def people(n=120, seed=6):
    """Cells as people write them: a decimal comma, days first, "?" for what is missing, names and remarks that the
    import leaves out."""
    g, rows = np.random.default_rng(seed), []
    for i in range(n):
        k = int(g.random() < 0.5)
        row = [
            str(g.choice(["red", "blue"], p=(0.8, 0.2) if k else (0.1, 0.9))),
            f"{g.normal((30, 60)[k], 4):.0f}",
            f"{g.normal((60, 80)[k], 6):.1f}".replace(".", ","),
            f"{g.integers(1, 29):02d}.0{1 + 3 * k}.2024",
            f"{g.poisson((2, 9)[k])}",
        ]
        row = ["?" if i > 3 and g.random() < 0.1 else cell for cell in row]
        rows.append([f"p{i:03d}", *row, f'said "{i}"; left' if i % 7 else ""])
    return rows


def write(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file, delimiter=";").writerows([NAMES, *rows])
    return path


def read(path):
    with open(path, newline="") as file:
        return list(csv.reader(file, delimiter=";"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("complete")
    write(folder / "t.csv", people())
    import_table(
        [folder / "t.csv"], folder / "t.h5", kinds={"visits": "count", "remark": "ignored"}, missing=["?"], drop=["who"]
    )
    make_run(folder / "run", Table.open(folder / "t.h5"), cycles=12, burn_in=4, chains=2, heldout=0.1)
    return folder


@pytest.fixture(scope="module")
def copies(place):
    done = complete(place / "run", None, place / "copies", copies=COPIES, **QUIET)
    assert [p.name for p in done.paths] == ["copy-1.csv", "copy-2.csv", "copy-3.csv"] and done.n_rows == 120
    return [read(path) for path in done.paths]


def test_gaps_alone_are_filled_in_the_form_of_the_file(place, copies):
    source = read(place / "t.csv")
    kinds = {"colour": r"red|blue", "age": r"\d+", "mass": r"\d+,\d", "day": r"\d\d\.\d\d\.202\d", "visits": r"\d+"}
    drawn = {name: set() for name in kinds}
    for copy in copies:
        assert copy[0] == NAMES and len(copy) == len(source)
        for before, after in zip(source[1:], copy[1:]):
            for name, a, b in zip(NAMES, before, after):
                if a == "?":
                    assert re.fullmatch(kinds[name], b), (name, b)
                    drawn[name].add(b)
                else:
                    assert a == b
    assert all(len(values) > 1 for values in drawn.values())
    assert copies[0] != copies[1] != copies[2]


def test_cells_depend_on_the_seed_alone(place, copies, tmp_path):
    complete(place / "run", None, tmp_path / "again", copies=COPIES, **QUIET)
    complete(place / "run", place / "t.csv", tmp_path / "named", copies=COPIES, **QUIET)
    complete(place / "run", None, tmp_path / "other", copies=COPIES, seed=2, **QUIET)
    for i, copy in enumerate(copies, 1):
        assert read(tmp_path / "again" / f"copy-{i}.csv") == copy == read(tmp_path / "named" / f"copy-{i}.csv")
        assert read(tmp_path / "other" / f"copy-{i}.csv") != copy


def test_cells_do_not_depend_on_batches(place, copies, tmp_path, monkeypatch):
    from mpibayes.hpc.query import filling

    monkeypatch.setattr(filling, "BATCH", 7)
    complete(place / "run", None, tmp_path / "small", copies=COPIES, **QUIET)
    assert [read(tmp_path / "small" / f"copy-{i}.csv") for i in (1, 2, 3)] == copies


@pytest.mark.thorough
def test_cells_do_not_depend_on_ranks(place, copies, tmp_path, mpirun):
    program = "import sys; from mpibayes.hpc.cli import main; sys.exit(main(sys.argv[1:]))"
    for more, name in (([], "copies"), (["--long"], "long.csv")):
        command = ["complete", str(place / "run"), "--copies", str(COPIES), "-o", str(tmp_path / name), *more]
        done = mpirun(2, "-c", program, *command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("3 copies of 120 rows") == 1
    assert [read(tmp_path / "copies" / f"copy-{i}.csv") for i in (1, 2, 3)] == copies
    assert [row[:-2] for row in read(tmp_path / "long.csv")[1:] if row[-2] == "2"] == copies[1][1:]
    done = mpirun(2, "-c", program, *command, cwd=tmp_path)  # it is there
    assert done.returncode == 2 and done.stderr.count("mpibayes: error:") == 1


def test_one_long_file_has_the_rows_as_they_are_first(place, copies, tmp_path):
    complete(place / "run", None, tmp_path / "long.csv", copies=COPIES, long=True, **QUIET)
    head, *rows = read(tmp_path / "long.csv")
    assert head == [*NAMES, ".imp", ".id"]
    parts = [[row[:-2] for row in rows if row[-2] == str(i)] for i in range(COPIES + 1)]
    assert [row[-1] for row in rows] == [str(i) for i in range(1, 121)] * (COPIES + 1)
    assert parts[0] == [["" if cell == "?" else cell for cell in row] for row in read(place / "t.csv")[1:]]
    assert parts[1:] == [copy[1:] for copy in copies]
    complete(place / "run", None, tmp_path / "folder", copies=COPIES, long=True, **QUIET)
    assert (tmp_path / "folder" / "long.csv").read_bytes() == (tmp_path / "long.csv").read_bytes()
    complete(place / "run", None, tmp_path / "long.csv.gz", copies=COPIES, long=True, **QUIET)
    packed = gzip.decompress((tmp_path / "long.csv.gz").read_bytes())
    assert packed == (tmp_path / "long.csv").read_bytes()


def test_without_its_source_the_table_is_written(place, tmp_path, monkeypatch):
    """Dates, whole numbers and levels have their types; columns that the import left out are missing."""
    shutil.copy(place / "t.h5", tmp_path / "t.h5")
    done = complete(
        place / "run", None, tmp_path / "copies", copies=2, form="parquet", table=tmp_path / "t.h5", **QUIET
    )
    assert "without the columns that the import left out" in done.notes[0]
    table = pq.read_table(done.paths[0])
    assert table.column_names == NAMES[1:-1] and not any(c.null_count for c in table.columns)
    assert pa.types.is_date(table.schema.field("day").type)
    done = complete(
        place / "run", None, tmp_path / "named", copies=2, table=tmp_path / "t.h5", sources=[place / "t.csv"], **QUIET
    )
    assert not [note for note in done.notes if "import" in note] and read(done.paths[0])[0] == NAMES
    with pytest.raises(DataError, match=r"not what .* was imported from"):
        rows = [["p", "red", "1", "1,0", "01.01.2024", "1", ""]] * 120
        complete(place / "run", None, tmp_path / "x", copies=2, sources=[write(tmp_path / "o.csv", rows)], **QUIET)
    write(tmp_path / "t.csv", people(seed=7))
    done = complete(place / "run", None, tmp_path / "changed", copies=2, table=tmp_path / "t.h5", **QUIET)
    assert "t.csv has changed" in done.notes[0]


def test_another_form_is_written_from_the_table(place, copies, tmp_path):
    done = complete(place / "run", None, tmp_path / "copies", copies=COPIES, form="parquet", **QUIET)
    assert "t.csv is not written as parquet" in done.notes[0] and "12 rows not trained on" in done.notes[1]
    ages = pq.read_table(done.paths[1])["age"].to_pylist()
    assert ages == [float(row[2]) for row in copies[1][1:]]
    done = complete(place / "run", None, tmp_path / "long.parquet", copies=2, long=True, **QUIET)
    long = pq.read_table(done.paths[0])
    assert long.column_names[-2:] == [".imp", ".id"] and len(long) == 360
    assert long["age"][:120].null_count == sum(row[2] == "?" for row in people())


def test_other_rows_are_filled_given_their_cells(place, tmp_path):
    """Red people are of 60 years, blue ones of 30, at odds that are far from even."""
    rows = [[f"n{i}", ("red", "blue")[i % 2], "?", "?", "?", "?", ""] for i in range(200)]
    source = write(tmp_path / "new.csv", [*rows, ["n", "green", "?", "70,0", "01.01.2024", "3", ""]])
    done = complete(place / "run", source, tmp_path / "copies", copies=4, **QUIET)
    assert any("'green'" in note for note in done.notes)
    ages = np.array([[float(row[2]) for row in read(path)[1:]] for path in done.paths])
    assert ages[:, 0:200:2].mean() > 50.0 and ages[:, 1:200:2].mean() < 40.0
    assert read(done.paths[0])[-1][1] == "green"
    assert done.filled["mass"] == 200


def test_from_python(place, copies):
    run = mb.open(place / "run", frames="pandas")
    result = run.complete(copies=COPIES)
    assert [list(frame.columns) for frame in result] == [NAMES] * COPIES
    assert result[1]["mass"].tolist() == [row[3] for row in copies[1][1:]]
    assert result[1]["age"].tolist() == [int(row[2]) for row in copies[1][1:]]
    long = run.complete(copies=2, long=True)
    assert long[".imp"].tolist() == [0] * 120 + [1] * 120 + [2] * 120
    assert long[long[".imp"] == 0]["age"].isna().sum() == sum(row[2] == "?" for row in people())
    assert not long[long[".imp"] > 0][NAMES[1:-1]].isna().any().any()
    new = result[0].loc[[3, 5], ["colour", "age"]]
    new.loc[3, "age"] = None
    with pytest.warns(mb.MpibayesWarning, match="has no column"):
        (one, _) = run.complete(new, copies=2)
    assert list(one.index) == [3, 5] and one["age"].notna().all()
    for wrong in ({}, {"long": True}, {"copies": 0}):
        with pytest.raises(ConfigError, match="copies"):
            run.complete(**wrong)


def test_mistakes_are_found_before_any_work(place, tmp_path, capsys):
    run, out = str(place / "run"), str(tmp_path / "out")
    (tmp_path / "taken").write_text("x")
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "copy-9.csv").write_text("x")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "copy-2.csv").write_text("x")
    part = write(tmp_path / "own.csv", [["a", "red", "1", "1,0", "01.01.2024", "1", ""]])
    other = write(tmp_path / "other.csv", [["a", "red", "1", "1,0", "01.01.2024", "1", ""]])
    part.write_text(part.read_text().replace("remark", ".imp"))
    for words, arguments, code in (
        ("16 draws after burn-in", [run, "--copies", "17", "-o", out], 2),
        ("Missing option '-o'", [run], 2),
        ("name a folder", [run, "--copies", "2", "-o", f"{out}.csv"], 2),
        ("is a file; name a folder", [run, "--copies", "2", "-o", str(tmp_path / "taken")], 2),
        ("such as copy-9.csv", [run, "--copies", "3", "-o", str(tmp_path / "many")], 2),
        ("copy-2.csv: exists and is kept", [run, "--copies", "3", "-o", str(tmp_path / "there")], 2),
        ("leave out --to parquet", [run, "--copies", "2", "--long", "--to", "parquet", "-o", f"{out}.csv"], 2),
        ("is a text file", [run, str(other), "--copies", "2", "--to", "parquet", "-o", out], 2),
        ("no-file.csv", [run, "no-file.csv", "--copies", "2", "-o", out], 3),
        ("column '.imp', which the long", [run, str(part), "--copies", "2", "--long", "-o", f"{out}.csv"], 3),
        ("green", [run, str(write(tmp_path / "g.csv", [["a", "green", "", "", "", "", ""]])), "--unseen", "error",
                   "--copies", "2", "-o", out], 3),
    ):  # fmt: skip
        assert main(["complete", *arguments]) == code, words
        text = capsys.readouterr().err
        assert words in text.replace("\n", " ") and "Traceback" not in text, text
    assert not list(tmp_path.glob("out*/*")) and (tmp_path / "there" / "copy-2.csv").read_text() == "x"
    assert main(["complete", run, "--copies", "3", "-o", str(tmp_path / "there"), "--force"]) == 0
    assert len(read(tmp_path / "there" / "copy-2.csv")) == 121
