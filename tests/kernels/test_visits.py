"""Subsamples: idle rows, the steps of lists of visits, and the lists themselves.

The statistical tests compare counts of independent draws by chi-square; false-alarm rate 1e-4 each.
"""

import os
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chisquare

from mpibayes.kernels import mixture
from mpibayes.kernels.mixture import twin, twin_visits
from mpibayes.kernels.mixture.visits import visits

from .tables import FIELDS, Statistics, covering, random_parameters, random_table
from .test_twin import TABLES, assert_same_tail

LEVEL = 1e-4
SEED = int(os.environ.get("MPIBAYES_TEST_SEED", "21"))


def random_start(rng, n, n_clusters, free, priority, base, n_slots):
    """Labels in free clusters, in tail slots, -1 or idle; every anchored cluster holds its anchor and later rows."""
    z = rng.integers(0, free, size=n).astype(np.int32) if free else np.full(n, -2, dtype=np.int32)
    if n_slots:
        z = np.where(rng.random(n) < 0.4, base + rng.integers(0, n_slots, size=n), z).astype(np.int32)
    z[rng.random(n) < 0.4] = -2
    z[rng.random(n) < 0.1] = -1
    z[rng.random(n) < 0.1] = -9
    anchored = np.argsort(priority)[10 : 10 + n_clusters - free]  # ten rows have a priority below every anchor's
    z[anchored] = free + np.arange(len(anchored))
    return z, anchored


def random_steps(rng, n, n_steps):
    """Lists in which a step names one row, two rows, one of them only, or nobody; rows come more than once."""
    remove, assign = rng.integers(0, n, size=(2, n_steps)).astype(np.int32)
    kind = rng.integers(5, size=n_steps)
    assign[kind == 0] = remove[kind == 0]
    remove[kind == 1] = -1
    assign[kind == 2] = -1
    remove[:3], assign[2:4] = -1, -1
    return remove, assign


SHAPES = [(0, 0, True), (35, 35, False), (20, 0, False), (20, 6, False), (70, 20, True)]


