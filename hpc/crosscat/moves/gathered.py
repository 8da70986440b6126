"""Rows of groups, each group on one rank: ranks send the rows that shape a launch to the ranks of their groups.

A launch needs few rows of a group, but repeatedly, and each time odds of all levels: on one rank it needs no messages
in between, and different groups run on different ranks at once. Groups stay as they are, whichever ranks they are on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.crosscat.moves.odds import Odds
from mpibayes.hpc.crosscat.view.sync import MEASURED, apart
from mpibayes.hpc.parallel.packed import concatenated, places
from mpibayes.io.rows import ARRAYS, Rows

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.moves.ledger import Ledger

TABLE = Categorical.odds[0]


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
    if comm.size == 1:
        return list(parts), list(labels)
    if not parts:
        comm.deal([np.zeros(0, np.uint8)] * comm.size)
        return [], []
    names = [name for name in ARRAYS if getattr(parts[0].rows, name).shape[1]]
    kinds = [np.dtype(np.int64), *[np.dtype(np.int32)] * 3, *(getattr(parts[0].rows, name).dtype for name in names)]
    widths = [1] * 4 + [getattr(parts[0].rows, name).shape[1] for name in names]
    received = comm.deal([_message(ledger, parts, labels, names, first[r : r + 2]) for r in range(comm.size)])
    bytes_of = [kind.itemsize * width for kind, width in zip(kinds, widths)]
    found: list[list[np.ndarray]] = [[] for _ in kinds]
    for message in received:
        n = len(message) // sum(bytes_of)
        for i, part in enumerate(apart(message, [n * size for size in bytes_of])):
            found[i].append(part.view(kinds[i]).reshape(n, widths[i]))
    ids, shard, group, label, *cells = (np.concatenate(arrays) for arrays in found)
    absent = {name: np.empty((len(ids), 0), dtype) for name, dtype in ARRAYS.items() if name not in names}
    whole = Rows(**dict(zip(names, cells)), **absent, widths=parts[0].rows.widths)
    ids, shard, group, label = ids[:, 0], shard[:, 0], group[:, 0] - np.int32(first[comm.rank]), label[:, 0]
    label = np.where(label < 0, label, label - np.int32(2 * first[comm.rank]))
    ends = [0, len(ids)]
    if not ledger.components.exact:
        ends = np.searchsorted(shard, np.arange(ledger.n_shards + 1)).tolist()
    cut = [slice(*ends[i : i + 2]) for i in range(len(ends) - 1)]
    pieces = (whole._alike(lambda array, of=of: array[of]) for of in cut)
    return (
        [Part(rows, np.arange(len(rows)), group[of], ids[of]) for rows, of in zip(pieces, cut)],
        [label[of] for of in cut],
    )


def _message(
    ledger: Ledger, parts: Sequence[Part], labels: Sequence[np.ndarray], names: Sequence[str], groups: np.ndarray
) -> np.ndarray:
    """Return ids, shards, groups, labels and cells of the rows of groups from the first to before the second, array
    after array, uint8 (n,)."""
    of: list[np.ndarray] = []
    chosen = [np.flatnonzero((p.group >= groups[0]) & (p.group < groups[1])) for p in parts]
    every = list(zip(ledger.shards, parts, labels, chosen))
    of.extend(p.ids[i].astype(np.int64) for _, p, _, i in every)
    of.extend(np.full(len(i), shard.index, np.int32) for shard, _, _, i in every)
    of.extend(p.group[i].astype(np.int32) for _, p, _, i in every)
    of.extend(label[i].astype(np.int32) for _, _, label, i in every)
    of.extend(getattr(p.rows, name).take(p.at[i], 0) for name in names for _, p, _, i in every)
    return np.concatenate([array.view(np.uint8).ravel() for array in of])


def measured(parts: Sequence[Part], labels: Sequence[np.ndarray]) -> Iterator[tuple[Rows, np.ndarray]]:
    """Yield the cells of each part that moments are of, and the rows' labels."""
    for p, label in zip(parts, labels):
        rows = p.rows if len(p.at) == len(p.rows) else p.rows.only(MEASURED).take(p.at)  # places ascend
        yield rows, label.astype(np.int32, copy=False)


def shared(ledger: Ledger, odds: Odds | None, first: np.ndarray) -> Odds:
    """Return the odds of all groups on every rank, 0 at levels that no row has; odds: of this rank's groups.
    Collective."""
    comm, at = ledger.comm, places(ledger.met)
    if comm.size == 1:
        return odds
    _, whole = Odds.within(ledger.components, int(first[-1]))
    own = slice(*first[[comm.rank, comm.rank + 1]].tolist())
    sent, names = [], list(vars(whole))
    for name, array in vars(whole).items():
        mine = array[own] if odds is None else getattr(odds, name)
        mine = mine.take(at, 1) if at is not None and name == TABLE else mine
        sent.append((mine.reshape(len(mine), math.prod(mine.shape[1:])), first))
    for name, part in zip(names, concatenated(comm, sent)):
        array = getattr(whole, name)
        if at is not None and name == TABLE:
            array[:] = 0
            array[:, at] = part
        else:
            array[...] = part.reshape(array.shape)
    return whole
