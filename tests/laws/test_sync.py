"""Reductions of a cycle: incrementally updated counts equal full counts, and no bit depends on the ranks."""

import functools

import numpy as np
import pytest

from mpibayes.hpc.components.normal import merge_moments
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.moves import launched as guided_moves
from mpibayes.hpc.crosscat.moves import ledger
from mpibayes.hpc.crosscat.start.subsample import Annealing
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.parallel import reduce, shards
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels

OPENINGS = {
    "one": {},
    "all": {"opening": "all"},
    "two sweeps": {"sweeps_per_cycle": 2},
    "moves": {"split_merge": 2},
    "stray rows": {"stray_rows": 30, "stray_rows_fixed": 2},
    "growing": {"annealing": Annealing(passes=3.0, start_rows=20)},
}


def table(n_rows=160):
    """Three clusters in every kind of column, with missing cells: (columns, rows)."""
    g = np.random.default_rng(5)
    z = g.integers(3, size=n_rows)
    codes = np.where(g.random(n_rows) < 0.7, z, g.integers(3, size=n_rows))
    x = np.where(g.random(n_rows) < 0.1, np.nan, g.normal(3.0 * z, 1.0))
    n = np.where(g.random(n_rows) < 0.1, np.nan, g.poisson(4.0 * z + 1))
    return table_from_arrays(
        [("c", "categorical", codes, ("a", "b", "d")), ("x", "real", x, None), ("n", "count", n, None)]
    )


def chain(comm, n_shards=5, **settings):
    columns, rows = table()
    defaults = {"seed": 9, "shards": n_shards, "concentration": 3.0, "split_merge": 0}
    return Mixture(
        comm, columns, lambda a, b: rows.take(np.arange(a, b)), len(rows), Settings(**{**defaults, **settings})
    )


def counts_of_every_cycle(mixture, cycles=12):
    """(counts as carried, counts of a pass over all rows) after each cycle."""
    mixture.start("sequential")
    for _ in range(cycles):
        mixture.cycle()
        carried = mixture.view.counts
        sync.count(mixture.comm, mixture.views)
        yield carried, mixture.view.counts


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("n_shards", [1, 5])
def test_carried_counts_are_a_full_count(opening, n_shards):
    for carried, fresh in counts_of_every_cycle(chain(serial(), n_shards, **OPENINGS[opening])):
        for a, b in zip(carried, fresh, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_change_that_is_not_counted_is_seen(monkeypatch):
    """The test above fails if rows that move from one instantiated cluster to another are not counted."""
    monkeypatch.setattr(
        "mpibayes.hpc.crosscat.view.sweep.recount", lambda rows, before, after, k, offsets, into=None: into
    )
    with pytest.raises((AssertionError, TypeError)):
        test_carried_counts_are_a_full_count("one", 5)


@pytest.mark.mpi
@pytest.mark.parametrize("opening", OPENINGS)
def test_carried_counts_are_a_full_count_on_ranks(opening):
    for carried, fresh in counts_of_every_cycle(chain(world(), **OPENINGS[opening])):
        for a, b in zip(carried, fresh, strict=True):
            np.testing.assert_array_equal(a, b)


def test_one_shard_owns_every_row_and_has_no_anchor():
    """The shortcut without a pass over the rows gives the result of the pass."""
    mixture = chain(serial(), 1)
    mixture.start("random", 6)
    (view,) = mixture.views
    k = len(view.partition.size)
    owned, anchor = np.zeros(k, np.int64), np.full(k, kernels.UNANCHORED, np.uint64)
    sync._own(view, view.partition.owner, mixture.cycles + 1, owned, anchor)
    assert k == 6 and owned.sum() == 160
    np.testing.assert_array_equal(view.partition.owned, owned)
    np.testing.assert_array_equal(view.partition.anchor, anchor)


def test_the_statistics_of_one_shard_are_those_that_its_tail_would_count():
    """The shortcut of a sweep without a pass over the rows gives the bits of the pass."""
    mixture = chain(serial(), 1, split_merge=1)
    mixture.start("random", 6)
    for _ in range(8):
        mixture.cycle()
        view, (shard,) = mixture.view, mixture.view.shards
        of = view.components.categorical.offsets
        counted = Statistics(*kernels.accumulate(shard.rows, view.z[0], view.n_labels, of))
        for name, array in vars(counted).items():
            np.testing.assert_array_equal(getattr(view.partition.statistics, name), array)
        assert view.begin(mixture.cycles + 1, True).statistics is view.partition.statistics


def moments(n_shards):
    g = np.random.default_rng(n_shards)
    return {i: np.stack([g.integers(0, 5, (2, 3)).astype(float), *g.normal(size=(2, 2, 3))]) for i in range(n_shards)}


def merged(comm, n_shards, merge):
    part = shards.of_rank(n_shards, comm.size, comm.rank)
    mine = {i: array for i, array in moments(n_shards).items() if i in part}
    return reduce.merge_up(comm, mine, n_shards, merge)


def pairwise(a, b):
    return np.stack(merge_moments(a, b))


@pytest.mark.mpi
@pytest.mark.parametrize("n_shards", [1, 2, 3, 5, 8, 13])
def test_moments_merged_up_the_tree_have_the_same_bits(n_shards):
    comm = world()
    result = merged(comm, n_shards, pairwise)
    assert (result is None) == (comm.rank > 0)
    if comm.rank == 0:
        assert result.tobytes() == merged(serial(), n_shards, pairwise).tobytes()


@pytest.mark.parametrize("n_shards", [1, 2, 3, 5, 8, 13])
def test_the_tree_has_the_moments_of_the_whole(n_shards):
    parts = moments(n_shards)
    result, whole = merged(serial(), n_shards, pairwise), functools.reduce(pairwise, parts.values())
    np.testing.assert_allclose(result, whole, rtol=1e-12, atol=1e-12)
    order = []
    reduce.merge_up(serial(), {i: [i] for i in range(n_shards)}, n_shards, lambda a, b: order.append((a, b)) or a + b)
    assert all(max(a) < min(b) for a, b in order) and len(order) == n_shards - 1


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 7, 40])
def test_every_column_is_dealt_once(n_ranks):
    columns, _ = table()
    components = Components(columns)
    dealing = components.deal(n_ranks)
    for i, kind in enumerate(components.kinds):
        parts = [dealing.part(rank)[i] for rank in range(n_ranks)]
        assert [c for part in parts for c in range(part.start, part.stop)] == list(range(len(kind)))
    starts = dealing.starts[0]
    assert starts["level"].tolist() == components.categorical.offsets[starts["column"]].tolist()


