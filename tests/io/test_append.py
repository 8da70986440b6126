"""Rows that come later: a table of several parts is the table of all the rows, and an append is all or nothing."""

import contextlib
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.data.rows import Data
from mpibayes.io import append as appending
from mpibayes.io import table as tables
from mpibayes.io.append import append_rows
from mpibayes.io.ingest import import_table
from mpibayes.io.parts import part_path
from mpibayes.io.piece import Piece
from mpibayes.io.rows import ARRAYS
from mpibayes.io.table import Table
from mpibayes.io.turns import in_turn

HEAD = "name,city,size,gain,n,ok\n"
SCHEMA = """
[columns.name]
kind = "categorical"
[columns.city]
kind = "categorical"
[columns.size]
kind = "real"
resolution = 0.5
atoms = []
scale = "linear"
[columns.gain]
kind = "real"
resolution = "none"
atoms = [0]
scale = "log"
[columns.n]
kind = "count"
[columns.ok]
kind = "boolean"
levels = ["no", "yes"]
"""


def lines(start, stop, cities):
    """Rows of a table whose columns are of each kind, some cells missing."""
    g = np.random.default_rng(5)
    rows = []
    for i in range(stop):
        size, gain, n, u = 0.5 * g.integers(0, 9), np.exp(3 * g.normal()), g.poisson(3), g.random(3)
        city = "" if u[0] < 0.2 else cities[i % len(cities)]
        gain = "0" if u[1] < 0.3 else "" if u[1] < 0.4 else f"{gain:.9g}"
        rows.append(f"x{i:04d},{city},{size if u[2] < 0.9 else ''},{gain},{n},{'yes' if i % 3 else 'no'}\n")
    return "".join(rows[start:])


def put(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def people(tmp_path):
    """A table of 200 rows, and two files of rows that come later, with cities that it does not have."""
    schema = put(tmp_path, "schema.toml", SCHEMA)
    first = put(tmp_path, "first.csv", HEAD + lines(0, 200, ["Oslo", "Rome"]))
    import_table(first, tmp_path / "people.h5", schema=schema)
    put(tmp_path, "june.csv", HEAD + lines(200, 270, ["Oslo", "Bonn", "Rome"]))
    put(tmp_path, "july.csv", HEAD + lines(270, 330, ["Ulm", "Bonn"]))
    return tmp_path / "people.h5"


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(table, source, kind=DataError, **options):
    """The message of an append that leaves everything as it was."""
    before = content(table.parent)
    with pytest.raises(kind) as caught:
        append_rows(source, table, **options)
    assert content(table.parent) == before
    return str(caught.value)


def as_texts(table):
    """The cells of every column: texts, numbers, or None."""
    rows, cells = table.read(), {}
    for c in table.columns:
        values = getattr(rows, c.block)[:, c.index]
        missing = c.is_missing(values)
        cells[c.name] = [
            None if gone else c.levels[int(v)] if c.levels else float(v) for v, gone in zip(values, missing)
        ]
    return cells


@pytest.mark.parametrize("sources", [["june.csv", "july.csv"], ["june.csv"]])
def test_the_parts_are_the_rows_of_one_import(people, sources):
    for source in sources:
        append_rows(people.parent / source, people)
    whole = import_table(
        [people.parent / name for name in ("first.csv", *sources)],
        people.parent / "whole.h5",
        schema=people.parent / "schema.toml",
    ).table
    table = Table.open(people)
    assert as_texts(table) == as_texts(whole)
    assert table.n_rows == whole.n_rows and len(table.pieces) == 1 + len(sources)
    assert table.source["files"] == ["first.csv", *sources]
    numbers = ("n_missing", "center", "scale", "minimum", "maximum", "rest_center", "rest_scale", "n_rest")
    for ours, theirs in zip(table.columns, whole.columns):
        assert ours.kind == theirs.kind and sorted(ours.levels) == sorted(theirs.levels)
        for name in numbers if not ours.levels else ("n_missing",):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-12, abs=1e-12), (ours.name, name)


def test_old_rows_keep_numbers_and_codes(people):
    old, before = Table.open(people), content(people.parent)
    new = append_rows(people.parent / "june.csv", people)
    table = Table.open(people)
    city = next(c for c in table.columns if c.name == "city")
    assert city.levels == ("Oslo", "Rome", "Bonn") and any("'city': 1 new level" in r for r in new.remarks)
    for a, b in zip(old.columns, table.columns):
        x, y = (getattr(t.read(0, 200), c.block)[:, c.index] for t, c in ((old, a), (table, b)))
        seen = ~a.is_missing(x)
        assert np.array_equal(seen, ~b.is_missing(y)) and np.array_equal(x[seen], y[seen])
    after = content(people.parent)
    assert {name: after[name] for name in before} == before and after.keys() - before.keys() == {new.part.name}
    assert table.before_growth(old.fingerprint).fingerprint == old.fingerprint != table.fingerprint
    assert table.before_growth("0" * 64) is None


