"""Reports of runs whose tables had rows that came later: what they say of these."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from mpibayes.hpc.comparison import since
from mpibayes.hpc.comparison.in_columns import InColumn
from mpibayes.hpc.comparison.moved import moved_columns, moved_shares, p_value
from mpibayes.io.append import append_rows
from mpibayes.io.ingest import import_table
from mpibayes.io.table import table_from_arrays
from tests.run.conftest import mpibayes, run

CONFIG = """
[data]
table = "people.h5"
heldout = 0.2
[model]
family = "{family}"
[sampler]
split_merge = 1
[run]
shards = 2
cycles = 24
[output]
labels = 2
"""


def csv(place, name, kinds, seed):
    """Rows of so many kinds; those of the last kind have a level and numbers of their own."""
    g, rows = np.random.default_rng(seed), []
    for z in kinds:
        p, q, r = ("abcd"[(z if u < 0.95 else 0)] for u in g.random(3))
        rows.append(f"{p},{q},{r},{g.normal(4 * z):.3f},{g.choice(['u', 'v'])}\n")
    (place / name).write_text("p,q,r,x,s\n" + "".join(rows))
    return place / name


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["mixture", "crosscat"])
def test_new_rows_of_another_kind_are_seen(tmp_path, family, figures):
    g = np.random.default_rng(241)
    (tmp_path / "run.toml").write_text(CONFIG.format(family=family))
    import_table(csv(tmp_path, "may.csv", g.integers(0, 3, 240), 1), tmp_path / "people.h5")
    assert run(tmp_path, "a").returncode == 0
    assert mpibayes(tmp_path, "report", "a").returncode == 0
    assert "since" not in json.loads((tmp_path / "a" / "report" / "summary.json").read_text())
    append_rows(csv(tmp_path, "june.csv", g.integers(0, 3, 60), 2), tmp_path / "people.h5")
    append_rows(csv(tmp_path, "july.csv", np.full(60, 3), 3), tmp_path / "people.h5")
    assert run(tmp_path, "a", "--grow").returncode == 0
    done = mpibayes(tmp_path, "report", "a")
    assert done.returncode == 0 and "The last append added 120 rows" in done.stdout, done.stdout + done.stderr
    before = mpibayes(tmp_path, "report", "a/grown/1").stdout  # which no command continues
    assert "does not continue." in before and "To report on all rows:\n  mpibayes report a\n" in before, before
    assert "mpibayes run" not in before
    result = json.loads((tmp_path / "a" / "report" / "summary.json").read_text())["since"]
    june, july = result["parts"]
    assert (june["files"], june["rows"], july["files"], july["rows"]) == ("june.csv", 60, "july.csv", 60)
    assert abs(june["beyond_the_old"]) < 4 * june["standard_error"] and june["odd"] < 0.2
    assert july["beyond_the_old"] > 4 * july["standard_error"] and july["odd"] > 0.5
    assert july["cells_of_new_levels"] > 100 > june["cells_of_new_levels"] == 0
    moved = {c["column"]: c for c in result["columns"]}
    assert set(moved) == {"p", "q", "r", "x"} and moved["p"]["new_levels"] == ["d"]
    surprising = {c["column"]: c["more"] for c in result["surprising_columns"]}
    assert {"p", "q", "r"} <= set(surprising) and "s" not in surprising and surprising["p"] > 1.0, surprising
    new = [c for c in result["clusters"] if c["new"]]
    assert new and new[0]["now"] > 0.4 and "is new: 0 % to" in new[0]["text"], result["clusters"]
    assert (result["rows_before"], result["run_before"]) == (240, "a/grown/1")
    text, page = ((tmp_path / "a" / "report" / name).read_text() for name in ("report.txt", "report.html"))
    for words in (
        "Since the last append",
        "july.csv",
        "columns that surprise more",
        "columns that moved",
        "clusters that grew or shrank",
    ):
        assert words in text and words in page
    assert mpibayes(tmp_path, "report", "a/grown/1").returncode == 0


def test_columns_that_surprise_less_have_a_table_of_their_own():
    made = [InColumn("a", 1.0, 3.0, 0.1, 0.0), InColumn("b", 2.0, 1.5, 0.1, 0.0), InColumn("c", 2.0, 1.0, 0.1, 0.0)]
    more, less = since._of_cells(SimpleNamespace(in_columns=made, of_old="held-out rows"))
    assert [column.header for column in more.columns][:1] == ["columns that surprise more"]
    assert [[*column.cells] for column in more.columns][::3] == [["a"], ["2.00"]]
    assert [[*column.cells] for column in less.columns][::3] == [["c", "b"], ["1.00", "0.50"]]
    assert less.columns[0].header == "columns that surprise less" and less.columns[3].header == "less"
    assert len(since._of_cells(SimpleNamespace(in_columns=made[1:], of_old=""))) == 1


def test_what_chance_makes_is_no_change():
    """A table of 400 columns without a change has one that moved in one case of a hundred."""
    g = np.random.default_rng(242)
    lots = [g.integers(0, 4, (n, 200)) for n in (900, 300)]
    reals = [g.normal(size=(n, 200)) for n in (900, 300)]
    lots[1][:60, 7], reals[1][:, 9] = 0, reals[1][:, 9] + 1.0
    names = [f"c{i}" for i in range(200)]

    def table(i):
        coded = [(name, "categorical", lots[i][:, j], list("abcd")) for j, name in enumerate(names)]
        return table_from_arrays([*coded, *((f"x{j}", "real", reals[i][:, j], None) for j in range(200))])

    (columns, before), (_, now) = table(0), table(1)
    assert [moved.name for moved in moved_columns(columns, before, now)] == ["x9", "c7"]
    labels = g.integers(0, 40, 2000)
    new = np.arange(2000) >= 1500
    assert moved_shares(labels, new, 0) == []
    (share,) = moved_shares(np.where(new & (labels < 4), 40, labels), new, 0)[:1]
    assert share.label == 40 and share.is_new and share.before == 0.0
    ps = [p_value(g.multinomial(400, [0.5, 0.3, 0.2]), g.multinomial(100, [0.5, 0.3, 0.2])) for _ in range(400)]
    assert 5 <= sum(p < 0.05 for p in ps) <= 40
