"""Answers of runs with links against enumeration: everything that can be asked of a tiny table is a ratio of two
evidences, of the table with the row and without some of its cells, summed over the cells that the row lacks."""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare

from mpibayes.hpc.data.events import Known, everyone, known_of, of_levels, of_values
from mpibayes.hpc.links import tree as trees
from mpibayes.hpc.links.law import TreeLaw
from mpibayes.hpc.links.tables import OfRows
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.dependence import information
from mpibayes.hpc.query.simulate import simulated
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run
from tests.links.enumerate import LinkedPosterior
from tests.links.tiny import ALPHA, BETA, LEVELS, D, asking_of, known, tiny_run

ERRORS, ROUNDING = 5.0, 1e-9  # some 60 answers within 5 of their errors: about one false alarm in 1,000 seeds
CELLS = [[0, 0, 1], [1, 1, 0], [2, 1, 0], [0, 0, 0], [2, 1, 1]]
QUESTIONS = [
    ({0: 0}, {}),
    ({1: 1}, {0: 2}),
    ({0: 1}, {1: 1, 2: 0}),
    ({2: 1}, {0: 0}),
    ({1: 0, 2: 1}, {0: 0}),
    ({0: 2, 1: 1, 2: 0}, {}),
    ({1: 1, 2: 0}, {}),
]


@cache
def of_table(row: tuple[int, ...]) -> float:
    """Log evidence of the table with a complete row more."""
    return LinkedPosterior([*CELLS, row], LEVELS, (BETA,), ALPHA, D).log_evidence


def evidence(row: dict) -> float:
    """Log evidence of the table with a row more, of which some cells are known."""
    lacking = [c for c in range(3) if c not in row]
    every = itertools.product(*(range(LEVELS[c]) for c in lacking))
    filled = [{**row, **dict(zip(lacking, values))} for values in every]
    return float(logsumexp([of_table(tuple(r[c] for c in range(3))) for r in filled]))


def exact(target: dict, given: dict) -> float:
    return evidence({**target, **given}) - evidence(given)


@cache
def truth() -> list[float]:
    return [exact(*question) for question in QUESTIONS]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("links"), CELLS, 300)


@pytest.fixture(scope="module")
def asking(run):
    return asking_of(run)


def answered(asking):
    """(log p, error) of each question."""
    result = [asking.log_p(known(asking, a), known(asking, b)) for a, b in QUESTIONS]
    return np.array([(log[0], error[0]) for log, error, _ in result]).T


def test_log_probabilities_are_ratios_of_evidences(asking):
    log, error = answered(asking)
    assert (np.abs(log - truth()) < ERRORS * error + ROUNDING).all(), np.column_stack([log, truth(), error])
    assert (error < 0.1).all()


def test_answers_without_messages_are_rejected(asking, monkeypatch):
    """Unknown parents that are taken to say nothing of the columns below them, and of those that lean on them, too."""
    monkeypatch.setattr(trees.Messages, "below", lambda self, c, rows: None)
    log, error = answered(asking)
    assert (np.abs(log - truth()) > ERRORS * error + ROUNDING).any()


def test_sets_of_levels_sum_over_them(asking):
    column = asking.conditions.column("c0")
    either = everyone({"c0": of_levels(column, [0, 2])})
    for given in ({}, {1: 1}, {2: 0}):
        log, _, _ = asking.log_p(either, known(asking, given))
        parts = [asking.log_p(known(asking, {0: v}), known(asking, given))[0][0] for v in (0, 2)]
        assert log[0] == pytest.approx(logsumexp(parts), abs=1e-9)


@pytest.mark.quick("c0-given0", "c2-given2")
@pytest.mark.parametrize(("name", "given"), [("c0", {1: 1}), ("c1", {0: 2}), ("c2", {}), ("c1", {0: 1, 2: 1})])
def test_distributions_agree_with_probabilities(asking, name, given):
    (d,) = (d for _, d in asking.distributions(name, known(asking, given), 64))
    c = int(name[1])
    each = [asking.log_p(known(asking, {c: v}), known(asking, given))[0][0] for v in range(LEVELS[c])]
    assert np.allclose(d.p[0], np.exp(each), atol=1e-9) and d.p[0].sum() == pytest.approx(1.0)


# --- rows as predictions have them ------------------------------------------------------------------------------------


def holed(asking, rows):
    """Rows of the table's columns; -1 for a missing cell."""
    cells = np.array(rows)
    given = [(f"c{c}", "categorical", cells[:, c], tuple(f"v{v}" for v in range(n))) for c, n in enumerate(LEVELS)]
    return table_from_arrays(given)[1]