def test_rows_are_read_across_parts(people):
    for source in ("june.csv", "july.csv"):
        append_rows(people.parent / source, people)
    table = Table.open(people)
    every = table.read()
    for start, stop in [(0, 330), (195, 205), (199, 330), (200, 270), (265, 271), (330, 330)]:
        for block in ARRAYS:
            rows = getattr(table.read(start, stop), block)
            assert np.array_equal(rows, getattr(every, block)[start:stop], equal_nan=rows.dtype.kind == "f")
    assert sum(len(rows) for rows in table.slices(7)) == 330


def test_training_rows_are_read_many_at_a_time(tmp_path, monkeypatch):
    """Narrow rows by the megabyte: opening a file takes longer than reading 4,096 of them."""
    source = put(tmp_path, "a.csv", "c,d\n" + "".join(f"{'xyz'[i % 3]},{'uv'[i % 2]}\n" for i in range(20_000)))
    import_table(source, tmp_path / "a.h5")
    append_rows(put(tmp_path, "b.csv", "c,d\n" + "z,u\n" * 500), tmp_path / "a.h5")
    data = Data(Table.open(tmp_path / "a.h5"), (), 0.1)
    numbers, whole = np.r_[data.training_rows, data.heldout], data.table.read()
    reads, read = [], Piece.read
    monkeypatch.setattr(Piece, "read", lambda piece, *ends: reads.append(ends) or read(piece, *ends))
    codes = np.concatenate([data.rows_of(0, data.n_rows).codes8, data.heldout_of(0, len(data.heldout)).codes8])
    assert np.array_equal(codes, whole.codes8[numbers])
    assert len(reads) == 2 * len(data.table.pieces)


def test_a_column_that_outgrows_a_byte(tmp_path):
    source = put(tmp_path, "a.csv", "c,d\n" + "".join(f"v{i:03d},{'uv'[i % 2]}\n" for i in range(250)) + ",u\n")
    import_table(source, tmp_path / "a.h5", kinds={"c": "categorical"}, keep=["c"])
    append_rows(
        put(tmp_path, "b.csv", "c,d\n" + "".join(f"w{i:03d},v\n" for i in range(20)) + ",w\n"), tmp_path / "a.h5"
    )
    table = Table.open(tmp_path / "a.h5")
    assert [c.block for c in table.columns] == ["codes16", "codes8"]
    cells = as_texts(table)
    assert cells["c"] == [*(f"v{i:03d}" for i in range(250)), None, *(f"w{i:03d}" for i in range(20)), None]
    assert cells["d"] == [*("uv"[i % 2] for i in range(250)), "u", *"v" * 20, "w"]


def test_an_append_does_not_read_the_old_rows(people, monkeypatch):
    monkeypatch.setattr(Piece, "read", lambda *_: pytest.fail("old rows were read"))
    append_rows(people.parent / "june.csv", people)


# --- refusals -----------------------------------------------------------------------------------------------------


def test_all_differences_of_columns_are_named(people):
    text = refused(people, put(people.parent, "x.csv", "name,City,size,gain,ok,age\nx,Rome,1,2,yes,3\n"))
    for words in ("no column 'city' (did you mean 'City'?)", "no column 'n'", "column 'City'", "column 'age'"):
        assert words in text, text


def test_a_column_more_may_be_left_out(people):
    source = put(people.parent, "x.csv", "age,name,city,size,gain,ok,n\n3,x,Rome,1,2,yes,4\n")
    assert "--drop 'age'" in refused(people, source)
    assert "no such column" in refused(people, source, ConfigError, drop=["agee"])
    assert append_rows(source, people, drop=["age"]).n_rows == 1


@pytest.mark.parametrize(
    "row, words",
    [
        ("x,Rome,big,2,3,yes", "row 1 (line 2), column 'size': found 'big', expected a finite number"),
        ("x,Rome,1,2,-3,yes", "column 'n': found '-3', expected a non-negative integer"),
        ("x,Rome,1,2,3,maybe", "column 'ok': found 'maybe', expected one of its 2 levels ('no', 'yes')"),
        ("x,Rome,1,-2,3,yes", "column 'gain': -2 has no logarithm"),
        ("", "has no rows"),
    ],
)
def test_cells_that_no_column_holds(people, row, words):
    assert words in refused(people, put(people.parent, "x.csv", HEAD + row + "\n" * bool(row)))


