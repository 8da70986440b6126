"""Merges of similar clusters, chosen by the gain in marginal likelihood, and the splits that reverse them.

If two clusters differ by chance alone, as sweeps may leave them, no launch from two seeds can find their border again.
So a few rows keep their present sides; when a split is proposed, an urn deals these. The other rows follow in batches,
each with sides drawn from the odds that all rows before it give. Most merges are rejected on root at once; the few
others need two passes over the rows of two clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from mpibayes.hpc.components.statistics import Statistics, join
from mpibayes.hpc.crosscat.moves.ledger import CELLS, Ledger, gains_of, log_choice
from mpibayes.hpc.crosscat.moves.odds import Odds, odds_of_predictive
from mpibayes.hpc.crosscat.moves.pools import Pool, Pools, Recalled
from mpibayes.hpc.parallel.reduce import exact_sum
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.io.rows import Rows
from mpibayes.kernels.common.functions import gammaln
from mpibayes.kernels.mixture import split as kernels

INFORMED = 8  # steps per round
INFORMED_SPLITS = 1.0 / 32  # share of the steps that propose a split
FIRST_ROWS = 32.0  # expected rows whose sides a step recalls; the fewer, the more probable are they under the urn
GROWTH = 1.25  # of the rows with sides, from one batch to the next; the fewer batches, the worse the odds of the next
DOUBT = 1.0 / 3.0  # rows per column whose weight odds at zero have
ALIKE, SLACK = 3.0, 10.0  # power of similarity that chooses partners, and nats that small clusters can differ by chance
LEVEL_ROWS = 2**14  # most levels, summed over the steps of a round


def informed(ledger: Ledger) -> None:
    """Run steps that each propose a merge of two similar clusters or, at random, a split."""
    steps = min(INFORMED, max(1, LEVEL_ROWS // max(1, int(ledger.components.categorical.offsets[-1]))))
    coins = generator(**ledger.stream(Purpose.INFORMED)).random(steps)
    for step, weights in ledger.steps(coins < INFORMED_SPLITS, _weigh):
        if coins[step] < INFORMED_SPLITS:
            _split(ledger, step, _stream(ledger, step))
        else:
            _merge(ledger, step, *weights)


def _stream(ledger: Ledger, step: int) -> np.random.Generator:
    return generator(**ledger.stream(Purpose.INFORMED, 1 + step))


def _weigh(ledger: Ledger, steps: Sequence[int]) -> list[tuple[int, int, float, float] | None]:
    """Draw two clusters to merge for each step; return both, log_u, and an upper bound on the log acceptance ratio,
    before the probability of the sides; None if log_u is above the bound."""
    if ledger.n_labels < 2 or not steps:
        return [None] * len(steps)
    of = ledger.pairs(Purpose.INFORMED, steps, _choices_of)
    bound = -of.log_split + _log_proposals(ledger.n_labels - 1, of.log_choice)
    possible = np.flatnonzero(of.log_u < bound)  # `two` can also choose `one`, which takes longer to compute
    bound[possible] -= ledger.either_way(of, possible, _choices_of)
    each = zip(of.one.tolist(), of.two.tolist(), of.log_u.tolist(), bound.tolist())
    return [(one, two, log_u, most) if log_u < most else None for one, two, log_u, most in each]


def _merge(ledger: Ledger, step: int, a: float, b: float, log_u: float, bound: float) -> None:
    """Finish a merge that would be accepted if the reverse split were certain to draw the present sides."""
    pair = np.array([a, b], np.int64)
    recalled = _recall(ledger, pair, None, step)
    accepted = ledger.agreed(log_u < bound + recalled.log_urn)  # if the sides of the other rows had probability 1
    if accepted:
        _, log_q = _all_sides(ledger, pair, recalled, step)
        accepted = ledger.agreed(log_u < bound + log_q) and ledger.joined(*pair.tolist())
    ledger.count(False, accepted)
    if accepted:
        ledger.join(*pair.tolist())


def _split(ledger: Ledger, step: int, stream: np.random.Generator) -> None:
    k, log_u = ledger.n_labels, np.log(stream.random())
    cluster, bias = int(stream.integers(k)), stream.random()
    pair, accepted = np.array([cluster, cluster]), False
    sides_of_rows, log_q = _all_sides(ledger, pair, _recall(ledger, pair, bias, step), step)
    sides = ledger.total_sides(sides_of_rows, np.zeros(k, np.int64), [cluster])
    if not (sides.size > 0).all():
        return
    whole, one = ledger.column[cluster], ledger.enter(sides)
    if ledger.comm.rank == 0:
        ledger.column[cluster] = one
        ledger.column.append(one + 1)
        choices = np.array(ledger.of_each(_choices_of, [cluster, k]))
        ledger.column.pop()
        ledger.column[cluster] = whole
        ratio = ledger.log_split(*map(ledger.cluster, (one, one + 1, whole)), k)
        ratio -= log_q + _log_proposals(k, np.logaddexp(*log_choice(choices, [k, cluster])))
        accepted = bool(log_u < ratio)
    accepted = ledger.agreed(accepted) and ledger.parted(cluster, sides_of_rows)
    ledger.count(True, accepted)
    if accepted:
        ledger.part(cluster, sides_of_rows, one)


def _choices_of(ledger: Ledger, labels: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield for each of several clusters the log weights of all others as its partner, (K,); -inf for itself.

    Of clusters with many rows, those that differ by chance alone lose hundreds of nats in a union, more than a small
    cluster of any kind. So half the choices go by the loss per row of the smaller cluster, about.
    """
    size = ledger.sizes().astype(float)
    for label, gain in zip(labels, ledger.of_each(gains_of, labels)):
        rows = size * size[label] / (size + size[label])
        likeness = ALIKE * (np.log(rows) - np.log(SLACK + np.maximum(-gain, 0.0)))
        yield np.logaddexp(_normalised(gain), _normalised(likeness))


