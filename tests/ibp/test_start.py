"""Starts of a chain of the Indian buffet process, and what the moves do for it on tables of some thousand rows."""

import numpy as np
import pytest

from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.start.strategy import STARTS, start
from mpibayes.hpc.ibp.state import Settings
from mpibayes.hpc.parallel.comm import serial, world

FEATURES = np.kron(np.eye(3), np.ones((1, 5)))


def table(n, seed=1, missing=0.0):
    stream = np.random.default_rng(seed)
    x = (stream.random((n, 3)) < 0.4) @ FEATURES + 0.4 * stream.standard_normal((n, 15))
    x[stream.random(x.shape) < missing] = np.nan
    return x.astype(np.float32)


def chain_of(x, comm=None, **settings):
    comm = comm or serial()
    return Buffet(comm, lambda a, b: x[a:b].astype(np.float64), *x.shape, Settings(**settings))


def found(chain):
    """Distance from each true feature to the nearest one, over its norm; and the other features' greatest share."""
    totals = chain.totals
    kept = totals.owned > 0
    together, cells = totals.together[np.ix_(kept, kept)], totals.cells[kept]
    loadings = np.linalg.solve(together + 1e-3 * np.eye(len(together)), cells)
    distance = np.linalg.norm(loadings[:, None] - FEATURES, axis=2) / np.linalg.norm(FEATURES[0])
    others = distance.min(axis=1) > 0.25
    return distance.min(axis=0, initial=np.inf), (totals.owned[kept][others] / chain.n_rows).max(initial=0.0)


@pytest.mark.parametrize("strategy", STARTS)
def test_every_start_fills_the_state(strategy):
    chain = chain_of(table(800), shards=3, seed=4)
    start(chain, strategy, rows=200)
    assert (len(chain.slots) == 0) == (strategy == "none")
    owned = np.zeros(len(chain.slots), np.int64) if strategy == "none" else chain.features().sum(axis=0)
    assert np.array_equal(owned, chain.totals.owned)
    assert np.isfinite(chain.log_joint())
    chain.cycle()


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_search_finds_the_features(missing):
    chain = chain_of(table(3000, missing=missing), shards=4, seed=2)
    start(chain)
    for _ in range(3):
        chain.cycle()
    distance, others = found(chain)
    assert distance.max() < 0.2
    assert others < 0.005


@pytest.mark.parametrize("moves, arrives", [(1, True), (0, False)])
def test_moves_bring_a_chain_there(moves, arrives):
    """Without them some feature is missing, or one too many there, after as many cycles."""
    chain = chain_of(table(3000), shards=4, seed=3, moves=moves)
    for _ in range(40):
        chain.cycle()
    distance, others = found(chain)
    assert (distance.max() < 0.2 and others < 0.005) == arrives


def test_unknown_start():
    with pytest.raises(ValueError, match="sequential, subsample; annealed was given"):
        start(chain_of(table(10)), "annealed")


@pytest.mark.quick(ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("strategy", ["random", "sequential", "subsample"])
def test_starts_have_the_same_bits_on_any_number_of_ranks(strategy):
    x, comm = table(900, missing=0.02), world()
    chains = [chain_of(x, c, shards=5, seed=6) for c in (comm, serial())]
    for chain in chains:
        start(chain, strategy, rows=150)
        for _ in range(4):
            chain.cycle()
    together, alone = (chain.features() for chain in chains)
    assert chains[0].hyper.feature_sd == chains[1].hyper.feature_sd
    if comm.rank == 0:
        assert np.array_equal(together, alone)
