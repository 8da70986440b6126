"""Answers about a population, by survey weights: against closed forms of the kept draws, and those of rows as they are
where weights are equal. Weights are no part of a table's content, so that one run answers with tables of several."""

import json
from pathlib import Path

import numpy as np
import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.cli import main
from mpibayes.hpc.crosscat import draws as of_draws
from mpibayes.hpc.crosscat.laws.population import log_cluster_weights, mean_weights
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.query import compare, new_rows
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.conditional import Conditional
from mpibayes.hpc.query.dependence import Dependence
from mpibayes.hpc.query.predictors import Predictors
from mpibayes.hpc.query.simulate import Simulate
from mpibayes.hpc.query.surprisal import Surprisal
from mpibayes.hpc.run.table import weights_in_words
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table
from tests.query.runs import people, people_run, write_csv

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"visits": "count", "age": "real", "height": "real", "income": "real"}
W = np.round(np.random.default_rng(8).gamma(1.5, 1.0, 160), 3) * np.where(np.arange(160) % 11, 1.0, 0.0)
WEIGHTS = {"real": W, "unit": np.ones(160), "equal": np.full(160, 0.7)}


def made(folder, family):
    """A run, beside tables of its rows with weights."""
    place = people_run(folder, family)
    for name, weights in WEIGHTS.items():
        rows = [{**row, "w": f"{w}"} for row, w in zip(people(), weights)]
        import_table([write_csv(folder / "w.csv", rows)], folder / f"{name}.h5", kinds=KINDS, weight="w")
    return place


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made(tmp_path_factory.mktemp("weighted"), "crosscat")


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    return made(tmp_path_factory.mktemp("weighted"), "mixture")


def asked(run, table, weighted=None, draws=None):
    asking = Asking(run, draws, table=run.parent / f"{table}.h5")
    asking.weigh(weighted)
    return asking


def answers(asking):
    """Answers to every kind of question about described rows, as columns of numbers and texts."""
    yield Conditional("colour").answer(asking)
    yield compare.compare(asking, ["colour=red"], ["colour=blue"])
    yield Dependence(["colour", "noise"]).answer(asking)
    yield Simulate(80).answer(asking)
    here = new_rows.of_table(asking, np.arange(1, 41), "some")
    yield compare.compare_rows(asking, here, new_rows.of_table(asking, np.arange(41, 161), "others"))


def same(a, b):
    return all(np.array_equal(a.columns[n], b.columns[n], equal_nan=a.columns[n].dtype.kind == "f") for n in a.columns)


@pytest.mark.thorough
def test_equal_weights_change_no_bit(run):
    plain = list(answers(asked(run, "people", draws=5)))
    for table in ("unit", "equal"):
        assert all(map(same, plain, answers(asked(run, table, draws=5)))), table
    assert all(map(same, plain, answers(asked(run, "real", False, 5))))
    assert not any(map(same, plain, answers(asked(run, "real", draws=5))))


def closed_form(asking, column="colour"):
    """The shares of a column's levels: of each draw the weighted shares of its labels and of a new cluster, in numbers
    that are worked out here."""
    run, draws = asking.run, []
    numbers, name = asking.asked.training_numbers(), [c.name for c in run.data.stored].index(column)
    recorded = asking.asked.recorded(numbers)
    stored = next(c for c in asking.columns if c.name == column)
    codes = getattr(recorded, stored.block)[:, stored.index]
    w = asking.run.table.weights()[numbers]
    place = run.components.categorical
    at = next(c for c in range(len(place)) if place.members(c)[0].name == column)
    for _, draw in run.states():
        v = 0 if len(draw.labels) == 1 else int(draw.view_of[name])
        z, (alpha, d) = draw.labels[v], draw.process[v]
        n, k = len(z), int(z.max()) + 1
        tail = (alpha + k * d) / (n + alpha)
        mean = np.array([w[z == j].mean() for j in range(k)])
        size = np.bincount(z)
        share = (size - d) * mean
        share = np.append((1 - tail) * share / share.sum(), tail)
        beta = draw.hyper.dirichlet[at]
        counts = np.array([[np.sum((z == j) & (codes == u)) for u in range(3)] for j in range(k)] + [[0, 0, 0]])
        cells = (counts + beta) / (counts.sum(axis=1, keepdims=True) + 3 * beta)
        draws.append(share @ cells)
    return np.mean(draws, axis=0)


def shares(asking, column="colour"):
    ((_, d),) = asking.distributions(column, Known(1, {}), 24)
    return d.p[0]


def test_shares_are_those_of_weighted_labels(run):
    asking = asked(run, "real")
    assert np.allclose(shares(asking), closed_form(asking), rtol=1e-12)
    assert np.abs(shares(asking) - shares(asked(run, "real", False))).max() > 0.01


def test_shares_of_a_mixture_are_those_of_weighted_labels(mixture):
    test_shares_are_those_of_weighted_labels(mixture)


