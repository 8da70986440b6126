"""An outcome from a file of text to the report, predictions and exports."""

import csv
import json

import numpy as np
import pytest

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.report.outcome import _explained
from mpibayes.hpc.crosscat.report.outcome_scores import ALL_COLUMNS, CLUSTERS, COVARIATES, NONE, scores_of
from tests.run.conftest import everything, mpibayes, run_some, sets

N, TRUTH = 360, 0.8
RUN = (
    '[data]\ntable = "people.h5"\nheldout = 0.1\n[model]\nfamily = "mixture"\n[columns.visits]\nuse = false\n'
    "[columns.amount]\nuse = false\n[columns.stage]\nuse = false\n"
    '[outcome]\ncolumn = "sick"\ncovariates = ["age", "sex"]\n'
    "[sampler]\nsplit_merge = 4\n[run]\nseed = 4\nshards = 3\ncycles = 60\nburn_in = 12\n[output]\nlabels = 2\n"
)


def people(path, n=N):
    """Two groups that six columns tell apart; log odds -1.5 and 1.5, and TRUTH by a standard deviation of age."""
    g = np.random.default_rng(1)
    z = g.integers(2, size=n)
    age, sex = g.normal(size=n), g.integers(2, size=n)
    eta = np.array([-1.5, 1.5])[z] + TRUTH * age
    sick, visits = g.random(n) < 1.0 / (1.0 + np.exp(-eta)), g.poisson(np.exp(0.5 * eta))
    odds = np.exp(
        np.stack([0.0 * eta, eta, -0.5 * eta]).cumsum(axis=0)
    )  # by a standard deviation TRUTH, then half of it
    stage = (np.random.default_rng(2).random(n) * odds.sum(axis=0) > odds.cumsum(axis=0)).sum(axis=0)
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "sex", *(f"x{j}" for j in range(6)), "sick", "amount", "visits", "stage"])
        for i in range(n):
            x = (g.random(6) < np.array([0.15, 0.85])[z[i]]).astype(int)
            gap = "" if i % 31 == 0 else ["no", "yes"][int(sick[i])]
            amount = f"{eta[i] + 0.5 * g.normal():.3f}"
            out.writerow([f"{age[i]:.3f}", "fm"[sex[i]], *x, gap, amount, visits[i], ["a", "b", "c"][stage[i]]])


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    place = tmp_path_factory.mktemp("outcome")
    people(place / "people.csv")
    (place / "run.toml").write_text(RUN)
    done = mpibayes(place, "import", "people.csv", "people.h5", "--kind", "visits=count")
    assert done.returncode == 0, done.stderr
    done = mpibayes(place, "run", "run.toml", "-o", "one")
    assert done.returncode == 0, done.stderr
    assert "outcome: sick (logistic) by clusters, covariates age, sex" in done.stderr + done.stdout
    return place


def draws_of(place, name):
    """The lines of `export --to outcome`."""
    text_of(place, "export", name, "--to", "outcome", "-o", f"{name}.txt", "--force")
    return (place / f"{name}.txt").read_text().splitlines()


def first_draws_of(place, name, n):
    """The first n: those of a run of fewer cycles."""
    return draws_of(place, name)[:n]


