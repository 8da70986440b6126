"""Regressions as a run: continuations, and bad input; test_family_runs.py has ranks and stops."""

import json

import h5py
import numpy as np
import pytest

from mpibayes.hpc.data.rows import heldout_rows
from mpibayes.io.export import export
from mpibayes.io.table import table_from_arrays, write_table
from tests.run.conftest import mpibayes, run, run_some, sets

RESPONSE = {"logistic": "bought", "softmax": "colour", "student-t": "paid"}
CONFIG = """
[data]
table = "people.h5"
heldout = 0.1
[model]
family = "regression"
likelihood = "{family}"
[regression]
response = "{response}"
predictors = ["age", "job", "children"]
missing = "drop"
[run]
seed = 5
shards = 7
cycles = 400
burn_in = 150
"""


def people(path, n=900, seed=4, **changes):
    """A table with three responses; some cells are missing. changes: other columns in place of these."""
    rng = np.random.default_rng(seed)
    age, job, children = rng.normal(40, 12, n), rng.integers(3, size=n), rng.poisson(1.5, n).astype(float)
    logit = -0.5 + 0.05 * (age - 40) + np.array([0, 0.7, -0.6])[job]
    columns = {
        "age": ("real", np.where(rng.random(n) < 0.02, np.nan, age), None),
        "job": ("categorical", job, ["clerk", "nurse", "farmer"]),
        "children": ("count", children, None),
        "bought": ("boolean", (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int), ["no", "yes"]),
        "colour": (
            "categorical",
            (np.c_[logit, -logit, 0 * logit] + rng.gumbel(size=(n, 3))).argmax(axis=1),
            ["red", "green", "blue"],
        ),
        "paid": ("real", 3 + 2 * logit + rng.standard_t(4, n), None),
    }
    columns |= changes
    write_table(path, *table_from_arrays([(name, *column) for name, column in columns.items()]))


def make(place, family="logistic"):
    people(place / "people.h5")
    configure(place, family)
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make(tmp_path_factory.mktemp("regressions"))


def configure(place, family="logistic", text=CONFIG):
    (place / "run.toml").write_text(text.format(family=family, response=RESPONSE[family]))


def trace_of(place, out):
    export([place / out], "csv", out=place / "trace.csv", timings=False)
    return (place / "trace.csv").read_bytes()


def test_a_stop_is_heeded_between_batches(place):
    configure(place)
    done = run_some(place, "stopped", 3, "run.cycles=1000000", "run.burn_in=150", ranks=2)
    assert done.returncode == 75, done.stdout + done.stderr
    status = json.loads((place / "stopped" / "status.json").read_text())
    assert status["state"] == "stopped" and status["last_checkpoint"] == status["cycle"] > 0
    assert {"lp", "n_bright", "acceptance_rate"} <= status.keys() and status["rows_per_second"] is None
    cycles = status["cycle"] + 20
    assert run(place, "stopped", *sets(f"run.cycles={cycles}", "run.burn_in=150")).returncode == 0
    assert trace_of(place, "stopped").count(b"\n") == cycles + 1


def test_shards_are_those_of_the_first_start(place):
    """run.shards = "auto" in a later start means what it meant, or was, at the first."""
    configure(place, text=CONFIG.replace("shards = 7", ""))
    words = sets("run.cycles=200", "run.burn_in=50")
    assert run(place, "six", *words, *sets("run.shards=6")).returncode == 0
    assert run(place, "pieces-six", *sets("run.cycles=60", "run.burn_in=50", "run.shards=6")).returncode == 0
    done = run(place, "pieces-six", *words, ranks=2)
    assert done.returncode == 0, done.stderr
    assert trace_of(place, "pieces-six") == trace_of(place, "six")


def test_thinned_traces_keep_all_queries(place):
    """A line has the queries of the cycles that were left out before it, also where a start ended among them."""
    configure(place)
    words = sets("firefly.refresh=20", "output.log_posterior=15")
    assert run(place, "every-cycle", *words).returncode == 0
    for cycles in (130, 257, 400):
        done = run(place, "thinned", *words, *sets("output.thin=10", f"run.cycles={cycles}"), ranks=cycles % 2 + 1)
        assert done.returncode == 0, done.stderr
    whole, thinned = (
        np.genfromtxt(trace_of(place, out).decode().splitlines(), delimiter=",", names=True)
        for out in ("every-cycle", "thinned")
    )
    assert thinned["cycle"].tolist() == list(range(10, 401, 10))
    for name in ("queries_theta", "queries_z"):
        assert thinned[name].sum() == whole[name].sum()
    assert thinned["cycle"][np.isfinite(thinned["log_posterior"])].tolist() == list(range(20, 401, 20))


