"""Votes of draws for branches of a tree, and what is said of a level."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.levels import votes
from mpibayes.hpc.crosscat.levels.level import judged
from mpibayes.hpc.crosscat.levels.tree import Tree, grow
from mpibayes.hpc.crosscat.levels.votes import cut_into, patterns, vote
from mpibayes.hpc.posterior.similarity import similarity


def test_patterns_stand_for_their_rows():
    g = np.random.default_rng(0)
    leaves = [g.integers(0, 3, 200), g.integers(3, 7, 200), g.integers(7, 9, 200)]
    p = patterns(leaves, [0, 0, 1])
    assert np.array_equal(p.leaves[p.of].T, leaves) and p.rows.sum() == 200 and len(p.rows) <= 24
    firsts = [int(np.argmax(p.of == i)) for i in range(len(p.rows))]
    assert firsts == sorted(firsts) and [of.shape[1] for of in p.by_chain()] == [2, 1]


def test_patterns_without_a_sort_are_those_of_one(monkeypatch):
    g = np.random.default_rng(1)
    leaves = [g.integers(5, 9, 300), g.integers(0, 60, 300), g.integers(0, 3, 300)]
    p = patterns(leaves, [0, 0, 0])
    monkeypatch.setattr(votes, "ROOM", 0)
    sorted_ = patterns(leaves, [0, 0, 0])
    for name in ("leaves", "rows", "of"):
        assert np.array_equal(getattr(p, name), getattr(sorted_, name))


def test_most_draws_decide_and_the_first_of_them_on_a_tie():
    branch = np.array([0, 1, 1, 0, 2])
    ballots = np.array([[0, 1, 2], [1, 3, 0], [4, 0, 1], [4, 4, 0]])
    assert vote(branch, ballots).tolist() == [1, 0, 2, 2]
    assert vote(2 - branch, ballots).tolist() == [1, 2, 0, 0]


def test_a_branch_without_votes_is_no_group():
    """One draw of three has a cluster of its own for some rows: the tree cuts it off first, and no row votes for it."""
    leaves = np.array([[0, 2, 4], [0, 2, 6], [1, 3, 5]])
    rows = np.array([50, 3, 40])
    tree = Tree(7, np.array([[0, 2], [7, 4], [1, 3], [9, 5], [8, 10], [6, 11]]), np.arange(6.0))
    branch = cut_into(2, tree, leaves, rows)
    assert branch.tolist() == [0, 1, 0, 1, 0, 1, 0] and vote(branch, leaves).tolist() == [0, 0, 1]
    assert cut_into(3, Tree(2, np.array([[0, 1]]), np.zeros(1)), leaves[:, :1] % 2, rows) is None


# --- simulated chains -------------------------------------------------------------------------------------------------


def simulated(seed=0, n=300, separation=6.0, groups=3, pieces=3, chains=2, draws=4):
    """Rows of well separated groups in four columns, and draws that cut each group into pieces, anew in each chain: the
    groups, and all that a level is judged by."""
    g = np.random.default_rng(seed)
    z = g.choice(groups, n, p=[0.5, 0.3, 0.2][:groups] if groups == 3 else None)
    x = g.normal(separation * z[:, None] * np.array([1, 1, -1, 0.5]), 1.0)
    code = [np.searchsorted(np.quantile(column, np.linspace(0, 1, 11)[1:-1]), column) for column in x.T]
    labels, chain = [], []
    for c in range(chains):
        direction = g.normal(size=4)
        piece = np.argsort(np.argsort(x @ direction + g.normal(0, 0.5, n))) * pieces // n
        for _ in range(draws):
            moved = np.where(g.random(n) < 0.03, g.integers(0, pieces, n), piece)
            labels.append(np.unique(z * pieces + moved, return_inverse=True)[1])
            chain.append(c)
    return z, judged_by(labels, chain, code)


def judged_by(labels, chain, code, twin=False):
    """twin: every cluster counts as much as any other. Halves are the first and the last draws of every chain."""
    first = np.cumsum([0, *(int(z.max()) + 1 for z in labels)])
    p = patterns([z + start for z, start in zip(labels, first)], chain)
    counts = np.zeros((10 * len(code), first[-1]))
    for z, start in zip(labels, first):
        for c, values in enumerate(code):
            np.add.at(counts, (10 * c + values, start + z), 1)
    if twin:
        counts = counts / counts[:10].sum(axis=0)
    offsets, of_chains = (
        np.arange(0, 10 * len(code) + 1, 10),
        [np.flatnonzero(np.array(chain) == c) for c in set(chain)],
    )

    def part(its):
        clusters = np.concatenate([np.arange(first[d], first[d + 1]) for d in its])
        return grow(counts[:, clusters], offsets), np.searchsorted(clusters, p.leaves[:, its])

    halves = zip(*(np.array_split(its, 2) for its in of_chains))
    return p, grow(counts, offsets), [part(its) for its in of_chains], [part(np.concatenate(of)) for of in halves]


@pytest.mark.parametrize("seed", range(3))
def test_separated_groups_are_natural(seed):
    z, by = simulated(seed)
    level = judged(*by, 3)
    assert level.natural and level.usable and level.certain == 1.0
    assert similarity(level.groups[by[0].of], z)[0] >= 0.95
    assert level.rows.tolist() == sorted(np.bincount(z).tolist(), reverse=True)
    assert str(level) == "3 natural groups: the chains agree on the group of 100 % of the rows."


@pytest.mark.thorough
def test_pieces_of_one_population_are_not():
    """False alarms: 20 seeds, none of which may pass."""
    for seed in range(20):
        _, by = simulated(seed, separation=0.0, groups=1, pieces=6)
        level = judged(*by, 2)
        assert level is None or not level.natural, seed


def test_random_merges_are_not_usable():
    """Merges drawn at random leave most rows in "the same" group in both chains; the index is not fooled."""
    shares = []
    for seed in range(20):
        _, (p, tree, *parts) = simulated(seed, separation=0.0, groups=1, pieces=12)
        level = judged(p, at_random(tree.n_leaves, seed), *parts, 2)
        if level is not None:
            shares.append(level.certain)
            assert not level.usable
    assert len(shares) >= 10 and max(shares) > 0.7


def at_random(k, seed):
    g, nodes, merges = np.random.default_rng(seed), list(range(k)), []
    for i in range(k - 1):
        merges.append([nodes.pop(g.integers(len(nodes))) for _ in range(2)])
        nodes.append(k + i)
    return Tree(k, np.array(merges), np.zeros(k - 1))


def test_a_twin_that_forgets_the_counts_loses_the_groups():
    """KL divergences alone, not times n: stray clusters of a row or two are as far from all as groups are."""
    g = np.random.default_rng(3)
    z = g.choice(3, 300, p=[0.5, 0.3, 0.2])
    x = g.normal(1.5 * z[:, None] * np.array([1, 1, -1, 0.5]), 1.0)
    code = [np.searchsorted(np.quantile(column, np.linspace(0, 1, 11)[1:-1]), column) for column in x.T]
    for column, value in zip(code, (0, 9, 0, 9)):
        column[:6] = value  # rows like no others, in clusters of two
    labels = []
    for _ in range(8):
        labels.append(np.concatenate([3 + g.permutation(6) // 2, z[6:]]))
    chain = [0, 0, 0, 0, 1, 1, 1, 1]
    right, wrong = judged(*judged_by(labels, chain, code), 3), judged(*judged_by(labels, chain, code, twin=True), 3)
    of = judged_by(labels, chain, code)[0].of
    assert similarity(right.groups[of], z)[0] > 0.95
    assert wrong is None or similarity(wrong.groups[of], z)[0] < 0.9


def moving(seed, share, moves=(True, True)):
    """Two chains with the same draws, of which the later two, in the chains that move, have a share of the third
    group's rows in the second one: the coarser level, of two groups, has lasted."""
    g = np.random.default_rng(seed)
    z, n = np.repeat([0, 0, 1, 1, 2], 80), 400
    late = np.where((z == 2) & (g.random(n) < share), 1, z)
    x = g.normal(np.stack([6.0 * z, 6.0 * (z == 0), 2.0 * (late - z)], axis=1), 1.0)
    code = [np.searchsorted(np.quantile(column, np.linspace(0, 1, 11)[1:-1]), column) for column in x.T]
    draws = [2 * of + (g.random(n) < 0.5) for of in (z, z, late, late, z, z)]
    draws = [draws[d] for moved in moves for d in ((0, 1, 2, 3) if moved else (0, 1, 4, 5))]
    return judged_by([np.unique(of, return_inverse=True)[1] for of in draws], [0] * 4 + [1] * 4, code)


