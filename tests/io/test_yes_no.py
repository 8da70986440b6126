"""Columns of one text or blank: yes and no, in the table, its schema and later files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mpibayes.errors import ConfigError
from mpibayes.io.ingest import import_table
from mpibayes.io.recode import read_like
from mpibayes.io.summary import summary_lines
from mpibayes.io.table import Table

FIELD = Path(__file__).parent / "field"
N = 200
CHECKED = np.arange(N) % 3 == 0
AGES = [str(20 + i % 50) for i in range(N)]


def imported(tmp_path, cells, name="tick", **options):
    lines = [f"age,{name}", *(f"{a},{c}" for a, c in zip(AGES, cells))]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    return import_table(tmp_path / "data.csv", tmp_path / "out.h5", **options)


def column(summary, name="tick"):
    return next(c for c in summary.table.columns if c.name == name)


def codes(summary, name="tick"):
    c = column(summary, name)
    return getattr(summary.table.read(), c.block)[:, c.index]


def became(summary, name="tick"):
    return next(c.kind for c in summary.columns if c.name == name)


def test_a_question_with_several_answers(tmp_path):
    summary = import_table(FIELD / "multiselect.csv", tmp_path / "out.h5")
    assert len(summary.table.columns) == 7 and not summary.warnings
    email = column(summary, "contact_Email")
    assert (email.kind, email.levels, email.n_missing) == ("boolean", ("not Email", "Email"), 0)
    with (FIELD / "multiselect.csv").open() as file:
        checked = [line.split(",")[1] == "Email" for line in list(file)[1:]]
    assert (codes(summary, "contact_Email") == checked).all()
    [note] = summary.notes
    assert note.startswith("columns 'contact_Email', 'contact_Chat app'") and "blank" in note and "--drop" in note
    assert f"note: {note}" in summary_lines(summary)


@pytest.mark.parametrize(
    "text, levels",
    [
        ("x", ("not x", "x")),
        ("Y", ("N", "Y")),
        ("yes", ("no", "yes")),
        ("Yes", ("No", "Yes")),
        ("TRUE", ("FALSE", "TRUE")),
        ("1", ("0", "1")),
        ("7", ("not 7", "7")),  # the number of the option
        ("1.0", ("0", "1")),  # as pandas writes it
        ("7.0", ("not 7", "7")),
    ],
)
@pytest.mark.parametrize("blank", ["", "NA"])
def test_one_text_or_blank(tmp_path, text, levels, blank):
    summary = imported(tmp_path, [text if c else blank for c in CHECKED])
    assert (column(summary).kind, column(summary).levels) == ("boolean", levels)
    assert (codes(summary) == CHECKED).all()


def test_a_blank_beside_a_marker(tmp_path):
    """Blank means no; NA, which somebody wrote, is missing."""
    summary = imported(tmp_path, ["x" if c else "NA" if i % 7 == 0 else "" for i, c in enumerate(CHECKED)])
    assert column(summary).n_missing == sum(not c and i % 7 == 0 for i, c in enumerate(CHECKED))


@pytest.mark.parametrize(
    "cells, advice",
    [
        (["USA"] * (N - 3) + [""] * 3, "if blank means no: --kind tick=boolean"),  # rather missing
        (["see below"] + [""] * (N - 1), "if blank means no"),
        (["2019" if c else "" for c in CHECKED], "if blank means no"),
        (["2019-05-01" if c else "" for c in CHECKED], "if blank means no"),
        (["0.25" if c else "" for c in CHECKED], "if blank means no"),
        (["no" if c else "" for c in CHECKED], "if blank means another answer"),
        (["50.0"] * 2 + [""] * (N - 2), "if blank means no"),  # equal by chance
    ],
)
def test_what_is_hardly_yes_or_no_is_left_out_with_a_question(tmp_path, cells, advice):
    summary = imported(tmp_path, cells)
    [warning] = summary.warnings
    assert became(summary) == "ignored" and warning.startswith("column 'tick': left out: ") and advice in warning
    if "--kind" in advice:
        again = imported(tmp_path, cells, kinds={"tick": "boolean"}, overwrite=True)
        assert column(again).levels == ("not USA", "USA") and not again.warnings


@pytest.mark.parametrize(
    "cells", [["x"] * N, ["x" if c else "?" for c in CHECKED], ["x" if c else "-9" for c in CHECKED]]
)
def test_a_constant_stays_one(tmp_path, cells):
    summary = imported(tmp_path, cells, missing=["-9"] if "-9" in cells else [])
    assert became(summary) == "ignored" and not [w for w in summary.warnings if "left out" in w]


def test_missing_is_missing_where_the_schema_says_so(tmp_path):
    (tmp_path / "schema.toml").write_text('[columns.tick]\nmissing = [""]\n')
    summary = imported(tmp_path, ["x" if c else "" for c in CHECKED], schema=tmp_path / "schema.toml")
    assert became(summary) == "ignored"


def test_the_schema_gives_the_same_table(tmp_path):
    cells = ["x" if c else "" for c in CHECKED]
    first = imported(tmp_path, cells, write_schema=tmp_path / "schema.toml")
    text = (tmp_path / "schema.toml").read_text()
    assert 'levels = ["not x", "x"]\nno = [""]\n' in text and text.count("missing = ") == 1
    again = imported(tmp_path, cells, schema=tmp_path / "schema.toml", overwrite=True)
    assert again.table.fingerprint == first.table.fingerprint
    assert again.table.source == {**first.table.source, "asked": []} and first.table.source["asked"]
    (tmp_path / "schema.toml").write_text('[columns.tick]\nkind = "categorical"\nno = [""]\n')
    with pytest.raises(ConfigError, match=r"columns\.tick\.no: expected beside kind"):
        imported(tmp_path, cells, schema=tmp_path / "schema.toml", overwrite=True)


def test_later_files(tmp_path):
    imported(tmp_path, ["x" if c else "" for c in CHECKED])
    table = Table.open(tmp_path / "out.h5")
    (tmp_path / "new.csv").write_text("age,tick\n30,\n31,x\n32,not x\n33,NA\n")
    assert read_like(table, tmp_path / "new.csv").codes8[:, 0].tolist() == [0, 1, 0, 2]
    nulls = pa.table({"age": [30.0, 31.0], "tick": pa.array([None, "x"], pa.string())})
    pa.parquet.write_table(nulls, tmp_path / "new.parquet")
    assert read_like(table, tmp_path / "new.parquet").codes8[:, 0].tolist() == [0, 1]