@pytest.mark.quick(every=4)
@pytest.mark.parametrize("n_clusters, free, with_tail, kind", covering(SHAPES, TABLES, 2))
def test_lists_agree_with_the_twin(kind, n_clusters, free, with_tail):
    """Steps of all forms, more of them than rows, from a random state; the tail outgrows its first sixteen slots."""
    n, row0, seed, cycle, chain = 90, 7, 3, 4, 1
    rng = np.random.default_rng([3, len(kind), n_clusters, free])
    rows, prior = random_table(rng, n, **TABLES[kind])
    priority = mixture.priorities(row0, n, seed, cycle, chain)
    base, n_slots = (n_clusters + 15) // 16 * 16, 15 if with_tail else 0
    start, anchored = random_start(rng, n, n_clusters, free, priority, base, n_slots)
    parameters = random_parameters(rng, prior, n_clusters, free, priority[anchored])
    held = [module.Instantiated(**parameters) for module in (mixture, twin)]
    tails, z = [None, None], [start.copy(), start.copy()]
    if with_tail:
        slot = np.append(np.full(base, -1), np.arange(n_slots)).astype(np.int32)
        statistics = Statistics(*mixture.accumulate(rows, start, n_slots, prior.offsets, relabel=slot))
        tails = [module.Tail(prior, 3000.0, 0.2, np.log(0.9)) for module in (mixture, twin)]
        for tail in tails:
            tail.load(statistics)
    for step in range(2):
        remove, assign = random_steps(rng, n, 150)
        moved = [
            module.sweep(rows, labels, row0, seed, cycle, step, chain, g, tail, prior, remove=remove, assign=assign)
            for module, g, tail, labels in zip((mixture, twin), held, tails, z, strict=True)
        ]
        assert np.array_equal(*z)
        assert moved[0] == moved[1] > 0
        if with_tail:
            assert_same_tail(*tails, prior)
        plain = [
            module.sweep(rows, labels, row0, seed, cycle, step, chain, g, tail, prior)
            for module, g, tail, labels in zip((mixture, twin), held, tails, z, strict=True)
        ]
        assert np.array_equal(*z)
        assert plain[0] == plain[1]
    assert np.array_equal(z[0][anchored], start[anchored])
    assert (z[0] == -2).any() and not (z[0] == -1).any()
    if with_tail:
        assert tails[0].n_rows == (z[0] >= base).sum()
        assert n_clusters or tails[0].capacity > 16


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("kind", TABLES)
def test_idle_rows_are_passed_over(kind):
    """A sweep, its tail and the sums over rows are those of the active rows alone."""
    n = 80
    rng = np.random.default_rng([4, len(kind)])
    rows, prior = random_table(rng, n, **TABLES[kind])
    start = np.where(rng.random(n) < 0.5, -1, rng.integers(-5, -1, size=n)).astype(np.int32)
    active = start == -1
    tails = [module.Tail(prior, 2.0, 0.1, -0.2) for module in (mixture, twin)]
    z = [start.copy(), start.copy()]
    for step in range(2):
        for module, tail, labels in zip((mixture, twin), tails, z, strict=True):
            module.sweep(rows, labels, 0, 1, 2, step, 0, None, tail, prior)
        assert np.array_equal(*z)
        assert_same_tail(*tails, prior)
    assert np.array_equal(z[0][~active], start[~active]) and (z[0][active] >= 0).all()
    assert tails[0].n_rows == active.sum()

    k = tails[0].n_slots
    whole = mixture.accumulate(rows, z[0], k, prior.offsets)
    part = mixture.accumulate(rows.take(active), z[0][active], k, prior.offsets)
    identity = np.arange(k, dtype=np.int32)
    for name, a, b, c, d in zip(
        FIELDS,
        whole,
        part,
        mixture.accumulate(rows, z[0], k, prior.offsets, identity),
        twin.accumulate(rows, z[0], k, prior.offsets, identity),
        strict=True,
    ):
        assert np.array_equal(a, b) and np.array_equal(a, c), name
        np.testing.assert_allclose(a, d, 1e-12, 1e-12, err_msg=name)
    owned = np.zeros(k, dtype=bool)
    least = mixture.anchors(z[0], 0, 1, 2, 0, owned, k)
    priority = mixture.priorities(0, n, 1, 2, 0)
    assert np.array_equal(least, twin.anchors(z[0], 0, 1, 2, 0, owned, k))
    assert all(least[c] == priority[z[0] == c].min() for c in identity if (z[0] == c).any())


def anchored_table(n=30):
    """Ten anchored clusters off their owner and no tail: anchors are rows of the tenth least priority and on."""
    rng = np.random.default_rng(5)
    rows, prior = random_table(rng, n, levels8=(3, 2))
    order = np.argsort(mixture.priorities(0, n, 6, 0, 0))
    priority = mixture.priorities(0, n, 6, 0, 0)[order]
    held = mixture.Instantiated(**random_parameters(rng, prior, 10, 0, priority[10:20]))
    return rows, prior, order, held


def test_a_new_row_below_every_anchor_may_enter_every_cluster():
    """docs/math.md 3.3. It may move on in the same cycle, by a list or by a sweep."""
    rows, prior, order, held = anchored_table()
    z = np.full(30, -2, dtype=np.int32)
    z[order[10:20]] = np.arange(10)
    new = order[:10].astype(np.int32)
    nobody = np.full(10, -1, dtype=np.int32)
    seen = set()
    assert mixture.sweep(rows, z, 0, 6, 0, 0, 0, held, None, prior, remove=nobody, assign=new) == 10
    for sweep in range(1, 40):
        seen |= set(z[new].tolist())
        mixture.sweep(rows, z, 0, 6, 0, sweep, 0, held, None, prior, remove=new, assign=new)
        mixture.sweep(rows, z, 0, 6, 0, sweep, 0, held, None, prior)
    assert seen == set(range(10))
    assert np.array_equal(z[order[10:20]], np.arange(10)) and (z[order[20:]] == -2).all()


