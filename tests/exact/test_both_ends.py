"""An informed split and the merge that undoes it have one acceptance ratio, from either cluster, in many batches.

The matrices of test_split_merge.py have four rows, so two or three batches. Here the program's own constants give more
than ten, on 600 or 1,000 rows with categories, reals and counts, some missing or idle, on unequal shards. No false
alarms: the two ratios agree to rounding, and a merge whose odds see all rows differs by whole nats.
"""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.moves import alike
from mpibayes.hpc.crosscat.moves.ledger import Cluster, Ledger, gains_of, log_choice
from mpibayes.hpc.parallel.comm import serial
from tests.exact import production, wrong_moves
from tests.exact.enumerate import Case

REAL = {"mean": 0.2, "kappa": 0.3, "nu": 2.5, "variance": 0.6}


def case_of(n, g):
    """A table of three kinds of row, with missing cells in all columns."""
    kind, lost = g.integers(3, size=n), g.random((3, n)) < 0.1
    code = np.where(g.random(n) < 0.6, kind, g.integers(3, size=n))
    number, count = g.normal(kind, 1.0), g.poisson(1 + 2 * kind).astype(float)
    columns = (
        ("c", "categorical", tuple(np.where(lost[0], -1, code).tolist()), ("r", "s", "t")),
        ("x", "real", tuple(np.where(lost[1], np.nan, number).tolist()), None),
        ("n", "count", tuple(np.where(lost[2], np.nan, count).tolist()), None),
    )
    priors = {"c": {"dirichlet": (0.4, 0.8, 0.5)}, "x": REAL, "n": {"shape": 1.2, "rate": 0.5}}
    return Case("both", columns, priors, 0.9, 0.25)


def gap(shards, idle, step):
    """Return how far the log ratio of a split is from minus that of the merge that undoes it, and the batches."""
    g = np.random.default_rng(5)
    mixture = production.sampler(serial(), case_of(sum(shards), g), shards, 3)
    z = np.where(g.random(sum(shards)) < idle, -2, g.integers(2, size=sum(shards))).astype(np.int32)
    mixture.view.resume(lambda i: z[mixture.cut[i] : mixture.cut[i + 1]], 2, mixture.view.hyper)
    mixture.resume(1)
    ledger, whole = Ledger(mixture.view, 1), np.array([0, 0])
    sides, log_q = alike._all_sides(ledger, whole, alike._recall(ledger, whole, 0.4, step), step)
    both, one = ledger.column[0], ledger.enter(ledger.total_sides(sides, np.zeros(2, np.int64), [0]))
    split = ledger.log_split(*map(ledger.cluster, (one, one + 1, both)), 2)
    ledger.part(0, sides, one)
    choices = log_choice(np.array(ledger.of_each(alike._choices_of, [0, 2])), [2, 0])
    split -= log_q + alike._log_proposals(2, np.logaddexp(*choices))
    gaps, n_batches = [], 0
    for a, b in ((0, 2), (2, 0)):
        recalled = alike._recall(ledger, np.array([a, b]), None, step)
        again, log_q = alike._all_sides(ledger, np.array([a, b]), recalled, step)
        assert all(map(np.array_equal, sides, again))
        (gain,), size = ledger.of_each(gains_of, [a]), ledger.sizes()
        parts = Cluster(size[a], 0.0), Cluster(size[b], 0.0), Cluster(size[a] + size[b], gain[b])
        choices = log_choice(np.array(ledger.of_each(alike._choices_of, [a, b])), [b, a])
        merge = alike._log_proposals(2, np.logaddexp(*choices)) + log_q - ledger.log_split(*parts, 2)
        gaps.append(abs(split + merge))
        n_batches = recalled.n_batches
    return max(gaps), n_batches


CASES = [((600,), 0.0), ((150, 400, 50), 0.0), ((300, 500, 200), 0.3)]


@pytest.mark.parametrize("shards, idle", CASES)
def test_both_ends_have_one_ratio(shards, idle):
    for step in range(3):
        far, n_batches = gap(shards, idle, step)
        assert far < 1e-9 and n_batches > 10, (far, n_batches)


def test_odds_of_all_rows_differ_from_one_end():
    with wrong_moves.odds_from_all_rows():
        assert gap(*CASES[1], 0)[0] > 1.0
