"""Import: dialects, inference, and schema."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpibayes.errors import ConfigError, DataError
from mpibayes.io import header, source
from mpibayes.io.ingest import import_table
from mpibayes.io.profile import Profile, text_hash
from mpibayes.io.summary import print_summary, summary_lines
from mpibayes.io.table import Table
from tests.io.importing import PEOPLE, cells, kind_of, put, refused, run

# ------------------------------------------------------------------------------------------------------ dialects


def test_cells_of_a_small_table(tmp_path):
    summary = run(tmp_path, PEOPLE)
    assert cells(summary.table, "city") == ["Rome", "Oslo", "Rome", None]
    assert cells(summary.table, "score") == [1.5, 2.5, None, 0.5]
    assert cells(summary.table, "age") == ["31", None, "44", "31"]
    assert summary.rows == 4 and summary.table.fingerprint == Table.open(tmp_path / "out.h5").fingerprint
    assert "4 rows" in summary_lines(summary)[0] and "header" in summary_lines(summary)[1]


@pytest.mark.parametrize(
    "content",
    [
        PEOPLE.replace(",", ";"),
        PEOPLE.replace(",", "\t"),
        PEOPLE.replace(",", "|"),
        PEOPLE.replace(",", " , "),
        PEOPLE.replace("\n", "\r\n"),
        "\ufeff" + PEOPLE,
        PEOPLE.rstrip("\n"),
        PEOPLE.replace("Rome", '"Rome"').replace("age", '"age"'),
        PEOPLE.replace("\nBob", "\n\nBob"),
        gzip.compress(PEOPLE.encode()),
        lzma.compress(PEOPLE.encode()),
        bz2.compress(PEOPLE.encode()),
        pa.compress(PEOPLE.encode(), "zstd", asbytes=True),
        gzip.compress(PEOPLE[:40].encode()) + gzip.compress(PEOPLE[40:].encode()),
    ],
    ids=[
        "semicolon",
        "tab",
        "bar",
        "blanks",
        "crlf",
        "bom",
        "no-eol",
        "quotes",
        "empty-line",
        "gz",
        "xz",
        "bz2",
        "zst",
        "gz-gz",
    ],
)
def test_dialects_give_the_same_table(tmp_path, content):
    plain = import_table(put(tmp_path, PEOPLE, "plain.csv"), tmp_path / "plain.h5")
    assert run(tmp_path, content).table.fingerprint == plain.table.fingerprint


def test_quoted_delimiters_newlines_and_quotes(tmp_path):
    text = 'a,b\n"x, y","line 1\nline 2"\n"say ""no""",z\n"x, y",z\n'
    table = run(tmp_path, text).table
    assert cells(table, "a") == ["x, y", 'say "no"', "x, y"] and cells(table, "b") == ["line 1\nline 2", "z", "z"]


def test_quotes_after_blanks(tmp_path):
    table = run(tmp_path, 'a, b\n1.5, "x, y"\n2.5, z\n3.5, "x, y"\n').table
    assert cells(table, "b") == ["x, y", "z", "x, y"] and cells(table, "a") == [1.5, 2.5, 3.5]
    message = refused(tmp_path, 'a, b\n1.5, "x, y"\n2.5\n3.5, "x, y"\n', overwrite=True)
    assert "row 2 (line 3): 1 field, expected 2" in message


def test_headers_are_detected(tmp_path):
    def names(text):
        return [c.name for c in run(tmp_path, text, overwrite=True).columns]

    assert names("x,y\n1,2\n3,4\n") == ["x", "y"]
    assert names("1,2\n3,4\n") == ["column_1", "column_2"]
    assert names("a,b\nb,a\na,b\n") == ["column_1", "column_2"]
    assert names("colour,size\nred,big\nblue,small\nred,small\n") == ["colour", "size"]
    assert names('"",x\nr1,1.5\nr2,2.5\n') == ["column_1", "x"]
    assert [c.name for c in run(tmp_path, "a,b\nb,a\nb,b\n", header=True, overwrite=True).columns] == ["a", "b"]


def test_names_may_be_given(tmp_path):
    put(tmp_path, "first\nsecond\n", "names")
    assert [c.name for c in run(tmp_path, "1,2\n3,4\n", names=tmp_path / "names").columns] == ["first", "second"]
    assert "2 columns, but 1 name given" in refused(tmp_path, "1,2\n", names=["x"], overwrite=True)