@pytest.mark.parametrize("wrong", ["inverse", "of other rows", "a new cluster is weighted, too"])
def test_wrong_twins_are_rejected(run, monkeypatch, wrong):
    asking = asked(run, "real")
    right = closed_form(asking)
    if wrong == "a new cluster is weighted, too":
        monkeypatch.setattr(
            "mpibayes.hpc.crosscat.laws.view_law.log_cluster_weights",
            lambda size, alpha, d, mean: log_cluster_weights(size * mean / mean.max(), alpha, d),
        )
    else:
        change = {"inverse": lambda w: 1.0 / (w + 0.1), "of other rows": lambda w: np.roll(w, 1)}[wrong]
        monkeypatch.setattr(of_draws, "mean_weights", lambda z, w, size: mean_weights(z, change(w), size))
    assert not np.allclose(shares(asking), right, rtol=1e-5)


def test_whole_weights_are_rows_repeated_for_given_labels():
    """Shares of the clusters among each other; a new one keeps the weight that it has among the rows that there are."""
    g = np.random.default_rng(2)
    z, w = g.integers(0, 4, 50), g.integers(1, 5, 50)
    size = np.bincount(z)
    weighted = np.exp(log_cluster_weights(size, 1.3, 0.0, mean_weights(z, w / w.max(), size)))
    repeated = np.exp(log_cluster_weights(np.bincount(np.repeat(z, w)), 1.3, 0.0))
    assert np.allclose(weighted[:-1] / weighted[:-1].sum(), repeated[:-1] / repeated[:-1].sum(), rtol=1e-13)
    assert np.isclose(weighted[-1], 1.3 / 51.3) and np.isclose(weighted.sum(), 1.0)
    nobody = mean_weights(z, np.where(z == 2, 0.0, 1.0), size)
    assert log_cluster_weights(size, 1.3, 0.25, nobody)[2] == -np.inf


def test_weights_that_differ_within_clusters_are_remarked_on(run, tmp_path):
    """Weights that depend on a column of noise, which no cluster tells: rows with "p" weigh five times as much. Not
    those that are independent of all columns."""
    rows = [{**row, "w": "5" if row["noise"] == "p" else "1"} for row in people()]
    import_table([write_csv(tmp_path / "w.csv", rows)], tmp_path / "w.h5", kinds=KINDS, weight="w")
    asking = Asking(run, table=tmp_path / "w.h5")
    asking.weigh(None)
    *_, remark = Conditional("noise").answer(asking).remarks
    assert remark.startswith("of the rows themselves, weighted, ") and "between rows of one cluster" in remark
    assert "themselves" not in str(Conditional("colour", ["noise=p"]).answer(asking).remarks)
    asking.weigh(False)
    assert "themselves" not in str(Conditional("noise").answer(asking).remarks)
    for column in ("noise", "colour"):
        assert "themselves" not in str(Conditional(column).answer(asked(run, "real")).remarks)


def test_rows_of_the_table_count_by_their_weights(run):
    """The mean of a group over its rows: of two rows of which one weighs nothing the other's."""
    asking, numbers = asked(run, "real"), np.array([12, 14])
    assert W[11] == 0.0 < W[13]

    def of(numbers):
        asking.weigh(True)
        rows = new_rows.of_table(asking, numbers, "rows")
        return compare.compare_rows(asking, rows, new_rows.of_table(asking, np.array([3]), "one"), ["colour"])

    one, other = (of(n).columns["p_group"][0] for n in (numbers, numbers[1:]))
    assert np.isclose(one, other, rtol=1e-12) and "counts by its weight ('w')" in asking.of_whom
    asking.weigh(True)
    with pytest.raises(ConfigError, match="all of its rows have weight 0"):
        new_rows.of_table(asking, numbers[:1], "rows")


def test_particular_rows_are_asked_about_as_they_are(run):
    """A row says itself what it is; surprisal is that of a table without weights."""
    plain, weighted = (Surprisal(by="rows", top=5).answer(asked(run, t, False)) for t in ("people", "real"))
    assert same(plain, weighted)


def test_drawn_rows_are_of_the_population(run):
    asking = asked(run, "real")
    colours = Simulate(4000, columns=["colour"]).answer(asking).columns["colour"]
    p = shares(asking)
    levels = next(c for c in asking.columns if c.name == "colour").levels
    z = [(np.mean(colours == level) - q) / np.sqrt(q * (1 - q) / 4000) for level, q in zip(levels, p)]
    assert np.abs(z).max() < 4.0  # once in 5,000 seeds


# --- the command and Python -------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_every_answer_says_of_whom_it_is(run, tmp_path, capsys):
    table = ["--table", str(run.parent / "real.h5")]
    question = ["query", str(run), "conditional", "colour", *table]
    assert main([*question, "-o", str(tmp_path / "a.json")]) == 0
    assert "of the population, by the weights of the rows ('w')" in capsys.readouterr().out
    assert json.loads((tmp_path / "a.json").read_text())["of"].startswith("of the population")
    assert main([*question, "--unweighted"]) == 0
    assert "of the rows as they are, without their weights ('w')" in capsys.readouterr().out
    assert main(["query", str(run), "surprisal", *table]) == 0
    assert "of the rows as they are" in capsys.readouterr().out
    assert main(["query", str(run), "conditional", "colour"]) == 0
    assert "weights" not in capsys.readouterr().out
    assert main(["query", str(run), "conditional", "colour", "--weighted"]) == 2
    error = capsys.readouterr().err
    assert "people.h5 has no weights of its rows" in error and "--weight COLUMN" in error


