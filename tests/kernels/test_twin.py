"""The kernels and their twin in plain Python give the same labels, counts and densities on random mixed tables."""

from math import lgamma

import numpy as np
import pytest

from mpibayes.kernels import mixture
from mpibayes.kernels.mixture import twin, twin_cluster

from .tables import FIELDS, Statistics, covering, random_parameters, random_prior, random_table, with_reluctant_first

TABLES = {
    "categorical": {"levels8": (2, 3, 7, 4), "levels16": (300,)},
    "even categories": {"levels8": (2, 3, 7) * 12, "levels16": (300,), "missing": 0.02, "even": True},
    "real": {"n_reals": 3},
    "real, complete": {"n_reals": 9, "missing": 0.0, "same_nu": True, "scale": 0.3},
    "real, powers of two": {"n_reals": 9, "missing": 0.0, "powers": True, "scale": 0.3},
    "real, powers of two, few missing": {"n_reals": 4, "missing": 0.05, "powers": True, "scale": 0.3},
    "count": {"n_tallies": 2},
    "mixed": {"levels8": (2, 5), "levels16": (260, 400), "n_reals": 2, "n_tallies": 2},
    "wide": {"levels8": (3,) * 40, "n_reals": 1, "missing": 0.4},
    "nothing": {},
    "vector": {"blocks": (3,)},
    "vectors": {"levels8": (3,), "n_reals": 1, "blocks": (1, 2, 6, 9), "missing": 0.15},
    "vectors, complete": {"blocks": (5, 12), "missing": 0.0, "scale": 0.7},
    "real, more than a vector": {"n_reals": 11},
    "survival": {"n_spells": 1, "levels8": (3,)},
    "survivals": {"n_spells": 2, "n_reals": 1, "n_tallies": 1, "missing": 0.05},
    "linked": {"levels8": (2, 3, 7, 4), "levels16": (300,), "contexts": (3, 5, 1, 8)},
    "linked, complete": {"levels8": (2, 3) * 9, "missing": 0.0, "contexts": (4, 2) * 8},
}


def assert_same_tail(compiled, plain, prior):
    """Statistics of the two tails agree slot by slot."""
    assert (compiled.n_slots, compiled.n_rows, compiled.n_occupied) == (plain.n_slots, plain.n_rows, plain.n_occupied)
    for t, slot in enumerate(plain.slots):
        assert compiled.size[t] == slot.size
        assert np.array_equal(compiled.levels[:, t], slot.levels)
        for r, (n, mean, scatter) in enumerate(slot.reals):
            assert compiled.real_n[r, t] == n
            ours = compiled.real_mean[r, t], compiled.real_scatter[r, t]
            np.testing.assert_allclose(ours, [mean, scatter], 1e-9, 1e-9)
        for q, (n, total) in enumerate(slot.tallies):
            assert (compiled.tally_n[q, t], compiled.tally_sum[q, t]) == (n, total)
        blocks = twin.blocks_of(twin.widths_of(prior), compiled, t)
        for b, ((n, mean, scatter), (our_mean, our_pairs)) in enumerate(zip(slot.vectors, blocks, strict=True)):
            assert compiled.vector_n[b, t] == n
            np.testing.assert_allclose(our_mean, mean, 1e-9, 1e-9)
            np.testing.assert_allclose(our_pairs, scatter[np.tril_indices(len(mean))], 1e-8, 1e-8)
        for s, (events, exposure) in enumerate(slot.spells):
            part = slice(twin.SPELL_PARTS * s, twin.SPELL_PARTS * (s + 1))
            beyond = np.cumsum(compiled.spell_ended[part, t][::-1])[::-1] - compiled.spell_ended[part, t]
            assert np.array_equal(compiled.spell_events[part, t], events)
            assert np.array_equal(compiled.spell_time[part, t] + beyond * prior.spell_width[part], exposure)
    assert not compiled.size[plain.n_slots :].any()


