"""The sparse table: counts or ratings of (row, column) pairs in one HDF5 file, row by row, read in slices.

File layout (format "mpibayes-sparse", version 1; all datasets contiguous):

    starts   (N+1,) int64     entries of row n are starts[n]..starts[n+1]-1; a row may be empty
    columns  (E,)   int32     column of an entry, ascending and unique within a row
    values   (E,)   float32   its count or rating
    times    (E,)   float64   where the source has them
    row_text, row_ends, column_text, column_ends
                              ids, as UTF-8 text end to end and where each ends (int64); absent: "1", "2", ...
    source   JSON text        how the source was read, and `names`: what rows, columns and values are called

The file is sealed (`io/seal.py`), and appears under its final name whole or not at all, as a typed table does.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.documents import json_text
from mpibayes.io.files import replacing, writing
from mpibayes.io.h5 import writing_h5
from mpibayes.io.opened import open_sealed
from mpibayes.io.seal import Seal, append_seal
from mpibayes.io.table import FORMAT as TYPED
from mpibayes.io.table import created_by
from mpibayes.io.table_header import dataset, source_of
from mpibayes.io.target import SPARSE, check_target

FORMAT = "mpibayes-sparse"
VERSION = 1
APART = ("starts", "columns", "values", "times", "row_text", "row_ends", "column_text", "column_ends")
TYPES = {"starts": np.int64, "columns": np.int32, "values": np.float32, "times": np.float64}
SLICE = 1 << 22  # entries read at a time when all are read
MAX_COLUMNS = 2**31 - 1  # column numbers are int32
KINDS = ("row", "column")
NAMES = ("row", "column", "value")
MAX_COUNT = 1 << 24  # integers below it are exact in float32


@dataclass
class SparseRows:
    """Some rows. starts: int64 (n + 1,), from 0; columns int32, values float32, times float64 or None, (e,) each."""

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    times: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def empty(cls) -> SparseRows:
        return cls(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))

    @classmethod
    def concatenate(cls, parts: Sequence[SparseRows]) -> SparseRows:
        """Concatenate the rows of several parts."""
        if not parts:
            return cls.empty()
        lengths = np.concatenate([part.lengths() for part in parts])
        timed = all(part.times is not None for part in parts)
        return cls(
            np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            np.concatenate([part.columns for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.times for part in parts]) if timed else None,
        )

    def lengths(self) -> np.ndarray:
        """Entries of each row, int64 (n,)."""
        return np.diff(self.starts)

    def row_of(self) -> np.ndarray:
        """Row of each entry, from 0, int64 (e,)."""
        return np.repeat(np.arange(len(self)), self.lengths())

    def take(self, places: np.ndarray | slice) -> SparseRows:
        """Copy rows by their places."""
        places = np.arange(len(self))[places]
        lengths = self.lengths()[places]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        entries = np.repeat(self.starts[places] - starts[:-1], lengths) + np.arange(starts[-1])
        times = None if self.times is None else self.times[entries]
        return SparseRows(starts, self.columns[entries], self.values[entries], times)


@dataclass(frozen=True)
class SparseTable:
    """A sparse table on disk: its header in memory, its rows read on demand. Use `SparseTable.open`.

    names: of rows, columns, values and, if there are any, times. whole: True if all values are integers, 0 or more.
    total, mean, minimum, maximum: of the values.
    """

    weight: ClassVar[None] = None  # its rows have no survey weights
    path: Path
    n_rows: int
    n_columns: int
    n_entries: int
    fingerprint: str
    source: Mapping[str, Any]
    names: tuple[str, ...]
    has_times: bool
    has_row_ids: bool
    has_column_ids: bool
    whole: bool
    total: float
    mean: float
    minimum: float
    maximum: float

    columns = ()  # no typed columns

    def __len__(self) -> int:
        return self.n_rows

    @classmethod
    def open(cls, path: str | os.PathLike) -> SparseTable:
        """Read and check the header. Raises DataError if `path` is not a complete sparse table of this version."""
        path = Path(path)
        with open_sealed(path) as file:
            if file.attrs.get("format") != FORMAT:
                kind = "a typed table" if file.attrs.get("format") == TYPED else "an HDF5 file, but no mpibayes table"
                raise DataError(f"{path}: {kind}; expected a sparse one: 'mpibayes import --sparse' makes it")
            return _read_header(path, file)

    def read(self, start: int = 0, stop: int | None = None) -> SparseRows:
        """Rows start..stop-1. Raises DataError if the file cannot be read, IndexError outside 0..n_rows."""
        stop = self.n_rows if stop is None else stop
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start}..{stop} of a table of {self.n_rows}")
        with open_sealed(self.path) as file:
            self._same(file)
            starts = self._slice(file, "starts", start, stop + 1)
            first, last = int(starts[0]), int(starts[-1])
            if not (0 <= first <= last <= self.n_entries) or (np.diff(starts) < 0).any():
                raise DataError(f"{self.path}: damaged sparse table: 'starts' does not ascend")
            columns = self._slice(file, "columns", first, last)
            values = self._slice(file, "values", first, last)
            times = self._slice(file, "times", first, last) if self.has_times else None
        if len(columns) and not 0 <= columns.min() <= columns.max() < self.n_columns:
            raise DataError(f"{self.path}: damaged sparse table: an entry is in a column that it does not have")
        if not np.isfinite(values).all() or (self.whole and ((values < 0) | (values != np.floor(values))).any()):
            raise DataError(f"{self.path}: damaged sparse table: a value is not what its header promises")
        return SparseRows(starts - first, columns, values, times)

    def slices(self, entries: int = SLICE) -> Iterator[tuple[int, SparseRows]]:
        """Yield (first row, rows) for all rows, about `entries` entries at a time."""
        starts = self.starts()
        for first, last in cuts(starts, entries):
            yield first, self.read(first, last)

    def starts(self) -> np.ndarray:
        """Start of each row's entries, and the end, int64 (N + 1,)."""
        with open_sealed(self.path) as file:
            self._same(file)
            return self._slice(file, "starts", 0, self.n_rows + 1)

    def row_ids(self, start: int = 0, stop: int | None = None) -> list[str]:
        """Ids of rows start..stop-1."""
        return self._ids("row", start, self.n_rows if stop is None else stop, self.has_row_ids)

    def column_ids(self, start: int = 0, stop: int | None = None) -> list[str]:
        """Ids of columns start..stop-1: the vocabulary."""
        return self._ids("column", start, self.n_columns if stop is None else stop, self.has_column_ids)

    def _ids(self, of: str, start: int, stop: int, there: bool) -> list[str]:
        if not there or stop <= start:
            return [str(i) for i in range(start + 1, stop + 1)]
        with open_sealed(self.path) as file:
            self._same(file)
            ends = self._slice(file, f"{of}_ends", max(0, start - 1), stop)
            ends = ends if start else np.concatenate([np.zeros(1, np.int64), ends])
            text = self._slice(file, f"{of}_text", int(ends[0]), int(ends[-1])).tobytes()
        cut = (ends - ends[0]).tolist()
        return [text[a:b].decode() for a, b in itertools.pairwise(cut)]

    def _same(self, file: h5py.File) -> None:
        if file.attrs.get("fingerprint") != self.fingerprint:
            raise DataError(f"{self.path}: the table was replaced while it was in use")

    def _slice(self, file: h5py.File, name: str, start: int, stop: int) -> np.ndarray:
        """Entries start..stop-1 of a dataset, verified."""
        data = file[name]
        offset, size = data.id.get_offset(), data.dtype.itemsize
        if offset is not None and stop > start:
            Seal.of(self.path).verify(offset + start * size, offset + stop * size)
        return data[start:stop]