@pytest.mark.parametrize("damage", ["remove", "null", '{"theta": {"coefficient": ["a"]}}'])
def test_names_of_coefficients_that_were_changed_are_told(place, damage):
    configure(place)
    if not (place / "axes").exists():
        assert run(place, "axes", *sets("run.cycles=30", "run.burn_in=10")).returncode == 0
    path = place / "axes" / "trace" / "axes.json"
    path.unlink() if damage == "remove" else path.write_text(damage)
    for words in (("export", "axes", "--to", "csv"), ("report", "axes")):
        done = mpibayes(place, *words)
        assert done.returncode == 4 and "axes.json: missing or changed" in done.stderr, done.stderr
    assert run(place, "axes", *sets("run.cycles=31", "run.burn_in=10")).returncode == 0
    assert trace_of(place, "axes").count(b"\n") == 32


def test_the_trace_has_names_that_arviz_knows(place):
    configure(place, "softmax")
    assert run(place, "named", *sets("run.cycles=30", "run.burn_in=10", "output.thin=3")).returncode == 0
    with h5py.File(place / "named" / "trace.h5") as file:
        theta = file["posterior/theta"]
        assert theta.shape == (1, 7, 3, 5) and file["warmup_posterior/theta"].shape == (1, 3, 3, 5)
        assert [theta.dims[i][0].name.split("/")[-1] for i in range(4)] == ["chain", "draw", "class", "coefficient"]
        names = file["posterior/coefficient"].asstr()[:].tolist()
        assert names == ["(intercept)", "age", "job[nurse]", "job[farmer]", "children"]
        assert file["posterior/class"].asstr()[:].tolist() == ["red", "green", "blue"]
        stats = file["sample_stats"]
        assert {"lp", "log_posterior", "acceptance_rate", "step_size", "n_bright", "queries_z"} <= set(stats)
        assert stats["n_bright"].dtype == np.int64 and np.isfinite(stats["lp"]).all()
    xarray = pytest.importorskip("xarray")
    opened = xarray.open_dataset(place / "named" / "trace.h5", group="posterior", engine="h5netcdf")
    assert opened.theta.sel({"class": "blue", "coefficient": "age"}).shape == (1, 7)


def test_log_posterior_is_that_of_all_rows(place):
    """Without bounds lp is the log posterior itself; with them it is looked at every so often, and lp is below it."""
    configure(place)
    assert run(place, "every", *sets("output.log_posterior=7", "run.cycles=70")).returncode == 0
    trace = np.genfromtxt(trace_of(place, "every").decode().splitlines(), delimiter=",", names=True)
    reported = np.isfinite(trace["log_posterior"])
    assert trace["cycle"][reported].tolist() == list(range(7, 71, 7))
    assert (trace["lp"][reported] < trace["log_posterior"][reported]).all()


# --- what cannot be ---------------------------------------------------------------------------------------------------


def refused(place, code, *words, ranks=1):
    """The command's message, given once, without a traceback, and without making a run directory."""
    done = run(place, "refused", *words, ranks=ranks)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr and done.stderr.count("mpibayes: error:") == 1
    assert not (place / "refused").exists()
    return done.stderr


