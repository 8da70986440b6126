"""Numbers of the units of a panel are left out; quantities, years and unbalanced numbers are not."""

import numpy as np
import pyarrow as pa
import pytest

from mpibayes.io.ingest import import_table
from mpibayes.io.units import Runs, rows_a_unit

G = np.random.Generator(np.random.Philox(4))


def runs_of(cells, n_batches=1):
    runs = Runs()
    for part in np.array_split(np.asarray(cells), n_batches):
        array = pa.array(map(str, part), pa.string()).dictionary_encode()
        runs.add(array.dictionary, array.indices.to_numpy())
    return runs


@pytest.mark.parametrize("n_batches", [1, 2, 7, 60])
@pytest.mark.parametrize(
    ("cells", "number", "equal"),
    [
        (np.repeat([5, 3, 9, 7] * 15, 4), 60, 4),
        (np.r_[np.repeat(np.arange(30), 4), 30, 30, 30], 31, 0),
        (np.r_[0, np.repeat(np.arange(1, 31), 4)], 31, 0),
        (np.arange(60), 60, 1),
        (np.zeros(60), 1, 60),
    ],
)
def test_runs_do_not_depend_on_batches(cells, number, equal, n_batches):
    runs = runs_of(cells, n_batches)
    assert (runs.number, runs.equal) == (number, equal)


@pytest.mark.parametrize(
    ("units", "rows"),
    [
        (np.append(np.arange(100, 129), 140), 6),
        (np.append(np.arange(18), 40), 0),
        (np.append(np.arange(1960, 1989), 1999), 0),
        (np.arange(100, 130), 0),
        (np.arange(0, 150, 5), 0),
    ],
)
def test_units_are_many_and_neither_years_nor_evenly_spaced(units, rows):
    assert rows_a_unit(runs_of(np.repeat(units, 6)), "man", len(units), units.min(), units.max()) == rows


@pytest.mark.parametrize("name", ["day", "days_since_start", "ObsTime", "WEEK", "age.months"])
def test_uneven_times_of_a_panel_are_no_units(name):
    """The same 30 uneven days of 6 units, sorted by day."""
    days = np.append(np.arange(29), 90)
    assert rows_a_unit(runs_of(np.repeat(days, 6)), name, 30, 0, 90) == 0
    assert rows_a_unit(runs_of(np.repeat(days, 6)), "dayton", 30, 0, 90) == 6


def imported(tmp_path, cells, **options):
    path = tmp_path / "panel.csv"
    path.write_text("man,pay\n" + "".join(f"{cell},{pay:.3f}\n" for cell, pay in zip(cells, G.random(len(cells)))))
    return import_table(path, tmp_path / "panel.h5", overwrite=True, **options)


def test_the_number_of_a_unit_is_no_column(tmp_path):
    men = np.repeat(G.permutation(500)[:40], 8)
    summary = imported(tmp_path, men)
    assert [c.name for c in summary.table.columns] == ["pay"]
    assert "it numbers 40 units of 8 rows each, one after another" in summary.warnings[0]
    assert [c.name for c in imported(tmp_path, men, keep=["man"]).table.columns] == ["man", "pay"]
    shuffled = imported(tmp_path, G.permutation(men))
    assert [c.name for c in shuffled.table.columns] == ["man", "pay"], "nothing shows that it is no quantity"
    assert len(imported(tmp_path, [*men[:-8], *["?"] * 8]).table.columns) == 2
