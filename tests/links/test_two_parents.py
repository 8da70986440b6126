"""Columns with two parents by name, against enumeration: everything that can be asked of a tiny table is a ratio of two
evidences, of which one has further cells known; unknown cells, missing ones of parents too, are summed out.

Columns b and e lean on a, c on b and e, and d on c: the two parents of c are dependent, and so are those of d, a and c.
"""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.data.events import Known, everyone, known_of, of_levels, of_values
from mpibayes.hpc.links import crossed
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.gaps import Gaps
from mpibayes.hpc.links.tables import OfRows, Table
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.dependence import information
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run
from tests.exact.enumerate import blocks, log_eppf, partitions
from tests.links.enumerate import log_dirichlet

ERRORS, ROUNDING = 5.0, 1e-9  # some 60 answers within 5 of their errors: about one false alarm in 1,000 seeds
NAMES, LEVELS = "abcde", [2, 2, 3, 2, 2]
PARENTS = {"b": "a", "e": "a", "c": "be", "d": "ca"}
CELLS = [[0, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 0, 2, 1, 1], [0, 1, 2, 0, 1]]
HOLED = [[0, 0, 0, 0, 0], [1, -1, 1, 1, 0], [1, 0, 2, 1, -1]]
BETA, ALPHA, D = 0.5, 1.0, 0.25
QUESTIONS = [
    ({"c": 1}, {}), ({"d": 1}, {"b": 0}), ({"b": 1, "e": 0}, {"c": 2}), ({"e": 1}, {"c": 0, "b": 1}),
    ({"a": 0}, {"d": 1}), ({"c": 2}, {"e": 1}), ({"a": 1, "d": 0}, {"c": 1}), ({"e": 0}, {"d": 0}),
]  # fmt: skip
COMPLETE = [dict(zip(NAMES, row)) for row in itertools.product(*map(range, LEVELS))]


@cache
def of_groups(x: tuple[int, ...], group: tuple, n_levels: int) -> float:
    """Log evidence of cells with separate probabilities in each group."""
    counts: dict[tuple, list[int]] = {}
    for v, g in zip(x, group):
        counts.setdefault(g, [0] * n_levels)[v] += 1
    return sum(log_dirichlet(n, BETA) for n in counts.values())


def of_complete(cells, z) -> float:
    """Log evidence of a complete table given a partition."""
    total, columns = 0.0, dict(zip(NAMES, zip(*cells)))
    for name, x in columns.items():
        group = tuple(zip(z, *(columns[p] for p in PARENTS.get(name, ()))))
        total += of_groups(x, group, LEVELS[NAMES.index(name)])
    return total


@cache
def evidence(cells) -> float:
    """Log evidence of a table, in which -1 is an unknown cell."""
    holes = [(i, c) for i, row in enumerate(cells) for c, v in enumerate(row) if v < 0]
    each, prior = [], log_eppf(blocks(len(cells))[1], ALPHA, D)
    for levels in itertools.product(*(range(LEVELS[c]) for _, c in holes)):
        filled = np.array(cells)
        for at, v in zip(holes, levels):
            filled[at] = v
        rows = [tuple(row) for row in filled.tolist()]
        each += [p + of_complete(rows, z) for p, z in zip(prior, partitions(len(rows)).tolist())]
    return float(logsumexp(each))


def exact(cells, wanted: dict, given: dict) -> float:
    """Log probability of cells of a further row given others."""

    def of(row: dict) -> float:
        return evidence((*map(tuple, cells), tuple(row.get(name, -1) for name in NAMES)))

    return of({**wanted, **given}) - of(given)


def made(folder, cells):
    """All draws of a run of a table."""
    columns = [
        (name, "categorical", np.array(cells)[:, c], tuple(f"v{v}" for v in range(n)))
        for c, (name, n) in enumerate(zip(NAMES, LEVELS))
    ]
    table = write_table(folder / "tiny.h5", *table_from_arrays(columns))
    links = [[child, *above] for child, above in PARENTS.items()]
    text = f"[model]\nfamily = 'mixture'\nlinks = {links}\nconcentration = {ALPHA}\ndiscount = {D}\n"
    text += "".join(f"[columns.{c}]\nprior = {{dirichlet = {[BETA] * n}}}\n" for c, n in zip(NAMES, LEVELS))
    given = {child: above[0] for child, above in PARENTS.items()}
    more = {"links": given, "split_merge": 0}  # sweeps reach all partitions of so few rows
    return make_run(folder / "tiny", table, cycles=330, burn_in=30, labels=3, text=text, **more)


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    return Asking(made(tmp_path_factory.mktemp("two"), CELLS), draws=10_000)


