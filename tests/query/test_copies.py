"""Drawn cells of a table against enumeration: of a tiny table the probability of missing cells, of one row or of
several, is a ratio of evidences. A sound program fails about once in 500 seeds: 23 frequencies, each within 5 of its
own errors. Each test takes some 3 s: every kept draw is filled several times."""

import itertools

import numpy as np
import pytest

from mpibayes.hpc.crosscat.laws.cell_draws import CellDraws
from mpibayes.hpc.crosscat.laws.completion import Completion
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.query.asking import Asking
from tests.exact.enumerate import NAN, Posterior
from tests.query.runs import COLUMNS, case, tiny_run

ERRORS = 5.0
SEEDS = range(4)  # copies of each draw
GAPS = {"b": (0, 3, 4, 5), "c": (3,), "n": (3,)}  # rows of which cells are taken out


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


EVENTS = [
    *(dict(zip([("b", 0), ("b", 3), ("c", 3)], values)) for values in itertools.product((0, 1), (0, 1), (0, 1, 2))),
    *(dict(zip([("c", 3), ("n", 3)], values)) for values in itertools.product((0, 1, 2), (0.0, 1.0, 2.0))),
    *({("b", i): b for i in GAPS["b"]} for b in (0, 1)),
]


@pytest.fixture(scope="module")
def exact():
    whole = log_evidence()
    return np.exp([log_evidence(cells) - whole for cells in EVENTS])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("gaps"), columns=with_gaps())


def frequencies(run):
    """Frequencies of these cells in copies, and their errors."""
    asking, result, rows = Asking(run, draws=10_000), [], np.arange(6)
    gaps = {"b": np.array(GAPS["b"]), "c": np.array([3]), "n": np.array([3])}
    for law in asking.asked.labelled([c.name for c in asking.columns]):
        seen = []
        for seed in SEEDS:
            cells = Completion(law, seed, len(result) + 1).cells(Known(6, {}), gaps, rows, rows)
            drawn = {(name, i): x for name, at in gaps.items() for i, x in zip(at.tolist(), cells[name])}
            seen.append([all(drawn[cell] == x for cell, x in event.items()) for event in EVENTS])
        result.append(np.mean(seen, axis=0))
    result = np.array(result)
    return result.mean(axis=0), asking.averages.error((result - result.mean(axis=0)) / len(result))


def wrong(run, exact):
    mean, error = frequencies(run)
    return np.abs(mean - exact) > ERRORS * error + 1e-9, np.column_stack([mean, exact, error])


def test_cells_of_one_row_and_of_two_have_the_posterior_probability(run, exact):
    assert exact[:12].sum() == pytest.approx(1.0)
    off, table = wrong(run, exact)
    assert not off.any(), table
    assert (table[:, 2] < 0.02).all()


def test_cells_of_a_row_drawn_apart_are_rejected(run, exact, monkeypatch):
    """Draw each cell from a cluster of its own, whatever is observed."""
    right = CellDraws.cells

    def apart(self, names, known, cluster, stream, ids):
        p, g = np.exp(self.view.log_weight), np.random.default_rng([*map(ord, names[0]), stream.seed, stream.cycle])
        return right(self, names, known, g.choice(len(p), size=len(ids), p=p), stream, ids)

    monkeypatch.setattr(CellDraws, "cells", apart)
    assert wrong(run, exact)[0].any()


def test_rows_with_parameters_of_their_own_are_rejected(run, exact, monkeypatch):
    right = CellDraws.__init__
    monkeypatch.setattr(CellDraws, "__init__", lambda self, view, parameters: right(self, view))
    assert wrong(run, exact)[0].any()
