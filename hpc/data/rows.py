"""Rows of a run: the used columns of the table, cut into training rows and held-out rows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from mpibayes.errors import DataError
from mpibayes.hpc.data.latent import OF_NEW_ROWS, OF_TABLE, AsRecorded, Latent, key_of
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.agreement import agree, broadcast_arrays, on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator
from mpibayes.io import spells
from mpibayes.io.rows import ARRAYS, BLOCKS, Column, Rows, bytes_of_row, slice_rows
from mpibayes.io.table import Table
from mpibayes.text import counted

PIECE = 4096  # rows of the table read at once when only some are needed, or more, up to so many bytes:
PIECE_BYTES = 4 << 20  # opening the file for 4,096 narrow rows takes ten times as long as reading them


def used_columns(
    columns: Sequence[Column], unused: Collection[str]
) -> tuple[tuple[Column, ...], dict[str, np.ndarray]]:
    """Return the columns not in `unused`, renumbered within their blocks, and the positions to take from each block."""
    kept = [c for c in columns if c.name not in unused]
    positions = {b: np.array(sorted(c.index for c in kept if c.block == b), np.intp) for b in BLOCKS}
    renumbered = tuple(replace(c, index=int(np.searchsorted(positions[c.block], c.index))) for c in kept)
    return renumbered, positions


def take_columns(rows: Rows, positions: Mapping[str, np.ndarray]) -> Rows:
    """Select the columns at `positions` of each array of the rows, without copying arrays that are used whole. Those of
    `vectors` must form whole blocks; "widths" are then the blocks' numbers of columns."""
    arrays = ((getattr(rows, name), positions[name]) for name in (ARRAYS if "vectors" in positions else BLOCKS))
    taken = (a if len(p) == a.shape[1] else np.ascontiguousarray(a[:, p]) for a, p in arrays)
    return Rows(*taken, **({"widths": positions["widths"]} if "vectors" in positions else {}))


def in_blocks(columns: Sequence[Column], blocks: Mapping[str, Mapping]) -> tuple[Column, ...]:
    """Move jointly modelled columns into the rows' `vectors`, block by block, and survival columns into their `spells`.

    blocks: {"columns": names, ...} by block name. The other real columns are renumbered.
    """
    joint = {name: i for i, name in enumerate(name for block in blocks.values() for name in block["columns"])}
    watched = sorted(c.index for c in columns if c.kind == "survival")
    single = sorted(c.index for c in columns if c.block == "reals" and c.name not in joint and c.index not in watched)

    def placed(c: Column) -> Column:
        if c.name in joint:
            return replace(c, block="vectors", index=joint[c.name])
        if c.kind == "survival":
            return replace(c, block="spells", index=watched.index(c.index))
        return replace(c, index=single.index(c.index)) if c.block == "reals" else c

    return tuple(placed(c) for c in columns)


class Carve:
    """Converts Rows of `columns` as stored to the layout of `in_blocks`: cells of blocks in `vectors`, and coded
    survival cells in `spells`. Without either it changes nothing."""

    def __init__(self, columns: Sequence[Column], blocks: Mapping[str, Mapping]):
        self.blocks = {name: tuple(block["columns"]) for name, block in blocks.items()}
        at = {c.name: c.index for c in columns}
        self._joint = np.array([at[name] for names in self.blocks.values() for name in names], np.intp)
        width = sum(c.block == "reals" for c in columns)
        self._spells = sorted((c for c in columns if c.kind == "survival"), key=lambda c: c.index)
        apart = [*self._joint, *(c.index for c in self._spells)]
        self._single = np.setdiff1d(np.arange(width), np.array(apart, np.intp))
        self._widths = np.array([len(names) for names in self.blocks.values()], np.int64)

    def __call__(self, rows: Rows) -> Rows:
        if not self.blocks and not self._spells:
            return rows
        single, joint = (np.ascontiguousarray(rows.reals[:, at]) for at in (self._single, self._joint))
        none = np.empty((len(rows), 0))
        cells = np.column_stack([none, *(spells.coded(c, rows.reals[:, c.index]) for c in self._spells)])
        return replace(rows, reals=single, vectors=joint, spells=cells, widths=self._widths)

    def empty(self, columns: Sequence[Column], n: int) -> Rows:
        """Allocate n rows; `columns` are the stored ones."""
        if not self.blocks and not self._spells:
            return Rows.empty(columns, n)
        rows = Rows.empty([c for c in columns if c.block != "reals"], n)
        rows.reals, rows.vectors = np.empty((n, len(self._single))), np.empty((n, len(self._joint)))
        rows.spells, rows.widths = np.empty((n, len(self._spells))), self._widths
        return rows

    def partly_missing(self, rows: Rows) -> dict[str, np.ndarray]:
        """Find carved rows with some but not all cells of a block missing. Returns by block name the mask (n, D) of
        their missing cells; False in all other rows."""
        out, first = {}, 0
        for name, columns in self.blocks.items():
            missing = np.isnan(rows.vectors[:, first : first + len(columns)])
            out[name] = missing & ~missing.all(axis=1, keepdims=True)
            first += len(columns)
        return out


