"""Splits and merges of all clusters, or pairs of clusters, at once, along a launch from two seed rows.

1. Group the clusters at random into singles and pairs (grouping.py), and draw two seed rows per group: any two rows of
   a single, one row of each cluster of a pair.
2. Launch, as a function of the group's rows, its seeds and a keyed stream, never of the present split: start from the
   two seeds, or from one against all other rows, then scan: draw the side of every row in a random subset given the
   sides after the last scan (scans.py).
3. Propose: draw the side of every row of a single from the predictive given the launch's sides; q is the probability of
   the sides drawn. For a pair q is the probability of the present sides.
4. Root accepts or rejects the groups' splits and merges one after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.statistics import Statistics, join
from mpibayes.hpc.crosscat.moves import grouping
from mpibayes.hpc.crosscat.moves.gathered import Part, brought_together, dealt, measured, shared
from mpibayes.hpc.crosscat.moves.ledger import Ledger
from mpibayes.hpc.crosscat.moves.odds import Odds, odds_of_predictive
from mpibayes.hpc.crosscat.moves.scans import Subset, as_single
from mpibayes.hpc.crosscat.view.sync import Counts, apart, with_moments
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.reduce import exact_sum
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.mixture import split as kernels

if TYPE_CHECKING:
    from mpibayes.hpc.outcome.branching import Branches

SCANS = 20  # scans of the launch
SUBSET = 1000  # expected number of rows of a group that shape its launch
LONE = 0.75  # share of the launches that start with one seed against all other rows
SHRINK = (2.0, 16.0)  # range of the number of pseudo-rows with the group's distribution on each side, log-uniform
LEAST = 20.0  # least expected number of rows with which a lone seed's side begins
FREE = 5  # first scans, in which the sides' sizes do not count
CELLS = 2**23  # most numbers in the odds of all groups
BATCH = 2**21  # bytes of rows copied at a time, on each rank
GROUPS, ACCEPT, LAUNCH = range(3)  # streams of Purpose.GUIDED
NOBODY = np.uint64(2**64 - 1)


def guided(ledger: Ledger) -> None:
    groups = grouping.draw(ledger.n_labels, generator(**ledger.stream(Purpose.GUIDED, GROUPS)))
    seeds, side_zero = _seeds(ledger, groups)
    n_pairs = int((groups[:, 0] != groups[:, 1]).sum())
    ready = _affordable(ledger, _order(seeds), seeds)
    groups, seeds, side_zero = groups[ready], seeds[ready], side_zero[ready]
    n = len(groups)
    if n == 0:
        return
    single = groups[:, 0] == groups[:, 1]
    group, given = np.full(ledger.n_labels, -1, np.int32), np.full(ledger.n_labels, -1, np.int8)
    group[groups[:, 0]] = group[groups[:, 1]] = np.arange(n)
    pairs = np.flatnonzero(~single)
    given[groups[pairs, 0]] = side_zero[pairs] != groups[pairs, 0]
    given[groups[pairs, 1]] = side_zero[pairs] != groups[pairs, 1]
    odds = _launch(ledger, groups, group, seeds)
    sides, log_q = _propose(ledger, group, given, seeds, odds, single)
    _decide(ledger, groups, group, n_pairs, sides, log_q)


def _seeds(ledger: Ledger, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw the seed rows of each group, (G, 2), lower id first (-1 if the group has fewer than two rows); return them
    and the first one's cluster."""
    key = ledger.stream(Purpose.SEEDS)
    least = [kernels.two_least(z, s.start, ledger.n_labels, **key) for s, z in zip(ledger.shards, ledger.z)]
    result = np.array(least, np.uint64).reshape(len(least), ledger.n_labels, 2, 2)
    word, row = result[0].transpose(1, 0, 2) if ledger.n_shards == ledger.comm.size == 1 else _least(ledger, result)
    a, b = groups.T
    single = a == b
    one, two = row[a, 0], np.where(single, row[a, 1], row[b, 0])
    first = one < two
    seeds = np.where(first, [one, two], [two, one]).T.astype(np.int64)
    seeds[single & (word[a, 1] == NOBODY)] = -1
    return seeds, np.where(first, a, b)


