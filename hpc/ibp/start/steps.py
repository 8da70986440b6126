"""Steps that only a start may take, on one process: features change, the rows settle, and the result is kept if its
posterior is higher (docs/math.md 7.9)."""

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
SWEEPS = 3  # sweeps in which rows settle
STEPS = 12  # of expectation and maximization
BEGINNINGS, FEW_ROWS = 3, 400  # starting points of a refit, and the rows that choose among them
LIKENESS, COUPLING = (
    4.0,
    20.0,
)  # how much features that are alike, or that are coupled, are preferred to be fitted again


@dataclass(frozen=True)
class Found:
    """Loadings (K, D), weights (K,), which are shares of the rows, hyperparameters, and number of cycles run."""

    loadings: np.ndarray
    weights: np.ndarray
    hyper: Hyper
    cycles: int


def leave_out(chain: Buffet, slot: int | None = None, attempt: int = 0, support: float = 0.0) -> bool:
    """Drop one feature; return True if that was better, and so was kept.

    slot: of the feature; None: a random one. attempt: number within this cycle, for its draws. support: largest loss of
    log posterior that counts as better.
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
    """Refit two or three features to the residuals of the others; return True if that was better, and so was kept.

    This separates mixtures of features, {A + B / 3, B - A / 3}, which no recoding of the rows' patterns does.
    """
    if len(chain.slots) < 2 or not chain.n_columns:
        return False
    stream = generator(chain.settings.seed, Purpose.FIRST_FEATURES, chain.cycles, REFITTED, chain.chain)
    ledger = Ledger(chain)
    columns = ledger.columns
    log_p = coupling(ledger)
    first, second = np.divmod(_drawn(np.triu(np.exp(log_p), 1), stream), len(columns))
    chosen = [int(first), int(second)]
    if len(columns) > 2 and stream.random() < 0.5:
        p = np.exp(log_p[chosen].max(axis=0))
        p[chosen] = 0.0
        chosen.append(_drawn(p, stream))
    slots = columns.slots[chosen]
    left = launch.residuals(ledger, columns.without(slots), [np.arange(len(s.rows)) for s in chain.shards])
    pattern = fitted(left, len(slots), ledger.prior_variance, stream)

    def change() -> None:
        ledger.write(slots, [pattern[chain.starts[s.index] : chain.starts[s.index + 1]] for s in chain.shards])

    return kept_if_better(chain, change, SWEEPS, 0.0)


def coupling(ledger: Ledger) -> np.ndarray:
    """Log weight of every pair to be refitted, (K, K): larger for similar features, or if their owners overlap more or
    less often than under independence, as those of mixtures do."""
    columns, means, n = ledger.columns, ledger.means(ledger.columns), ledger.n_rows
    length = np.maximum(np.sqrt((means**2).sum(axis=1)), 1e-150)
    share = columns.owned / n
    spread = np.sqrt(np.maximum(share * (1.0 - share), 1.0 / n))
    correlation = (columns.together / n - np.outer(share, share)) / np.outer(spread, spread)
    return LIKENESS * np.abs(means @ means.T) / np.outer(length, length) + COUPLING * np.abs(correlation)


def _drawn(weights: np.ndarray, stream: np.random.Generator) -> int:
    p = np.cumsum(weights)
    return int(np.searchsorted(p, stream.random() * p[-1], side="right"))


def fitted(rows: np.ndarray, n: int, prior_variance: float, stream: np.random.Generator) -> np.ndarray:
    """Fit n features to residuals, float64 (m, D), in units of the noise; return their patterns, uint8 (m,).

    Runs EM on some rows from several starting points, then on all rows from the best one; patterns are drawn at the
    end.
    """
    sample = rows[stream.permutation(len(rows))[:FEW_ROWS]]
    tried = []
    for _ in range(BEGINNINGS):
        left, loadings = sample, []
        for _ in range(n):
            a, logit = launch.one_feature(left, prior_variance, stream)
            score = np.clip(logit + left @ a[0] - 0.5 * (a[0] @ a[0]), -launch.MOST_LOGIT, launch.MOST_LOGIT)
            left = left - a / (1.0 + np.exp(-score[:, None]))
            loadings.append(a[0])
        tried.append(_fit(sample, np.array(loadings), np.zeros(2**n), prior_variance)[:3])
    _, loadings, log_weights = max(tried, key=lambda fit: fit[0])
    p = _fit(rows, loadings, log_weights, prior_variance)[3]
    return (np.cumsum(p, axis=1) < stream.random((len(rows), 1))).sum(axis=1).clip(max=2**n - 1).astype(np.uint8)


def _fit(rows: np.ndarray, loadings: np.ndarray, log_weights: np.ndarray, prior_variance: float):
    """Return (log posterior before the last step up to a constant, loadings (n, D), log weights of the patterns (2^n,),
    probabilities (m, 2^n))."""
    n = len(loadings)
    patterns, value = bits(n).astype(np.float64), 0.0
    for _ in range(STEPS):
        fine = patterns @ loadings
        score = log_weights + rows @ fine.T - 0.5 * (fine**2).sum(axis=1)
        most = score.max(axis=1, keepdims=True)
        p = np.exp(score - most)
        total = p.sum(axis=1, keepdims=True)
        p /= total
        value = float((most + np.log(total)).sum() - 0.5 * (loadings**2).sum() / prior_variance)
        owners = p.sum(axis=0)
        together = np.einsum("pa,p,pb->ab", patterns, owners, patterns) + np.eye(n) / prior_variance
        loadings = np.linalg.solve(together, patterns.T @ (p.T @ rows))
        log_weights = np.log((owners + 1.0) / (len(rows) + len(owners)))
    return value, loadings, log_weights, p


def kept_if_better(chain: Buffet, change: Callable[[], None], attempt: int, support: float) -> bool:
    """Apply the change and some sweeps; return True unless the log posterior is lower than before by more than
    `support`, and restore the chain otherwise."""
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
    """Sweep all rows, on one process alone, with drawn loadings and with shares of the rows as weights.

    With the loadings' means in place of a draw the log posterior would fall from sweep to sweep.
    """
    kept = chain.totals.owned > 0
    totals = Totals(chain.totals.owned[kept], chain.totals.together[np.ix_(kept, kept)], chain.totals.cells[kept])
    chain.slots = chain.slots[kept]
    stream = generator(chain.settings.seed, Purpose.SEARCH, chain.cycles, 2 + sweep, chain.chain)
    loadings = update.loadings(totals, chain.hyper, stream)
    sweep_all(chain, Found(loadings, totals.owned / (chain.n_rows + 1.0), chain.hyper, 0), chain.cycles, sweep)
    chain.summarise()


def sweep_all(chain: Buffet, state: Found, cycle: int, sweep: int) -> None:
    """Redraw the features of every row of the chain, on all ranks."""
    weights = np.clip(state.weights, 1e-12, 1.0 - 1e-12)
    features = Features(chain.slots, state.loadings, weights, state.hyper.noise_sd)
    nobody = np.zeros(len(chain.slots), np.uint64)
    seed = int(generator(chain.settings.seed, Purpose.SEARCH, chain=chain.chain, sub=1).integers(1 << 63))
    for shard in chain.shards:
        features.sweep(shard.rows, nobody, seed, cycle, chain.chain, sweep)
