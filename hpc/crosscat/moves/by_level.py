"""Splits of a cluster by its rows' levels in one column, and the merges that reverse them.

If a column has several levels in a cluster, two clusters that divide these levels in any proportions have nearly the
same likelihood as one. No launch from two seeds finds the present proportions again. Here a split draws a share of
every level; the probability of the sides integrates over the shares. A merge needs only the counts of two clusters, and
no pass over the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.crosscat.moves.by_pattern import AFTER
from mpibayes.hpc.crosscat.moves.ledger import Ledger, gains_of, log_choice
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.common.functions import gammaln
from mpibayes.kernels.mixture import updates

BY_LEVEL = 8  # steps per round
BY_LEVEL_SPLITS = 1.0 / 4, 1.0 / 8  # share of the steps that propose a split, while partitions take shape and later
SPREAD = (0.5, 0.05)  # b of the Beta(b, b) from which a level's share is drawn: levels are divided, or move as a whole
SHARES = updates.Shares(SPREAD)
LEVEL_ROWS = 2**14  # most levels, summed over the steps of a round


def by_level(ledger: Ledger) -> None:
    """Run steps that each propose to merge two clusters or, at random, to split one."""
    if not len(ledger.components.categorical):
        return
    steps = min(BY_LEVEL, max(1, LEVEL_ROWS // int(ledger.components.categorical.offsets[-1])))
    coins = generator(**ledger.stream(Purpose.BY_LEVEL)).random(steps)
    splits = coins < _splits(ledger)
    for step, weights in ledger.steps(splits, _weigh):
        if splits[step]:
            _split(ledger, step, _stream(ledger, step))
        else:
            _merge(ledger, *weights)


def _stream(ledger: Ledger, step: int) -> np.random.Generator:
    return generator(**ledger.stream(Purpose.BY_LEVEL, 1 + step))


def _weigh(ledger: Ledger, steps: Sequence[int]) -> list[tuple[int, int] | None]:
    """Draw two clusters to merge for each step; return both, or None if the merge is rejected."""
    if ledger.n_labels < 2 or not steps:
        return [None] * len(steps)
    of, before, splits = ledger.pairs(Purpose.BY_LEVEL, steps, _worths), ledger.n_labels - 1, _splits(ledger)
    log_sides = np.array(ledger.of_each(_sides, of.one.tolist()))[np.arange(len(steps)), of.two]
    ratio = -of.log_split - _log_proposals(before, of.log_choice, log_sides, splits)
    possible = np.flatnonzero(of.log_u < ratio)  # `two` can also choose `one`, which takes longer to compute
    ratio[possible] -= ledger.either_way(of, possible, _worths)
    each = zip(of.one.tolist(), of.two.tolist(), (of.log_u < ratio).tolist())
    return [(one, two) if accepted else None for one, two, accepted in each]


def _merge(ledger: Ledger, a: float, b: float, *_: float) -> None:
    accepted = ledger.joined(int(a), int(b))
    ledger.count(False, accepted)
    if accepted:
        ledger.join(int(a), int(b))


def _split(ledger: Ledger, step: int, stream: np.random.Generator) -> None:
    k, log_u = ledger.n_labels, np.log(stream.random())
    cluster, column = int(stream.integers(k)), int(stream.integers(len(ledger.components.categorical)))
    sides = _dealt(ledger, cluster, column, SPREAD[int(stream.integers(len(SPREAD)))], step, stream)
    dealt, accepted = ledger.total_sides(sides, np.zeros(k, np.int64), [cluster]), False
    if not (dealt.size > 0).all():
        return
    whole, one = ledger.column[cluster], ledger.enter(dealt)
    if ledger.comm.rank == 0:
        ratio = ledger.log_split(*map(ledger.cluster, (one, one + 1, whole)), k)
        log_sides = _log_sides(ledger, [one, one + 1], [0])[0, 1]
        accepted = bool(log_u < ratio + _log_proposals(k, np.log(2.0), log_sides, _splits(ledger)))
        if accepted:  # now with the probability that the merge chooses these two, which takes longer to compute
            ledger.column[cluster] = one
            ledger.column.append(one + 1)
            worths = np.array(ledger.of_each(_worths, [cluster, k]))
            choice = np.logaddexp(*log_choice(worths, [k, cluster]))
            ledger.column.pop()
            ledger.column[cluster] = whole
            accepted = bool(log_u < ratio + _log_proposals(k, choice, log_sides, _splits(ledger)))
    accepted = ledger.agreed(accepted) and ledger.parted(cluster, sides)
    ledger.count(True, accepted)
    if accepted:
        ledger.part(cluster, sides, one)


def _dealt(ledger: Ledger, cluster: int, column: int, spread: float, step: int, stream) -> list[np.ndarray]:
    """Draw the side of every row (-1 outside the cluster): 1 with the probability `shares` of its code."""
    of = ledger.components.categorical.columns[column]
    shares = stream.beta(spread, spread, of.blank + 1)
    ledger.comm.broadcast(shares)  # the last bit may differ between processors
    sides = []
    for shard, z in zip(ledger.shards, ledger.z):
        member = np.flatnonzero(z == cluster)
        level = getattr(shard.rows, of.block)[member, of.index]
        sides.append(np.full(len(shard), -1, np.int8))
        sides[-1][member] = ledger.uniforms(shard.start + member, Purpose.SHARED_OUT, step) < shares[level]
    return sides


def _worths(ledger: Ledger, labels: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield for each of several clusters the unnormalised log acceptance of its merges with the others, (K,), if both
    directions were proposed equally often."""
    size, d = ledger.sizes(), ledger.hyper.discount
    both = gammaln(size[labels, None] + size - d) - gammaln(size - d)
    yield from np.array(ledger.of_each(gains_of, labels)) + both + np.array(ledger.of_each(_sides, labels))


def _sides(ledger: Ledger, labels: Sequence[int]) -> np.ndarray:
    """Return for each of several clusters the log probability that a split of its union with another cluster deals
    these two sides, (N, K)."""
    return _log_sides(ledger, ledger.column, labels)


def _log_sides(ledger: Ledger, columns: list[int], of: Sequence[int]) -> np.ndarray:
    """Return the log probability of the sides formed by each cluster in `of` (places in columns) and each cluster in
    columns, either of them side 0."""
    kind = ledger.components.categorical
    levels = ledger.statistics.of(Categorical)[0].take(columns, axis=1)
    return SHARES.log_sums(levels, kind.offsets, of) + np.log(2.0 / (len(SPREAD) * len(kind)))


def _splits(ledger: Ledger) -> float:
    """Return the share of splits: lower late, when they are seldom accepted; each passes over the rows of a cluster."""
    return BY_LEVEL_SPLITS[ledger.key["cycle"] > AFTER]


def _log_proposals(n_before: int, log_choice, log_sides, splits: float):
    """Return the log probability that a merge step proposes to join two clusters, over the probability that a split of
    one of n_before clusters proposes them."""
    merge = np.log1p(-splits) - np.log(n_before + 1.0) + log_choice
    return merge - np.log(splits) + np.log(n_before) - log_sides
