"""Awkward files as people have them: what becomes of each, and that nothing is misread without a word."""

import datetime
import decimal
import re

import numpy as np
import pyarrow as pa
import pytest

from mpibayes.errors import DataError
from mpibayes.io.recode import read_like
from tests.io.importing import imported_columns
from tests.io.test_losses import csv, parquet

N = 120
G = np.random.Generator(np.random.Philox(5))
X = np.round(G.normal(50, 10, N), 1)
Y = G.integers(18, 90, N)
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(int(k)) for k in G.permutation(1500)[:N]]


def text_of(summary):
    return " ".join(summary.warnings)


def numbers_of(summary, name):
    column = next(c for c in summary.table.columns if c.name == name)
    return summary.table.read().reals[:, column.index]


# ----------------------------------------------------------------------------------------------------- whole files


@pytest.mark.parametrize(
    "text, encoding",
    [
        ("\ufeffgröße;x\n{}", "utf-8"),
        ("größe;x\r\n{}", "utf-16"),
        ("größe;x\n{}", "utf-16-le"),
        ("sep=;\ngröße;x\n{}", "utf-8"),
        ("\ufeffsep=;\r\ngröße;x\r\n{}", "utf-8"),
        ("größe;x\r{}", "utf-8"),
    ],
    ids=["bom", "utf-16", "utf-16 marked", "sep=", "bom sep=", "old mac"],
)
def test_marks_at_the_head_of_a_file(tmp_path, text, encoding):
    end = "\r" if "\r" in text else "\n"
    content = text.format("".join(f"{str(x).replace('.', ',')};{y}{end}" for x, y in zip(X, Y)))
    data = ("\ufeff" if encoding == "utf-16-le" else "").encode(encoding) + content.encode(encoding)
    summary, columns = imported_columns(tmp_path, data)
    assert [(c.name, c.kind) for c in columns.values()] == [("größe", "real"), ("x", "real")]
    np.testing.assert_array_equal(numbers_of(summary, "größe"), X)


def test_a_later_file_may_have_another_unicode(tmp_path):
    text = "größe;g\n" + "".join(f"{x};{'ab'[y % 2]}\n" for x, y in zip(X, Y))
    for encoding, later in (("utf-16", "utf-8"), ("utf-8", "utf-16")):
        table = imported_columns(tmp_path, text.encode(encoding))[0].table
        (tmp_path / "new.csv").write_bytes(text.encode(later))
        np.testing.assert_array_equal(read_like(table, tmp_path / "new.csv").reals[:, 0], X)


def test_lines_are_counted_with_the_line_that_names_the_separator(tmp_path):
    with pytest.raises(DataError, match=r"row 2 \(line 4\): 3 fields, expected 2"):
        imported_columns(tmp_path, "sep=;\na;b\n1;2\n3;4;5\n" + "6;7\n" * 9)


@pytest.mark.parametrize(
    "head, row, delimiter, advice",
    [
        ("g,x\n", "a,{},\n", ",", "if every row but the first one ends with a delimiter, add one to the first, too"),
        ("Report\nby hand\ng,x\n", "a,{}\n", ",", "if the file begins with a title, remove it"),
        ("g    x\n", "a  {:6}\n", " ", "if its columns are lined up by several blanks, make them one: tr -s ' '"),
    ],
)
def test_rows_that_do_not_fit_come_with_advice(tmp_path, head, row, delimiter, advice):
    with pytest.raises(DataError, match=f"fields than the first one .*read with delimiter '{delimiter}'; {advice}"):
        imported_columns(tmp_path, head + "".join(row.format(x) for x in [*X[:20], *(100.5 + X[:20])]))


def test_blank_names_are_of_a_header(tmp_path):
    columns = imported_columns(tmp_path, "g,,x,,empty\n" + "".join(f"a{y % 3},,{x},,\n" for x, y in zip(X, Y)))[1]
    kinds = {name: c.kind for name, c in columns.items()}
    expected = {"g": "categorical", "column_2": "ignored", "x": "real", "column_4": "ignored", "empty": "ignored"}
    assert kinds == expected
    _, columns = imported_columns(
        tmp_path, "a,,x\n" + "".join(f"{'ab'[y % 2]},{x},{'xy'[y % 2]}\n" for x, y in zip(X, Y))
    )
    assert "column_2" in columns and columns["column_2"].kind == "real"
    assert "column_1" in imported_columns(tmp_path, "b,,,y\na,1,u,y\nb,2,v,y\na,3,u,z\n")[1]  # blanks of data


