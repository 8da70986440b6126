"""Pairs of columns that a run does not carry, found by rows that it draws."""

from itertools import combinations
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.laws.synthesis import Synthesis
from mpibayes.hpc.query import carried
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.conditional import Conditional
from mpibayes.hpc.query.predictors import Predictors
from mpibayes.hpc.synthetic.pairs import Pairs, informations
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run

N = 1_500
ONE_CLUSTER = '[model]\nconcentration = 1e-9\nshapes = "none"\n'


def test_information_of_pairs():
    """It is 0 of independent columns, the entropy of equal ones, that of a column which another tells; gaps do not
    count."""
    a, b = np.repeat([0, 1], 12), np.tile([0, 1, 2], 8)
    bins = np.stack([a, b, a, 3 * a + b], axis=1).astype(np.int32)
    sizes = np.array([3, 4, 3, 7])
    pairs = np.array(list(combinations(range(4), 2)))
    expected = [0.0, np.log(2), np.log(2), 0.0, np.log(3), np.log(2)]
    chance = np.array([2, 1, 5, 2, 10, 5]) / 48  # degrees of freedom over twice the rows
    result = informations(bins, sizes, pairs)
    assert result[0] == pytest.approx(expected, abs=1e-12) and result[1] == pytest.approx(chance)
    lacking = np.concatenate([bins, [[2, 3, 2, 0], [2, 0, 2, 6]]]).astype(np.int32)
    assert informations(lacking, sizes, pairs)[0] == pytest.approx(expected, abs=1e-12)
    assert np.array_equal(informations(np.full((5, 2), 2, np.int32), np.array([3, 3]), pairs[:1]), [[0.0], [0.0]])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One cluster of two pairs of columns that depend on each other, of levels and of numbers, and two that do not."""
    folder, g = tmp_path_factory.mktemp("pairs"), np.random.default_rng(3)
    job, x = g.integers(3, size=N), g.normal(size=N)
    sector = np.where(g.random(N) < 0.7, job, g.integers(3, size=N))
    y = 0.7 * x + g.normal(size=N)
    x[g.random(N) < 0.2] = np.nan
    columns = [
        ("job", "categorical", job, list("abc")), ("sector", "categorical", sector, list("xyz")),
        ("x", "real", x, None), ("y", "real", y, None),
        ("coin", "boolean", g.integers(2, size=N), ["no", "yes"]), ("u", "real", g.normal(size=N), None),
    ]  # fmt: skip
    table = write_table(folder / "t.h5", *table_from_arrays(columns))
    return make_run(folder / "run", table, text=ONE_CLUSTER, cycles=30, starts=["one"], split_merge=0)


def clear(answer):
    return int(answer.remarks[0].split()[0])


def test_pairs_that_one_cluster_cannot_carry_are_found(run):
    """One of the 13 other pairs is counted by chance in fewer than one of a hundred tables: 0.01 nats are 30 in the
    chi-square distribution of 1 to 49 degrees of freedom that 3,000 times their information has."""
    answer = Pairs().answer(Asking(run))
    pairs = list(zip(answer.columns["column"], answer.columns["other"]))
    assert set(pairs[:2]) == {("job", "sector"), ("x", "y")} and clear(answer) == 2
    assert len(pairs) == 15 and (answer.columns["p"][:2] == 0.0).all()
    assert answer.columns["table"] - answer.columns["run"] == pytest.approx(answer.columns["weaker"])


def test_few_rows_of_many_levels_prove_nothing(tmp_path):
    """Eight songs in the charts in week 50 have eight artists: the table has log(4) nats, as it has whatever the
    places, and drawn rows less, in which most artists are rare and share a bin."""
    g = np.random.default_rng(4)
    artist, place = np.r_[np.tile(np.arange(8), 5), np.arange(8, 268)], np.full(300, -1)
    place[:8] = np.arange(8) % 4
    columns = [
        ("artist", "categorical", artist, [f"a{i}" for i in range(268)]),
        ("week 50", "categorical", place, list("1234")), ("x", "real", g.normal(size=300), None),
    ]  # fmt: skip
    table = write_table(tmp_path / "t.h5", *table_from_arrays(columns))
    made = make_run(tmp_path / "run", table, text=ONE_CLUSTER, cycles=30, starts=["one"], split_merge=0)
    answer = Pairs().answer(Asking(made))
    [pair] = np.flatnonzero((answer.columns["column"] == "artist") & (answer.columns["other"] == "week 50"))
    assert answer.columns["table"][pair] > 1.0 and answer.columns["weaker"][pair] > 0.5 and clear(answer) == 0


def test_rows_of_the_table_lack_nothing(run):
    asking = Asking(run)
    rows = asking.asked.recorded(asking.asked.training_numbers())
    copied = {c.name: getattr(rows, c.block)[:, c.index] for c in asking.columns}
    with mock.patch.object(Synthesis, "cells", lambda self, ids, parts: copied):
        answer = Pairs().answer(asking)
    assert clear(answer) == 0 and np.allclose(answer.columns["weaker"], 0.0)


def test_few_draws_do_not_say_what_is_chance(run):
    assert "4 draws: too few" in Pairs().answer(Asking(run, 4)).remarks[0]


def test_columns_by_name(run):
    answer = Pairs(["u", "x", "y"]).answer(Asking(run))
    assert len(answer) == 3 and (answer.columns["column"][0], answer.columns["other"][0]) == ("x", "y")


def test_predictors_say_what_the_table_has_beside_the_run(run):
    """By chance a third column is named in fewer than one of a thousand tables."""
    answer = Predictors("job").answer(Asking(run))
    of = dict(zip(answer.columns["column"], answer.columns["table"]))
    assert answer.columns["column"][0] == "sector" and (answer.columns["information"] == 0.0).all()
    assert of["sector"] > 0.2 and max(abs(x) for name, x in of.items() if name != "sector") < 0.02
    assert "depends more than in this run on sector (" in answer.remarks[-1] and " and " not in answer.remarks[-1]
    assert "on job (" not in " ".join(Predictors("coin").answer(Asking(run)).remarks)


def test_conditions_that_the_run_does_not_carry_are_named(run):
    asking = Asking(run)
    assert any("on sector (" in remark for remark in Conditional("job", ["sector=x"]).answer(asking).remarks)
    assert any("on x (" in remark for remark in Conditional("y", ["x=1..2", "coin=no"]).answer(asking).remarks)
    assert not any("depends more" in remark for remark in Conditional("job", ["coin=no"]).answer(asking).remarks)


def test_information_less_that_of_shuffled_rows():
    """Its mean over tables is that of the law, but for the bias of the second order; `more` has no false alarms in
    these 200 tables where the run is right, and with probability 1e-4 each for normal errors."""
    g, n, found, errors, alarms = np.random.default_rng(4), 2_000, [], [], 0
    law = np.array([[0.3, 0.1, 0.1], [0.1, 0.1, 0.3]])
    exact = (law * np.log(law / np.outer(law.sum(axis=1), law.sum(axis=0)))).sum()
    for _ in range(200):
        a, b = np.divmod(g.choice(6, n, p=law.ravel()), 3)
        value, error, chance = carried._of_pair(a, b, (2, 3), g)
        found.append(value), errors.append(error)
        alarms += len(carried.InTable(*(np.array([x]) for x in (value, error, chance))).more(np.array([exact])))
    assert abs(np.mean(found) - exact) < 4.5 * np.std(found) / 200**0.5 + 1e-3
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.25) and alarms == 0


def test_independent_columns_of_few_rows_cause_few_alarms():
    """0.5 % of the tables at most, as measured; with four deviations of shuffled rows in place of the quantile 4 %."""
    g, alarms = np.random.default_rng(6), 0
    for _ in range(400):
        of = carried._of_pair(*g.integers(2, size=(2, 60)), (2, 2), g)
        alarms += len(carried.InTable(*(np.array([x]) for x in of)).more(np.zeros(1)))
    assert alarms <= 4