@pytest.mark.quick(every=5)
@pytest.mark.parametrize("discount", [0.0, 0.35])
@pytest.mark.parametrize("kind", TABLES)
def test_tail_alone(kind, discount):
    """Neal's Algorithm 3 on one shard, from no row seated: slots open, close, and outgrow the capacity."""
    rng = np.random.default_rng([1, len(kind)])
    rows, prior = random_table(rng, 60, **TABLES[kind])
    tails = [module.Tail(prior, 4.0, discount, -0.3) for module in (mixture, twin)]
    z = [np.full(60, -1, dtype=np.int32) for _ in tails]
    for cycle in range(2):
        for step in range(2):
            moved = [
                module.sweep(rows, labels, 5, 11, cycle, step, 0, None, tail, prior)
                for module, tail, labels in zip((mixture, twin), tails, z, strict=True)
            ]
            assert np.array_equal(*z)
            assert moved[0] == moved[1]
            assert_same_tail(*tails, prior)
    sums = mixture.accumulate(rows, z[0], tails[0].n_slots, prior.offsets)
    for name, recomputed in zip(FIELDS, sums, strict=True):
        kept = getattr(tails[0], name)[..., : tails[0].n_slots]
        np.testing.assert_allclose(kept, recomputed, 1e-9, 1e-9, err_msg=name)
    np.testing.assert_allclose(mixture.log_predictive(rows, tails[0]), twin.log_predictive(rows, tails[1]), atol=3e-5)
    both = mixture.log_predictive_clusters(rows, tails[0]), twin.log_predictive_clusters(rows, tails[1])
    np.testing.assert_allclose(*both, atol=1e-4)


SHAPES = [(5, 0, False), (16, 3, True), (35, 35, False), (70, 20, True), (5, 0, True), (16, 3, False), (70, 20, False)]


@pytest.mark.quick(every=8)
@pytest.mark.parametrize("n_clusters, free, with_tail, kind", covering(SHAPES, TABLES, 3))
def test_prefix_and_tail(kind, with_tail, n_clusters, free):
    """Instantiated clusters with anchors; rows move into the tail and back."""
    n, row0, seed, cycle, chain = 90, 7, 3, 4, 1
    rng = np.random.default_rng([2, len(kind), n_clusters])
    rows, prior = random_table(rng, n, **TABLES[kind])
    priority = mixture.priorities(row0, n, seed, cycle, chain)
    order = np.argsort(priority)
    anchored = order[: n_clusters - free]  # the least priorities of all: every anchor rule is met by what comes later
    start = rng.integers(0, n_clusters, size=n).astype(np.int32) if free else None
    if start is None:
        start = np.zeros(n, dtype=np.int32)
    else:
        start %= free
    start[anchored] = free + np.arange(len(anchored))
    parameters = random_parameters(rng, prior, n_clusters, free, priority[anchored])
    held = [module.Instantiated(**parameters) for module in (mixture, twin)]
    tails = [module.Tail(prior, 1.5, 0.2, np.log(0.4)) if with_tail else None for module in (mixture, twin)]
    z = [start.copy() for _ in tails]
    for step in range(2):
        moved = [
            module.sweep(rows, labels, row0, seed, cycle, step, chain, g, tail, prior)
            for module, g, tail, labels in zip((mixture, twin), held, tails, z, strict=True)
        ]
        assert np.array_equal(*z)
        assert moved[0] == moved[1]
        if with_tail:
            assert_same_tail(*tails, prior)
    assert np.array_equal(z[0][anchored], start[anchored])
    if with_tail:
        assert tails[0].n_rows == (z[0] >= held[0].base).sum() > 0
    free_of_anchors = [labels.copy() for labels in z]
    for module, g, tail, labels in zip((mixture, twin), held, tails, free_of_anchors, strict=True):
        module.sweep(rows, labels, row0, seed, cycle, 9, chain, g, tail, prior, priority_free=True)
    assert np.array_equal(*free_of_anchors)