def test_years_may_be_names(tmp_path):
    lines = "".join(f"country{i},{x},{y}\n" for i, (x, y) in enumerate(zip(X, Y)))
    assert list(imported_columns(tmp_path, "country,2019,2020\n" + lines)[1]) == ["country", "2019", "2020"]
    data = "".join(f"{2019 + i % 4},{2020 + i % 3},{x}\n" for i, x in enumerate(X))
    assert list(imported_columns(tmp_path, data)[1]) == ["column_1", "column_2", "column_3"]
    data = "".join(f"{'ab'[i % 2]},{2019 + i % 4},{2020 + i % 3}\n" for i in range(N))
    assert list(imported_columns(tmp_path, data)[1]) == ["column_1", "column_2", "column_3"]


# --------------------------------------------------------------------------------------------------------- missing


def test_words_among_numbers_are_missing_and_named(tmp_path):
    x = X.astype(str).astype(object)
    x[[1, 5, 9]], x[[2, 3]], x[4] = "n/a", "-", "#DIV/0!"
    summary, columns = imported_columns(tmp_path, csv(x=x, y=np.where(Y % 2, "none", "some")))
    assert columns["x"].kind == "real" and columns["x"].n_missing == 6
    assert "column 'x': 'n/a' (3), '-' (2), '#DIV/0!' (1) among numbers: taken as missing" in summary.warnings
    assert columns["y"].levels == ("none", "some")  # an answer, as it is no gap among numbers
    (tmp_path / "new.csv").write_text("x,y\nn/a,some\n3.5,none\n")
    assert np.isnan(read_like(summary.table, tmp_path / "new.csv").reals[:, 0]).tolist() == [True, False]


def test_words_among_decimal_commas_and_dates(tmp_path):
    lines = [
        f"{str(x).replace('.', ',') if i % 9 else '--'};{d if i % 8 else 'None'}"
        for i, (x, d) in enumerate(zip(X, DAYS))
    ]
    columns = imported_columns(tmp_path, "x;when\n" + "\n".join(lines) + "\n")[1]
    assert (columns["x"].kind, columns["x"].n_missing) == ("real", 14)
    assert (columns["when"].kind, columns["when"].n_missing) == ("real", 15)


def test_words_among_very_many_numbers(tmp_path):
    x = [f"{v:.9f}" for v in G.standard_normal(150_000)]
    x[140_000] = "NULL"
    assert imported_columns(tmp_path, csv(x=x, y=np.arange(150_000) % 3))[1]["x"].n_missing == 1


def test_more_words_than_numbers_are_text(tmp_path):
    x = np.where(np.arange(N) % 3 == 0, Y % 4, "none")
    assert imported_columns(tmp_path, csv(x=x, y=X))[1]["x"].kind == "categorical"


# --------------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("of", ["({})", "$({})", "({} EUR)"], ids=["brackets", "currency outside", "currency inside"])
def test_negative_numbers_in_brackets(tmp_path, of):
    lines = [(of if v < 0 else re.sub("[()]", "", of)).format(round(abs(v), 1)) for v in X - 50]
    summary, columns = imported_columns(tmp_path, "x;y\n" + "".join(f"{v};{y}\n" for v, y in zip(lines, Y)))
    assert "brackets for minus" in columns["x"].reason
    np.testing.assert_allclose(numbers_of(summary, "x"), X - 50)


def test_the_minus_sign_of_typesetters(tmp_path):
    summary, columns = imported_columns(tmp_path, csv(x=[str(round(v, 1)).replace("-", "\u2212") for v in X - 50], y=Y))
    assert columns["x"].kind == "real" and not summary.warnings
    np.testing.assert_allclose(numbers_of(summary, "x"), X - 50)


