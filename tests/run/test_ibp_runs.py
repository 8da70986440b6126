"""Indian buffet processes as a run: what is made of it, and bad input; test_family_runs.py has ranks and stops."""

import json

import h5py
import numpy as np
import pytest

from mpibayes.hpc.ibp.draws import iterate_draws
from mpibayes.io.export import export
from mpibayes.io.table import table_from_arrays, write_table
from tests.page.checks import parts_of, problems
from tests.run.conftest import mpibayes, ran, run, run_some, sets

CONFIG = """
[data]
table = "sums.h5"
heldout = 0.1
heldout_cells = 0.1
[model]
family = "ibp"
alpha = 2.0
noise_sd = 0.4
feature_sd = 1.0
[run]
seed = 5
shards = 4
cycles = 40
burn_in = 10
[output]
labels = 4
"""


def sums(path, n=140, seed=4, **changes):
    """A table of sums of three features on six real columns and a count; some cells are missing. changes: other
    columns in place of these, or besides."""
    rng = np.random.default_rng(seed)
    z, loadings = rng.random((n, 3)) < 0.4, 2.0 * rng.normal(size=(3, 7))
    x = z @ loadings + 0.4 * rng.normal(size=(n, 7))
    x[rng.random((n, 7)) < 0.03] = np.nan
    columns = {f"x{d}": ("real", x[:, d], None) for d in range(6)}
    columns |= {"n": ("count", np.round(np.exp(0.3 * x[:, 6])), None)} | changes
    write_table(path, *table_from_arrays([(name, *column) for name, column in columns.items()]))


def make(place):
    sums(place / "sums.h5")
    (place / "run.toml").write_text(CONFIG)
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make(tmp_path_factory.mktemp("features"))


@pytest.fixture(scope="module")
def straight(place):
    """The run "one", on one rank and without a stop."""
    ran(place, "one")
    return place / "one"


def exported(place, out):
    export([place / out], "csv", out=place / "trace.csv", timings=False)
    export([place / out], "features", out=place / "features.txt")
    return (place / "trace.csv").read_bytes(), (place / "features.txt").read_bytes()


def test_a_stop_is_heeded(place):
    done = run_some(place, "stopped", 9)
    assert done.returncode == 75, done.stdout + done.stderr
    status = json.loads((place / "stopped" / "status.json").read_text())
    assert status["state"] == "stopped" and status["last_checkpoint"] == status["cycle"] == 9
    assert {"n_features", "log_joint", "heldout_lpd"} <= status.keys()


@pytest.mark.thorough
def test_features_as_text_are_those_that_were_kept(place, straight):
    """Features are in left-ordered form, of the training rows in table order; `-` of none; burn-in is left out."""
    _, features = exported(place, "one")
    lines = features.decode().splitlines()
    for draw, line in zip(iterate_draws(straight), lines, strict=True):
        strings = line.split() if line != "-" else []
        assert strings == sorted(strings, reverse=True) and len(strings) == len(draw)
        expected = ["".join(str(int(b)) for b in column) for column in draw.rows().T]
        assert strings == sorted(expected, reverse=True)
        assert all(len(s) == 126 and "1" in s for s in strings)
    done = mpibayes(place, "export", "one", "--to", "features", "-o", "later.txt")
    assert done.returncode == 0 and (place / "later.txt").read_text().splitlines() == lines[2:]
    ran(
        place,
        "none",
        *sets("model.alpha=1e-9", "sampler.init=none", "sampler.moves=0", "run.cycles=4", "run.burn_in=0"),
    )
    assert exported(place, "none")[1] == b"-\n"


def test_other_forms(place, straight):
    done = mpibayes(place, "export", "one", "--to", "labels")
    assert (
        done.returncode == 2 and "a model without labels of rows; --to features, --to csv and --to arviz" in done.stderr
    )
    assert mpibayes(place, "export", "one", "--to", "arviz", "-o", "one.h5").returncode == 0
    with h5py.File(place / "one.h5") as file:
        assert {"features_of_row", "log_joint"} <= set(file["posterior"])  # n_features too, unless it never changes
        share = file["kept_draws/share"][:]
        assert share.shape[:2] == (1, 8) and (np.diff(share, axis=2) <= 0).all() and share.max() <= 1


def test_report_and_check_and_status(place, straight, small_pictures):
    done = mpibayes(place, "report", "one")
    assert done.returncode == 0, done.stderr
    text = (straight / "report" / "report.txt").read_text()
    assert "Features of the representative draw" in text and "held-out, averaged" in text and "x3" in text
    page = (straight / "report" / "report.html").read_text()
    assert problems(page) == [] and [part["part"] for part in parts_of(page)] == ["browse", "traces"]
    document = json.loads((straight / "report" / "summary.json").read_text())
    assert sum(document["n_features"].values()) == pytest.approx(1.0)
    k = document["representative"]["n_features"]
    assert len(document["features"]) == k and all(len(f["loadings"]) == 7 for f in document["features"])
    assert {"trace.png", "features.png"} == set(document["pictures"])
    assert (straight / "report" / "loadings.csv").read_text().count("\n") == 1 + 7 * k
    done = mpibayes(place, "check", "run.toml")
    assert done.returncode == 0 and "features are kept every 4 cycles" in done.stdout, done.stdout
    assert "features" in mpibayes(place, "status", "one").stdout


