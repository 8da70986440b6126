"""A factorization as a run: what is made of it, and bad input; test_family_runs.py has ranks and stops."""

import json

import numpy as np
import pandas as pd
import pytest

import mpibayes as mb
from mpibayes.hpc.svi.factorization.draws import Posterior
from mpibayes.hpc.svi.factorization.law import log_density, scored
from mpibayes.io.sparse import SparseRows
from tests.page.checks import parts_of, problems
from tests.run.conftest import everything, mpibayes, ran, sets
from tests.sparse_tables import write_sparse
from tests.svi.ratings import made

CONFIG = """
[data]
table = "ratings.h5"
heldout = 0.1
[model]
family = "svi"
likelihood = "factorization"
rank = 3
[run]
seed = 5
shards = 4
cycles = 30
[output]
kept = 5
"""
NOISY = ('step.noise="svi+"', "step.effective={growing = 1}", "step.rate=0.85")
STEPS = {
    "noisy": NOISY,
    "batches": ("step.batch=40", "step.rate={delay = 1, decay = 0.6}", 'step.noise="svi+"', "step.effective=2"),
    "paper": (*NOISY, 'step.count="all"', 'step.users="stepped"', "model.learn=false", "model.biases=false"),
}


def make(place):
    x = made(150, 40, 3, True, seed=2)
    users, items = ([f"{of} {i}" for i in range(n)] for of, n in (("u", 150), ("film, part", 40)))
    rows = SparseRows(x.starts, x.columns, x.values)
    write_sparse(place / "ratings.h5", rows, 40, row_ids=users, column_ids=items, names=("user", "item", "rating"))
    write_sparse(place / "same.h5", SparseRows(x.starts, x.columns, 0 * x.values + 3), 40)
    (place / "run.toml").write_text(CONFIG)
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = make(tmp_path_factory.mktemp("ratings"))
    ran(place, "plain", *sets("run.chains=2"))
    return place


@pytest.mark.thorough
def test_what_is_made_of_a_run(place, small_pictures):
    done = mpibayes(place, "report", "plain")
    assert done.returncode == 0 and "An approximation" in done.stdout and "of 2 chains" in done.stdout, done.stderr
    text, page = ((place / "plain" / "report" / name).read_text() for name in ("report.txt", "report.html"))
    assert "the best of 2" in text and problems(page) == []
    items, _ = parts_of(page)
    assert len(items["rows"]) == 40 and items["rows"][0][1] == max(row[1] for row in items["rows"])
    document = json.loads((place / "plain" / "report" / "summary.json").read_text())
    bounds = {run["directory"]: run["bound"] for run in document["runs"]}
    assert document["approximation"] and document["best"]["bound"] == max(bounds.values())
    assert 0.4 < document["rating_sd"] < 0.6 and 0.4 < document["rmse"] < 1.0 and len(document["pictures"]) == 3
    sds = [factor["sd"] for factor in document["factors"]]
    assert sds == sorted(sds, reverse=True) and sds[-1] > 0.3
    assert (place / "plain" / "report" / "items.csv").read_text().startswith("item,ratings,bias,factor_1,factor_2,fac")

    run = Posterior([place / "plain"])
    train, out = run.ratings(np.arange(150))
    assert len(out.columns) == document["table"]["heldout_ratings"] and 100 < len(out.columns) < 260
    law = run.law(run.best())
    ((value, mean, variance),) = scored(run.model, law, train, out)
    assert np.sqrt(((value - mean) ** 2).mean()) == pytest.approx(document["rmse"], rel=1e-12)
    assert log_density(value, mean, variance).mean() == pytest.approx(document["heldout_lpd"], rel=1e-12)
    assert 0.5 < ((value - mean) ** 2 / variance).mean() < 1.6

    done = mpibayes(place, "export", "plain", "--to", "factors", "-o", "factors.csv")
    assert done.returncode == 0, done.stderr
    lines = (place / "factors.csv").read_text().splitlines()
    parts = [line.rsplit(",", 4) for line in lines[1:]]
    assert len(parts) == 190 and parts[0][0] == "user,u 0" and parts[-1][0] == 'item,"film, part 39"'
    numbers = np.array([part[1:] for part in parts], float)
    shown = document["mean"] + numbers[:150, :1] + numbers[150:, 0] + numbers[:150, 1:] @ numbers[150:, 1:].T
    pairs = [(4, 3), (9, 1), (9, 39), (1, 7)]
    text = "item,rating,user\n" + "".join(f'"film, part {j}",3.5,u {i}\n' for i, j in pairs)
    (place / "pairs.csv").write_text(text + '"film, part 1",,who\nwhat,2,u 4\n')
    done = mpibayes(place, "predict", "plain", "pairs.csv", "-o", "pairs-out.csv")
    assert done.returncode == 0 and "1 user not in the table (who)" in done.stderr, done.stderr
    assert "5 ratings: RMSE" in done.stderr
    text = (place / "pairs-out.csv").read_text().replace(", ", " ")
    rows = np.genfromtxt(text.splitlines(), delimiter=",", names=True)
    np.testing.assert_allclose(rows["mean"][:4], [shown[i, j] for i, j in pairs], rtol=2e-4)
    assert np.isnan(rows["log_density"][4]) and (rows["sd"] > document["rating_sd"]).all()

    done = mpibayes(place, "predict", "plain", "--top", "4", "--user", "u 4", "-o", "top.csv")
    assert done.returncode == 0, done.stderr
    lines = [line.split('"') for line in (place / "top.csv").read_text().splitlines()[1:]]
    rated = set(run.data.at(np.array([4])).columns.tolist())
    requested = [j for j in np.argsort(-shown[4]) if j not in rated][:4]
    assert [line[3] for line in lines] == [f"film, part {j}" for j in requested] and {line[1] for line in lines} == {
        "u 4"
    }


