"""Split of a feature into two, of which each owner has one or both, and the merge of two (docs/math.md 7.8)."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.ibp.moves import launch
from mpibayes.hpc.ibp.moves.ledger import Columns, Ledger, log_sum
from mpibayes.hpc.parallel.streams import Purpose

LIKENESS = 4.0  # preference for merges of similar features


def split_or_merge(ledger: Ledger, move: int) -> None:
    """Make one proposal, a split with probability one half. Collective."""
    stream = ledger.choices(move)
    if stream.random() < 0.5:
        if len(ledger.columns):
            _split(ledger, move, stream)
    elif len(ledger.columns) > 1:
        _merge(ledger, move, stream)


def law_of_pairs(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (pairs, log p): all pairs of features, (n, 2) indices, and their log probabilities; p ~ exp(4 cosine)."""
    pairs = np.stack(np.triu_indices(len(means), 1), axis=1)
    length = np.maximum(np.sqrt((means**2).sum(axis=1)), 1e-150)  # without cells all are equal
    cosine = (means[pairs[:, 0]] * means[pairs[:, 1]]).sum(axis=1) / (length[pairs[:, 0]] * length[pairs[:, 1]])
    log_p = LIKENESS * cosine
    return pairs, log_p - log_sum(log_p)


def _split(ledger: Ledger, move: int, stream: np.random.Generator) -> None:
    before = ledger.columns
    slot = before.slots[[stream.integers(len(before))]]
    rest = before.without(slot)
    owns = [p.astype(bool) for p in ledger.patterns(slot)]
    size = int(before.owned[before.place(slot)[0]])
    log_ps = odds(ledger, rest, move, owns, size)
    dealt = []
    for shard, has, log_p in zip(ledger.shards, owns, log_ps):
        pattern, rows = np.zeros(len(has), np.uint8), np.flatnonzero(has)
        u = ledger.uniforms(shard, Purpose.DEALT_FEATURES, move, rows)
        p = np.exp(log_p)
        pattern[rows] = 1 + (u >= p[:, 0]).astype(np.uint8) + (u >= p[:, 0] + p[:, 1])
        dealt.append(pattern)
    pair = ledger.free_slots(2)
    ledger.write(slot, [np.zeros(len(has), np.uint8) for has in owns])
    ledger.write(pair, dealt)
    after = ledger.with_fresh(rest, pair)
    log_ratio = log_ratio_of_split(ledger, before, after, pair, log_ps, dealt, owns)
    if ledger.decide("splits", log_ratio, stream):
        ledger.become(after)
    else:
        ledger.clear(pair)
        ledger.write(slot, [has.astype(np.uint8) for has in owns])


def _merge(ledger: Ledger, move: int, stream: np.random.Generator) -> None:
    after = ledger.columns
    places = np.zeros(2, np.int64)
    if ledger.root:
        pairs, log_p = law_of_pairs(ledger.means(after))
        p = np.cumsum(np.exp(log_p))
        places[:] = pairs[min(len(pairs) - 1, np.searchsorted(p, stream.random() * p[-1], side="right"))]
    ledger.comm.broadcast(places)
    pair = after.slots[places]
    rest = after.without(pair)
    dealt = ledger.patterns(pair)
    owns = [pattern > 0 for pattern in dealt]
    slot = ledger.free_slots(1)
    ledger.write(pair, [np.zeros(len(has), np.uint8) for has in owns])
    ledger.write(slot, [has.astype(np.uint8) for has in owns])
    before = ledger.with_fresh(rest, slot)
    log_ps = odds(ledger, rest, move, owns, int(before.owned[before.place(slot)[0]]))
    log_ratio = -log_ratio_of_split(ledger, before, after, pair, log_ps, dealt, owns)
    if ledger.decide("merges", log_ratio, stream):
        ledger.become(before)
    else:
        ledger.clear(slot)
        ledger.write(pair, dealt)


def odds(ledger: Ledger, rest: Columns, move: int, owns: list[np.ndarray], size: int) -> list[np.ndarray]:
    """Log probabilities that each owner of the split feature is given 10, 01 and 11, for each shard here, (owners, 3)
    float64."""
    left = launch.residuals(ledger, rest, launch.keyed_owners(ledger, move, owns, size))
    loadings = log_weights = None
    if ledger.root:
        stream = launch.generator(**ledger.key(Purpose.SHAPING, move + launch.APART))
        loadings, log_weights = launch.two_features(left, ledger.prior_variance, stream)
    scored = launch.spread(ledger, rest, loadings, log_weights, 3)
    log_odds = []
    for shard, has in zip(ledger.shards, owns):
        score = scored.scores(shard, np.flatnonzero(has))
        score = np.maximum(score - score.max(axis=1, keepdims=True), -launch.MOST_LOGIT)
        log_odds.append(score - np.log(np.exp(score).sum(axis=1, keepdims=True)))
    return log_odds


def log_ratio_of_split(ledger, before, after, pair, log_ps, dealt, owns) -> float:
    """Log of the split's ratio, on root; `before` has the feature, `after` the two of slots `pair`."""
    parts = []
    for log_p, pattern, has in zip(log_ps, dealt, owns):
        side = pattern[has].astype(np.int64) - 1
        swapped = np.array([1, 0, 2])[side]
        row = np.arange(len(side))
        parts.append(np.array([log_p[row, side].sum(), log_p[row, swapped].sum()]))
    log_q = ledger.total(parts, 2)
    if not ledger.root or after.owned.min() == 0:
        return -np.inf
    k = len(before)
    pairs, log_p = law_of_pairs(ledger.means(after))
    at = np.sort(after.place(pair))
    log_pair = log_p[(pairs == at).all(axis=1)][0]
    ratio = ledger.log_target_of(after) - ledger.log_target_of(before)
    return float(ratio + np.log((k + 1) * k) + log_pair - np.logaddexp(log_q[0], log_q[1]))