@pytest.mark.parametrize(
    "changes, code, words",
    [
        (("regression.response=bougt",), 2, ["--set regression.response", "did you mean bought?"]),
        (("regression.response=colour",), 2, ["3 levels", 'likelihood = "softmax"']),
        (("regression.missing=error",), 3, ["'age'", 'missing = "drop"']),
        (('regression.predictors=["age", "bought"]',), 2, ["is the response itself"]),
        (("sampler.opening=all",), 2, ["no use for it"]),
        (("model.discount=0.2",), 2, ["no use for it"]),
        (("regression.prior_scale=heldout", "data.heldout=none"), 2, ["set data.heldout"]),
        (("regression.prior=flat", "firefly.init=prior"), 2, ["a flat prior has no draws"]),
        (("regression.scale=1.0",), 2, ['model.likelihood = "logistic" has none; take it out']),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit(place, changes, code, words):
    configure(place)
    text = refused(place, code, *sets(*changes))
    assert all(word in text for word in words), text


@pytest.mark.thorough
@pytest.mark.parametrize("changes, code", [(("regression.response=bougt",), 2), (("regression.missing=error",), 3)])
def test_settings_that_do_not_fit_on_three_ranks(place, changes, code):
    configure(place)
    refused(place, code, *sets(*changes), ranks=3)


def test_a_run_of_an_older_version_is_not_continued(place):
    """Its checkpoint has another prior of the intercept."""
    configure(place)
    assert run(place, "older", *sets("run.cycles=20", "run.burn_in=5")).returncode == 0
    (manifest,) = (place / "older").glob("**/MANIFEST.json")
    manifest.write_text(manifest.read_text().replace('"version": 4', '"version": 2'))
    done = run(place, "older", *sets("run.cycles=40", "run.burn_in=5"))
    assert done.returncode == 4 and "An older mpibayes wrote it" in done.stderr, done.stderr
    assert done.stderr.count("mpibayes: error:") == 1 and "Traceback" not in done.stderr
    assert run(place, "older", *sets("run.cycles=40", "run.burn_in=5"), "--fresh").returncode == 0


def with_columns(tmp_path, **changes):
    people(tmp_path / "people.h5", **changes)
    configure(tmp_path)
    return tmp_path


def test_separable_classes_with_a_flat_prior(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=900)
    place = with_columns(tmp_path, age=("real", x, None), bought=("boolean", (x > 0.1).astype(int), ["no", "yes"]))
    assert "separated" in refused(place, 3, *sets("regression.prior=flat"), ranks=2)
    assert run(place, "gaussian", *sets("run.cycles=20", "run.burn_in=5")).returncode == 0


def test_collinear_predictors(tmp_path):
    rng = np.random.default_rng(0)
    age = rng.normal(40, 12, 900)
    place = with_columns(tmp_path, age=("real", age, None), children=("real", 2 * age + 1, None))
    text = refused(place, 3, *sets("regression.prior=flat"))
    assert "'children' is a combination of" in text
    done = run(place, "collinear", *sets("run.cycles=20", "run.burn_in=5"))
    assert done.returncode == 0 and "'children' is a combination of" in done.stdout


def test_a_constant_predictor(tmp_path):
    place = with_columns(tmp_path, children=("count", np.full(900, 2.0), None))
    assert "'children' is constant" in refused(place, 3)


def test_a_level_without_a_class_is_a_warning(tmp_path):
    """Such a coefficient is ended by the prior alone, which is slow to sample."""
    rng = np.random.default_rng(0)
    job, bought = rng.integers(3, size=900), rng.integers(2, size=900)
    place = with_columns(
        tmp_path, job=("categorical", job, ["clerk", "nurse", "farmer"]),
        bought=("boolean", np.where(job == 2, 0, bought), ["no", "yes"]),
    )  # fmt: skip
    done = run(place, "unmet", *sets("run.cycles=30", "run.burn_in=10"))
    assert done.returncode == 0 and "rows with job 'farmer' has bought 'yes'" in done.stdout, done.stdout


def test_an_intercept_alone(place):
    configure(place)
    done = run(place, "alone", *sets("regression.predictors=[]", "run.cycles=30", "run.burn_in=10"))
    assert done.returncode == 0 and "1 coefficient, gaussian prior of scale 10, " in done.stdout, done.stdout
    assert trace_of(place, "alone").startswith(b"cycle,lp,") and b"theta[(intercept)]" in trace_of(place, "alone")


def test_an_intercept_far_out_in_its_prior_is_a_warning(tmp_path):
    """A response in its own units, far from 0."""
    paid = 5000.0 + np.random.default_rng(0).normal(0, 40, 900)
    place = with_columns(tmp_path, paid=("real", paid, None))
    configure(place, "student-t")
    words = sets('regression.predictors=["job"]', "regression.prior=laplace", "run.cycles=20", "run.burn_in=5")
    done = run(place, "far", *words, *sets("regression.standardise=false", "regression.intercept_scale=400"))
    assert done.returncode == 0 and "laplace prior of scale 2.5 (intercept: gaussian of scale 400)" in done.stdout
    assert "the intercept's mode is 12.5 standard deviations of its prior from 0" in done.stdout, done.stdout
    assert "standard deviations of its prior" not in run(place, "near", *words).stdout


def test_bad_cells_of_held_out_rows_are_named_by_their_row(tmp_path):
    row = int(heldout_rows(900, 0.1)[20])
    age = np.random.default_rng(0).normal(40, 12, 900)
    age[row] = 1e39
    place = with_columns(tmp_path, age=("real", age, None))
    text = refused(place, 3, *sets("regression.standardise=false", "regression.prior_scale=heldout"), ranks=2)
    assert "held-out rows: " in text and f"the first in row {row + 1:,}" in text, text


def test_a_class_that_never_occurs(tmp_path):
    rng = np.random.default_rng(0)
    place = with_columns(tmp_path, colour=("categorical", rng.integers(2, size=900), ["red", "green", "blue"]))
    configure(place, "softmax")
    assert "'blue'" in refused(place, 3, ranks=2)


def test_fewer_rows_than_coefficients(tmp_path):
    people(tmp_path / "people.h5", n=6)
    configure(tmp_path)
    every = 'regression.predictors=["age", "job", "children", "colour", "paid"]'
    words = sets("data.heldout=none", "regression.missing=indicator", "run.shards=1", every)
    assert "fewer than the" in refused(tmp_path, 3, *words, *sets("regression.prior=flat"))
    done = run(tmp_path, "few", *words, *sets("run.cycles=20", "run.burn_in=5"))
    assert done.returncode == 0 and "fewer than the" in done.stdout, done.stderr


def test_check_tells_what_will_happen(place):
    configure(place)
    done = mpibayes(place, "check", "run.toml", "--ranks", 2)
    assert done.returncode == 0, done.stderr
    for words in ("logistic regression of bought", "rows will be bright", "memory", "importance"):
        assert words in done.stdout, (words, done.stdout)
