"""Simulated tables: the law is the one that is stated, and bits depend neither on slices nor on other columns."""

import numpy as np
import pytest
from scipy.stats import chi2, norm

from mpibayes.errors import ConfigError
from mpibayes.hpc.cli import main
from mpibayes.hpc.synthetic import truth as simulating
from mpibayes.hpc.synthetic.truth import (
    BLOCK,
    CENSUS,
    Shape,
    Truth,
    categorical_columns,
    census,
    parse_levels,
    simulate,
)
from mpibayes.io.table import Table

MIXED = Shape([("a", 2), ("b", 5), ("c", 300)], n_real=2, n_count=1, n_clusters=4, missing=0.1, separation=1.5)


def same(a, b):
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(vars(a).values(), vars(b).values()))


def test_rows_do_not_depend_on_the_slices():
    truth, n = Truth(MIXED, 3), 2 * BLOCK + 500
    whole, z = truth.rows(0, n), truth.labels(0, n)
    for start, stop in ((0, 1), (BLOCK - 1, BLOCK + 1), (100, n), (BLOCK, 2 * BLOCK), (7, 7)):
        assert same(truth.rows(start, stop), whole.take(slice(start, stop)))
        assert np.array_equal(truth.labels(start, stop), z[start:stop])


def test_columns_do_not_disturb_each_other():
    whole = Truth(MIXED, 3).rows(0, 1000)
    fewer = Truth(Shape(MIXED.categorical[:2], 1, 1, 4, 0.1, 1.5), 3).rows(0, 1000)
    assert np.array_equal(fewer.codes8, whole.codes8) and np.array_equal(fewer.tallies, whole.tallies, equal_nan=True)
    assert np.array_equal(fewer.reals[:, 0], whole.reals[:, 0], equal_nan=True)
    complete = Truth(Shape(MIXED.categorical, 2, 1, 4, 0.0, 1.5), 3).rows(0, 1000)
    seen = ~np.isnan(whole.reals)
    assert np.array_equal(whole.reals[seen], complete.reals[seen]) and 0.85 < seen.mean() < 0.95
    assert not np.array_equal(Truth(MIXED, 4).rows(0, 1000).codes8, whole.codes8)


def law_of_cells(truth, rows, z):
    """p-values, uniform under the law: of each categorical column in each cluster, each numeric one, sizes, missing."""
    p = []
    expected = truth.weight * len(z)
    p.append(chi2.sf((((np.bincount(z, minlength=4) - expected) ** 2) / expected).sum(), 3))
    for c in range(2):  # the columns with few levels: every cell expects enough rows
        for k in range(4):
            codes, v = rows.codes8[z == k, c], truth.theta[c].shape[1]
            seen = codes[codes < v]
            expected = truth.theta[c][k] * len(seen)
            result = np.bincount(seen, minlength=v)
            p.append(chi2.sf(((result - expected) ** 2 / expected)[expected > 5].sum(), (expected > 5).sum() - 1))
    for r in range(2):
        x = rows.reals[:, r] - truth.location[r, z]
        x = x[~np.isnan(x)]
        p.append(chi2.sf((x**2).sum(), len(x)))
        p.append(2 * norm.sf(abs(x.mean()) * np.sqrt(len(x))))
    rate = np.exp(truth.log_rate[0, z])
    x = rows.tallies[:, 0]
    seen = ~np.isnan(x)
    p.append(2 * norm.sf(abs((x - rate)[seen].sum()) / np.sqrt(rate[seen].sum())))
    n_missing, n_cells = int((~seen).sum()), len(x)
    p.append(2 * norm.sf(abs(n_missing - 0.1 * n_cells) / np.sqrt(n_cells * 0.09)))
    return np.array(p)


def test_law():
    """15 p-values, all above 1e-5 / 15: false alarms in 1 of 100,000 seeds. Wrong labels are noticed."""
    truth = Truth(MIXED, 5)
    rows, z = truth.rows(0, 50_000), truth.labels(0, 50_000)
    p = law_of_cells(truth, rows, z)
    assert len(p) == 15 and p.min() > 1e-5 / 15, p
    assert law_of_cells(truth, rows, np.roll(z, 1)).min() < 1e-12
    assert law_of_cells(Truth(MIXED, 6), rows, z).min() < 1e-12
    wide = rows.codes16[:, 0]
    assert wide.max() == 300 and abs((wide == 300).mean() - 0.1) < 0.01


def test_best_score_is_the_density():
    """Compare with a sum over clusters, cell by cell; no other mixture scores higher on average."""
    truth = Truth(MIXED, 7)
    rows = truth.rows(0, 200)
    by_hand = np.empty(200)
    for i in range(200):
        total = 0.0
        for k in range(4):
            p = truth.weight[k]
            for c, code in enumerate([*rows.codes8[i], rows.codes16[i, 0]]):
                p *= truth.theta[c][k, code] if code < truth.theta[c].shape[1] else 1.0
            for r, x in enumerate(rows.reals[i]):
                p *= 1.0 if np.isnan(x) else norm.pdf(x, truth.location[r, k])
            x, log_rate = rows.tallies[i, 0], truth.log_rate[0, k]
            if not np.isnan(x):
                p *= np.exp(x * log_rate - np.exp(log_rate)) / np.prod(np.arange(1, x + 1))
            total += p
        by_hand[i] = np.log(total)
    assert np.allclose(truth.log_density(rows), by_hand, rtol=1e-10)
    rows = truth.rows(0, 5000)
    assert Truth(MIXED, 8).log_density(rows).mean() < truth.log_density(rows).mean()


