"""Rows are scored and drawn in blocks; what a row gets does not depend on the rows beside it.

A sweep of the whole shard is compared with calls on one row after the other, which make blocks of one: the same labels,
and the same bits in the tail. Rows in the wrong place, with their neighbours' random numbers, must differ.
"""

import numpy as np
import pytest

from mpibayes.kernels import mixture

from .tables import FIELDS, covering, random_parameters, random_table, with_reluctant_first

N, ROW0 = 203, 6
TABLES = {
    "categorical": {"levels8": (2, 3, 7, 4), "levels16": (300,)},
    "many categories": {"levels8": (3,) * 40, "missing": 0.9},
    "even categories": {"levels8": (2, 3, 7, 4), "levels16": (300,), "missing": 0.02, "even": True},
    "real": {"n_reals": 3},
    "real, complete": {"n_reals": 11, "missing": 0.0, "same_nu": True, "scale": 0.3},
    "real, powers of two": {"n_reals": 11, "missing": 0.0, "powers": True, "scale": 0.3},
    "real, few missing": {"n_reals": 2, "missing": 0.02, "same_nu": True},
    "real, powers of two, few missing": {"n_reals": 4, "missing": 0.03, "powers": True, "scale": 0.3},
    "count": {"n_tallies": 3},
    "mixed": {"levels8": (2, 5), "levels16": (260,), "n_reals": 9, "n_tallies": 2},
}


def swept(rows, prior, parameters, tail, z, step, shift=0):
    """Labels after sweeps of the whole shard and of one row after the other, and the two tails' bytes."""
    result = []
    for one_by_one in (False, True):
        held = None if parameters is None else mixture.Instantiated(**parameters)
        mine = None if tail is None else mixture.Tail(prior, *tail)
        labels, moved = z.copy(), 0
        for cycle in range(3):
            slices = [slice(i, i + 1) for i in range(N)] if one_by_one else [slice(None)]
            for s in slices:
                part = rows.take(np.arange(N)[s])
                row0 = ROW0 + (s.start or 0) + (shift if one_by_one else 0)
                # the view is written by the sweep
                moved += mixture.sweep(part, labels[s], row0, 3, cycle, step, 1, held, mine, prior)
        kept = b"" if mine is None else b"".join(np.ascontiguousarray(getattr(mine, name)).tobytes() for name in FIELDS)
        result.append((labels.tolist(), moved, kept))
    return result


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("n_clusters, free, with_tail", [(5, 5, False), (70, 30, False), (0, 0, True), (20, 9, True)])
def test_neighbours_do_not_matter(kind, n_clusters, free, with_tail):
    rng = np.random.default_rng([41, n_clusters])
    rows, prior = random_table(rng, N, **TABLES[kind])
    parameters, z = None, np.full(N, -1, dtype=np.int32)
    if n_clusters:
        priority = mixture.priorities(ROW0, N, 3, 0, 1)
        anchored = rng.choice(N, size=n_clusters - free, replace=False)
        anchored = anchored[
            np.argsort(priority[anchored])
        ]  # an anchor in the middle of the order: all cases of `allowed`
        parameters = random_parameters(rng, prior, n_clusters, free, priority[anchored])
        z[anchored] = free + np.arange(n_clusters - free)
    idle = rng.random(N) < 0.15
    z[idle & (z == -1)] = -3
    tail = (2.0, 0.1, -1.0, 16) if with_tail else None
    block, alone = swept(rows, prior, parameters, tail, z, 0)
    assert block == alone
    assert [k < -1 for k in block[0]] == [k < -1 for k in z.tolist()]
    block, wrong = swept(rows, prior, parameters, tail, z, 0, shift=1)
    assert block[0] != wrong[0]


def test_neighbours_do_not_matter_to_products_that_overflow():
    rng = np.random.default_rng(42)
    rows, prior = random_table(rng, N, n_reals=11, missing=0.0, powers=True, scale=1e60)
    z = np.full(N, -1, dtype=np.int32)
    block, alone = swept(rows, prior, None, (2.0, 0.1, -1.0, 16), z, 0)
    assert block == alone
    block, wrong = swept(rows, prior, None, (2.0, 0.1, -1.0, 16), z, 0, shift=1)
    assert block[0] != wrong[0]


@pytest.mark.parametrize("n_reals", [1, 3, 8, 11, 16, 17])
@pytest.mark.parametrize("n", [1, 2, 40])
def test_moments_are_summed_in_row_order(n_reals, n):
    rng = np.random.default_rng([42, n_reals])
    rows, prior = random_table(rng, n, n_reals=n_reals)
    rows.reals *= 10.0 ** rng.integers(-3, 4, size=rows.reals.shape)
    z = rng.integers(-1, 3, size=n).astype(np.int32)
    total, number = np.zeros((n_reals, 3)), np.zeros((n_reals, 3), dtype=np.int64)
    for i, k in enumerate(z):
        seen = ~np.isnan(rows.reals[i])
        if k >= 0:
            total[seen, k] += rows.reals[i, seen]
            number[seen, k] += 1
    mean, scatter = total / np.maximum(number, 1), np.zeros((n_reals, 3))
    for i, k in enumerate(z):
        seen = ~np.isnan(rows.reals[i])
        if k >= 0:
            scatter[seen, k] += (rows.reals[i, seen] - mean[seen, k]) ** 2
    result = mixture.accumulate(rows, z, 3, prior.offsets)
    for ours, plain in zip(result[2:5], (number, mean, scatter), strict=True):
        assert np.array_equal(ours, plain)


@pytest.mark.quick(every=6)
@pytest.mark.parametrize("n_clusters, kind", covering([(3,), (16,), (20,)], [*TABLES, "counts small and large"]))
def test_neighbours_do_not_matter_while_the_tail_is_empty(kind, n_clusters):
    rng = np.random.default_rng([44, n_clusters])
    rows, prior = random_table(rng, N, **TABLES.get(kind, {"n_tallies": 2, "large": True}))
    parameters = random_parameters(rng, prior, n_clusters, n_clusters, np.zeros(0, np.uint64))
    rows, even = with_reluctant_first(rows, prior, parameters)
    differ = 0
    for step, log_weight in enumerate((even[10::40, None] - [0.0, 3.0, 6.0]).ravel()):
        tail, z = (1e-9, 0.0, log_weight, 16), np.zeros(N, dtype=np.int32)
        block, alone = swept(rows, prior, parameters, tail, z, step)
        assert block == alone
        differ += block[0] != swept(rows, prior, parameters, tail, z, step, shift=1)[1][0]
    assert differ > 8


@pytest.mark.parametrize("padding", [0.0, 1.0])
def test_padding_may_overflow(padding):
    """(x - location)^2 overflows in lanes of no cluster, and the row has to open one."""
    rng = np.random.default_rng(43)
    rows, prior = random_table(rng, 4, n_reals=1, missing=0.0)
    rows.reals[2] = 1e155
    parameters = random_parameters(rng, prior, 5, 5, np.zeros(0, np.uint64))
    parameters["half_precision"][:, 5:], parameters["location"][:, 5:] = padding, 0.0
    z = np.full(4, -1, dtype=np.int32)
    mixture.sweep(
        rows, z, 0, 1, 1, 1, 1, mixture.Instantiated(**parameters), mixture.Tail(prior, 1.0, 0.0, -1.0), prior
    )
    assert z[2] >= 16
