"""Rows of a run on a sparse table, cut into training rows and held-out rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mpibayes.hpc.data.rows import PIECE, Data, heldout_rows
from mpibayes.io.sparse import SparseRows, SparseTable


class SparseData:
    """Training rows in training order. `training_rows`, `heldout`: numbers in the table, ascending int64;
    `training_rows` is None if every row is a training row. There are no typed columns."""

    columns = stored = ()

    def __init__(self, table: SparseTable, heldout_fraction: float | None = None):
        self.table = table
        self.training_rows = self.heldout = None
        if heldout_fraction is not None and table.n_rows > 1:
            self.heldout = heldout_rows(table.n_rows, heldout_fraction)
            self.training_rows = np.setdiff1d(np.arange(table.n_rows), self.heldout, assume_unique=True)

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self.table.n_rows if self.training_rows is None else len(self.training_rows)

    def check_blocks(self) -> None:
        """Do nothing: a sparse table has no blocks."""

    def numbers_of(self, start: int, stop: int) -> np.ndarray:
        """Numbers in the table of training rows start..stop-1, int64."""
        return np.arange(start, stop) if self.training_rows is None else self.training_rows[start:stop]

    def rows_of(self, start: int, stop: int) -> SparseRows:
        """Training rows start..stop-1."""
        if self.training_rows is None:
            return self.table.read(start, stop)
        return self.at(self.training_rows[start:stop])

    def rows_at(self, places: np.ndarray) -> SparseRows:
        """Training rows at `places` in the training order, ascending."""
        return self.at(places if self.training_rows is None else self.training_rows[places])

    def heldout_of(self, start: int, stop: int) -> SparseRows:
        """Held-out rows start..stop-1."""
        return self.at(self.heldout[start:stop])

    def at(self, numbers: np.ndarray) -> SparseRows:
        """Rows with the given numbers in the table, ascending."""
        cuts = np.flatnonzero(np.diff(numbers // PIECE)) + 1
        parts = []
        for start, stop in pairwise([0, *cuts.tolist(), len(numbers)] if len(numbers) else ()):
            first = int(numbers[start])
            piece = self.table.read(first, int(numbers[stop - 1]) + 1)
            parts.append(piece.take(numbers[start:stop] - first))
        return SparseRows.concatenate(parts)


AnyData = Data | SparseData
