"""Columns whose categories are in order: what the import finds, what the user says, and what the table keeps."""

from dataclasses import replace

import h5py
import numpy as np
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.ingest import import_table
from mpibayes.io.order import order_of
from mpibayes.io.schema import read_schema
from mpibayes.io.seal import append_seal
from mpibayes.io.summary import by_kind, summary_lines
from mpibayes.io.table import Table, table_from_arrays, write_table

N = 60
AGES = ["18-24", "25-34", "65+", "<18"]
WORDS = ["agree", "disagree", "neither"]
COLUMNS = {
    "q1": ["1", "2", "3", "4", "5"],
    "age": AGES,
    "word": WORDS,
    "zip": ["1", "2", "3"],
    "sex": ["f", "m"],
    "last, first": ["0", "1", "2", "3"],
    "x": [str(0.37 * i) for i in range(N)],
}


def place(row, column):
    return 7 * row + row // (column + 3)


def table_of(tmp_path, **options):
    """The import of a file with these columns, each of whose cells goes through its texts."""
    lines = [",".join(f'"{name}"' for name in COLUMNS)]
    lines += [",".join(texts[place(i, k) % len(texts)] for k, texts in enumerate(COLUMNS.values())) for i in range(N)]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    return import_table(tmp_path / "data.csv", tmp_path / "out.h5", overwrite=True, **options)


def ordered(summary):
    return [c.name for c in summary.table.columns if c.ordered]


def levels(summary, name):
    return next(c.levels for c in Table.open(summary.table.path).columns if c.name == name)


def test_a_few_integers_and_bands_are_recognised_and_said(tmp_path):
    summary = table_of(tmp_path)
    assert ordered(summary) == ["q1", "age", "last, first"]
    assert levels(summary, "age") == ("<18", "18-24", "25-34", "65+")
    assert Table.open(summary.table.path).columns == summary.table.columns
    lines = summary_lines(summary)
    assert any("  age  categorical  4 levels: <18 < 18-24 < 25-34 < 65+" in line for line in lines)
    [note] = summary.notes
    assert note.startswith("columns 'q1', 'age' and 'last, first': levels taken as ordered") and "--unordered" in note
    assert f"note: {note}" in lines and any("3 in order" in line for line in by_kind(summary))


def test_cells_keep_their_level_where_levels_change_their_places(tmp_path):
    cells = []
    for options, listed in (({"unordered": ["age"]}, AGES), ({}, ["<18", *AGES[:3]])):
        table = table_of(tmp_path, **options).table
        column = next(c for c in table.columns if c.name == "age")
        assert list(column.levels) == listed
        cells.append([column.levels[v] for v in table.read().codes8[:, column.index]])
    assert cells[0] == cells[1] == [AGES[place(i, 1) % 4] for i in range(N)]


@pytest.mark.parametrize(
    "options, found",
    [
        ({"unordered": ["q1"]}, ["age", "last, first"]),
        ({"unordered": ["q1,age", "last, first"]}, []),
        ({"ordered": ["none"]}, []),
        ({"ordered": ["none", "q1"]}, ["q1"]),
        ({"ordered": ["none,zip,q1"]}, ["q1", "zip"]),
        ({"ordered": ["zip", "last, first"]}, ["q1", "age", "zip", "last, first"]),
        ({"ordered": ["age, sex"], "drop": ["q1"]}, ["age", "last, first"]),
    ],
)
def test_the_user_names_and_forbids(tmp_path, options, found):
    summary = table_of(tmp_path, **options)
    assert ordered(summary) == found
    for name in set(options.get("unordered", ())) & {"q1"}:
        assert order_of(next(c for c in summary.table.columns if c.name == name)) == ()