def _least(ledger: Ledger, result: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two least words of every cluster over all ranks, and their rows, each (K, 2).

    result (shards of this rank, K, 2, 2): the words and rows of each shard.
    """
    nobody = np.full((1, *result.shape[1:]), NOBODY)
    word, row = np.concatenate([result, nobody]).transpose(2, 1, 0, 3).reshape(2, ledger.n_labels, -1)
    least, whose = np.empty((2, 2, ledger.n_labels), np.uint64)
    for place in range(2):
        at = word.argmin(axis=1)[:, None]
        mine = np.take_along_axis(word, at, axis=1)[:, 0]
        least[place] = mine
        ledger.comm.least_everywhere(least[place])
        whose[place] = np.where(mine == least[place], np.take_along_axis(row, at, axis=1)[:, 0], NOBODY)
        here = np.flatnonzero(mine == least[place])
        word[here, at[here, 0]] = NOBODY  # remove it before the second pass
    ledger.comm.least_everywhere(whose)
    return least.T, whose.T


def _order(seeds: np.ndarray) -> np.ndarray:
    """Return the groups that have two rows, in the order of their acceptance.

    The order may depend on what moves keep, such as seeds, but not on labels, which could reveal whether a group is a
    single or a pair.
    """
    ready = np.flatnonzero(seeds[:, 0] >= 0)
    return ready[np.argsort(seeds[ready, 0])]


def _affordable(ledger: Ledger, ready: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Return all groups or, if a table has very many levels, a random subset, keyed by the seeds, which moves keep."""
    most = max(1, CELLS // max(1, sum(math.prod(kind.odds_form) for kind in ledger.components.kinds)))
    if len(ready) <= most:
        return ready
    word = kernels.words(seeds[ready, 0], **ledger.stream(Purpose.SEEDS, 1))
    return ready[np.sort(np.argsort(word, kind="stable")[:most])]


def _launch(ledger: Ledger, groups, group, seeds) -> Odds:
    """Scan a subset of every group's rows repeatedly; return the log odds given their final sides.

    Launches are independent of each other: they run in batches, so that few rows are copied at a time.
    """
    stream = generator(**ledger.stream(Purpose.GUIDED, LAUNCH))
    lone = stream.random(len(groups)) < LONE
    tilt, shrink = _inclinations(ledger, groups, lone, stream)
    chosen = [_subset(ledger, shard, z, group, seeds, groups) for shard, z in zip(ledger.shards, ledger.z)]
    of_row = [group[z[at]] for z, at in zip(ledger.z, chosen)]
    batches, cut = [], _batches(ledger, groups)
    number = np.repeat(np.arange(len(cut), dtype=np.uint16), [batch.stop - batch.start for batch in cut])
    in_batch = [number.take(g) for g in of_row]
    for i, batch in enumerate(cut):
        parts = []
        for shard, at, g, of in zip(ledger.shards, chosen, of_row, in_batch):
            here = np.flatnonzero(of == i)
            parts.append(Part(shard.rows, at[here], g[here] - np.int32(batch.start), shard.start + at[here]))
        batches.append(
            _launch_batch(ledger, parts, groups[batch], seeds[batch], lone[batch], tilt[batch], shrink[batch])
        )
    if len(batches) == 1:
        return batches[0]
    return Odds(*(np.concatenate([getattr(odds, f.name) for odds in batches]) for f in fields(Odds)))


def _batches(ledger: Ledger, groups) -> list[slice]:
    """Cut the groups into consecutive batches whose launches copy about BATCH bytes of rows on each rank."""
    rows = np.cumsum(np.minimum(_group_sizes(ledger, groups), SUBSET)) / ledger.comm.size
    cut = np.flatnonzero(np.diff(rows * ledger.components.row_bytes // BATCH)) + 1
    return [slice(a, b) for a, b in pairwise([0, *cut.tolist(), len(groups)])]


def _launch_batch(ledger: Ledger, parts: list[Part], groups, seeds, lone, tilt, shrink) -> Odds:
    """Launch the groups of a batch, each on one rank, which has its chosen rows from all shards."""
    comm = ledger.comm
    labels = [_seeded(p, seeds, lone) for p in parts]
    first = dealt(np.minimum(_group_sizes(ledger, groups), SUBSET), comm.size, ledger.n_shards)
    parts, labels = brought_together(ledger, parts, labels, first)
    own = slice(*first[[comm.rank, comm.rank + 1]].tolist())
    odds = None
    if own.stop > own.start:
        odds = _odds_of(ledger, parts, labels, seeds[own], tilt[own], shrink[own])
    return shared(ledger, odds, first)


def _odds_of(ledger: Ledger, parts: Sequence[Part], labels, seeds, tilt, shrink) -> Odds:
    """Scan the rows of groups that are all on this rank; return the log odds given their final sides."""

    def statistics(counts: Counts, labels: Sequence[np.ndarray]) -> Statistics:
        return with_moments(serial(), ledger.components, measured(parts, labels), counts, ledger.n_shards)

    whole = statistics(Counts.zeros(ledger.components, len(seeds)), [p.group for p in parts])
    scanned = [(*as_single(ledger.components, p.rows, p.at), p.group, p.ids) for p in parts]
    subset = Subset(ledger.components, scanned, whole, shrink, ledger.stream(Purpose.SIDES))
    subset.begin(*_flat(parts, labels, seeds))
    subset.scan(0, min(FREE, SCANS), tilt)
    subset.scan(FREE, SCANS, None)
    if SCANS:
        labels = [2 * p.group + side for p, side in zip(parts, apart(subset.sides(), [len(p.at) for p in parts]))]
    return odds_of_predictive(ledger.components, ledger.hyper, statistics(subset.counts(), labels), met=ledger.met)


def _subset(ledger: Ledger, shard: Shard, z: np.ndarray, group, seeds, groups) -> np.ndarray:
    """Return the places in a shard of the rows that shape the launch: the seeds, and a random share of every group."""
    share, member = np.zeros(ledger.n_labels), group >= 0
    share[member] = np.minimum(1.0, SUBSET / _group_sizes(ledger, groups)[group[member]])
    at = kernels.chosen(z, share, shard.start, **ledger.stream(Purpose.SUBSET))
    here = np.unique(seeds[(seeds >= shard.start) & (seeds < shard.start + len(shard))] - shard.start)
    place = np.searchsorted(at, here)  # both ascend
    new = np.append(at, -1)[place] != here
    return np.insert(at, place[new], here[new])


def _group_sizes(ledger: Ledger, groups) -> np.ndarray:
    return ledger.size[groups].sum(axis=1) // np.where(groups[:, 0] == groups[:, 1], 2, 1)


def _inclinations(ledger: Ledger, groups, lone, stream: np.random.Generator) -> np.ndarray:
    """Draw each group's prior log odds in the first scans, and the number of rows by which its sides are shrunk. The
    last bit of a logarithm may differ between processors: only the rank that launches a group uses its own."""
    u, out = stream.random((2, len(groups))), np.zeros((2, len(groups)))
    n_chosen = np.minimum(_group_sizes(ledger, groups), SUBSET)
    out[0] = np.where(lone, np.log(np.minimum(LEAST / n_chosen, 1.0)) * u[0], 0.0)
    out[1] = SHRINK[0] * (SHRINK[1] / SHRINK[0]) ** u[1]
    return out


def _seeded(p: Part, seeds: np.ndarray, lone) -> np.ndarray:
    """Return the starting sides of a launch: a seed on each side, or one seed against all other rows."""
    label = np.where(lone, 2 * np.arange(len(lone)), -1).astype(np.int32).take(p.group)
    at, seed = _find(p.ids, seeds)
    label[at] = seed
    return label


def _flat(parts, labels, seeds) -> tuple[np.ndarray, np.ndarray]:
    """Return the side (-1: none yet) of each row that shapes the launch on this rank, and a mask of the seeds."""
    nothing = np.zeros(0, np.int64)
    label, ids = (np.concatenate([nothing, *arrays]) for arrays in (labels, [p.ids for p in parts]))
    fixed = np.zeros(len(ids), bool)
    fixed[_find(ids, seeds)[0]] = True
    return np.where(label < 0, -1, label & 1), fixed


def _propose(ledger: Ledger, group, given, seeds, odds, single):
    """Return the side of every row in a proposed split, -1 for other rows, and on root log q of every group."""
    sides, log_q = [], np.zeros((len(ledger.shards), len(seeds)))
    side_of = np.append(np.where(single[:, None], [0, 1], -1), -1).astype(np.int8)  # the last: rows of no group
    for i, (shard, z) in enumerate(zip(ledger.shards, ledger.z)):
        ids = shard.start + np.arange(len(shard))
        label, log_q[i] = ledger.sides(shard.rows, z, ids, group, given, seeds, odds, Purpose.SIDES, SCANS)
        sides.append(side_of.take(label, mode="wrap"))
    return sides, exact_sum(ledger.comm, log_q)


def _decide(ledger: Ledger, groups, group, n_pairs: int, sides, log_q) -> None:
    """Accept or reject, group by group, and relabel the rows."""
    n, k_before = len(groups), ledger.n_labels
    statistics = ledger.total_sides(sides, group, np.where(groups[:, 0] == groups[:, 1], groups[:, 0], -1))
    pair = groups[:, 0] != groups[:, 1]
    one, two = (ledger.statistics.take([ledger.column[i] for i in groups[pair, end]]) for end in (0, 1))
    first = ledger.enter(join([statistics, ledger.components.union(one, two)]))
    columns = first + np.arange(2 * n).reshape(n, 2), first + 2 * n + np.cumsum(pair) - 1  # of halves, and of unions
    decided = np.full((2, k_before + 2 * n), -1, np.int32)  # new labels, by old label, then by 2 g + side of a split;
    of, allowed = _judged(ledger, groups, group, sides)
    if ledger.comm.rank == 0:  # and the column of each new label
        _accept(ledger, groups, n_pairs, log_q, *columns, *decided, allowed)
    ledger.comm.broadcast(decided)
    new, column = decided
    if (new < 0).all():  # nothing was accepted
        return
    ledger.changed = True
    old, split = new[:k_before], new[k_before:]
    if of is not None:
        ledger.outcome.theta = _coefficients(ledger.outcome.theta, groups, of, old, split)
    ledger.n_labels = int(new.max()) + 1
    ledger.column = column[: ledger.n_labels].tolist()
    parted = np.append(split.reshape(-1, 2).max(axis=1) >= 0, False)[np.append(group, n)]  # the last: idle rows
    old = np.append(old, -1).astype(np.int32)
    for z, side in zip(ledger.z, sides):
        at = np.flatnonzero(parted[np.maximum(z, -1)]) if parted.any() else np.zeros(0, np.intp)
        at = at[side[at] >= 0]
        label = split[2 * group[z[at]] + side[at]]
        z[:] = np.where(z >= 0, old[np.maximum(z, -1)], z)
        z[at] = label


def _judged(ledger: Ledger, groups, group, sides) -> tuple[Branches | None, np.ndarray]:
    """Judge the move of each group by the outcome; return the proposed coefficients, and a mask of accepted moves
    (G,)."""
    single = groups[:, 0] == groups[:, 1]
    if ledger.outcome is None:
        return None, np.ones(len(groups), bool)
    labels = []
    for z, side in zip(ledger.z, sides):
        g = np.where(z >= 0, group[np.maximum(z, 0)], -1)
        second = np.where(single[g], side == 1, z == groups[g, 1])
        labels.append(np.where(g >= 0, 2 * g + second, -1).astype(np.int32))
    return ledger.judge(labels, ledger.outcome.theta[groups], single)


def _coefficients(theta: np.ndarray, groups, of: Branches, old: np.ndarray, split: np.ndarray) -> np.ndarray:
    """Return the coefficients by new label. old (k,), split (2 G,): new label of each cluster and each half, or -1."""
    new = np.empty((int(max(old.max(), split.max(initial=-1))) + 1, theta.shape[1]))
    new[old[old >= 0]] = theta[old >= 0]
    new[split[split >= 0]] = of.halves.reshape(len(split), -1)[split >= 0]
    for g, (a, b) in enumerate(groups):
        if a != b and old[a] == old[b]:
            new[old[a]] = of.whole[g]
    return new


def _accept(
    ledger: Ledger, groups, n_pairs: int, log_q, sides: np.ndarray, joined: np.ndarray, new: np.ndarray, column,
    allowed: np.ndarray,
) -> None:  # fmt: skip
    """Decide the moves, on root; fill `new` and `column` if any is accepted. n_pairs: of the whole grouping. sides
    (G, 2), joined (G,): columns of the proposed halves and unions. allowed (G,): mask of moves the outcome accepts."""
    log_u = np.log(generator(**ledger.stream(Purpose.GUIDED, ACCEPT)).random(len(groups))).tolist()
    k, k_before = ledger.n_labels, ledger.n_labels
    others = sorted(set(range(k)).difference(groups.ravel().tolist()))
    after = [(ledger.column[i], [i]) for i in others]  # for each new label: its column, its places in `new`
    single, present = groups[:, 0] == groups[:, 1], np.array(ledger.column)[groups]
    one, two = np.where(single[:, None], sides, present).T
    both = np.where(single, present[:, 0], joined)
    three = [ledger.cluster(columns) for columns in (one, two, both)]
    m_one, m_two, m = (clusters.size for clusters in three)
    # terms of seeds, sides, rows and cells: all but those of the numbers of clusters and pairs
    fixed = (np.log(m * (m - 1.0) / (2.0 * m_one * m_two)) - log_q + ledger.log_parts(*three)).tolist()
    for g, (a, b) in enumerate(groups.tolist()):
        split = a == b
        if split:
            halves = [(int(one[g]), [k_before + 2 * g]), (int(two[g]), [k_before + 2 * g + 1])]
        else:
            halves = [(int(one[g]), [a]), (int(two[g]), [b])]
            k, n_pairs = k - 1, n_pairs - 1  # as seen from the merged side
        ratio = fixed[g] + ledger.log_opening(k)
        ratio += grouping.log_probability(k + 1, n_pairs + 1) - grouping.log_probability(k, n_pairs)
        accepted = bool(log_u[g] < (ratio if split else -ratio)) and bool(allowed[g])
        ledger.count(split, accepted)
        if split == accepted:
            k, n_pairs = k + 1, n_pairs + 1
            after += halves
        else:
            after.append((int(both[g]), [a, b]))
    if ledger.tally.splits or ledger.tally.merges:
        for label, (at, places) in enumerate(after):
            new[places], column[label] = label, at


def _find(ids: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the seeds among the rows `ids` (n,), ascending; return their places in `ids` and in seeds.ravel()."""
    flat = seeds.ravel()
    at = np.searchsorted(ids, flat)
    seed = np.flatnonzero(np.append(ids, -1)[at] == flat)
    return at[seed], seed
