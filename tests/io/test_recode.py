"""Other files in the coding of a table: by name or position, typed or text, with levels the table does not have."""

import datetime
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.ingest import import_table
from mpibayes.io.recode import Unseen, lacking_columns, lacking_message, read_like, stream_like, unseen_message
from mpibayes.io.table import Table, table_from_arrays, write_table

ROWS = [(f"{i % 4}", "xyz"[i % 3], f"{i * 0.5}", f"{i % 40}", "same") for i in range(300)]
KINDS = {"code": "categorical", "letter": "categorical", "size": "real", "visits": "count"}


def csv_text(rows, header=("code", "letter", "size", "visits", "constant")):
    return "\n".join(",".join(r) for r in ([header] if header else []) + list(rows)) + "\n"


def same(a, b):
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(vars(a).values(), vars(b).values()))


@pytest.fixture
def table(tmp_path):
    (tmp_path / "train.csv").write_text(csv_text(ROWS))
    return import_table(tmp_path / "train.csv", tmp_path / "train.h5", kinds=KINDS).table


@pytest.fixture
def headless(tmp_path):
    (tmp_path / "headless.csv").write_text(csv_text(ROWS, None))
    kinds = dict(zip(["column_1", "column_2", "column_3", "column_4"], KINDS.values(), strict=True))
    return import_table(tmp_path / "headless.csv", tmp_path / "headless.h5", kinds=kinds).table


