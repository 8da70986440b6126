"""An outcome of a cross-categorization, from a file of text to the report, predictions, questions and exports."""

import csv
import json

import numpy as np
import pytest

from mpibayes.hpc.crosscat.draws import Posterior
from tests.run.conftest import mpibayes, sets
from tests.run.test_outcome_runs import draws_of, first_draws_of, text_of

N, TRUTH, SD = 400, 0.8, 2.0**0.5  # SD of age
RUN = (
    '[data]\ntable = "people.h5"\nheldout = 0.1\n[model]\nfamily = "crosscat"\n'
    '[outcome]\ncolumn = "sick"\ncovariates = ["age"]\n'
    "[sampler]\nsplit_merge = 4\nsearches = 1\n"
    "[run]\nseed = 4\nshards = 3\ncycles = 60\nburn_in = 20\n[output]\nlabels = 2\n"
)
GIVEN = [w for j in range(5) for w in ("--given", f"x{j}=1")]


def people(path):
    """Two groups that five columns tell apart, and two others, of which five more columns and age know: log odds -1.5
    and 1.5 by the first, and TRUTH by a unit of age."""
    g = np.random.default_rng(1)
    z, other = g.integers(2, size=(2, N))
    age = g.normal(size=N) + 2.0 * other - 1.0
    sick = g.random(N) < 1.0 / (1.0 + np.exp(-np.array([-1.5, 1.5])[z] - TRUTH * age))
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", *(f"x{j}" for j in range(5)), *(f"v{j}" for j in range(5)), "sick"])
        for i in range(N):
            x, v = ((g.random(5) < np.array([0.15, 0.85])[of[i]]).astype(int) for of in (z, other))
            out.writerow([f"{age[i]:.3f}", *x, *v, "" if i % 31 == 0 else ["no", "yes"][int(sick[i])]])


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    place = tmp_path_factory.mktemp("outcome")
    people(place / "people.csv")
    (place / "run.toml").write_text(RUN)
    text_of(place, "import", "people.csv", "people.h5")
    text_of(place, "run", "run.toml", "-o", "one")
    return place


@pytest.mark.thorough
def test_the_report_names_the_view(ran):
    text = text_of(ran, "report", "one", "--full")
    assert "of the draws the outcome is in view" in text
    made = json.loads((ran / "one" / "report" / "summary.json").read_text())
    of, view = made["outcome"], made["views"][made["outcome"]["view"] - 1]
    assert of["share_of_draws"] > 0.8 and {f"x{j}" for j in range(5)} <= {c["column"] for c in view["columns"]}
    apart = sorted(c["q50"] for c in of["clusters"][:2])
    assert apart[0] < 0.5 and apart[1] > 2.0
    assert of["covariates"]["age"]["q05"] < np.exp(TRUTH * SD) < of["covariates"]["age"]["q95"]
    models = of["heldout"]["models"]
    assert models["clusters and covariates"]["log_density"] > models["regression on the covariates"]["log_density"]


@pytest.mark.thorough
def test_predictions_and_draws(ran):
    """A new row's probability is that of its cluster and age; `export` has eta of the rows' clusters in that view."""
    (ran / "new.csv").write_text("age,x0,x1,x2,x3,x4\n1,1,1,1,1,1\n-1,0,0,0,0,0\n")
    text_of(ran, "predict", "one", "new.csv", "-o", "p.csv")
    p = [float(row["sick_p_yes"]) for row in csv.DictReader((ran / "p.csv").read_text().splitlines())]
    assert p[0] > 0.8 > 0.2 > p[1]
    lines, run = draws_of(ran, "one"), Posterior([ran / "one"])
    _, draw = list(run.states())[-1]
    z = draw.labels[draw.outcome_view]
    labels, beta, eta = (part.split() for part in lines[-1].split(" | "))
    assert len(np.unique(labels)) == z.max() + 1 and len(labels) == len(eta) == run.n_rows and len(beta) == 1
    w = run.outcomes.answers.w[0] @ draw.outcome["beta"]
    assert float(eta[0]) == pytest.approx(draw.outcome["theta"][z[0], 0] + w[()])


@pytest.mark.thorough
def test_a_run_that_goes_on_has_the_same_bits(ran):
    """On two ranks, where the run is stopped before the outcome has entered, and after."""
    for cycles in (8, 22, 26):
        done = mpibayes(ran, "run", "run.toml", "-o", "two", *sets(f"run.cycles={cycles}"), ranks=2)
        assert done.returncode == 0, done.stderr
    assert first_draws_of(ran, "one", 3) == draws_of(ran, "two")


@pytest.mark.thorough
def test_questions(ran):
    """Answers are those of `predict`; without a value of a covariate in another view there is none."""
    text_of(ran, "query", "one", "conditional", "sick", "--given", "age=1", *GIVEN, "-o", "c.csv")
    p = {row["sick"]: float(row["p"]) for row in csv.DictReader((ran / "c.csv").read_text().splitlines())}
    (ran / "row.csv").write_text("age,x0,x1,x2,x3,x4\n1,1,1,1,1,1\n")
    text_of(ran, "predict", "one", "row.csv", "-o", "r.csv")
    (row,) = csv.DictReader((ran / "r.csv").read_text().splitlines())
    assert p["yes"] == pytest.approx(float(row["sick_p_yes"]), abs=0.02) and sum(p.values()) == pytest.approx(1.0)
    assert "yes" in text_of(ran, "query", "one", "logp", "--of", "sick=yes", "--given", "age=1", *GIVEN)
    done = mpibayes(ran, "query", "one", "conditional", "sick", *GIVEN)
    assert done.returncode == 2 and "predictor 'age' is in another view: give 'age' a value" in done.stderr
    assert "sick" in text_of(ran, "query", "one", "compare", "--rows", "1-50", "--columns", "sick")
    assert "is the run's outcome" in mpibayes(ran, "query", "one", "predictors", "sick").stderr


def test_made_cells(ran):
    """Gaps of the outcome are filled; outcomes of synthetic rows go with columns of its view, and age of another."""
    text_of(ran, "complete", "one", "-o", "filled", "--copies", "1")
    rows = list(csv.DictReader((ran / "filled" / "copy-1.csv").read_text().splitlines()))
    assert {row["sick"] for row in rows} == {"no", "yes"}
    text_of(ran, "synthesize", "one", "-o", "made", "--copies", "1", "--missing", "none")
    rows = list(csv.DictReader((ran / "made" / "synthetic-1.csv").read_text().splitlines()))
    yes = np.array([row["sick"] == "yes" for row in rows])
    x, age = np.array([row["x0"] == "1" for row in rows]), np.array([float(row["age"]) for row in rows])
    assert yes[x].mean() > yes[~x].mean() + 0.1 and yes[age > 0.5].mean() > yes[age < -0.5].mean() + 0.05


@pytest.mark.thorough
def test_check(ran):
    text = text_of(ran, "check", "run.toml")
    assert "sick (logistic) by clusters, covariates age" in text


@pytest.mark.thorough
def test_firefly_has_the_same_bits(ran):
    of = sets("run.cycles=24", "run.burn_in=8", "outcome.kernel=firefly", "outcome.steps=2")
    text_of(ran, "run", "run.toml", "-o", "f1", *of)
    for more in (sets("run.cycles=14"), []):
        assert mpibayes(ran, "run", "run.toml", "-o", "f2", *of, *more, ranks=2).returncode == 0
    assert draws_of(ran, "f1") == draws_of(ran, "f2")