def cuts(starts: np.ndarray, entries: int) -> Iterator[tuple[int, int]]:
    """Yield (first row, last row + 1) of pieces of about `entries` entries, and of at least one row."""
    first, n = 0, len(starts) - 1
    while first < n:
        last = int(np.searchsorted(starts, starts[first] + entries, side="right")) - 1
        last = min(n, max(first + 1, last))
        yield first, last
        first = last


def _read_header(path: Path, file: h5py.File) -> SparseTable:
    version = int(file.attrs["version"])
    if version != VERSION:
        raise DataError(
            f"{path}: sparse table version {version}; this program reads version {VERSION}: import it again"
        )
    about = {name: file.attrs[name] for name in ("n_rows", "n_columns", "n_entries")}
    n, v, e = (int(x) for x in about.values())
    source = source_of(file)
    names = source.get("names") or ()
    if len(names) < len(NAMES) + ("times" in file):
        raise ValueError("what it was made from is not described")
    for name in APART:
        if name in file:
            dataset(file, name)
    table = SparseTable(
        path, n, v, e, str(file.attrs["fingerprint"]), source, tuple(names), "times" in file,
        "row_text" in file, "column_text" in file, bool(file.attrs["whole"]),
        *(float(file.attrs[name]) for name in ("total", "mean", "minimum", "maximum")),
    )  # fmt: skip
    lengths = {"starts": n + 1, "columns": e, "values": e, "times": e}
    wrong = [
        f"dataset '{name}' is {file[name].shape} {file[name].dtype}, expected ({lengths[name]},) {np.dtype(kind)}"
        for name, kind in TYPES.items()
        if name in file and (file[name].shape, file[name].dtype) != ((lengths[name],), np.dtype(kind))
    ]
    wrong += [
        f"{len(file[f'{of}_ends'])} ids of {many} {of}s"
        for of, many, there in (("row", n, table.has_row_ids), ("column", v, table.has_column_ids))
        if there and len(file[f"{of}_ends"]) != many
    ]
    if n < 1 or v < 1 or e < 1:
        wrong.append("it has no entries")
    if v > MAX_COLUMNS:
        wrong.append(f"it has {v:,} columns, more than the {MAX_COLUMNS:,} that entries can be in")
    if wrong:
        raise DataError(f"{path}: the sparse table is inconsistent; import the source again", wrong)
    return table


