"""Merges of two alike clusters, chosen by the gain in marginal likelihood, and splits of the kind that undoes them.

Two clusters of one kind that differ by chance alone, as sweeps leave them, have a border that no launch from two seeds
finds again. So a part of the rows keep the present sides; when a split is proposed, an urn deals them. The others are
drawn given these. Most merges are rejected on root at once; the few others pass over the rows of two clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpibayes.hpc.components.grid import draw_on_grid
from mpibayes.hpc.crosscat.moves.ledger import Gains, Labelled, Ledger, gains_of
from mpibayes.hpc.crosscat.moves.odds import odds_of_predictive
from mpibayes.hpc.parallel.reduce import exact_sum
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.common.functions import gammaln

INFORMED = 8  # steps a round
INFORMED_SPLITS = 1.0 / 32  # share of them that propose a split
RECALLED = 0.35  # share of the rows whose sides a step recalls: the others can be drawn given a third of the rows
RECALLED_ROWS = 256  # and the least number of them; an urn deals fewer rows more easily
LEVEL_ROWS = 2**14  # of all steps of a round together, at most


def informed(ledger: Ledger) -> None:
    """Steps that each propose to join two alike clusters or, by a coin, a split."""
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
    return ledger.judged([_stream(ledger, step) for step in steps], _judged, gains_of)


def _judged(
    ledger: Ledger, log_u: float, a: int, gains: Gains, stream: np.random.Generator
) -> tuple[int, int, float, float] | None:
    """Cluster `a` and another, the log of a uniform number, and what it has to be below, before their rows' sides are
    looked at, for them to be joined; None if it is not."""
    k = ledger.n_labels
    b = draw_on_grid(gains.gain, stream)
    one, two = (ledger.cluster(ledger.column[label]) for label in (a, b))
    choice = _log_choice(gains.gain, b)
    bound = -ledger.log_split(one, two, gains.cluster(b), k - 1) + _log_proposals(k - 1, choice)
    if log_u < bound:  # the choice can also be made from the other's side, which takes longer to work out
        bound += choice - np.logaddexp(choice, _log_choice(ledger.gains(b).gain, a))
    return (a, b, log_u, bound) if log_u < bound else None


def _merge(ledger: Ledger, step: int, a: float, b: float, log_u: float, bound: float) -> None:
    """A merge that would be accepted if the split were sure to find the border."""
    pair = np.array([a, b], np.int64)
    recalled = _recall(ledger, pair, None, step)
    accepted = ledger.agreed(log_u < bound + recalled.log_urn)  # or would be if the rest were sure to find its sides
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
        choices = [_log_choice(ledger.gains(i).gain, j) for i, j in ((cluster, k), (k, cluster))]
        ledger.column.pop()
        ledger.column[cluster] = whole
        ratio = ledger.log_split(*map(ledger.cluster, (one, one + 1, whole)), k)
        ratio -= log_q + _log_proposals(k, np.logaddexp(*choices))
        accepted = bool(log_u < ratio)
    accepted = ledger.agreed(accepted) and ledger.parted(cluster, sides_of_rows)
    ledger.count(True, accepted)
    if accepted:
        ledger.part(cluster, sides_of_rows, one)


def _log_choice(gain: np.ndarray, other: int) -> float:
    top = gain.max()
    return float(gain[other] - top - np.log(np.exp(gain - top).sum()))


def _log_proposals(n_before: int, log_choice: float) -> float:
    """Log of how often a split of one of n_before is proposed, but for its sides, over that of the merge."""
    split, merge = np.log(INFORMED_SPLITS / n_before), np.log1p(-INFORMED_SPLITS) - np.log(n_before + 1.0)
    return float(split - merge - log_choice)


def _log_urn(n_zero: float, n_one: float) -> float:
    """Log probability of these sides of some rows, one by one, by an urn that starts with a ball a side."""
    return float(gammaln(n_zero + 1.0) + gammaln(n_one + 1.0) - gammaln(n_zero + n_one + 2.0))


class Recalled(NamedTuple):
    """The rows of a pair of clusters, of each of this rank's shards: their places `member`, the `side` (bool) they have
    or, where a split is proposed, a coin's; and `known`, int8, what is recalled of it, -1: nothing. log_urn: log
    probability of what is recalled, over all ranks."""

    member: list[np.ndarray]
    side: list[np.ndarray]
    known: list[np.ndarray]
    log_urn: float

    def placed(self, ledger: Ledger, i: int, side: np.ndarray) -> np.ndarray:
        """Sides of the rows of the i-th shard, int32: the members' `side`, -1 for other rows."""
        out = np.full(len(ledger.shards[i]), -1, np.int32)
        out[self.member[i]] = side
        return out


def _recall(ledger: Ledger, pair: np.ndarray, bias: float | None, step: int) -> Recalled:
    """The first row of all has side 0. A random share of the others has the present sides or, where a split is proposed
    (bias given), sides by a coin of this bias. Collective."""
    member = [np.flatnonzero((z == pair[0]) | (z == pair[1])) for z in ledger.z]
    first, cluster = _first_row(ledger, pair, member)
    n_rows = sum(int(ledger.statistics.size[ledger.column[label]]) for label in set(pair.tolist()))
    share = max(RECALLED, min(1.0, RECALLED_ROWS / n_rows))
    sides, recalled, counts = [], [], np.zeros(2, np.int64)
    for shard, z, at in zip(ledger.shards, ledger.z, member):
        ids = shard.start + at
        head = ids == first
        keep = ~head & (ledger.uniforms(ids, Purpose.RECALLED, step) < share)
        side = z[at] != cluster if bias is None else ledger.uniforms(ids, Purpose.DEALT, step) < bias
        counts += np.bincount(side[keep], minlength=2)
        sides.append(side)
        recalled.append(np.where(keep, side, np.where(head, 0, -1)).astype(np.int8))
    ledger.comm.sum_everywhere(counts)
    return Recalled(member, sides, recalled, _log_urn(*counts.astype(float)))


def _all_sides(ledger: Ledger, pair: np.ndarray, recalled: Recalled, step: int) -> tuple[list[np.ndarray], float]:
    """The side (0, 1; -1: no member) of every row of a pair of clusters, int8, and on root log q of these sides.

    What is not recalled is drawn from the predictive of what is, but keeps its present sides where a merge is proposed.
    Collective.
    """
    sides = ledger.total(Labelled(ledger.shards, lambda i: recalled.placed(ledger, i, recalled.known[i])), 2)
    if sides is not None:
        sides.size = sides.size + 1  # a side of which nothing is recalled
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


def _first_row(ledger: Ledger, pair: np.ndarray, member: list[np.ndarray]) -> tuple[int, int]:
    """The id of the first row of a pair of clusters, and its cluster; on every rank. member: their places."""
    first = np.full(1, np.iinfo(np.uint64).max)
    for shard, z, at in zip(ledger.shards, ledger.z, member):
        if len(at):
            first[0] = 2 * int(shard.start + at[0]) + int(z[at[0]] == pair[1])
            break
    ledger.comm.least_everywhere(first)
    row, which = divmod(int(first[0]), 2)
    return row, int(pair[which])