def _normalised(weight: np.ndarray) -> np.ndarray:
    top = weight.max()
    return weight - top - np.log(np.exp(weight - top).sum())


def _log_proposals(n_before: int, log_choice):
    """Return the log probability of proposing a split of one of n_before clusters, without that of its sides, over the
    probability of proposing the merge."""
    split, merge = np.log(INFORMED_SPLITS / n_before), np.log1p(-INFORMED_SPLITS) - np.log(n_before + 1.0)
    return split - merge - log_choice


def _log_urn(n_zero: float, n_one: float) -> float:
    """Return the log probability of recalled sides, dealt one by one by an urn that starts with a ball per side."""
    return float(gammaln(n_zero + 1.0) + gammaln(n_one + 1.0) - gammaln(n_zero + n_one + 2.0))


def _shares(n_rows: int) -> np.ndarray:
    """Return the expected shares of n_rows that are in each batch or an earlier one."""
    shares = [min(1.0, FIRST_ROWS / n_rows)]
    while shares[-1] < 1.0:
        shares.append(min(1.0, GROWTH * shares[-1]))
    return np.array(shares)


def _recall(ledger: Ledger, pair: np.ndarray, bias: float | None, step: int) -> Recalled:
    """Deal the rows into batches at random, and recall the sides of the first: the present sides or, for a split (bias
    given), those of a coin with this bias. The first row of all is in it and has side 0. Collective."""
    row, cluster = _first_row(ledger, pair)
    shares = _shares(sum(int(ledger.statistics.size[ledger.column[label]]) for label in set(pair.tolist())))
    of = row, cluster, shares, -1.0 if bias is None else bias, Purpose.RECALLED, Purpose.DEALT
    each = [kernels.recall(z, s.start, *pair, *of, sub=step, **ledger.key) for s, z in zip(ledger.shards, ledger.z)]
    cut = np.cumsum([0, *(len(member) for member, _, _ in each)])
    each.append((np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0, np.int16)))  # of a rank without shards
    member, side, batch = map(np.concatenate, zip(*each))
    counts = np.bincount(side[batch == 0], minlength=2)
    ledger.comm.sum_everywhere(counts)
    counts[0] -= 1  # the first row
    return Recalled(member, cut, side.astype(np.int8), batch, len(shares), _log_urn(*counts.astype(float)))


