"""Rows are cut into fixed shards, and shards are dealt to ranks.

The cut depends only on the number of rows and the run's settings, so that the chain does not depend on the number of
ranks that run it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


def default_count(n_rows: int) -> int:
    """Default number of shards: few, which mix better (the autocorrelation time of K grows about linearly in it)."""
    if n_rows < 5_000:
        return 1
    if n_rows <= 200_000:
        return 4
    return max(4, round(n_rows / 50_000))


def count(given: int | str | None, n_rows: int, default: Callable[[int], int] = default_count) -> int:
    """Return the number of shards of n_rows rows: `given`, or `default` if that is "auto" or None; at most one per
    row."""
    return min(default(n_rows) if given in ("auto", None) else int(given), n_rows)


def bounds(n_rows: int, n_shards: int) -> np.ndarray:
    """First row of each shard, and the end, (n_shards + 1,) int64. Sizes differ by at most one row."""
    return np.arange(n_shards + 1, dtype=np.int64) * n_rows // n_shards


def of_rank(n_shards: int, n_ranks: int, rank: int) -> range:
    """Shards of one rank: consecutive, and dealt as evenly as possible. Root always has shard 0."""
    return range(-(-rank * n_shards // n_ranks), -(-(rank + 1) * n_shards // n_ranks))


@dataclass
class Shard:
    """A fixed set of consecutive rows, held by one rank."""

    index: int
    start: int  # global id of the first row
    rows: object  # mpibayes.io.rows.Rows

    def __len__(self) -> int:
        return len(self.rows)
