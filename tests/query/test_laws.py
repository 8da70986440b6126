"""Laws of answers, whatever the posterior: probabilities add up, the chain rule holds, simulated rows follow them.

Simulated rows are compared with probabilities by a chi-square test at level 1e-4, of columns of every kind.
"""

import numpy as np
import pytest
from scipy import stats

from mpibayes.hpc.crosscat import law
from mpibayes.hpc.data.events import Known, everyone
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.dependence import _mutual, information
from mpibayes.hpc.query.similarity import _shared
from mpibayes.hpc.query.simulate import simulated
from mpibayes.hpc.query.surprisal import of_table
from tests.query.runs import rows_like

LEVEL = 1e-4
N = 4000
EVERY = ["age", "income", "height", "colour", "visits", "day", "noise"]
ON_THEM = ["age=50..", "colour=red|blue", "visits=1..8"]


def known_row(asking, *items):
    return everyone(asking.conditions.read(items))


def log_p(asking, target, given=()):
    return asking.log_p(known_row(asking, *target), known_row(asking, *given))[0][0]


def test_the_cells_of_a_column_have_probability_one(asking):
    for name in EVERY:
        for most in (24, 256):
            given = known_row(asking, *[i for i in ON_THEM if not i.startswith(name)])
            ((_, d),) = asking.distributions(name, given, most)
            least = 0.995 if name == "income" else 1.0 - 1e-6  # what is log-normal and would be recorded as 0 is lost
            assert least < d.p.sum() < 1.0 + 1e-6
            assert (d.error >= 0).all() and d.error.max() < 0.2


def test_the_chain_rule(asking):
    a, b, c = ["age=33", "income=0"], ["colour=red", "height=161.5"], ["visits=2", "day=2024-01-11"]
    both = log_p(asking, a + b, c)
    assert both == pytest.approx(log_p(asking, a, b + c) + log_p(asking, b, c), abs=1e-9)
    assert both == pytest.approx(log_p(asking, b, a + c) + log_p(asking, a, c), abs=1e-9)


def test_ranges_are_sums_of_values(asking):
    each = np.logaddexp.reduce([log_p(asking, [f"age={v}"], ["colour=red"]) for v in range(30, 36)])
    assert log_p(asking, ["age=30..35"], ["colour=red"]) == pytest.approx(each, abs=1e-6)
    each = np.logaddexp.reduce([log_p(asking, [f"visits={v}"]) for v in range(2, 7)])
    assert log_p(asking, ["visits=2..6"]) == pytest.approx(each, abs=1e-9)
    each = np.logaddexp(log_p(asking, ["colour=red"]), log_p(asking, ["colour=green"]))
    assert log_p(asking, ["colour=red|green"]) == pytest.approx(each, abs=1e-9)
    assert log_p(asking, ["income=.."]) == pytest.approx(0.0, abs=1e-9)


def p_value(asking, name, given, drawn):
    """p-value of drawn values of a column under its distribution."""
    ((_, d),) = asking.distributions(name, given, 24)
    e = d.support.events
    at = np.empty(len(drawn), int)
    for i, x in enumerate(drawn):
        atom = e.codes == (x if e.column.levels else list(e.column.atoms).index(x) if x in e.column.atoms else -2)
        with np.errstate(invalid="ignore"):
            inside = np.zeros(len(e), bool) if e.column.levels else (e.low <= x) & (x <= e.high)
        at[i] = np.flatnonzero(atom if atom.any() else inside)[0]
    p = d.p[0] / d.p[0].sum()
    order = np.argsort(p)
    groups = np.minimum(np.cumsum(p[order]) * 10, 9).astype(int)
    expected = N * np.bincount(groups, p[order], 10)
    seen = np.bincount(groups, np.bincount(at, minlength=len(p))[order], 10)
    whole = expected > 5
    return stats.chisquare(seen[whole], expected[whole] * seen[whole].sum() / expected[whole].sum()).pvalue


def test_simulated_rows_follow_the_probabilities(asking):
    given = known_row(asking, *ON_THEM)
    drawn = simulated(asking, given, EVERY, N, seed=5)
    for name in ("income", "height", "day", "noise"):
        assert p_value(asking, name, given, drawn[name]) > LEVEL, name
    assert (drawn["age"] >= 50).all() and set(drawn["visits"]) <= set(range(1, 9))
    for name in ("age", "visits", "colour"):  # of a range the values are drawn, too
        ((_, d),) = asking.distributions(name, given.without([name]), 256)
        v, e = drawn[name], d.support.events
        if name == "colour":
            p = d.p[0] * given.of[name][0].sets[0]
            assert stats.binomtest(int((v == p.argmax()).sum()), N, p.max() / p.sum()).pvalue > LEVEL
        else:
            low, high, middle = {"age": (49.5, np.inf, 60.5), "visits": (1, 8, 5)}[name]
            inside, below = (e.low >= low) & (e.high <= high), e.high <= middle
            p = d.p[0][inside & below].sum() / d.p[0][inside].sum()
            assert stats.binomtest(int((v <= middle).sum()), N, p).pvalue > LEVEL, name
    fewer = simulated(asking, given, EVERY, 50, seed=5)
    assert all((fewer[name] == drawn[name][:50]).all() for name in EVERY)


