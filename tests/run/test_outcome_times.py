"""Times to an event as an outcome, from a file of text to the report, predictions and questions."""

import csv
import json

import numpy as np
import pytest

from mpibayes.hpc.crosscat.draws import Posterior
from tests.run.conftest import everything, mpibayes, run_some, sets
from tests.run.test_outcome_runs import draws_of, text_of

N, TRUTH, EFFECT = 400, 0.7, 1.0
RUN = (
    '[data]\ntable = "people.h5"\nheldout = 0.1\n[model]\nfamily = "mixture"\n'
    '[outcome]\ncolumn = "t"\ncovariates = ["age"]\n'
    "[run]\nseed = 4\nshards = 3\ncycles = 80\nburn_in = 20\n[output]\nlabels = 2\n"
)


def people(path):
    """Two groups that six columns tell apart, with log hazard ratios -EFFECT and EFFECT, and TRUTH by a standard
    deviation of age; hazards rise; a third is censored."""
    g = np.random.default_rng(1)
    z, age = g.integers(2, size=N), g.normal(size=N)
    eta = EFFECT * (2.0 * z - 1.0) + TRUTH * age
    event, end = 100.0 * g.weibull(1.5, size=N) * np.exp(-eta / 1.5), g.uniform(20.0, 300.0, size=N)
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", *(f"x{j}" for j in range(6)), "t", "d"])
        for i in range(N):
            x = (g.random(6) < np.array([0.15, 0.85])[z[i]]).astype(int)
            seen = [f"{min(event[i], end[i]):.2f}", int(event[i] <= end[i])] if i % 37 else ["", ""]
            out.writerow([f"{age[i]:.3f}", *x, *seen])


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    place = tmp_path_factory.mktemp("times")
    people(place / "people.csv")
    (place / "run.toml").write_text(RUN)
    text_of(place, "import", "people.csv", "people.h5", "--survival", "t,d")
    done = mpibayes(place, "run", "run.toml", "-o", "one")
    assert done.returncode == 0, done.stderr
    assert "outcome: t (survival) by clusters, covariates age" in done.stderr + done.stdout
    return place


@pytest.mark.thorough
def test_the_report_has_hazard_ratios(ran):
    text = text_of(ran, "report", "one", "--full")
    assert "the hazard ratio of each cluster against all rows" in text
    of = json.loads((ran / "one" / "report" / "summary.json").read_text())["outcome"]
    low, middle, high = (of["covariates"]["age"][q] for q in ("q05", "q50", "q95"))
    assert abs(middle - np.exp(TRUTH)) < 1.2 * (high - low), "four standard deviations: a false alarm in 10,000"
    apart = sorted((c["q05"], c["q50"], c["q95"]) for c in of["clusters"][:2])
    assert apart[1][1] / apart[0][1] == pytest.approx(np.exp(2.0 * EFFECT), rel=0.3)
    assert 1.0 < of["without_clusters"]["age"]["q50"] < of["covariates"]["age"]["q50"]
    models = {name: model["log_density"] for name, model in of["heldout"]["models"].items()}
    ours, every, own, none = (models[name] for name in (
        "clusters and covariates", "regression on all columns", "regression on the covariates", "no predictors",
    ))  # fmt: skip
    assert ours > own > none and every > none and abs(ours - every) < 0.3


@pytest.mark.thorough
def test_predictions_are_curves(ran):
    """Probabilities of surviving the ends of the parts fall, are higher in the cluster that lives longer, and near the
    truth."""
    (ran / "new.csv").write_text("age,x0,x1,x2,x3,x4,x5\n0,0,0,0,0,0,0\n0,1,1,1,1,1,1\n")
    text_of(ran, "predict", "one", "new.csv", "-o", "p.csv")
    rows = list(csv.DictReader((ran / "p.csv").read_text().splitlines()))
    names = [name for name in rows[0] if name.startswith("t_beyond_") and "_q" not in name]
    first, second = (np.array([float(row[name]) for name in names]) for row in rows)
    ends = np.array([float(name.removeprefix("t_beyond_")) for name in names])
    assert len(ends) == 7 and np.all(np.diff(ends) > 0) and np.all(np.diff(first) < 0) and np.all(first > second)
    for p, sign in ((first, 1.0), (second, -1.0)):
        truth = np.exp(-((ends / 100.0) ** 1.5) * np.exp(-sign * EFFECT))
        assert np.abs(p - truth).max() < 0.15
    low, high = (np.array([float(rows[0][f"{name}_{q}"]) for name in names]) for q in ("q05", "q95"))
    assert np.all(low <= first) and np.all(first <= high)