def require_whole_blocks(carve: Carve, pieces: Iterator[tuple[int, Rows]], path, names: Collection[str]) -> None:
    """Raise DataError if a row has some but not all cells of one of the blocks `names`. pieces: (number of the first
    row, carved rows) of the table or file at `path`."""
    partial: dict[str, list] = {}  # rows, first row, columns missing there, missing cells by column
    for start, rows in pieces:
        for name, mask in carve.partly_missing(rows).items():
            partly = np.flatnonzero(mask.any(axis=1))
            if name in names and len(partly):
                entry = partial.setdefault(name, [0, start + int(partly[0]), mask[partly[0]], 0])
                entry[0] += len(partly)
                entry[3] = entry[3] + mask.sum(axis=0)
    problems = []
    for name, (n, first, mask, cells) in partial.items():
        columns = carve.blocks[name]
        lacking = ", ".join(c for c, missing in zip(columns, mask) if missing)
        each = ", ".join(f"{c} in {k:,}" for c, k in zip(columns, cells.tolist()) if k)
        problems.append(
            f"block {name}: {counted(n, 'row')} {'have' if n > 1 else 'has'} some of its columns but not all; the "
            f"first is row {first + 1:,}, which lacks {lacking}. Missing in such rows: {each}"
        )
    if problems:
        sections = " and ".join(f"[blocks.{name}]" for name in partial)
        raise DataError(
            f"{path}: a row must have all cells of a block, or none. Take columns that are often missing out of "
            f"{sections}, so that they are modelled one by one, or impute their cells",
            problems,
        )


def heldout_rows(n_rows: int, fraction: float) -> np.ndarray:
    """Row numbers held out of training, ascending int64; the same for every seed, so that runs compare."""
    n = min(max(1, round(fraction * n_rows)), n_rows - 1)
    order = generator(0, Purpose.HELDOUT).permutation(n_rows)
    return np.sort(order[:n])


def heldout_of_parts(sizes: Sequence[int], fraction: float) -> np.ndarray:
    """Row numbers held out of a table in parts, each part by itself, so that rows appended later change nothing."""
    first = np.cumsum([0, *sizes])
    return np.concatenate([start + heldout_rows(n, fraction) for start, n in zip(first.tolist(), sizes)])


def heldout_cells(names: Sequence[str], numbers: np.ndarray, fraction: float) -> np.ndarray:
    """Mask of the cells held out of training, for these columns and rows (numbers in the table), bool (n, D). Each cell
    is independent of the seed, the other columns and the other rows, so that runs compare."""
    chosen = [Stream(0, Purpose.HELDOUT, 0, sub=key_of(name)).uniforms(numbers) < fraction for name in names]
    return np.stack(chosen, axis=1) if chosen else np.zeros((len(numbers), 0), bool)


