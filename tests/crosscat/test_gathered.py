"""Launches of splits on ranks: each group's rows are on one rank, and the odds are those of one process."""

from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.moves import gathered, grouping, launched
from mpibayes.hpc.crosscat.moves.ledger import Ledger
from mpibayes.hpc.parallel import packed, shards
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.io.table import table_from_arrays

KINDS = "mixed", "categories"


def table(kind, n=240):
    """A wide column below another one, most of whose level rows no row has; numbers and counts if kind is "mixed"."""
    g = np.random.default_rng(3)
    z = g.integers(4, size=n)
    above, below = (np.where(g.random(n) < 0.1, -1, (7 * z + g.integers(3, size=n)) % v) for v in (12, 300))
    given = [("a", "categorical", np.abs(above), tuple(map(str, range(12))))]
    given.append(("b", "categorical", below, tuple(map(str, range(300)))))
    if kind == "mixed":
        given.append(("x", "real", np.where(g.random(n) < 0.1, np.nan, g.normal(2.0 * z, 1.0)), None))
        given.append(("n", "count", g.poisson(2.0 * z + 1).astype(float), None))
    return table_from_arrays(given)


def odds(comm, kind, subset=30):
    columns, rows = table(kind)
    settings = Settings(seed=4, shards=5, links={"b": "a"}, split_merge=0)
    mixture = Mixture(comm, columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
    mixture.start("random", 7)
    ledger = Ledger(mixture.view, 1)
    groups = grouping.draw(ledger.n_labels, generator(**ledger.stream(Purpose.GUIDED)))
    group = np.full(ledger.n_labels, -1, np.int32)
    group[groups[:, 0]] = group[groups[:, 1]] = np.arange(len(groups))
    assert ledger.met is not None and 0 < ledger.met.sum() < len(ledger.met) / 4
    with mock.patch.object(launched, "SUBSET", subset):
        return launched._launch(ledger, groups, group, launched._seeds(ledger, groups)[0])


def alike(a, b):
    return all(np.array_equal(x, y) for x, y in zip(vars(a).values(), vars(b).values(), strict=True))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [launched.BATCH, 2000])
def test_launches_on_ranks_have_the_odds_of_one_process(kind, batch):
    with mock.patch.object(launched, "BATCH", batch):
        assert alike(odds(world(), kind), odds(serial(), kind))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", KINDS)
def test_launches_without_the_rows_of_other_ranks_have_others(kind):
    """Wrong: a rank launches its groups with its own rows alone."""
    right = gathered.brought_together

    def own(ledger, parts, labels, first):
        starts = ledger.shards[0].start, ledger.shards[-1].start + len(ledger.shards[-1])
        result, names = right(ledger, parts, labels, first)
        here = [np.flatnonzero((p.ids >= starts[0]) & (p.ids < starts[1])) for p in result]
        kept = [gathered.Part(p.rows, p.at[i], p.group[i], p.ids[i]) for p, i in zip(result, here)]
        return kept, [label[i] for label, i in zip(names, here)]

    with mock.patch.object(launched, "brought_together", own), np.errstate(all="ignore"):
        assert not alike(odds(world(), kind), odds(serial(), kind))


@pytest.mark.parametrize("n_shards", [1, 3, 9])
@pytest.mark.parametrize("n_ranks", [1, 2, 4, 40])
def test_every_group_is_dealt_once_to_a_rank_with_a_shard(n_ranks, n_shards):
    g = np.random.default_rng(n_ranks)
    for n in (1, 2, 7, 50):
        cost = g.integers(2, 1000, size=n)
        first = gathered.dealt(cost, n_ranks, n_shards)
        assert first[0] == 0 and first[-1] == n and (np.diff(first) >= 0).all()
        load = np.array([cost[first[r] : first[r + 1]].sum() for r in range(n_ranks)])
        assert load.max() <= cost.sum() / min(n_ranks, n_shards) + cost.max()
        assert all(len(shards.of_rank(n_shards, n_ranks, r)) for r in np.flatnonzero(load))


@pytest.mark.mpi
def test_arrays_of_all_ranks_in_one_message():
    comm, g = world(), np.random.default_rng(8)
    sent = [(3, np.float32), (1, np.float64), (0, np.float64), (5, np.uint8)]
    every = [
        [g.integers(200, size=(int(g.integers(4)), width)).astype(of) for _ in range(comm.size)] for width, of in sent
    ]
    starts = [np.cumsum([0, *map(len, arrays)]) for arrays in every]
    result = packed.concatenated(comm, [(arrays[comm.rank], at) for arrays, at in zip(every, starts)])
    for found, arrays in zip(result, every, strict=True):
        expected = np.concatenate(arrays)
        assert found.dtype == expected.dtype and found.flags.c_contiguous
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("width", [0, 1, 7])
def test_rows_are_put_where_they_belong(width):
    array, rows = np.zeros((9, width), np.int32), np.arange(3 * width, dtype=np.int32).reshape(3, width)
    expected = array.copy()
    expected[[1, 4, 8]] = rows
    packed.put_rows(array, packed.places(np.array([0, 1, 0, 0, 1, 0, 0, 0, 1], np.uint8)), rows)
    np.testing.assert_array_equal(array, expected)
    assert packed.places(None) is None


def test_odds_of_levels_that_some_row_has_are_those_of_all_levels():
    """The same to the last bit; and 0 elsewhere, where they are not without the mask."""
    (a, b), _ = table("categories")
    g = np.random.default_rng(0)
    kind = Categorical([a, b], {}, {})
    levels = g.poisson(0.1, size=(int(kind.offsets[-1]), 6)).astype(np.int32)
    multiplier, met = np.array([0.3, 0.7]), levels.any(axis=1).astype(np.uint8)
    every, some = kind.side_odds(multiplier, (levels,)), kind.side_odds_met(multiplier, (levels,), met)
    assert np.array_equal(every[:, met > 0], some[:, met > 0])
    assert not some[:, met == 0].any() and every[:, met == 0].any()
    assert not kind.side_odds_met(multiplier, (0 * levels,), 0 * met).any()