def text_of(place, *words):
    done = mpibayes(place, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
def test_the_report_has_effects(ran):
    text = text_of(ran, "report", "one", "--full")
    assert "Global coefficients: the odds ratio of each covariate" in text
    assert "held-out rows: log loss of the outcome" in text and "regression on all columns" in text
    short = " ".join(text_of(ran, "report", "one").split())
    assert "The outcome is sick (logistic): odds ratios of clusters against all rows are from 0." in short
    of = json.loads((ran / "one" / "report" / "summary.json").read_text())["outcome"]
    assert of["covariates"]["age"]["q05"] < np.exp(TRUTH) < of["covariates"]["age"]["q95"]
    assert abs(np.log(of["covariates"]["sex[m]"]["q50"])) < 0.9  # three standard errors
    models = of["heldout"]["models"]
    assert models["clusters and covariates"]["log_density"] > models["no predictors"]["log_density"]
    assert sum(line["rows"] for line in models["regression on all columns"]["calibration"]) == of["heldout"]["rows"]
    assert of["without_clusters"]["age"]["q50"] < of["covariates"]["age"]["q50"]  # averages over groups
    apart = sorted(c["q50"] for c in of["clusters"][:2])
    assert apart[0] < 0.5 and apart[1] > 2.0


def test_scores_of_held_out_rows(ran):
    """Probabilities are those of `predict`; without predictors, the share of all rows; each model has one row's score
    after another."""
    run = Posterior([ran / "one"])
    run.read_traces()
    scores = scores_of(run, run.kept())
    lines = (ran / "people.csv").read_text().splitlines()
    (ran / "held.csv").write_text("\n".join([lines[0], *(lines[1 + i] for i in run.data.heldout)]) + "\n")
    text_of(ran, "predict", "one", "held.csv", "-o", "held-p.csv")
    rows = list(csv.DictReader((ran / "held.csv").read_text().splitlines()))
    there = [i for i, row in enumerate(rows) if row["sick"]]
    p = [float(row["sick_p_yes"]) for row in csv.DictReader((ran / "held-p.csv").read_text().splitlines())]
    yes = np.array([rows[i]["sick"] == "yes" for i in there])
    assert 30 < len(yes) == len(scores.second) and np.array_equal(yes, scores.second)
    assert scores.of_class[CLUSTERS] == pytest.approx(np.array(p)[there], abs=1e-4)
    for name, each in scores.log_density.items():
        assert each == pytest.approx(np.log(np.where(yes, scores.of_class[name], 1.0 - scores.of_class[name])))
    training = run.outcomes.answers.y
    assert scores.of_class[NONE] == pytest.approx(np.full(len(yes), np.nanmean(training > 0)), abs=0.03)
    mean = {name: each.mean() for name, each in scores.log_density.items()}
    assert min(mean[CLUSTERS], mean[ALL_COLUMNS]) > mean[COVARIATES] > mean[NONE]
    tenths = scores.tenths(CLUSTERS)
    assert tenths[:, 0].sum() == len(yes) and np.all(np.diff(tenths[:, 1]) >= 0)
    assert tenths[:, 0] @ tenths[:, 2] == yes.sum()


def test_a_covariate_that_labels_do_not_know(ran):
    """A warning of the one that differs between clusters; age does not."""
    of = sets('outcome.covariates=["age", "x0"]', "columns.x0.use=false", "columns.age.use=false", "run.cycles=40")
    text_of(ran, "run", "run.toml", "-o", "unknown", *of)
    text_of(ran, "report", "unknown")
    made = json.loads((ran / "unknown" / "report" / "summary.json").read_text())
    assert [w for w in made["warnings"] if w.startswith("the covariate x0 differs between clusters, and is no column")]
    of = made["outcome"]
    assert set(of["without_clusters"]) == {"age", "x0[1]"} and of["without_clusters"]["x0[1]"]["q50"] > 4.0
    x, labels = np.random.default_rng(1).normal(size=1000), np.arange(1000) % 20
    assert abs(_explained(x, labels)) < 0.02
    assert _explained(x + 0.5 * (labels % 2), labels) == pytest.approx(1 / 17, abs=0.04)


def test_predictions_and_draws(ran):
    """A new row's probability is that of its cluster and age; the export has eta of the training rows."""
    (ran / "new.csv").write_text("age,sex,x0,x1,x2,x3,x4,x5\n1,f,1,1,1,1,1,1\n-1,m,0,0,0,0,0,0\n")
    text_of(ran, "predict", "one", "new.csv", "-o", "p.csv")
    rows = list(csv.DictReader((ran / "p.csv").read_text().splitlines()))
    assert float(rows[0]["sick_p_yes"]) > 0.8 > 0.2 > float(rows[1]["sick_p_yes"])
    assert all(float(r["sick_p_yes_q05"]) <= float(r["sick_p_yes"]) <= float(r["sick_p_yes_q95"]) for r in rows)
    lines = draws_of(ran, "one")
    run = Posterior([ran / "one"])
    draws = [draw for _, draw in run.states()]
    assert len(lines) == len(draws) == 24
    labels, beta, eta = (part.split() for part in lines[-1].split(" | "))
    assert len(labels) == len(eta) == run.n_rows and len(beta) == 2
    theta = draws[-1].outcome["theta"][: draws[-1].labels[0].max() + 1, 0]
    w = run.outcomes.answers.w[0] @ draws[-1].outcome["beta"]
    assert float(eta[0]) == pytest.approx(theta[draws[-1].labels[0][0]] + w)
    done = mpibayes(ran, "predict", "one", "people.csv", "-o", "all.csv")
    assert done.returncode == 0, done.stderr
    (ran / "short.csv").write_text("sex,x0\nf,1\n")
    assert "age" in mpibayes(ran, "predict", "one", "short.csv", "-o", "q.csv").stderr


def test_a_run_that_goes_on_has_the_same_bits(ran):
    for cycles in (20, 30):
        text_of(ran, "run", "run.toml", "-o", "two", *sets(f"run.cycles={cycles}"))
    assert first_draws_of(ran, "one", 9) == draws_of(ran, "two")


@pytest.mark.parametrize(
    "column, likelihood",
    [
        ("amount", "normal"),
        pytest.param("amount", "student-t", marks=pytest.mark.thorough),
        pytest.param("visits", "poisson", marks=pytest.mark.thorough),
    ],
)
def test_other_outcomes(ran, column, likelihood):
    """The slope of age is where it was made, in units of the table."""
    of = sets(f"outcome.column={column}", f"outcome.likelihood={likelihood}", "columns.sick.use=false")
    text_of(ran, "run", "run.toml", "-o", column + likelihood, *of)
    text_of(ran, "report", column + likelihood)
    made = json.loads((ran / (column + likelihood) / "report" / "summary.json").read_text())["outcome"]
    scores = {name: model["log_density"] for name, model in made["heldout"]["models"].items()}
    assert scores["clusters and covariates"] > scores["no predictors"]
    assert "calibration" not in made["heldout"]["models"]["no predictors"]
    truth = np.exp(0.5 * TRUTH) if likelihood == "poisson" else TRUTH
    assert made["covariates"]["age"]["q50"] == pytest.approx(truth, abs=0.15)
    if likelihood == "normal":
        assert made["scale"] < 0.5


OF_STAGES = sets("outcome.column=stage", "columns.sick.use=false", 'outcome.slopes=["x0"]')


@pytest.fixture(scope="module")
def staged(ran):
    text_of(ran, "run", "run.toml", "-o", "staged", *OF_STAGES)
    return ran


@pytest.mark.thorough
def test_an_outcome_of_three_levels(staged):
    """Coefficients are where they were made, for each level against the first; probabilities are those of `predict` and
    of `query`, and the report scores them beside a softmax regression."""
    text = text_of(staged, "report", "staged", "--full")
    assert "the odds ratio of each level against a, of each cluster against all rows" in text
    short = " ".join(text_of(staged, "report", "staged").split())
    assert "odds ratios of levels against a, of clusters against all rows are from" in short
    assert '"noun":"line"' in (staged / "staged" / "report" / "report.html").read_text()
    made = json.loads((staged / "staged" / "report" / "summary.json").read_text())["outcome"]
    for level, truth in (("b", TRUTH), ("c", 0.5 * TRUTH)):
        assert made["covariates"][level]["age"]["q50"] == pytest.approx(np.exp(truth), rel=0.35)
        apart = sorted(c[level]["q50"] for c in made["clusters"][:2])
        assert apart[0] < 1.0 < apart[1]
    scores = {name: model["log_density"] for name, model in made["heldout"]["models"].items()}
    assert scores["clusters and covariates"] > scores["no predictors"]
    assert scores["regression on all columns"] > scores["no predictors"]
    text_of(staged, "predict", "staged", "people.csv", "-o", "stages.csv")
    rows = list(csv.DictReader((staged / "stages.csv").read_text().splitlines()))
    p = np.array([[float(row[f"stage_p_{level}"]) for level in "abc"] for row in rows])
    assert p.sum(axis=1) == pytest.approx(np.ones(N), abs=1e-3)
    stage = np.array(
        ["abc".index(row["stage"]) for row in csv.DictReader((staged / "people.csv").read_text().splitlines())]
    )
    assert np.log(p[np.arange(N), stage]).mean() > -1.0
    given = ["--given", "age=1", "--given", "sex=f", *(w for j in range(6) for w in ("--given", f"x{j}=1"))]
    text_of(staged, "query", "staged", "conditional", "stage", *given, "-o", "s.csv")
    asked = {row["stage"]: float(row["p"]) for row in csv.DictReader((staged / "s.csv").read_text().splitlines())}
    (staged / "one.csv").write_text("age,sex,x0,x1,x2,x3,x4,x5\n1,f,1,1,1,1,1,1\n")
    text_of(staged, "predict", "staged", "one.csv", "-o", "one-p.csv")
    (row,) = csv.DictReader((staged / "one-p.csv").read_text().splitlines())
    assert sum(asked.values()) == pytest.approx(1.0, abs=1e-3)
    assert [asked[level] for level in "abc"] == pytest.approx(
        [float(row[f"stage_p_{level}"]) for level in "abc"], abs=0.02
    )
    assert "stage" in text_of(staged, "query", "staged", "compare", "--rows", "1-50", "--columns", "stage")
    text_of(staged, "synthesize", "staged", "-o", "made-stages", "--copies", "1", "--missing", "none")
    rows = list(csv.DictReader((staged / "made-stages" / "synthetic-1.csv").read_text().splitlines()))
    assert {row["stage"] for row in rows} == {"a", "b", "c"}


@pytest.mark.thorough
def test_three_levels_have_the_same_bits(staged):
    """On one rank, and on two where the run is stopped and goes on; eta of two levels a row."""
    for cycles in (14, 20):
        more = *OF_STAGES, *sets(f"run.cycles={cycles}")
        assert mpibayes(staged, "run", "run.toml", "-o", "staged2", *more, ranks=2).returncode == 0
    one = first_draws_of(staged, "staged", 4)
    assert one == draws_of(staged, "staged2")
    labels, beta, eta = (part.split() for part in one[-1].split(" | "))
    assert len(eta) == 2 * len(labels) and len(beta) == 2 * 2


@pytest.mark.parametrize("slopes", ["[]", pytest.param('["age"]', marks=pytest.mark.thorough)])
def test_an_outcome_without_covariates(ran, slopes):
    """Clusters alone explain it, with the same bits on two ranks."""
    of = sets("outcome.covariates=[]", f"outcome.slopes={slopes}", "run.cycles=8", "run.burn_in=2")
    one, two = (f"without-{len(slopes)}-{ranks}" for ranks in (1, 2))
    text_of(ran, "run", "run.toml", "-o", one, *of)
    assert mpibayes(ran, "run", "run.toml", "-o", two, *of, ranks=2).returncode == 0
    assert draws_of(ran, one) == draws_of(ran, two)


@pytest.mark.thorough
@pytest.mark.parametrize("column", ["sick", "amount"])
def test_firefly_has_the_same_bits(ran, column):
    """On one rank, and on two where the run is stopped and goes on."""
    of = ["run.cycles=16", "run.burn_in=6", f"outcome.column={column}", "columns.sick.use=false"]
    if column == "sick":
        of.pop()
    firefly = sets(*of, "outcome.kernel=firefly", "outcome.steps=3")
    assert mpibayes(ran, "run", "run.toml", "-o", f"f1-{column}", *firefly).returncode == 0
    for more in (sets("run.cycles=10"), []):
        assert mpibayes(ran, "run", "run.toml", "-o", f"f2-{column}", *firefly, *more, ranks=2).returncode == 0
    one, two = (draws_of(ran, f"{kind}-{column}") for kind in ("f1", "f2"))
    assert one == two and len(one) == 5


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", ["hmc", "firefly"])
def test_an_annealed_run_stopped_while_it_grows_has_the_same_bits(ran, kernel):
    """On one rank; and on three and one, stopped twice while rows are idle, before and after the outcome's entry, and
    after burn-in, when some rows are dark."""
    of = ["sampler.strategy=anneal", "anneal.passes=5", "anneal.start_rows=20", "run.cycles=36", "run.burn_in=24"]
    of.append(f"outcome.kernel={kernel}")
    straight, pieces = f"annealed-{kernel}", f"pieces-{kernel}"
    text_of(ran, "run", "run.toml", "-o", straight, *sets(*of))
    text_of(ran, "export", straight, "--to", "csv", "-o", "trace.csv", "--force")
    active = [int(row["active_rows"]) for row in csv.DictReader((ran / "trace.csv").read_text().splitlines())]
    for ranks, cycles in ((3, 5), (1, 9), (1, 14)):
        done = run_some(ran, pieces, cycles, *of, ranks=ranks)
        assert done.returncode == 75, done.stdout + done.stderr
    assert active[4] < active[13] < active[-1] == 324
    assert mpibayes(ran, "run", "run.toml", "-o", pieces, *sets(*of), ranks=3).returncode == 0
    both = []
    for name in (straight, pieces):
        trace, draws = everything(
            ran, name
        )  # rows of theta that no cluster has depend on stops; the export has the others
        both.append((trace, {at: of for at, of in draws.items() if at[1] != "outcome_theta"}, draws_of(ran, name)))
    assert both[0] == both[1]


def test_firefly_needs_a_bound(ran):
    firefly = sets("outcome.kernel=firefly", "run.burn_in=6", "outcome.steps=3")
    assert "Firefly Monte Carlo from cycle 7 on, 3 updates a cycle" in text_of(ran, "check", "run.toml", *firefly)
    done = mpibayes(ran, "check", "run.toml", *sets("outcome.kernel=firefly", "outcome.column=visits"))
    assert done.returncode == 2
    assert '"poisson" has no kernel = "firefly"; logistic and student-t have one. Set kernel = "hmc"' in done.stderr


def test_questions_about_an_outcome(ran):
    """They know it; its gaps are filled, and synthetic rows have it."""
    shown = text_of(ran, "query", "one", "conditional", "sick", "--given", "age=1", "--given", "x0=1", "-o", "c.csv")
    assert not shown or "sick" in shown
    p = {row["sick"]: float(row["p"]) for row in csv.DictReader((ran / "c.csv").read_text().splitlines())}
    assert p["yes"] > 0.75 and p["yes"] + p["no"] == pytest.approx(1.0)
    assert "sick" in text_of(ran, "query", "one", "compare", "--rows", "1-50", "--columns", "sick")
    text_of(ran, "complete", "one", "-o", "filled", "--copies", "1")
    rows = list(csv.DictReader((ran / "filled" / "copy-1.csv").read_text().splitlines()))
    assert {row["sick"] for row in rows} == {"no", "yes"}
    text_of(ran, "synthesize", "one", "-o", "made", "--copies", "1", "--missing", "none")
    rows = list(csv.DictReader((ran / "made" / "synthetic-1.csv").read_text().splitlines()))
    groups = [[row["sick"] == "yes" for row in rows if row["x0"] == x] for x in "01"]
    assert np.mean(groups[0]) < np.mean(groups[1]) - 0.1


def test_what_an_outcome_refuses(ran):
    """Questions that do not know it, predictors with gaps, and settings that it has no law for."""
    for verb in (["predictors", "sick"], ["dependence", "--columns", "sick,age"]):
        done = mpibayes(ran, "query", "one", *verb)
        assert done.returncode == 2 and "is the run's outcome" in done.stderr, verb
    for change, words in {
        'outcome.covariates=["sick"]': "is the outcome itself",
        'outcome.slopes=["age"]': "is among the covariates, too",
        'outcome.covariates=["nobody"]': "the table has no column",
        "outcome.column=x": "the table has no column",
        "outcome.likelihood=poisson": "--set outcome.likelihood: outcome 'sick' is boolean; poisson needs a",
        "outcome.likelihood=normal": 'set outcome.likelihood = "logistic"',
        "outcome.likelihood=softmax": "outcome 'sick' has 2 levels; softmax needs 3 to 32: set outcome.likelihood",
        "outcome.covariate_sd=[1, 2, 3]": "outcome.covariate_sd: has 3 numbers, expected 2",
        "model.links=forest": "cannot be combined with an outcome",
        "model.links=lines": "cannot be combined with an outcome",
        'model.lines=["age", "amount"]': "cannot be combined with an outcome",
        "sampler.opening=all": "cannot be combined with an outcome",
        "outcome.mean=[1, 2]": "outcome.mean: has 2 numbers, expected 1",
        "outcome.mean=1e14": "expected log odds, from -100 to 100",
        "outcome.scale=2.0": 'given, but "logistic" has no use for it',
        "columns.sick.prior={dirichlet=[1.0, 1.0]}": "is the outcome, whose law is in [outcome]",
        "model.family=ibp": 'take it out, or set model.family = "mixture"',
    }.items():
        done = mpibayes(ran, "run", "run.toml", "-o", "none", *sets(change))
        assert done.returncode == 2 and words in done.stderr, (change, done.stderr)
        assert not (ran / "none").exists(), change
    done = mpibayes(ran, "check", "run.toml", *sets("outcome.column=stage", "outcome.kernel=firefly"))
    assert done.returncode == 2 and '"softmax" has no kernel = "firefly"' in done.stderr
    done = mpibayes(ran, "run", "run.toml", "-o", "none", *sets("outcome.column=amount", 'outcome.covariates=["sick"]'))
    assert "lacks 12 cells; predictors" in done.stderr
    done = mpibayes(ran, "export", "one", "--to", "links")
    assert (
        done.returncode == 2 and "a mixture with an outcome learns none" in done.stderr and "forest" not in done.stderr
    )
    done = mpibayes(ran, "export", "bare", "--to", "outcome")
    assert done.returncode != 0


def test_files_without_what_an_outcome_needs(ran):
    """Messages name the file and the outcome."""
    (ran / "without.csv").write_text("age,sex,x0,x1,x2,x3,x4,x5\n1,f,1,1,1,1,1,1\n")
    (ran / "gap.csv").write_text("age,sex,x0,x1,x2,x3,x4,x5,sick\n,f,1,1,1,1,1,1,no\n")
    gap = "gap.csv: rows without all predictors of the outcome 'sick'"
    assert gap in mpibayes(ran, "predict", "one", "gap.csv", "-o", "q.csv").stderr
    assert gap in mpibayes(ran, "run", "run.toml", "-o", "of-gap", *sets("data.heldout=gap.csv")).stderr
    done = mpibayes(ran, "run", "run.toml", "-o", "of-none", *sets("data.heldout=without.csv"))
    assert "held-out rows are scored with their outcome, which needs sick, age, sex" in done.stderr
