"""Columns that say the same as another one in every row are left out by default, and only these."""

import numpy as np
import pytest

from mpibayes.errors import ConfigError
from mpibayes.io.ingest import import_table
from mpibayes.io.table import TableWriter

N = 300
G = np.random.default_rng(20261127)
X = np.exp(G.standard_normal(N)).round(3)
K = G.integers(0, 5, N)


@pytest.fixture
def imported(tmp_path):
    def run(columns, **options):
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
        return import_table(tmp_path / "t.csv", tmp_path / "t.h5", overwrite=True, **options)

    return run


def names(summary):
    return [c.name for c in summary.table.columns]


def table(**more):
    return {"logwage": np.log(X), "k": K, "wage": X, "other": G.standard_normal(N).round(3), **more}


def test_a_function_of_another_number(imported):
    """The plainer name stays, and the table that is written has the others alone."""
    summary = imported(table())
    assert names(summary) == ["k", "wage", "other"] and summary.table.read().reals.shape == (N, 2)
    (line,) = summary.warnings
    assert line == (
        "column 'logwage': is left out, as it says the same as 'wage' in every row and would count twice; "
        "--keep logwage keeps both, --drop wage keeps it instead of 'wage'"
    )
    assert "'wage' says the same" in {c.name: c.reason for c in summary.columns}["logwage"]


@pytest.mark.parametrize("copy", [-X, (X * 1.8 + 32).round(2), np.array(list("abcde"))[K], (3 * K + 1) % 5])
def test_other_copies(imported, copy):
    """Decreasing, rounded, and categories or codes with other names."""
    assert "copy" not in names(imported({"x": X, "k": K, "copy": copy}))


def test_the_finer_of_two_numbers_stays(imported):
    assert names(imported({"x": X.round(2), "k": K, "fine_x": X})) == ["k", "fine_x"]


@pytest.mark.parametrize("options", [{"keep": ["logwage"]}, {"kinds": {"logwage": "real"}}])
def test_what_the_user_keeps(imported, options):
    summary = imported(table(), **options)
    assert names(summary) == ["logwage", "k", "wage", "other"]
    assert any("say the same" in line for line in summary.warnings)
    assert names(imported(table(), drop=["wage"])) == ["logwage", "k", "other"]


DUMMIES = {f"k{value}": np.equal(K, value).astype(int) for value in range(1, 5)}


def test_dummy_variables_beside_their_category(imported):
    summary = imported(table(**DUMMIES))
    assert names(summary) == ["k", "wage", "other"]
    assert summary.warnings[1] == (
        "column 'k1': is left out, as it says whether 'k' has one of its values, and 'k' would count again; "
        "--keep k1 keeps both"
    )
    assert "dummy variable" in {c.name: c.reason for c in summary.columns}["k4"]
    kept = imported(table(**DUMMIES), keep=["k2"])
    assert names(kept) == ["k", "wage", "other", "k2"]


def test_dummy_variables_that_stay(imported):
    """Two may be the facts of which the category was made; a row that differs tells something; and a category that is
    left out leaves its dummy variables."""
    change = G.integers(-1, 2, N)
    up, down = ((change == sign).astype(int) for sign in (1, -1))
    assert names(imported({"x": X, "change": change, "up": up, "down": down})) == ["x", "change", "up", "down"]
    level = G.integers(0, 5, 6_000)
    wrong = {f"k{value}": np.equal(level, value).astype(int) for value in range(1, 5)}
    wrong["k1"][-2] = 1 - wrong["k1"][-2]  # in a row that the sample leaves out
    x = np.exp(G.standard_normal(6_000))
    assert names(imported({"x": x, "k": level, **wrong})) == ["x", "k", "k1"]
    assert names(imported(table(**DUMMIES), drop=["k"])) == ["wage", "other", *DUMMIES]


def test_one_row_that_differs_is_a_column(imported):
    """All rows decide, not the sample that raises the suspicion: here 2,000 of 6,000."""
    x = np.exp(G.standard_normal(6_000))
    y = x.copy()
    y[-2] = 100.0  # a row that the sample leaves out
    assert names(imported({"x": x, "y": x.copy(), "z": G.integers(0, 9, 6_000)})) == ["x", "z"]
    summary = imported({"x": x, "y": y, "z": G.integers(0, 9, 6_000)})
    assert names(summary) == ["x", "y", "z"] and any("say the same" in line for line in summary.warnings)


def test_missing_in_other_rows_is_a_column(imported):
    y = [f"{2 * x}" if i else "" for i, x in enumerate(X)]
    assert names(imported({"x": X, "y": y})) == ["x", "y"]


@pytest.mark.parametrize(
    ("event", "options", "asked"),
    [
        (K % 2, {}, "--survival futime,death"),
        (K % 3, {}, "--survival futime,death=VALUE"),
        (K % 2, {"survival": ["futime,death"]}, ""),
        (K, {}, ""),
    ],
)
def test_a_time_beside_an_event_is_asked_about(imported, event, options, asked):
    summary = imported({"futime": 100 + G.permutation(3 * N)[:N], "death": event, "x": X}, **options)
    assert [note.rpartition(": ")[2] for note in summary.notes if "--survival" in note] == [asked] * bool(asked)


def test_a_column_is_not_dropped_and_kept(imported):
    with pytest.raises(ConfigError, match="'wage': is both dropped and kept"):
        imported(table(), drop=["wage"], keep=["wage"])


def test_a_table_with_copies_never_has_the_name(imported, tmp_path, monkeypatch):
    """A pass that fails after the copies were found leaves the earlier table, and no other file."""
    imported({"k": K, "x": X})
    before, write = (tmp_path / "t.h5").read_bytes(), TableWriter.write

    def fail(self, rows, weights=None):
        if len(self.columns) == 3:
            raise KeyboardInterrupt
        write(self, rows, weights)

    monkeypatch.setattr(TableWriter, "write", fail)
    with pytest.raises(KeyboardInterrupt):
        imported(table())
    assert (tmp_path / "t.h5").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.h5"]
