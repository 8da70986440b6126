"""Missing cells that other columns lean on: answers against enumeration, and what draws keep of these cells."""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp

from mpibayes.hpc.crosscat.draws import Posterior, of_chain
from mpibayes.hpc.crosscat.summaries.tallies import Total
from mpibayes.hpc.data.events import known_of
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.gaps import NO_CELLS, Cells, Gaps, masks_of
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays
from tests.links import program
from tests.links.enumerate import LinkedPosterior
from tests.links.tiny import ALPHA, BETA, LEVELS, D, asking_of, known, tiny_run

ERRORS, ROUNDING = 5.0, 1e-9  # some 20 answers within 5 of their errors: about one false alarm in 10,000 seeds
CELLS = [[0, 0, 1], [1, -1, 0], [2, 1, 0], [-1, 0, 0]]
QUESTIONS = [({0: 0}, {}), ({1: 1}, {0: 2}), ({2: 1}, {0: 0}), ({1: 0, 2: 1}, {0: 1}), ({0: 2}, {1: 1, 2: 0})]


def of_table(cells) -> float:
    return LinkedPosterior(cells, LEVELS, (BETA,), ALPHA, D).log_evidence


@cache
def of_row(cells: tuple[int, ...]) -> float:
    return of_table([*CELLS, list(cells)])


def evidence(row: dict) -> float:
    """Log evidence of the table with a row more, of which some cells are known."""
    return of_row(tuple(row.get(c, -1) for c in range(3)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("gaps"), CELLS, 600)


@pytest.mark.thorough
def test_log_probabilities_are_ratios_of_evidences(run):
    log, error, truth = answered(asking_of(run))
    assert (np.abs(log - truth) < ERRORS * error + ROUNDING).all(), np.column_stack([log, truth, error])
    assert (error < 0.1).all()


def answered(asking):
    """Log p of each question, its error, and the truth."""
    result = [asking.log_p(known(asking, a), known(asking, b)) for a, b in QUESTIONS]
    truth = [evidence({**a, **b}) - evidence(b) for a, b in QUESTIONS]
    return np.array([(log[0], error[0], exact) for (log, error, _), exact in zip(result, truth)]).T


def left_out(asking):
    """Log p of each cell of the table given the rest of its row and the other rows, its error, and the truth."""
    cells, result, n = known_of(asking.asked.recorded(np.arange(4)), asking.columns), [], len(CELLS)
    inverse = np.array([each for _, each in asking.asked.left_out(cells, np.arange(n))])
    for i, c in itertools.product(range(n), range(3)):
        if CELLS[i][c] < 0:
            continue
        mean = inverse[:, i, c].mean()
        error = asking.averages.error((inverse[:, i, c] - mean) / mean / len(inverse))
        others = [row for j, row in enumerate(CELLS) if j != i]
        filled = [[*others, [v if b == c else x for b, x in enumerate(CELLS[i])]] for v in range(LEVELS[c])]
        result.append((-np.log(mean), error, of_table(CELLS) - logsumexp([of_table(t) for t in filled])))
    return np.array(result).T


@pytest.mark.thorough
def test_cells_left_out_are_ratios_of_evidences(run):
    log, error, truth = left_out(asking_of(run))
    assert (np.abs(log - truth) < ERRORS * error + ROUNDING).all(), np.column_stack([log, truth, error])


@pytest.mark.thorough
def test_draws_read_without_these_cells_are_rejected(run, monkeypatch):
    monkeypatch.setattr(Posterior, "cells", lambda self, draw: NO_CELLS)
    with np.errstate(divide="ignore", invalid="ignore"):  # some rows are taken out of clusters that lack their cells
        log, error, truth = left_out(asking_of(run))
    assert not (np.abs(log - truth) < ERRORS * error + ROUNDING).all(), np.column_stack([log, truth, error])


@pytest.mark.parametrize("n_shards", [1, 3])
def test_draws_have_the_counts_of_the_chain(n_shards):
    law = LinkedPosterior(CELLS, LEVELS, (BETA,), ALPHA, D)
    mixture, rows, filled = program.sampler(serial(), law, n_shards, 7), table(law), 0
    mixture.start("one")
    for _ in range(60):
        mixture.cycle()
        kept = of_chain(mixture, several=False)
        cells = Cells.of_draw(Gaps(mixture.linking.coding, [masks_of(mixture.columns, rows)]), kept["gaps"])
        filled += sum(len(at) for at, _ in cells.of.values())
        total = Total(mixture.view.components, kept["labels"])
        total.add(mixture.linking.coding.coded(cells.filled(mixture.columns, rows, np.arange(len(rows)))), 0)
        assert np.array_equal(total.statistics.levels, mixture.view.counts.levels)
    assert filled


def table(law):
    given = [(f"c{c}", "categorical", law.cells[:, c], tuple("abc"[:n])) for c, n in enumerate(law.n_levels)]
    return table_from_arrays(given)[1]


def test_needed_cells_are_those_above_a_cell_that_is_there():
    """c leans on b and b on a; d leans on nothing, and nothing on d."""
    cells = np.array([[-1, -1, 0, 0], [-1, -1, -1, 0], [-1, 1, -1, -1], [0, -1, 0, 0], [0, -1, -1, 1]])
    columns, rows = table_from_arrays([(n, "categorical", x, ("u", "v")) for n, x in zip("abcd", cells.T)])
    contexts = {n: np.arange(2) for n in "abcd"}
    gaps = Gaps(Coding(columns, np.array([-1, 0, 1, -1]), contexts), [masks_of(columns, rows)])
    assert {c: at.tolist() for c, at in gaps.at[0].items()} == {0: [0, 2], 1: [0, 3]}