def put(tmp_path, text, name="other.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def refused(like, path, **options):
    with pytest.raises(DataError) as error:
        read_like(like, path, **options)
    assert error.value.exit_code == 3 and path.name in str(error.value)
    with pytest.raises(DataError) as again:  # nothing is given out before the mistakes are known
        next(stream_like(like, path, **options))
    assert str(again.value) == str(error.value)
    return str(error.value)


def test_the_source_itself_comes_back(table, tmp_path):
    assert same(read_like(table, tmp_path / "train.csv"), table.read())
    assert same(read_like(table, tmp_path / "train.h5"), table.read())
    parts = list(stream_like(Table.open(table.path), tmp_path / "train.csv", batch_rows=70))
    assert [len(p) for p in parts] == [70, 70, 70, 70, 20]
    assert same(read_like(table.columns, tmp_path / "train.csv"), table.read())  # columns alone will do


def test_columns_are_found_by_name(table, tmp_path):
    rows = [(size, "more", letter, code, visits) for code, letter, size, visits, _ in ROWS]
    other = put(tmp_path, csv_text(rows, ("size", "extra", "letter", "code", "visits")).replace(",", ", "))
    assert same(read_like(table, other), table.read())
    code, letter, size, visits, _ = zip(*ROWS, strict=True)
    numbers = {"visits": [int(v) for v in visits], "size": [float(v) for v in size], "code": [int(v) for v in code]}
    frame = pa.table({"letter": letter} | numbers)
    pa.parquet.write_table(frame, tmp_path / "other.parquet")
    assert same(read_like(table, tmp_path / "other.parquet"), table.read())


def test_files_without_header_go_by_position(table, headless, tmp_path):
    assert same(read_like(table, put(tmp_path, csv_text(ROWS, None))), table.read())
    assert same(read_like(headless, put(tmp_path, csv_text(ROWS[:1], None))), headless.read(0, 1))
    message = refused(table, put(tmp_path, csv_text([r[:3] for r in ROWS], None)))
    assert "no header and 3 fields, the table's source had 5" in message


def test_a_headless_file_of_text_alone(tmp_path):
    (tmp_path / "train.csv").write_text("a,x\nb,y\na,y\nb,x\n" * 5)
    like = import_table(tmp_path / "train.csv", tmp_path / "t.h5").table
    assert like.source["header"] is False
    rows = read_like(like, put(tmp_path, "b,x\na,y\n"))  # looks like a header, but the table's source had none
    assert rows.codes8.tolist() == [[1, 0], [0, 1]]


def test_the_sources_delimiter_and_markers_apply(tmp_path):
    (tmp_path / "train.csv").write_text("a;b\nx;p\ny;q\n-9;p\n")
    like = import_table(tmp_path / "train.csv", tmp_path / "t.h5", missing=["-9"]).table
    rows = read_like(like, put(tmp_path, "a;b\n-9;p\ny;-9\n"))
    assert rows.codes8.tolist() == [[2, 0], [1, 2]]
    assert read_like(like, put(tmp_path, "a;b\nnone;p\n"), missing=["none"]).codes8.tolist() == [[2, 0]]
    assert read_like(like, put(tmp_path, "a,b\ny,2\n"), delimiter=",", unseen="missing").codes8.tolist() == [[1, 2]]


def test_unseen_levels(table, tmp_path):
    rows = [*ROWS[:50], ("9", "new", "1", "1", ""), ("0", "new", "1", "1", ""), ("8", "x", "?", "1", "")]
    other = put(tmp_path, csv_text(rows))
    message = refused(table, other)
    assert "4 cells" in message and "expected one of its 4 levels" in message
    assert "row 51 (line 52), column 'code': found '9'" in message
    assert "column 'letter': found 'new'" in message and "2 such cells" in message and "data.unseen" in message
    record = {}
    out = read_like(table, other, unseen="missing", record=record)
    assert record == {"letter": Unseen("new", 51, 2), "code": Unseen("9", 51, 2)}
    assert "'letter': 2 cells, first 'new' in row 51" in unseen_message(record, other)
    assert unseen_message({}, other) == ""
    assert out.codes8[50:].tolist() == [[4, 3], [0, 3], [4, 0]] and np.isnan(out.reals[52, 0])
    with pytest.raises(ConfigError, match="unseen"):
        read_like(table, other, unseen="eror")


def test_columns_that_may_lack(table, tmp_path):
    few = put(tmp_path, csv_text([r[:1] + r[3:] for r in ROWS], ("code", "visit", "constant")))
    assert lacking_columns(table, few, KINDS) == ["letter", "size", "visits"]
    rows = read_like(table, few, may_lack=KINDS)
    assert np.array_equal(rows.codes8[:, 0], table.read().codes8[:, 0]) and (rows.codes8[:, 1] == 3).all()
    assert np.isnan(rows.reals).all() and np.isnan(rows.tallies).all()
    reported = lacking_message(["letter", "size", "visits"], table, few)
    assert reported.endswith("has no column 'letter', 'size', 'visits' (did you mean 'visit'?); read as missing")
    assert lacking_message([], table, few) == ""
    columns, held = table_from_arrays([("size", "real", np.array([1.5, np.nan]), None)])
    typed = write_table(tmp_path / "few.h5", columns, held).path
    assert np.array_equal(read_like(table, typed, may_lack=KINDS).codes8, [[4, 3], [4, 3]])
    assert "no column 'size'" in refused(table, few, may_lack=["letter", "visits"])
    assert "lacks 4 of the table's 4 columns" in refused(table, put(tmp_path, "a,b\nx,y\n"), may_lack=KINDS)
    assert "no header and 3 fields" in refused(
        table, put(tmp_path, csv_text([r[:3] for r in ROWS], None)), may_lack=KINDS
    )


def test_a_typed_file_with_other_levels(table, tmp_path):
    columns, rows = table_from_arrays(
        [
            ("letter", "categorical", np.array([0, 1, 2, -1]), ["z", "new", "x"]),
            ("visits", "categorical", np.array([0, 1, 1, -1]), ["3", "12"]),
            ("size", "count", np.array([1.0, 2.0, np.nan, 4.0]), None),
            ("code", "count", np.array([1.0, 7.0, np.nan, 3.0]), None),
        ]
    )
    path = write_table(tmp_path / "other.h5", columns, rows).path
    message = refused(table, path)
    assert "other.h5 row 2, column 'letter': found 'new'" in message and "row 2, column 'code': found '7'" in message
    record = {}
    out = read_like(table, path, unseen="missing", record=record)
    assert out.codes8.tolist() == [[1, 2], [4, 3], [4, 0], [3, 3]] and set(record) == {"letter", "code"}
    assert out.tallies[:, 0].tolist()[:3] == [3, 12, 12] and np.isnan(out.tallies[3, 0])
    assert out.reals[:, 0].tolist()[:2] == [1, 2] and np.isnan(out.reals[2, 0])


def test_typed_files_of_other_kinds(table, tmp_path):
    one = np.array([1.5])
    columns, rows = table_from_arrays([(n, "real", one, None) for n in KINDS])
    path = write_table(tmp_path / "a.h5", columns, rows).path
    message = refused(table, path)
    assert "column 'code': real, expected categorical" in message and "--schema" in message
    names = [n for n in KINDS if n not in ("code", "letter")]
    reals = [(n, "real", one, None) for n in names]
    columns, rows = table_from_arrays([*reals, ("code", "boolean", np.array([1]), None)])
    path = write_table(tmp_path / "b.h5", columns, rows).path
    assert "no column 'letter'" in refused(table, path)
    columns, rows = table_from_arrays(
        [*reals, *((n, "categorical", np.array([0]), ["0", "x"]) for n in ("code", "letter"))]
    )
    message = refused(table, write_table(tmp_path / "c.h5", columns, rows).path)
    assert "column 'visits': found '1.5', expected a non-negative integer" in message


def test_wrong_columns(table, tmp_path):
    message = refused(table, put(tmp_path, csv_text(ROWS, ("code", "Letters", "size", "n", "constant"))))
    assert "2 of the table's 4 columns" in message and "no column 'letter' (did you mean 'Letters'?)" in message
    assert "no column 'visits'" in message


def test_text_among_numbers(table, tmp_path):
    rows = [*ROWS, ("0", "x", "tall", "-1", ""), ("0", "x", "1", "2.5", "")]
    message = refused(table, put(tmp_path, csv_text(rows)), unseen="missing")
    assert "row 301 (line 302), column 'size': found 'tall'" in message and "column 'visits': found '-1'" in message
    assert "row 302 (line 303), column 'visits': found '2.5'" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("code,letter,size,visits\n", "has no rows"),
        ("code,letter,size,visits\n1,x,2,3\n1,x\n", "row 2 (line 3): 2 fields, expected 4"),
    ],
)
def test_bad_files(table, tmp_path, text, message):
    assert message in refused(table, put(tmp_path, text))
    os.remove(tmp_path / "other.csv")
    assert "no such file" in refused(table, tmp_path / "other.csv")


def test_truncated_typed_file(table, tmp_path):
    (tmp_path / "cut.h5").write_bytes(table.path.read_bytes()[:3000])
    assert "truncated" in refused(table, tmp_path / "cut.h5")


def test_numbers_and_dates_of_parquet_are_no_texts_in_the_form_of_the_table(tmp_path):
    """The table's source writes 1.234,5 and 05.03.2024; `1234.5` as text would be another number in that form."""
    (tmp_path / "a.csv").write_text(
        "x;d\n" + "".join(f"{i}.{i:03d},{i % 10}5;{i % 28 + 1:02d}.03.2024\n" for i in range(1, 61))
    )
    import_table(tmp_path / "a.csv", tmp_path / "a.h5")
    rows = {"x": [1234.5, 5000.0, -1.5, None], "d": [datetime.date(2024, 3, 5)] * 3 + [None]}
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "b.parquet")
    result = read_like(Table.open(tmp_path / "a.h5"), tmp_path / "b.parquet").reals
    day = (datetime.date(2024, 3, 5) - datetime.date(1970, 1, 1)).days
    assert np.array_equal(result, [[1234.5, day], [5000.0, day], [-1.5, day], [np.nan] * 2], equal_nan=True)