def test_one_column_keeps_its_empty_lines(tmp_path):
    assert cells(run(tmp_path, "x\n1.5\n\n2.5\n").table, "x") == [1.5, None, 2.5]


def test_several_files_are_one_table(tmp_path):
    a, b = put(tmp_path, "x,y\n1.5,a\n2.5,b\n", "a.csv"), put(tmp_path, "x,y\n3.5,c\n", "b.csv.gz")
    c = put(tmp_path, "4.5,d\n", "c.csv")
    table = import_table([a, b, c], tmp_path / "t.h5").table
    assert cells(table, "x") == [1.5, 2.5, 3.5, 4.5] and cells(table, "y") == list("abcd")
    with pytest.raises(DataError, match=r"d\.csv: its columns differ(.|\n)*missing: y"):
        import_table([a, put(tmp_path, "x,z\n1.5,2\n", "d.csv")], tmp_path / "u.h5")


def test_parquet(tmp_path):
    frame = pa.table(
        {
            "f": [1.5, None, float("nan"), 2.0],
            "i": pa.array([1, 2, None, 1], pa.int64()),
            "b": [True, False, None, True],
            "s": [" x", "y", None, "x"],
            "d": pa.array(["u", "v", "u", None]).dictionary_encode(),
        }
    )
    pa.parquet.write_table(frame, tmp_path / "t.parquet")
    summary = import_table(tmp_path / "t.parquet", tmp_path / "t.h5")
    table = summary.table
    assert cells(table, "f") == [1.5, None, None, 2.0] and cells(table, "i") == ["1", "2", None, "1"]
    assert cells(table, "b") == ["true", "false", None, "true"] and kind_of(summary, "b") == "boolean"
    assert cells(table, "s") == ["x", "y", None, "x"] and cells(table, "d") == ["u", "v", "u", None]


def test_latin_1(tmp_path):
    text = "city,x\nMünchen,1.5\nKöln,2.5\n".encode("latin-1")
    assert "say --encoding cp1252, in which it reads 'München'" in refused(tmp_path, text)
    assert cells(run(tmp_path, text, encoding="latin-1").table, "city") == ["München", "Köln"]


# ----------------------------------------------------------------------------------------------------- inference

_rng = np.random.default_rng(7)
N = 400