@pytest.mark.thorough
def test_questions_about_times(ran):
    """Survival by `query` is that of `predict`; censored and missing times are drawn beyond what is known."""
    words = [w for j in range(6) for w in ("--given", f"x{j}=0")]
    (ran / "one.csv").write_text("age,x0,x1,x2,x3,x4,x5\n0,0,0,0,0,0,0\n")
    text_of(ran, "predict", "one", "one.csv", "-o", "q.csv")
    (row,) = csv.DictReader((ran / "q.csv").read_text().splitlines())
    name = [name for name in row if name.startswith("t_beyond_") and "_q" not in name][3]
    of = f"t={name.removeprefix('t_beyond_')}.."
    text_of(ran, "query", "one", "logp", "--of", of, "--given", "age=0", *words, "-o", "l.csv")
    (asked,) = csv.DictReader((ran / "l.csv").read_text().splitlines())
    assert np.exp(float(asked["log_p"])) == pytest.approx(float(row[name]), abs=0.01)
    assert "t" in text_of(ran, "query", "one", "compare", "--rows", "1-50", "--columns", "t")
    text_of(ran, "complete", "one", "-o", "filled", "--copies", "1")
    before, after = (list(csv.DictReader((ran / name).read_text().splitlines()))
                     for name in ("people.csv", "filled/copy-1.csv"))  # fmt: skip
    for old, new in zip(before, after, strict=True):
        if old["d"] == "1":
            assert float(new["t"]) == float(old["t"])
        else:
            assert float(new["t"]) >= float(old["t"] or 0.0)
    done = mpibayes(ran, "synthesize", "one", "-o", "made", "--copies", "1")
    assert done.returncode == 2 and "is of times to an event" in done.stderr


def test_the_state_is_exported(ran):
    lines, run = draws_of(ran, "one"), Posterior([ran / "one"])
    _, draw = list(run.states())[-1]
    labels, beta, eta = (part.split() for part in lines[-1].split(" | "))
    assert len(labels) == len(eta) == run.n_rows and len(beta) == 1
    baseline = run.outcomes.state(draw).law.baseline
    assert len(baseline.hazards) == 8 and np.all(baseline.hazards > 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["mixture", "crosscat"])
def test_the_same_bits(ran, family):
    """On one rank; and on three and one, stopped twice, annealed in a mixture."""
    of = ["run.cycles=30", "run.burn_in=20", f"model.family={family}"]
    if family == "mixture":
        of += ["sampler.strategy=anneal", "anneal.passes=4", "anneal.start_rows=40"]
    text_of(ran, "run", "run.toml", "-o", f"straight-{family}", *sets(*of))
    for ranks, cycles in ((3, 5), (1, 9)):
        done = run_some(ran, f"pieces-{family}", cycles, *of, ranks=ranks)
        assert done.returncode == 75, done.stdout + done.stderr
    assert mpibayes(ran, "run", "run.toml", "-o", f"pieces-{family}", *sets(*of), ranks=3).returncode == 0
    both = []
    for name in (f"straight-{family}", f"pieces-{family}"):
        trace, draws = everything(ran, name)
        both.append((trace, {at: of for at, of in draws.items() if at[1] == "outcome_law"}, draws_of(ran, name)))
    assert both[0] == both[1] and len(both[0][1]) >= 5


@pytest.mark.thorough
def test_a_file_of_held_out_times(ran):
    lines = (ran / "people.csv").read_text().splitlines()
    (ran / "held.csv").write_text("\n".join([lines[0], *lines[2:30]]) + "\n")
    text_of(ran, "run", "run.toml", "-o", "of-file", *sets("data.heldout=held.csv", "run.cycles=20", "run.burn_in=8"))
    text_of(ran, "report", "of-file")
    of = json.loads((ran / "of-file" / "report" / "summary.json").read_text())["outcome"]["heldout"]
    assert of["rows"] == 28 and len(of["models"]) == 4


def test_what_times_refuse(ran):
    for change, words in {
        "outcome.likelihood=poisson": 'is of times to an event: set outcome.likelihood = "survival"',
        "outcome.column=x0": "outcome.likelihood: outcome 'x0' is boolean; survival needs times to an event",
        "outcome.kernel=firefly": '"survival" has no kernel = "firefly"',
        "outcome.scale=2.0": 'given, but "survival" has no use for it',
    }.items():
        more = sets("outcome.likelihood=survival") if change == "outcome.column=x0" else []
        done = mpibayes(ran, "check", "run.toml", *more, *sets(change))
        assert done.returncode == 2 and words in done.stderr, (change, done.stderr)
