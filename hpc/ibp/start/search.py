"""The search for features on a few rows that a chain starts from, on root (docs/math.md 7.9).

An ordinary chain with a round of moves in every cycle, and one step more that only a start may take: a feature is left
out, the rows settle, and the result is kept where its posterior is higher. It ends when nothing has got better for some
cycles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.moves.ledger import Ledger
from mpibayes.hpc.ibp.state import WORD, Hyper, Settings
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.ibp.features import Features

SHARDS = 4  # so that nearly all features are instantiated: a row costs a tenth of what it costs on a collapsed shard
QUIET, MOST_CYCLES = 25, 400  # cycles, and one more a feature, without a gain until the search ends; cycles at most
GAIN = 5.0  # nats by which the best log posterior has to rise to count as one
TRIES, RARE = 3, 0.05  # at the end features with a smaller share of the rows are left out if they can be, so often,
SUPPORT = 30.0  # which is where the log posterior falls by less: such features come and go, and a chain soon has others
SWEEPS = 3  # after a feature was left out


@dataclass(frozen=True)
class Found:
    """What a search gives: loadings (K, D), weights (K,), which are shares of the rows, hyperparameters, cycles."""

    loadings: np.ndarray
    weights: np.ndarray
    hyper: Hyper
    cycles: int


def search(cells: np.ndarray, settings: Settings, chain: int) -> Found:
    """Features of these rows, float64 (n, D), NaN for a missing cell."""
    n, d = cells.shape
    seed = int(generator(settings.seed, Purpose.SEARCH, chain=chain).integers(1 << 63))
    own = replace(settings, seed=seed, shards=min(SHARDS, n), opening="one", moves=1, sweeps_per_cycle=1)
    found = Buffet(serial(), lambda start, stop: cells[start:stop], n, d, own)
    best, since = -np.inf, 0
    while since < QUIET + len(found.slots) and found.cycles < MOST_CYCLES:
        found.cycle()
        leave_out(found)
        now = found.log_joint()
        best, since = (now, 0) if now > best + GAIN else (best, since + 1)
    for attempt in range(1, TRIES + 1):
        rare = found.slots[found.totals.owned < RARE * n]
        for slot in rare.tolist():
            if slot in found.slots:
                leave_out(found, slot, attempt, SUPPORT)
    return result(found)


def result(found: Buffet) -> Found:
    """The features of a chain, but for those that hardly any row has."""
    ledger = Ledger(found)
    kept = np.flatnonzero(ledger.columns.owned > 1)
    loadings = ledger.means(ledger.columns)[kept] * found.hyper.noise_sd
    return Found(loadings, ledger.columns.owned[kept] / found.n_rows, found.hyper, found.cycles)


def leave_out(chain: Buffet, slot: int | None = None, attempt: int = 0, support: float = 0.0) -> bool:
    """One feature is left out, and the rows settle; whether that was better, and so was kept. One process alone.

    slot: which one; None: one that is drawn. attempt: which of this cycle, for its draws. support:
    what the log posterior may lose by it.
    """
    if len(chain.slots) == 0 or not chain.n_columns:
        return False
    stream = generator(chain.settings.seed, Purpose.FIRST_FEATURES, chain.cycles, 0, chain.chain)
    before, slots = chain.log_joint(), chain.slots
    bits = [shard.rows.z.copy() for shard in chain.shards]
    slot = int(chain.slots[stream.integers(len(slots))]) if slot is None else slot
    for shard in chain.shards:
        shard.rows.z[:, slot // WORD] &= ~(np.uint64(1) << np.uint64(slot % WORD))
    chain.slots = slots[slots != slot]
    chain.summarise()
    for sweep in range(SWEEPS):
        settle(chain, SWEEPS * attempt + sweep)
    if chain.log_joint() > before - support:
        return True
    for shard, old in zip(chain.shards, bits):
        shard.rows.z[...] = old
    chain.slots = slots
    chain.summarise()
    return False


def settle(chain: Buffet, sweep: int) -> None:
    """A sweep of all rows with the posterior means of the loadings, and shares of the rows for weights."""
    kept = chain.totals.owned > 0
    together, cells = chain.totals.together[np.ix_(kept, kept)], chain.totals.cells[kept]
    chain.slots = chain.slots[kept]
    ratio = update.prior_variance(chain.hyper)
    loadings = np.linalg.solve(together + np.eye(len(together)) / ratio, cells)
    weights = np.diag(together) / (chain.n_rows + 1.0)
    sweep_all(chain, Found(loadings, weights, chain.hyper, 0), chain.cycles, sweep)
    chain.summarise()


def sweep_all(chain: Buffet, found: Found, cycle: int, sweep: int) -> None:
    """Every row of the chain, on all ranks, draws anew which of its slots' features it has."""
    weights = np.clip(found.weights, 1e-12, 1.0 - 1e-12)
    features = Features(chain.slots, found.loadings, weights, found.hyper.noise_sd)
    nobody = np.zeros(len(chain.slots), np.uint64)
    seed = int(generator(chain.settings.seed, Purpose.SEARCH, chain=chain.chain, sub=1).integers(1 << 63))
    for shard in chain.shards:
        features.sweep(shard.rows, nobody, seed, cycle, chain.chain, sweep)