def test_an_anchor_is_not_taken_out():
    rows, prior, order, held = anchored_table()
    z = np.full(30, -2, dtype=np.int32)
    z[order[10:20]] = np.arange(10)
    before = z.copy()
    remove, assign = order[10:20].astype(np.int32), order[20:].astype(np.int32)
    assert mixture.sweep(rows, z, 0, 6, 0, 0, 0, held, None, prior, remove=remove, assign=assign) == 0
    assert np.array_equal(z, before)
    assert mixture.sweep(rows, z, 0, 6, 0, 0, 0, held, None, prior, True, remove=remove, assign=assign) == 10
    assert (z[remove] == -2).all() and (z[assign] >= 0).all()


def test_a_row_with_nowhere_to_go_stays_idle():
    rows, prior = random_table(np.random.default_rng(6), 4, levels8=(2,))
    z = np.array([-2, -1, -5, -1], dtype=np.int32)
    nobody, first = np.full(3, -1, dtype=np.int32), np.arange(3, dtype=np.int32)
    for module in (mixture, twin):
        labels = z.copy()
        assert module.sweep(rows, labels, 0, 1, 1, 1, 1, None, None, prior, remove=nobody, assign=first) == 0
        assert labels.tolist() == [-2, -2, -2, -1]


def test_a_row_seated_twice_draws_afresh():
    """A list of twice as many steps as rows names each row twice; equal rows, equal clusters, independent uniforms."""
    n, k = 50, 10
    rows, prior = random_table(np.random.default_rng(7), n)
    held = mixture.Instantiated(k, log_weight=np.full(k, -np.log(k)))
    taken = []
    for cycle in range(60):
        remove = np.tile(np.arange(n, dtype=np.int32), 2)
        z = np.full(n, -2, dtype=np.int32)
        mixture.sweep(rows, z, 0, SEED, cycle, 0, 0, held, None, prior, remove=remove[:n], assign=remove[:n])
        first = z.copy()
        mixture.sweep(rows, z, 0, SEED, cycle, 0, 0, held, None, prior, remove=remove, assign=remove)
        taken.append(first * k + z)
    counts = np.bincount(np.concatenate(taken), minlength=k * k)
    assert chisquare(counts).pvalue > LEVEL, f"seed {SEED}"


def test_lists_are_checked():
    rows, prior = random_table(np.random.default_rng(8), 5, levels8=(2,))
    z, tail = np.full(5, -2, dtype=np.int32), mixture.Tail(prior, 1.0, 0.0, 0.0)

    def sweep(**lists):
        lists = {name: np.array(steps, dtype=np.int32) for name, steps in lists.items()}
        return mixture.sweep(rows, z, 0, 1, 1, 1, 1, None, tail, prior, **lists)

    with pytest.raises(ValueError, match=r"assign\[1\] = 5 is not one of the 5 rows"):
        sweep(remove=[-1, 0], assign=[0, 5])
    with pytest.raises(ValueError, match=r"remove\[0\] = -2"):
        sweep(remove=[-2], assign=[0])
    with pytest.raises(ValueError, match="different numbers of steps"):
        sweep(remove=[-1, -1], assign=[0])
    with pytest.raises(ValueError, match="go together"):
        sweep(assign=[0])
    assert sweep(remove=[], assign=[]) == 0
    z[3] = 40
    with pytest.raises(ValueError, match="row 3: its label"):
        sweep(remove=[3], assign=[0])


# ---- the lists


def follow(z, remove, assign):
    """Who is active after the steps; asserts that each step is possible."""
    active = z >= -1
    for i, j in zip(remove.tolist(), assign.tolist(), strict=True):
        if i >= 0:
            assert active[i]
            active[i] = False
        assert not active[j]
        active[j] = True
    return active


