"""Answers of runs with links against enumeration: everything that can be asked of a tiny table is a ratio of two
evidences, of the table with the row and without some of its cells, summed over the cells that the row lacks."""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp

from mpibayes.hpc.data.events import Known, everyone, known_of, of_levels, of_values
from mpibayes.hpc.links import tree as trees
from mpibayes.hpc.query.asking import Asking
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run
from tests.links.enumerate import LinkedPosterior

ERRORS, ROUNDING = 5.0, 1e-9  # some 60 answers within 5 of their errors: about one false alarm in 1,000 seeds
CELLS = [[0, 0, 1], [1, 1, 0], [2, 1, 0], [0, 0, 0], [2, 1, 1]]
LEVELS, BETA, ALPHA, D = [3, 2, 2], 0.5, 1.0, 0.25
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
    return LinkedPosterior([*CELLS, row], LEVELS, BETA, ALPHA, D).log_evidence


def evidence(row: dict) -> float:
    """Log evidence of the table with a row more, of which some cells are known."""
    lacking = [c for c in range(3) if c not in row]
    every = itertools.product(*(range(LEVELS[c]) for c in lacking))
    filled = [{**row, **dict(zip(lacking, values))} for values in every]
    return float(logsumexp([of_table(tuple(r[c] for c in range(3))) for r in filled]))


def exact(wanted: dict, given: dict) -> float:
    return evidence({**wanted, **given}) - evidence(given)


EXACT = [exact(*question) for question in QUESTIONS]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """All draws of 300 cycles, links drawn anew in each."""
    folder, cells = tmp_path_factory.mktemp("links"), np.array(CELLS)
    given = [(f"c{c}", "categorical", cells[:, c], tuple(f"v{v}" for v in range(n))) for c, n in enumerate(LEVELS)]
    table = write_table(folder / "tiny.h5", *table_from_arrays(given))
    text = f"[model]\nfamily = 'mixture'\nlinks = 'forest'\nconcentration = {ALPHA}\ndiscount = {D}\n"
    for c, n in enumerate(LEVELS):
        text += f"[columns.c{c}]\nprior = {{dirichlet = {[BETA] * n}}}\n"
    return make_run(folder / "tiny", table, cycles=300, burn_in=30, text=text, links="forest", link_moves=1)


@pytest.fixture(scope="module")
def asking(run):
    asking = Asking(run, draws=10_000)
    asking.draws(["c0", "c1", "c2"])  # which later questions use, too
    return asking


def known(asking, row: dict) -> Known:
    return everyone({f"c{c}": of_values(asking.conditions.column(f"c{c}"), np.array([v])) for c, v in row.items()})


def answered(asking):
    """(log p, error) of each question."""
    found = [asking.log_p(known(asking, a), known(asking, b)) for a, b in QUESTIONS]
    return np.array([(log[0], error[0]) for log, error, _ in found]).T


def test_log_probabilities_are_ratios_of_evidences(asking):
    log, error = answered(asking)
    assert (np.abs(log - EXACT) < ERRORS * error + ROUNDING).all(), np.column_stack([log, EXACT, error])
    assert (error < 0.1).all()


def test_answers_without_messages_are_rejected(asking, monkeypatch):
    """Unknown parents that are taken to say nothing of the columns below them, and of those that lean on them, too."""
    monkeypatch.setattr(trees.Messages, "below", lambda self, c, rows: None)
    log, error = answered(asking)
    assert (np.abs(log - EXACT) > ERRORS * error + ROUNDING).any()


def test_sets_of_levels_sum_over_them(asking):
    column = asking.conditions.column("c0")
    either = everyone({"c0": of_levels(column, [0, 2])})
    for given in ({}, {1: 1}, {2: 0}):
        log, _, _ = asking.log_p(either, known(asking, given))
        parts = [asking.log_p(known(asking, {0: v}), known(asking, given))[0][0] for v in (0, 2)]
        assert log[0] == pytest.approx(logsumexp(parts), abs=1e-9)


@pytest.mark.parametrize(("name", "given"), [("c0", {1: 1}), ("c1", {0: 2}), ("c2", {}), ("c1", {0: 1, 2: 1})])
def test_distributions_agree_with_probabilities(asking, name, given):
    (d,) = (d for _, d in asking.distributions(name, known(asking, given), 64))
    c = int(name[1])
    each = [asking.log_p(known(asking, {c: v}), known(asking, given))[0][0] for v in range(LEVELS[c])]
    assert np.allclose(d.p[0], np.exp(each), atol=1e-9) and d.p[0].sum() == pytest.approx(1.0)
