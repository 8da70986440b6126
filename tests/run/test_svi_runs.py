"""Variational inference as a run: what is made of it, and bad input; test_family_runs.py has ranks and stops."""

import json

import numpy as np
import pytest

from mpibayes.hpc.svi.draws import Posterior
from mpibayes.io.table import table_from_arrays, write_table
from tests.page.checks import parts_of, problems
from tests.run.conftest import mpibayes, ran, run, sets
from tests.svi.cases import clouds

CONFIG = """
[data]
table = "clouds.h5"
heldout = 0.1
[model]
family = "svi"
likelihood = "finite-dirichlet"
components = 8
[step]
batch = 90
rate = {delay = 1, decay = 0.6}
noise = "svi+"
effective = {growing = 3}
[run]
seed = 5
shards = 4
cycles = 30
[output]
kept = 5
"""
PLAIN = CONFIG.split("[step]")[0] + "[run]" + CONFIG.split("[run]")[1]


def table(path, n=300, **odd):
    x = clouds(n, 3, 3, seed=2)
    columns = [(f"x{d}", "real", 3.0 * x[:, d] + d, None) for d in range(3)]
    write_table(path, *table_from_arrays([*columns, *((name, *column) for name, column in odd.items())]))


def make(place):
    table(place / "clouds.h5")
    (place / "run.toml").write_text(CONFIG)
    (place / "plain.toml").write_text(PLAIN)
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make(tmp_path_factory.mktemp("svi"))


def test_what_is_made_of_a_run(place, small_pictures):
    ran(place, "several", *sets("run.chains=3", "run.cycles=60"), config="plain.toml")
    done = mpibayes(place, "report", "several")
    assert done.returncode == 0 and "An approximation" in done.stdout and "of 3 chains end within" in done.stdout, (
        done.stderr
    )
    text = (place / "several" / "report" / "report.txt").read_text()
    assert "approximation" in text and "the best of 3" in text
    page = (place / "several" / "report" / "report.html").read_text()
    assert problems(page) == [] and "An approximation" in page
    assert [part["part"] for part in parts_of(page)] == ["browse", "traces"]
    document = json.loads((place / "several" / "report" / "summary.json").read_text())
    bounds = {run["directory"]: run["bound"] for run in document["runs"]}
    assert document["approximation"] and document["best"]["bound"] == max(bounds.values())
    assert sum(c["rows"] for c in document["components"]) == 270 and len(document["pictures"]) == 2
    assert sum(c["weight"] for c in document["components"]) == pytest.approx(1.0)
    done = mpibayes(place, "check", "run.toml")
    assert done.returncode == 0 and "an approximation" not in done.stderr and "approximation:" in done.stdout
    (place / "gaps.csv").write_text("x0,x1,x2\n1.5,,2\n,,\n-2,1,2.5\n")
    words = ("-o", "new.csv", "--probabilities", "--impute", "--complete", "full.csv")
    done = mpibayes(place, "predict", "several", "gaps.csv", *words)
    assert done.returncode == 0 and "4 cells filled in" in done.stderr, done.stderr
    rows = np.genfromtxt((place / "new.csv").read_text().splitlines(), delimiter=",", names=True)
    assert rows["log_density"][1] == pytest.approx(0.0, abs=1e-12) and np.isfinite(rows["imputed_x1_sd"][:2]).all()
    done = mpibayes(place, "export", "several", "--to", "clusters", "-o", "clusters.csv")
    assert done.returncode == 0 and (place / "clusters.csv").read_text().count("\n") == 301  # held-out rows too
    best = Posterior([place / "several"])
    (law,) = best.draws(5)
    rows = best.data.heldout_of(0, 30)  # of which the report's score is
    assert law.log_density(rows).mean() == pytest.approx(document["heldout_lpd"], rel=1e-12)


def test_noise_without_a_guard_ends_with_an_error(place):
    done = mpibayes(
        place, "run", "run.toml", "-o", "wild", *sets("step.guard=none", "step.effective=1", "step.rate=0.9")
    )
    assert done.returncode != 0 and 'set step.guard = "shrink"' in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "changes, words",
    [
        (("step.effective=200",), ["--set step.effective", "expected less than step.batch = 90"]),
        (("step.rate=1.5",), ["--set step.rate", "at most 1"]),
        (("model.degrees=2.0",), ["model.degrees", "expected more than 2", "3 columns are used"]),
        (("run.until=settled",), ["restarts of an approximation"]),
        (("step.noise=none",), ["step.effective", "no use for it"]),
    ],
)
def test_settings_that_do_not_fit(place, changes, words):
    done = run(place, "refused", *sets(*changes))
    assert done.returncode == 2 and all(word in done.stderr for word in words), done.stderr
    assert not (place / "refused").exists()


@pytest.mark.parametrize(
    "column, words",
    [
        (("categorical", np.arange(60) % 3, ["a", "b", "c"]), "is categorical"),
        (("real", np.where(np.arange(60) == 5, np.nan, np.arange(60.0)), None), "1 cell missing"),
        (("real", np.full(60, 2.0), None), "is constant"),
    ],
    ids=["categorical", "missing", "constant"],
)
def test_columns_that_a_mixture_cannot_have(tmp_path, column, words):
    table(tmp_path / "clouds.h5", 60, odd=column)
    (tmp_path / "run.toml").write_text(PLAIN)
    done = run(tmp_path, "refused")
    assert done.returncode == 2 and words in done.stderr and "set columns.odd.use = false" in done.stderr, done.stderr
