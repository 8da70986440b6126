"""Runs with numbers in lines from the command line: ranks, stops, completed and synthetic tables, and configurations
that are refused."""

import csv

import numpy as np
import pytest

from mpibayes.hpc.crosscat.draws import Posterior, iterate_draws
from mpibayes.io.append import append_rows
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table, table_from_arrays, write_table
from tests.links.runs import links_of, require_the_same_in_pieces
from tests.run.conftest import mpibayes, run, small_config

CONFIG = small_config('links = "forest"', "[sampler]\nlink_moves = 2\nsplit_merge = 4", cycles=10)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place, g, n = tmp_path_factory.mktemp("lines"), np.random.default_rng(3), 300
    z, x = g.integers(2, size=n), g.normal(size=n)
    y = x + 3.0 * z + 0.2 * g.normal(size=n)
    gaps = np.where(g.random(n) < 0.1, np.nan, x + 0.2 * g.normal(size=n))
    few = np.where(g.random(n) < 0.7, np.nan, x)
    given = [("x", x), ("y", y), ("w", -y + 0.3 * g.normal(size=n)), ("gaps", gaps), ("few", few)]
    columns = [(name, "real", cells, None) for name, cells in given]
    write_table(place / "table.h5", *table_from_arrays([("c", "categorical", z, ["p", "q"]), *columns]))
    (place / "run.toml").write_text(CONFIG)
    assert run(place, "straight").returncode == 0
    return place


def test_lines_are_found_and_recorded(place):
    assert 'lines = ["x", "y", "w", "gaps"]' in (place / "straight" / "config.resolved.toml").read_text()
    last = links_of(place, "straight")[-1]
    assert sum(parent in (1, 2, 3, 4) for parent in last[1:5]) == 3  # the first may lean on "c"


def test_same_bytes_on_other_ranks_and_continued(place):
    require_the_same_in_pieces(place, "straight", ((5, 3), (10, 2)))


def test_tables_are_completed_and_made_up(place):
    for what in (("complete", "straight"), ("synthesize", "straight", "--rows", "40")):
        done = mpibayes(place, *what, "--copies", "2", "-o", f"{what[0]}d")
        assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_lines_in_views(place):
    """Numbers alone are linked, with the same bytes on ranks and continued; all doors open."""
    views = "--set", "model.family=crosscat", "--set", "model.links=lines", "--set", "sampler.column_moves=2"
    assert run(place, "views", *views).returncode == 0
    draws = list(iterate_draws(place / "views"))
    assert draws[-1].parents[0] == -1 and (draws[-1].parents[1:5] != -1).any() and np.isfinite(draws[-1].numbers).all()
    require_the_same_in_pieces(place, "views", ((5, 3), (10, 2)), *views)
    for what in (
        ("complete", "views", "--copies", "2", "-o", "filled"),
        ("report", "views"),
        ("predict", "views", "table.h5", "-o", "p.csv"),
    ):
        done = mpibayes(place, *what)
        assert done.returncode == 0, done.stderr


def test_kept_draws_have_their_numbers(place):
    run = Posterior([place / "straight"])
    (rows,) = [rows for _, rows in run.slices()]
    x, gaps = (rows.reals[:, next(c.index for c in run.columns if c.name == name)] for name in ("x", "gaps"))
    for _, draw in run.states():
        ((name, (at, values)),) = run.cells(draw).of.items()
        assert name == "gaps" and np.array_equal(at, np.flatnonzero(np.isnan(gaps)))
    off = values - x[at]
    assert len(off) > 10 and np.sqrt((off**2).mean()) < 0.4


def test_completed_cells_lie_by_their_lines(place):
    """Cells of training rows, which are in the draws, and of others."""
    done = mpibayes(place, "complete", "straight", "--copies", "2", "-o", "near")
    assert done.returncode == 0, done.stderr
    table, copies = Table.open(place / "table.h5"), sorted((place / "near").glob("*.csv"))
    rows, index = table.read(0, 300), {c.name: c.index for c in table.columns}
    lacks = np.isnan(rows.reals[:, index["gaps"]])
    assert lacks.sum() > 10 and len(copies) == 2
    for copy in copies:
        filled = np.array([float(row["gaps"]) for row in csv.DictReader(copy.read_text().splitlines())])
        off = (filled - rows.reals[:, index["x"]])[lacks]
        assert np.sqrt((off**2).mean()) < 0.4 and np.std(off) > 0.05, off


def test_a_run_without_the_key_has_no_lines(place):
    """A run of a version before lines resolves to none, and goes on as it was."""
    assert (
        run(
            place, "before", "--set", "model.lines=none", "--set", "model.children=none", "--set", "run.cycles=4"
        ).returncode
        == 0
    )
    resolved = place / "before" / "config.resolved.toml"
    assert 'lines = "none"' in resolved.read_text() and "x = [" in resolved.read_text()


REFUSED = [
    ('model.links=[["x", "gaps"], ["c", "gaps"]]', 'so that "c" cannot depend on its bins'),
    ('model.links=[["x", "y"], ["c", "x"]]', 'so that "c" cannot depend on its bins'),
    ('model.lines=["x", "nothing"]', 'the run has no column of numbers "nothing"'),
]


@pytest.mark.parametrize(("setting", "words"), REFUSED)
def test_what_cannot_be_in_lines(place, setting, words):
    done = run(place, "refused", "--set", setting)
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_rows_that_lack_numbers_in_lines_are_taken_in(tmp_path):
    """A run chooses lines by the rows that it has, and keeps them whatever rows come."""
    g = np.random.default_rng(7)
    for name, gap in (("may.csv", "0.5"), ("june.csv", "")):
        rows = [f"{x:.3f},{2.0 * x:.2f}\n" for x in g.normal(size=30)]
        (tmp_path / name).write_text("".join(["x,y\n", *rows, f"{gap},1.0\n"]))
    import_table(tmp_path / "may.csv", tmp_path / "table.h5")
    (tmp_path / "run.toml").write_text(CONFIG)
    assert run(tmp_path, "may", "--set", "run.cycles=2", "--set", "run.burn_in=1").returncode == 0
    append_rows(tmp_path / "june.csv", tmp_path / "table.h5")
    done = run(tmp_path, "may", "--set", "run.cycles=4", "--set", "run.burn_in=1", "--grow")
    assert done.returncode == 0, done.stderr
    assert 'lines = ["x", "y"]' in (tmp_path / "may" / "config.resolved.toml").read_text()
    (draw,) = list(iterate_draws(tmp_path / "may"))[-1:]
    assert len(draw.numbers) == 1 and np.isfinite(draw.numbers[0])
