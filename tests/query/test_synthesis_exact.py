"""Synthetic rows against enumeration: of a tiny table the probability of further rows, of one or of several together,
is a ratio of evidences. A sound program fails about once in 1,000 seeds: 17 frequencies, each within 5 of its own
errors. There are 1,260 tables of 200 rows."""

import itertools
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from scipy.stats import chisquare

from mpibayes.hpc.crosscat.laws import synthesis
from mpibayes.hpc.crosscat.laws.cell_draws import CellDraws
from mpibayes.hpc.crosscat.laws.population import log_cluster_weights
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.hpc.query.asking import Asking
from tests.exact.enumerate import Posterior
from tests.query.runs import case, tiny_run

ERRORS = 5.0
PAIRS = 100  # of rows of a table
EVENTS = [
    *(({"c": c, "b": b},) for c, b in itertools.product((0, 1, 2), (0, 1))),
    *(({"c": c, "n": 0.0},) for c in (0, 1, 2)),
    *(({"c": c}, {"c": d}) for c, d in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2))),
    *(({"n": n}, {"n": n}) for n in (0.0, 1.0, 3.0)),
]


@pytest.fixture(scope="module")
def exact():
    whole = Posterior(case()).log_evidence
    return np.exp([Posterior(case(rows)).log_evidence - whole for rows in EVENTS])


def happened(cells, rows):
    """Share of the pairs of rows of a table that have these cells."""
    result = np.ones(PAIRS, bool)
    for i, row in enumerate(rows):
        for name, value in row.items():
            result &= cells[name][i::2] == value
    return result.mean()


def frequencies(run):
    """Frequencies of the events in synthetic tables, and their errors."""
    asking, ids = Asking(run, draws=10_000), np.arange(2 * PAIRS)
    result = []
    for table in asking.asked.syntheses(1, len(ids), {}):
        cells = table.cells(ids, table.parts(ids))
        result.append([happened(cells, rows) for rows in EVENTS])
    result = np.array(result)
    return result.mean(axis=0), asking.averages.error((result - result.mean(axis=0)) / len(result))


def wrong(run, exact):
    mean, error = frequencies(run)
    return np.abs(mean - exact) > ERRORS * error + 1e-9, np.column_stack([mean, exact, error])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("rows"), cycles=1400)


@pytest.mark.thorough
def test_rows_alone_and_together_have_the_posterior_probability(run, exact):
    assert exact[:6].sum() == pytest.approx(1.0)
    off, table = wrong(run, exact)
    assert not off.any(), table[off]
    assert (table[:, 2] < 0.04).all()


@pytest.mark.thorough
def test_rows_without_new_clusters_are_rejected(run, exact, monkeypatch):
    right = synthesis._View.__init__

    def closed(self, *arguments):
        right(self, *arguments)
        self._below = self._below / self._below[-1]

    monkeypatch.setattr(synthesis._View, "__init__", closed)
    assert wrong(run, exact)[0].any()


@pytest.mark.thorough
def test_rows_with_parameters_of_their_own_are_rejected(run, exact, monkeypatch):
    """New clusters are one, and each cell has a draw of its own."""
    right_draws = CellDraws.__init__
    monkeypatch.setattr(CellDraws, "__init__", lambda self, view, parameters, more: right_draws(self, view))
    right = synthesis._View.clusters
    monkeypatch.setattr(synthesis._View, "clusters", lambda self, ids: np.minimum(right(self, ids), len(self._below)))
    assert wrong(run, exact)[0].any()


def clusters_of_tables(n_tables, mean_weight=None):
    """Clusters of four rows of each of many tables, where two clusters have 3 and 1 training rows."""
    size = np.array([3, 1])

    class Sizes(SimpleNamespace):
        def __len__(self):
            return 2

    law = SimpleNamespace(
        names={"c"}, number=0, hyper=SimpleNamespace(concentration=0.7, discount=0.4), statistics=Sizes(size=size),
        log_weight=log_cluster_weights(size, 0.7, 0.4, mean_weight),
    )  # fmt: skip
    with mock.patch.object(synthesis, "CellDraws"):
        return [tuple(synthesis._View(law, 5, t, 4).clusters(np.arange(4)).tolist()) for t in range(n_tables)]


def probability(at, concentration=0.7, discount=0.4):
    """Probability of the clusters of rows that come one by one, by the predictive probabilities of Pitman (1995)."""
    p, sizes = 1.0, [3, 1]
    for cluster in at:
        total = concentration + sum(sizes)
        if cluster == len(sizes):
            p *= (concentration + discount * len(sizes)) / total
            sizes.append(1)
        else:
            p *= (sizes[cluster] - discount) / total
            sizes[cluster] += 1
    return p


def as_the_process(found):
    """p-value of chi-square; events of fewer than 5 expected tables are one."""
    every = [
        at for at in itertools.product(range(6), repeat=4) if all(k <= max((1, *at[:i])) + 1 for i, k in enumerate(at))
    ]
    expected = len(found) * np.array([probability(at) for at in every])
    assert expected.sum() == pytest.approx(len(found))
    counts, few = np.array([found.count(at) for at in every]), expected < 5.0
    counts, expected = (np.append(x[~few], x[few].sum()) for x in (counts, expected))
    return chisquare(counts, expected).pvalue


def test_clusters_of_a_table_have_the_law_of_the_process(monkeypatch):
    """A sound program fails once in 1,000 seeds. Weights at their mean and seats without the discount are rejected."""
    assert as_the_process(clusters_of_tables(4000)) > 0.001
    right = synthesis.seated
    with monkeypatch.context() as patch:
        patch.setattr(synthesis, "seated", lambda n, concentration, d, g: right(n, concentration, 0.0, g))
        assert as_the_process(clusters_of_tables(4000)) < 0.001
    monkeypatch.setattr(Stream, "log_dirichlet", lambda self, shape: np.log(shape / shape.sum()))
    assert as_the_process(clusters_of_tables(4000)) < 0.001


def test_clusters_of_a_population_follow_the_survey_weights():
    """Shares of the clusters beside weights that NumPy draws, within 5 standard errors of 4,000 tables. Equal survey
    weights change nothing."""
    plain, equal = clusters_of_tables(200), clusters_of_tables(200, np.array([7.0, 7.0]))
    assert plain == equal
    result = np.array(clusters_of_tables(4000, np.array([1.0, 6.0])))
    p = np.random.default_rng(1).dirichlet([2.6, 0.6, 1.5], 200_000) * (np.array([1.0, 6.0, 1.0]))
    scale = 3.2 / (2.6 + 6 * 0.6)  # what clusters have together stays
    p[:, :2] *= scale
    expected = (p / p.sum(axis=1, keepdims=True)).mean(axis=0)
    shares = np.stack([(result == 0).mean(axis=1), (result == 1).mean(axis=1), (result > 1).mean(axis=1)], axis=1)
    assert (np.abs(shares.mean(axis=0) - expected) < 5 * shares.std(axis=0) / np.sqrt(len(shares))).all()
    assert (np.array(plain) == 1).mean() < shares.mean(axis=0)[1] - 0.1