@pytest.mark.parametrize(
    ("values", "name", "kind"),
    [
        (_rng.integers(0, 2, N), "x", "boolean"),
        (_rng.choice(["Yes", "no"], N), "x", "boolean"),
        (_rng.choice(["F", "T"], N), "x", "boolean"),
        (_rng.choice(["male", "female"], N), "x", "categorical"),
        (_rng.integers(1, 3, N), "x", "categorical"),
        (_rng.integers(0, 20, N), "x", "categorical"),
        (_rng.integers(0, 60, N), "x", "real"),
        (_rng.integers(0, 60, N), "industry_code", "categorical"),
        (_rng.poisson(12, N) + _rng.poisson(3 * _rng.gamma(1, 1, N)), "x", "count"),
        (_rng.poisson(12, N) + _rng.poisson(_rng.gamma(1, 9, N)), "x", "real"),
        (_rng.integers(0, 60, N), "hospital_id", "categorical"),
        (np.arange(1200).repeat(2) * 37, "patient_nbr", "ignored"),
        (np.floor(_rng.lognormal(2, 3, N)).astype(int), "x", "real"),
        (_rng.integers(-50, 50, N), "x", "real"),
        (_rng.integers(0, 10**7, N), "income", "real"),
        (np.char.add("00", _rng.integers(1, 9, N).astype(str)), "x", "categorical"),
        (_rng.normal(0, 1, N).round(3), "x", "real"),
        ([f"{v:.1e}" for v in _rng.normal(0, 1, N)], "x", "real"),
        ([f"{v}.0" for v in _rng.integers(0, 9, N)], "x", "categorical"),
        (np.arange(1000, 1000 + N), "x", "ignored"),
        (1000 + _rng.permutation(N), "x", "real"),
        (1000 + _rng.permutation(N), "patient id", "ignored"),
        (1000 + _rng.permutation(N), "PID", "ignored"),
        (1000 + _rng.permutation(N), "RespondentID", "ignored"),
        (1000 + _rng.permutation(N), "PAID", "real"),
        (10_000_000 + _rng.permutation(10**6)[:N], "x", "real"),
        ([f"N{i // 2}A{i % 2 + 1}" for i in _rng.permutation(N) // 2], "Individual ID", "ignored"),
        ([f"N{i // 2}A{i % 2 + 1}" for i in _rng.permutation(N) // 2], "cabin", "categorical"),
        ([f"N{i}" for i in _rng.permutation(N) // 5], "station ID", "categorical"),
        (37 * (_rng.permutation(N) // 2), "subject_id", "ignored"),
        (37 * (_rng.permutation(N) // 2), "length", "real"),
        (37 * (_rng.permutation(N) // 2), "book_isbn", "ignored"),
        (39 + np.sort(_rng.permutation(10**5)[:N]), "idno", "ignored"),
        ([f"course {i}" for i in np.minimum(_rng.permutation(N), 370)], "x", "ignored"),
        ([f"course {i}" for i in np.minimum(_rng.permutation(N), 200)], "x", "ignored"),  # 201 levels of 400 cells
        ([f"course {i}" for i in np.minimum(_rng.permutation(N), 199)], "x", "categorical"),
        (37 * (_rng.permutation(N) // 5), "station_id", "categorical"),
        ([f"u{i}" for i in range(N)], "x", "ignored"),
        (["same"] * N, "x", "ignored"),
        (["same", "?"] * (N // 2), "x", "ignored"),
        (["NA", "", "?", "nan"] * (N // 4), "x", "ignored"),
    ],
)
def test_kinds(tmp_path, values, name, kind):
    text = f"{name},other\n" + "".join(f"{v},{i % 3}\n" for i, v in enumerate(values))
    summary = run(tmp_path, text)
    assert kind_of(summary, name) == kind, summary_lines(summary)
    if kind == "ignored":
        assert summary.columns[0].reason and name not in [c.name for c in summary.table.columns]


def test_level_order(tmp_path):
    text = "n,t,b\n10,b,yes\n9,B,No\n100,a,yes\n9,é,No\n"
    columns = {c.name: c.levels for c in run(tmp_path, text).table.columns}
    assert columns == {"n": ("9", "10", "100"), "t": ("B", "a", "b", "é"), "b": ("No", "yes")}


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(30)))
def test_kinds_and_levels_do_not_depend_on_the_order_of_rows(tmp_path_factory, order):
    tmp_path = tmp_path_factory.mktemp("rows")
    lines = [f"{i % 7},{i * 1.5 if i % 5 else '?'},t{i % 4},{i * i}" for i in range(30)]
    plain = import_table(put(tmp_path, "a,b,c,d\n" + "\n".join(lines), "a.csv"), tmp_path / "a.h5")
    mixed = import_table(put(tmp_path, "a,b,c,d\n" + "\n".join(lines[i] for i in order), "b.csv"), tmp_path / "b.h5")
    for a, b in zip(plain.columns, mixed.columns, strict=True):
        assert (a.kind, a.levels, a.n_missing) == (b.kind, b.levels, b.n_missing)


_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(_text, _text, st.one_of(st.none(), st.floats(-1e100, 1e100))), min_size=1, max_size=30))
def test_any_csv_comes_back(tmp_path_factory, rows):
    """Whatever Python's csv module writes: cells come back stripped, markers as missing, numbers bit for bit."""
    import csv

    tmp_path = tmp_path_factory.mktemp("csv")
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([("one", "two", "x"), *((a, b, "" if x is None else repr(x)) for a, b, x in rows)])
    table = import_table(
        put(tmp_path, text.getvalue()),
        tmp_path / "t.h5",
        header=True,
        delimiter=",",
        kinds={"one": "categorical", "two": "categorical", "x": "real"} if all_present(rows) else {"x": "real"},
        keep=() if all_present(rows) else ("one", "two"),
    ).table
    for j, name in enumerate(("one", "two")):
        if any(c.name == name and c.levels for c in table.columns):
            expected = [None if strip(r[j]) in header.MISSING else strip(r[j]) for r in rows]
            assert [c if c is None else strip(c) for c in cells(table, name)] == expected
    assert cells(table, "x") == [r[2] for r in rows]


def strip(text):

    return pa.compute.utf8_trim_whitespace(pa.scalar(text)).as_py()


def all_present(rows):
    return all(any(strip(r[j]) not in header.MISSING for r in rows) for j in (0, 1))


def test_keep_drop_kinds_and_missing(tmp_path):
    text = "id,const,empty,x,y\n" + "".join(f"{i + 1},c,,{i % 5},{i * 0.5 if i else -9}\n" for i in range(200))
    summary = run(tmp_path, text, keep=["const", "id"], drop=["y"], kinds={"x": "real"}, overwrite=True)
    assert [c.kind for c in summary.columns] == ["real", "categorical", "ignored", "real", "ignored"]
    commas = run(tmp_path, text, keep=["const,id"], drop=["y, empty"], kinds={"x": "real"}, overwrite=True)
    assert [c.kind for c in commas.columns] == [c.kind for c in summary.columns]
    summary = run(tmp_path, text, missing=["-9"], overwrite=True)
    assert [c.kind for c in summary.columns] == ["ignored", "ignored", "ignored", "categorical", "real"]
    assert summary.columns[4].n_missing == 1
    assert "identifier" in summary.columns[0].reason and "constant" in summary.columns[1].reason
    message = refused(tmp_path, text, ConfigError, kinds={"x": "reel"}, drop=["yy"], keep=["Const"], overwrite=True)
    assert "did you mean 'real'" in message and "did you mean 'y'" in message and "did you mean 'const'" in message


def test_seventy_thousand_levels(tmp_path):
    rows = [f"v{i % 70_000},{i % 3}\n" for i in range(100_000)]
    summary = run(tmp_path, "name,x\n" + "".join(rows))
    assert [c.name for c in summary.table.columns] == ["x"] and "too many levels" in summary.columns[0].reason
    assert "column 'name': left out: text of 70,000 levels" in summary.warnings[0] and "65,535" in summary.warnings[0]
    message = refused(tmp_path, "name,x\n" + "".join(rows), kinds={"name": "categorical"}, overwrite=True)
    assert "column 'name': 70,000 levels, more than the 65,535" in message and "--drop name" in message
    summary = run(tmp_path, "name,x\n" + "".join(rows[:70_000]), overwrite=True)
    assert summary.columns[0].kind == "ignored" and "70,000" in summary.columns[0].reason


def test_very_many_texts_are_estimated():
    from mpibayes.io.encode import Offences

    profile = Profile("x", None, None, header.MISSING)
    for start in range(0, 600_000, 50_000):
        texts = pa.array([f"u{i}" for i in range(start, start + 50_000)] * 2).dictionary_encode()
        profile.add(source.Batch(None, 1, len(texts), {0: source.Cells.of(texts)}), 0, Offences())
    assert profile.n_observed == 1_200_000 and abs(profile.n_distinct / 600_000 - 1) < 0.04  # five standard errors
    assert len(np.unique(text_hash(pa.array([str(i) for i in range(200_000)])))) == 200_000
    sliced = pa.array(["zz", "a", "", "bc"])[1:]
    assert text_hash(sliced).tolist() == text_hash(pa.array(["a", "", "bc"])).tolist()


def test_a_stray_text_among_numbers_is_pointed_out(tmp_path):
    rows = [f"{i * 0.37:.2f},{i % 2}\n" for i in range(500)]
    summary = run(tmp_path, "x,y\n" + "".join(rows) + "unknown,1\n")
    assert kind_of(summary, "x") == "ignored" or "'unknown'" in summary.warnings[0]
    summary = run(tmp_path, "x,y\n" + "".join(rows) * 3 + "unknown,1\n", overwrite=True)
    assert "'unknown'" in summary.warnings[0] and "--missing" in summary.warnings[0]


# -------------------------------------------------------------------------------------------------------- schema


def test_a_schema_is_written_edited_and_given_back(tmp_path):
    text = "a,b c,d,e\n" + "".join(f"{i % 4},{'xyz'[i % 3]},{i},{i * 0.5}\n" for i in range(200))
    first = run(tmp_path, text, write_schema=tmp_path / "s.toml")
    again = import_table(tmp_path / "data.csv", tmp_path / "again.h5", schema=tmp_path / "s.toml")
    assert again.table.fingerprint == first.table.fingerprint
    schema = (tmp_path / "s.toml").read_text()
    assert '[columns."b c"]' in schema and "# identifier" in schema
    schema = schema.replace('["x", "y", "z"]', '["z", "y", "x", "never"]').replace('"ignored"', '"real"')
    (tmp_path / "s.toml").write_text(schema)
    edited = import_table(tmp_path / "data.csv", tmp_path / "edited.h5", schema=tmp_path / "s.toml")
    assert edited.table.columns[1].levels == ("z", "y", "x", "never")
    assert cells(edited.table, "b c")[:3] == ["x", "y", "z"]
    assert kind_of(edited, "d") == "real"


def test_awkward_names_and_levels_survive_the_schema(tmp_path):
    text = 'a.b,"say ""x""",ü,\\\n' + 'p,"q ""1""",r\\,0.5\nx#,y=,"a\nb",1.5\np,y=,r\\,2.5\n'
    first = run(tmp_path, text, header=True, delimiter=",", write_schema=tmp_path / "s.toml")
    again = import_table(tmp_path / "data.csv", tmp_path / "b.h5", schema=tmp_path / "s.toml")
    assert again.table.fingerprint == first.table.fingerprint


def test_markers_of_one_column(tmp_path):
    (tmp_path / "s.toml").write_text(
        '[columns.a]\nkind = "categorical"\nmissing = ["none"]\n[columns.b]\nkind = "count"\n'
    )
    table = run(tmp_path, "a,b\nNA,1\nnone,NA\nx,40\n", schema=tmp_path / "s.toml").table
    assert cells(table, "a") == ["NA", None, "x"] and cells(table, "b") == [1, None, 40]


def test_all_mistakes_of_a_schema_at_once(tmp_path):
    (tmp_path / "s.toml").write_text(
        'mising = ["x"]\nheader = "yes"\n[columns.a]\nkind = "categoricl"\n'
        '[columns.b]\nkind = "real"\nlevels = ["x"]\n'
        '[columns.c]\nkind = "boolean"\nlevels = ["x", "x", "y"]\nlevel = 3\n'
        '[columns.d]\nkind = "categorical"\nlevels = [1.5]\n'
    )
    message = refused(tmp_path, "a,b,c,d\n1,2,3,4\n", ConfigError, schema=tmp_path / "s.toml")
    for part in (
        "mising: unknown key (did you mean 'missing'?)",
        "header: expected true or false",
        "did you mean 'categorical'",
        "columns.b.levels",
        "3 levels, expected 2",
        "'x' is listed twice",
        "columns.c.level: unknown key",
        "found 1.5",
    ):
        assert part in message
    (tmp_path / "s.toml").write_text(
        '[columns.aage]\nkind = "real"\n[columns.b]\nkind = "categorical"\nlevels = ["NA", "x"]\n'
    )
    message = refused(tmp_path, "age,b\n1,2\n", ConfigError, schema=tmp_path / "s.toml")
    assert "no column 'aage'" in message and "did you mean 'age'" in message
    assert "'NA' is also a missing marker" in message
    (tmp_path / "s.toml").write_text("a = [\n")
    assert "TOML" in refused(tmp_path, "a,b\n1,2\n", ConfigError, schema=tmp_path / "s.toml")
    assert "no such schema" in refused(tmp_path, "a,b\n1,2\n", ConfigError, schema=tmp_path / "none.toml")


def test_given_kinds_are_enforced_and_all_problems_come_at_once(tmp_path):
    text = "r,c,k,b\n" + "1.5,3,x,0\n" * 5 + "abc,-1,y,1\n1.5,2.5,new,1\n1e,x,x,2\n"
    (tmp_path / "s.toml").write_text(
        '[columns.r]\nkind = "real"\n[columns.c]\nkind = "count"\n'
        '[columns.k]\nkind = "categorical"\nlevels = ["x", "y"]\n'
        '[columns.b]\nkind = "boolean"\nlevels = ["0", "1"]\n'
    )
    message = refused(tmp_path, text, schema=tmp_path / "s.toml")
    assert "7 cells cannot be read" in message and message.count("\n") == 7
    assert "data.csv row 6 (line 7), column 'r': found 'abc', expected a finite number" in message
    assert "row 6 (line 7), column 'c': found '-1', expected a non-negative integer" in message
    assert "row 7 (line 8), column 'c': found '2.5'" in message
    assert "row 7 (line 8), column 'k': found 'new', expected one of its 2 levels ('x', 'y')" in message
    assert "row 8 (line 9), column 'r': found '1e'" in message and "column 'b': found '2'" in message


def test_boolean_without_two_levels(tmp_path):
    message = refused(tmp_path, "a,b\n0,1.5\n1,2.5\n2,3.5\n", kinds={"a": "boolean"})
    assert "column 'a': given as boolean, which has two levels; found 3: '0', '1', '2'" in message
    message = refused(tmp_path, "a,b\n,1.5\n,2.5\n", kinds={"a": "categorical"})
    assert "all its cells are missing" in message


def test_text_in_a_real_column_at_row_one_million(tmp_path):
    lines = "1.5,x\n2.5,y\n" * 499_999 + "1.5,x\nabc,y\n"
    message = refused(tmp_path, "r,k\n" + lines, kinds={"r": "real"})
    assert "one cell cannot be read" in message
    assert "data.csv row 1,000,000 (line 1,000,001), column 'r': found 'abc', expected a finite number" in message


def test_progress_and_printing(tmp_path):
    from rich.console import Console

    seen = []
    summary = run(tmp_path, PEOPLE.replace("city", "[city]"), progress=lambda *a: seen.append(a))
    assert seen[0][0] == "reading" and seen[-1][0] == "writing" and seen[-1][1:] == (4, 1.0)
    console = Console(file=io.StringIO(), width=120)
    print_summary(summary, console)
    printed = console.file.getvalue()
    assert "[city]" in printed and "2 levels: Oslo, Rome" in printed and "25 %" in printed


# -------------------------------------------------------------------------------------------------- whole tables


@pytest.mark.data
@pytest.mark.thorough
def test_census_income_whole(tmp_path, data_folder):
    from mpibayes.io.recode import stream_like

    summary = import_table(f"{data_folder}/census_income_kdd/census-income.data.90pct.xz", tmp_path / "t.h5")
    assert summary.rows == 179_571 and len(summary.columns) == 42
    kinds = {c.name: c.kind for c in summary.columns}
    reals = {1, 3, 6, 17, 18, 19, 25, 40}
    assert all(kinds[f"column_{i}"] == "real" for i in reals)
    assert sum(kind == "categorical" for kind in kinds.values()) == 33
    test = f"{data_folder}/census_income_kdd/census-income.test.90pct.xz"
    assert sum(len(rows) for rows in stream_like(summary.table, test, unseen="missing")) == 89_786


@pytest.mark.data
@pytest.mark.thorough
def test_kddcup_whole_in_bounded_memory(tmp_path, data_folder):
    if not os.path.exists("/proc/self/status"):
        pytest.skip("the peak is read from /proc: ru_maxrss of a child starts at its parent's")
    code = """
        import sys
        from mpibayes.io.ingest import import_table
        summary = import_table(sys.argv[1], sys.argv[2])
        peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
        print(summary.rows, len(summary.table.columns), int(peak.split()[1]) >> 10)
    """
    path = f"{data_folder}/kddcup99/kddcup.data_10_percent.90pct.xz"
    command = [sys.executable, "-c", textwrap.dedent(code), path, str(tmp_path / "t.h5")]
    rows, columns, peak = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert (rows, columns) == (444_619, 40) and peak <= 512


def test_a_look_writes_nothing(tmp_path, capsys, monkeypatch):
    """--dry-run says what the import says, needs no TABLE, and leaves a table of that name as it is."""
    from mpibayes.hpc.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("id,colour\n" + "".join(f"{i},{'red' if i % 3 else 'blue'}\n" for i in range(60)))
    (tmp_path / "a.h5").write_text("mine")
    words = ["a.csv", "--keep", "id"]
    for arguments in (words, ["a.csv", "a.h5", "--keep", "id"]):
        assert main(["import", *arguments, "--dry-run"]) == 0
        text, _ = capsys.readouterr()
        assert text.startswith("a.csv: 60 rows, 2 of 2 columns") and "colour" in text
        assert text.splitlines()[0].endswith("; no table was written")
    assert (tmp_path / "a.h5").read_text() == "mine" and len(list(tmp_path.iterdir())) == 2
    assert main(["import", "a.csv", "b.h5", "--keep", "id"]) == 0
    assert capsys.readouterr()[0].splitlines()[1:] == text.splitlines()[1:]  # but for the first line, which names it
    (tmp_path / "b.csv").write_text("id,constant\n" + "".join(f"{i},x\n" for i in range(60)))
    for kept in (["--keep", "id,constant"], ["--keep", "id", "--keep", "constant"]):  # as for --ordered
        assert main(["import", "b.csv", *kept, "--dry-run"]) == 0
        assert capsys.readouterr()[0].startswith("b.csv: 60 rows, 2 of 2 columns")
    assert main(["import", "a.csv"]) == 2
    assert "look at it with --dry-run" in capsys.readouterr()[1]
    assert main(["import", "--sparse", "a.csv", "--dry-run"]) == 2
    assert "--dry-run: no use with --sparse" in capsys.readouterr()[1]