class Data:
    """Training rows in training order, and this rank's blocks of the held-out rows.

    `training_rows`: row numbers, ascending int64; None if every row of the table is a training row. `blocks`:
    {"columns": names, ...} of each block of jointly modelled columns. `latent`: True to convert real columns by
    `latent.Latent`. `stored`: the used columns as stored in the table; `columns`: the same as converted.
    """

    def __init__(
        self,
        table: Table,
        unused: Collection[str],
        heldout_fraction: float | None,
        blocks: Mapping[str, Mapping] | None = None,
        latent: bool = False,
    ):
        self.table, blocks = table, blocks or {}
        self.stored, self._positions = used_columns(table.columns, unused)
        joint = {name for block in blocks.values() for name in block["columns"]}
        first = table.pieces[0].fingerprint  # unchanged when rows are appended
        self.latent = Latent(self.stored, first, joint) if latent else AsRecorded(self.stored)
        modelled = self.latent.columns
        self.columns, self.carve = in_blocks(modelled, blocks), Carve(modelled, blocks)
        self.training_rows = self.heldout = None
        if heldout_fraction is not None and table.n_rows > 1:
            heldout = heldout_of_parts([piece.n_rows for piece in table.pieces], heldout_fraction)
            if len(heldout):  # parts of a single row hold none out
                self.heldout = heldout
                self.training_rows = np.setdiff1d(np.arange(table.n_rows), heldout, assume_unique=True)

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self.table.n_rows if self.training_rows is None else len(self.training_rows)

    def n_rows_among(self, n: int) -> int:
        """Return the number of training rows among the first n rows of the table."""
        return n if self.training_rows is None else int(np.searchsorted(self.training_rows, n))

    def numbers_of(self, start: int, stop: int) -> np.ndarray:
        """Numbers in the table of training rows start..stop-1, int64."""
        return np.arange(start, stop) if self.training_rows is None else self.training_rows[start:stop]

    def rows_of(self, start: int, stop: int) -> Rows:
        """Training rows start..stop-1, used columns only."""
        shaped = any(c.shape is not None for c in self.columns)
        whole = len(self.stored) == len(self.table.columns) and self.columns == self.stored and not shaped
        if whole and self.training_rows is None:
            return self.table.read(start, stop)
        return self._chosen(self.numbers_of(start, stop))

    def rows_at(self, places: np.ndarray) -> Rows:
        """Training rows at `places` in the training order, ascending; used columns only."""
        return self._chosen(places if self.training_rows is None else self.training_rows[places])

    def heldout_of(self, start: int, stop: int) -> Rows:
        """Held-out rows start..stop-1, used columns only."""
        return self._chosen(self.heldout[start:stop])

    def _chosen(self, row_numbers: np.ndarray, met: list[tuple[np.ndarray, Rows]] | None = None) -> Rows:
        """Rows with the given numbers in the table, ascending; used columns only. Held-out rows among the rows read are
        appended to `met`, with their numbers."""
        chosen = self.carve.empty(self.latent.columns, len(row_numbers))
        for place, rows, index in self._pieces(row_numbers):
            used, first = take_columns(rows, self._positions), row_numbers[place][0] - index[0]
            piece = self.as_modelled(used.take(index), row_numbers[place])
            for block in ARRAYS:
                getattr(chosen, block)[place] = getattr(piece, block)
            if met is not None:
                start, stop = np.searchsorted(self.heldout, [first, first + len(rows)])
                numbers = self.heldout[start:stop]
                met.append((numbers, self.as_modelled(used.take(numbers - first), numbers)))
        return chosen

    def recorded_at(self, numbers: np.ndarray) -> Rows:
        """Recorded rows with the given numbers in the table, ascending; Rows of the `stored` columns."""
        parts = [take_columns(rows, self._positions).take(index) for _, rows, index in self._pieces(numbers)]
        return Rows.concatenate(self.stored, parts)

    def as_modelled(self, rows: Rows, numbers: np.ndarray, of: int = OF_TABLE) -> Rows:
        """Convert Rows of the `stored` columns to the model's. numbers, of: see `Latent`."""
        return self.carve(self.latent(rows, numbers, of))

    def check_blocks(self) -> None:
        """Raise DataError if a row of the table has some but not all cells of a block. Reads the table only if a block
        has missing cells."""
        by_name = {c.name: c for c in self.stored}
        names = {b for b, of in self.carve.blocks.items() if any(by_name[c].n_missing for c in of)}
        if names:
            step = slice_rows(self.table.columns)
            pieces = (
                (i * step, self.as_modelled(take_columns(r, self._positions), i * step + np.arange(len(r))))
                for i, r in enumerate(self.table.slices())
            )
            require_whole_blocks(self.carve, pieces, self.table.path, names)

    def _pieces(self, row_numbers: np.ndarray) -> Iterator[tuple[slice, Rows, np.ndarray]]:
        """Read rows by number, ascending, one piece of the table at a time, to avoid a second copy.

        Yields (positions in row_numbers, rows of the table, positions in these rows).
        """
        step = max(PIECE, PIECE_BYTES // bytes_of_row(self.table.columns))
        cuts = np.flatnonzero(np.diff((row_numbers - row_numbers[:1]) // step)) + 1
        for start, stop in pairwise([0, *cuts.tolist(), len(row_numbers)] if len(row_numbers) else ()):
            numbers = row_numbers[start:stop]
            first = int(numbers[0])
            yield slice(start, stop), self.table.read(first, int(numbers[-1]) + 1), numbers - first

    def heldout_blocks(
        self, comm: Communicator, n_blocks: int, file_rows: Rows | None = None, read: OnePass | None = None
    ) -> HeldOutRows:
        """Deal the held-out rows, in `n_blocks` fixed blocks, to ranks. Collective.

        file_rows: root's rows of a held-out file, if there is one. read: what has read the training rows.
        """
        mine = shards.of_rank(n_blocks, comm.size, comm.rank)
        if self.heldout is not None:
            cut = shards.bounds(len(self.heldout), n_blocks)
            blocks = agree(
                comm,
                lambda: {i: (read or OnePass(self)).heldout_at(self.heldout[cut[i] : cut[i + 1]]) for i in mine},
                "read its held-out rows",
            )
            return HeldOutRows(len(self.heldout), blocks)
        arrays = broadcast_arrays(comm, vars(file_rows) if comm.rank == 0 else None)
        rows = Rows(**arrays)
        cut = shards.bounds(len(rows), n_blocks)
        return HeldOutRows(len(rows), {i: rows.take(slice(cut[i], cut[i + 1])) for i in mine})

    def read_heldout_file(
        self, comm: Communicator, path, unseen: str, recorded: bool = False
    ) -> tuple[Rows | None, str]:
        """Return root's rows of a held-out file, coded with the table's levels, and a message about cells taken as
        missing. recorded: rows as `recorded_at` has them.

        (None, "") on other ranks. Raises DataError on all ranks.
        """

        def read():
            from mpibayes.io.recode import read_like, unseen_message

            record: dict = {}
            table = self.table
            used = table.having(self.stored)
            rows = read_like(used, path, unseen=unseen, record=record)
            if not recorded:
                rows = self.as_modelled(rows, np.arange(len(rows)), OF_NEW_ROWS)
                require_whole_blocks(self.carve, iter([(0, rows)]), path, self.carve.blocks)
            return rows, unseen_message(record, path)

        return on_root(comm, read, share=False, what=f"read {path}") or (None, "")


class OnePass:
    """Reads training rows and keeps the held-out rows between them, so that a start reads the table once."""

    def __init__(self, data: Data):
        self._data = data
        self._met: list[tuple[np.ndarray, Rows]] = []  # numbers in the table, and rows

    def rows_of(self, start: int, stop: int) -> Rows:
        """See `Data.rows_of`."""
        if self._data.heldout is None:
            return self._data.rows_of(start, stop)
        return self._data._chosen(self._data.numbers_of(start, stop), self._met)

    def heldout_at(self, numbers: np.ndarray) -> Rows:
        """Held-out rows with these numbers in the table, ascending; those that were not met are read now."""
        result = self._data.carve.empty(self._data.latent.columns, len(numbers))
        unmet = np.ones(len(numbers), bool)

        def put(place: np.ndarray, rows: Rows) -> None:
            unmet[place] = False
            for block in ARRAYS:
                getattr(result, block)[place] = getattr(rows, block)

        for of, rows in self._met:
            if len(of) and len(numbers) and of[0] <= numbers[-1] and numbers[0] <= of[-1]:
                _, place, index = np.intersect1d(numbers, of, assume_unique=True, return_indices=True)
                put(place, rows.take(index))
        place = np.flatnonzero(unmet)
        if len(place):
            put(place, self._data._chosen(numbers[place]))
        return result


def digest(rows: Rows) -> str:
    """Digest of the content of rows, to recognise it later."""
    content = hashlib.sha256()
    for block in ARRAYS:
        content.update(np.ascontiguousarray(getattr(rows, block)))
    return content.hexdigest()


class HeldOutRows:
    """This rank's blocks of the held-out rows, by block number."""

    def __init__(self, n_rows: int, blocks: dict[int, Rows]):
        self.n_rows, self.blocks = n_rows, blocks