@pytest.fixture(scope="module")
def few(asking):
    return Asking(asking.asked.run.chains[0].folder, draws=4)


@pytest.fixture(scope="module")
def fewer(asking):
    """Half of the draws."""
    return Asking(asking.asked.run.chains[0].folder, draws=50)


def known(asking, row: dict) -> Known:
    return everyone({name: of_values(asking.conditions.column(name), np.array([v])) for name, v in row.items()})


def rows_of(rows):
    """Rows of the table's columns; absent cells are missing."""
    cells = np.array([[row.get(name, -1) for name in NAMES] for row in rows])
    return table_from_arrays(
        [(name, "categorical", cells[:, c], tuple(f"v{v}" for v in range(LEVELS[c]))) for c, name in enumerate(NAMES)]
    )[1]


def off(asking, cells) -> np.ndarray:
    """Errors of the answers to QUESTIONS over what they may be."""
    result = [asking.log_p(known(asking, a), known(asking, b)) for a, b in QUESTIONS]
    log, error = np.array([(log[0], error[0]) for log, error, _ in result]).T
    return np.abs(log - [exact(cells, *question) for question in QUESTIONS]) / (ERRORS * error + ROUNDING)


@pytest.mark.thorough
def test_answers_are_ratios_of_evidences(fewer, tmp_path):
    assert (off(fewer, CELLS) < 1.0).all()
    assert (off(Asking(made(tmp_path, HOLED), draws=50), HOLED) < 1.0).all()


# --- chains -----------------------------------------------------------------------------------------------------------

