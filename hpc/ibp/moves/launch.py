"""Launches of births and splits: one or two features are fitted to the residuals of a few rows, on root.

A launch is a function of keyed random words and of the features common to both sides of a move, so that the reverse of
a move finds the same one (docs/math.md 7.7).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from mpibayes.hpc.ibp.moves.ledger import Columns, Ledger
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.ibp import moves as kernels

ROWS = 1000  # rows that shape a birth
OWNERS = 500  # approximate number of owners that shape a split
STEPS = 10  # of expectation and maximization
APART = 1 << 32  # offset of a launch's other draws from its rows, in the sub of their streams
POWERS = 2  # powers of the residuals' scatter that turn a row into a direction
MOST_LOGIT = 15.0  # bound on a row's log odds of being given a feature


@dataclass
class Scored:
    """Scores by which rows are given a proposed feature, on every rank: the score of row n for vector j is x_n .
    vectors[j] less offsets[j, k] for each feature of `slots` that it has; biases (J,) are added to these."""

    slots: np.ndarray
    vectors: np.ndarray  # (J, D)
    offsets: np.ndarray  # (J, K)
    biases: np.ndarray  # (J,)

    def scores(self, shard, rows: np.ndarray) -> np.ndarray:
        """Scores of rows of a shard, float64 (R, J)."""
        scores = kernels.scores(shard.rows.z, shard.rows.x, rows, self.vectors, self.slots, self.offsets)
        return scores + self.biases


def spread(
    ledger: Ledger, rest: Columns, loadings: np.ndarray | None, log_weights: np.ndarray | None, n: int
) -> Scored:
    """Share root's features, float64 (n, D) in units of the noise, and the log of each one's weight, with every
    rank."""
    k, d = len(rest), ledger.n_columns
    message = np.zeros((n, d + k + 1))
    if ledger.root:
        message[:, :d] = loadings / ledger.hyper.noise_sd
        message[:, d : d + k] = loadings @ ledger.means(rest).T
        message[:, -1] = log_weights - 0.5 * (loadings**2).sum(axis=1)
    ledger.comm.broadcast(message)
    vectors, offsets = np.ascontiguousarray(message[:, :d]), np.ascontiguousarray(message[:, d : d + k])
    return Scored(rest.slots, vectors, offsets, message[:, -1].copy())


def keyed_rows(ledger: Ledger, move: int) -> list[np.ndarray]:
    """Rows that shape a launch, about ROWS in all, as numbers within each shard here, in table order."""
    n = ledger.n_rows
    drawn = np.arange(n)
    if n > ROWS:
        drawn = np.sort(generator(**ledger.key(Purpose.SHAPING, move)).choice(n, ROWS, replace=False))
    edges = np.searchsorted(drawn, ledger.starts)
    return [drawn[edges[s.index] : edges[s.index + 1]] - ledger.starts[s.index] for s in ledger.shards]


def keyed_owners(ledger: Ledger, move: int, owns: list[np.ndarray], size: int) -> list[np.ndarray]:
    """Rows that shape a launch among those of the masks `owns`, bool (n,) per shard, which have `size` owners in
    all."""
    owners = [np.flatnonzero(has) for has in owns]
    if size <= OWNERS:
        return owners
    return [
        rows[ledger.uniforms(shard, Purpose.SHAPING, move, rows) < OWNERS / size]
        for shard, rows in zip(ledger.shards, owners)
    ]


def residuals(ledger: Ledger, rest: Columns, rows: list[np.ndarray]) -> np.ndarray | None:
    """Residuals of `rows` after the features of `rest`, float64 (M, D) in units of the noise, on root."""
    d, k = ledger.n_columns, len(rest)
    lengths = [sum(n) for n in ledger.comm.collect([len(r) for r in rows])]
    mine = np.zeros((sum(len(r) for r in rows), d + k), np.float32)
    at = 0
    for shard, here in zip(ledger.shards, rows):
        part = mine[at : at + len(here)]
        part[:, :d] = shard.rows.x[here]
        z = shard.rows.z[here]
        for j, slot in enumerate(rest.slots.tolist()):
            part[:, d + j] = z[:, slot // 64] >> np.uint64(slot % 64) & np.uint64(1)
        at += len(here)
    gathered = ledger.comm.gather_to_root(mine, lengths)
    if not ledger.root:
        return None
    x = gathered[:, :d].astype(np.float64) / ledger.hyper.noise_sd
    return x - gathered[:, d:].astype(np.float64) @ ledger.means(rest)


def one_feature(rows: np.ndarray, prior_variance: float, stream: np.random.Generator) -> tuple[np.ndarray, float]:
    """Fit a feature that some of these residuals have: (loadings (1, D), logit of the weight).

    One residual, drawn at random, is turned towards the directions of largest scatter; EM starts from the quarter of
    the rows that lie furthest in that direction.
    """
    m, d = rows.shape
    if d == 0 or m == 0:
        return np.zeros((1, d)), 0.0
    direction = rows[stream.integers(m)].copy()
    if stream.random() < 0.5:
        direction = -direction
    for _ in range(POWERS):
        direction = rows.T @ (rows @ direction)
        direction /= max(np.sqrt(direction @ direction), 1e-300)
    along = rows @ direction
    if stream.random() < 0.75 and (along**3).sum() < 0.0:  # a feature of few rows gives a long tail on its side
        along = -along
    share = (0.5, 0.25, 0.1)[stream.integers(3)]
    has = (along > np.quantile(along, 1.0 - share)).astype(np.float64)
    for _ in range(STEPS):
        n = has.sum()
        loadings = (has @ rows) / (n + 1.0 / prior_variance)
        logit = np.log((n + 1.0) / (m - n + 1.0))
        has = expit(logit + rows @ loadings - 0.5 * (loadings @ loadings))
    return loadings[None], float(logit)


def two_features(rows: np.ndarray, prior_variance: float, stream: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Fit two features of these residuals, each of which has at least one of them: (loadings (3, D), log weights (3,))
    of the patterns 10, 01 and 11."""
    m, d = rows.shape
    if d == 0 or m == 0:
        return np.zeros((3, d)), np.log(np.full(3, 1.0 / 3.0))
    centred = rows - rows.mean(axis=0)
    direction = centred[stream.integers(m)].copy()
    for _ in range(POWERS):
        direction = centred.T @ (centred @ direction)
        direction /= max(np.sqrt(direction @ direction), 1e-300)
    along = centred @ direction
    has = np.zeros((m, 3))
    first = along > np.quantile(along, stream.uniform(0.3, 0.7))
    has[first, 0], has[~first, 1] = 1.0, 1.0
    if stream.random() < 0.5:  # one side has both
        has[~first] = (0.0, 0.0, 1.0)
        has[first] = (0.9, 0.1, 0.0)
    patterns = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    for _ in range(STEPS):
        n = has.sum(axis=0)
        together = np.einsum("pa,p,pb->ab", patterns, n, patterns) + np.eye(2) / prior_variance
        loadings = patterns @ np.linalg.solve(together, patterns.T @ (has.T @ rows))
        log_weights = np.log((n + 1.0) / (m + 3.0))
        score = log_weights + rows @ loadings.T - 0.5 * (loadings**2).sum(axis=1)
        has = np.exp(score - score.max(axis=1, keepdims=True))
        has /= has.sum(axis=1, keepdims=True)
    return loadings, log_weights
