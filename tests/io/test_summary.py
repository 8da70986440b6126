"""Messages of an import: a line per column of a narrow table, a line per kind of a wide one; redundant columns and
rows."""

import io

import numpy as np
import pytest
from rich.console import Console

from mpibayes.io.ingest import import_table
from mpibayes.io.redundant import Redundancy, row_hash
from mpibayes.io.rows import slices_of
from mpibayes.io.summary import print_summary, summary_lines, warnings
from mpibayes.io.table import table_from_arrays
from tests.io.importing import imported

G = np.random.Generator(np.random.Philox(12))
N = 300
X = G.standard_normal(N)


def printed(summary, verbose=False):
    console = Console(file=io.StringIO(), width=4096)
    print_summary(summary, console, verbose)
    return console.file.getvalue()


def test_each_column_of_a_narrow_table_has_a_line_with_its_reason(tmp_path):
    columns = {"id": range(N), "x": X.round(2), "gain": np.where(X > 0.5, (100 * X).round(), 0), "k": ["u", "v"] * 150}
    text = printed(imported(tmp_path, columns))
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert "left out" in lines["id"] and "integers that count the rows" in lines["id"]
    assert "in steps of 0.01" in lines["x"] and "0 is a value of its own" in lines["gain"]
    assert "2 levels: u, v" in lines["k"] and "--verbose" not in text


@pytest.mark.parametrize("kind", ["real", "count"])
def test_a_column_without_a_cell_has_no_values(tmp_path, kind):
    path = tmp_path / "t.csv"
    path.write_text("x,none\n" + "".join(f"{x:.1f},\n" for x in X))
    lines = printed(import_table(path, tmp_path / "t.h5", kinds={"none": kind})).splitlines()
    assert any(line.split() == ["none", kind, "no", "values", "100", "%", "as", "given"] for line in lines)
    path.write_text(",".join(f"x{i}" for i in range(70)) + "\n" + 9 * ("," * 69 + "\n"))
    wide = import_table(path, tmp_path / "t.h5", overwrite=True, kinds={f"x{i}": kind for i in range(70)})
    assert f"70 {kind} columns: no values; 70 with missing cells" in printed(wide)


def test_a_wide_table_is_told_of_by_kind(tmp_path):
    columns = {f"x{i}": G.standard_normal(N).round(2) for i in range(80)}
    columns |= {f"same{i}": ["1"] * N for i in range(10)} | {"k": ["u", "v", "w"] * 100}
    columns["odd"] = np.where(X > 0.5, (100 * X).round(), 0)
    summary = imported(tmp_path, columns)
    lines = [line.strip() for line in printed(summary).splitlines()]
    assert "1 categorical column (k): 3 levels" in lines
    assert any(line.startswith("81 real columns: values from -") for line in lines)
    assert any("80 in steps of 0.01; 1 in other steps; 1 with values of their own" in line for line in lines)
    assert "10 columns left out, constant: same0, same1, same2, same3, same4, ..." in lines
    assert any(line.startswith("odd ") for line in lines) and not any(line.startswith("x7 ") for line in lines)
    assert len(lines) < 12 and len(printed(summary, verbose=True).splitlines()) > 92
    assert len(summary_lines(summary)) < 12 < len(summary_lines(summary, verbose=True))


def test_warnings_that_say_the_same_are_one(tmp_path):
    columns = {f"x{i}": [*G.standard_normal(N - 5 - i % 2).round(2), *[999] * (5 + i % 2)] for i in range(9)}
    summary = imported(tmp_path, columns)
    assert len(summary.warnings) == len(warnings(summary, verbose=True)) == 9
    [line] = warnings(summary)
    assert line.startswith("column 'x0': 999 is far from") and line.endswith(
        "(and 8 more columns likewise; --verbose lists them)"
    )


# --------------------------------------------------------------------------------------------------------- said twice


def found(columns, step=64):
    """The warnings of a table in memory, whatever the batches."""
    columns, rows = table_from_arrays([(name, kind, values, None) for name, (kind, values) in columns.items()])
    redundancy = Redundancy(columns, len(rows))
    for part in slices_of(rows, step):
        redundancy.add(part)
    return list(redundancy.warnings())


K = G.integers(0, 5, N)


@pytest.mark.parametrize(
    "kind, values",
    [
        ("real", np.exp(X)),
        ("real", -X),
        ("real", np.round(X / 2.54, 4)),  # not quite
    ],
)
def test_numbers_that_are_functions_of_others(kind, values):
    others = {f"other{i}": ("real", G.standard_normal(N)) for i in range(5)}
    [line] = found({"x": ("real", X), **others, "y": (kind, values)})
    assert line.startswith("columns 'x' and 'y' say the same")


@pytest.mark.parametrize("values", [X + 0.05 * G.standard_normal(N), X**2, np.where(np.arange(N) % 9, X, np.nan)])
def test_numbers_that_are_not(values):
    assert not found({"x": ("real", X), "y": ("real", values)})