def test_what_is_in_order_changes_no_other_thing_that_a_run_depends_on(tmp_path):
    """A run goes with a table that records the order otherwise: the fingerprint of both is the same."""
    first = table_of(tmp_path, unordered=["age"]).table
    second = table_of(tmp_path, unordered=["age", "q1"], ordered=["zip"]).table
    assert first.fingerprint == second.fingerprint and first.columns != second.columns


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"ordered": ["q9"]}, ConfigError, "ordered: no column 'q9'"),
        ({"unordered": ["q1,agee"]}, ConfigError, "unordered: no column 'agee' in"),
        ({"ordered": ["q1"], "unordered": ["q1"]}, ConfigError, "column 'q1': is both ordered and unordered"),
        ({"ordered": ["x"]}, DataError, "column 'x': is real, and only categories are put in order"),
        (
            {"ordered": ["word"]},
            DataError,
            "('agree', 'disagree', 'neither', ...) have no order of their own; list them",
        ),
    ],
)
def test_mistakes(tmp_path, options, error, words):
    with pytest.raises(error) as raised:
        table_of(tmp_path, **options)
    assert any(words in problem for problem in raised.value.problems)
    assert not (tmp_path / "out.h5").exists()


def schema_of(tmp_path, text):
    (tmp_path / "schema.toml").write_text(text)
    return tmp_path / "schema.toml"


def test_a_schema_says_it_and_its_levels_are_the_order(tmp_path):
    text = '[columns.word]\nkind = "categorical"\nlevels = ["disagree", "neither", "agree"]\nordered = true\n'
    text += "[columns.q1]\nordered = false\n"
    schema = schema_of(tmp_path, text)
    summary = table_of(tmp_path, schema=schema)
    assert ordered(summary) == ["age", "word", "last, first"]
    assert levels(summary, "word") == ("disagree", "neither", "agree")
    # the command line counts before it; a schema that names a column is not what `none` is about
    assert ordered(table_of(tmp_path, schema=schema, ordered=["q1"], unordered=["word"])) == [
        "q1",
        "age",
        "last, first",
    ]
    assert ordered(table_of(tmp_path, schema=schema, ordered=["none"])) == ["word"]


def test_levels_that_a_schema_lists_otherwise_stay_as_listed(tmp_path):
    text = '[columns.q1]\nkind = "categorical"\nlevels = ["5", "4", "3", "2", "1"]\n'
    summary = table_of(tmp_path, schema=schema_of(tmp_path, text))
    column = summary.table.columns[0]
    assert (column.levels, column.ordered) == (("5", "4", "3", "2", "1"), None)
    assert order_of(column) == (4, 3, 2, 1, 0)  # in reports
    summary = table_of(tmp_path, schema=schema_of(tmp_path, text + "ordered = true\n"))
    assert order_of(summary.table.columns[0]) == (0, 1, 2, 3, 4)


def test_the_schema_that_is_written_makes_the_same_table(tmp_path):
    first = table_of(tmp_path, unordered=["q1"], write_schema=tmp_path / "schema.toml")
    columns = read_schema(tmp_path / "schema.toml").columns
    assert [columns[name].ordered for name in ("q1", "age", "word", "x")] == [False, True, None, None]
    second = table_of(tmp_path, schema=tmp_path / "schema.toml")
    assert (second.table.columns, second.table.fingerprint) == (first.table.columns, first.table.fingerprint)
    assert not second.notes  # nothing is a guess


@pytest.mark.parametrize(
    "text, words",
    [
        ('kind = "real"\nordered = true', "columns.q1.ordered: only categorical columns have an order"),
        ('ordered = "yes"', "columns.q1.ordered: expected true or false"),
    ],
)
def test_mistakes_of_a_schema(tmp_path, text, words):
    with pytest.raises(ConfigError) as raised:
        read_schema(schema_of(tmp_path, f"[columns.q1]\n{text}\n"))
    assert any(words in problem for problem in raised.value.problems)


@pytest.mark.parametrize(
    "texts, order", [(["0.5", "1", "1.5", "10"], True), (["2024-05-01", "2024-05-02", "2024-05-09"], None)]
)
def test_numbers_that_are_not_whole_name_no_things(tmp_path, texts, order):
    lines = ["stars,x", *(f"{texts[i % len(texts)]},{i**1.5}" for i in range(200))]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    column = import_table(tmp_path / "data.csv", tmp_path / "out.h5").table.columns[0]
    assert (column.kind, column.ordered) == ("categorical", order) and list(column.levels) == list(dict.fromkeys(texts))


# --- files that say it themselves -------------------------------------------------------------------------------------

SCALE = ["never", "seldom", "often", "always"]


