"""Questions to regressions: the response given all predictors is what `mpibayes predict` says; the rest is refused."""

import csv

import numpy as np
import pytest

from mpibayes.hpc.cli import main
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.regression.law import Given, Law
from mpibayes.hpc.results.predict import predict
from mpibayes.terminal import Console
from tests.regression.report.conftest import runs, table  # noqa: F401
from tests.regression.report.runs import customers, write_csv

RESPONSE = {"logistic": "bought", "softmax": "bird", "student-t": "price"}


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("new") / "new.csv", customers(n=60, seed=5))


def differences(run, new, folder, likelihood):
    """Differences of log p(response | predictors) from the output of `predict`, in nats, for rows that have both."""
    predict(run, new, folder / "p.csv", overwrite=True, console=Console(quiet=True))
    name = RESPONSE[likelihood]
    assert (
        main(["query", str(run), "logp", "--rows", str(new), "--of", name, "-o", str(folder / "q.csv"), "--force"]) == 0
    )
    pairs = [
        (float(p["log_density"]), float(q["log_p"]))
        for p, q in zip(read(folder / "p.csv"), read(folder / "q.csv"))
        if p["log_density"] and q["log_p"]
    ]
    assert len(pairs) > 30
    return np.abs(np.diff(pairs, axis=1))


@pytest.mark.parametrize("likelihood", ["logistic", "softmax", "student-t"])
def test_the_response_is_predicted(runs, new, tmp_path, likelihood):  # noqa: F811
    """A price that was recorded in steps has the probability of its cell: the density times the step."""
    run = runs[likelihood]
    step = Asking(run).conditions.column(RESPONSE[likelihood]).resolution
    result = differences(run, new, tmp_path, likelihood)
    expected = abs(np.log(step)) if step else 0.0
    np.testing.assert_allclose(result, expected, atol=1e-3 if step else 1e-8)


def test_a_response_that_ignores_its_predictors_is_rejected(runs, new, tmp_path, monkeypatch):  # noqa: F811
    right = Law.given

    def wrong(self, known):
        eta = right(self, known).eta
        return Given(self, np.where(np.isnan(eta), eta, 0.0))

    monkeypatch.setattr(Law, "given", wrong)
    assert np.median(differences(runs["logistic"], new, tmp_path, "logistic")) > 0.05


@pytest.mark.parametrize("likelihood", ["logistic", "student-t"])
def test_simulated_responses_have_the_probabilities(runs, likelihood):  # noqa: F811
    """The share of them in a cell of the response, within 5 standard errors."""
    asking, name = Asking(runs[likelihood], 40), RESPONSE[likelihood]
    from mpibayes.hpc.query.simulate import simulated

    terms = [t.column.name for t in asking.run.design.terms]
    rows = asking.sample(50)
    known = asking.known(rows, terms)
    whole = np.flatnonzero(np.all([which < len(e) for e, which in known.of.values()], axis=0))[0]
    known = known.take(np.array([whole]))
    ((_, d),) = asking.distributions(name, known, 8)
    n = 4000
    drawn = simulated(asking, known.repeat(n), [name], n, seed=3)[name]
    share = np.bincount(d.support.place(drawn), minlength=len(d.support)) / n
    assert d.p[0].sum() == pytest.approx(1.0, abs=1e-6)
    assert (np.abs(share - d.p[0]) < 5.0 * np.sqrt(d.p[0] * (1 - d.p[0]) / n) + 1e-3).all()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["dependence"], "a regression has no law of its predictors"),
        (["pairs"], "a regression has no law of its predictors"),
        (["surprisal"], "a regression has no law of its predictors"),
        (["similarity", "--row", "1"], "a regression has no law of its predictors"),
        (["compare", "--group", "smoker=yes", "--against", "smoker=no"], "a regression has no law of its predictors"),
        (["logp", "--of", "bought=yes", "--given", "age=40"], "give a value of each: "),
        (["conditional", "age"], "a regression has no law"),
    ],
)
def test_what_it_cannot_answer_is_refused(runs, capsys, arguments, words):  # noqa: F811
    assert main(["query", str(runs["logistic"]), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_copies_are_refused(runs, tmp_path, capsys):  # noqa: F811
    for verb in ("complete", "synthesize"):
        assert main([verb, str(runs["logistic"]), "-o", str(tmp_path / "copies")]) == 2
        assert f"{verb}: a regression has no law of its predictors" in capsys.readouterr().err


def test_weights_are_refused(runs, tmp_path, capsys):  # noqa: F811
    """Weights count in clusters alone; a report refuses them, too."""
    for words in (["query", str(runs["logistic"]), "conditional", "bought"], ["report", str(runs["logistic"])]):
        assert main([*words, "--weighted", "-o", str(tmp_path / "out.json")]) == 2
        assert "weights count in the clusters of a mixture or a cross-categorization" in capsys.readouterr().err
