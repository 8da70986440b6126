"""The kernels of a launch's scans, against their plain twin and the law they claim."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chisquare

from mpibayes.kernels.mixture import scans, twin_scans

from .tables import random_table
from .test_twin import TABLES

KEY = {"seed": 5, "purpose": 12, "sub": 3, "cycle": 9, "chain": 2}
KINDS = {**TABLES, "levels of all widths": {"levels8": (2, 7, 8, 14, 15, 16, 30, 31, 32, 40, 200, 2, 2, 250)}}


def problem(kind, n, n_groups, rng, large=0.0):
    """(parts, offsets, centre, scale, beta) of two shards; a share of the rows in one large group."""
    rows, prior = random_table(rng, n, **KINDS[kind])
    group = np.where(rng.random(n) < large, 1, rng.integers(0, n_groups, n)).astype(np.int32)
    group[group == 2] = 3  # nobody here
    chosen = np.sort(rng.permutation(n)[: int(0.9 * n)])
    cut = len(chosen) // 3
    parts = [(rows, at, group[at], 1007 + 3 * at) for at in (chosen[:cut], chosen[cut:])]
    n_real = rows.reals.shape[1]
    unit = rng.normal(size=(n_groups, n_real)), rng.gamma(2.0, 0.3, (n_groups, n_real))
    return parts, n_groups, prior.offsets, *unit, 0.5 * (prior.dirichlet > 0)


def counts_of(module, packed_shape, n_groups):
    """Zeros of a module."""
    n_cells, n_sums = packed_shape
    return module.Counts(np.zeros((n_groups, n_cells), np.int32), np.zeros((n_groups, n_sums), np.int64))


def shape_of(rows, offsets):
    n_real, n_count = rows.reals.shape[1], rows.tallies.shape[1]
    return 1 + int(offsets[-1]) + n_real + n_count, 2 * n_real + n_count


def assert_same(a, b):
    assert np.array_equal(a.cells, b.cells) and np.array_equal(a.sums, b.sums)


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("kind", KINDS)
def test_scans_agree_with_the_twin(kind):
    """Scans from seeds alone, then by the sides' sizes, have the same counts and sides."""
    rng = np.random.default_rng([41, len(kind)])
    n_groups = 4
    *arguments, beta = problem(kind, 110, n_groups, rng)
    modules = scans, twin_scans
    both = [m.Packed(*arguments) for m in modules]
    n = sum(len(part[1]) for part in arguments[0])
    group = np.concatenate([part[2] for part in arguments[0]])
    fixed, side = np.zeros(n, bool), np.full(n, -1)
    for g in range(n_groups):
        first, second = np.flatnonzero(group == g)[[0, -1]] if (group == g).any() else (0, 0)
        fixed[[first, second]], side[first], side[second] = True, 0, 1
    shrink, tilt = rng.uniform(2, 16, n_groups), rng.normal(0, 0.5, n_groups)
    shape = shape_of(arguments[0][0][0], arguments[2])
    whole, one, zero = ([counts_of(m, shape, n_groups) for m in modules] for _ in range(3))
    for i, packed in enumerate(both):
        packed.set(side == 1, fixed)
        packed.draw(**KEY)
        for rows, counts in ((side > -2, whole), (side == 1, one), (side == 0, zero)):
            packed.count(rows, counts[i])
    for counts in (whole, one, zero):
        assert_same(*counts)
    assert whole[0].cells[:, 0].sum() == n and whole[0].cells[2].sum() == 0
    for scan in range(5):
        after = [counts_of(m, shape, n_groups) for m in modules]
        for i, packed in enumerate(both):
            packed.scan(scan, beta, shrink, tilt if scan < 2 else None, whole[i], one[i], zero and zero[i], after[i])
        assert np.array_equal(both[0].sides(), both[1].sides()), scan
        assert_same(*after)
        assert np.array_equal(both[0].sides()[fixed], side[fixed] == 1)
        one, zero = after, None


@pytest.mark.parametrize("times", [1, 2, 5])
def test_several_scans_at_once_are_those_one_after_another(times):
    rng = np.random.default_rng(43)
    *arguments, beta = problem("mixed", 300, 4, rng)
    n = sum(len(part[1]) for part in arguments[0])
    side, fixed, shape = rng.integers(-1, 2, n), rng.random(n) < 0.1, shape_of(arguments[0][0][0], arguments[2])
    results = []
    for at_once in (False, True):
        packed = scans.Packed(*arguments)
        packed.set(side == 1, fixed)
        packed.draw(**KEY)
        whole, one, zero = (counts_of(scans, shape, 4) for _ in range(3))
        for rows, counts in ((side > -2, whole), (side == 1, one), (side == 0, zero)):
            packed.count(rows, counts)
        for scan in range(3, 3 + (1 if at_once else times)):
            after = counts_of(scans, shape, 4)
            packed.scan(scan, beta, np.full(4, 3.0), None, whole, one, zero, after, times if at_once else 1)
            one, zero = after, None
        results.append((packed.sides(), after))
    assert np.array_equal(results[0][0], results[1][0])
    assert_same(results[0][1], results[1][1])
    with pytest.raises(ValueError, match="do not fit together"):
        packed.scan(14, beta, np.full(4, 3.0), None, whole, one, None, after, 3)