def in_words(table: SparseTable) -> list[tuple[str, str]]:
    """Describe a sparse table in (title, text) pairs."""
    row, column, value = table.names[:3]
    share = table.n_entries / (table.n_rows * table.n_columns)
    if table.whole:
        values = f"whole numbers, {table.total:,.0f} in all, {table.mean:.2f} an entry, at most {table.maximum:,.0f}"
    else:
        values = f"numbers from {table.minimum:g} to {table.maximum:g}, mean {table.mean:.4g}"
    ids = {"rows": table.has_row_ids, "columns": table.has_column_ids}
    named = " and ".join(name for name, there in ids.items() if there)
    timed = f", with times ({table.names[3]})" if table.has_times else ""
    return [
        ("table", f"{table.path}: a sparse table, fingerprint {table.fingerprint[:12]}"),
        ("rows", f"{table.n_rows:,} ({row})"),
        ("columns", f"{table.n_columns:,} ({column}){f'; ids of {named} as text' if named else ''}"),
        ("entries", f"{table.n_entries:,} ({value}), {share:.2%} of all pairs{timed}"),
        ("values", values),
    ]


@dataclass
class Entries:
    """Contents of a sparse table to write. pieces(): all rows, in order. row_ids, column_ids: None for "1", "2", ..."""

    n_rows: int
    n_columns: int
    n_entries: int
    timed: bool
    pieces: Callable[[], Iterator[SparseRows]]
    row_ids: Sequence[str] | None = None
    column_ids: Sequence[str] | None = None