@pytest.mark.parametrize("seed", [1, 2])
def test_launches_in_batches_are_those_at_once(seed, monkeypatch):
    """The number of groups in a batch changes no label."""

    def labels():
        mixture = chain(serial(), seed=seed, split_merge=1)
        mixture.start("random", 12)
        return [mixture.cycle() and mixture.view.labels().tolist() for _ in range(6)]

    at_once = labels()
    cut = []
    batches = guided_moves._batches
    monkeypatch.setattr(guided_moves, "BATCH", 2000)
    monkeypatch.setattr(guided_moves, "_batches", lambda *a: cut.append(batches(*a)) or cut[-1])
    assert labels() == at_once
    assert max(len(slices) for slices in cut) > 3


def test_gains_of_several_clusters_are_those_of_each(monkeypatch):
    """Bit by bit, since ranks jointly compute the gains of other clusters; also for the naive union."""
    mixture = chain(serial())
    mixture.start("random", 7)
    (view,) = mixture.views

    def gains(batches):
        opened = ledger.Ledger(view, 1)
        return [np.array(g).tobytes() for batch in batches for g in opened.of_each(ledger.gains_of, batch)]

    labels = [3, 0, 6, 3, 1]
    together = gains([labels])
    assert together == gains([[label] for label in labels]) == gains([[3, 0], [6, 3, 1]])
    monkeypatch.setattr(ledger, "CELLS", 1)
    assert together == gains([labels])
    opened = ledger.Ledger(view, 1)
    (gain,) = opened.of_each(ledger.gains_of, [3])
    union = opened.components.union(opened.statistics.take([5]), opened.statistics.take([3]))
    log_f = float(opened.components.log_marginal_clusters(opened.hyper, union)[0])
    assert gain[5] == pytest.approx(log_f - opened.log_f[5] - opened.log_f[3], abs=1e-9)
    assert gain[3] == -np.inf
