"""An import leaves out unusable columns, takes unusable cells for missing, and says so; the rest is imported."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.ingest import import_table
from mpibayes.io.recode import read_like
from tests.io.importing import imported_columns

G = np.random.Generator(np.random.Philox(11))


def parquet(tmp_path, columns, **options):
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    summary = import_table(tmp_path / "t.parquet", tmp_path / "t.h5", overwrite=True, **options)
    return summary, {c.name: c for c in summary.columns}


def csv(**columns):
    rows = zip(*columns.values(), strict=True)
    return ",".join(columns) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)


# ------------------------------------------------------------------------------------------------ infinite numbers


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e400", "1e200"])
def test_infinite_numbers_are_missing_and_counted(tmp_path, text):
    x = [f"{v:.3f}" for v in G.standard_normal(200)]
    x[3] = x[7] = text
    summary, columns = imported_columns(tmp_path, csv(x=x, y=np.arange(200) % 3))
    assert columns["x"].kind == "real" and columns["x"].n_missing == 2
    assert f"column 'x': 2 cells are infinite or beyond 1e150, such as '{text}'; taken as missing" in summary.warnings
    assert np.isnan(summary.table.read().reals[[3, 7], 0]).all()


def test_later_files_may_have_infinite_numbers_where_the_table_had(tmp_path):
    x = [f"{v:.3f}" for v in G.standard_normal(100)]
    table = imported_columns(tmp_path, csv(x=["inf", *x[1:]], y=x))[0].table
    (tmp_path / "new.csv").write_text("x,y\n1e200,0.5\n")
    assert np.isnan(read_like(table, tmp_path / "new.csv").reals).tolist() == [[True, False]]
    (tmp_path / "new.csv").write_text("x,y\n0.5,inf\n")
    with pytest.raises(DataError, match="column 'y': found 'inf', expected a finite number"):
        read_like(table, tmp_path / "new.csv")


def test_infinite_numbers_of_a_given_kind_and_of_a_written_schema(tmp_path):
    text = csv(x=["inf", *(f"{v:.3f}" for v in G.standard_normal(99))], y=["a", "b"] * 50)
    first = imported_columns(tmp_path, text, kinds={"x": "real"}, write_schema=tmp_path / "s.toml")[0]
    assert first.columns[0].n_missing == 1 and len(first.warnings) == 1
    again = imported_columns(tmp_path, text, schema=tmp_path / "s.toml")[0]
    assert again.table.fingerprint == first.table.fingerprint and not again.warnings


def test_infinite_numbers_beside_decimal_commas(tmp_path):
    x = [f"{v:.2f}".replace(".", ",") for v in G.standard_normal(100)]
    x[50] = "inf"
    columns = imported_columns(tmp_path, "x;y\n" + "".join(f"{v};a\n{v};b\n" for v in x))[1]
    assert columns["x"].kind == "real" and columns["x"].n_missing == 2


# ---------------------------------------------------------------------------------------------------- NUL characters


def test_nul_characters(tmp_path):
    """Around a text they are blanks; within one they are shown; they never end it."""
    lines = [b"a,%.1f\n" % v for v in G.standard_normal(100)]
    text = b"k,x\n" + b"".join(lines) + b"a\0\0,1.5\nb\0c,2.5\nb,3.5\n"
    columns = imported_columns(tmp_path, text)[1]
    assert columns["k"].levels == ("a", "b", "b\u2400c") and columns["x"].kind == "real"
    columns = imported_columns(tmp_path, text + b"b,3\x001\n")[1]
    assert columns["x"].kind == "categorical" and "3\u24001" in columns["x"].levels


# ------------------------------------------------------------------------------------------------- levels without end


def test_text_of_thousands_of_levels_is_left_out(tmp_path):
    names = [f"name{i % 1500}" for i in range(3000)]
    summary, columns = imported_columns(tmp_path, csv(name=names, x=np.arange(3000) % 3))
    assert columns["name"].kind == "ignored" and columns["x"].kind == "categorical"
    [warning] = summary.warnings
    assert "'name': left out: text of 1,500 levels in 3,000 cells; fewer than 10 cells each; --keep name" in warning
    assert imported_columns(tmp_path, csv(name=names, x=names), keep=["name"])[1]["name"].n_levels == 1500
    summary, columns = imported_columns(tmp_path, csv(name=names * 5, x=np.arange(15_000) % 3))
    assert columns["name"].n_levels == 1500  # ten cells each


def test_a_stray_text_that_costs_a_column_of_numbers_is_named(tmp_path):
    x = [*(f"{v:.6f}" for v in G.standard_normal(300)), "not known"]
    summary, columns = imported_columns(tmp_path, csv(x=x, y=np.arange(301) % 3))
    assert columns["x"].kind == "ignored"
    assert (
        "'x': left out; most cells are numbers: if 'not known' means missing, say --missing 'not known'"
        in summary.warnings[0]
    )


# --------------------------------------------------------------------------------------------------------- identifiers


@pytest.mark.parametrize(
    "name, values, kind, reason",
    [
        ("x", np.arange(30), "ignored", "count the rows"),
        ("x", np.arange(30) - 7, "ignored", "count the rows"),
        ("x", np.arange(30)[::-1], "real", "all different"),
        ("x", np.arange(30) * 2, "real", "all different"),
        ("person_id", np.arange(30) * 7, "ignored", "the name says so"),
        ("x", np.arange(8), "count", "integers"),
        ("price", G.permutation(10_000)[:200], "real", "all different"),
        ("mass", [f"{v:.4f}" for v in 70 + G.standard_normal(300)], "real", "steps"),
        ("x", [*range(29), "NA"], "real", "all different"),  # with a gap it counts no rows
    ],
)
def test_numbers_that_are_all_different(tmp_path, name, values, kind, reason):
    text = csv(**{name: values}, y=np.arange(len(values)) % 3)
    column = imported_columns(tmp_path, text)[1][name]
    assert column.kind == kind and reason in column.reason
    assert imported_columns(tmp_path, text, keep=[name])[1][name].kind != "ignored"


def test_rows_are_counted_on_over_batches_and_files(tmp_path):
    for i in range(2):
        lines = "".join(f"{j},{j % 3}\n" for j in range(50 * i, 50 * i + 50))
        (tmp_path / f"{i}.csv").write_text("x,y\n" + lines)
    summary = import_table([tmp_path / "0.csv", tmp_path / "1.csv"], tmp_path / "t.h5")
    assert summary.columns[0].kind == "ignored"
    summary = import_table([tmp_path / "1.csv", tmp_path / "0.csv"], tmp_path / "u.h5")
    assert summary.columns[0].kind == "real" and "--drop x" in summary.warnings[0]


# ------------------------------------------------------------------------------------------------------------- nested

NESTED = {
    "embedding": pa.array([[0.5, 1.5]] * 40),
    "address": pa.array([{"city": "Rome", "zip": {"code": "00100", "extra": [1, 2]}}] * 40),
    "tags": pa.array([[("a", 1)]] * 40, pa.map_(pa.string(), pa.int64())),
    "x": G.standard_normal(40),
}


def test_nested_columns_are_left_out_with_a_line_each(tmp_path):
    summary, columns = parquet(tmp_path, NESTED)
    assert [c.name for c in summary.table.columns] == ["x"] and len(summary.warnings) == 3
    assert "column 'embedding': left out: it is nested (list<element: double>)" in summary.warnings
    assert columns["address"].reason == "nested (struct)"
    assert len(read_like(summary.table, tmp_path / "t.parquet")) == 40
    written = tmp_path / "s.toml"
    parquet(tmp_path, NESTED, write_schema=written)
    assert not parquet(tmp_path, NESTED, schema=written)[0].warnings


def test_nested_columns_may_be_dropped_but_not_kept(tmp_path):
    assert not parquet(tmp_path, NESTED, drop=["embedding", "address", "tags"])[0].warnings
    with pytest.raises(ConfigError, match=r"column 'tags': is nested .*cannot be imported, only left out"):
        parquet(tmp_path, NESTED, kinds={"tags": "categorical"})
    with pytest.raises(ConfigError, match="column 'tags'"):
        parquet(tmp_path, NESTED, keep=["tags"])


def test_bytes_that_are_no_text_are_left_out(tmp_path):
    frame = {"picture": pa.array([b"\xff\xd8\xff"] * 40), "x": G.standard_normal(40)}
    summary, columns = parquet(tmp_path, frame)
    assert columns["picture"].kind == "ignored" and "'picture': left out: it is bytes, not text" in summary.warnings[0]
    late = {"picture": pa.array([b"text"] * 2_000 + [b"\xff\xd8\xff"]), "x": G.standard_normal(2_001)}
    with pytest.raises(DataError, match="column 'picture' has bytes that are not UTF-8 text; leave it out: --drop"):
        parquet(tmp_path, late)
    assert [c.name for c in parquet(tmp_path, frame, drop=["picture"])[0].table.columns] == ["x"]


def test_parquet_of_other_types(tmp_path):
    """Decimals, half precision, durations and large strings are read; what is no text and no number is left out."""
    n = 40
    frame = {
        "money": pa.array(G.standard_normal(n).round(2), pa.float64()).cast(pa.decimal128(10, 2)),
        "half": pa.array(G.standard_normal(n).astype(np.float16)),
        "took": pa.array(G.permutation(n * n)[:n], pa.duration("s")),
        "text": pa.array(["a", "b"] * 20, pa.large_string()),
        "code": pa.array([b"u", b"v"] * 20, pa.binary()),
        "nothing": pa.nulls(n),
    }
    columns = parquet(tmp_path, frame, keep=["code"])[1]  # it says the same as the text
    kinds = ["real", "real", "real", "categorical", "categorical", "ignored"]
    assert [c.kind for c in columns.values()] == kinds


def test_codes_are_no_counts(tmp_path):
    """Occupations from 0 to 46 have a mean below 20; but neighbours among counts are about as common."""
    codes = G.choice(47, 6000, p=G.permutation(G.dirichlet(np.full(47, 0.6))))
    summary, columns = imported_columns(tmp_path, csv(occupation=codes, visits=G.poisson(15, 6000)))
    assert (columns["occupation"].kind, columns["visits"].kind) == ("real", "count")
    assert "if they are codes: --kind occupation=categorical" in " ".join(summary.warnings)
