"""Dates and times are days, in this file and in later ones; where day and month may be either, the import asks."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.clock import DAYS, SINCE, around, as_text, step_in_words, step_of
from mpibayes.io.dates import PATTERN, Dates, DatesLike, dates_of
from mpibayes.io.encode import numbers
from mpibayes.io.ingest import import_table
from mpibayes.io.recode import read_like

G = np.random.Generator(np.random.Philox(13))
EPOCH = datetime.datetime(1970, 1, 1)
STAMPS = [datetime.datetime(2023, 1, 1) + datetime.timedelta(seconds=int(s)) for s in G.integers(0, 5e7, 200)]
WHOLE = np.array([(s.date() - EPOCH.date()).days for s in STAMPS], float)


def imported(tmp_path, column, name="when", **options):
    """A column of texts beside one of numbers, imported: the summary, and its columns by name."""
    path = tmp_path / "t.csv"
    path.write_text(f"{name};y\n" + "".join(f"{v};{i % 7}.5\n" for i, v in enumerate(column)))
    summary = import_table(path, tmp_path / "t.h5", overwrite=True, **options)
    return summary, {c.name: c for c in summary.columns}


def reals(summary, name):
    column = next(c for c in summary.table.columns if c.name == name)
    return summary.table.read().reals[:, column.index]


@pytest.mark.parametrize(
    "written, order, words",
    [
        ("%Y-%m-%d", "ymd", "to the day"),
        ("%Y/%m/%d", "ymd", "to the day"),
        ("%d.%m.%Y", "dmy", "day first"),
        ("%d/%m/%Y", "dmy", "day first"),
        ("%m/%d/%Y", "mdy", "month first"),
        ("%m-%d-%Y", "mdy", "month first"),
        ("%m/%d/%y %H:%M", "mdy", "month first"),
        ("%d/%m/%y", "dmy", "day first"),
        ("%Y-%m-%d %H:00", "ymd", "to the hour"),
        ("%Y-%m-%d %H:%M", "ymd", "to the minute"),
        ("%m/%d/%Y %I:%M %p", "mdy", "to the minute"),
        ("%Y-%m-%dT%H:%M:%SZ", "ymd", "to the second"),
        ("%Y-%m-%d %H:%M:%S.250", "ymd", "to the millisecond"),
        ("%H:%M", "clock", "times of the day"),
    ],
)
def test_dates_as_people_write_them(tmp_path, written, order, words):
    texts = [s.strftime(written) for s in STAMPS]
    summary, columns = imported(tmp_path, texts)
    assert columns["when"].kind == "real" and words in columns["when"].reason and not summary.warnings
    assert summary.table.source["forms"]["when"] == {"order": order, "part": ""}
    back = [datetime.datetime.strptime(t, written) for t in texts]
    start = datetime.datetime(1900, 1, 1) if order == "clock" else EPOCH
    expected = [(t.replace(microsecond=0) - start) / datetime.timedelta(days=1) for t in back]
    quarter = 0.25 / 86_400 if written.endswith("250") else 0.0
    np.testing.assert_allclose(reals(summary, "when"), np.array(expected) + quarter, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "text",
    ["2023-02-29", "2024-13-01", "2024-00-10", "24-05-01", "2024-05-01T25:00", "2024-05-01 12:60", "2024-05", ""],
)
def test_what_is_no_date(text):
    assert np.isnan(numbers(pa.array([text] * 2), Dates())).all() and not dates_of(pa.array([text]))


def test_years_of_two_digits():
    texts = pa.array(["1/31/69", "12/31/68", "1/31/00", "1-31-03", "1.31.03"])
    years = (numbers(texts, Dates("mdy")).astype("datetime64[D]").astype("datetime64[Y]").astype(float) + 1970).tolist()
    assert years[:3] == [1969, 2068, 2000] and np.isnan(numbers(texts, Dates("mdy"))[3:]).all()
    like = DatesLike("mdy", "", "1/31/99")
    written = [like.written(str(day)) for day in (10_957, 36_525, -36_525)]
    assert written == ["1/1/00", "1/1/2070", "12/31/1869"]  # two digits would be another century


def test_zones_are_one_clock():
    texts = ["2024-05-01T12:30:00Z", "2024-05-01 14:30:00+0200", "2024-05-01 07:00:00-05:30", "2024-05-01 12:30"]
    texts = pa.array([*texts, "2024-05-01 13:30:00+01", "2024-05-01 12:30 UTC"])
    assert set(numbers(texts, Dates())) == {19844 + 12.5 / 24}
    assert Dates("ymd", "hour").labels(texts).to_pylist() == ["12", "14", "7", "12", "13", "12"]  # as on the wall


def test_parquet_has_types_of_its_own(tmp_path):
    us = [int((s - EPOCH).total_seconds() * 1e6) for s in STAMPS]
    stamp = pa.array(us, pa.int64())
    frame = {
        "date": pa.array([s.date() for s in STAMPS]),
        "plain": stamp.cast(pa.timestamp("us")),
        "zone": stamp.cast(pa.timestamp("us", "UTC")),
        "clock": pa.array([s.time() for s in STAMPS], pa.time64("us")),
    }
    pa.parquet.write_table(pa.table(frame), tmp_path / "t.parquet")
    table = import_table(tmp_path / "t.parquet", tmp_path / "t.h5", keep=["date", "zone"]).table
    x = table.read().reals
    assert [c.unit for c in table.columns] == ["days since 1970-01-01"] * 3 + ["days"]
    assert [c.resolution * 86_400 for c in table.columns] == [86_400, 1, 1, 1]
    np.testing.assert_array_equal(x[:, 0], WHOLE)
    np.testing.assert_allclose(x[:, 1], np.array(us) / 86_400e6, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(x[:, 1], x[:, 2])
    np.testing.assert_allclose(x[:, 3], x[:, 1] - WHOLE, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(read_like(table, tmp_path / "t.parquet").reals, x)


# ------------------------------------------------------------------------------------------------------ day or month


def either(n=200):
    """Dates that may be read in two ways: no day above the twelfth."""
    return [f"{G.integers(1, 13)}/{G.integers(1, 13)}/{2000 + i % 20}" for i in range(n)]


def test_day_and_month_that_cannot_be_told_apart_are_a_question(tmp_path):
    texts = either()
    summary, columns = imported(tmp_path, texts)
    assert columns["when"].kind == "ignored" and columns["y"].kind != "ignored"
    assert f"is '{texts[0]}' written with the day or the month first? Say --dates day-first" in summary.warnings[0]
    day, month, year = map(int, texts[0].split("/"))
    for text, (m, d) in (("day-first", (month, day)), ("month-first", (day, month))):
        summary, columns = imported(tmp_path, texts, dates=text, write_schema=tmp_path / f"{text}.toml")
        assert not summary.warnings and reals(summary, "when")[0] == (datetime.date(year, m, d) - EPOCH.date()).days
        again = imported(tmp_path, texts, schema=tmp_path / f"{text}.toml")[0]
        assert again.table.fingerprint == summary.table.fingerprint
    with pytest.raises(ConfigError, match=r"dates that can be read in two ways(.|\n)*column 'when'"):
        imported(tmp_path, texts, kinds={"when": "real"})


def test_a_later_row_settles_the_order(tmp_path, monkeypatch):
    monkeypatch.setattr("mpibayes.io.dialect.BLOCK_BYTES", 1 << 10)
    columns = imported(tmp_path, [*either(), "1/31/2024"])[1]
    assert columns["when"].kind == "real" and "month first" in columns["when"].reason
    columns = imported(tmp_path, [*either(), "31/1/2024"])[1]
    assert columns["when"].kind == "real" and "day first" in columns["when"].reason


def test_another_column_settles_the_order(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{a},{b:%m/%d/%Y}\n" for a, b in zip(either(), STAMPS, strict=True)))
    summary = import_table(path, tmp_path / "t.h5")
    assert all("month first" in c.reason for c in summary.columns)


# -------------------------------------------------------------------------------------------------- around the values


def test_missing_and_stray_dates(tmp_path):
    texts = [s.strftime("%Y-%m-%d") for s in STAMPS]
    summary, columns = imported(tmp_path, ["NA", "", *texts[2:]])
    assert columns["when"].n_missing == 2 and columns["when"].kind == "real"
    summary, columns = imported(tmp_path, ["unknown", *texts[1:]])
    assert columns["when"].kind != "real" and "--missing unknown" in summary.warnings[0]
    summary, columns = imported(tmp_path, ["1900-01-01"] * 6 + texts[6:])
    assert "1900-01-01 is far from all other values" in summary.warnings[0]
    assert 'missing = ["1900-01-01"]' in summary.warnings[0] and "1900-01-01 is a value" in columns["when"].reason


def test_few_dates_are_categories_in_their_order(tmp_path):
    waves = ["1.12.2023", "15.2.2024", "1.3.2022"]
    column = imported(tmp_path, waves * 50)[1]["when"]
    assert column.levels == ("1.3.2022", "1.12.2023", "15.2.2024") and "3 different dates" in column.reason


def test_later_files_are_read_in_the_same_way(tmp_path):
    table = imported(tmp_path, [s.strftime("%d/%m/%Y") for s in STAMPS], calendar=["when"])[0].table
    (tmp_path / "new.csv").write_text("y;when\n1.5;2/5/2024\n0.5;\n")
    rows = read_like(table, tmp_path / "new.csv")
    assert rows.reals[0, 0] == 19845 and np.isnan(rows.reals[1, 0])
    assert rows.codes8[:, :2].tolist() == [[3, 4], [7, 12]]  # a Thursday in May, and missing
    (tmp_path / "new.csv").write_text("y;when\n1.5;2024-05-02\n")
    with pytest.raises(DataError, match=r"row 1 \(line 2\), column 'when': found '2024-05-02'"):
        read_like(table, tmp_path / "new.csv")
    (tmp_path / "new.csv").write_text("y;then\n1.5;2/5/2024\n")
    with pytest.raises(DataError, match=r"lacks 1 of the table's 2 columns(.|\n)*no column 'when'"):
        read_like(table, tmp_path / "new.csv")


# ----------------------------------------------------------------------------------------------------------- calendar


def test_the_calendar_of_a_column(tmp_path):
    texts = [s.isoformat(sep=" ") for s in STAMPS]
    summary, columns = imported(tmp_path, texts, calendar=["when"], write_schema=tmp_path / "s.toml")
    rows, placed = summary.table.read(), {c.name: c for c in summary.table.columns}
    for part, value in (
        ("weekday", lambda s: s.weekday()),
        ("month", lambda s: s.month - 1),
        ("hour", lambda s: s.hour),
    ):
        column = placed[f"when {part}"]
        assert column.kind == "categorical" and columns[f"when {part}"].reason == f"the {part} of 'when'"
        assert rows.codes8[:, column.index].tolist() == list(map(value, STAMPS))
    assert placed["when weekday"].levels[0] == "Monday" and placed["when month"].levels[0] == "January"
    again = imported(tmp_path, texts, schema=tmp_path / "s.toml")[0]
    assert again.table.fingerprint == summary.table.fingerprint
    assert "when hour" not in imported(tmp_path, [t[:10] for t in texts], calendar=["when"])[1]


def test_a_calendar_that_cannot_be(tmp_path):
    texts = [s.isoformat() for s in STAMPS]
    for options, text in (
        ({"calendar": ["wen"]}, "did you mean 'when'"),
        ({"calendar": ["y"]}, "column 'y': has no calendar"),
        ({"calendar": ["when"], "drop": ["when"]}, "left out"),
    ):
        with pytest.raises(ConfigError) as error:
            imported(tmp_path, texts, **options)
        assert text in str(error.value)
    path = tmp_path / "t.csv"
    path.write_text("when,when month\n" + "".join(f"{t},{i % 5}\n" for i, t in enumerate(texts)))
    with pytest.raises(ConfigError, match="its calendar makes a column 'when month', which is there already"):
        import_table(path, tmp_path / "u.h5", calendar=["when"])
    assert not (tmp_path / "u.h5").exists()


# ---------------------------------------------------------------------------------------------------------- small laws


def test_days_and_their_texts():
    days = np.r_[np.array([-800_000, -1, 0, 19844, 2_932_896.0]), G.integers(-10_000, 30_000, 20) + 0.5]
    for day in days[2:]:
        text = as_text(day, "days since 1970-01-01")
        assert numbers(pa.array([text]), Dates())[0] == day
    assert as_text(0.75, "days") == "18:00:00" and as_text(1e9, "days since 1970-01-01") == "1000000000"


@pytest.mark.parametrize(
    "mean, sd, unit, text",
    [
        (19844.3, 9.04, SINCE, "2024-05-01 ± 9 days"),
        (19844.5, 0.25, SINCE, "2024-05-01 12:00 ± 6 hours"),
        (19844.5, 0.01, SINCE, "2024-05-01 12:00 ± 14.4 minutes"),
        (0.5, 0.05, DAYS, "12:00 ± 1.2 hours"),
        (19844.0, np.nan, SINCE, "2024-05-01"),
        (np.nan, np.nan, SINCE, "-"),
    ],
)
def test_means_of_dates_in_reports(mean, sd, unit, text):
    assert around(mean, sd, unit) == text


@pytest.mark.parametrize(
    ("mean", "sd", "text"),
    [
        (19844.3, 1.24, "2024-05-01 ± 1.2 days"),
        (19844.7, 0.25, "2024-05-02 ± 0.25 days"),
        (19844.0, 40.0, "2024-05-01 ± 40 days"),
        (19844.0, np.nan, "2024-05-01"),
        (np.nan, np.nan, "-"),
    ],
)
def test_whole_days_deviate_by_days(mean, sd, text):
    assert around(mean, sd, SINCE, step=1.0) == text


@pytest.mark.parametrize("per_day, words", [(1, "day"), (24, "hour"), (1440, "minute"), (86_400, "second")])
def test_steps(per_day, words):
    days = 19_000 + np.r_[G.integers(0, 1000 * per_day, 500), 1] / per_day
    assert step_of(days) == 1.0 / per_day and step_in_words(step_of(days)) == f"to the {words}"


def test_each_pattern_has_its_own_texts():
    texts = {"ymd": "2024-05-13", "dmy": "13.5.2024", "mdy": "5/13/2024", "clock": "13:05"}
    for order, text in texts.items():
        assert [d.order for d in dates_of(pa.array([text]))] == [order]
    months = pa.array(
        [f"2024{month:02d}13" for month in range(1, 13)] + [f"2025{month:02d}13" for month in range(1, 13)]
    )
    assert [d.order for d in dates_of(months)] == ["compact"] and not dates_of(months[:5])
    assert {*texts, "compact"} == PATTERN.keys()


@pytest.mark.parametrize(
    "order, texts, half_past, day_before",
    [
        ("dmy", ["12/11/2024", "1/10/2024", "?"], "2/5/2024 14:30:00", "1/5/2024"),
        ("dmy", ["12.11.2024 09:30", "01.10.2024 10:15"], "02.05.2024 14:30", "01.05.2024 00:00"),
        ("mdy", ["5/1/2024 2:30 pm", "11/12/2024 12:30 am"], "5/2/2024 2:30 pm", "5/1/2024 12:00 am"),
        ("compact", ["20241231"], "20240502 14:30:00", "20240501"),
        ("compact", ["20241231T1530Z"], "20240502T1430Z", "20240501T0000Z"),
        ("ymd", ["2024/12/31"], "2024/05/02 14:30:00", "2024/05/01"),
        ("ymd", ["2024-12-31", "2024-12-31 01:00"], "2024-05-02 14:30", "2024-05-01 00:00"),
        ("ymd", ["2024-12-31T01:00:00,25Z"], "2024-05-02T14:30:00,00Z", "2024-05-01T00:00:00,00Z"),
        ("ymd", ["2024-12-31T01:00:00+05:30"], "2024-05-02T20:00:00+05:30", "2024-05-01T05:30:00+05:30"),
        ("ymd", ["2024-12-31 01:00 -0200"], "2024-05-02 12:30 -0200", "2024-04-30 22:00 -0200"),
        ("ymd", ["?"], "2024-05-02 14:30:00", "2024-05-01"),
        ("mdy", ["?"], "05/02/2024 14:30:00", "05/01/2024"),
        ("mdy", ["11/30/99 9:30", "1/8/90 0:00"], "5/2/24 14:30", "5/1/24 0:00"),
        ("clock", ["12:15", "9:05"], "14:30", "0:00"),
    ],
)
def test_days_are_written_as_a_file_writes_its_dates(order, texts, half_past, day_before):
    form = DatesLike(order, "", Dates(order).example(pa.array(texts)))
    first = 0 if order == "clock" else 19844
    days = [first + (order != "clock") + 14.5 / 24, first]
    written = [form.written(repr(float(day))) for day in days]
    assert written == [half_past, day_before]
    np.testing.assert_allclose(numbers(pa.array(written), form), days, rtol=0, atol=1e-9)


@pytest.mark.parametrize("order, first, n", [("ymd", -719_000, 2_932_000), ("clock", 0, 1)])
def test_what_is_written_is_read_again(order, first, n):
    """Days between the years 1 and 9999 to the millisecond, written as each of some texts."""
    days = np.round((first + n * G.random(300)) * 86_400_000) / 86_400_000
    for like in ("2024-5-1T9:05:03.5+13:45", "2024.05.01 12:30:00 AM", "9:05:00.25", ""):
        form = DatesLike(order, "", like)
        back = numbers(pa.array([form.written(repr(float(day))) for day in days]), form)
        np.testing.assert_allclose(back, days, rtol=0, atol=1e-8)
