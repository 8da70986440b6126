"""The tree over clusters: its costs in closed form, its merges against a plain search, and its cuts."""

import time
from itertools import pairwise

import numpy as np
import pytest

from mpibayes.hpc.crosscat.levels import tree as trees
from mpibayes.hpc.crosscat.levels.tree import grow, joined


def divergence(p, q):
    seen = p > 0
    return float((p[seen] * np.log(p[seen] / q[seen])).sum())


def cost(a, b, offsets):
    """n_a KL(p_a || p_ab) + n_b KL(p_b || p_ab), summed over the columns that both clusters have cells of."""
    total = 0.0
    for i, j in pairwise(offsets):
        n_a, n_b = a[i:j].sum(), b[i:j].sum()
        if n_a and n_b:
            p_ab = (a[i:j] + b[i:j]) / (n_a + n_b)
            total += n_a * divergence(a[i:j] / n_a, p_ab) + n_b * divergence(b[i:j] / n_b, p_ab)
    return total


def search(counts, offsets):
    """The merges by looking at every pair each time: sets of leaves, and costs."""
    nodes = {frozenset([i]): counts[:, i] for i in range(counts.shape[1])}
    made = []
    while len(nodes) > 1:
        pairs = [(a, b) for a in nodes for b in nodes if min(a) < min(b)]
        costs = [cost(nodes[a], nodes[b], offsets) for a, b in pairs]
        a, b = pairs[int(np.argmin(costs))]
        made.append((a | b, min(costs)))
        nodes[a | b] = nodes.pop(a) + nodes.pop(b)
    return made


@pytest.fixture
def greedy(monkeypatch):
    """The cheapest pair to the end: no merges are searched."""
    monkeypatch.setattr(trees, "LAST", 1)


def leaves(tree):
    nodes = [frozenset([i]) for i in range(tree.n_leaves)]
    for a, b in tree.merges:
        nodes.append(nodes[a] | nodes[b])
    return nodes[tree.n_leaves :]


def test_two_clusters_in_closed_form():
    """8 heads of 8 against 4 tails of 4: p_ab = (2/3, 1/3), so 8 log(3/2) + 4 log 3; a column that one lacks is
    skipped."""
    counts = np.array([[8, 0], [0, 4], [3, 0], [5, 0]])
    tree = grow(counts, np.array([0, 2, 4]))
    assert tree.merges.tolist() == [[0, 1]]
    assert tree.costs == pytest.approx([8 * np.log(1.5) + 4 * np.log(3.0)], rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_merges_are_those_of_a_plain_search(seed, greedy):
    g = np.random.default_rng(seed)
    offsets = np.array([0, 3, 5, 9])
    counts = g.poisson(5 * g.gamma(0.5, size=(9, 12)))
    counts[3:5, ::3] = 0  # a column without a cell
    tree = grow(counts, offsets)
    expected = search(counts, offsets)
    assert leaves(tree) == [members for members, _ in expected]
    assert tree.costs == pytest.approx([nats for _, nats in expected], abs=1e-6)


def test_small_clusters_go_first_unless_counts_are_forgotten():
    """Two clusters of 1,000 rows that differ a little, and one of 2 rows that differs much: the small one is cheaper to
    merge. A twin that takes every cluster for as large as any other keeps it to the end."""
    p = np.array([[0.6, 0.4], [0.4, 0.6], [0.0, 1.0]]).T
    offsets = np.array([0, 2])
    small = grow(p * np.array([1000, 1000, 2]), offsets)
    assert leaves(small)[0] == {1, 2}
    assert leaves(grow(p, offsets))[0] == {0, 1}


def test_cuts_are_nested_and_numbered_by_their_first_leaves():
    g = np.random.default_rng(1)
    tree = grow(g.poisson(3.0, (6, 20)), np.array([0, 2, 6]))
    assert tree.cut(20).tolist() == list(range(20)) and not tree.cut(1).any()
    for n in range(1, 20):
        coarse, fine = tree.cut(n), tree.cut(n + 1)
        assert sorted(set(coarse)) == list(range(n))
        firsts = [int(np.argmax(coarse == i)) for i in range(n)]
        assert firsts == sorted(firsts)
        assert len(set(zip(coarse.tolist(), fine.tolist()))) == n + 1


def test_equal_clusters_cost_nothing():
    counts = np.tile(np.array([[7], [2], [1]]), 4)
    assert not grow(counts, np.array([0, 3])).costs.any()
    assert grow(np.zeros((0, 3)), np.array([0])).cut(1).tolist() == [0, 0, 0]
    assert len(grow(np.ones((2, 1)), np.array([0, 2])).merges) == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_last_merges_lose_no_more_than_greedy_ones(seed, monkeypatch):
    """Summed over the levels; and both trees lose the same in all."""
    g = np.random.default_rng(seed)
    counts, offsets = g.poisson(5 * g.gamma(0.5, size=(9, 14))), np.array([0, 3, 9])
    searched = grow(counts, offsets).costs
    monkeypatch.setattr(trees, "LAST", 1)
    one_by_one = grow(counts, offsets).costs
    assert np.cumsum(searched).sum() <= np.cumsum(one_by_one).sum() + 1e-6
    assert searched.sum() == pytest.approx(one_by_one.sum(), rel=1e-9)


def test_small_clusters_join_the_nearest_leaf():
    counts = np.array([[90, 0, 2, 0, 50], [0, 80, 0, 3, 50]])
    assert joined(counts, np.array([0, 2]), 3).tolist() == [0, 1, 0, 1, 2]
    assert joined(counts, np.array([0, 2]), 5).tolist() == [0, 1, 2, 3, 4]


def test_each_small_cluster_joins_the_leaf_that_costs_least():
    """Several columns, some without a cell in a cluster."""
    g = np.random.default_rng(3)
    counts, offsets = g.poisson(3 * g.gamma(0.3, size=(9, 40))), np.array([0, 3, 9])
    kept = np.sort(np.argsort(-counts.sum(axis=0), kind="stable")[:12])
    leaf = joined(counts, offsets, 12)
    assert (leaf[kept] == np.arange(12)).all()
    for b in np.setdiff1d(np.arange(40), kept):
        costs = [cost(counts[:, a], counts[:, b], offsets) for a in kept]
        assert costs[leaf[b]] == pytest.approx(min(costs), abs=1e-9)


@pytest.mark.thorough
def test_time_for_500_clusters_of_100_columns():
    """5 CPU seconds on one core, with room for a slow machine."""
    g = np.random.default_rng(0)
    counts = g.poisson(5 * g.gamma(0.5, size=(1000, 500)) * g.lognormal(0, 2, 500))
    start = time.process_time()
    grow(counts, np.arange(0, 1001, 10))
    assert time.process_time() - start < 15


def test_a_division_is_clear_where_the_next_one_gains_little():
    """Three groups of two alike clusters: in the nats that the last merges cost; the first ones cost less than one."""
    counts = np.array([[90, 91, 5, 5, 5, 5], [5, 5, 80, 79, 15, 15], [5, 4, 15, 16, 80, 80.0]])
    made = grow(counts, np.array([0, 3]))
    *_, third, second, last = made.costs
    assert third < 1.0 < second < last
    assert made.clear(3) == second and made.clear(2) == last / second and made.clear(6) == made.costs[0]