@pytest.mark.parametrize(
    "cells",
    [
        [f'"{str(x).replace(".", ",")}"' if i % 2 else x for i, x in enumerate(X)],
        [f"{x} kg" for x in X],
        [f"{y}cm" for y in Y],
        [f"{'$€'[i % 2]}{x}" for i, x in enumerate(X)],
        ["<45" if x < 45 else ">60" if x > 60 else x for x in X],
        [f"{y}/100" for y in Y],
        [f'"{y},{int(x):02d},{i:03d}"' for i, (x, y) in enumerate(zip(X, Y))],
    ],
    ids=["comma and point", "kg", "cm", "two currencies", "censored", "fractions", "lakh"],
)
def test_what_looks_like_numbers_and_is_not_read_is_told(tmp_path, cells):
    summary, columns = imported_columns(tmp_path, csv(x=cells, y=Y))
    assert columns["x"].kind in ("categorical", "ignored")
    assert text_of(summary).count("column 'x': its cells look like numbers, but are not all written in one way") == 1


def test_dates_in_several_forms_are_told(tmp_path):
    forms = ("%Y-%m-%d", "%d.%m.%Y", "%d %b %Y")
    summary, columns = imported_columns(tmp_path, csv(x=[d.strftime(forms[i % 3]) for i, d in enumerate(DAYS)], y=Y))
    assert columns["x"].kind == "ignored" and "its cells look like dates" in text_of(summary)


def test_codes_and_addresses_are_not_told_to_be_numbers(tmp_path):
    codes = [f"{'VE'[i % 2]}{y}" if i % 5 == 0 else f"{y}.{i % 10}" for i, y in enumerate(Y)]
    streets = [f"{y} Baker Street" for y in Y]
    assert "look like" not in text_of(imported_columns(tmp_path, csv(diagnosis=codes, street=streets, x=X))[0])


def test_one_number_is_one_level_however_it_is_written(tmp_path):
    """Columns as after joining files of integers and of numbers with missing ones, which become 1.0."""
    x = [f"{y % 3}" if i < 60 else f"{y % 3}.0" for i, y in enumerate(Y)]
    summary, columns = imported_columns(
        tmp_path, csv(x=x, code=[f"0{v}" for v in x], b=[f"{v % 2:g}{'.0' * (v % 3)}"[:3] for v in Y])
    )
    assert columns["x"].levels == ("0", "1", "2") and columns["b"].levels == ("0", "1")
    assert len(columns["code"].levels) == 6  # 01 is a code and not 1
    np.testing.assert_array_equal(summary.table.read().codes8[:, 0], Y % 3)
    (tmp_path / "new.csv").write_text("x,code,b\n2.0,01,1.00\n02,01.0,0\n1e0,01,1\n")
    rows = read_like(summary.table, tmp_path / "new.csv", unseen="missing")
    assert rows.codes8[:, 0].tolist() == [2, 3, 1] and rows.codes8[:, 2].tolist() == [1, 0, 1]


def test_integers_beside_missing_cells_have_plain_levels(tmp_path):
    """pandas writes them as 1.0; a fraction among them, or a code such as 01.0, leaves the texts as they are."""
    lacks = ["" if i % 9 == 0 else f"{y % 3}.0" for i, y in enumerate(Y)]
    coin = ["" if i % 9 == 0 else f"{y % 2}.0" for i, y in enumerate(Y)]
    half = [f"{y % 3}.0" if y % 3 else "0.5" for y in Y]
    columns = {"lacks": lacks, "coin": coin, "half": half, "code": [f"0{i % 3}.0" for i in range(N)], "x": X}
    summary, columns = imported_columns(tmp_path, csv(**columns))
    assert columns["lacks"].levels == ("0", "1", "2") and columns["lacks"].n_missing == lacks.count("")
    assert columns["coin"].kind == "boolean" and columns["coin"].levels == ("0", "1")
    assert columns["half"].levels == ("0.5", "1.0", "2.0") and columns["code"].levels == ("00.0", "01.0", "02.0")
    (tmp_path / "new.csv").write_text("lacks,coin,half,code,x\n2.0,1.0,1.0,01.0,1\n2,1,1,02.0,1\n")
    rows = read_like(summary.table, tmp_path / "new.csv", unseen="error")
    assert rows.codes8[:, 0].tolist() == [2, 2] and rows.codes8[:, 1].tolist() == [1, 1]


