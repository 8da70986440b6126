"""Merges of similar clusters, chosen by the gain in marginal likelihood, and the splits that reverse them.

If two clusters differ by chance alone, as sweeps may leave them, no launch from two seeds can find their border again.
So a share of the rows keep their present sides; when a split is proposed, an urn deals these. The other rows' sides are
drawn given them. Most merges are rejected on root at once; the few others need a pass over the rows of two clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpibayes.hpc.crosscat.moves.ledger import Labelled, Ledger, gains_of, log_choice
from mpibayes.hpc.crosscat.moves.odds import odds_of_predictive
from mpibayes.hpc.parallel.reduce import exact_sum
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.common.functions import gammaln
from mpibayes.kernels.mixture import split as kernels

INFORMED = 8  # steps per round
INFORMED_SPLITS = 1.0 / 32  # share of the steps that propose a split
RECALLED = 0.35  # share of the rows whose sides a step recalls: a third of the rows suffices to draw the others
RECALLED_ROWS = 256  # least number of recalled rows; the fewer rows, the more probable are their sides under the urn
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
    of = ledger.pairs(Purpose.INFORMED, steps, gains_of)
    bound = -of.log_split + _log_proposals(ledger.n_labels - 1, of.log_choice)
    possible = np.flatnonzero(of.log_u < bound)  # `two` can also choose `one`, which takes longer to compute
    bound[possible] -= ledger.either_way(of, possible, gains_of)
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
        gains = np.array(ledger.of_each(gains_of, [cluster, k]))
        ledger.column.pop()
        ledger.column[cluster] = whole
        ratio = ledger.log_split(*map(ledger.cluster, (one, one + 1, whole)), k)
        ratio -= log_q + _log_proposals(k, np.logaddexp(*log_choice(gains, [k, cluster])))
        accepted = bool(log_u < ratio)
    accepted = ledger.agreed(accepted) and ledger.parted(cluster, sides_of_rows)
    ledger.count(True, accepted)
    if accepted:
        ledger.part(cluster, sides_of_rows, one)


def _log_proposals(n_before: int, log_choice):
    """Return the log probability of proposing a split of one of n_before clusters, without that of its sides, over the
    probability of proposing the merge."""
    split, merge = np.log(INFORMED_SPLITS / n_before), np.log1p(-INFORMED_SPLITS) - np.log(n_before + 1.0)
    return split - merge - log_choice


def _log_urn(n_zero: float, n_one: float) -> float:
    """Return the log probability of recalled sides, dealt one by one by an urn that starts with a ball per side."""
    return float(gammaln(n_zero + 1.0) + gammaln(n_one + 1.0) - gammaln(n_zero + n_one + 2.0))


class Recalled(NamedTuple):
    """The rows of a pair of clusters in each of this rank's shards. member: places of the rows; side (bool): their
    present sides or, for a split, a coin's; known (int8): the recalled sides, -1 if not recalled. log_urn: log
    probability of the recalled sides, over all ranks."""

    member: list[np.ndarray]
    side: list[np.ndarray]
    known: list[np.ndarray]
    log_urn: float

    def placed(self, ledger: Ledger, i: int, side: np.ndarray) -> np.ndarray:
        """Return sides of all rows of the i-th shard, int32: `side` for the members, -1 for other rows."""
        out = np.full(len(ledger.shards[i]), -1, np.int32)
        out[self.member[i]] = side
        return out


def _recall(ledger: Ledger, pair: np.ndarray, bias: float | None, step: int) -> Recalled:
    """Recall the sides of a random share of the rows: the present sides or, for a split (bias given), those of a coin
    with this bias. The first row of all has side 0. Collective."""
    row, cluster = _first_row(ledger, pair)
    n_rows = sum(int(ledger.statistics.size[ledger.column[label]]) for label in set(pair.tolist()))
    share = max(RECALLED, min(1.0, RECALLED_ROWS / n_rows))
    of = row, cluster, share, -1.0 if bias is None else bias, Purpose.RECALLED, Purpose.DEALT
    each = [kernels.recall(z, s.start, *pair, *of, sub=step, **ledger.key) for s, z in zip(ledger.shards, ledger.z)]
    counts = np.zeros(2, np.int64)
    for _, _, known in each:
        counts += np.count_nonzero(known == 0), np.count_nonzero(known == 1)
    ledger.comm.sum_everywhere(counts)
    counts[0] -= 1  # the first row
    member, side, known = map(list, zip(*each)) if each else ([], [], [])
    return Recalled(member, side, known, _log_urn(*counts.astype(float)))


def _all_sides(ledger: Ledger, pair: np.ndarray, recalled: Recalled, step: int) -> tuple[list[np.ndarray], float]:
    """Return the side of every row, int8 (0, 1; -1: in neither cluster of the pair), and on root log q of the sides.

    Sides that are not recalled are drawn from the predictive given the recalled ones; for a merge they are the present
    sides. Collective.
    """
    sides = ledger.total(Labelled(ledger.shards, lambda i: recalled.placed(ledger, i, recalled.known[i])), 2)
    if sides is not None:
        sides.size = sides.size + 1  # so that a side without recalled rows has a positive size
        sides = odds_of_predictive(ledger.components, ledger.hyper, sides)
    odds = ledger.broadcast(sides, pair[None])
    labels, log_q = [], np.zeros((len(ledger.shards), 1))
    given = np.array([0, 1] if pair[0] != pair[1] else [-1, -1], np.int8)
    for i, (shard, side, known) in enumerate(zip(ledger.shards, recalled.side, recalled.known)):
        z = recalled.placed(ledger, i, np.where(known < 0, side, -1))
        ids, nobody = shard.start + np.arange(len(shard)), np.full((1, 2), -1, np.int64)
        label, log_q[i] = ledger.sides(
            shard.rows, z, ids, np.zeros(2, np.int32), given, nobody, odds, Purpose.REST, step
        )
        member = recalled.member[i]
        label[member] = np.where(known >= 0, known, label[member])
        labels.append(label.astype(np.int8))
    log_q = exact_sum(ledger.comm, log_q)
    return labels, 0.0 if log_q is None else float(log_q[0]) + recalled.log_urn


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
