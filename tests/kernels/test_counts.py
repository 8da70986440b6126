"""Counts kept up by the rows that changed cluster, against their plain twin and full passes."""

import numpy as np
import pytest

from mpibayes.kernels import mixture
from mpibayes.kernels.mixture import counts, twin_counts

from .tables import FIELDS, random_table
from .test_twin import TABLES

COUNTED = [FIELDS.index(name) for name in ("size", "levels", "tally_n", "tally_sum")]


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("changed", [0.0, 0.1, 1.0])
def test_recount_agrees_with_the_twin(kind, changed):
    """Labels of no cluster, below and above, before and after."""
    rng = np.random.default_rng([31, len(kind), int(10 * changed)])
    n, n_clusters = 150, 7
    rows, prior = random_table(rng, n, **TABLES[kind])
    before = rng.integers(-3, n_clusters + 2, n).astype(np.int32)
    after = np.where(rng.random(n) < changed, rng.integers(-3, n_clusters + 2, n), before).astype(np.int32)
    ours = counts.recount(rows, before, after, n_clusters, prior.offsets)
    theirs = twin_counts.recount(rows, before, after, n_clusters, prior.offsets)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    if changed == 0.0:
        assert not any(a.any() for a in ours)


@pytest.mark.parametrize("kind", TABLES)
def test_kept_counts_are_those_of_a_full_pass(kind):
    """Many changes, one after another, and a first count from nothing: not a bit is lost."""
    rng = np.random.default_rng([32, len(kind)])
    n, n_clusters = 150, 6
    rows, prior = random_table(rng, n, **TABLES[kind])
    labels = np.full(n, -1, np.int32)
    kept = counts.recount(rows, labels, labels, n_clusters, prior.offsets)
    for _ in range(20):
        new = np.where(rng.random(n) < 0.3, rng.integers(-1, n_clusters, n), labels).astype(np.int32)
        kept = [a + b for a, b in zip(kept, counts.recount(rows, labels, new, n_clusters, prior.offsets), strict=True)]
        full = mixture.accumulate(rows, new, n_clusters, prior.offsets)
        for a, i in zip(kept, COUNTED, strict=True):
            assert a.dtype == full[i].dtype and a.tobytes() == full[i].tobytes(), FIELDS[i]
        labels = new


def test_other_arguments_are_refused():
    rows, prior = random_table(np.random.default_rng(33), 5, levels8=(2, 3))
    z = np.zeros(5, np.int32)
    counts.recount(rows, z, z, 1, prior.offsets)
    for before, after, offsets in [
        (z[:4], z[:4], prior.offsets),
        (z, z[:4], prior.offsets),
        (z, z, prior.offsets[:2]),
    ]:
        with pytest.raises(ValueError, match="fit together"):
            counts.recount(rows, before, after, 1, offsets)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_codes_are_added_as_by_the_twin(kind):
    """More rows than a piece, some of them skipped, and columns in any order."""
    rng = np.random.default_rng(33)
    n, n_groups, first = 5000, 7, np.array([4, 0, 9])
    codes, groups = rng.integers(0, 4, (5, n)).astype(kind), rng.integers(-2, n_groups, n).astype(np.int32)
    ours, theirs = (np.ones((13, n_groups), np.int32) for _ in range(2))
    for add, levels in ((counts.add_codes, ours), (twin_counts.add_codes, theirs)):
        add(codes, np.array([3, 0, 1]), groups, first, levels)
    assert np.array_equal(ours, theirs)
    with pytest.raises(ValueError):
        counts.add_codes(codes, np.array([0]), groups + np.int32(2), np.array([0]), ours)
