"""Where groups differ: closed forms of the divergence, conditionals that are those of `conditional`, planted
differences; sets of predictors: a column that two others tell together and neither alone."""

import numpy as np
import pytest

import mpibayes as mb
from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.data.events import everyone
from mpibayes.hpc.query import predictors
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.compare import CELLS, Compare, _described, compare, compare_rows, compare_runs, divergence
from mpibayes.hpc.query.dependence import information
from mpibayes.hpc.query.new_rows import rows_of
from mpibayes.hpc.query.predictors import best_set
from mpibayes.hpc.query.question import ask as answered
from mpibayes.hpc.report.drawing import png
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table
from tests.crosscat.report.runs import make_run
from tests.query.runs import people, write_csv

people_as_texts = people  # the name is a fixture's here, too


def by_name(answer, value):
    return dict(zip(answer.columns["column"], answer.columns[value]))


def test_closed_forms_of_the_divergence():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.0, 1.0])
    assert divergence(p, q) == pytest.approx(np.log(2.0)) and divergence(p, p) == pytest.approx(0.0)
    a, b = np.array([0.9, 0.1]), np.array([0.4, 0.6])
    m = 0.5 * (a + b)

    def entropy(x):
        return -(x * np.log(x)).sum()

    assert divergence(a, b) == pytest.approx(entropy(m) - 0.5 * entropy(a) - 0.5 * entropy(b))
    assert divergence(7.0 * a, b) == pytest.approx(divergence(a, b))
    kl = (a * np.log(a / b)).sum()
    assert abs(kl - divergence(a, b)) > 0.1  # the relative entropy of one to the other is another thing


@pytest.mark.thorough
def test_groups_have_the_conditionals(asking):
    known = everyone(asking.conditions.read(["colour=red"]))
    cells = asking.supports(["age", "income", "noise"], CELLS)
    group = _described(asking, "red", known, cells)
    for name in cells:
        ((_, d),) = asking.distributions(name, known, CELLS)
        np.testing.assert_allclose(group.p[name], d.p[0], atol=1e-12)
        without = np.array([p[0] for p in d.sums.without_each()])
        np.testing.assert_allclose(group.without[name], without, atol=1e-12)


@pytest.mark.thorough
def test_the_planted_difference_is_found(asking):
    """The two groups of people differ in all but `noise`; its divergence is small beside that of any other."""
    answer = compare(asking, ["colour=red"], ["colour=blue"])
    result, error = by_name(answer, "divergence"), by_name(answer, "divergence_error")
    assert "colour" not in result and min(v for n, v in result.items() if n != "noise") > 0.2 > 4.0 * result["noise"]
    assert (np.diff(answer.columns["divergence"]) <= 0).all() and all(e < 0.1 for e in error.values())
    assert any("clusters of the report" in r for r in answer.remarks)
    assert png(answer.picture()).startswith(b"\x89PNG")
    alike = compare(asking, ["noise=p"], ["noise=q"])
    assert max(by_name(alike, "divergence").values()) < 0.02


@pytest.mark.quick("crosscat")
def test_rows_of_two_files(asking, tmp_path):
    rows = people(300, seed=21)
    old = [r for r in rows if r["age"] and int(r["age"]) > 50]
    young = [r for r in rows if r["age"] and int(r["age"]) < 40]
    files = [rows_of(asking, write_csv(tmp_path / f"{n}.csv", r)) for n, r in (("old", old), ("young", young))]
    answer = compare_rows(asking, *files)
    assert by_name(answer, "divergence")["visits"] > 0.2 and by_name(answer, "divergence")["noise"] < 0.05
    empty = by_name(compare_rows(asking, files[0], files[0]), "divergence")
    assert max(empty.values()) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.thorough
