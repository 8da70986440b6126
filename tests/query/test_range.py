"""Completed and synthetic tables have no number outside the range of the table's, whichever way columns depend."""

import csv

import numpy as np
import pytest
from rich.console import Console

from mpibayes.hpc.crosscat.laws import reach
from mpibayes.hpc.results.complete import complete
from mpibayes.hpc.results.synthesize import synthesize
from mpibayes.io.ingest import import_table
from tests.run.conftest import mpibayes, small_config

NAMES = ["age", "wage", "wait", "loss", "sector", "years"]
BLOCK = '[blocks.all]\ncolumns = ["age", "wait", "loss"]'
RUNS = {
    "mixture": small_config(),
    "links": small_config('links = [["age", "sector"], ["wait", "sector"], ["sector", "years"]]'),
    "lines": small_config('links = "lines"\nlines = ["age", "wait", "loss", "years"]'),
    "block": small_config(sections=BLOCK),
}


def cells(n=400, seed=2):
    """Ages and years at work, which are close to 0 or to their greatest value, wages with zeros, waiting times, losses,
    never above 0; a fifth of the rows has no wage, a fifth no age, waiting time and loss."""
    g = np.random.default_rng(seed)
    sector = g.integers(3, size=n)
    age = np.floor(90.0 * g.beta(np.array([0.6, 2.0, 6.0])[sector], np.array([5.0, 2.0, 0.6])[sector]))
    wage = np.where((age < 16) | (g.random(n) < 0.2), 0.0, np.round(np.exp(g.normal(9.0, 1.0, n)), -1))
    wait = np.round(g.exponential(np.array([1.0, 4.0, 9.0])[sector]), 2)
    loss = -np.round(g.exponential(20.0, n) * (1.0 + sector), 1)
    years = np.floor(age * g.random(n))
    numbers = np.column_stack([age, wage, wait, loss])
    numbers[g.random(n) < 0.2, 1] = np.nan
    numbers[np.ix_(g.random(n) < 0.2, [0, 2, 3])] = np.nan
    text = [["" if np.isnan(x) else f"{x:.12g}" for x in row] for row in numbers]
    return [[*row, "abc"[k], f"{x:.0f}"] for row, k, x in zip(text, sector, years)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("range")
    with open(folder / "t.csv", "w", newline="") as file:
        csv.writer(file).writerows([NAMES, *cells()])
    numbers = {name: "real" for name in NAMES if name != "sector"}
    import_table([folder / "t.csv"], folder / "table.h5", kinds=numbers)
    return folder


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def made(place, name, out):
    """Numbers of copies and of synthetic tables, by column."""
    quiet = {"console": Console(quiet=True)}
    done = [
        complete(place / name, None, place / f"{out}-copies", copies=3, **quiet),
        synthesize(place / name, place / f"{out}-tables", rows=2000, copies=2, missing="none", **quiet),
    ]
    rows = [row for of in done for path in of.paths for row in read(path)]
    return {column: np.array([float(row[column]) for row in rows]) for column in NAMES if column != "sector"}


@pytest.mark.quick("mixture", "lines")
@pytest.mark.parametrize("name", RUNS)
def test_no_number_is_out_of_range(place, name, monkeypatch):
    (place / "run.toml").write_text(RUNS[name])
    done = mpibayes(place, "run", "run.toml", "-o", name)
    assert done.returncode == 0, done.stderr
    known = read(place / "t.csv")

    def outside(x):
        table = {c: [float(row[c]) for row in known if row[c]] for c in x}
        return {c: ((x[c] < min(table[c])) | (x[c] > max(table[c]))).mean() for c in x}

    assert not any(outside(made(place, name, f"{name}-right")).values())
    right, recorded = reach.range_of, reach.recorded_range
    monkeypatch.setattr(reach, "range_of", lambda column: longer(*right(column)))
    monkeypatch.setattr(reach, "recorded_range", lambda column: longer(*recorded(column)))
    assert sum(share > 0.001 for share in outside(made(place, name, f"{name}-wrong")).values()) >= 3


def longer(low, high):
    """A wrong range, longer by half its length at both ends."""
    return 1.5 * low - 0.5 * high, 1.5 * high - 0.5 * low
