"""Rows of a pair of clusters, dealt into batches and copied across shards: with thousands of shards a pair has few rows
in each, and work on a shard takes some time however few they are.

If statistics are exact, rows of different shards can be counted together; otherwise each shard has a copy of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np

from mpibayes.hpc.crosscat.moves.ledger import Ledger
from mpibayes.io.rows import Rows

BYTES = 2**23  # of rows copied at a time, about, but all of a shard


class Recalled(NamedTuple):
    """The rows of a pair of clusters on this rank, shard by shard. member: places of the rows in their shards; cut: of
    each shard's rows in `member`; side (int8): their present sides or, for a split, a coin's; batch (int16): 0 if
    recalled. n_batches: number of batches. log_urn: log probability of the recalled sides, over all ranks."""

    member: np.ndarray
    cut: np.ndarray
    side: np.ndarray
    batch: np.ndarray
    n_batches: int
    log_urn: float


class Pool(NamedTuple):
    """Copied rows by batch, shard and place. at: in `Recalled.member`; batch (int16), shard (int32, from `first` on):
    of each; n_shards: shards that they are from; ids: of the rows."""

    rows: Rows
    at: np.ndarray
    batch: np.ndarray
    shard: np.ndarray
    ids: np.ndarray
    first: int
    n_shards: int

    def within(self, first: int, last: int) -> Pool:
        """Return the rows of batches first to last - 1, not copied."""
        part = slice(*np.searchsorted(self.batch, [first, last]))
        rows = self.rows._alike(lambda array: array[part])
        of = (array[part] for array in (self.at, self.batch, self.shard, self.ids))
        return Pool(rows, *of, self.first, self.n_shards)


class Pools:
    """Copies of the rows of consecutive batches, kept until others are asked for if they are small. most: of shards in
    one."""

    def __init__(self, ledger: Ledger, recalled: Recalled, most: int):
        self.ledger, self.recalled = ledger, recalled
        self.most = most if ledger.components.exact else 1
        self.row_bytes = ledger.components.row_bytes
        self._kept: list[Pool] = []
        self._range = range(0)

    def of(self, first: int, last: int) -> Iterator[Pool]:
        """Yield the rows of batches first to last - 1."""
        if first not in self._range or last > self._range.stop:
            rows = np.cumsum(self._sizes[first:])
            fit = first + int(np.searchsorted(rows, BYTES // self.row_bytes, side="right"))
            self._range, self._kept = range(0), []
            if fit < last:
                return self._copied(first, last)
            self._kept, self._range = list(self._copied(first, fit)), range(first, fit)
        return (pool.within(first, last) for pool in self._kept)

    @cached_property
    def _sizes(self) -> np.ndarray:
        """Number of rows of each batch."""
        return np.bincount(self.recalled.batch, minlength=self.recalled.n_batches)

    def _copied(self, first: int, last: int) -> Iterator[Pool]:
        for a, b in pairwise(self._ends(self._sizes[first:last].sum())):
            yield self._pool(a, b, first, last)

    def _ends(self, n: int) -> list[int]:
        """Cut the shards into ranges with few enough of n rows in all."""
        n_shards = len(self.ledger.shards)
        step = max(1, min(self.most, int(n_shards * BYTES // (self.row_bytes * max(n, 1)))))
        return [*range(0, n_shards, step), n_shards]

    def _pool(self, a: int, b: int, first: int, last: int) -> Pool:
        """Copy the rows of batches first to last - 1 in shards a to b - 1."""
        of, shards = self.recalled, self.ledger.shards
        start = of.cut[a]
        batch = of.batch[start : of.cut[b]]
        at = start + np.flatnonzero((batch >= first) & (batch < last))
        cut = np.searchsorted(at, of.cut[a : b + 1])
        shard = np.repeat(np.arange(b - a, dtype=np.int32), np.diff(cut))
        ids = of.member[at] + np.array([s.start for s in shards[a:b]], np.int64)[shard]
        batch = of.batch[at]
        order = np.argsort(batch, kind="stable")
        place = np.empty_like(order)  # of each row in the copy
        place[order] = np.arange(len(order))
        parts = zip(shards[a:b], pairwise(cut.tolist()))
        each = [(cast(Rows, s.rows), of.member[at[i:j]], place[i:j]) for s, (i, j) in parts if j > i or b == a + 1]
        one = len(each) == 1
        rows = each[0][0].take(of.member[at[order]]) if one else _gathered(shards[a].rows, each, len(at))
        return Pool(rows, at[order], batch[order], shard[order], ids[order], a, b - a)


def _gathered(like: Rows, each: list[tuple[Rows, np.ndarray, np.ndarray]], n: int) -> Rows:
    """Copy rows from several shards: (rows, places there, places in the copy) of each."""

    def gather(name: str) -> np.ndarray:
        array = getattr(like, name)
        out = np.empty((n, *array.shape[1:]), array.dtype)
        for rows, places, into in each if out.size else ():
            out[into] = getattr(rows, name)[places]
        return out

    names = ("codes8", "codes16", "reals", "tallies", "vectors", "spells")
    return Rows(*map(gather, names), widths=like.widths)