@pytest.mark.filterwarnings("ignore::mpibayes.MpibayesWarning")  # how near the ratings are
def test_ratings_of_pairs_in_a_data_frame(place):
    pairs = pd.DataFrame({"item": ["film, part 3", "film, part 9"], "user": ["u 4", "u 7"], "rating": [3.5, 1.0]})
    done = mb.open(place / "plain").predict(pairs)
    pairs.to_csv(place / "pairs.csv", index=False)
    assert mpibayes(place, "predict", "plain", "pairs.csv", "-o", "pairs.parquet").returncode == 0
    expected = pd.read_parquet(place / "pairs.parquet")
    assert done["user"].tolist() == ["u 4", "u 7"] and done["mean"].tolist() == expected["mean"].tolist()
    with pytest.raises(mb.ConfigError, match=r"^DataFrame: no column user and item"):
        mb.open(place / "plain").predict(pd.DataFrame({"x": [1.0]}))


def test_check_says_what_it_takes(place):
    done = mpibayes(place, "check", "run.toml", "--ranks", "2")
    assert done.returncode == 0, done.stderr
    for words in ("factorization of rank 3 with biases", "bytes a rating", "s a cycle", "approximation:"):
        assert words in done.stdout


@pytest.mark.parametrize(
    "changes, words",
    [
        (("step.batch=20", 'step.users="stepped"'), ["step.batch", 'expected "all"']),
        (('step.noise="svi+"',), ["step.effective", "is required"]),
        (('step.noise="positive"',), ["step.noise", '"none" or "svi+"']),
        (("model.rank=0",), ["model.rank", "from 1 to 100"]),
        (("data.heldout=0.9",), ["data.heldout", "a fraction in (0, 0.5]"]),
        (('data.table="same.h5"',), ["data.table", "all ratings are 3"]),
        (("model.components=3",), ["model.components", "no use for it"]),
        (('model.likelihood="gaussian"', "model.rank=3"), ["model.rank"]),
    ],
)
def test_settings_that_do_not_fit(place, changes, words):
    done = mpibayes(place, "run", "run.toml", "-o", "refused", *sets(*changes))
    assert done.returncode == 2 and all(word in done.stderr for word in words), done.stderr
    assert not (place / "refused").exists()


def test_noise_without_a_guard_ends_with_an_error(place):
    words = sets('step.noise="svi+"', 'step.guard="none"', "step.effective=1", 'step.count="all"')
    done = mpibayes(place, "run", "run.toml", "-o", "wild", *words)
    assert done.returncode != 0 and 'set step.guard = "shrink"' in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "text, words, more",
    [
        ("user,film\na,b\n", "no column item", []),
        ("user,item\nu 1,\n", None, []),
        ("user,item\nwho,\"film, part 3\"\n", "user 'who' is not in the table", ["--unseen", "error"]),
        ("user,item\nu 1\n", "pairs", []),
        ("", "pairs", []),
    ],
)  # fmt: skip
def test_pairs_that_cannot_be_predicted(place, tmp_path, text, words, more):
    (tmp_path / "pairs.csv").write_text(text)
    done = mpibayes(place, "predict", "plain", str(tmp_path / "pairs.csv"), "-o", str(tmp_path / "out.csv"), *more)
    if words is None:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode in (2, 3) and words in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "out.csv").exists()


def test_what_a_factorization_has_not(place):
    for words in (("query", "plain", "logp", "--of", "a=1"), ("export", "plain", "--to", "clusters")):
        done = mpibayes(place, *words)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr


def test_ratings_that_come_later_are_refused(place):
    """A sparse table has no parts."""
    x = made(160, 40, 3, True, seed=2)
    write_sparse(place / "more.h5", SparseRows(x.starts, x.columns, x.values), 40)
    other = ("run", "run.toml", "-o", "plain", *sets("run.chains=2", "data.table=more.h5"), "--grow")
    for words in (other, ("import", "run.toml", "ratings.h5", "--append")):
        done = mpibayes(place, *words)
        assert done.returncode in (2, 3) and "a sparse table" in done.stderr, done.stderr


def test_a_run_goes_on_with_the_prior_that_it_had(place):
    """Also where its file does not say, as before there was "auto"; which is another prior."""
    old = ("model.learn=false", "run.cycles=10")
    ran(place, "old", *sets(*old, "model.prior_variance=1.0"))
    ran(place, "half", *sets(*old, "model.prior_variance=1.0", "run.cycles=5"))
    ran(place, "half", *sets(*old))
    ran(place, "new", *sets(*old))
    assert everything(place, "old") == everything(place, "half") != everything(place, "new")