def _all_sides(ledger: Ledger, pair: np.ndarray, recalled: Recalled, step: int) -> tuple[list[np.ndarray], float]:
    """Return the side of every row, int8 (0, 1; -1: in neither cluster of the pair), and on root log q of the sides.

    For a merge they are the present sides. For a split those that are not recalled are drawn, batch after batch, and
    entered in `recalled`. Collective.
    """
    merge, n_batches = pair[0] != pair[1], recalled.n_batches
    numbers = sum(map(len, vars(ledger.statistics).values()))
    at_once = max(1, CELLS // (2 * numbers)) if merge else 1
    pools = Pools(ledger, recalled, max(1, CELLS // (2 * numbers * min(at_once, n_batches))))
    log_q, earlier = np.zeros((len(ledger.shards), 1)), None
    for first in range(1, n_batches, at_once):
        last = min(first + at_once, n_batches)
        n = last - first
        new, odds = ledger.total(_by_side(pools, first - 1, last - 1), 2 * n), None
        if new is not None:
            earlier = _running(ledger, earlier, new)
            odds = _odds(ledger, earlier)
            earlier = earlier.take([-2, -1])
        odds = ledger.broadcast(odds, np.zeros((n, 2)))
        for p in pools.of(first, last):
            log_q[p.first : p.first + p.n_shards, 0] += _sides(
                ledger, recalled, p, range(first, last), odds, merge, step
            )
            del p  # its rows, before others are copied
    log_q = exact_sum(ledger.comm, log_q)
    sides = [np.full(len(shard), -1, np.int8) for shard in ledger.shards]
    for out, (a, b) in zip(sides, pairwise(recalled.cut.tolist())):
        out[recalled.member[a:b]] = recalled.side[a:b]
    return sides, 0.0 if log_q is None else float(log_q[0]) + recalled.log_urn


def _by_side(pools: Pools, first: int, last: int) -> Iterator[tuple[Rows, np.ndarray]]:
    """Yield the rows of batches first to last - 1, and twice their batch from `first` on, plus their side."""
    for p in pools.of(first, last):
        yield p.rows, 2 * (p.batch - np.int32(first)) + pools.recalled.side[p.at]
        del p


def _sides(ledger: Ledger, recalled: Recalled, p: Pool, batches: range, odds: Odds, merge: bool, step: int) -> list:
    """Enter the sides of a pool's rows in `recalled` for a split; return the log probability of the sides in each of
    its shards. Each batch in each shard is a group by itself."""
    n = len(batches) * p.n_shards
    pair = 2 * (p.shard * len(batches) + (p.batch - np.int32(batches.start)))
    group, nobody = np.repeat(np.arange(n, dtype=np.int32), 2), np.full((n, 2), -1, np.int64)
    given = np.tile(np.array([0, 1] if merge else [-1, -1], np.int8), n)
    label, log_q = ledger.sides(
        p.rows, pair + recalled.side[p.at] if merge else pair, p.ids, group, given, nobody, odds.times(p.n_shards),
        Purpose.REST, step,
    )  # fmt: skip
    if not merge:
        recalled.side[p.at] = label & 1
    return [of.sum() for of in log_q.reshape(p.n_shards, len(batches))]


def _running(ledger: Ledger, earlier: Statistics | None, new: Statistics) -> Statistics:
    """Return statistics of both sides of all rows up to each of several batches; earlier: those before the first."""
    n = len(new) // 2
    if ledger.components.exact:  # whole numbers, whose sums do not depend on their order
        arrays = {name: a.reshape(*a.shape[:-1], n, 2) for name, a in vars(new).items()}
        for name, a in arrays.items() if earlier is not None else ():
            a[..., 0, :] += getattr(earlier, name)
        return Statistics(*[a.cumsum(-2, a.dtype).reshape(*a.shape[:-2], 2 * n) for a in arrays.values()])
    parts = []
    for batch in range(n):
        of = new.between(2 * batch, 2 * batch + 2)
        earlier = of if earlier is None else ledger.components.union(earlier, of)
        parts.append(earlier)
    return join(parts)


def _odds(ledger: Ledger, sides: Statistics) -> Odds:
    """Return the log odds given statistics of two sides or several pairs of sides."""
    sides = replace(sides, size=sides.size + 1)  # so that a side without rows has a positive size
    return odds_of_predictive(ledger.components, ledger.hyper, sides, DOUBT, ledger.met)


def _first_row(ledger: Ledger, pair: np.ndarray) -> tuple[int, int]:
    """Return the id of the first row of a pair of clusters, and its cluster; on every rank."""
    first = np.full(1, np.iinfo(np.uint64).max)
    for shard, z in zip(ledger.shards, ledger.z):
        at = kernels.first_row(z, *pair)
        if at >= 0:
            first[0] = 2 * (int(shard.start) + at) + int(z[at] == pair[1])
            break
    ledger.comm.least_everywhere(first)
    row, which = divmod(int(first[0]), 2)
    return row, int(pair[which])