def test_python(run):
    import mpibayes as mb

    opened = mb.open(run, table=run.parent / "real.h5")
    weighted, plain = opened.conditional("colour"), opened.conditional("colour", weighted=False)
    assert not np.array_equal(weighted["p"], plain["p"])
    assert np.array_equal(opened.conditional("colour")["p"], weighted["p"])  # a question leaves nothing behind
    assert "weighted=False" in weighted.notes[-1] and "as they are" in plain.notes[-1]
    rows = run.parent / "people.csv"
    asked_twice = [opened.conditional("colour", rows, given="age", weighted=w) for w in (True, False, None)]
    assert not asked_twice[0].equals(asked_twice[1]) and asked_twice[1].equals(asked_twice[2])
    with pytest.raises(mb.ConfigError, match="has no weights"):
        mb.open(run).simulate(3, weighted=True)


@pytest.mark.thorough
def test_what_weights_do_not_change_is_said(run, tmp_path, capsys):
    """Completed copies have the same cells, and say so; the fit, too."""
    table = ["--table", str(run.parent / "real.h5")]
    for out, more in (("a", []), ("b", table)):
        assert main(["complete", str(run), "-o", str(tmp_path / out), "--copies", "1", *more]) == 0
    assert "analyse copies with the weights" in capsys.readouterr().err
    plain, weighted = ((tmp_path / out / "copy-1.csv").read_text().splitlines()[1:] for out in "ab")
    assert plain == [line.rsplit(",", 1)[0] for line in weighted]
    line = "'w' does not count in the fit, which is of the rows as they are"
    assert weights_in_words(Table.open(run.parent / "real.h5")) == line
    assert weights_in_words(Table.open(run.parent / "people.h5")) == ""


def test_weights_of_rows_that_were_not_trained_on(run, tmp_path):
    """All weight is on the rows held out."""
    held_out = Asking(run).run.held_out
    rows = [{**row, "w": f"{float(h)}"} for row, h in zip(people(), held_out)]
    import_table([write_csv(tmp_path / "w.csv", rows)], tmp_path / "held.h5", kinds=KINDS, weight="w")
    asking = Asking(run, table=tmp_path / "held.h5")
    with pytest.raises(ConfigError, match="all rows that were trained on have weight 0; ask with --unweighted"):
        asking.weigh(None)


@pytest.mark.thorough
def test_ranks_share_weighted_questions(run, mpirun):
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from mpibayes.hpc.cli import main\n"
        "for i, q in enumerate((['conditional', 'age', '--given', 'colour=blue'], ['simulate', '-n', '60'],\n"
        "                       ['compare', '--rows', '1-40'])):\n"
        "    assert main(['query', 'crosscat', *q, '--table', 'real.h5', '-o', f'{sys.argv[1]}-{i}.csv']) == 0\n"
    )
    for n in (1, 2, 3):
        done = mpirun(n, "-c", program, str(n), cwd=run.parent)
        assert done.returncode == 0, done.stderr
    for i in range(3):
        one, *others = ((run.parent / f"{n}-{i}.csv").read_bytes() for n in (1, 2, 3))
        assert all(one == other for other in others)


def test_tables_of_this_run_are_one_content(run):
    assert len({Table.open(run.parent / f"{name}.h5").fingerprint for name in ("people", *WEIGHTS)}) == 1


@pytest.mark.thorough
def test_synthetic_rows_say_of_whom_they_are(mixture, tmp_path, capsys):
    table = ["--table", str(mixture.parent / "real.h5"), "--copies", "2", "--rows", "2000", "-o"]
    for more, words, code in (
        ([], "of the population, by the weights of the rows ('w')", 0),
        (["--unweighted", "--judge"], "without their weights ('w')", 0),
        (["--judge"], "compares synthetic rows with rows as they are", 2),
    ):
        assert main(["synthesize", str(mixture), *table, str(tmp_path / f"t{len(more)}{code}"), *more]) == code
        assert words in capsys.readouterr().err
    first = [(tmp_path / name / "synthetic-1.csv").read_text() for name in ("t00", "t20")]
    assert first[0] != first[1]  # rows near the border of two clusters are in the other one


def test_answers_about_the_population_are_not_compared_with_the_rows(run):
    of = {weighted: Predictors("colour").answer(asked(run, "real", weighted, 5)) for weighted in (None, False)}
    assert "table" in of[False].columns and "table" not in of[None].columns
    assert not any("in the table" in remark for remark in of[None].remarks)
