"""Chains whose sweeps leave out clusters have the bits of chains whose sweeps do not, whatever the ranks do."""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.start.subsample import Annealing
from mpibayes.hpc.crosscat.view import pruning
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.table import table_from_arrays

ALWAYS, NEVER = 0.0, 1e9
SETTINGS = {
    "one": {},
    "two sweeps": {"sweeps_per_cycle": 2},
    "moves": {"split_merge": 2},
    "growing": {"annealing": Annealing(passes=2.0, start_rows=60)},
    "all": {"opening": "all", "sweeps_per_cycle": 2},
    "views": {"view_concentration": "learn", "column_moves": 1},
}


def table(n_rows=900):
    """Twelve clusters in every kind of column, with holes: (columns, rows)."""
    g = np.random.default_rng(6)
    z = g.integers(12, size=n_rows)
    cells = []
    for c in range(6):
        codes = np.where(g.random(n_rows) < 0.8, (z * (c + 2)) % 5, g.integers(5, size=n_rows))
        cells.append((f"c{c}", "categorical", codes, tuple("abcde")))
    for c in range(3):
        x = np.where(g.random(n_rows) < 0.4, np.nan, g.normal((z * (c + 3)) % 7, 0.7))
        cells.append((f"x{c}", "real", x, None))
    counts = np.where(g.random(n_rows) < 0.1, np.nan, g.poisson(2.0 * (z % 4) + 1))
    return table_from_arrays([*cells, ("n", "count", counts, None)])


def chain(comm, **settings):
    columns, rows = table()
    defaults = {"seed": 9, "shards": 5, "concentration": 3.0, "split_merge": 0}
    settings = Settings(**{**defaults, **settings})
    return Mixture(comm, columns, lambda a, b: rows.take(np.arange(a, b)), len(rows), settings)


def course(comm, favour, monkeypatch, cycles=8, **settings):
    """(labels of all views on root, log joint, share of rows that moved) after every cycle. favour: ALWAYS to prune,
    or NEVER."""
    monkeypatch.setattr(pruning, "FAVOUR", favour)
    monkeypatch.setattr(pruning, "ENTRY", 0.0)
    monkeypatch.setattr(pruning, "PAUSE", 0)
    mixture, out = chain(comm, **settings), []
    mixture.start("random" if not settings.get("annealing") else "sequential")
    for _ in range(cycles):
        info = mixture.cycle()
        out.append(([view.labels() for view in mixture.views], info.log_joint, info.moved_fraction))
    return out


def assert_same(a, b):
    for (labels_a, *numbers_a), (labels_b, *numbers_b) in zip(a, b, strict=True):
        assert numbers_a == numbers_b
        for part, other in zip(labels_a, labels_b, strict=True):
            assert np.array_equal(part, other)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_pruned_chain_has_the_same_bits(name, monkeypatch):
    passes = []
    inner = pruning.Pruning.bounds
    monkeypatch.setattr(pruning.Pruning, "bounds", lambda *of: passes.append(inner(*of)) or passes[-1])
    full = course(serial(), NEVER, monkeypatch, **SETTINGS[name])
    assert not passes
    ours = course(serial(), ALWAYS, monkeypatch, **SETTINGS[name])
    assert_same(full, ours)
    assert all(bounds is not None for bounds in passes)
    assert passes


@pytest.mark.mpi(min_size=2)
def test_ranks_that_prune_differently(monkeypatch):
    comm = world()
    alone = course(serial(), NEVER, monkeypatch)
    ours = course(comm, ALWAYS if comm.rank % 2 else NEVER, monkeypatch)
    if comm.rank == 0:
        assert_same(alone, ours)


def test_similar_clusters_stand_side_by_side():
    """Sixteen kinds of four clusters each: those of a kind come in one group of four."""
    rng = np.random.default_rng(1)
    kind = rng.permutation(np.repeat(np.arange(16), 4))
    terms = -np.abs(rng.normal(0, 3, size=(40, 16)))[:, kind] + rng.normal(0, 0.01, size=(40, 64))
    order = pruning.side_by_side(terms)
    assert sorted(order) == list(range(64))
    assert all(len(set(kind[order[i : i + 4]])) == 1 for i in range(0, 64, 4))


@pytest.mark.parametrize("n", [0, 1, 3, 16, 17, 33, 100])
def test_every_cluster_has_a_place(n):
    terms = np.random.default_rng(n).normal(size=(9, n))
    assert sorted(pruning.side_by_side(terms)) == list(range(n))
    assert sorted(pruning.side_by_side(terms[:0])) == list(range(n))
