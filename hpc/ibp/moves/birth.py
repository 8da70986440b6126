"""Birth and death of a feature of many rows at once (docs/math.md 7.7).

A feature is fitted to the residuals of a few rows, and every row is independently given it or not. The reverse of a
birth fits one to the residuals without the feature, and computes the probability of the feature's rows.
"""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.ibp.moves import launch
from mpibayes.hpc.ibp.moves.ledger import Columns, Ledger
from mpibayes.hpc.parallel.streams import Purpose


def birth_or_death(ledger: Ledger, move: int) -> None:
    """Make one proposal, a birth with probability one half. Collective."""
    stream = ledger.choices(move)
    if stream.random() < 0.5:
        _birth(ledger, move, stream)
    elif len(ledger.columns):
        _death(ledger, move, stream)


def _birth(ledger: Ledger, move: int, stream: np.random.Generator) -> None:
    rest = ledger.columns
    logits = odds(ledger, rest, move)
    dealt = [
        (ledger.uniforms(shard, Purpose.DEALT_FEATURES, move) < probability(logit)).astype(np.uint8)
        for shard, logit in zip(ledger.shards, logits)
    ]
    slot = ledger.free_slots(1)
    ledger.write(slot, dealt)
    columns = ledger.with_fresh(rest, slot)
    log_q, log_ratio = log_dealt(ledger, logits, dealt), -np.inf
    if ledger.root:
        log_ratio = ledger.log_target_of(columns) - ledger.log_target_of(rest) - log_q
    if ledger.decide("births", log_ratio, stream):
        ledger.become(columns)
    else:
        ledger.clear(slot)


def _death(ledger: Ledger, move: int, stream: np.random.Generator) -> None:
    columns = ledger.columns
    slot = columns.slots[[stream.integers(len(columns))]]
    rest = columns.without(slot)
    logits = odds(ledger, rest, move)
    log_q, log_ratio = log_dealt(ledger, logits, ledger.patterns(slot)), -np.inf
    if ledger.root:
        log_ratio = ledger.log_target_of(rest) - ledger.log_target_of(columns) + log_q
    if ledger.decide("deaths", log_ratio, stream):
        ledger.clear(slot)
        ledger.become(rest)


def odds(ledger: Ledger, rest: Columns, move: int) -> list[np.ndarray]:
    """Log odds that each row is given a feature besides those of `rest`, for each shard here, (n,) float64.

    The row's scores use only the bits of `rest`, so they are the same with the feature or without it.
    """
    left = launch.residuals(ledger, rest, launch.keyed_rows(ledger, move))
    loadings = logit = None
    if ledger.root:
        stream = launch.generator(**ledger.key(Purpose.SHAPING, move + launch.APART))
        loadings, logit = launch.one_feature(left, ledger.prior_variance, stream)
    scored = launch.spread(ledger, rest, loadings, logit, 1)
    every = [scored.scores(shard, np.arange(len(shard.rows)))[:, 0] for shard in ledger.shards]
    for logit in every:  # in place: these arrays cover all rows
        np.clip(logit, -launch.MOST_LOGIT, launch.MOST_LOGIT, out=logit)
    return every


def probability(logit: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-logit))


def log_dealt(ledger: Ledger, logits: list[np.ndarray], dealt: list[np.ndarray]) -> float:
    """Log q of the bits `dealt` given their log odds; on root."""
    parts = [np.array([(bit * logit - np.logaddexp(0.0, logit)).sum()]) for logit, bit in zip(logits, dealt)]
    return float(ledger.total(parts, 1)[0])
