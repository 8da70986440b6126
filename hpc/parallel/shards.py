"""Rows are cut into fixed shards, and shards are dealt to ranks.

The cut depends only on the number of rows, before and after each growth, and the run's settings, so that the chain does
not depend on the number of ranks that run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

LONGEST = 1.25  # times the mean: a longer shard makes others wait, and after a growth all are cut anew
Setting = int | str | tuple[int, ...] | None  # number of shards, "auto", or after a growth their sizes


def default_count(n_rows: int) -> int:
    """Default number of shards: few, which mix better (the autocorrelation time of K grows about linearly in it)."""
    if n_rows < 5_000:
        return 1
    if n_rows <= 200_000:
        return 4
    return max(4, round(n_rows / 50_000))


def count(given: Setting, n_rows: int, default: Callable[[int], int] = default_count) -> int:
    """Return the number of shards of n_rows rows: `given`, or `default` if that is "auto" or None; at most one per
    row."""
    if isinstance(given, tuple):
        return len(given)
    return min(default(n_rows) if given in ("auto", None) else int(given), n_rows)


def bounds(n_rows: int, n_shards: int) -> np.ndarray:
    """First row of each shard, and the end, (n_shards + 1,) int64. Sizes differ by at most one row."""
    return np.arange(n_shards + 1, dtype=np.int64) * n_rows // n_shards


def starts(given: Setting, n_rows: int) -> np.ndarray:
    """First row of each shard of a run, and the end, (n_shards + 1,) int64."""
    if isinstance(given, tuple):
        return np.cumsum((0, *given), dtype=np.int64)
    return bounds(n_rows, count(given, n_rows))


def sizes_after(sizes: Sequence[int], n_new: int, n_shards: int) -> tuple[int, ...]:
    """Return the sizes of n_shards shards after n_new rows were appended to shards of these sizes.

    Present shards stay as they are; the new rows form those that there are more, or else lengthen the last. If one
    would be longer than LONGEST allows, all rows are cut anew.
    """
    n_rows, more = sum(sizes) + n_new, n_shards - len(sizes)
    new = (*sizes, *even_sizes(n_new, more)) if more > 0 else (*sizes[:-1], sizes[-1] + n_new)
    if len(new) == n_shards and min(new) > 0 and max(new) * n_shards <= LONGEST * n_rows:
        return new
    return even_sizes(n_rows, n_shards)


def even_sizes(n_rows: int, n_shards: int) -> tuple[int, ...]:
    return tuple(np.diff(bounds(n_rows, n_shards)).tolist())


def of_rank(n_shards: int, n_ranks: int, rank: int) -> range:
    """Shards of one rank: consecutive, and dealt as evenly as possible. Root always has shard 0."""
    return range(-(-rank * n_shards // n_ranks), -(-(rank + 1) * n_shards // n_ranks))


def busiest(given: Setting, n_rows: int, n_ranks: int) -> tuple[int, int]:
    """Return the rows of the rank that holds most, and those of the longest shard."""
    cut = starts(given, n_rows)
    mine = (of_rank(len(cut) - 1, n_ranks, rank) for rank in range(n_ranks))
    return max(int(cut[of.stop] - cut[of.start]) for of in mine), int(np.diff(cut).max())


@dataclass
class Shard:
    """A fixed set of consecutive rows, held by one rank."""

    index: int
    start: int  # global id of the first row
    rows: object  # mpibayes.io.rows.Rows

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class AllRows(Sequence[np.ndarray]):
    """The places of all rows of each of some shards, (n,) int32, made when they are read."""

    shards: Sequence[Shard]

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, i):
        return np.arange(len(self.shards[i]), dtype=np.int32)