def test_categories_that_map_one_to_one():
    columns = {"k": ("categorical", K), "coarse": ("categorical", K // 2), "n": ("real", 10.0 - K)}
    columns |= {"renamed": ("categorical", (3 * K + 1) % 5), "x": ("real", X)}
    [line] = found(columns)
    assert line.startswith("columns 'k', 'n' and 'renamed' say the same")
    columns["renamed"] = ("categorical", np.where(np.arange(N) == 150, 0, columns["renamed"][1]))
    assert [w[:40] for w in found({k: v for k, v in columns.items() if k != "n"})] == []


def test_dummy_variables_beside_their_category():
    """All of them, or all but one; a single two-valued column that goes with one value is a fact of the table."""
    dummies = {f"k{v}": ("boolean", np.equal(K, v).astype(int)) for v in range(5)}
    columns = {"k": ("categorical", K), "x": ("real", X), "coin": ("boolean", G.integers(0, 2, N))}
    [line] = found(columns | dummies)
    assert line.startswith("column 'k' is there again in 'k0', 'k1', 'k2', 'k3' and 'k4': each of them says whether")
    dummies.pop("k2")
    [line] = found(columns | dummies)
    assert line.startswith("column 'k' is there again in 'k0', 'k1', 'k3' and 'k4': ")
    assert not found(columns | {"k0": dummies["k0"]})
    wrong = np.where(np.arange(N) == 150, 1 - dummies["k1"][1], dummies["k1"][1])
    assert not any("there again" in line for line in found(columns | dummies | {"k1": ("boolean", wrong)}))


def test_dummy_variables_without_their_category():
    """All of them, or all but one; not two, nor columns that share a row or are apart by chance; nor what holds for
    several of them."""
    dummies = {f"k{v}": ("boolean", np.equal(K, v).astype(int)) for v in range(5)}
    columns = {"x": ("real", X), "coin": ("boolean", G.integers(0, 2, N)), "few": ("boolean", np.arange(N) % 30 == 7)}
    columns |= {"upper": ("boolean", np.greater(K, 2).astype(int))}
    [line] = found(columns | dummies)
    assert line.startswith("columns 'k0', 'k1', 'k2', 'k3' and 'k4': each row has exactly one of them, as if")
    dummies.pop("k0")
    [line] = found(columns | dummies)
    assert line.startswith("columns 'k1', 'k2', 'k3' and 'k4': no row has more than one of them, as if they were one")
    shared = np.where(np.arange(N) == np.argmax(K == 2), 1, dummies["k1"][1])
    assert not found(columns | {"k1": ("boolean", shared), "k2": dummies["k2"], "k3": dummies["k3"]})


def test_rare_values_say_nothing():
    rare = (np.arange(N) < 3).astype(int)
    assert not found({"a": ("boolean", rare), "b": ("boolean", rare), "x": ("real", X)})


@pytest.mark.parametrize("n", [40, 64, 100])
def test_values_that_are_all_different_prove_nothing(n):
    columns = {f"x{i}": ("real", G.standard_normal(n)) for i in range(4)}
    assert not found(columns)
    tied = {name: ("real", np.r_[x[1:2], x[1:]]) for name, (_, x) in columns.items()}  # one pair of rows, by chance
    assert not found(tied)
    [line] = found(columns | {"y": ("real", -columns["x0"][1])})
    assert line.startswith("columns 'x0' and 'y' say the same")
    ward = G.integers(0, n // 3, n)
    [line] = found(columns | {"ward": ("categorical", ward), "name": ("categorical", (7 * ward + 3) % 101)})
    assert line.startswith("columns 'ward' and 'name' say the same")


def test_equal_rows():
    n, more = 2000, 150
    x, y, k = G.standard_normal((n, 4)), G.standard_normal(n), G.integers(0, 4, n)
    copied = np.r_[np.arange(n), np.arange(more)]
    columns = {f"x{i}": ("real", x[copied, i]) for i in range(4)} | {"k": ("categorical", k[copied])}
    [line] = found(columns)
    assert line.startswith("14 % of the rows are equal to another one in all columns")  # 300 of 2,150
    assert not found(columns | {"y": ("real", G.permutation(np.r_[y, y[:more]]))})  # in all columns but one
    assert not found({"age": ("real", np.round(x[:, 0] * 12 + 40)), "k": ("categorical", k)})  # no wonder


def test_equal_rows_of_very_many_are_estimated(monkeypatch):
    monkeypatch.setattr("mpibayes.io.redundant.MOST_HASHES", 1 << 11)
    n = 40_000
    x = G.standard_normal(n)
    x[: n // 5] = x[n // 5 : 2 * (n // 5)]
    [line] = found({"x": ("real", x), "y": ("real", np.square(x))}, 4096)
    share = float(line.split(" %")[0])
    assert abs(share - 40) < 6


def test_rows_have_different_hashes():
    grid = np.stack(np.meshgrid(np.arange(100.0), np.arange(100.0), np.arange(10.0)), -1).reshape(-1, 3)
    columns = [("a", "real", grid[:, 0], None), ("b", "count", grid[:, 1], None)]
    columns.append(("c", "categorical", grid[:, 2].astype(int), None))
    _, rows = table_from_arrays(columns)
    assert len(np.unique(row_hash(rows))) == 100_000