def test_the_same_rows_twice(people):
    folder = people.parent
    append_rows(folder / "june.csv", people)
    assert "its part 2, people.part-2.h5, has these 70 rows already" in refused(people, folder / "june.csv")
    assert "the table, as first imported, has these 200 rows" in refused(people, folder / "first.csv")
    append_rows(folder / "july.csv", people)  # whose new level changes the code of missing cells
    assert "people.part-2.h5" in refused(people, folder / "june.csv")
    assert append_rows(folder / "june.csv", people, again=True).part.name == "people.part-4.h5"


def test_a_look_writes_nothing(people):
    before = content(people.parent)
    look = append_rows(people.parent / "june.csv", people, dry_run=True)
    assert content(people.parent) == before and "nothing was written" in look.lines()[0]


def test_values_off_the_steps_are_said(people):
    source = put(people.parent, "x.csv", HEAD + "x,Rome,1.25,2,3,yes\ny,Rome,0.5,2,3,no\n")
    assert any(
        "1 value is not in steps of 0.5 as the table's are, first 1.25" in r
        for r in append_rows(source, people).remarks
    )


def test_tables_and_parts_are_no_sources(people):
    new = append_rows(people.parent / "june.csv", people)
    assert "append the file that it was imported from" in refused(people, new.part)
    assert f"name the table {people}" in refused(new.part, people.parent / "july.csv", ConfigError)


def test_a_strange_file_in_the_way(people):
    strange = import_table(people.parent / "june.csv", part_path(people, 2), schema=people.parent / "schema.toml")
    assert "move it away" in refused(people, people.parent / "july.csv", ConfigError)
    assert len(Table.open(people).pieces) == 1 and Table.open(strange.table.path).n_rows == 70


# --- crashes, and others at the same time -------------------------------------------------------------------------


@pytest.mark.quick("append_seal", "summarise")
@pytest.mark.parametrize("place", ["append_seal", "summarise", "_remove_left_overs"])
def test_a_kill_leaves_the_table_as_it_was(people, place):
    before = Table.open(people).fingerprint
    program = (
        "import os, sys; from mpibayes.io import table; from mpibayes.io.append import append_rows\n"
        f"table.{place} = lambda *_: os._exit(9)\n"
        "append_rows(sys.argv[1], sys.argv[2])"
    )
    command = [sys.executable, "-c", program, people.parent / "june.csv", people]
    assert subprocess.run(command, timeout=60, check=False).returncode == 9
    assert Table.open(people).fingerprint == before
    append_rows(people.parent / "june.csv", people)
    assert Table.open(people).n_rows == 270


def no_locks(monkeypatch):
    """Act as a file system without locks of folders."""
    for module in (appending, tables):
        monkeypatch.setattr(module, "in_turn", lambda table: contextlib.nullcontext(0.0))


def test_without_locks_the_second_of_two_appends_is_refused(people, monkeypatch):
    no_locks(monkeypatch)
    folder, seal = people.parent, tables.append_seal

    def meanwhile(*given):
        seal(*given)
        monkeypatch.setattr(tables, "append_seal", seal)
        append_rows(folder / "july.csv", people)

    monkeypatch.setattr(tables, "append_seal", meanwhile)
    with pytest.raises(ConfigError, match="its rows were appended first: run the same command again"):
        append_rows(folder / "june.csv", people)
    assert Table.open(people).n_rows == 260
    append_rows(folder / "june.csv", people)
    assert Table.open(people).n_rows == 330 and not list(folder.glob("*.tmp"))


@pytest.mark.thorough
def test_appends_at_once_wait_for_each_other(people):
    """Processes that are started together: all rows are in, each part once."""
    folder, sources = people.parent, ("june.csv", "july.csv", "june.csv")
    program = "import sys; from mpibayes.io.append import append_rows; append_rows(*sys.argv[1:])"
    words = [[sys.executable, "-c", program, folder / source, people] for source in sources]
    with in_turn(people):
        at_once = [subprocess.Popen(w, stderr=subprocess.PIPE, text=True) for w in words]
        time.sleep(0.5)
        assert all(process.poll() is None for process in at_once) and Table.open(people).n_rows == 200
    errors = [process.communicate(timeout=100)[1] for process in at_once]
    assert sorted(process.returncode for process in at_once) == [0, 0, 1], errors
    assert sum("has these 70 rows already" in error for error in errors) == 1, errors
    assert Table.open(people).n_rows == 330 and not list(folder.glob("*.tmp"))


