"""The rows a run works on: the used columns of the table, cut into training rows and held-out rows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from mpibayes.hpc import shards
from mpibayes.hpc.comm import Communicator, agree, broadcast_arrays, on_root
from mpibayes.hpc.streams import Purpose, generator
from mpibayes.io.table import BLOCKS, Column, Rows, Table

PIECE = 4096  # rows of the table that are read at once where not all are wanted


def used_columns(
    columns: Sequence[Column], unused: Collection[str]
) -> tuple[tuple[Column, ...], dict[str, np.ndarray]]:
    """The columns not in `unused`, renumbered within their blocks, and the positions to take from each block."""
    kept = [c for c in columns if c.name not in unused]
    positions = {b: np.array(sorted(c.index for c in kept if c.block == b), np.intp) for b in BLOCKS}
    renumbered = tuple(replace(c, index=int(np.searchsorted(positions[c.block], c.index))) for c in kept)
    return renumbered, positions


def take_columns(rows: Rows, positions: dict[str, np.ndarray]) -> Rows:
    """The columns at `positions` of each block; no copy of a block that is used whole."""
    blocks = ((getattr(rows, b), positions[b]) for b in BLOCKS)
    return Rows(*(a if len(p) == a.shape[1] else np.ascontiguousarray(a[:, p]) for a, p in blocks))


def heldout_rows(n_rows: int, fraction: float) -> np.ndarray:
    """Which rows a fraction keeps out of training, ascending int64; whatever the seed, so that runs compare."""
    n = min(max(1, round(fraction * n_rows)), n_rows - 1)
    order = generator(0, Purpose.HELDOUT).permutation(n_rows)
    return np.sort(order[:n])


class Data:
    """Training rows by their place in the training order, and this rank's blocks of the held-out rows.

    `training_rows`: None when every row of the table is a training row, else their row numbers, ascending int64.
    """

    def __init__(self, table: Table, unused: Collection[str], heldout_fraction: float | None):
        self.table = table
        self.columns, self._positions = used_columns(table.columns, unused)
        self.training_rows = self.heldout = None
        if heldout_fraction is not None and table.n_rows > 1:
            self.heldout = heldout_rows(table.n_rows, heldout_fraction)
            self.training_rows = np.setdiff1d(np.arange(table.n_rows), self.heldout, assume_unique=True)

    @property
    def n_rows(self) -> int:
        """Training rows."""
        return self.table.n_rows if self.training_rows is None else len(self.training_rows)

    def rows_of(self, start: int, stop: int) -> Rows:
        """Training rows start..stop-1, used columns only."""
        if self.training_rows is not None:
            return self._chosen(self.training_rows[start:stop])
        if len(self.columns) == len(self.table.columns):
            return self.table.read(start, stop)
        return self._chosen(np.arange(start, stop))

    def rows_at(self, places: np.ndarray) -> Rows:
        """Training rows by their places in the training order, ascending; used columns only."""
        return self._chosen(places if self.training_rows is None else self.training_rows[places])

    def heldout_of(self, start: int, stop: int) -> Rows:
        """Rows start..stop-1 of those that a fraction holds out, used columns only."""
        return self._chosen(self.heldout[start:stop])

    def codes_of(self, column: Column, start: int, stop: int) -> np.ndarray:
        """Codes of a categorical or boolean column, used or not, in training rows start..stop-1, int32; missing: V."""
        numbers = np.arange(start, stop) if self.training_rows is None else self.training_rows[start:stop]
        codes = np.empty(len(numbers), np.int32)
        for place, rows, index in self._pieces(numbers):
            codes[place] = getattr(rows, column.block)[index, column.index]
        return codes

    def _chosen(self, row_numbers: np.ndarray) -> Rows:
        """Rows by their numbers in the table, ascending; used columns only."""
        chosen = Rows.empty(self.columns, len(row_numbers))
        for place, rows, index in self._pieces(row_numbers):
            piece = take_columns(rows, self._positions)
            for block in BLOCKS:
                getattr(chosen, block)[place] = getattr(piece, block)[index]
        return chosen

    def _pieces(self, row_numbers: np.ndarray) -> Iterator[tuple[slice, Rows, np.ndarray]]:
        """Rows by their numbers, ascending, a piece of the table at a time, so that there is no second copy.

        Yields (where these are among row_numbers, rows of the whole table, where these are among those).
        """
        cuts = np.flatnonzero(np.diff(row_numbers // PIECE)) + 1
        for start, stop in pairwise([0, *cuts.tolist(), len(row_numbers)] if len(row_numbers) else ()):
            numbers = row_numbers[start:stop]
            first = int(numbers[0])
            yield slice(start, stop), self.table.read(first, int(numbers[-1]) + 1), numbers - first

    def heldout_blocks(self, comm: Communicator, n_blocks: int, file_rows: Rows | None = None) -> HeldOutRows:
        """The held-out rows in `n_blocks` fixed blocks dealt to ranks. Collective.

        file_rows: root's rows of a held-out file, where there is one.
        """
        mine = shards.of_rank(n_blocks, comm.size, comm.rank)
        if self.heldout is not None:
            cut = shards.bounds(len(self.heldout), n_blocks)
            blocks = agree(
                comm,
                lambda: {i: self._chosen(self.heldout[cut[i] : cut[i + 1]]) for i in mine},
                "read its held-out rows",
            )
            return HeldOutRows(len(self.heldout), blocks)
        arrays = broadcast_arrays(comm, vars(file_rows) if comm.rank == 0 else None)
        rows = Rows(**arrays)
        cut = shards.bounds(len(rows), n_blocks)
        return HeldOutRows(len(rows), {i: rows.take(slice(cut[i], cut[i + 1])) for i in mine})

    def read_heldout_file(self, comm: Communicator, path, unseen: str) -> tuple[Rows | None, str]:
        """Root's rows of a held-out file, coded with the table's levels, and a message about cells taken as missing.

        (None, "") elsewhere. Raises DataError on all ranks.
        """

        def read():
            from mpibayes.io.recode import read_like, unseen_message

            record: dict = {}
            table = self.table
            used = Table(table.path, table.n_rows, self.columns, table.fingerprint, table.source)
            rows = read_like(used, path, unseen=unseen, record=record)
            return rows, unseen_message(record, path)

        return on_root(comm, read, share=False, what=f"read {path}") or (None, "")


def digest(rows: Rows) -> str:
    """A name for the content of some rows, to recognise it later."""
    content = hashlib.sha256()
    for block in BLOCKS:
        content.update(np.ascontiguousarray(getattr(rows, block)))
    return content.hexdigest()


class HeldOutRows:
    """This rank's blocks of the held-out rows, by block number."""

    def __init__(self, n_rows: int, blocks: dict[int, Rows]):
        self.n_rows, self.blocks = n_rows, blocks