HOLES = [[-1, 1, 0], [0, -1, -1], [2, -1, 1], [-1, -1, 0], [1, 0, 1], [-1, -1, -1], [-1, 0, 1], [1, 1, -1]]


def test_predictions_of_rows_with_gaps_are_those_of_questions(run, asking):
    """Densities, cells and clusters, draw by draw, by two ways through the program."""
    rows = holed(asking, HOLES)
    cells = known_of(rows, asking.columns)
    draws = asking.draws(["c0", "c1", "c2"])
    for law in itertools.islice(draws, 0, None, 9):
        (view,) = law.views
        on_them = law.given(cells)
        assert np.allclose(law.log_density(rows), on_them.log_p, atol=1e-6)
        terms = view.log_terms(rows)
        weight = np.exp(terms - np.logaddexp.reduce(terms, axis=1)[:, None])
        assert np.allclose(weight, on_them.weights[0], atol=1e-6)
        for pattern in view.patterns(rows):
            column = pattern.kind.members(pattern.column)[0]
            (result,) = view.averages(pattern, weight[pattern.rows], rows)
            events = of_values(asking.conditions.column(column.name), np.arange(len(column.levels)))
            exact = on_them.averaged(events, law.masses(events))[pattern.rows]
            assert np.allclose(result, exact, atol=1e-6)


def test_simulated_cells_have_their_probabilities(asking):
    """Chi-square of pairs of cells that are drawn together; each of five draws has one in 10,000."""
    n = 4_000
    row = holed(asking, [[-1, 1, -1]] * n)
    for d, law in enumerate(itertools.islice(asking.draws(["c0", "c1", "c2"]), 0, None, 60)):
        given, stream = known_of(row, asking.columns), Stream(1, Purpose.SIMULATED, cycle=d)
        drawn = law.simulate(given, {"c0", "c1", "c2"}, stream, np.arange(n))
        assert (drawn["c1"] == 1).all()
        pairs = [[a, 1, b] for a in range(3) for b in range(2)]
        p = np.exp(law.log_density(holed(asking, pairs)) - law.log_density(row.take(slice(0, 1))))
        times = np.bincount((drawn["c0"] * 2 + drawn["c2"]).astype(int), minlength=6)
        assert chisquare(times, n * p / p.sum()).pvalue > 1e-4 and p.sum() == pytest.approx(1.0, abs=1e-6)


# --- other questions --------------------------------------------------------------------------------------------------


def left_out(asking):
    """Log p of each cell of the table given the rest of its row and the other rows, its error, and the truth."""
    cells, result = known_of(asking.asked.recorded(np.arange(5)), asking.columns), []
    whole = LinkedPosterior(CELLS, LEVELS, (BETA,), ALPHA, D).log_evidence
    inverse = np.array([each for _, each in asking.asked.left_out(cells, np.arange(5))])
    for i, c in itertools.product(range(5), range(3)):
        mean = inverse[:, i, c].mean()
        error = asking.averages.error((inverse[:, i, c] - mean) / mean / len(inverse))
        others = [[*row] for j, row in enumerate(CELLS) if j != i]
        filled = [[*others, [v if b == c else x for b, x in enumerate(CELLS[i])]] for v in range(LEVELS[c])]
        rest = logsumexp([LinkedPosterior(t, LEVELS, (BETA,), ALPHA, D).log_evidence for t in filled])
        result.append((-np.log(mean), error, whole - rest))
    return np.array(result).T


def test_cells_left_out_are_ratios_of_evidences(asking):
    log, error, truth = left_out(asking)
    assert (np.abs(log - truth) < ERRORS * error + ROUNDING).all(), np.column_stack([log, truth, error])


def test_cells_that_are_left_in_are_rejected(asking, monkeypatch):
    monkeypatch.setattr(TreeLaw, "_of_rows", lambda self, tables, k, levels: [OfRows(table, k) for table in tables])
    log, error, truth = left_out(asking)
    assert (np.abs(log - truth) > ERRORS * error + ROUNDING).any()


@pytest.mark.thorough
def test_information_is_that_of_the_joint_table(asking):
    mutual = information(asking, ["c0", "c1", "c2"], ["c0", "c1", "c2"])
    for a, b in itertools.combinations(range(3), 2):
        every = list(itertools.product(range(LEVELS[a]), range(LEVELS[b])))
        p = [np.exp(asking.log_p(known(asking, {a: x, b: y}), Known(1, {}))[0][0]) for x, y in every]
        p = np.array(p).reshape(LEVELS[a], LEVELS[b])
        exact = (p * np.log(p / np.outer(p.sum(axis=1), p.sum(axis=0)))).sum()
        assert mutual.information[a, b] == pytest.approx(exact, abs=1e-9)