def write_entries(path: str | os.PathLike, entries: Entries, source: Mapping[str, Any], overwrite: bool) -> SparseTable:
    """Write a sparse table, piece by piece. Raises ConfigError if `path` exists, DataError if it cannot be written,
    CheckpointError if the disk is full."""
    path = Path(path)
    check_target(path, overwrite, SPARSE, otherwise=DataError)
    if min(entries.n_rows, entries.n_columns, entries.n_entries) < 1:
        raise DataError(f"{path}: a sparse table needs a row, a column and an entry at least")
    about = _Statistics()
    digests = {name: hashlib.sha256() for name in (*TYPES, "row", "column")}

    def fill(file: h5py.File, check: Callable[[], None]) -> None:
        kinds = {name: kind for name, kind in TYPES.items() if name != "times" or entries.timed}
        for name, kind in kinds.items():
            file.create_dataset(name, (entries.n_entries if name != "starts" else entries.n_rows + 1,), kind)
        done, at = 0, 0
        for piece in entries.pieces():
            about.add(piece.values)
            stop, to = at + len(piece.columns), done + len(piece)
            for name in kinds.keys() - {"starts"}:
                if stop > at:
                    file[name][at:stop] = getattr(piece, name)
                digests[name].update(np.ascontiguousarray(getattr(piece, name)))
            file["starts"][done : to + 1] = piece.starts + at
            digests["starts"].update(piece.lengths())
            done, at = to, stop
            check()
        if (done, at) != (entries.n_rows, entries.n_entries):
            raise DataError(f"{path}: {at:,} entries of {done:,} rows came, {entries.n_entries:,} were announced")
        for of, ids in (("row", entries.row_ids), ("column", entries.column_ids)):
            if ids is not None:
                _write_ids(file, of, ids, digests[of])
        file["source"] = json_text(dict(source))
        content = json.dumps([entries.n_rows, entries.n_columns, *(d.hexdigest() for d in digests.values())])
        file.attrs.update(
            format=FORMAT, version=VERSION, n_rows=entries.n_rows, n_columns=entries.n_columns,
            n_entries=entries.n_entries, fingerprint=hashlib.sha256(content.encode()).hexdigest(),
            created_by=created_by(), **about.found(),
        )  # fmt: skip

    with writing(path, DataError), replacing(path) as out:
        with writing_h5(out) as (file, check):
            fill(file, check)
            apart = [_extent(file[name]) for name in APART if name in file]
        append_seal(out, apart)
        if not overwrite and path.exists():
            raise ConfigError(f"{path}: appeared while the table was written; it is kept")
    return SparseTable.open(path)


class _Statistics:
    """Statistics of values that arrive in pieces."""

    def __init__(self) -> None:
        self.n, self.total, self.least, self.most, self.whole = 0, 0.0, np.inf, -np.inf, True

    def add(self, values: np.ndarray) -> None:
        if len(values):
            exact = values.astype(np.float64)
            self.n, self.total = self.n + len(values), self.total + float(exact.sum())
            self.least, self.most = min(self.least, float(exact.min())), max(self.most, float(exact.max()))
            self.whole = self.whole and bool((exact == np.floor(exact)).all()) and self.least >= 0

    def found(self) -> dict[str, Any]:
        mean = self.total / max(1, self.n)
        return {"whole": self.whole, "total": self.total, "mean": mean, "minimum": self.least, "maximum": self.most}


def _write_ids(file: h5py.File, of: str, ids: Sequence[str], digest) -> None:
    coded = [text.encode() for text in ids]
    text = np.frombuffer(b"".join(coded), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, coded), np.int64, len(coded)))
    file.create_dataset(f"{of}_text", data=text)
    file.create_dataset(f"{of}_ends", data=ends)
    digest.update(text)
    digest.update(ends)


def _extent(data: h5py.Dataset) -> tuple[int, int]:
    """Byte range of a contiguous dataset in the file."""
    offset = data.id.get_offset()
    return (0, 0) if offset is None else (offset, offset + data.size * data.dtype.itemsize)
