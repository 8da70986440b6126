"""Files other than CSV: the same survey in every format is the same table, and each kind is known by its content."""

import datetime
import gzip
import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pyreadstat
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.run.from_file import is_data
from mpibayes.io.ingest import import_table
from mpibayes.io.recode import read_like
from mpibayes.io.table import Table

FIELD = Path(__file__).parent / "field" / "labelled"
PETS = {"1.0": "dog", "2.0": "cat"}


def imported(tmp_path, path, **options):
    return import_table(path, tmp_path / "t.h5", overwrite=True, **options)


def cells(table, name):
    """The cells of a column: levels and numbers as they are, None where one is missing."""
    column, rows = next(c for c in table.columns if c.name == name), table.read()
    values = getattr(rows, column.block)[:, column.index]
    if column.levels:
        return [column.levels[v] if v < len(column.levels) else None for v in values]
    return [None if np.isnan(v) else float(v) for v in values]


def put(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def workbook(tmp_path, sheets, name="book.xlsx"):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(tmp_path / name)
    return tmp_path / name


def refused(tmp_path, path, kind=DataError, **options):
    with pytest.raises(kind) as info:
        imported(tmp_path, path, **options)
    assert not (tmp_path / "t.h5").exists()
    return str(info.value)


# --- one survey in eight formats --------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("path", sorted(FIELD.iterdir()), ids=lambda p: p.name)
def test_one_survey_is_one_table(tmp_path, path):
    table = imported(tmp_path, path, missing=["-99", "missing response"]).table
    with (FIELD / "labelled.csv").open() as file:
        rows = [line.rstrip("\n").split(",") for line in file][1:]
    assert {c.name: c.kind for c in table.columns if c.name in ("pet", "sat", "inc")} == {
        "pet": "categorical", "sat": "categorical", "inc": "real",
    }  # fmt: skip
    assert [PETS.get(f"{pet}.0", pet) for pet in cells(table, "pet")] == [PETS.get(row[0]) for row in rows]
    satisfied = [None if s is None else float(s) for s in cells(table, "sat")]
    assert satisfied == [None if row[1] == "-99.0" else float(row[1]) for row in rows]
    assert cells(table, "inc") == [float(row[2]) for row in rows]
    if path.stem == "pandas":
        when = next(c for c in table.columns if c.name == "when")
        assert when.unit == "days since 1970-01-01" and round(1 / when.resolution) == 1440
        assert cells(table, "when")[0] == 1730102220 / 86400
        assert cells(table, "ok")[:5] == ["true", "false", "true", "true", None]
        assert cells(table, "k")[:5] == [14.0, None, 12.0, 14.0, 11.0]


@pytest.mark.thorough
def test_labels_are_in_the_order_of_their_codes_and_ask_about_missing(tmp_path):
    summary = imported(tmp_path, FIELD / "labelled.dta")
    levels = {c.name: c.levels for c in summary.table.columns}
    assert levels["pet"] == ("missing response", "dog", "cat") and levels["sat"] == ("-99", "1", "2", "3", "4", "5")
    [warning] = [w for w in summary.warnings if "label" in w]
    assert warning == (
        "column 'pet': the code -99 has the label 'missing response'; if that means missing: --missing -99"
    )
    summary = imported(tmp_path, FIELD / "labelled.dta", missing=["-99"])  # the code stands for its label
    assert summary.table.columns[0].levels == ("dog", "cat") and not any("no cell" in w for w in summary.warnings)
    assert cells(imported(tmp_path, FIELD / "labelled.sav").table, "pet").count(None) == 27  # declared missing there


def test_single_precision_of_stata_is_read_as_it_was_typed(tmp_path):
    """Stata stores numbers with 24 bits by default: 5.1 comes back as 5.099999904632568."""
    import pandas

    typed = np.round(np.random.default_rng(3).normal(5, 1, 90), 1)
    frame = pandas.DataFrame({"size": typed.astype(np.float32), "code": (1 + np.arange(90) % 3).astype(np.float32)})
    frame.to_stata(tmp_path / "f.dta", write_index=False, value_labels={"code": {1: "a", 2: "b", 3: "c"}})
    table = imported(tmp_path, tmp_path / "f.dta").table
    size, code = table.columns
    assert size.resolution == 0.1 and code.levels == ("a", "b", "c")
    assert cells(table, "size") == typed.tolist() and cells(table, "code")[:3] == ["a", "b", "c"]


@pytest.mark.thorough
def test_new_rows_are_read_as_the_table_was(tmp_path):
    """All satisfied cells of the new file happen to have labels, which those of the first had not."""
    import pandas

    table = imported(tmp_path, FIELD / "labelled.sav").table
    frame = pandas.DataFrame({"pet": [2.0, 1.0, -99.0], "sat": [1.0, 5.0, 1.0], "inc": [30.0, 40.0, 50.0]})
    labels = {"pet": {1.0: "dog", 2.0: "cat"}, "sat": {1.0: "very low", 5.0: "very high"}}
    pyreadstat.write_sav(
        frame, tmp_path / "new.sav", variable_value_labels=labels, missing_ranges={"pet": [-99], "sat": [-99]}
    )
    rows = read_like(table, tmp_path / "new.sav")
    pet, sat = (next(c for c in table.columns if c.name == name) for name in ("pet", "sat"))
    assert [pet.levels[v] for v in rows.codes8[:2, pet.index]] == ["cat", "dog"]
    assert rows.codes8[2, pet.index] == len(pet.levels)
    assert [sat.levels[v] for v in rows.codes8[:, sat.index]] == ["1", "5", "1"]
    for name in ("labelled.xlsx", "pandas.feather", "pandas.jsonl"):
        rows = read_like(table, FIELD / name, unseen="missing")
        assert np.array_equal(rows.reals, table.read().reals)
        seen = rows.codes8[:, pet.index]
        assert np.array_equal(seen, table.read().codes8[:, pet.index])


# --- SPSS, Stata and SAS ----------------------------------------------------------------------------------------------


def survey():
    import pandas

    n = 12
    day = [datetime.date(2024, 1, 1) + datetime.timedelta(days=i) for i in range(n)]
    return pandas.DataFrame(
        {
            "age": [1.0, 2, None, 9, 3, 4] * 2,
            "sex": ["m", "f", "", "f", "m", "m"] * 2,
            "day": [None, *day[1:]],
            "at": pandas.to_datetime([f"{d} {i:02d}:30" for i, d in enumerate(day)], format="%Y-%m-%d %H:%M"),
            "grade": [3.0, 1, 2, 1, 2, 3] * 2,
        }
    )


GRADE = {1.0: "poor", 2.0: "fair", 3.0: "excellent"}
WRITERS = {
    "s.sav": lambda d, p: pyreadstat.write_sav(
        d, p, variable_value_labels={"grade": GRADE}, missing_ranges={"age": [9], "sex": ["z"]}
    ),
    "s.zsav": lambda d, p: pyreadstat.write_sav(
        d, p, compress=True, variable_value_labels={"grade": GRADE}, missing_ranges={"age": [{"lo": 8, "hi": 99}]}
    ),
    "s.por": lambda d, p: pyreadstat.write_por(d.rename(columns=str.upper), p),
    "s.dta": lambda d, p: pyreadstat.write_dta(
        d, p, variable_value_labels={"grade": {int(k): v for k, v in GRADE.items()}}
    ),
    "s10.dta": lambda d, p: pyreadstat.write_dta(
        d, p, version=10, variable_value_labels={"grade": {int(k): v for k, v in GRADE.items()}}
    ),
    "s.xpt": lambda d, p: pyreadstat.write_xport(d, p, file_format_version=5),
    "s8.xpt": lambda d, p: pyreadstat.write_xport(d, p, file_format_version=8),
}


@pytest.mark.quick("s.por-", "s8.xpt-", "s.sav-.gz", "s.dta-.zip", "s.xpt-.other")
@pytest.mark.parametrize(
    ("name", "packed"), [*((name, "") for name in WRITERS), ("s.sav", ".gz"), ("s.dta", ".zip"), ("s.xpt", ".other")]
)
def test_files_of_statistics_programs(tmp_path, name, packed):
    """Formats are known by content: packed, or with a name that says nothing."""
    frame, path = survey(), tmp_path / name
    WRITERS[name](frame, path)
    if packed == ".gz":
        path = put(tmp_path, name + packed, gzip.compress(path.read_bytes()))
    elif packed == ".zip":
        with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
            archive.write(path, f"folder/{name}")
            archive.writestr("__MACOSX/._x", b"x")
        path = tmp_path / "z.zip"
    elif packed:
        path = path.rename(tmp_path / "data")
    summary = imported(tmp_path, path, kinds={"AGE" if "por" in name else "age": "real"})
    result = {c.name.lower(): c for c in summary.table.columns}
    lower = {c.name.lower(): cells(summary.table, c.name) for c in summary.table.columns}
    declared = "sav" in name
    assert lower["age"] == [1.0, 2.0, None, None if declared else 9.0, 3.0, 4.0] * 2
    assert lower["sex"] == ["m", "f", None, "f", "m", "m"] * 2
    if name.endswith((".xpt", ".por")):  # which have no labels
        assert result["grade"].levels == ("1", "2", "3")
    else:
        assert result["grade"].levels == ("poor", "fair", "excellent")
    first = (datetime.date(2024, 1, 1) - datetime.date(1970, 1, 1)).days
    assert lower["day"] == [None, *(first + i for i in range(1, 12))]
    assert np.allclose(lower["at"], [first + i + (i + 0.5) / 24 for i in range(12)], atol=1e-9)
    assert result["at"].resolution == 1 / 1440 and result["day"].unit


def test_labels_of_some_codes_keep_the_codes(tmp_path):
    """An age with a label for its top code is a number; two codes with one label stay two levels."""
    import pandas

    n = 60
    frame = pandas.DataFrame({"age": np.arange(n) + 20.0, "job": np.arange(n) % 3 + 1.0, "x": np.arange(n) % 7 + 0.5})
    labels = {"age": {79.0: "79 or more"}, "job": {1.0: "other", 2.0: "yes", 3.0: "other"}}
    pyreadstat.write_sav(frame, tmp_path / "s.sav", variable_value_labels=labels)
    table = imported(tmp_path, tmp_path / "s.sav", kinds={"age": "real"}).table
    by_name = {c.name: c for c in table.columns}
    assert by_name["age"].maximum == 79.0
    assert by_name["job"].levels == ("other (1)", "yes", "other (3)")


def test_many_rows_come_a_piece_at_a_time(tmp_path, monkeypatch):
    import pandas

    from mpibayes.io.formats import labelled
    from mpibayes.io.formats.typed import Asked

    asked = []
    monkeypatch.setattr(labelled, "rows_at_once", lambda n: 7)
    real = labelled.READ["sav"]
    monkeypatch.setitem(labelled.READ, "sav", lambda *a, **k: asked.append(k.get("row_limit", 0)) or real(*a, **k))
    for n in (20, 21):
        frame = pandas.DataFrame({"x": np.arange(n) / 4, "g": np.arange(n) % 2 + 1.0})
        pyreadstat.write_sav(frame, tmp_path / "s.sav", variable_value_labels={"g": {1.0: "a", 2.0: "b"}})
        content = labelled.look(tmp_path / "s.sav", "sav", Asked())
        batches = list(content.read([1, 0]))
        assert [len(batch) for batch in batches] == [7, 7, n - 14]
        assert pa.Table.from_batches(batches).column("x").to_pylist() == (np.arange(n) / 4).tolist()
        assert content.as_labels == {1} and content.labels == {1: {"1": "a", "2": "b"}}
    assert max(asked) == 7


# --- Excel ------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_excel_cells_are_as_csv_has_them(tmp_path):
    day = datetime.datetime(2024, 3, 31, 1, 30)
    rows = [["n", "ok", "when", "day", "t", "mixed", None]]
    for i in range(30):
        rows.append(
            [
                None if i % 5 == 0 else float(i % 3 + 1),
                i % 2 == 0,
                day + datetime.timedelta(hours=i),
                datetime.date(2024, 1, 1) + datetime.timedelta(days=i),
                datetime.time(i % 24, 15),
                "#N/A" if i == 3 else i + 0.5,
                None,
            ]
        )
    book = workbook(tmp_path, {"Wave 1": rows})
    table = imported(tmp_path, book).table
    assert [c.name for c in table.columns] == ["n", "ok", "when", "day", "t", "mixed"]
    assert cells(table, "n")[:5] == [None, "2", "3", "1", "2"] and cells(table, "ok")[:2] == ["true", "false"]
    assert {c.name: (c.unit, round(c.resolution * 1440)) for c in table.columns if c.unit} == {
        "when": ("days since 1970-01-01", 1), "day": ("days since 1970-01-01", 1440), "t": ("days", 1),
    }  # fmt: skip
    assert cells(table, "mixed")[2:5] == [2.5, None, 4.5] and cells(table, "t")[1] == 1.25 / 24
    shutil.copy(book, tmp_path / "name.csv")
    assert imported(tmp_path, tmp_path / "name.csv").table.fingerprint == table.fingerprint
    assert len(read_like(table, book)) == 30


def test_sheets(tmp_path):
    one, two = [["a", "b"], *[[i / 3, i % 2] for i in range(9)]], [["a", "b"], *[[i / 7, i % 2] for i in range(8)]]
    book = workbook(tmp_path, {"Wave 1": one, "Wave 2": two, "Notes": [["see"]]})
    summary = imported(tmp_path, book)
    assert summary.rows == 9 and summary.reading.startswith("Excel, sheet 'Wave 1'")
    assert "book.xlsx: the first of its sheets was read, 'Wave 1', of 'Wave 1', 'Wave 2', 'Notes': --sheet NAME" in (
        summary.warnings
    )
    summary = imported(tmp_path, book, sheet="Wave 2", write_schema=tmp_path / "s.toml")
    assert summary.rows == 8 and not any("sheet" in w for w in summary.warnings)
    assert imported(tmp_path, book, schema=tmp_path / "s.toml").rows == 8  # the schema knows the sheet
    assert len(read_like(Table.open(tmp_path / "t.h5"), book)) == 8
    (tmp_path / "t.h5").unlink()
    assert "--sheet Wave 3" in refused(tmp_path, book, ConfigError, sheet="Wave 3")
    assert "not an Excel workbook" in refused(tmp_path, FIELD / "labelled.csv", ConfigError, sheet="Wave 1")


@pytest.mark.thorough
def test_what_is_above_and_beside_the_table(tmp_path):
    rows = [[None], [None, "x", "g"], *[[None, i / 3, "ab"[i % 2]] for i in range(25)], [None, None, None], [" "]]
    book = workbook(tmp_path, {"S": [*rows[:-1]]})
    table = imported(tmp_path, book).table
    assert [c.name for c in table.columns] == ["x", "g"] and table.n_rows == 25
    (tmp_path / "t.h5").unlink()
    titled = workbook(tmp_path, {"S": [["Table 1: all"], ["x", "g"], [1, 2], [3, 4]]})
    assert "begins with a row of one cell, 'Table 1: all'" in refused(tmp_path, titled)
    assert "is empty" in refused(tmp_path, workbook(tmp_path, {"S": []}))
    plain = workbook(tmp_path, {"S": [[i / 3, "ab"[i % 2]] for i in range(25)]})
    assert [c.name for c in imported(tmp_path, plain).table.columns] == ["column_1", "column_2"]


def test_a_cell_that_does_not_fit_is_placed_by_its_line(tmp_path):
    book = workbook(tmp_path, {"S": [["x", "g"], *[[i / 3, "ab"[i % 2]] for i in range(25)], ["oops", "a"]]})
    assert "row 26 (line 27), column 'x': found 'oops'" in refused(tmp_path, book, kinds={"x": "real"})


# --- JSON lines and Arrow ---------------------------------------------------------------------------------------------


def json_lines(tmp_path, rows, name="d.jsonl"):
    return put(tmp_path, name, "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("name", ["d.jsonl", "d.ndjson", "d.csv", "d.txt"])
def test_json_lines_are_never_csv(tmp_path, name):
    rows = [{"pet": "cat" if i % 3 else "dog", "n": None if i % 4 else i, "x": i / 4} for i in range(40)]
    rows[7]["late"], rows[8]["late"], rows[9]["late"] = 1, 2, 1
    rows[5]["deep"] = {"a": [1]}
    summary = imported(tmp_path, json_lines(tmp_path, rows, name))
    assert [c.name for c in summary.table.columns] == ["pet", "n", "x", "late"]
    assert summary.table.columns[0].levels == ("cat", "dog") and summary.reading == "JSON lines"
    assert cells(summary.table, "late")[6:10] == [None, "1", "2", "1"]
    assert any("'deep'" in w and "nested" in w for w in summary.warnings)
    assert len(read_like(summary.table, tmp_path / name)) == 40
    packed = put(tmp_path, name + ".gz", gzip.compress((tmp_path / name).read_bytes()))
    assert imported(tmp_path, packed).table.fingerprint == summary.table.fingerprint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\n{"a": 2\n', "line 2 is not a JSON object: '{\"a\": 2'"),
        ('{"a": 1}\n[1]\n', "line 2 is not a JSON object"),
        ('{"a": {"0": 1, "1": 2}, "b": {"0": 1, "1": 3}}', "is a JSON document; expected JSON lines"),
        ('[{"a": 1}, {"a": 2}]', "is a JSON document; expected JSON lines"),
        ('[\n  {"a": 1},\n  {"a": 2}\n]\n', "is a JSON document; expected JSON lines"),
        ('{\n  "a": 1\n}\n', "line 1 is not a JSON object"),
        ('{"a": ' + "[" * 100_000 + "\n", "line 1 is not a JSON object"),
        ('{"a": "\\ud800"}\n{"a": "b"}\n', "cannot be read"),
        ('{"a": ' + "1" * 5000 + "}\n", "line 1 is not a JSON object"),
        (b'{"a": "\xff"}\n', "cannot be read"),
    ],
)
def test_json_that_is_not_lines(tmp_path, content, message):
    assert message in refused(tmp_path, put(tmp_path, "d.jsonl", content))


def test_numbers_of_json_that_no_float_holds(tmp_path):
    rows = [{"a": i / 3, "b": 10**400 if i == 3 else i, "c": float("nan") if i else 1.5} for i in range(30)]
    table = imported(tmp_path, json_lines(tmp_path, rows), keep=["c"]).table
    assert cells(table, "b")[2:5] == [2.0, None, 4.0] and cells(table, "c")[:2] == [1.5, None]


def test_milliseconds_of_json(tmp_path):
    seconds = [1_730_102_220_000 + 1000 * i * i for i in range(30)]
    summary = imported(tmp_path, json_lines(tmp_path, [{"t": t, "x": i % 2} for i, t in enumerate(seconds)]))
    assert summary.table.columns[0].unit and any("read as dates, from milliseconds" in w for w in summary.warnings)
    summary = imported(tmp_path, json_lines(tmp_path, [{"t": t + 1, "x": i % 2} for i, t in enumerate(seconds)]))
    assert not summary.table.columns[0].unit and any("looks like milliseconds" in w for w in summary.warnings)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather(tmp_path, compression):
    frame = pa.table({"x": [i / 3 for i in range(40)], "g": ["ab"[i % 2] for i in range(40)], "l": [[1]] * 40})
    pa.feather.write_feather(frame, tmp_path / "d.feather", compression, chunksize=7)
    with pa.ipc.new_stream(tmp_path / "d.arrows", frame.schema) as stream:
        stream.write_table(frame, 9)
    pa.parquet.write_table(frame, tmp_path / "d.parquet")
    tables = [imported(tmp_path, tmp_path / f"d.{end}").table for end in ("feather", "arrows", "parquet")]
    assert len({table.fingerprint for table in tables}) == 1 and [c.name for c in tables[0].columns] == ["x", "g"]


# --- packed, damaged, and of other kinds -----------------------------------------------------------------------------


def zipped(tmp_path, files, name="z.zip"):
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in files.items():
            archive.writestr(member, content)
    return tmp_path / name


def test_zip(tmp_path):
    text = "x,g\n" + "".join(f"{i / 3},{'ab'[i % 2]}\n" for i in range(30))
    plain = imported(tmp_path, put(tmp_path, "d.csv", text)).table.fingerprint
    assert imported(tmp_path, zipped(tmp_path, {"d.csv": text})).table.fingerprint == plain
    assert imported(tmp_path, zipped(tmp_path, {"__MACOSX/._d.csv": "x", "d.csv": text})).table.fingerprint == plain
    (tmp_path / "t.h5").unlink()
    assert "a zip archive of 2 files (a.csv, b.csv)" in refused(tmp_path, zipped(tmp_path, {"a.csv": "", "b.csv": ""}))
    broken = bytearray(zipped(tmp_path, {"d.csv": text * 99}).read_bytes())
    broken[200] ^= 255
    assert "z.zip: cannot be read" in refused(tmp_path, put(tmp_path, "z.zip", bytes(broken)))
    assert "damaged" in refused(tmp_path, put(tmp_path, "z.zip", bytes(broken[:300])))


def test_a_reader_that_crashes_is_one_message():
    """Run each in a process of its own, whose end it is."""
    from mpibayes.io.formats.apart import _answer
    from mpibayes.io.formats.kinds import SPSS

    for number, words in ((-11, "SIGSEGV"), (-24, "SIGXCPU, having taken too much time"), (1, "failed")):
        done = subprocess.CompletedProcess([], number, b"", b"thread panicked")
        with pytest.raises(DataError, match=f"x.sav: cannot be read as an SPSS file: its reader .*{words}"):
            _answer(Path("x.sav"), SPSS, done)


def test_an_old_workbook(tmp_path):
    table = imported(tmp_path, FIELD.parent / "old.xls").table
    assert [(c.name, c.kind) for c in table.columns] == [
        ("n", "categorical"), ("g", "categorical"), ("day", "real"), ("ok", "boolean"),
    ]  # fmt: skip
    assert cells(table, "n")[:4] == [None, "2", "3", "1"] and cells(table, "day")[0] == 19723.0


def png():
    return b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.rds", gzip.compress(b"X\n\x00\x00\x00\x03" + bytes(range(256))), "is an R data file; write it from R"),
        ("x.RData", gzip.compress(b"RDX3\nX\n" + bytes(99)), "is an R data file"),
        ("x.ods", None, "is an OpenDocument file; save it as .xlsx or CSV"),
        ("x.png", png(), "is an image"),
        ("x.csv", png(), "is an image"),
        ("x.csv.gz", gzip.compress(png()), "is an image"),
        ("x.gz", gzip.compress(np.random.default_rng(1).bytes(5000)), "neither text nor a kind of file that is known"),
        ("x.xls", b"<html><table><tr><td>1</td></tr></table></html>", "is an HTML page; open it in a spreadsheet"),
        ("x.xml", b"<?xml version='1.0'?><Workbook/>", "is an XML document"),
        ("x.pkl", b"\x80\x04\x95" + bytes(99), "is a Python pickle"),
        ("x.mat", b"MATLAB 5.0 MAT-file, Platform: GLNXA64" + bytes(90), "is a MATLAB file"),
        ("x.pdf", b"%PDF-1.7\n" + bytes(range(256)), "is a PDF document"),
        ("x.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000), "cannot be read as an Excel workbook"),
        ("x.sav", b"$FL2@(#) SPSS" + bytes(500), "cannot be read as SPSS"),
        ("x.dta", b"<stata_dta><header>" + bytes(500), "cannot be read as Stata"),
        ("x.sas7bdat", bytes(range(1, 32)) * 99, "cannot be read as SAS"),
        ("x.xpt", b"HEADER RECORD*******LIBRARY HEADER RECORD!!!!!!!" + b"0" * 99, "cannot be read as SAS transport"),
        ("x.feather", b"ARROW1\0\0" + bytes(500), "damaged Arrow file"),
        ("x.arrows", b"\xff\xff\xff\xff" + bytes(4), "damaged Arrow file"),
        ("x.npz", None, "is a NumPy archive"),
        ("x.tar", b"\0" * 257 + b"ustar" + b"\0" * 500, "is a tar archive"),
    ],
)
def test_other_kinds_get_one_message(tmp_path, name, content, message):
    path = tmp_path / name
    if name == "x.ods":
        zipped(tmp_path, {"mimetype": "application/vnd.oasis.opendocument.spreadsheet", "content.xml": "<a/>"}, name)
    elif name == "x.npz":
        np.savez(path, a=np.arange(3), b=np.arange(3))
    else:
        path.write_bytes(content)
    result = refused(tmp_path, path)
    assert message in result and name in result and "\n" not in result
    assert is_data(path)  # `mpibayes run FILE` says the same, and not that a configuration is text