def test_an_import_meanwhile(people, monkeypatch):
    no_locks(monkeypatch)
    folder, check = people.parent, appending.require_unchanged

    def meanwhile(before):
        monkeypatch.setattr(appending, "require_unchanged", check)
        append_rows(folder / "july.csv", people)

    monkeypatch.setattr(appending, "require_unchanged", meanwhile)
    with pytest.raises(ConfigError, match="changed meanwhile"):
        append_rows(folder / "june.csv", people)
    assert Table.open(people).n_rows == 260


def test_parts_of_another_table(people):
    for source in ("june.csv", "july.csv"):
        append_rows(people.parent / source, people)
    second = part_path(people, 2)
    second.rename(people.parent / "away.h5")
    with pytest.raises(DataError, match=r"its part people\.part-2\.h5 is not there, but people\.part-3\.h5 is"):
        Table.open(people)
    (people.parent / "away.h5").rename(second)
    other = people.parent / "other.h5"
    import_table(people.parent / "july.csv", other, schema=people.parent / "schema.toml")
    os.replace(other, people)
    with pytest.raises(DataError, match="come after another table"):
        Table.open(people)


def test_an_import_with_force_replaces_the_parts_too(people):
    append_rows(people.parent / "june.csv", people)
    import_table(people.parent / "first.csv", people, schema=people.parent / "schema.toml", overwrite=True)
    assert Table.open(people).n_rows == 200 and not part_path(people, 2).exists()


def test_a_flipped_bit_in_a_part(people):
    part = append_rows(people.parent / "june.csv", people).part
    data = bytearray(part.read_bytes())
    table, place = Table.open(people), data.find(np.float64(0.5).tobytes())
    data[place] ^= 1
    part.write_bytes(data)
    with pytest.raises(DataError, match=r"people\.part-2\.h5: damaged"):
        table.read()
    part.write_bytes(data[:-100])
    with pytest.raises(DataError, match="truncated"):
        Table.open(people)


# --- how sources are read -----------------------------------------------------------------------------------------


def test_files_that_are_cut_short(people):
    june = people.parent / "june.csv"
    whole = june.read_text()
    put(people.parent, "cut.csv", whole[: whole.rindex(",") - 2])
    refused(people, people.parent / "cut.csv")
    append_rows(june, people)
    part = part_path(people, 2)
    part.write_bytes(part.read_bytes()[:-1000])
    with pytest.raises(DataError, match=r"people\.part-2\.h5"):
        Table.open(people)


def test_forms_weights_dates_and_counts_are_the_tables(tmp_path):
    head, day = "x;w;when;c\n", "2024-0{}-1{};{}\n"
    first = head + "".join(f"{i % 7},{i % 3}25;1,{i};" + day.format(1 + i % 3, i % 9, "ab"[i % 2]) for i in range(60))
    import_table(put(tmp_path, "a.csv", first), tmp_path / "a.h5", weight="w", calendar=["when"])
    later = head + "".join(f"{i % 9},{i % 4}25;2,{i};" + day.format(4, i % 9, "abc"[i % 3]) for i in range(10))
    append_rows(put(tmp_path, "b.csv", later), tmp_path / "a.h5")
    table = Table.open(tmp_path / "a.h5")
    cells = as_texts(table)
    assert cells["x"][60:62] == [0.025, 1.125] and cells["when"][60] - cells["when"][0] == 91
    assert set(cells["when month"][60:]) == {"April"}
    assert table.weights()[60:63] == pytest.approx([2.0, 2.1, 2.2])
    assert "no column 'w'" in refused(tmp_path / "a.h5", put(tmp_path, "c.csv", "x;when;c\n1;2024-01-01;a\n"))


def test_rows_that_stand_for_many(tmp_path):
    import_table(put(tmp_path, "a.csv", "a,b,Freq\nu,v,3\nw,v,2\nw,z,1\n"), tmp_path / "a.h5", count="Freq")
    append_rows(put(tmp_path, "b.csv", "a,b,Freq\nu,y,2\n"), tmp_path / "a.h5")
    assert as_texts(Table.open(tmp_path / "a.h5"))["b"] == ["v"] * 5 + ["z", "y", "y"]


def test_new_numbers_are_levels_in_order(tmp_path):
    first = "a,b\n" + "".join(f"{i % 4},{'uv'[i % 2]}\n" for i in range(80))
    import_table(put(tmp_path, "a.csv", first), tmp_path / "a.h5")
    new = append_rows(put(tmp_path, "b.csv", "a,b\n10,u\n9.0,u\n9,u\n1.0,v\n"), tmp_path / "a.h5")
    table = Table.open(tmp_path / "a.h5")
    assert table.columns[0].levels == ("0", "1", "2", "3", "9", "10")
    assert as_texts(table)["a"][80:] == ["10", "9", "9", "1"]
    assert any("they come last in its order, after '3'" in remark for remark in new.remarks)
