"""Answers against enumeration: of a tiny table everything that can be asked is a ratio of two evidences, of the table
with the row and without some of its cells (docs/math.md 6.1). A sound program fails about once in 1,000 seeds: some 80
answers, each within 5 of its own errors."""

import functools
import itertools

import numpy as np
import pytest

from mpibayes.hpc.crosscat import law
from mpibayes.hpc.crosscat.laws.left_out import LeftOut
from mpibayes.hpc.data.events import Known, everyone, known_of, of_values
from mpibayes.hpc.query.asking import Asking
from tests.exact.enumerate import Posterior
from tests.query.runs import COLUMNS, case, tiny_run

ERRORS = 5.0
ROUNDING = 1e-9
QUESTIONS = [
    ({"c": 0}, {}),
    ({"c": 1}, {"b": 1}),
    ({"b": 0}, {"c": 2, "x": 1.2}),
    ({"x": -1.0}, {"b": 0}),
    ({"x": 3.0}, {"n": 4.0}),
    ({"n": 0.0}, {"x": -1.2}),
    ({"n": 7.0, "x": 2.0}, {"b": 1, "c": 2}),
    ({"c": 0, "b": 0, "x": -1.0, "n": 0.0}, {}),
]


def exact(target, given):
    """log p(target | given, table)."""
    return Posterior(case([{**target, **given}])).log_evidence - Posterior(case([given])).log_evidence


def known(asking, cells):
    return everyone({n: of_values(asking.conditions.column(n), np.array([v])) for n, v in cells.items()})


def answered(run, questions=QUESTIONS):
    """(answer, error) of each question."""
    asking = Asking(run, draws=10_000)
    result = [asking.log_p(known(asking, a), known(asking, b)) for a, b in questions]
    return np.array([(log[0], error[0]) for log, error, _ in result])


@functools.cache
def evidences():
    """The exact answers, enumerated once, and not by every process that collects this file."""
    return np.array([exact(a, b) for a, b in QUESTIONS])


def test_log_probabilities_are_ratios_of_evidences(tiny):
    log, error = answered(tiny).T
    assert (np.abs(log - evidences()) < ERRORS * error + ROUNDING).all(), np.column_stack([log, evidences(), error])
    assert (error < 0.1).all()
    # answers deviate by about their errors, or some are not errors: the mean square of 8 dependent ratios
    assert 0.02 < np.mean(((log - evidences()) / error) ** 2) < 6.0


def test_answers_that_ignore_what_is_given_are_rejected(tiny, monkeypatch):
    def prior(self, known):
        return law.Given(self, Known(known.n_rows, {}))

    monkeypatch.setattr(law.Law, "given", prior)
    log, error = answered(tiny).T
    given = np.array([bool(b) for _, b in QUESTIONS])
    wrong = np.abs(log - evidences()) > ERRORS * error + ROUNDING
    assert wrong[given].sum() >= 4 and not wrong[~given].any()


def test_answers_without_a_new_cluster_are_rejected(tiny, monkeypatch):
    right = law.ViewLaw.__init__

    def closed(self, *arguments):
        right(self, *arguments)
        self.log_weight = np.append(self.log_weight[:-1], -np.inf)

    monkeypatch.setattr(law.ViewLaw, "__init__", closed)
    log, error = answered(tiny).T
    assert (np.abs(log - evidences()) > ERRORS * error + ROUNDING).any()


def training(asking):
    return known_of(asking.asked.recorded(np.arange(6)), asking.columns)


def left_out(run):
    """Log p of each observed cell of the table given the rest of its row and the other rows, its error, and the
    truth."""
    asking = Asking(run, draws=10_000)
    cells, result = training(asking), []
    passes = list(asking.asked.left_out(cells, np.arange(6)))
    inverse = np.array([each for _, each in passes])
    whole = Posterior(case()).log_evidence
    for (c, name), i in itertools.product(enumerate(cells.of), range(6)):
        if np.isnan(inverse[0, i, c]):
            continue
        columns = [
            (n, kind, tuple(blank(kind) if (n, j) == (name, i) else x for j, x in enumerate(values)), levels)
            for n, kind, values, levels in COLUMNS
        ]
        mean = inverse[:, i, c].mean()
        error = asking.averages.error((inverse[:, i, c] - mean) / mean / len(inverse))
        result.append((-np.log(mean), error, whole - Posterior(case(columns=columns)).log_evidence))
    return np.array(result).T


def blank(kind):
    return -1 if kind == "categorical" else np.nan


def test_cells_left_out_are_ratios_of_evidences(tiny):
    log, error, truth = left_out(tiny)
    assert len(log) == 21
    assert (np.abs(log - truth) < ERRORS * error + ROUNDING).all(), np.column_stack([log, truth, error])


def test_cells_that_are_left_in_are_rejected(tiny, monkeypatch):
    """A row that counts among those of its cluster is no surprise."""
    monkeypatch.setattr(LeftOut, "given", lambda self: self._view.weighted(self._known))
    monkeypatch.setattr(
        LeftOut, "inverse", lambda self, name, weight: self._view.inverse(*self._known.of[name], weight)
    )
    log, error, truth = left_out(tiny)
    assert (log - truth > ERRORS * error).sum() >= 11


@pytest.mark.thorough
def test_views_are_averaged_over(tmp_path):
    """A cross-categorization's evidences are summed over partitions of columns and rows."""
    from tests.exact.cross import CrossCase
    from tests.exact.cross import Posterior as Cross

    columns = tuple((name, kind, cells[:4], levels) for name, kind, cells, levels in COLUMNS[:3])
    run = tiny_run(tmp_path, "crosscat", 3000, columns)
    asking = Asking(run, draws=10_000)

    def evidence(rows):
        grown = case(rows, columns)
        points = {name: (grown.priors[name],) for name in "cbx"}
        return Cross(CrossCase(grown, ((1.0, 0.0),), ((grown.concentration, grown.discount),), points)).log_evidence

    for a, b in (({"c": 1}, {"b": 1}), ({"x": -1.0}, {"b": 0}), ({"b": 0}, {"c": 0, "x": 1.0})):
        log, error, _ = asking.log_p(known(asking, a), known(asking, b))
        assert abs(log[0] - evidence([a | b]) + evidence([b])) < ERRORS * error[0] + ROUNDING