def test_new_rows(place, straight):
    """Features, density and missing cells; a column that the file lacks is missing throughout."""
    sums(place / "new.h5", n=30, seed=4)
    words = ("predict", "one", "new.h5", "-o", "new.csv", "--probabilities", "--impute", "--force")
    done = mpibayes(place, *words)
    assert done.returncode == 0, done.stderr
    rows = np.genfromtxt((place / "new.csv").read_text().splitlines(), delimiter=",", names=True, dtype=None)
    assert len(rows) == 30 and np.isfinite(rows["log_density"]).all() and (rows["n_features"] >= 0).all()
    assert ((rows["p_1"] >= 0) & (rows["p_1"] <= 1)).all() and np.isfinite(rows["fitted_x2"]).all()


def test_gaps_are_filled_in(place, straight):
    """All columns are completed; cells that are there stay, and a count stays a whole number."""
    lines = ["x0,x1,x2,x3,x4,x5,n", "0.5,,1.25,0,0,1,2", ",,,,,,", "0.1,0.2,0.3,0.4,0.5,0.6,"]
    (place / "gaps.csv").write_text("\n".join(lines) + "\n")
    done = mpibayes(place, "predict", "one", "gaps.csv", "--complete", "full.csv", "--force")
    assert done.returncode == 0 and "9 cells filled in" in done.stderr, done.stderr
    head, *rows = (line.split(",") for line in (place / "full.csv").read_text().splitlines())
    assert head == [*lines[0].split(","), "n_features"] and len(rows) == 3
    for line, row in zip(lines[1:], rows):
        assert all(given in ("", now) for given, now in zip(line.split(","), row))
        assert np.isfinite(np.array(row, float)).all() and float(row[6]) == int(float(row[6])) >= 0


@pytest.mark.thorough
def test_held_out_rows_of_a_file(place, straight):
    """Score what a fraction holds out as a file: the same rows, the same training rows, the same scores."""
    from mpibayes.hpc.data.rows import Data
    from mpibayes.io.table import Table

    table = Table.open(place / "sums.h5")
    data = Data(table, (), 0.1)
    parts = {"rest": data.rows_of(0, data.n_rows), "out": data.heldout_of(0, len(data.heldout))}
    for name, rows in parts.items():
        columns = [(c.name, c.kind, getattr(rows, c.block)[:, c.index], None) for c in table.columns]
        write_table(place / f"{name}.h5", *table_from_arrays(columns))
    words = ("model.standardise=false", "data.heldout_cells=none")  # which cells that are depends on the row's number
    ran(place, "file", *sets("data.table=rest.h5", "data.heldout=out.h5", *words))
    ran(place, "fraction", *sets(*words))
    assert exported(place, "file") == exported(place, "fraction")


@pytest.mark.parametrize(
    "changes, code, words",
    [
        (("model.alpha=0",), 2, ["--set model.alpha", "above 0"]),
        (("model.alpha=1e5",), 2, ["than there is room for (4,096)", "set at most"]),
        (("model.noise=column",), 2, ["--set model.noise", "fixes it", "take noise_sd out"]),
        (("model.likelihood=false",), 2, ["model.likelihood = false has no use for it"]),
        (("data.heldout_cells=0.6",), 2, ["a fraction in (0, 0.5]"]),
        (("data.heldout_cells=0.001",), 2, ["--set data.heldout_cells", "about 0.9, too few to score"]),
        (("model.family=mixture",), 2, ["has no use for it", 'model.family = "ibp"', "heldout_cells"]),
        (("report.image=[2, 3]",), 2, ["2 x 3 pixels are 6, and 7 columns are used"]),
        (("run.until=settled",), 2, ["compares chains"]),
        (("model.concentration=1",), 2, ["model.concentration"]),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit(place, changes, code, words):
    done = run(place, "refused", *sets(*changes))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and not (place / "refused").exists()
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.quick("constant")
@pytest.mark.parametrize(
    "column, words",
    [
        (("categorical", np.arange(140) % 3, ["a", "b", "c"]), ["is categorical", "set columns.odd.use = false"]),
        (("real", np.full(140, 2.5), None), ["is constant", "set columns.odd.use = false"]),
        (("real", np.full(140, np.nan), None), ["is constant"]),
    ],
    ids=["categorical", "constant", "empty"],
)
def test_columns_that_have_no_loadings(tmp_path, column, words):
    sums(tmp_path / "sums.h5", odd=column)
    (tmp_path / "run.toml").write_text(CONFIG)
    done = run(tmp_path, "refused", ranks=1)
    assert done.returncode == 2 and all(word in done.stderr for word in words), done.stderr
    ran(tmp_path, "without", *sets("columns.odd.use=false", "run.cycles=3", "run.burn_in=1"))


def test_cells_that_single_precision_cannot_hold(tmp_path):
    huge = np.random.default_rng(0).normal(size=140)
    huge[10:30] = 1e39  # one of them at least is trained on
    sums(tmp_path / "sums.h5", odd=("real", huge, None))
    (tmp_path / "run.toml").write_text(CONFIG)
    done = run(tmp_path, "refused", *sets("model.standardise=false"))
    assert done.returncode == 3 and "'odd'" in done.stderr and "model.standardise = true" in done.stderr, done.stderr
