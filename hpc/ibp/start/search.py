"""Search, on a few rows, for the features that a chain starts from, on root (docs/math.md 7.9).

An ordinary chain with a round of moves in every cycle, and steps that only a start may take (start/steps.py). It ends
after some cycles without improvement.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.moves.ledger import Ledger
from mpibayes.hpc.ibp.start import steps
from mpibayes.hpc.ibp.start.steps import Found
from mpibayes.hpc.ibp.state import Settings
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.streams import Purpose, generator

SHARDS = 4  # so that nearly all features are instantiated: a row then costs a tenth of its cost on a collapsed shard
QUIET, PER_FEATURE = 8, 1.5  # cycles without a gain until the search ends, plus so many per feature
MOST_CYCLES = 400
SETTLED = 5  # cycles without a gain after which features are refitted as well
GAIN = 5.0  # nats by which the best log posterior must rise to count as one
TRIES, RARE = 3, 0.05  # at the end, so often, features with a smaller share of the rows are tried without, and dropped
SUPPORT = 30.0  # if the log posterior falls by less: such features come and go, and a chain soon finds others


def search(cells: np.ndarray, settings: Settings, chain: int) -> Found:
    """Search features of the rows `cells`, float64 (n, D), NaN for a missing cell."""
    n, d = cells.shape
    seed = int(generator(settings.seed, Purpose.SEARCH, chain=chain).integers(1 << 63))
    quick = replace(settings, seed=seed, shards=min(SHARDS, n), opening="one", moves=1, sweeps_per_cycle=1)
    buffet = Buffet(serial(), lambda start, stop: cells[start:stop], n, d, quick)
    best, since = -np.inf, 0
    while since < QUIET + PER_FEATURE * len(buffet.slots) and buffet.cycles < MOST_CYCLES:
        buffet.cycle()
        steps.leave_out(buffet)
        if since >= SETTLED:
            steps.refit(buffet)
        now = buffet.log_joint()
        best, since = (now, 0) if now > best + GAIN else (best, since + 1)
    for attempt in range(1, TRIES + 1):
        rare = buffet.slots[buffet.totals.owned < RARE * n]
        for slot in rare.tolist():
            if slot in buffet.slots:
                steps.leave_out(buffet, slot, attempt, SUPPORT)
    return result(buffet)


def result(buffet: Buffet) -> Found:
    """Return the features of a chain without those that hardly any row has."""
    ledger = Ledger(buffet)
    kept = np.flatnonzero(ledger.columns.owned > 1)
    loadings = ledger.means(ledger.columns)[kept] * buffet.hyper.noise_sd
    return Found(loadings, ledger.columns.owned[kept] / buffet.n_rows, buffet.hyper, buffet.cycles)