def test_groups_that_change_within_all_chains_are_not_natural():
    """The chains agree at every moment, and both leave the groups of their first draws. A criterion without later draws
    calls these natural."""
    for seed in range(5):
        by = moving(seed, 0.6)
        level, twin = judged(*by, 3), judged(*by[:3], by[3][:1], 3)
        assert twin.natural and level.shared and level.changing and not level.natural, seed
        assert level.lasting < 0.9 and "which may still change with more cycles" in str(level)
        assert judged(*by, 2).natural, "two groups have lasted"
        assert judged(*moving(seed, 0.0), 3).natural


@pytest.mark.parametrize("moves", [(True, False), (False, True)])
def test_groups_that_one_of_two_chains_leaves_are_not_natural(moves):
    """Whichever of them it is: as many later draws have the groups as have others."""
    for seed in range(3):
        level = judged(*moving(seed, 0.6, moves), 3)
        assert level.shared and level.changing and level.lasting < 0.9, seed


def test_one_chain_is_not_judged():
    _, by = simulated(chains=1)
    level = judged(*by, 3)
    assert not (level.judged or level.natural or level.usable)
    assert str(level) == "3 groups. One chain: not judged."


def test_groups_of_a_few_rows_are_no_finding():
    """Thirty rows in ten clear groups of three, on which all chains agree, and in five of six."""
    g = np.random.default_rng(5)
    z = np.arange(30) % 10
    code = [(z + 3 * (z // 2) * j) % 10 for j in range(4)]
    by = judged_by([g.permutation(10)[z] for _ in range(8)], [0] * 4 + [1] * 4, code)
    level = judged(*by, 10)
    assert level.agree == level.by_itself == level.matched == 1.0 and not (level.natural or level.usable)
    assert str(level) == "10 groups: not usable: fewer than 5 rows a group beside the largest, on average."
    assert judged(*by, 5).usable


def test_a_single_row_beside_all_others_is_no_group():
    """It is one line of the file that was shifted, say, among 200; six like it are a group."""
    g = np.random.default_rng(5)
    for few, natural in ((1, False), (6, True)):
        z = (np.arange(200) < few).astype(int)
        level = judged(*judged_by([g.permutation(2)[z] for _ in range(8)], [0] * 4 + [1] * 4, [z] * 4), 2)
        assert level.agree == level.by_itself == 1.0 and level.natural == natural and not level.usable


def test_what_is_said_of_a_level():
    _, by = simulated(1)
    words = {n: str(level) for n in range(2, 9) if (level := judged(*by, n)) is not None}
    assert words[2].startswith("2 natural groups: ")
    finer = [w for n, w in words.items() if n > 3]
    assert any("not usable: the chains " in w for w in finer)
