"""Coordinates of real columns in a run: fitted once and recorded, the same on any number of ranks and when the run goes
on; scores, predictions and answers are in the columns' own units."""

import re
import tomllib

import numpy as np
import pyarrow.csv as pc
import pytest

from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.data.shapes import fit_shapes, log_density
from mpibayes.hpc.run.identity import RESOLVED, write_resolved
from mpibayes.io.shape import Shape
from mpibayes.io.table import Table
from tests.run.conftest import exported, mpibayes, sets

N = 300
BARE = """[data]
table = "t.h5"
heldout = 0.1
[model]
family = "mixture"
[sampler]
split_merge = 4
[run]
cycles = 12
burn_in = 2
shards = 3
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """One population: a skew column in steps, one with long tails and many digits, a normal one, and a letter."""
    folder = tmp_path_factory.mktemp("shapes")
    g = np.random.Generator(np.random.Philox(5))
    cells = zip(g.gamma(2.0, 3.0, N), 50.0 + 2.0 * g.standard_t(3, N), g.standard_normal(N), g.integers(2, size=N))
    lines = [f"{w:.1f},{s:.9f},{z:.9f},{'ab'[k]}" for w, s, z, k in cells]
    (folder / "t.csv").write_text("wait,score,plain,letter\n" + "\n".join(lines) + "\n")
    (folder / "run.toml").write_text(BARE + "[output]\nlabels = 2\n")
    for words in (["import", "t.csv", "t.h5"], ["run", "run.toml", "-o", "run"]):
        done = mpibayes(folder, *words)
        assert done.returncode == 0, done.stderr
    return folder


def recorded(place, run="run"):
    return tomllib.loads((place / run / "config.resolved.toml").read_text())["model"].get("shapes")


def ended(done):
    assert done.returncode == 0, done.stderr
    return done


def test_the_run_says_which(place):
    """The learned shapes are the default."""
    assert sorted(recorded(place)) == ["score", "wait"]
    ended(mpibayes(place, "run", "run.toml", "-o", "plain", "--set", "model.shapes=none"))
    assert recorded(place, "plain") == "none"
    assert exported(place, "plain") != exported(place, "run")


@pytest.mark.thorough
def test_with_views_the_gate_is_the_one_of_views(place, monkeypatch):
    of_views = sets("model.family=crosscat", "sampler.searches=1")
    done = ended(mpibayes(place, "run", "run.toml", "-o", "views", *of_views))
    data = Data(Table.open(place / "t.h5"), (), 0.1, None, True)
    shapes = fit_shapes(data, True)
    assert recorded(place, "views") == ({name: list(shape) for name, shape in shapes.items()} or "none")
    assert ("shapes: " in done.stdout) == bool(shapes)
    monkeypatch.setattr("mpibayes.hpc.data.shapes.MOST_MISFIT", 0.0)
    assert fit_shapes(data, True) == {} and sorted(fit_shapes(data, False)) == ["score", "wait"]


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(place):
    ended(mpibayes(place, "run", "run.toml", "-o", "short", "--set", "run.cycles=5"))
    ended(mpibayes(place, "run", "run.toml", "-o", "short"))
    assert recorded(place, "short") == recorded(place)
    assert exported(place, "short") == exported(place, "run")


def test_its_settings_give_the_same_run(place):
    ended(mpibayes(place, "run", "run/config.resolved.toml", "-o", "again"))
    assert exported(place, "again") == exported(place, "run")


def test_the_same_bits_on_three_ranks(place):
    ended(mpibayes(place, "run", "run.toml", "-o", "three", ranks=3))
    assert recorded(place, "three") == recorded(place)
    assert exported(place, "three") == exported(place, "run")


def test_a_run_of_a_version_without_them_goes_on_without_them(place):
    """Its settings lack the key. The bits are those of shapes = "none"."""
    ended(mpibayes(place, "run", "run.toml", "-o", "old", "--set", "run.cycles=5", "--set", "model.shapes=none"))
    lines = (place / "old" / RESOLVED).read_text().splitlines(keepends=True)
    write_resolved(place / "old", "".join(line for line in lines[:-2] if not line.startswith("shapes =")))
    assert recorded(place, "old") is None
    ended(mpibayes(place, "run", "run.toml", "-o", "old"))
    ended(mpibayes(place, "run", "run.toml", "-o", "none", "--set", "model.shapes=none"))
    assert exported(place, "old") == exported(place, "none")
    refused = mpibayes(place, "run", "run.toml", "-o", "old", "--set", "model.shapes={wait = [1, 1, 0, 1]}")
    assert refused.returncode == 2 and "model.shapes: was " in refused.stderr


def test_scores_are_densities_of_the_columns_own_units(place):
    """A row's density under one cluster of all rows is nearly that of the fitted population."""
    ended(mpibayes(place, "predict", "run", "t.csv", "-o", "scores.csv"))
    scores = np.array(pc.read_csv(place / "scores.csv").to_pydict()["log_density"])
    table = pc.read_csv(place / "t.csv").to_pydict()
    x = {name: np.array(table[name]) for name in ("wait", "score", "plain")}
    expected = sum(log_density(Shape(*shape), x[name]) for name, shape in recorded(place).items())
    z = (x["plain"] - x["plain"].mean()) / x["plain"].std()
    expected += np.log(0.1) + np.log(0.5) - 0.5 * z**2 - np.log(x["plain"].std()) - 0.5 * np.log(2 * np.pi)
    assert np.median(np.abs(scores - expected)) < 0.15 and abs(np.mean(scores - expected)) < 0.1