@pytest.mark.quick("5-count", "16-mixed", "20-real")
@pytest.mark.parametrize("n_clusters, kind", covering([(5,), (16,), (20,)], [*TABLES, "counts small and large"]))
def test_empty_tail(kind, n_clusters):
    """The new cluster alone beside instantiated ones, with every weight at which some row is undecided: a score that is
    off by a tenth opens it for another row in some of the sweeps."""
    n, opened = 24, 0
    rng = np.random.default_rng([5, len(kind), n_clusters])
    rows, prior = random_table(rng, n, **TABLES.get(kind, {"n_tallies": 2, "large": True}))
    parameters = random_parameters(rng, prior, n_clusters, n_clusters, np.zeros(0, np.uint64))
    held = [module.Instantiated(**parameters) for module in (mixture, twin)]
    rows, even = with_reluctant_first(rows, prior, parameters)
    for step, log_weight in enumerate(np.repeat(even, 3)):
        z = [np.zeros(n, dtype=np.int32) for _ in held]
        tails = [module.Tail(prior, 1e-9, 0.0, log_weight) for module in (mixture, twin)]
        for module, g, tail, labels in zip((mixture, twin), held, tails, z, strict=True):
            module.sweep(rows, labels, 0, 3, 1, step, 1, g, tail, prior, priority_free=True)
        assert np.array_equal(*z)
        opened += (z[0] >= held[0].base).any()
    assert opened > n


@pytest.mark.quick(every=6)
@pytest.mark.parametrize("seed", range(30))
def test_a_tail_that_empties_again(seed):
    """Counts in a new cluster follow the prior alone, whoever was in slot 0 meanwhile."""
    rng = np.random.default_rng([6, seed])
    rows, prior = random_table(rng, 20, n_tallies=2, large=seed % 2 == 1, missing=0.2 if seed % 3 else 0.0)
    parameters = random_parameters(rng, prior, 5, 5, np.zeros(0, np.uint64))
    rows, even = with_reluctant_first(rows, prior, parameters)
    held = [module.Instantiated(**parameters) for module in (mixture, twin)]
    tails = [module.Tail(prior, 1e-9, 0.0, even[-1] - 1) for module in (mixture, twin)]
    z = [np.zeros(20, dtype=np.int32) for _ in held]
    for cycle in range(15):
        for module, g, tail, labels in zip((mixture, twin), held, tails, z, strict=True):
            module.sweep(rows, labels, 0, seed, cycle, 1, 1, g, tail, prior, priority_free=True)
        assert np.array_equal(*z)
    for known, (a, b) in zip(tails[0].count_scores, prior.gamma, strict=True):
        x = np.flatnonzero(~np.isnan(known))
        assert len(x)
        expected = [twin_cluster.log_negative_binomial(v, (a, b), 0, 0.0) + lgamma(v + 1) for v in x.tolist()]
        np.testing.assert_allclose(known[x], expected, 1e-10, 1e-10)


