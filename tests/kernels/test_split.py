"""The kernels of the split and merge moves, against their plain twin, NumPy, and the laws they claim."""

from math import log, log1p
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import log_expit
from scipy.stats import chisquare

from mpibayes.kernels.mixture import split, twin_split
from mpibayes.kernels.mixture.twin_cluster import SPELL_PARTS

from .tables import random_table
from .test_twin import TABLES

KEY = {"seed": 5, "purpose": 12, "sub": 3, "cycle": 9, "chain": 2}


def random_odds(rng, prior, n_groups, size=1.0):
    """Odds with every part in use; 0 in the missing rows of the table, as the program has it."""
    table = rng.normal(0, size, (n_groups, prior.offsets[-1])).astype(np.float32)
    table[:, prior.offsets[1:] - 1] = 0.0
    real = rng.normal(0, size, (n_groups, len(prior.normal), 5))
    real[..., [2, 4]] = np.exp(real[..., [2, 4]])
    count = rng.normal(0, 0.2 * size, (n_groups, len(prior.gamma), 2))
    widths = np.array(prior.widths, int)
    vector = rng.normal(0, 0.4 * size, (n_groups, (1 + 2 * widths + widths * (widths + 1)).sum()))
    weight = np.where(np.arange(n_groups) % 2, 1.0, 0.7)
    result = SimpleNamespace(
        prior=rng.normal(0, size, n_groups), weight=weight, table=table, real=real, count=count, vector=vector
    )
    spell = rng.normal(0, 0.3 * size, (n_groups, len(prior.spell_gamma), 3 * SPELL_PARTS))
    spell[..., 2 * SPELL_PARTS :] *= 1e-3  # a tick
    result.spell = spell
    return result


def bare(n):
    """Rows without columns, and the offsets of no column."""
    types = {"codes8": np.uint8, "codes16": np.uint16, "reals": np.float64, "tallies": np.float64}

    class Rows(SimpleNamespace):
        def __len__(self):
            return n

    return Rows(**{name: np.empty((n, 0), dtype) for name, dtype in types.items()}), np.zeros(1, np.int64)


def sides_of(log_odds, given=-1, key=KEY, start=0):
    """(side, log_q) of rows that are each a group of its own, with these log odds."""
    n = len(log_odds)
    rows, offsets = bare(n)
    odds = SimpleNamespace(
        prior=np.array(log_odds, float), weight=np.ones(n), table=np.empty((n, 0), np.float32),
        real=np.empty((n, 0, 5)), count=np.empty((n, 0, 2)),
    )  # fmt: skip
    part, nobody = np.arange(n, dtype=np.int32), np.full((n, 2), -1)
    label, log_q = split.sides(
        rows, part, start + np.arange(n), part, np.full(n, given, np.int8), nobody, odds, offsets, **key
    )
    assert np.array_equal(label >> 1, part)
    return label & 1, log_q