def test_ranges_that_are_open_below_are_kept_by_simulated_rows(asking):
    for name, most in (("age", 30), ("income", 500), ("height", 165), ("visits", 2)):
        drawn = simulated(asking, known_row(asking, f"{name}=..{most}"), [name], 200, seed=2)
        assert (drawn[name] <= most).all(), name


def test_simulated_rows_whose_clusters_ignore_what_is_given_are_rejected(people, monkeypatch):
    asking = Asking(people)
    given = known_row(asking, "age=65", "colour=blue")
    right = law.ViewLaw.scores
    assert p_value(asking, "height", given, simulated(asking, given, EVERY, N, seed=5)["height"]) > LEVEL
    monkeypatch.setattr(law.ViewLaw, "scores", lambda self, known, prior=None: right(self, Known(known.n_rows, {})))
    drawn = simulated(asking, given, EVERY, N, seed=5)
    assert (
        p_value(asking, "height", given, drawn["height"]) < LEVEL
        or p_value(asking, "income", given, drawn["income"]) < LEVEL
    )


def test_rows_of_a_file_are_described_rows(asking, tmp_path):
    """Also with missing cells; in blocks or not."""
    rows = [
        {"age": "33", "income": "0", "colour": "red", "visits": "", "day": "2024-01-11"},
        {"age": "", "income": "2500", "colour": "blue", "visits": "7", "day": ""},
    ]
    new = rows_like(asking, rows, tmp_path)
    log, error, effective = asking.log_p(asking.known(new.rows, ["colour"]), asking.known(new.rows, ["age", "visits"]))
    assert log[0] == pytest.approx(log_p(asking, ["colour=red"], ["age=33"]), abs=1e-12)
    assert log[1] == pytest.approx(log_p(asking, ["colour=blue"], ["visits=7"]), abs=1e-12)
    assert (error > 0).all() and (effective <= asking.averages.n_draws).all()


def test_similarity_is_the_share_of_labels(asking):
    names = ["age", "colour"]
    share, _, _ = _shared(asking, names, 3, Known(1, {}))
    run = asking.asked.run
    expected = np.zeros(run.n_rows)
    draws = list(run.states())
    for _, draw in draws:
        for name in names:
            (v,) = (v for v in range(len(draw.labels)) if name in run.names_in(draw, v))
            expected += (draw.labels[v] == draw.labels[v][3]) / len(names) / len(draws)
    np.testing.assert_allclose(share, expected, atol=1e-6)


def test_information_is_that_of_the_joint_table(asking):
    """Compute it for columns of levels, from log probabilities of all pairs."""
    result = information(asking, ["colour"], ["noise", "colour"])
    levels = {n: asking.conditions.column(n).levels for n in ("colour", "noise")}
    p = np.array(
        [[np.exp(log_p(asking, [f"colour={a}", f"noise={b}"])) for b in levels["noise"]] for a in levels["colour"]]
    )
    expected = (p * np.log(p / p.sum(axis=1, keepdims=True) / p.sum(axis=0))).sum()
    assert result.information[0, 0] == pytest.approx(expected, abs=1e-9)
    marginal = p.sum(axis=1)
    assert result.entropy[0] == pytest.approx(-(marginal * np.log(marginal)).sum(), abs=1e-9)
    assert _mutual(np.outer([0.2, 0.8], [0.5, 0.5]), np.array([0]), np.array([0])) == pytest.approx(0.0, abs=1e-12)
    table = np.array([[0.5, 0.0], [0.0, 0.5]])
    assert _mutual(table, np.array([0]), np.array([0])) == pytest.approx(np.log(2))
    both = information(asking, EVERY, EVERY)
    np.testing.assert_allclose(both.information, both.information.T, atol=1e-9)


def test_an_odd_cell_is_found(asking, tmp_path):
    """Surprisals of cells of new rows are -log p of each given the others; training rows have one for each cell."""
    row = {"age": "61", "income": "3000", "height": "174", "colour": "red", "visits": "9", "day": "2024-03-05"}
    new = rows_like(asking, [row, {**row, "colour": "blue"}], tmp_path)
    known = asking.known(new.rows, ["age", "colour", "visits"])
    from mpibayes.hpc.query.surprisal import Surprise

    _, cells, *_ = Surprise(asking, known, np.arange(1, 3), None).of(slice(None))
    for i, name in enumerate(known.of):
        log, _, _ = asking.log_p(known.only([name]), known.without([name]))
        np.testing.assert_allclose(cells[:, i], -log, atol=1e-9)
    assert cells[0, list(known.of).index("colour")] > cells[1, list(known.of).index("colour")] + 1.0
    rows, cells, *_ = of_table(asking, EVERY, 100).of(slice(None))
    assert np.isfinite(rows).all() and 0.8 < np.isfinite(cells).mean() < 1.0