@pytest.mark.quick("0.01-mixed", "1.0-levels of all widths")
@pytest.mark.parametrize("kind", ["levels of all widths", "mixed"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_counts_of_large_groups(kind, share):
    """Several chunks of a group, few or many of whose rows are counted."""
    rng = np.random.default_rng([42, int(100 * share)])
    *arguments, _ = problem(kind, 4000, 6, rng, large=0.7)
    chosen = rng.random(sum(len(part[1]) for part in arguments[0])) < share
    result = []
    for module in (scans, twin_scans):
        result.append(counts_of(module, shape_of(arguments[0][0][0], arguments[2]), 6))
        module.Packed(*arguments).count(chosen, result[-1])
    assert_same(*result)


def one_column(n, group=0):
    from .tables import Rows

    empty = {np.uint16: 0, np.float64: 0}
    rows = Rows(np.zeros((n, 1), np.uint8), *(np.empty((n, 0), t) for t in (*empty, np.float64)))
    return [(rows, np.arange(n), np.full(n, group, np.int32), np.arange(n))], 1, np.array([0, 3])


@pytest.mark.parametrize("x", [-3.0, -0.4, 0.0, 1.7])
def test_share_of_sides(x):
    """Independent sides with probability 1 / (1 + exp(-x)), in one scan and from one to the next; false-alarm rate
    1e-4 each."""
    n = 40_000
    packed = scans.Packed(*one_column(n), np.zeros((1, 0)), np.zeros((1, 0)))
    packed.set(np.zeros(n, bool), np.zeros(n, bool))
    packed.draw(**KEY)
    whole = counts_of(scans, (4, 0), 1)
    packed.count(np.ones(n, bool), whole)
    sides = []
    for scan in (0, 1, 15):
        # nobody on either side: the odds are the tilt
        nobody, out = counts_of(scans, (4, 0), 1), counts_of(scans, (4, 0), 1)
        packed.scan(scan, np.array([0.5, 0.5, 0.0]), np.ones(1), np.array([x]), whole, nobody, nobody, out)
        sides.append(packed.sides().astype(int))
        assert out.cells[0].tolist() == [sides[-1].sum(), sides[-1].sum(), 0, 0]
    p = expit(x)
    expected = np.array([(1 - p) ** 2, (1 - p) * p, p * (1 - p), p**2])
    for a, b in [(sides[0][0::2], sides[0][1::2]), (sides[0], sides[1]), (sides[1], sides[2]), (sides[0], sides[2])]:
        assert chisquare(np.bincount(2 * a + b, minlength=4), expected * len(a)).pvalue > 1e-4


def test_real_cells_are_whole_numbers_of_a_deviation():
    """Sums and squares of whole numbers, whatever the order of the rows; far away cells are cut off, not wrapped."""
    from .tables import Rows

    x = np.array([[1.0], [2.5], [np.nan], [-4.0], [1e300], [-1e300]])
    blank = np.empty((6, 0))
    rows = Rows(blank.astype(np.uint8), blank.astype(np.uint16), x, blank)
    part = [(rows, np.arange(6), np.zeros(6, np.int32), np.arange(6))]
    packed = scans.Packed(part, 1, np.zeros(1, np.int64), np.array([[1.0]]), np.array([[0.5]]))
    out = counts_of(scans, (2, 2), 1)
    packed.count(np.array([1, 1, 1, 1, 0, 0], bool), out)
    unit = 2**20
    assert out.cells.tolist() == [[4, 3]] and out.sums.tolist() == [
        [round(-1.75 * unit), (0.75 * unit) ** 2 + (2.5 * unit) ** 2]
    ]
    far = counts_of(scans, (2, 2), 1)
    packed.count(np.array([0, 0, 0, 0, 1, 1], bool), far)
    assert far.sums.tolist() == [[0, 2 * 2**48]]


def test_other_arguments_are_refused():
    rng = np.random.default_rng(43)
    *arguments, beta = problem("mixed", 40, 4, rng)
    packed = scans.Packed(*arguments)
    shape, n = shape_of(arguments[0][0][0], arguments[2]), sum(len(part[1]) for part in arguments[0])
    right, wrong = counts_of(scans, shape, 4), counts_of(scans, (shape[0] + 1, shape[1]), 4)
    with pytest.raises(ValueError, match="counts and groups"):
        packed.count(np.ones(n, bool), wrong)
    for changed in ({0: 16}, {1: beta[:-1]}, {2: np.ones(3)}, {3: np.ones(3)}, {4: wrong}, {6: wrong}):
        given = [0, beta, np.ones(4), np.zeros(4), right, right, right, counts_of(scans, shape, 4)]
        given = [changed.get(i, value) for i, value in enumerate(given)]
        with pytest.raises(ValueError, match="do not fit together"):
            packed.scan(*given)
    rows, chosen, group, ids = arguments[0][0]
    for part in [(rows, chosen + 100, group, ids), (rows, chosen, group[1:], ids), (rows, chosen, group, ids[1:])]:
        with pytest.raises(ValueError):
            scans.Packed([part], *arguments[1:])
