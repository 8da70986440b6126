"""Start of a chain of the Indian buffet process (docs/math.md 7.9).

`none`: no row has a feature. `random`: features drawn from the prior. `subsample`, the default: features are searched
for on a few rows, and then all rows draw theirs among them. `sequential`: the same with features from a few rows seated
one after another, each given those before it.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, logsumexp

from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.start.pursuit import pursue
from mpibayes.hpc.ibp.start.search import search
from mpibayes.hpc.ibp.start.seating import seat
from mpibayes.hpc.ibp.start.steps import Found, sweep_all
from mpibayes.hpc.ibp.state import WORD, Hyper
from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator

STARTS = ("none", "random", "sequential", "subsample")
ROWS = 2000  # rows on which features are searched for
SWEEPS = 2  # of all rows with the features found
FROM_PRIOR, ROWS_OF_SEARCH = 2, 3  # streams of Purpose.FIRST_FEATURES; the search uses lower ones


def start(chain: Buffet, strategy: str = "subsample", rows: int = ROWS) -> None:
    """Give the rows of a new chain their first features. Collective.

    rows: number that "subsample" and "sequential" use.
    """
    if strategy not in STARTS:
        raise ValueError(f"a start is one of {', '.join(STARTS)}; {strategy} was given")
    if strategy == "random":
        _from_prior(chain)
    elif strategy != "none" and chain.n_columns:
        cells = _some_rows(chain, min(rows, chain.n_rows))
        _deal(chain, agree(chain.comm, lambda: _found(chain, strategy, cells), "search for features"))


def _found(chain: Buffet, strategy: str, cells: np.ndarray | None) -> Found | None:
    """Find features on a sample of rows, on root."""
    if cells is None:
        return None
    if strategy == "subsample":
        return search(cells, chain.settings, chain.chain)
    return Found(*seat(cells, chain.hyper, chain.settings.seed, chain.chain), chain.hyper, 0)


def _some_rows(chain: Buffet, n: int) -> np.ndarray | None:
    """Keyed sample of the table's rows with NaN for missing cells, float64 (n, D), on root."""
    stream = generator(chain.settings.seed, Purpose.FIRST_FEATURES, 0, ROWS_OF_SEARCH, chain.chain)
    drawn = np.sort(stream.choice(chain.n_rows, n, replace=False))
    edges, mine = np.searchsorted(drawn, chain.starts), [np.zeros((0, chain.n_columns), np.float32)]
    for shard in chain.shards:
        here = drawn[edges[shard.index] : edges[shard.index + 1]] - chain.starts[shard.index]
        part = shard.rows.x[here, : chain.n_columns]
        row, column = shard.missing
        gone = np.isin(row, here)
        part[np.searchsorted(here, row[gone]), column[gone]] = np.nan
        mine.append(part)
    mine = np.concatenate(mine)
    lengths = [int(length) for length in chain.comm.collect(len(mine))]
    gathered = chain.comm.gather_to_root(mine, lengths)
    return gathered.astype(np.float64) if chain.comm.rank == 0 else None


def _deal(chain: Buffet, state: Found | None) -> None:
    """Give all rows those of the found features that explain them best, and sweep over them."""
    size, d = np.zeros(1, np.int64), chain.n_columns
    if state is not None:
        size[0] = len(state.weights)
    chain.comm.broadcast(size)
    k = int(size[0])
    message = np.zeros(3 + d + k * (d + 1))
    if state is not None:
        h = state.hyper
        message[:] = [h.alpha, h.c, h.feature_sd, *h.noise_sd, *state.weights, *state.loadings.ravel()]
    chain.comm.broadcast(message)
    hyper = Hyper(float(message[0]), float(message[1]), message[3 : 3 + d].copy(), float(message[2]), chain.hyper.noise)
    weights, loadings = message[3 + d : 3 + d + k], message[3 + d + k :].reshape(k, d)
    chain.hyper = hyper
    chain.make_room(k)
    chain.slots = np.arange(k)
    if k:
        shares = np.clip(weights, 1e-12, 1.0 - 1e-12)
        for shard in chain.shards:
            x = shard.rows.x[:, :d].copy() if len(shard.missing[0]) else shard.rows.x[:, :d]
            x[shard.missing] = np.nan
            has = pursue(x, loadings, shares, hyper.noise_sd)
            for slot, column in enumerate(has.T):
                shard.rows.z[:, slot // WORD] |= column.astype(np.uint64) << np.uint64(slot % WORD)
    chain.loadings = loadings
    for sweep in range(SWEEPS if k else 0):
        chain.fill(chain.key() | {"cycle": 0, "sub": sweep})
        sweep_all(chain, Found(loadings, weights, hyper, 0), 0, sweep)
    chain.summarise()


def _from_prior(chain: Buffet) -> None:
    """Draw features from the prior given the hyperparameters: the number of rows of each, then the rows; rows are
    independent given the feature's weight, so that their number is only about the one drawn."""
    n, h, settings = chain.n_rows, chain.hyper, chain.settings
    k, weights = 0, np.zeros(0)
    if chain.comm.rank == 0:
        stream = generator(settings.seed, Purpose.FIRST_FEATURES, 0, FROM_PRIOR, chain.chain)
        k = int(stream.poisson(h.alpha * update.harmonic(n, h.c)))
        m = np.arange(1, n + 1)
        log_p = gammaln(n + 1.0) - gammaln(m + 1.0) - gammaln(n - m + 1.0) + gammaln(m) + gammaln(n - m + h.c)
        weights = stream.choice(m, size=k, p=np.exp(log_p - logsumexp(log_p)))
        weights = stream.beta(weights, n - weights + h.c)
    k, weights = chain.comm.share((k, weights))
    chain.make_room(k)
    chain.slots = np.arange(k)
    for slot, weight in enumerate(weights.tolist()):
        stream = Stream(settings.seed, Purpose.DEALT_FEATURES, 0, chain.chain, slot)
        for shard in chain.shards:
            has = stream.uniforms(np.arange(len(shard.rows)) + chain.starts[shard.index]) < weight
            shard.rows.z[:, slot // WORD] |= has.astype(np.uint64) << np.uint64(slot % WORD)
    chain.summarise()
