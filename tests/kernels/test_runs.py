"""Rows that equal their neighbours: labels, counts and statistics are those of row by row, bit for bit."""

import numpy as np
import pytest

from mpibayes.kernels import mixture
from mpibayes.kernels.mixture import counts, split

from .tables import random_parameters, random_table
from .test_split import random_odds
from .test_twin import TABLES

KEY = {"row0": 7, "seed": 3, "cycle": 4, "sweep": 1, "chain": 2}
SIDES = {"seed": 5, "purpose": 9, "sub": 2, "cycle": 3, "chain": 1}
NAMES = ("codes8", "codes16", "reals", "tallies", "vectors", "spells")


def in_runs(kind, n_patterns=12, most=90, seed=0):
    """Rows in runs of equal ones of random lengths, and their prior."""
    rng = np.random.default_rng([61, len(kind), seed])
    rows, prior = random_table(rng, n_patterns, **TABLES[kind])
    return rows.take(np.repeat(np.arange(n_patterns), rng.integers(1, most, n_patterns))), prior, rng


def one_by_one(n):
    """Rows without neighbours."""
    return [np.arange(i, i + 1) for i in range(n)]


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("n_clusters, anchored", [(1, 0), (5, 5), (16, 3), (45, 20), (130, 0)])
@pytest.mark.parametrize("kind", TABLES)
def test_sweep(kind, n_clusters, anchored):
    """Whole shards against one row at a time: labels are independent. Anchors stay, and close their clusters to
    rows of lower priority."""
    rows, prior, rng = in_runs(kind)
    n, row0 = len(rows), KEY["row0"]
    priority = mixture.priorities(row0, n, KEY["seed"], KEY["cycle"], KEY["chain"])
    at = np.sort(rng.permutation(np.argsort(priority)[: n // 2])[:anchored])
    at = at[np.argsort(priority[at])]
    held = mixture.Instantiated(**random_parameters(rng, prior, n_clusters, n_clusters - anchored, priority[at]))
    z = rng.integers(-3, n_clusters, n).astype(np.int32)
    z[at] = n_clusters - anchored + np.arange(len(at))
    whole, by_parts, moved = z.copy(), z.copy(), 0
    more = KEY["seed"], KEY["cycle"], KEY["sweep"], KEY["chain"], held, None, prior
    for part in one_by_one(n):
        labels = by_parts[part]
        moved += mixture.sweep(rows.take(part), labels, row0 + part[0], *more)
        by_parts[part] = labels
    assert mixture.sweep(rows, whole, row0, *more) == moved
    assert np.array_equal(whole, by_parts)
    assert np.array_equal(whole[z < -1], z[z < -1]) and np.array_equal(whole[at], z[at])
    if n_clusters > 1:
        assert moved > n / 4


@pytest.mark.parametrize("kind", TABLES)
def test_counts(kind):
    rows, prior, rng = in_runs(kind, seed=1)
    n, n_clusters = len(rows), 9
    before, after = (rng.integers(-3, n_clusters + 2, n).astype(np.int32) for _ in range(2))
    after[: n // 2] = np.where(rng.random(n // 2) < 0.9, before[: n // 2], after[: n // 2])
    whole = counts.recount(rows, before, after, n_clusters, prior.offsets)
    sums = None
    for part in one_by_one(n):
        sums = counts.recount(rows.take(part), before[part], after[part], n_clusters, prior.offsets, sums)
    for a, b in zip(whole, sums, strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
    relabel = rng.integers(-1, n_clusters, 13).astype(np.int32)
    labels = rng.integers(-2, 13, n).astype(np.int32)
    full = mixture.accumulate(rows, labels, n_clusters, prior.offsets, relabel=relabel)
    exact = [0, 1, 5, 6]
    sums = [np.zeros_like(full[i]) for i in exact]
    for part in one_by_one(n):
        of = mixture.accumulate(rows.take(part), labels[part], n_clusters, prior.offsets, relabel=relabel)
        sums = [a + of[i] for a, i in zip(sums, exact, strict=True)]
    for a, i in zip(sums, exact, strict=True):
        assert a.tobytes() == full[i].tobytes()


def test_errors_name_their_row():
    rows, prior, rng = in_runs("real", seed=2)
    held = mixture.Instantiated(**random_parameters(rng, prior, 4, 4, []))
    z = np.zeros(len(rows), np.int32)
    z[200] = 4
    with pytest.raises(ValueError, match="row 207"):
        mixture.sweep(rows, z, *KEY.values(), held, None, prior)
    with pytest.raises(ValueError, match="row 200"):
        mixture.accumulate(rows, z, 4, prior.offsets)
    z[200], rows.reals[300] = 0, np.inf
    with pytest.raises(FloatingPointError, match="row 307"):
        mixture.sweep(rows, z, *KEY.values(), held, None, prior)


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("kind", TABLES)
def test_sides(kind):
    """Sides, and sums of their log probabilities, against the same rows among as many others of no group."""
    rows, prior, rng = in_runs(kind, seed=3)
    other, _, _ = in_runs(kind, n_patterns=900, most=2, seed=4)
    n, n_clusters, n_groups = len(rows), 6, 4
    mixed = np.empty(2 * n, np.int64)
    mixed[::2], mixed[1::2] = np.arange(n), n + np.arange(n) % len(other)
    both = {name: np.concatenate([getattr(rows, name), getattr(other, name)]) for name in NAMES if has(rows, name)}
    among = type(rows)(**{name: np.ascontiguousarray(a[mixed]) for name, a in both.items()}, widths=rows.widths)
    z, ids = rng.integers(-1, n_clusters, n).astype(np.int32), 70 + np.arange(n)
    group = np.array([0, 1, 1, 2, -1, 3], np.int32)
    given = np.array([-1, 0, 1, -1, -1, -1], np.int8)
    seeds = np.array([[ids[3], ids[n - 2]], [-1, -1], [-1, -1], [-1, -1]])
    odds = random_odds(rng, prior, n_groups, 0.6)
    label, log_q = split.sides(rows, z, ids, group, given, seeds, odds, prior.offsets, **SIDES)
    z_among, ids_among = np.full(2 * n, -1, np.int32), np.repeat(ids, 2)
    z_among[::2] = z
    expected, expected_q = split.sides(among, z_among, ids_among, group, given, seeds, odds, prior.offsets, **SIDES)
    assert np.array_equal(label, expected[::2]) and log_q.tobytes() == expected_q.tobytes()
    drawn = label[(z == 0) | (z == 3)]
    assert 0.02 < (drawn & 1).mean() < 0.98


def has(rows, name):
    return getattr(rows, name) is not None


def test_chosen():
    """Rows by the shares of their clusters, all of a share of 1 and none of 0; idle rows never."""
    rng = np.random.default_rng(62)
    z, share = rng.integers(-2, 4, 400).astype(np.int32), np.array([0.0, 0.3, 1.0, 0.6])
    u = (split.words(np.arange(40, 440), **SIDES) >> np.uint64(11)) * 2.0**-53
    expected = np.flatnonzero((z >= 0) & (u < share[z]))
    assert np.array_equal(split.chosen(z, share, 40, **SIDES), expected)
    assert (z == 2).sum() + 20 < len(expected) < (z >= 0).sum()