def test_a_table_on_disk(tmp_path, monkeypatch):
    truth, n = Truth(MIXED, 3), BLOCK + 100
    drawn = simulate(tmp_path / "a.h5", truth, n, labels=tmp_path / "z.npy")
    table = Table.open(tmp_path / "a.h5")
    assert same(table.read(), truth.rows(0, n)) and table.fingerprint == drawn.table.fingerprint
    assert table.source == {"simulated": {"seed": 3, "clusters": 4}}
    assert np.array_equal(np.load(tmp_path / "z.npy"), truth.labels(0, n)) and drawn.used_clusters == 4
    assert drawn.score == pytest.approx(truth.log_density(truth.rows(0, n)).mean(), rel=1e-12)
    monkeypatch.setattr(simulating, "slice_rows", lambda columns: 4 * BLOCK)  # larger slices, the same table
    assert simulate(tmp_path / "b.h5", truth, n).table.fingerprint == drawn.table.fingerprint
    simulate(tmp_path / "c.h5", truth, 50, labels=tmp_path / "z.txt")
    line = (tmp_path / "z.txt").read_text()
    numbers = [int(word) for word in line.split()]
    z = truth.labels(0, 50)
    assert line.endswith("\n") and line.count("\n") == 1 and len(numbers) == 50 and numbers[0] == 0
    assert len({(a, b) for a, b in zip(numbers, z.tolist())}) == len(set(numbers)) == len(set(z.tolist()))


def test_nothing_is_overwritten(tmp_path):
    truth = Truth(MIXED, 3)
    (tmp_path / "z.npy").write_text("mine")
    for table, labels in (("a.h5", "z.npy"), ("z.npy", None), ("b.h5", "b.h5")):
        with pytest.raises(ConfigError):
            simulate(tmp_path / table, truth, 10, labels=labels and tmp_path / labels)
    assert [path.name for path in tmp_path.iterdir()] == ["z.npy"] and (tmp_path / "z.npy").read_text() == "mine"
    simulate(tmp_path / "a.h5", truth, 10, labels=tmp_path / "z.npy", overwrite=True)
    assert len(np.load(tmp_path / "z.npy")) == 10


def test_the_census():
    columns = dict(census())
    assert len(columns) == 68 and min(columns.values()) == 2 and max(columns.values()) == 18
    assert columns["iYearsch"] == 18 and columns == CENSUS


def test_levels():
    assert parse_levels("5") == (5, 5) and parse_levels("2-18") == (2, 18)
    for text in ("", "1", "a", "3-2", "2-", "-5", "2-70000", "2-3-4"):
        with pytest.raises(ValueError):
            parse_levels(text)
    widths = [v for _, v in categorical_columns(500, 2, 4, 1)]
    assert set(widths) == {2, 3, 4}


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--rows", "300", "--seed", "4", "--clusters", "3"]
    assert main(["simulate", "census1990", "c.h5", *words, "--labels", "z.txt"]) == 0
    text = capsys.readouterr().out
    for part in ("300 rows", "68 categorical", "from 2 to 18", "3, of which 3", "z.txt", "nats a row", "best score"):
        assert part in text, (part, text)
    assert same(Table.open("c.h5").read(), Truth(Shape(census(), n_clusters=3), 4).rows(0, 300))
    assert main(["simulate", "census1990", "c.h5", *words]) == 2 and "exists and is kept" in capsys.readouterr().err
    words += [
        "--categorical",
        "2",
        "--levels",
        "7",
        "--real",
        "1",
        "--count",
        "1",
        "--missing",
        "0.5",
        "--separation",
        "2",
    ]
    assert main(["simulate", "mixture", "m.h5", *words]) == 0
    table = Table.open("m.h5")
    assert [len(c.levels) for c in table.columns] == [7, 7, 0, 0] and "50.0% of the cells" in capsys.readouterr().out
    assert [c.name for c in table.columns] == ["c1", "c2", "x1", "n1"]
    for wrong, message in (
        (["--categorical", "0"], "needs a column"), (["--levels", "1"], "from 2 to 65,535"),
        (["--missing", "1"], "--missing"), (["--rows", "0"], "--rows"),
    ):  # fmt: skip
        assert main(["simulate", "mixture", "n.h5", *wrong]) == 2 and message in capsys.readouterr().err
    assert main(["simulate", "mixtur", "n.h5"]) == 2 and "did you mean 'mixture'" in capsys.readouterr().err
    assert not (tmp_path / "n.h5").exists()
    assert main(["simulate", "mixture", "z.csv"]) == 2 and not (tmp_path / "z.csv").exists()
    assert "z.csv: a typed table is HDF5; expected a name that ends in .h5 or .hdf5" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["census1990", "mixture"])
def test_help_has_examples(command, capsys):
    assert main(["simulate", command, "-h"]) == 0
    assert f"mpibayes simulate {command}" in capsys.readouterr().out.split("Example", 1)[1]
