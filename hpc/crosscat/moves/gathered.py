"""Rows of groups, each group on one rank: ranks send the rows that shape a launch to the ranks of their groups.

A launch needs few rows of a group, but repeatedly, and each time odds of all levels: on one rank it needs no messages
in between, and different groups run on different ranks at once. Groups stay as they are, whichever ranks they are on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.moves.odds import Odds
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.parallel.comm import Communicator, serial
from mpibayes.io.rows import ARRAYS, Rows

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.moves.ledger import Ledger

LABELS = np.dtype([("id", np.int64), ("shard", np.int32), ("group", np.int32), ("label", np.int32)])


class Part(NamedTuple):
    """Rows of a shard that shape a launch: places `at` (m,) in `rows`, groups (m,) int32, and row ids (m,)."""

    rows: Rows
    at: np.ndarray
    group: np.ndarray
    ids: np.ndarray


def dealt(cost: np.ndarray, n_ranks: int, n_shards: int) -> np.ndarray:
    """Deal groups to the ranks that have shards, about evenly by cost (G,): return the first group of each rank, and
    the end, (ranks + 1,)."""
    hands = min(n_ranks, n_shards)
    middle = np.cumsum(cost) - 0.5 * cost
    hand = np.minimum((middle * (hands / max(cost.sum(), 1.0))).astype(np.int64), hands - 1)
    return np.searchsorted(hand * n_ranks // hands, np.arange(n_ranks + 1))


def brought_together(
    ledger: Ledger, parts: Sequence[Part], labels: Sequence[np.ndarray], first: np.ndarray
) -> tuple[list[Part], list[np.ndarray]]:
    """Send rows to the ranks of their groups. Return this rank's: the rows of each shard of the table, by shard if
    moments have to be merged in their order, with groups numbered from 0, and their labels. Collective.

    parts, labels: of this rank's shards; a label is twice a group, or one more, or -1. first: as in `dealt`.
    """
    comm = ledger.comm
    if comm.size == 1 or not parts:
        if comm.size > 1:
            comm.deal_rows(np.zeros((0, 0), np.uint8), [0] * comm.size)
        return list(parts), list(labels)
    names = [name for name in ARRAYS if getattr(parts[0].rows, name).shape[1]]
    each = []
    for shard, p, label in zip(ledger.shards, parts, labels):
        of = np.zeros(len(p.at), LABELS)
        of["id"], of["shard"], of["group"], of["label"] = p.ids, shard.index, p.group, label
        cells = (getattr(p.rows, name)[p.at] for name in names)
        each.append(np.concatenate([array.view(np.uint8) for array in (of[:, None], *cells)], axis=1))
    to = np.searchsorted(first, np.concatenate([p.group for p in parts]), side="right") - 1
    sent = np.concatenate(each)[np.argsort(to, kind="stable")]
    received = comm.deal_rows(sent, np.bincount(to, minlength=comm.size).tolist())
    of = np.ascontiguousarray(received[:, : LABELS.itemsize]).view(LABELS)[:, 0]
    rows, done = {}, LABELS.itemsize
    for name in names:
        like = getattr(parts[0].rows, name)
        end = done + like.shape[1] * like.itemsize
        rows[name], done = np.ascontiguousarray(received[:, done:end]).view(like.dtype), end
    absent = {name: np.empty((len(of), 0), dtype) for name, dtype in ARRAYS.items() if name not in rows}
    whole = Rows(**rows, **absent, widths=parts[0].rows.widths)
    group, label = of["group"] - np.int32(first[comm.rank]), of["label"]
    label = np.where(label < 0, label, label - np.int32(2 * first[comm.rank]))
    ends = [0, len(of)]
    if not ledger.components.exact:
        ends = np.searchsorted(of["shard"], np.arange(ledger.n_shards + 1)).tolist()
    result = []
    for start, end in zip(ends, ends[1:]):
        piece = whole._alike(lambda array, start=start, end=end: array[start:end])
        ids = np.ascontiguousarray(of["id"][start:end])
        result.append(Part(piece, np.arange(end - start), group[start:end], ids))
    return result, [label[start:end] for start, end in zip(ends, ends[1:])]


def total(
    components: Components, n_shards: int, parts: Sequence[Part], labels: Sequence[np.ndarray], k: int
) -> Statistics:
    """Return the statistics of clusters 0..k-1 of rows that are all on this rank, given their labels."""

    def labelled():
        for p, label in zip(parts, labels):
            z = np.full(len(p.rows), -1, np.int32)
            z[p.at] = label
            yield p.rows, z

    return sync.total_statistics(serial(), components, labelled(), k, n_shards)


def shared(comm: Communicator, components: Components, odds: Odds | None, first: np.ndarray) -> Odds:
    """Return the odds of all groups on every rank; odds: of this rank's groups. Collective."""
    if comm.size == 1:
        return odds
    _, whole = Odds.within(components, int(first[-1]))
    for name, array in vars(whole).items():
        if odds is not None:
            array[first[comm.rank] : first[comm.rank + 1]] = getattr(odds, name)
        comm.share_rows(array, first)
    return whole