@pytest.mark.parametrize("kind", TABLES)
def test_accumulate(kind):
    rng = np.random.default_rng([3, len(kind)])
    rows, prior = random_table(rng, 200, **TABLES[kind])
    z = rng.integers(-1, 7, size=200).astype(np.int32)
    relabel = np.array([3, -1, 0, 0, 1, 5, 2], dtype=np.int32)
    for target, k in ((None, 7), (relabel, 6)):
        ours = mixture.accumulate(rows, z, k, prior.offsets, target)
        theirs = twin.accumulate(rows, z, k, prior.offsets, target)
        for name, a, b in zip(FIELDS, ours, theirs, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape, name
            np.testing.assert_allclose(a, b, 1e-12, 1e-12, err_msg=name)


@pytest.mark.parametrize("kind", TABLES)
def test_moments_are_those_of_all_statistics(kind):
    rng = np.random.default_rng([41, len(kind)])
    rows, prior = random_table(rng, 90, **TABLES[kind])
    z = rng.integers(-2, 5, 90).astype(np.int32)
    whole = mixture.accumulate(rows, z, 5, prior.offsets)
    for a, b in zip(mixture.moments(rows, z, 5), whole[2:5] + whole[7:], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    with pytest.raises(ValueError, match="no cluster"):
        mixture.moments(rows, z, 4)


def test_accumulate_refuses_labels_without_cluster():
    rows, prior = random_table(np.random.default_rng(4), 3, n_reals=1)
    with pytest.raises(ValueError, match="row 2"):
        mixture.accumulate(rows, np.array([0, 1, 2], dtype=np.int32), 2, prior.offsets)


def test_anchors():
    rng = np.random.default_rng(5)
    z = rng.integers(-1, 6, size=100).astype(np.int32)
    z[z == 3] = 2
    owned = np.array([True, False, False, False, True, False])
    ours = mixture.anchors(z, 1003, 8, 2, 3, owned, 6)
    assert ours.dtype == np.uint64
    assert np.array_equal(ours, twin.anchors(z, 1003, 8, 2, 3, owned, 6))
    assert ours[0] == ours[3] == ours[4] == mixture.UNANCHORED
    priority = mixture.priorities(1003, 100, 8, 2, 3)
    assert ours[5] == priority[z == 5].min()


def test_load_then_sweep():
    """A tail loaded from statistics, with an empty cluster in the middle, continues as one that was built row by
    row."""
    rng = np.random.default_rng(6)
    rows, prior = random_table(rng, 80, **TABLES["mixed"])
    z = rng.choice([0, 1, 3, 4, 20], size=80).astype(np.int32)
    statistics = Statistics(*mixture.accumulate(rows, z, 23, prior.offsets))
    tails = [module.Tail(prior, 0.7, 0.1, 0.0) for module in (mixture, twin)]
    both = [z.copy(), z.copy()]
    for module, tail, labels in zip((mixture, twin), tails, both, strict=True):
        tail.load(statistics)
        module.sweep(rows, labels, 0, 1, 2, 3, 4, None, tail, prior)
    assert np.array_equal(*both)
    assert_same_tail(*tails, prior)


def test_negative_concentration_opens_the_first_cluster():
    rows, prior = random_table(np.random.default_rng(7), 6, levels8=(3, 2))
    for start in (-1, 0):
        tails = [module.Tail(prior, -0.3, 0.5, 0.0) for module in (mixture, twin)]
        both = [np.full(6, -1, dtype=np.int32) for _ in tails]
        for cycle in range(5):
            for module, tail, labels in zip((mixture, twin), tails, both, strict=True):
                module.sweep(rows, labels, 0, start + 2, cycle, 0, 0, None, tail, prior)
            assert np.array_equal(*both)


def test_errors_name_the_row():
    rng = np.random.default_rng(8)
    rows, prior = random_table(rng, 5, levels8=(2,), n_reals=1, missing=0.0)
    z = np.full(5, -1, dtype=np.int32)
    with pytest.raises(ValueError, match="row 103: its label"):
        mixture.sweep(
            rows, np.array([-1, -1, -1, 40, 0], np.int32), 100, 1, 1, 1, 1, None, mixture.Tail(prior, 1, 0, 0), prior
        )
    with pytest.raises(FloatingPointError, match="row 100: it has probability 0"):
        mixture.sweep(rows, z, 100, 1, 1, 1, 1, None, None, prior)
    parameters = random_parameters(rng, prior, 3, 3, [])
    parameters["location"][0, 1] = np.nan
    with pytest.raises(FloatingPointError, match="row 100: its score"):
        mixture.sweep(rows, z, 100, 1, 1, 1, 1, mixture.Instantiated(**parameters), None, prior)
    with pytest.raises(ValueError, match="different columns"):
        mixture.sweep(rows, z, 0, 1, 1, 1, 1, None, mixture.Tail(random_prior(rng, (3,), 1, 0), 1, 0, 0), prior)
    rows.codes8[4, 0] = 3
    with pytest.raises(ValueError, match="row 4, categorical column 0: code 3"):
        mixture.check_rows(rows, prior.offsets)
    for count in (-1.0, 2.5):
        rows, prior = random_table(rng, 3, n_tallies=2)
        rows.tallies[1, 1] = count
        with pytest.raises(ValueError, match=f"row 1, count column 1: {count}"):
            mixture.check_rows(rows, prior.offsets)
