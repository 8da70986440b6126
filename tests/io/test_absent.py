"""Columns that have no value where another one has some level: found, written down, said, and nothing made up.

Of 100 tables of independent missing cells none may have such a pair; each has a false alarm with a probability below
1e-6 (`absent.BY_CHANCE` times its pairs).
"""

import json

import numpy as np
import pytest

from mpibayes.io import absent
from mpibayes.io.absent import Absence, Absences
from mpibayes.io.ingest import import_table
from mpibayes.io.rows import slices_of
from mpibayes.io.summary import summary_lines
from mpibayes.io.table import Table, table_from_arrays

N = 1200


def died(n=N, seed=5):
    """Alive or dead, and of what; an age, lacking at random."""
    g = np.random.default_rng(seed)
    dead = g.random(n) < 0.3
    cause = np.where(dead, g.choice(["heart", "lungs", "cancer"], n), "")
    age = np.where(g.random(n) < 0.05, "", g.integers(40, 99, n).astype(str))
    return {"age": age, "status": np.where(dead, "dead", "alive"), "cause": cause, "sex": g.choice(["f", "m"], n)}


def put(folder, columns, name="people.csv"):
    lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values()))]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def found(columns, step=500):
    table, rows = table_from_arrays(
        [(name, "categorical" if of else "real", values, of) for name, (values, of) in columns.items()]
    )
    absences = Absences(table)
    for part in slices_of(rows, step):
        absences.add(part)
    return list(absences.found())


def levels_and_gaps(n=N, seed=1):
    g = np.random.default_rng(seed)
    k = g.integers(0, 4, n)
    return g, k, np.where(np.isin(k, [1, 3]), np.nan, g.standard_normal(n))


def test_the_cause_of_death_of_the_living(tmp_path):
    columns = died()
    summary = import_table(put(tmp_path, columns), tmp_path / "a.h5", write_schema=tmp_path / "a.toml")
    n = int((columns["status"] == "alive").sum())
    [a] = Absence.stored(Table.open(tmp_path / "a.h5").source)
    assert a == Absence("cause", "status", ("alive",), n, 0)
    [cause] = [c for c in summary.columns if c.name == "cause"]
    assert cause.reason.endswith(f"; never where 'status' is 'alive' ({n} rows)")
    [note] = summary.notes
    assert note.startswith(f"column 'cause' has no value where 'status' is 'alive' ({n} rows): missing by definition")
    assert f"note: {note}" in summary_lines(summary) and not summary.warnings
    assert f"never where 'status' is 'alive' ({n} rows)" in (tmp_path / "a.toml").read_text()
    again = import_table(tmp_path / "people.csv", tmp_path / "b.h5", schema=tmp_path / "a.toml", overwrite=True)
    assert again.notes == summary.notes and again.table.fingerprint == summary.table.fingerprint


@pytest.mark.parametrize("step", [37, 500, N])
def test_several_levels_whatever_the_batches(step):
    _, k, x = levels_and_gaps()
    assert found({"k": (k, list("abcd")), "x": (x, None)}, step) == [
        Absence("x", "k", ("b", "d"), int(np.isin(k, [1, 3]).sum()), 0)
    ]


def test_sorted_rows_deceive_nobody():
    """A level that comes late, or values that come late."""
    _, k, x = levels_and_gaps(6000)
    order = np.argsort(k, kind="stable")
    [a] = found({"k": (k[order], list("abcd")), "x": (x[order], None)})
    assert a.levels == ("b", "d")
    last = np.flatnonzero(k == 3)[-1]
    x[last - 20 : last + 1] = 0.5  # some values, at the end
    assert [a.levels for a in found({"k": (k, list("abcd")), "x": (x, None)})] == []


def test_a_slip_in_a_thousand_is_counted():
    _, k, x = levels_and_gaps(8000)
    x[np.flatnonzero(k == 1)[7]] = 1.0
    [a] = found({"k": (k, list("abcd")), "x": (x, None)})
    assert a.present == 1 and a.condition().endswith("rows, but for 1)") and a.how_often == "hardly ever"


def test_what_lacks_at_random_lacks_nowhere_by_definition():
    for seed in range(100):
        g = np.random.default_rng(seed)
        columns = {f"k{i}": (g.integers(0, 5, 300), list("abcde")) for i in range(5)}
        columns |= {
            f"x{i}": (np.where(g.random(300) < share, np.nan, 1.0 * i), None) for i, share in enumerate((0.1, 0.5, 0.9))
        }
        assert found(columns) == []


def test_few_rows_or_a_small_part_of_the_gaps_say_nothing():
    g, k, x = levels_and_gaps(60)
    assert (
        found(
            {
                "k": (np.where(np.arange(60) < 12, 1, 0), ["a", "b"]),
                "x": (np.where(np.arange(60) < 12, np.nan, 1.0), None),
            }
        )
        == []
    )
    k = g.integers(0, 30, N)
    x = np.where((k == 3) | (g.random(N) < 0.3), np.nan, 1.0)  # one region did not ask, many others did not answer
    assert found({"k": (k, [str(i) for i in range(30)]), "x": (x, None)}) == []
    assert found({"k": (k, [str(i) for i in range(30)]), "x": (np.full(N, np.nan), None)}) == []  # never anywhere


def test_columns_of_one_condition_have_one_line(tmp_path):
    columns = died()
    columns["doctor"] = np.where(columns["status"] == "dead", columns["sex"], "")
    columns["place"] = np.where(columns["status"] == "dead", columns["age"], "")
    notes = import_table(put(tmp_path, columns), tmp_path / "a.h5").notes
    assert len(notes) == 1 and notes[0].startswith(
        "columns 'cause', 'doctor' and 'place' have no value where 'status' is 'alive'"
    )


def test_a_table_of_very_many_levels_is_not_looked_at(monkeypatch):
    _, k, x = levels_and_gaps()
    monkeypatch.setattr(absent, "MOST_PAIRS", 7)
    assert found({"k": (k, list("abcd")), "x": (x, None)}) == []


def test_tables_of_before_have_none(tmp_path):
    assert Absence.stored({}) == [] == Absence.stored(json.loads("{}"))