@pytest.mark.thorough
def test_simulated_rows_have_their_probabilities(asking):
    """Chi-square of pairs of cells given the third: a false alarm in 10,000 seeds."""
    n = 2_000
    drawn = simulated(asking, known(asking, {1: 1}), ["c0", "c2"], n, 3)
    every = [(a, b) for a in range(3) for b in range(2)]
    p = np.array([np.exp(asking.log_p(known(asking, {0: a, 2: b}), known(asking, {1: 1}))[0][0]) for a, b in every])
    times = np.bincount((drawn["c0"] * 2 + drawn["c2"]).astype(int), minlength=6)
    assert chisquare(times, n * p / p.sum()).pvalue > 1e-4


def in_clusters(asking, law, a: int, b: int) -> np.ndarray:
    """Probabilities (K + 1, V_a, V_b) of two columns and the cluster in a draw, by messages alone."""
    every = list(itertools.product(range(LEVELS[a]), range(LEVELS[b])))
    cells = known_of(
        holed(asking, [[x if c == a else y if c == b else -1 for c in range(3)] for x, y in every]), asking.columns
    )
    total, weight = law.views[0].weighted(cells)
    return (np.exp(total)[:, None] * weight).T.reshape(-1, LEVELS[a], LEVELS[b])


def mutual_information(p: np.ndarray) -> float:
    """Mutual information of a table that need not sum to 1, times its sum."""
    return float((p * np.log(p * p.sum() / np.outer(p.sum(axis=1), p.sum(axis=0)))).sum())


def apart(p: np.ndarray) -> np.ndarray:
    return np.outer(p.sum(axis=1), p.sum(axis=0)) / p.sum()


@pytest.mark.thorough
def test_information_through_groups_and_within_clusters(asking):
    result, draws = information(asking, ["c0", "c1", "c2"], ["c0", "c1", "c2"]), asking.draws(["c0", "c1", "c2"])
    for a, b in itertools.combinations(range(3), 2):
        each = [in_clusters(asking, law, a, b) for law in draws]
        groups = mutual_information(sum(apart(p) for of in each for p in of) / len(each))
        inside = sum(mutual_information(p) for of in each for p in of) / len(each)
        assert result.groups[a, b] == pytest.approx(groups, abs=1e-9) and groups > 0.0
        assert result.inside[[a, b], [b, a]] == pytest.approx(inside, abs=1e-9) and inside > 0.0


def of_two(folder, a, b, links):
    """Information in a run of two columns of two levels, the second of which leans on the first if there are links."""
    columns = [("a", "boolean", a, ("no", "yes")), ("b", "boolean", b, ("no", "yes"))]
    table = write_table(folder / "two.h5", *table_from_arrays(columns))
    named = '[["b", "a"]]' if links else '"none"'
    text = f"[model]\nfamily = 'mixture'\nconcentration = 1e-9\nlinks = {named}\n"
    text += "".join(f"[columns.{name}]\nprior = {{dirichlet = [0.5, 0.5]}}\n" for name in "ab")
    given = {"links": {"b": "a"}} if links else {}
    return information(
        Asking(make_run(folder / "two", table, cycles=12, text=text, starts=["one"], **given)), ["a"], ["b"]
    )


def test_a_linked_pair_in_one_cluster_has_no_information_through_groups(tmp_path):
    """20 rows of equal cells: p(b = a) = 10.5 / 11, and p(a) = 1 / 2."""
    a, p = np.arange(20) % 2, 10.5 / 11.0
    result = of_two(tmp_path, a, a, links=True)
    exact = np.log(2) + p * np.log(p) + (1 - p) * np.log(1 - p)
    assert result.groups[0, 0] == pytest.approx(0.0, abs=1e-7)
    assert result.inside[0, 0] == pytest.approx(exact, abs=1e-7) and result.information[0, 0] == pytest.approx(
        exact, abs=1e-7
    )


def test_without_links_all_information_is_through_groups(tmp_path):
    a = np.arange(20) % 2
    result = of_two(tmp_path, a, a, links=False)
    assert result.inside[0, 0] == 0.0 and result.groups[0, 0] == result.information[0, 0]