def test_fractions_of_single_precision_have_short_levels(tmp_path):
    """Stata's floats as pandas writes them, of which more than 20 are ordered, too; doubles stay as they are."""
    rates = np.float32(np.round(np.linspace(0.4415, 0.9415, 25), 4))
    rate = [f"{float(rates[i % 25]):.{15 + i % 25 % 2}g}" for i in range(10 * 25)]
    third = [str((i // 25 + 1) / 3) for i in range(len(rate))]
    summary, columns = imported_columns(tmp_path, csv(rate=rate, third=third, n=range(len(rate))), keep=["n"])
    assert rate[0] == "0.441500008106232" and columns["rate"].levels[0] == "0.4415" and columns["rate"].ordered
    assert columns["rate"].levels == tuple(map(str, rates)) and columns["third"].levels[0] == "0.3333333333333333"
    np.testing.assert_array_equal(summary.table.read().codes8[:, 0], np.arange(len(rate)) % 25)
    (tmp_path / "new.csv").write_text(f"rate,third,n\n{rate[3]},{third[0]},1\n{rates[3]},{third[0]},1\n")
    assert read_like(summary.table, tmp_path / "new.csv", unseen="error").codes8[:, 0].tolist() == [3, 3]


def test_codes_that_look_like_numbers_stay_apart(tmp_path):
    codes = [("250", "250.0", "V45", "428")[y % 4] for y in Y]
    summary, columns = imported_columns(tmp_path, csv(diagnosis=codes, x=X))
    assert columns["diagnosis"].levels == ("250", "250.0", "428", "V45")
    (tmp_path / "new.csv").write_text("diagnosis,x\n428.0,1.5\n250.0,2.5\n")
    assert read_like(summary.table, tmp_path / "new.csv", unseen="missing").codes8[:, 0].tolist() == [4, 1]


def test_integers_beyond_doubles_stay_apart_as_levels(tmp_path):
    first = 2**53
    summary, columns = imported_columns(tmp_path, csv(x=[first + y % 3 for y in Y], y=X))
    assert columns["x"].levels == tuple(str(first + i) for i in range(3))
    summary, columns = imported_columns(tmp_path, csv(x=[first + 2 * i + 1 for i in G.permutation(N)], y=X))
    assert "beyond 2^53, so that their last digits are lost; if they name the rows: --drop x" in text_of(summary)


@pytest.mark.parametrize("a, b, alike", [("F", "f", 1), ("Post-Graduate", "Post Graduate", 1), ("A", "A-", 0)])
def test_levels_that_are_written_alike_are_told(tmp_path, a, b, alike):
    levels = [("Male", "male", a, b, "other")[y % 5] for y in Y]
    summary, columns = imported_columns(tmp_path, csv(kind=levels, x=X))
    assert columns["kind"].n_levels == 5
    [warning] = [w for w in summary.warnings if "differ in case, blanks or hyphens alone" in w]
    assert warning.count("and 1 more group likewise") == alike


@pytest.mark.parametrize("written", ["%Y%m%d", "%Y%m%dT%H%M%S", "%Y%m%dT%H%M%SZ"])
def test_dates_without_separators(tmp_path, written):
    texts = [datetime.datetime(d.year, d.month, d.day, d.day % 24, 30).strftime(written) for d in DAYS]
    summary, columns = imported_columns(tmp_path, csv(when=texts, y=Y))
    assert columns["when"].kind == "real" and "dates" in columns["when"].reason and not summary.warnings
    days = [(d - datetime.date(1970, 1, 1)).days for d in DAYS]
    np.testing.assert_array_equal(np.floor(numbers_of(summary, "when")), days)


def test_integers_of_eight_digits_are_no_dates(tmp_path):
    _, columns = imported_columns(tmp_path, csv(x=[f"{d:%Y%m}{i % 60:02d}" for i, d in enumerate(DAYS)], y=Y))
    assert "dates" not in columns["x"].reason
    stray = [f"{d:%Y%m%d}" if i else "99999999" for i, d in enumerate(DAYS)]
    _, columns = imported_columns(tmp_path, csv(x=stray, y=Y))
    assert columns["x"].kind == "real" and "dates" not in columns["x"].reason  # as it is found among the first cells


def test_dates_beyond_machine_time(tmp_path):
    """Nanoseconds since 1970 end in 2262; 9999-12-31 means that a thing has no end."""
    texts = [d if i % 7 else "9999-12-31" for i, d in enumerate(DAYS)]
    summary, columns = imported_columns(tmp_path, csv(until=texts, y=Y))
    assert columns["until"].kind == "real" and "9999-12-31 is a value of its own" in columns["until"].reason
    assert "9999-12-31 is far from all other values" in text_of(summary)


def test_postcodes_keep_their_zeros(tmp_path):
    codes = [f"{(1067, 4109, 10115, 80331)[y % 4]:05d}" for y in Y]
    assert imported_columns(tmp_path, csv(plz=codes, x=X))[1]["plz"].levels == ("01067", "04109", "10115", "80331")


def test_scientific_notation_and_signs(tmp_path):
    summary, columns = imported_columns(tmp_path, csv(x=[f"{v:+.3E}" for v in X], y=[f"+{v}" for v in Y]))
    assert [c.kind for c in columns.values()] == ["real", "real"]
    np.testing.assert_allclose(numbers_of(summary, "x"), X)


def test_truths_in_every_spelling(tmp_path):
    words = {"a": ("False", "True"), "b": ("no", "yes"), "c": ("n", "Y"), "d": ("FALSE", "true"), "e": ("0", "1")}
    columns = imported_columns(
        tmp_path, csv(**{k: [v[int(i)] for i in G.random(N) < 0.5] for k, v in words.items()}, x=X)
    )[1]
    assert {k: columns[k].levels for k in words} == words and columns["a"].kind == "boolean"


def test_very_long_cells(tmp_path):
    _, columns = imported_columns(tmp_path, csv(essay=[f"{'lorem ipsum ' * 5000}{y % 3}" for y in Y], x=X))
    assert columns["essay"].n_levels == 3


# --------------------------------------------------------------------------------------------------------- Parquet


def test_parquet_of_every_type(tmp_path):
    g = np.random.Generator(np.random.Philox(1))
    hours = [datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=int(h)) for h in g.integers(0, 9999, N)]
    summary, columns = parquet(
        tmp_path,
        {
            "words": pa.array(["a", "b", "c"] * 40).dictionary_encode(),
            "level": pa.DictionaryArray.from_arrays(pa.array(Y % 3, pa.int8()), ["low", "mid", "high"]),
            "price": pa.array([decimal.Decimal(f"{v:.2f}") for v in X], pa.decimal128(10, 2)),
            "byte": pa.array(g.integers(0, 256, N), pa.uint8()),
            "huge": pa.array([2**64 - 1 - int(v) for v in g.integers(0, 5, N)], pa.uint64()),
            "at": pa.array(hours, pa.timestamp("us", "Europe/Berlin")),
            "nanoseconds": pa.array(1_600_000_000_000_000_000 + g.integers(0, 10**15, N), pa.timestamp("ns")),
            "flag": pa.array(g.random(N) < 0.5),
            "list": pa.array([[1, 2]] * N),
            "picture": pa.array([b"\x00\xff"] * N),
        },
    )
    kinds = {name: c.kind for name, c in columns.items()}
    assert kinds == {
        "words": "categorical", "level": "categorical", "price": "real", "byte": "real", "huge": "categorical",
        "at": "real", "nanoseconds": "real", "flag": "boolean", "list": "ignored", "picture": "ignored",
    }  # fmt: skip
    assert columns["huge"].levels[-1] == str(2**64 - 1)
    assert "'picture': left out: it is bytes, not text" in text_of(summary)