def test_rows_of_the_table_by_their_numbers(people, asking, tmp_path):
    """Groups named on the command line and in Python equal the same rows in files, or all others."""
    ages = asking.asked.recorded(np.arange(160)).reals[:, asking.conditions.column("age").index]
    old = np.flatnonzero(ages > 50) + 1
    (tmp_path / "old.txt").write_text("\n".join(map(str, old)) + "\n")

    def ask(rows, against=None):
        answer = answered(Compare(rows=rows, against_rows=against, unseen="error"), asking)
        return by_name(answer, "divergence"), answer

    result, answer = ask(f"@{tmp_path / 'old.txt'}")
    assert result["visits"] > 0.2 and result["noise"] < 0.05
    assert answer.title.startswith(f"{len(old)} rows of the table against the others (")
    rest = np.setdiff1d(asking.asked.training_numbers() + 1, old)
    assert ask(",".join(map(str, old)), ",".join(map(str, rest)))[0] == result
    run = mb.open(people)
    mine = run.compare(rows=old.tolist())
    assert dict(zip(mine["column"], mine["divergence"])) == result and len(run.compare(rows=range(1, 9))) == 7
    rows = people_as_texts()
    files = [write_csv(tmp_path / f"{i}.csv", [rows[k - 1] for k in subset]) for i, subset in enumerate((old, rest))]
    assert ask(str(files[0]), str(files[1]))[0] == pytest.approx(result, abs=1e-9)
    beyond = [("1-99999999999", "row 99999999999: expected"), ("9" * 5000, r"row 9{17}\.\.\.: expected rows")]
    wrong_rows = [("0-3", "row 0: expected rows"), ("7,161", "row 161"), ("9-3", "9 is above 3"), *beyond]
    for wrong, words in wrong_rows:
        with pytest.raises(ConfigError, match=words):
            ask(wrong)
    (tmp_path / "blanks.txt").write_text("1" + " " * 100_000 + "x")  # took a time in the square of the blanks
    with pytest.raises(DataError, match="expected numbers of rows"):
        ask(f"@{tmp_path / 'blanks.txt'}")
    with pytest.raises(ConfigError, match="name the other group"):
        ask(str(files[0]))
    with pytest.raises(ConfigError, match="whole numbers of rows"):
        run.compare(rows=[1.5])


@pytest.mark.quick("crosscat")
def test_two_runs(people, asking):
    answer = compare_runs(asking, Asking(people))
    assert max(by_name(answer, "divergence").values()) == pytest.approx(0.0, abs=1e-12)
    assert len(answer.columns["column"]) == 7


@pytest.mark.parametrize(
    "group, against, words",
    [
        ([], ["colour=red"], "name the first group"),
        (["colour=red"], [], "name the second group"),
        (["colour=red"], ["colour=violet"], "no level 'violet'"),
    ],
)
def test_mistakes(asking, group, against, words):
    with pytest.raises(ConfigError, match=words):
        Compare(group, against).answer(asking)


# --- sets of predictors -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def riddle(tmp_path_factory):
    """A run on `sum`, which says whether `a` and `b` are alike, `hint`, which tells it a little, and `noise`."""
    folder, g = tmp_path_factory.mktemp("riddle"), np.random.default_rng(6)
    rows = []
    for _ in range(400):
        a, b = int(g.integers(2)), int(g.random() < 0.3)
        s = a ^ b
        hint = s if g.random() < 0.6 else 1 - s
        values = {"a": "uv"[a], "b": "xy"[b], "sum": ("no", "yes")[s], "hint": "st"[hint], "noise": "pq"[g.integers(2)]}
        rows.append(values)
    import_table([write_csv(folder / "r.csv", rows)], folder / "r.h5")
    more = {"cycles": 60, "burn_in": 30, "chains": 2}
    return make_run(folder / "run", Table.open(folder / "r.h5"), text="[model]\nfamily = 'mixture'\n", **more)


def exact(asking, target, names):
    """I(target; names) by the joint table of all their levels."""
    import itertools

    def p(cells):
        given = everyone(asking.conditions.read([f"{n}={v}" for n, v in cells.items()]))
        return float(np.exp(asking.log_p(given, everyone({}))[0][0]))

    levels = {n: asking.conditions.column(n).levels for n in (target, *names)}
    total = 0.0
    for known in itertools.product(*(levels[n] for n in names)):
        cells = dict(zip(names, known))
        rest = p(cells)
        for v in levels[target]:
            joint = p({**cells, target: v})
            total += joint * np.log(joint / rest / p({target: v}))
    return total


def test_a_set_is_found_with_its_information(riddle):
    """Within 5 of its errors of the sum over all levels; the pair is worth much more than either."""
    asking = Asking(riddle)
    answer = best_set(asking, "sum", ["a", "b", "noise", "hint"], 3)
    names = list(answer.columns["column"])
    assert names[:2] == ["a", "b"]
    for size in range(1, len(names) + 1):
        result, error = (answer.columns[c][size - 1] for c in ("information", "information_error"))
        assert abs(result - exact(asking, "sum", names[:size])) < 5.0 * error + 1e-6
    alone = information(asking, ["sum"], ["a", "b"]).information[0]
    assert answer.columns["information"][1] > 2.0 * alone.sum()


def test_information_that_forgets_the_first_column_is_rejected(riddle, monkeypatch):
    """Sets whose last column alone is looked at."""
    asking = Asking(riddle)
    right = predictors._entropies
    monkeypatch.setattr(
        predictors,
        "_entropies",
        lambda asking, name, known: right(asking, name, known.only([list(known.of)[-1]])),
    )
    answer = best_set(asking, "sum", ["a", "b"], 2)
    names = list(answer.columns["column"])
    true = exact(asking, "sum", ["a", "b"])
    result = answer.columns["information"][len(names) - 1]
    assert abs(result - true) > 5.0 * answer.columns["information_error"][len(names) - 1]
