"""Splits of a cluster by what its rows say in one column, and the merges that undo them.

Where a column has several levels in a cluster, the cells say nearly the same of it and of two clusters that share these
levels out in any way. No launch from two seeds finds the shares that are there. Here a split draws a share of every
level; over the shares the probability of the sides integrates out. A merge needs the counts of two clusters alone, and
no pass over the rows.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaln, gammaln

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.components.grid import draw_on_grid
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.moves.ledger import Labelled, Ledger
from mpibayes.hpc.parallel.streams import Purpose, generator

BY_LEVEL = 8  # steps a round
BY_LEVEL_SPLITS = 0.25  # share of them that propose a split
SPREAD = (0.5, 0.05)  # b of the Beta(b, b) that a level's share is drawn from: levels are shared, or go as a whole
LEVEL_ROWS = 2**14  # of all steps of a round together, at most


def by_level(ledger: Ledger) -> None:
    """Steps that each propose to join two clusters or, by a coin, to split one."""
    if not len(ledger.components.categorical):
        return
    steps = min(BY_LEVEL, max(1, LEVEL_ROWS // int(ledger.components.categorical.offsets[-1])))
    coins = generator(**ledger.stream(Purpose.BY_LEVEL)).random(steps)
    for step in range(steps):
        stream = generator(**ledger.stream(Purpose.BY_LEVEL, 1 + step))
        if coins[step] < BY_LEVEL_SPLITS:
            _split(ledger, step, stream)
        else:
            _merge(ledger, stream)


def _merge(ledger: Ledger, stream: np.random.Generator) -> None:
    k, log_u = ledger.n_labels, np.log(stream.random())
    pair, both = np.full(2, -1, np.int64), -1
    if k > 1 and ledger.comm.rank == 0:
        a = int(stream.integers(k))
        joined, log_sides, worth = _worth(ledger, a)
        b = int(draw_on_grid(worth[None], stream)[0])
        both = ledger.enter(joined.take([b]))
        ratio = ledger.log_split(ledger.column[a], ledger.column[b], both, k - 1)
        choice = _log_choice(worth, b)
        accepted = bool(log_u < -ratio - _log_proposals(k - 1, choice, log_sides[b]))
        if accepted:  # the choice can also be made from the other's side, which takes longer to work out
            choice = np.logaddexp(choice, _log_choice(_worth(ledger, b)[2], a))
            accepted = bool(log_u < -ratio - _log_proposals(k - 1, choice, log_sides[b]))
        ledger.count(False, accepted)
        if accepted:
            pair[:] = a, b
    ledger.comm.broadcast(pair)
    if pair[0] >= 0:
        ledger.join(pair, both)


def _split(ledger: Ledger, step: int, stream: np.random.Generator) -> None:
    k, log_u = ledger.n_labels, np.log(stream.random())
    cluster, column = int(stream.integers(k)), int(stream.integers(len(ledger.components.categorical)))
    sides = _dealt(ledger, cluster, column, SPREAD[int(stream.integers(len(SPREAD)))], step, stream)
    found = ledger.total(Labelled(ledger.shards, lambda i: sides[i].astype(np.int32)), 2)
    accepted = np.zeros(1, np.int64)
    if ledger.comm.rank == 0 and (found.size > 0).all():
        whole, one = ledger.column[cluster], ledger.enter(found)
        ledger.column[cluster] = one
        ledger.column.append(one + 1)
        (_, log_sides, worth), (*_, back) = _worth(ledger, cluster), _worth(ledger, k)
        choice = np.logaddexp(_log_choice(worth, k), _log_choice(back, cluster))
        ratio = ledger.log_split(one, one + 1, whole, k) + _log_proposals(k, choice, log_sides[k])
        accepted[0] = log_u < ratio
        ledger.count(True, bool(accepted[0]))
        if not accepted[0]:
            ledger.column.pop()
            ledger.column[cluster] = whole
    ledger.comm.broadcast(accepted)
    if accepted[0]:
        ledger.part(sides)


def _dealt(ledger: Ledger, cluster: int, column: int, spread: float, step: int, stream) -> list[np.ndarray]:
    """The side (0, 1; -1: no member) of every row of a cluster: 1 with the share of its level, or of missing cells."""
    of = ledger.components.categorical.columns[column]
    shares = stream.beta(spread, spread, len(of.levels) + 1)
    ledger.comm.broadcast(shares)  # the last bit may differ between processors
    sides = []
    for shard, z in zip(ledger.shards, ledger.z):
        member = np.flatnonzero(z == cluster)
        level = getattr(shard.rows, of.block)[member, of.index]
        sides.append(np.full(len(shard), -1, np.int8))
        sides[-1][member] = ledger.uniforms(shard.start + member, Purpose.SHARED_OUT, step) < shares[level]
    return sides


def _worth(ledger: Ledger, label: int) -> tuple[Statistics, np.ndarray, np.ndarray]:
    """A cluster joined with each of the others: statistics, log probability of the sides that a split of it into these
    two deals, and how likely the merge is to be accepted if both ways are proposed alike: a logarithm, but for a
    constant."""
    joined, gain = ledger.gains(label)
    log_sides = _log_sides(ledger, label)
    prior = gammaln(joined.size - ledger.hyper.discount) - gammaln(ledger.sizes() - ledger.hyper.discount)
    return joined, log_sides, gain + prior + log_sides


def _log_sides(ledger: Ledger, label: int) -> np.ndarray:
    """Log probability of the sides of a cluster and each of the others, either of them side 0."""
    kind = ledger.components.categorical
    levels = ledger.statistics.of(Categorical)[0].take(ledger.column, axis=1).astype(float)
    of_column = []
    for spread in SPREAD:
        each = gammaln(levels + spread)
        terms = each + each[:, [label]] - gammaln(levels + levels[:, [label]] + 2.0 * spread) - betaln(spread, spread)
        of_column.append(np.add.reduceat(terms, kind.offsets[:-1], axis=0))
    return np.logaddexp.reduce(np.concatenate(of_column)) + np.log(2.0 / (len(SPREAD) * len(kind)))


def _log_choice(worth: np.ndarray, other: int) -> float:
    return float(worth[other] - np.logaddexp.reduce(worth))


def _log_proposals(n_before: int, log_choice: float, log_sides: float) -> float:
    """Log of how often a merge proposes to join two clusters, over how often a split of one of n_before proposes
    them."""
    merge = np.log1p(-BY_LEVEL_SPLITS) - np.log(n_before + 1.0) + log_choice
    return float(merge - np.log(BY_LEVEL_SPLITS) + np.log(n_before) - log_sides)
