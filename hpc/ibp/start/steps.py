"""Steps that only a start may take, on one process: the features change, the rows settle, and the result is kept where
its posterior is higher (docs/math.md 7.9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.moves import launch
from mpibayes.hpc.ibp.moves.fold import bits
from mpibayes.hpc.ibp.moves.ledger import Ledger
from mpibayes.hpc.ibp.state import WORD, Hyper, Totals
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.ibp.features import Features

LEFT_OUT, REFITTED = 0, 1  # streams of Purpose.FIRST_FEATURES
SWEEPS = 3  # in which rows settle
STEPS = 10  # of expectation and maximization
TOGETHER = 3  # most features that are fitted again together
LIKENESS = 4.0  # how much features that are alike are preferred for it


@dataclass(frozen=True)
class Found:
    """Loadings (K, D), weights (K,), which are shares of the rows, hyperparameters, and cycles that were taken."""

    loadings: np.ndarray
    weights: np.ndarray
    hyper: Hyper
    cycles: int


def leave_out(chain: Buffet, slot: int | None = None, attempt: int = 0, support: float = 0.0) -> bool:
    """One feature is left out; whether that was better, and so was kept.

    slot: which one; None: one that is drawn. attempt: which of this cycle, for its draws. support: what the log
    posterior may lose by it.
    """
    if len(chain.slots) == 0 or not chain.n_columns:
        return False
    if slot is None:
        stream = generator(chain.settings.seed, Purpose.FIRST_FEATURES, chain.cycles, LEFT_OUT, chain.chain)
        slot = int(stream.choice(chain.slots))

    def change() -> None:
        for shard in chain.shards:
            shard.rows.z[:, slot // WORD] &= ~(np.uint64(1) << np.uint64(slot % WORD))
        chain.slots = chain.slots[chain.slots != slot]

    return kept_if_better(chain, change, attempt, support)


def refit(chain: Buffet) -> bool:
    """Two or three features, alike if may be, are fitted anew to what the others leave; whether that was better.

    This turns features that are mixtures of one another, {A + B / 3, B - A / 3}, which no move of rows alone does.
    """
    if len(chain.slots) < 2 or not chain.n_columns:
        return False
    stream = generator(chain.settings.seed, Purpose.FIRST_FEATURES, chain.cycles, REFITTED, chain.chain)
    ledger = Ledger(chain)
    columns, means = ledger.columns, ledger.means(ledger.columns)
    chosen = [int(stream.integers(len(columns)))]
    for _ in range(int(stream.integers(1, min(TOGETHER, len(columns))))):
        length = np.maximum(np.sqrt((means**2).sum(axis=1)), 1e-150)
        cosine = np.abs(means @ means[chosen].T / np.outer(length, length[chosen])).max(axis=1)
        p = np.exp(LIKENESS * cosine)
        p[chosen] = 0.0
        chosen.append(int(stream.choice(len(p), p=p / p.sum())))
    slots = columns.slots[chosen]
    left = launch.residuals(ledger, columns.without(slots), [np.arange(len(s.rows)) for s in chain.shards])
    pattern = fitted(left, len(slots), ledger.prior_variance, stream)

    def change() -> None:
        ledger.write(slots, [pattern[chain.starts[s.index] : chain.starts[s.index + 1]] for s in chain.shards])

    return kept_if_better(chain, change, SWEEPS, 0.0)


def fitted(rows: np.ndarray, n: int, prior_variance: float, stream: np.random.Generator) -> np.ndarray:
    """uint8 (m,): patterns of n features that are fitted to residuals, float64 (m, D), in units of the noise.

    One after another at first, then all together by expectation and maximization; patterns are drawn in the end.
    """
    m, left, loadings = len(rows), rows, []
    for _ in range(n):
        a, logit = launch.one_feature(left, prior_variance, stream)
        score = np.clip(logit + left @ a[0] - 0.5 * (a[0] @ a[0]), -launch.MOST_LOGIT, launch.MOST_LOGIT)
        left = left - a / (1.0 + np.exp(-score[:, None]))
        loadings.append(a[0])
    loadings, patterns, log_weights = np.array(loadings), bits(n).astype(np.float64), np.zeros(2**n)
    for _ in range(STEPS):
        fine = patterns @ loadings
        score = log_weights + rows @ fine.T - 0.5 * (fine**2).sum(axis=1)
        p = np.exp(score - score.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        owners = p.sum(axis=0)
        together = np.einsum("pa,p,pb->ab", patterns, owners, patterns) + np.eye(n) / prior_variance
        loadings = np.linalg.solve(together, patterns.T @ (p.T @ rows))
        log_weights = np.log((owners + 1.0) / (m + len(owners)))
    return (np.cumsum(p, axis=1) < stream.random((m, 1))).sum(axis=1).clip(max=2**n - 1).astype(np.uint8)


def kept_if_better(chain: Buffet, change: Callable[[], None], attempt: int, support: float) -> bool:
    """Whether the log posterior, after the change and some sweeps, is not lower than before by more than `support`; the
    chain is as it was if it is."""
    before, slots = chain.log_joint(), chain.slots
    z = [shard.rows.z.copy() for shard in chain.shards]
    change()
    chain.summarise()
    for sweep in range(SWEEPS):
        settle(chain, SWEEPS * attempt + sweep)
    if chain.log_joint() > before - support:
        return True
    for shard, old in zip(chain.shards, z):
        shard.rows.z[...] = old
    chain.slots = slots
    chain.summarise()
    return False


def settle(chain: Buffet, sweep: int) -> None:
    """A sweep of all rows, on one process alone, with loadings that are drawn and shares of the rows for weights.

    With the loadings' means in place of a draw the log posterior would fall from sweep to sweep.
    """
    kept = chain.totals.owned > 0
    totals = Totals(chain.totals.owned[kept], chain.totals.together[np.ix_(kept, kept)], chain.totals.cells[kept])
    chain.slots = chain.slots[kept]
    stream = generator(chain.settings.seed, Purpose.SEARCH, chain.cycles, 2 + sweep, chain.chain)
    loadings = update.loadings(totals, chain.hyper, stream)
    sweep_all(chain, Found(loadings, totals.owned / (chain.n_rows + 1.0), chain.hyper, 0), chain.cycles, sweep)
    chain.summarise()


def sweep_all(chain: Buffet, found: Found, cycle: int, sweep: int) -> None:
    """Every row of the chain, on all ranks, draws anew which of its slots' features it has."""
    weights = np.clip(found.weights, 1e-12, 1.0 - 1e-12)
    features = Features(chain.slots, found.loadings, weights, found.hyper.noise_sd)
    nobody = np.zeros(len(chain.slots), np.uint64)
    seed = int(generator(chain.settings.seed, Purpose.SEARCH, chain=chain.chain, sub=1).integers(1 << 63))
    for shard in chain.shards:
        features.sweep(shard.rows, nobody, seed, cycle, chain.chain, sweep)