XOR = [[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]


def chain(folder, cells, alpha: float, cycles: int):
    """Labels and missing cells of the draws of a chain of two levels a column, the last below both others."""
    columns, rows = table_from_arrays(
        [(name, "boolean", np.array(cells)[:, c], ("no", "yes")) for c, name in enumerate("abc")]
    )
    columns = [replace(column, second="b") if column.name == "c" else column for column in columns]
    settings = Settings(
        seed=3,
        shards=1,
        concentration=alpha,
        links={"c": "a"},
        split_merge=4,
        priors={n: {"dirichlet": [BETA] * 2} for n in "abc"},
    )
    mixture = Mixture(serial(), columns, lambda first, end: rows.take(slice(first, end)), len(rows), settings)
    mixture.start("one")
    n_clusters, gaps = [], []
    for _ in range(cycles):
        n_clusters.append(mixture.cycle().n_clusters)
        gaps.append(mixture.linking.gap_levels())
    return np.array(n_clusters), np.array(gaps)


def of_xor(cells, z, ignored: bool = False) -> float:
    x = np.array(cells).T.tolist()
    group = list(zip(z, x[0])) if ignored else list(zip(z, x[0], x[1]))
    return sum(of_groups(tuple(v), tuple(g), 2) for v, g in ((x[0], tuple(z)), (x[1], tuple(z)), (x[2], tuple(group))))


def off_clusters(folder) -> float:
    """Error of the mean number of clusters over what it may be."""
    every = partitions(6)
    cells = XOR + XOR[:2]
    log_p = np.array([log_eppf(np.bincount(z), ALPHA, 0.0) + of_xor(cells, z.tolist()) for z in every])
    p = np.exp(log_p - logsumexp(log_p))
    truth = float(p @ [z.max() + 1 for z in every])
    n = chain(folder, cells, ALPHA, 1_700)[0][100:].reshape(32, -1).mean(axis=1)
    return abs(n.mean() - truth) / (ERRORS * n.std(ddof=1) / np.sqrt(len(n)))


@pytest.mark.thorough
def test_clusters_are_those_of_both_parents(tmp_path):
    assert off_clusters(tmp_path) < 1.0


@pytest.mark.thorough
def test_a_chain_that_ignores_the_second_parent_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(Coding, "crossed", lambda self, place, contexts: contexts[0])
    assert off_clusters(tmp_path) > 1.0


def off_gaps(folder) -> np.ndarray:
    """Errors of the shares of a missing first and second parent in one cluster, over what they may be."""
    cells = [list(row) for row in XOR * 3]
    lacks = {(1, 0): cells[1][0], (4, 1): cells[4][1]}
    each = {}
    for levels in itertools.product(range(2), repeat=2):
        for (i, c), v in zip(lacks, levels):
            cells[i][c] = v
        each[levels] = of_xor(cells, [0] * len(cells))
    p = np.exp(np.array(list(each.values())) - logsumexp(list(each.values()))).reshape(2, 2)
    for i, c in lacks:
        cells[i][c] = -1
    drawn = chain(folder, cells, 1e-9, 800)[1][200:].reshape(20, -1, 2).mean(axis=1)
    truth = np.array([p[1].sum(), p[:, 1].sum()])
    return np.abs(drawn.mean(axis=0) - truth) / (ERRORS * drawn.std(axis=0, ddof=1) / np.sqrt(20) + 0.002)


@pytest.mark.thorough
def test_missing_parents_are_drawn_given_both(tmp_path):
    assert (off_gaps(tmp_path) < 1.0).all()


@pytest.mark.thorough
def test_missing_parents_drawn_in_the_first_context_of_the_other_are_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(Gaps, "_crossed", lambda self, rows, child, c, at, of: np.zeros((len(at), len(of)), np.intp))
    assert (off_gaps(tmp_path) > 1.0).any()


# --- a draw's law -----------------------------------------------------------------------------------------------------


def test_densities_are_those_of_the_labels(asking):
    """Each draw's law of complete rows is worked out from its labels; every other answer is a sum of these."""
    law = next(iter(asking.draws(list(NAMES))))
    p, draw = np.exp(law.log_density(rows_of(COMPLETE))), next(iter(asking.asked.run.states()))[1]
    z = draw.labels[0].tolist()
    with_row = [[*map(tuple, CELLS), tuple(row.values())] for row in COMPLETE]
    k = max(z) + 1
    each = []
    for table in with_row:
        of = [of_complete(table, [*z, j]) - of_complete(table[:-1], z) for j in range(k + 1)]
        sizes = np.array([*(np.bincount(z) - D), ALPHA + k * D]) / (len(z) + ALPHA)
        each.append(float(np.exp(of) @ sizes))
    assert np.allclose(p, each, rtol=1e-5) and p.sum() == pytest.approx(1.0)


def summed(p, row: dict) -> float:
    return sum(each for each, of in zip(p, COMPLETE) if row.items() <= of.items())


PARTS = [{}, {"c": 1}, {"b": 0}, {"e": 1, "d": 0}, {"b": 1, "e": 0, "d": 1}, {"a": 0, "c": 2}, {"d": 1}]


def test_every_answer_of_a_draw_is_a_sum_over_complete_rows(asking):
    """Probabilities of cells, of sets of levels, and of all levels of each column given others."""
    for law in itertools.islice(asking.draws(list(NAMES)), 0, None, 40):
        p = np.exp(law.log_density(rows_of(COMPLETE)))
        cells = known_of(rows_of(PARTS), asking.columns)
        given = law.given(cells)
        assert np.allclose(np.exp(given.log_p), [summed(p, row) for row in PARTS], rtol=1e-5)
        for name, n in zip(NAMES, LEVELS):
            events = of_values(asking.conditions.column(name), np.arange(n))
            at = [i for i, row in enumerate(PARTS) if name not in row]
            part = law.given(known_of(rows_of([PARTS[i] for i in at]), asking.columns))
            truth = [[summed(p, {**PARTS[i], name: v}) / summed(p, PARTS[i]) for v in range(n)] for i in at]
            assert np.allclose(part.averaged(events, law.masses(events)), truth, rtol=1e-5)
        either = everyone({"e": of_levels(asking.conditions.column("e"), [0]),
                           "c": of_levels(asking.conditions.column("c"), [0, 2])})  # fmt: skip
        truth = sum(summed(p, {"e": 0, "c": v, "d": 1}) for v in (0, 2))
        joined = either.join(known(asking, {"d": 1}))
        assert np.exp(law.given(joined).log_p[0]) == pytest.approx(truth, rel=1e-5)


@pytest.mark.parametrize("name", ["sets", "cases"])
def test_sums_that_leave_something_out_are_rejected(asking, name, monkeypatch):
    """Second parents whose contexts are not part of what is known; and the first of the cases alone."""
    if name == "sets":
        monkeypatch.setattr(crossed, "_within", lambda tree, evidence, contexts: evidence)
    else:
        every = crossed.cases
        monkeypatch.setattr(crossed, "cases", lambda *of: itertools.islice(every(*of), 1))
    with pytest.raises(AssertionError):
        test_every_answer_of_a_draw_is_a_sum_over_complete_rows(asking)


def test_simulated_cells_have_their_probabilities(asking):
    """Chi-square of cells that are drawn together, in each of three draws: a false alarm in 3,000 seeds."""
    n = 6_000
    row = rows_of([{"d": 1}] * n)
    for i, law in enumerate(itertools.islice(asking.draws(list(NAMES)), 0, None, 40)):
        drawn = law.simulate(
            known_of(row, asking.columns), set(NAMES), Stream(1, Purpose.SIMULATED, cycle=i), np.arange(n)
        )
        p = np.exp(law.log_density(rows_of(COMPLETE)))
        truth = {tuple(of.values()): each for of, each in zip(COMPLETE, p) if of["d"] == 1}
        times = dict.fromkeys(truth, 0)
        for cells in zip(*(drawn[name].astype(int).tolist() for name in NAMES)):
            times[cells] += 1
        expected = n * np.array(list(truth.values())) / sum(truth.values())
        often = expected > 5.0
        both = [np.append(x[often], x[~often].sum() + 1e-9) for x in (np.array(list(times.values())), expected)]
        assert chisquare(*both).pvalue > 1e-4


@pytest.mark.thorough
def test_information_is_that_of_the_joint_table(few):
    mutual = information(few, list(NAMES), list(NAMES))
    for a, b in itertools.combinations(range(len(NAMES)), 2):
        every = list(itertools.product(range(LEVELS[a]), range(LEVELS[b])))
        p = [np.exp(few.log_p(known(few, {NAMES[a]: x, NAMES[b]: y}), Known(1, {}))[0][0]) for x, y in every]
        p = np.array(p).reshape(LEVELS[a], LEVELS[b])
        truth = (p * np.log(p / np.outer(p.sum(axis=1), p.sum(axis=0)))).sum()
        assert mutual.information[a, b] == pytest.approx(truth, abs=1e-8)


def left_out(asking) -> np.ndarray:
    """Errors of the surprisals of cells, given their rows and the other rows, over what they may be."""
    cells = known_of(asking.asked.recorded(np.arange(4)), asking.columns)
    inverse, result = np.array([each for _, each in asking.asked.left_out(cells, np.arange(4))]), []
    for i, c in itertools.product(range(3), range(len(NAMES))):
        mean = inverse[:, i, c].mean()
        error = asking.averages.error((inverse[:, i, c] - mean) / mean / len(inverse))
        others = [tuple(row) for j, row in enumerate(CELLS) if j != i]
        rest = tuple(-1 if b == c else v for b, v in enumerate(CELLS[i]))
        truth = evidence((*others, tuple(CELLS[i]))) - evidence((*others, rest))
        result.append(abs(-np.log(mean) - truth) / (ERRORS * error + ROUNDING))
    return np.array(result)


@pytest.mark.thorough
def test_cells_left_out_are_ratios_of_evidences(fewer):
    assert (left_out(fewer) < 1.0).all()


@pytest.mark.thorough
def test_rows_left_in_below_two_parents_are_rejected(fewer, monkeypatch):
    monkeypatch.setattr(OfRows, "sliced", lambda self, n, u: OfRows(self._table.sliced(n, u), self._cluster))
    assert (left_out(fewer) > 1.0).any()


def test_slices_of_left_out_rows_keep_their_contexts():
    """Table of 2 x 3 contexts: each slice has the rows of its own context only."""
    g = np.random.default_rng(1)
    table = Table(g.integers(1, 5, size=(6, 2, 3)), np.full((6, 2), 0.5))
    cluster, context, level = g.integers(3, size=20), g.integers(6, size=20), g.integers(2, size=20)
    whole, rows = OfRows(table, cluster, (context, level)), np.arange(20)
    for u in range(3):
        part = whole.sliced(3, u)
        for v in range(2):
            first = np.full(20, 1)
            assert np.array_equal(part.of_cells(rows, first, level), whole.of_cells(rows, 3 * first + u, level))
            assert np.array_equal(
                part.in_contexts(rows, np.full(20, v)), whole.in_contexts(rows, np.full(20, v))[:, u::3]
            )
