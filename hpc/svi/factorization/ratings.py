"""Ratings of users, for training or held out, and the noise of ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.sparse import SparseRows


@dataclass
class Stepped:
    """Natural parameters of users before and after a step of size `rate`, `now` and `next` (n, T + D)."""

    now: np.ndarray
    next: np.ndarray
    rate: float = 1.0


@dataclass
class Ratings:
    """Ratings by user. starts: int64 (n + 1,), from 0. columns int32 and values float32: item and value of each rating.
    first: number of the first one among all training ratings. stepped: None if users are solved from the items."""

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    first: int = 0
    stepped: Stepped | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of(cls, rows: SparseRows) -> Ratings:
        return cls(rows.starts, np.ascontiguousarray(rows.columns), np.ascontiguousarray(rows.values))

    def places(self, users: np.ndarray | None) -> np.ndarray:
        """Numbers of the users' ratings among all training ratings, concatenated, int64."""
        if users is None:
            return self.first + np.arange(self.starts[-1])
        lengths = np.diff(self.starts)[users]
        ends = np.cumsum(lengths)
        return self.first + np.repeat(self.starts[users] - (ends - lengths), lengths) + np.arange(lengths.sum())

    def count(self, users: np.ndarray | None) -> int:
        """Number of ratings of the users."""
        return int(self.starts[-1] if users is None else np.diff(self.starts)[users].sum())


@dataclass
class Numbers:
    """One random number per rating of a batch of users. effective: size of the effective batch in ratings of each user
    and item; 0: the numbers are the noise itself, minus their `average` over the whole batch."""

    each: np.ndarray
    effective: float = 0.0
    average: float = 0.0

    def sum(self) -> float:
        return float(self.each.sum())

    def arguments(self, into: np.ndarray) -> dict[str, Any]:
        """Arguments of a pass over users (kernels/svi/factors.pyx)."""
        of = {"effective": self.effective, "spread": 1.0, "average": self.average}
        return {"numbers": self.each, "numbered": into, **of}


def is_heldout(rows: SparseRows, numbers: np.ndarray, n_columns: int, fraction: float) -> np.ndarray:
    """Held-out mask of the ratings of table rows given by their numbers, bool (e,): a function of row and column
    alone."""
    ids = np.repeat(numbers * n_columns, rows.lengths()) + rows.columns
    return Stream(0, Purpose.HELDOUT, 0, sub=1).uniforms(ids) < fraction


def kept(rows: SparseRows, which: np.ndarray) -> SparseRows:
    """Select entries of the rows by a mask, bool (e,)."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(which)])
    return SparseRows(ends[rows.starts], rows.columns[which], rows.values[which])


def split(
    rows: SparseRows, numbers: np.ndarray, n_columns: int, fraction: float | None
) -> tuple[SparseRows, SparseRows]:  # fmt: skip
    """Split rows of a table, given by their numbers, into training and held-out ratings."""
    if fraction is None:
        return rows, kept(rows, np.zeros(len(rows.columns), bool))
    held = is_heldout(rows, numbers, n_columns, fraction)
    return kept(rows, ~held), kept(rows, held)
