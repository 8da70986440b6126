"""Drawn cells of a table against enumeration: of a tiny table the probability of missing cells, of one row or of two, is
a ratio of evidences. A sound program fails about once in 500 seeds: 24 frequencies, each within 5 of its own errors."""

import itertools

import numpy as np
import pytest

from mpibayes.hpc.crosscat import view_law
from mpibayes.hpc.crosscat.completion import Completion
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.filling import of_table
from tests.exact.enumerate import NAN, Posterior
from tests.query.runs import COLUMNS, case, tiny_run

ERRORS = 5.0
SEEDS = range(8)  # copies of each draw
GAPS = {"b": (0, 3), "c": (3,), "n": (3,)}  # rows of which cells are taken out
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(8)


def with_gaps(cells=None, gaps=GAPS):
    """The tiny table with gaps, some of them filled again: {(column, row): value}."""
    columns = []
    for name, kind, values, levels in COLUMNS:
        blank, values = (-1 if levels else NAN), list(values)
        for i in gaps.get(name, ()):
            values[i] = (cells or {}).get((name, i), blank)
        columns.append((name, kind, tuple(values), levels))
    return tuple(columns)


def log_evidence(cells=None):
    return Posterior(case(columns=with_gaps(cells))).log_evidence


CELLS = [("b", 0), ("b", 3), ("c", 3)]
VALUES = list(itertools.product((0, 1), (0, 1), (0, 1, 2)))
COUNTS = list(itertools.product((0, 1, 2), (0.0, 1.0, 2.0, 3.0)))  # of c and n in row 3


@pytest.fixture(scope="module")
def exact():
    whole = log_evidence()
    joint = [dict(zip(CELLS, values)) for values in VALUES] + [{("c", 3): c, ("n", 3): n} for c, n in COUNTS]
    return np.exp([log_evidence(cells) - whole for cells in joint])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("gaps"), cycles=900, columns=with_gaps())


def frequencies(run):
    """Of the same cells: how often copies have them, and the error of that."""
    asking = Asking(run, draws=10_000)
    filling, found = of_table(asking), []
    for law in asking.asked.labelled([c.name for c in asking.columns]):
        seen = []
        for seed in SEEDS:
            completion = Completion(law, seed, len(found) + 1)
            ((_, _, cells),) = filling.blocks(completion)
            drawn = {(name, i): x for name, (rows, values) in cells.items() for i, x in zip(rows, values)}
            three = tuple(drawn[cell] for cell in CELLS)
            pair = drawn["c", 3], drawn["n", 3]
            seen.append([*(three == values for values in VALUES), *(pair == values for values in COUNTS)])
        found.append(np.mean(seen, axis=0))
    found = np.array(found)
    return found.mean(axis=0), asking.averages.error((found - found.mean(axis=0)) / len(found))


def wrong(run, exact):
    mean, error = frequencies(run)
    return np.abs(mean - exact) > ERRORS * error + 1e-9, np.column_stack([mean, exact, error])


def test_cells_of_one_row_and_of_two_have_the_posterior_probability(run, exact):
    assert exact[: len(VALUES)].sum() == pytest.approx(1.0)
    off, table = wrong(run, exact)
    assert not off.any(), table
    assert (table[:, 2] < 0.02).all()


def test_cells_of_a_row_drawn_apart_are_rejected(run, exact, monkeypatch):
    """Each cell from a cluster of its own, whatever is observed."""
    right = view_law.ViewLaw.cells

    def apart(self, name, cluster, stream, ids):
        p, g = np.exp(self.log_weight), np.random.default_rng([*map(ord, name), stream.seed, stream.cycle])
        return right(self, name, g.choice(len(p), size=len(ids), p=p), stream, ids)

    monkeypatch.setattr(view_law.ViewLaw, "cells", apart)
    assert wrong(run, exact)[0].any()


def test_rows_with_parameters_of_their_own_are_rejected(run, exact, monkeypatch):
    monkeypatch.setattr(view_law.ViewLaw, "draw_parameters", lambda self, stream: None)
    assert wrong(run, exact)[0].any()