def test_predictions_and_answers_are_in_the_columns_own_units(place):
    (place / "new.csv").write_text("wait,score,plain,letter\n,,0.1,a\n")
    ended(mpibayes(place, "predict", "run", "new.csv", "-o", "out.csv", "--impute"))
    out = {name: values[0] for name, values in pc.read_csv(place / "out.csv").to_pydict().items()}
    wait = np.array(pc.read_csv(place / "t.csv")["wait"])
    assert abs(out["imputed_wait"] - np.median(wait)) < 0.7 and abs(out["imputed_score"] - 50.0) < 0.5
    assert 2.0 < out["imputed_wait_sd"] < 6.5 and 1.0 < out["imputed_score_sd"] < 5.0
    text = ended(mpibayes(place, "query", "run", "conditional", "wait", "--given", "letter=a")).stdout
    median = float(re.search(r"median\D*([\d.]+)", text)[1])
    assert abs(median - np.median(wait)) < 0.7
    ended(mpibayes(place, "query", "run", "simulate", "-n", "2000", "-o", "made.csv"))
    made = np.array(pc.read_csv(place / "made.csv")["wait"])
    shares = np.quantile(made, [0.25, 0.5, 0.75, 0.95]) / np.quantile(wait, [0.25, 0.5, 0.75, 0.95])
    assert np.abs(shares - 1.0).max() < 0.25  # standard errors of 270 rows are below 0.08
    report = ended(mpibayes(place, "report", "run", "--full")).stdout
    assert "shapes   wait, score: in coordinates" in report


@pytest.mark.parametrize(
    "given, words",
    [
        ("{wait = [1, 1, 0]}", "expected"),
        ("{wait = [1, -1, 0, 1]}", "expected"),
        ("{weight = [1, 1, 0, 1]}", 'no column "weight"'),
        ("{letter = [1, 1, 0, 1]}", "expected real ones"),
    ],
)
def test_wrong_ones_are_refused(place, given, words):
    done = mpibayes(place, "run", "run.toml", "-o", "wrong", "--set", f"model.shapes={given}")
    assert done.returncode == 2 and words in done.stderr and "model.shapes" in done.stderr, done.stderr
    assert not (place / "wrong").exists()