def answers():
    import pandas

    cells = [SCALE[i % 3] for i in range(N)]
    as_numbers = pandas.Categorical([2, *((3, 1, 2)[i % 3] for i in range(1, N))], [3, 2, 1], ordered=True)
    return pandas.DataFrame(
        {
            "often": pandas.Categorical(cells[1:] + cells[:1], SCALE, ordered=True),
            "kind": pandas.Categorical([cells[0], cells[0], *cells[:1:-1]], SCALE),
            "rank": as_numbers,
            "x": np.arange(N) ** 1.5,
        }
    )


@pytest.mark.parametrize("name", ["answers.parquet", "answers.feather"])
def test_ordered_categories_of_arrow(tmp_path, name):
    getattr(answers(), f"to_{name.partition('.')[2]}")(tmp_path / name)
    summary = import_table(tmp_path / name, tmp_path / "out.h5")
    assert levels(summary, "often") == ("never", "seldom", "often")  # those that are there
    assert levels(summary, "kind") == ("never", "often", "seldom")
    assert "often" in ordered(summary) and "kind" not in ordered(summary)
    summary = import_table(tmp_path / name, tmp_path / "out.h5", unordered=["often"], overwrite=True)
    assert "often" not in ordered(summary)


def test_a_dataframe_keeps_the_order_of_its_categories(tmp_path, capsys):
    from mpibayes import import_table

    table = Table.open(import_table(answers(), tmp_path / "out.h5"))
    assert [(c.levels, c.ordered) for c in table.columns[:3]] == [
        (("never", "seldom", "often"), True),
        (("never", "often", "seldom"), None),
        (("3", "2", "1"), True),
    ]
    assert "never < seldom < often" in capsys.readouterr().out
    table = Table.open(import_table(answers(), tmp_path / "out.h5", ordered=["none", "rank"], overwrite=True))
    assert [c.ordered for c in table.columns[:3]] == [False, False, True]


def test_an_ordinal_variable_of_spss(tmp_path):
    pyreadstat = pytest.importorskip("pyreadstat")
    import pandas

    codes = [1.0 + i % 3 for i in range(N)]
    frame = pandas.DataFrame({"how": codes, "what": [*codes[:2], *codes[:1:-1]], "x": np.arange(N) ** 1.5})
    labels = {name: {1.0: "never", 2.0: "always", 3.0: "no longer"} for name in ("how", "what")}
    measures = {"how": "ordinal", "what": "nominal"}
    pyreadstat.write_sav(frame, tmp_path / "s.sav", variable_value_labels=labels, variable_measure=measures)
    summary = import_table(tmp_path / "s.sav", tmp_path / "out.h5")
    assert ordered(summary) == ["how"] and levels(summary, "how") == ("never", "always", "no longer")
    # the order of the codes is one that the user may call on
    summary = import_table(tmp_path / "s.sav", tmp_path / "out.h5", ordered=["what"], overwrite=True)
    assert ordered(summary) == ["how", "what"] and levels(summary, "what") == ("never", "always", "no longer")


# --- the table --------------------------------------------------------------------------------------------------------


def made(tmp_path, ordered):
    columns, rows = table_from_arrays([("q1", "categorical", np.arange(6) % 3, ["1", "2", "3"])])
    return write_table(tmp_path / "t.h5", [replace(c, ordered=ordered) for c in columns], rows, overwrite=True)


@pytest.mark.parametrize("ordered, order", [(True, (0, 1, 2)), (False, ()), (None, (0, 1, 2))])
def test_a_table_keeps_what_was_said(tmp_path, ordered, order):
    """None: as tables of versions that did not record it, whose levels are looked at."""
    made(tmp_path, ordered)
    [column] = Table.open(tmp_path / "t.h5").columns
    assert (column.ordered, order_of(column)) == (ordered, order)
    with h5py.File(tmp_path / "t.h5", locking=False) as file:
        assert ("ordered" in file["levels/0"].attrs) == (ordered is not None)
        assert b"ordered" not in file["columns"][()]  # programs before it read this table


def test_a_crafted_attribute_is_refused(tmp_path):
    made(tmp_path, True)
    with h5py.File(tmp_path / "t.h5", "r+", locking=False) as file:
        file["levels/0"].attrs["ordered"] = "perhaps"
    with (tmp_path / "t.h5").open("r+b") as file:
        append_seal(file)
    with pytest.raises(DataError, match="ordered"):
        Table.open(tmp_path / "t.h5")