def test_visits_have_the_stated_numbers():
    for seed in range(40):
        rng = np.random.default_rng([9, seed])
        n = int(rng.integers(1, 60))
        z = rng.choice([-7, -2, -1, 0, 3], size=n).astype(np.int32)
        n_grow, n_churn = int(rng.integers(0, (z < -1).sum() + 1)), int(rng.integers(0, 80))
        if not n_grow and (z < -1).all():
            n_churn = 0
        lists = visits(z, n_grow, n_churn, seed, 3, 2, 1, 5)
        again = twin_visits.visits(z, n_grow, n_churn, seed, 3, 2, 1, 5)
        for ours, theirs in zip(lists, again, strict=True):
            assert ours.dtype == np.int32 and ours.shape == (n_grow + n_churn,)
            assert np.array_equal(ours, theirs)
        remove, assign = lists
        assert (remove == -1).sum() == n_grow
        assert not n_grow or remove[0] == -1
        grown = np.cumsum(remove == -1)
        assert np.abs(grown - np.arange(1, len(grown) + 1) * n_grow / max(1, len(grown))).max(initial=0) <= 1
        after = follow(z, remove, assign)
        assert after.sum() == (z >= -1).sum() + n_grow


def test_visits_depend_on_their_key_alone():
    z = np.where(np.arange(200) % 2, 0, -2).astype(np.int32)
    key = {"seed": 1, "cycle": 2, "sweep": 3, "chain": 4, "shard": 5}
    first = visits(z, 20, 90, **key)
    assert np.array_equal(first, visits(np.where(z < 0, -3, 1).astype(np.int32), 20, 90, **key))
    assert all(not np.array_equal(first, visits(z, 20, 90, **{**key, name: 6})) for name in key)


def test_churning_reaches_every_row():
    """400 steps over 40 rows, 4 of them active: a row stays out of all with a probability below 1e-4."""
    z = np.full(40, -2, dtype=np.int32)
    z[:4] = 0
    remove, assign = visits(z, 0, 400, SEED, 0, 0, 0, 0)
    assert set(remove) | set(assign) == set(range(40)) and set(assign) >= set(range(4, 40)), f"seed {SEED}"


def test_a_churning_step_is_uniform():
    """Over the active row taken out and, independently, the idle rows and that row. The paper's `unassigned` row
    without the removed one is rejected."""
    z = np.array([0, -2, 1, -2, -2, 0, 2, -1, -2], dtype=np.int32)
    active, idle = np.flatnonzero(z >= -1), np.flatnonzero(z < -1)
    counts = {(i, j): 0 for i in active for j in (*idle, i)}
    for cycle in range(20_000):
        remove, assign = visits(z, 0, 1, SEED, cycle, 0, 0, 0)
        counts[remove[0], assign[0]] += 1
    assert chisquare(list(counts.values())).pvalue > LEVEL, f"seed {SEED}"
    without = [0 if i == j else count for (i, j), count in counts.items()]
    assert chisquare(without).pvalue < LEVEL


def test_the_subsample_is_uniform():
    """From 2 of 7 active rows, 2 growing and 3 churning steps: a uniform start ends in a uniform subsample of 4."""
    subsets, starts = list(combinations(range(7), 4)), list(combinations(range(7), 2))
    number = {s: i for i, s in enumerate(subsets)}
    counts = np.zeros(len(subsets))
    rng = np.random.default_rng(SEED)
    for cycle in range(20_000):
        z = np.full(7, -2, dtype=np.int32)
        z[list(starts[rng.integers(len(starts))])] = 0
        after = follow(z, *visits(z, 2, 3, SEED, cycle, 0, 0, 0))
        counts[number[tuple(np.flatnonzero(after).tolist())]] += 1
    assert chisquare(counts).pvalue > LEVEL, f"seed {SEED}"


def test_visits_refuse_what_cannot_be():
    z = np.array([-2, -2, 0], dtype=np.int32)
    with pytest.raises(ValueError, match="3 rows should come into the subsample, but 2 are idle"):
        visits(z, 3, 0, 1, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="none can be taken out"):
        visits(z[:2], 0, 1, 1, 1, 1, 1, 1)
    remove, assign = visits(z[:0], 0, 0, 1, 1, 1, 1, 1)
    assert len(remove) == len(assign) == 0
