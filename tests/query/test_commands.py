"""`mpibayes query` as people use it: every verb, every form of answer, every mistake."""

import csv
import json
from types import SimpleNamespace

import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.cli import main
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.svi.draws import Posterior
from tests.query.runs import people as rows
from tests.query.runs import people_run, write_csv


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return people_run(tmp_path_factory.mktemp("commands"))


@pytest.fixture
def new(tmp_path):
    return write_csv(tmp_path / "new.csv", rows(30, seed=9))


def ask(capsys, run, *arguments, code=0):
    done = main(["query", str(run), *map(str, arguments)])
    out, err = capsys.readouterr()
    assert done == code, err
    return err if code else out


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["logp", "--of", "colour=red", "--given", "age=30", "--given", "day=2024-01-09"], "log p(colour=red | age=30"),
        (["logp", "--of", "height=161"], "a density: 'height' was recorded without a step"),
        (["conditional", "income", "--given", "age=60.."], "median"),
        (["conditional", "colour"], "green"),
        (["simulate", "-n", "3", "--given", "colour=red|blue"], "3 rows given colour=blue|red, seed 1"),
        (["surprisal", "--top", "3"], "given the rest of their row"),
        (["surprisal", "--by", "rows", "--top", "3"], "oddest_cell"),
        (["similarity", "--row", "5", "--top", "2"], "Rows like row 5"),
        (["similarity", "--like", "age=30", "--columns", "colour"], "by the views of colour"),
        (["dependence"], "information"),
        (["predictors", "income"], "Best predictors of income"),
        (["pairs"], "weaker in the run than in the table"),
    ],
)
def test_a_question(capsys, run, arguments, words):
    assert words in ask(capsys, run, *arguments)


@pytest.mark.quick("surprisal")
@pytest.mark.parametrize("verb", ["logp", "impute", "novelty", "simulate", "surprisal"])
def test_rows_of_a_file(capsys, run, new, tmp_path, verb):
    ask(capsys, run, verb, "--rows", new, "-o", tmp_path / "out.csv")
    with open(tmp_path / "out.csv") as file:
        assert len(list(csv.DictReader(file))) >= 10


@pytest.mark.thorough
def test_forms_of_an_answer(capsys, run, new, tmp_path, pictures):
    ask(capsys, run, "conditional", "age", "--given", "colour=red", "-o", tmp_path / "age.png")
    ask(capsys, run, "conditional", "colour", "-o", tmp_path / "colour.png")
    ask(capsys, run, "dependence", "-o", tmp_path / "pairs.png")
    for name in ("age", "colour", "pairs"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    ask(capsys, run, "conditional", "colour", "--rows", new, "--given", "age", "-o", tmp_path / "c.json")
    answer = json.loads((tmp_path / "c.json").read_text())
    assert len(answer["lines"]) == 30 and sum(answer["lines"][0][f"p_{c}"] for c in ("red", "green", "blue")) == (
        pytest.approx(1.0)
    )
    ask(capsys, run, "logp", "--rows", new, "--of", "income", "-o", tmp_path / "p.parquet")
    assert "exists and is kept" in ask(capsys, run, "logp", "--rows", new, "-o", tmp_path / "p.parquet", code=2)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["logp"], "no question: name values"),
        (["logp", "--of", "colour"], "write --of 'colour=VALUE'"),
        (["logp", "--of", "color=red"], "no column 'color'; did you mean 'colour'?"),
        (["logp", "--of", "colour=rad"], "has no level 'rad'; did you mean 'red'?"),
        (["logp", "--of", "age=old"], "'old' is not a finite number"),
        (["logp", "--of", "day=soon"], "'soon' is not a date"),
        (["logp", "--of", "age=9..3"], "9 is above 3"),
        (["logp", "--of", "age=3", "--given", "age=4"], "both asked for and given"),
        (["conditional", "age", "--given", "age=4"], "both asked for and given"),
        (["conditional", "age", "-o", "x.txt"], "the ending of the name decides the format"),
        (["similarity"], "name one row"),
        (["similarity", "--row", "100000"], "expected a row of the table"),
        (["dependence", "--columns", "age"], "name two or more"),
        (["pairs", "--columns", "age"], "a pair has two"),
        (["logq"], "did you mean 'logp'?"),
    ],
)
def test_mistakes(capsys, run, arguments, words):
    assert words in ask(capsys, run, *arguments, code=2)


def test_an_approximation_is_refused():
    run = SimpleNamespace(chains=[SimpleNamespace(home="runs/a")], no_questions=Posterior.no_questions)
    with pytest.raises(ConfigError, match="this approximation has"):
        Asking.of_run(run)


def test_mistakes_in_a_file(capsys, run, tmp_path):
    bad = write_csv(tmp_path / "bad.csv", [{"age": "old", "colour": "red"}])
    assert "old" in ask(capsys, run, "logp", "--rows", bad, code=3)
    new = write_csv(tmp_path / "odd.csv", [{"age": "30", "colour": "violet"}])
    assert "violet" in ask(capsys, run, "logp", "--rows", new, "--unseen", "error", code=3)
    assert "violet" in ask(capsys, run, "logp", "--rows", new)