# ---- against the twin ------------------------------------------------------------------------------------------------


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("given_share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("kind", TABLES)
def test_sides_agree_with_the_twin(kind, given_share):
    """Clusters in groups of one or two or in none, rows without a cluster, seeds here and on other shards."""
    rng = np.random.default_rng([21, len(kind), int(10 * given_share)])
    n, n_clusters, n_groups, start = 120, 9, 5, 1007
    rows, prior = random_table(rng, n, **TABLES[kind])
    group = np.array([0, 1, 2, -1, 3, 3, 4, 1, -1], np.int32)
    given = np.where(rng.random(n_clusters) < given_share, rng.integers(0, 2, n_clusters), -1).astype(np.int8)
    z = rng.integers(-2, n_clusters, n).astype(np.int32)
    ids = start + np.sort(rng.permutation(4 * n)[:n])  # rows that were chosen from a shard
    seeds = np.array([rng.choice(ids[group[np.maximum(z, 0)] == g], 2, replace=False) for g in range(n_groups)])
    seeds[4] = start - 3, start + 4 * n + 1  # not here
    seeds[2, 1] = start - 1
    odds = random_odds(rng, prior, n_groups, 0.6)
    arguments = rows, z, ids, group, given, seeds, odds, prior.offsets
    label, log_q = split.sides(*arguments, **KEY)
    expected, expected_q = twin_split.sides(*arguments, **KEY)
    assert label.dtype == np.int32 and log_q.dtype == np.float64
    assert np.array_equal(label, expected)
    np.testing.assert_allclose(log_q, expected_q, 1e-12, 1e-12)
    assert (label[z < 0] == -1).all() and (label[(z >= 0) & (group[np.maximum(z, 0)] < 0)] == -1).all()
    if given_share == 0.0:
        assert len(np.unique(label)) > n_groups
    for g, (first, second) in enumerate(seeds):
        seated = (z >= 0) & (group[np.maximum(z, 0)] == g)
        assert (label[seated & (ids == first)] == 2 * g).all() and (label[seated & (ids == second)] == 2 * g + 1).all()


@pytest.mark.parametrize("kind", TABLES)
def test_log_q_is_that_of_the_sides_taken(kind):
    """Sides that were drawn, given back row by row, have the same probability; seeds have no part in it."""
    rng = np.random.default_rng([22, len(kind)])
    n = 60
    rows, prior = random_table(rng, n, **TABLES[kind])
    z, ids = np.zeros(n, np.int32), np.arange(n)
    seeds, odds = np.array([[4, 41]]), random_odds(rng, prior, 1, 0.3)
    free = np.full(1, -1, np.int8)
    label, log_q = split.sides(rows, z, ids, np.zeros(1, np.int32), free, seeds, odds, prior.offsets, **KEY)
    again, given_q = split.sides(
        rows, ids.astype(np.int32), ids, np.zeros(n, np.int32), label.astype(np.int8), seeds, odds, prior.offsets, **KEY
    )
    assert np.array_equal(label, again) and log_q == given_q
    x = [twin_split.log_odds(rows, i, 0, odds, prior.offsets) for i in range(n)]
    expected = sum(log_expit(x[i] if label[i] else -x[i]) for i in range(n) if i not in (4, 41))
    np.testing.assert_allclose(log_q, [expected], 1e-12)


def test_other_arguments_are_refused():
    rows, prior = random_table(np.random.default_rng(23), 5, levels8=(2,), n_reals=1)
    odds = random_odds(np.random.default_rng(24), prior, 1)
    z, ids, one = np.zeros(5, np.int32), np.arange(5), np.zeros(1, np.int32)
    right = [rows, z, ids, one, one.astype(np.int8), np.array([[0, 1]]), odds, prior.offsets]
    split.sides(*right, **KEY)
    wrong = {1: z[:4], 2: ids[:4], 3: np.zeros(2, np.int32), 5: np.zeros((2, 2), np.int64), 7: prior.offsets + 1}
    for place, value in wrong.items():
        with pytest.raises(ValueError, match="fit together"):
            split.sides(*right[:place], value, *right[place + 1 :], **KEY)


# ---- special functions -----------------------------------------------------------------------------------------------


def test_log_logistic():
    """log_q of one row, against the C library: within a few units in the last place of what is subtracted."""
    x = np.concatenate(
        [np.linspace(-800, 800, 4001), np.geomspace(1e-300, 700, 2000), -np.geomspace(1e-300, 700, 2000)]
    )
    for given, sign in ((1, 1.0), (0, -1.0)):
        _, log_q = sides_of(x, given)
        expected = np.array([min(sign * t, 0.0) - log1p(np.exp(-abs(t))) for t in x.tolist()])
        assert (log_q <= 0.0).all()  # a merge is rejected on this ground before its sides are known
        assert (np.abs(log_q - expected) <= 4 * 2.0**-53 * np.maximum(1.0, np.abs(expected))).all()
    assert sides_of([-750.0, 750.0], 1)[1].tolist() == [-750.0, 0.0]


def test_sides_fall_where_the_logistic_function_says():
    """A hair below the log odds of its uniform a row goes to side 0, a hair above to side 1.

    The hair: 3e-15 relative in exp(-|x|), the rounding of x itself, and 4e-16 in the uniform where it is close to 1.
    """
    n = 4000
    u = (split.words(np.arange(n), **KEY) >> np.uint64(11)) * 2.0**-53
    at = np.array([log(v) - log1p(-v) for v in u.tolist()])
    hair = 3e-15 + 4e-16 * np.abs(at) + 4e-16 / (1.0 - u)
    assert not sides_of(at - hair)[0].any()
    assert sides_of(at + hair)[0].all()
    assert not sides_of(np.full(n, -709.0))[0].any() and sides_of(np.full(n, 709.0))[0].all()


@pytest.mark.parametrize("x", [-3.0, -0.4, 0.0, 1.7])
def test_share_of_sides(x):
    """Independent sides with probability 1 / (1 + exp(-x)); false-alarm rate 1e-4 each."""
    n = 40_000
    share = np.exp(log_expit(x))
    side = sides_of(np.full(n, x))[0]
    pairs = np.bincount(2 * side[0::2] + side[1::2], minlength=4)
    expected = [(1 - share) ** 2, (1 - share) * share, share * (1 - share), share**2]
    assert chisquare(pairs, np.array(expected) * n / 2).pvalue > 1e-4


# ---- words and seeds -------------------------------------------------------------------------------------------------


def test_words_are_those_of_numpy():
    large = 2**64 - 1
    ids = np.array([0, 1, 2, 3, 4, 7, 6, 5, 2**40 + 3, 2**40, 11])
    for values in [(0, 0, 0, 0, 0), (7, 13, 3, 2, 5), (large, large, large, large, 2**63)]:
        key = dict(zip(KEY, values))
        ours = split.words(ids, **key)
        assert ours.dtype == np.uint64 and np.array_equal(ours, twin_split.words(ids, **key))
    stream = np.random.Philox(key=[5, 12], counter=[3, 3, 9, 2])  # the first block NumPy returns has word 0 = 4
    assert np.array_equal(stream.random_raw(4), split.words(np.arange(16, 20), **KEY))
    assert len(split.words(np.empty(0, np.int64), **KEY)) == 0


def test_two_least_are_the_first_of_a_sort():
    rng = np.random.default_rng(25)
    for n in (0, 1, 2, 50, 400):
        z = rng.integers(-2, 8, n).astype(np.int32)
        z[z == 3] = 2  # nobody in cluster 3
        z[np.flatnonzero(z == 5)[1:]] = 4  # at most one row in cluster 5
        result = split.two_least(z, 1003, 8, **KEY)
        assert result.dtype == np.uint64
        assert np.array_equal(result, twin_split.two_least(z, 1003, 8, **KEY))
        drawn = split.words(1003 + np.arange(n), **KEY)
        for k in range(8):
            rows = np.flatnonzero(z == k)
            rows = rows[np.argsort(drawn[rows])][:2]
            assert result[k, : len(rows)].tolist() == drawn[rows].tolist()
            assert result[k, 2 : 2 + len(rows)].tolist() == (1003 + rows).tolist()
            assert (result[k, len(rows) : 2] == 2**64 - 1).all()


def test_two_least_are_a_uniform_pair():
    """Over cycles every pair of a cluster's rows is as frequent; false-alarm rate 1e-4."""
    z = np.array([0, 1, 0, 0, -2, 1, 0, 0], np.int32)
    count = np.zeros((8, 8), int)
    for cycle in range(4000):
        first, second = split.two_least(z, 0, 2, **{**KEY, "cycle": cycle})[0, 2:].astype(int)
        count[first, second] += 1
    rows = np.flatnonzero(z == 0)
    observed = count[np.ix_(rows, rows)][~np.eye(5, dtype=bool)]
    assert observed.sum() == 4000
    assert chisquare(observed).pvalue > 1e-4


@pytest.mark.parametrize("n", [1, 2, 23, 3 * 2**30])
def test_steps_begin_with_the_draws_of_numpys_generator(n):
    """Also where an integer below n takes several words, as one in four of the last n does."""
    key = {name: KEY[name] for name in ("seed", "purpose", "cycle", "chain")}
    drawn = split.begin_steps(np.arange(1, 100), n, **key), twin_split.begin_steps(np.arange(1, 100), n, **key)
    assert all(np.array_equal(a, b) for a, b in zip(*drawn, strict=True))


@pytest.mark.parametrize("bias", [-1.0, 0.4])
def test_recalled_sides_are_those_of_the_twin(bias):
    rng = np.random.default_rng(5)
    z = rng.integers(-1, 5, 200).astype(np.int32)
    first = split.first_row(z, 1, 3)
    assert first == twin_split.first_row(z, 1, 3) and split.first_row(z, 7, 8) == -1
    key = {name: KEY[name] for name in ("seed", "sub", "cycle", "chain")}
    of = z, 1000, 1, 3, 1000 + first, 3, np.array([0.2, 0.5, 0.8, 1.0]), bias, 18, 19
    recalled = split.recall(*of, **key), twin_split.recall(*of, **key)
    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(*recalled, strict=True))