def test_a_configuration_is_no_data(tmp_path):
    assert not is_data(put(tmp_path, "run.toml", "[data]\n"))
    assert not is_data(put(tmp_path, "run.conf", "[data]\ntable = 'a.h5'\n"))
    assert not is_data(tmp_path / "none.conf")
    assert is_data(put(tmp_path, "d.json", '[{"a": 1}]')) and is_data(tmp_path / "none.sav")


@pytest.mark.parametrize(
    ("module", "name", "title"), [("pyreadstat", "labelled.sav", "SPSS"), ("python_calamine", "labelled.xlsx", "Excel")]
)
def test_without_the_extra_the_message_names_it(tmp_path, monkeypatch, module, name, title):
    monkeypatch.setitem(sys.modules, module, None)
    result = refused(tmp_path, FIELD / name)
    assert f"is an {title}" in result and "pip install 'mpibayes[formats]'" in result


@pytest.mark.thorough  # five programs
def test_run_and_predict(tmp_path):
    """Through the command line: a run from an SPSS file, and new rows of others."""

    def command(*words):
        done = subprocess.run(
            [sys.executable, "-m", "mpibayes", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    shutil.copy(FIELD / "labelled.sav", tmp_path / "pets.sav")
    code, text = command("run", "pets.sav", "--set", "run.cycles=20", "--set", "run.chains=1")
    assert code == 0 and "read as SPSS" in text, text
    assert (tmp_path / "runs" / "pets.h5").exists()
    for name, out in (("labelled.sav", "a.csv"), ("labelled.xlsx", "b.csv")):
        code, text = command("predict", "runs/pets", str(FIELD / name), "--complete", out)
        assert code == 0, text
        table = pa.csv.read_csv(tmp_path / out)
        assert table.num_rows == 300 and set(table.column("pet").to_pylist()) <= {"dog", "cat", "missing response"}
    code, text = command("query", "runs/pets", "logp", "--rows", str(FIELD / "pandas.jsonl"))
    assert code == 0, text
    (tmp_path / "x.rds").write_bytes(gzip.compress(b"X\n\x00\x00\x00\x03" + bytes(9)))
    code, text = command("run", "x.rds")
    assert code == 3 and text.count("\n") <= 2 and "is an R data file" in text, text


def test_a_stream_of_bytes_is_what_it_is(tmp_path):
    """A quick look at the head of a file leaves it as it is."""
    from mpibayes.io.packing import decompressed

    raw = io.BytesIO(b"sep=;\na;b\n1;2\n")
    assert decompressed(raw).read() == b"a;b\n1;2\n"
