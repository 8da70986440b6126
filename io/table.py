"""The typed table: columns of codes, reals and counts in one HDF5 file, written once and read in slices.

File layout (format "mpibayes-table", version 2; all datasets contiguous, row-major, absent when they have no column):

    codes8   (N, C8)  uint8     categorical and boolean columns of at most 255 levels: code 0..V-1, missing = V
    codes16  (N, C16) uint16    categorical columns of 256 to 65,535 levels, coded likewise
    reals    (N, R)   float64   real columns, missing = NaN
    tallies  (N, Q)   float64   count columns: non-negative integers below 2^53, missing = NaN
    weights  (N,)     float64   survey weights, finite and from 0 on; `source` names their column as "weight"
    columns  JSON text          one object per column, in schema order
    source   JSON text          how the source was read, for later files, and notes for reports (`io/import_notes.py`)
    levels/<column number>      variable-length UTF-8 strings, in code order; its attribute `ordered`, if present,
                                says whether that order is a scale, least level first

The file is sealed (`io/seal.py`): reading returns what was written, or raises a DataError.

Later rows are in files of the same format beside it (`io/parts.py`), which name the table that they continue in the
attribute `follows`.

A file is written under a temporary name beside the target, flushed to disk, and then renamed, so a file under its final
name is complete. Reading needs no locks (`locking=False`), which some network file systems lack.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import h5py
import numpy as np

from mpibayes.errors import CheckpointError, ConfigError, DataError
from mpibayes.io.documents import json_text
from mpibayes.io.files import TEMPORARY, replacing, writing
from mpibayes.io.h5 import writing_h5
from mpibayes.io.parts import fingerprints, in_columns, joined_columns, joined_source, later_parts, pieces_of
from mpibayes.io.piece import FORMAT, VERSION, Piece, extent, read_rows
from mpibayes.io.rows import (
    BLOCKS,
    KINDS,
    MAX_COUNT,
    MAX_REAL,
    NUMERIC,
    Column,
    Rows,
    block_widths,
    check_levels,
    place_columns,
    slice_rows,
    slices_of,
    summarise,
)
from mpibayes.io.seal import append_seal
from mpibayes.io.table_header import OF_A_RUN
from mpibayes.io.target import TABLE as TYPED
from mpibayes.io.target import check_target
from mpibayes.io.turns import in_turn

SUFFIXES = (".h5", ".hdf5")
LEFT_OVER_S = 86_400.0  # a temporary file untouched for so long belongs to a dead import


def table_from_arrays(
    columns: Sequence[tuple[str, str, np.ndarray, Sequence[str] | None]],
) -> tuple[tuple[Column, ...], Rows]:
    """Make a table in memory from (name, kind, values, levels) per column.

    Categorical and boolean values are integer codes 0..V-1 with -1 = missing; without levels these are named "0", "1",
    ... up to the largest code. Real and count values are floats with NaN = missing. Raises DataError.

    >>> columns, rows = table_from_arrays([("colour", "categorical", [0, 1, -1], ["red", "blue"])])
    >>> rows.codes8[:, 0].tolist()
    [0, 1, 2]
    """
    if not columns:
        raise DataError("a table needs at least one column")
    placed = []
    for name, kind, values, levels in columns:
        if kind not in KINDS:
            raise DataError(f"column '{name}': unknown kind '{kind}'; expected one of {', '.join(KINDS)}")
        if kind in NUMERIC:
            levels = ()
        elif levels is None:
            top = int(np.max(values, initial=0)) + 1
            levels = [str(v) for v in range(max(top, 2) if kind == "boolean" else top)]
        check_levels(name, kind, levels)
        placed.append((name, kind, levels))
    result = place_columns(placed)
    lengths = {len(values) for _, _, values, _ in columns}
    if len(lengths) != 1:
        raise DataError(f"columns of different lengths: {sorted(lengths)}")
    rows = Rows.empty(result, lengths.pop())
    for column, (_, _, values, _) in zip(result, columns, strict=True):
        getattr(rows, column.block)[:, column.index] = _cells(column, np.asarray(values))
    return summarise(result, slices_of(rows, slice_rows(result))), rows


def _cells(column: Column, values: np.ndarray) -> np.ndarray:
    if column.levels:
        v = len(column.levels)
        values = values.astype(np.int8) if values.dtype == bool else values
        if values.dtype.kind not in "iu" or (values < -1).any() or (values >= v).any():
            raise DataError(f"column '{column.name}': expected integer codes from -1 (missing) to {v - 1}")
        return np.where(values < 0, v, values)
    values = values.astype(np.float64)
    seen = values[~np.isnan(values)]
    if (np.abs(seen) > MAX_REAL).any():
        raise DataError(f"column '{column.name}': a value is infinite, or larger than {MAX_REAL:g} in size")
    if column.kind == "count" and ((seen < 0) | (seen != np.floor(seen)) | (seen >= MAX_COUNT)).any():
        raise DataError(f"column '{column.name}': a count must be a non-negative integer below 2^53")
    return values


class Table:
    """A typed table on disk: its header in memory, its rows read on demand. Use `Table.open`.

    pieces: its files, in the order of their rows; by default the one at `path`.
    """

    def __init__(
        self,
        path: Path,
        n_rows: int,
        columns: tuple[Column, ...],
        fingerprint: str,
        source: dict,
        pieces: Sequence[Piece] = (),
    ):
        self.path = path
        self.n_rows = n_rows
        self.columns = columns
        self.fingerprint = fingerprint
        self.source = source
        self.pieces = tuple(pieces) or (Piece(path, n_rows, columns, fingerprint, source),)

    def __len__(self) -> int:
        return self.n_rows

    @classmethod
    def open(cls, path: str | os.PathLike) -> Table:
        """Read and check the headers of its files. Raises DataError if `path` is not a complete table of this
        version."""
        return cls.of(pieces_of(Path(path)))

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> Table:
        """Return the table consisting of these files in sequence."""
        n_rows, fingerprint = sum(piece.n_rows for piece in pieces), fingerprints(pieces)[-1]
        return cls(pieces[0].path, n_rows, joined_columns(pieces), fingerprint, joined_source(pieces), pieces)

    def having(self, columns: Sequence[Column]) -> Table:
        """Return the same table with other column descriptions."""
        return Table(self.path, self.n_rows, tuple(columns), self.fingerprint, self.source, self.pieces)

    def before_growth(self, fingerprint: str) -> Table | None:
        """The table as it was when it had this fingerprint, before rows were appended; None if it never had."""
        earlier = fingerprints(self.pieces)
        return Table.of(self.pieces[: 1 + earlier.index(fingerprint)]) if fingerprint in earlier else None

    def read(self, start: int = 0, stop: int | None = None) -> Rows:
        """Rows start..stop-1. Raises DataError if a file cannot be read, IndexError outside 0..n_rows."""
        stop = self.n_rows if stop is None else stop
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start}..{stop} of a table of {self.n_rows}")
        if len(self.pieces) == 1:
            return self.pieces[0].read(start, stop)
        read, first = [], 0
        for piece in self.pieces:
            low, high = max(start - first, 0), min(stop - first, piece.n_rows)
            if low < high:
                read.append(in_columns(piece.read(low, high), piece.columns, self.columns))
            first += piece.n_rows
        return read[0] if len(read) == 1 else Rows.concatenate(self.columns, read)

    @property
    def weight(self) -> str | None:
        """Name of the source's column of survey weights; None if it has none."""
        return self.source.get("weight")

    def weights(self) -> np.ndarray:
        """Survey weights of all rows, (N,) float64, finite and non-negative, if the table has weights. Raises
        DataError. They are not part of the fingerprint, since no fit depends on them."""
        weights = np.concatenate([piece.weights() for piece in self.pieces])
        if not weights.max() > 0.0:
            raise DataError(f"{self.path}: damaged table: all weights are 0")
        return weights

    def slices(self, step: int | None = None) -> Iterator[Rows]:
        """Yield all rows, `step` at a time (default: slice_rows)."""
        step = step or slice_rows(self.columns)
        for start in range(0, self.n_rows, step):
            yield self.read(start, min(start + step, self.n_rows))


def check_table_name(path: Path) -> None:
    """Raise ConfigError if a name suggests something other than a table, such as a CSV file."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path}: a typed table is HDF5; expected a name that ends in {' or '.join(SUFFIXES)}")


@dataclass
class TableWriter:
    """Writes a table of a known number of rows batch by batch; the final name appears at the end or never.

    with TableWriter(path, columns, n_rows) as writer:
        writer.write(rows)          # in row order, n_rows in all; with weights if `source` names their column
    table = writer.table

    Columns' statistics are computed here. before_named: called with the complete table under its temporary name, which
    is removed if this raises. Raises ConfigError if `path` exists and `overwrite` is not set, DataError if it cannot be
    written, CheckpointError if the disk is full (the temporary file is then removed).
    """

    path: Path
    columns: Sequence[Column]
    n_rows: int
    overwrite: bool = False
    source: Mapping = field(default_factory=dict)
    follows: str = ""  # fingerprint of the table that these rows continue, as a later part
    table: Table | None = None
    before_named: Callable[[Table], None] | None = None

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        if self.n_rows < 1:
            raise DataError(f"{self.path}: a table needs at least one row")
        if not self.columns:
            raise DataError(f"{self.path}: a table needs at least one column")

    def __enter__(self) -> TableWriter:
        check_target(self.path, self.overwrite, TYPED, otherwise=DataError)
        _remove_left_overs(self.path)
        self._check_space()
        self._done, self._writing = 0, self._written()
        next(self._writing)
        return self

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            next(self._writing, None)
        else:
            self._writing.close()

    def _written(self) -> Iterator[None]:
        """Make the table, from an empty temporary file to its final name; rows are written at its `yield`."""
        with contextlib.ExitStack() as turn:
            with writing(self.path, DataError), self._kept(), replacing(self.path, new=bool(self.follows)) as out:
                with writing_h5(out) as (self._file, self._check):
                    for block, width in block_widths(self.columns).items():
                        if width:
                            self._file.create_dataset(block, (self.n_rows, width), BLOCKS[block], fillvalue=None)
                    if self._weighted:
                        self._file.create_dataset("weights", (self.n_rows,), np.float64, fillvalue=None)
                    self._check()
                    yield
                    if self._done != self.n_rows:
                        raise DataError(
                            f"{self.path}: {self._done:,} rows instead of the {self.n_rows:,} announced; did the "
                            "source change?"
                        )
                    self._file.flush()
                    self._check()
                    columns, fingerprint, apart = self._finish()
                append_seal(out, apart)
                if self.before_named is not None:
                    out.flush()
                    self.before_named(Table(Path(out.name), self.n_rows, columns, fingerprint, dict(self.source)))
                if not self.overwrite and self.path.exists():
                    raise FileExistsError
                if self.overwrite:
                    turn.enter_context(in_turn(self.path))
            if self.overwrite:
                _remove_later_parts(self.path)
        self.table = Table(self.path, self.n_rows, columns, fingerprint, dict(self.source))

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            advice = "; its rows were appended first: run the same command again" if self.follows else "; it is kept"
            raise ConfigError(f"{self.path}: appeared while the table was written{advice}") from None

    @property
    def _weighted(self) -> bool:
        return self.source.get("weight") is not None

    def _check_space(self) -> None:
        itemsize = {block: np.dtype(dtype).itemsize for block, dtype in BLOCKS.items()}
        need = self.n_rows * (sum(itemsize[c.block] for c in self.columns) + 8 * self._weighted)
        with writing(self.path, DataError):
            free = shutil.disk_usage(self.path.parent).free
        if need > free:
            raise CheckpointError(
                f"{self.path}: cannot be written: it needs {need / 1e6:,.1f} MB of disk, and {free / 1e6:,.1f} MB are "
                f"free in {self.path.parent}; free some space, or name another place"
            )

    def write(self, rows: Rows, weights: np.ndarray | None = None) -> None:
        stop = self._done + len(rows)
        if stop > self.n_rows:
            raise DataError(f"{self.path}: more rows than the {self.n_rows:,} announced; did the source change?")
        for block in BLOCKS:
            if getattr(rows, block).size:
                self._file[block].write_direct(getattr(rows, block), dest_sel=np.s_[self._done : stop])
        if self._weighted:
            self._file["weights"][self._done : stop] = weights
        with writing(self.path, DataError):
            self._check()
        self._done = stop

    def _finish(self) -> tuple[tuple[Column, ...], str, list[tuple[int, int]]]:
        """Write all but the rows; return the columns with statistics, the fingerprint, and the byte ranges of the
        blocks."""
        digests = {block: hashlib.sha256() for block in BLOCKS}
        columns = summarise(self.columns, self._read_back(digests))
        entries = [asdict(c) | {"n_levels": len(c.levels)} for c in columns]
        for number, entry in enumerate(entries):
            for name in (*OF_A_RUN, *(() if entry["ends"] else ("ends",))):
                del entry[name]
            levels, ordered = entry.pop("levels"), entry.pop("ordered")
            if levels:
                texts = {"data": list(levels), "dtype": h5py.string_dtype("utf-8")}
                data = self._file.create_dataset(f"levels/{number}", **texts)
                if ordered is not None:
                    data.attrs["ordered"] = ordered
        self._file["columns"] = json.dumps(entries, ensure_ascii=False)
        self._file["source"] = json_text(dict(self.source))
        content = [[c.name, c.kind, list(c.levels), c.resolution, list(c.atoms), c.log] for c in columns]
        content += [[c.name, *c.ends] for c in columns if c.ends]
        content.append([self.n_rows, *(d.hexdigest() for d in digests.values())])
        fingerprint = hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()
        self._file.attrs.update(
            format=FORMAT, version=VERSION, n_rows=self.n_rows, fingerprint=fingerprint, created_by=created_by()
        )
        if self.follows:
            self._file.attrs["follows"] = self.follows
        blocks = (self._file[block] for block in (*BLOCKS, "weights") if block in self._file)
        return columns, fingerprint, [extent(data, 0, len(data)) for data in blocks]

    def _read_back(self, digests: dict) -> Iterator[Rows]:
        """Read back the written rows in our own slices: fingerprint and statistics do not depend on the batches."""
        step = slice_rows(self.columns)
        for start in range(0, self.n_rows, step):
            rows = Rows.empty(self.columns, min(step, self.n_rows - start))
            read_rows(self._file, rows, start)
            for block, digest in digests.items():
                digest.update(getattr(rows, block))
            yield rows


def _remove_left_overs(table: Path) -> None:
    """Remove temporary files of killed imports, which may be as large as a table. Those that cannot be removed are
    left.

    Only their age counts: host name and process id may also belong to a live import in another container.
    """
    ours = re.compile(re.escape(table.name) + r"\.[0-9a-f]{16}" + re.escape(TEMPORARY))
    with contextlib.suppress(OSError):
        for path in table.parent.iterdir():
            with contextlib.suppress(OSError):
                if ours.fullmatch(path.name) and time.time() - path.lstat().st_mtime > LEFT_OVER_S:
                    path.unlink()


def _remove_later_parts(table: Path) -> None:
    """Remove parts that were appended to a replaced table. Those that cannot be read or removed are left, and refused
    when the table is opened."""
    for _, path in later_parts(table):
        with contextlib.suppress(OSError, DataError):
            if Piece.open(path).follows:
                path.unlink()


def write_table(
    path: str | os.PathLike,
    columns: Sequence[Column],
    rows: Rows,
    *,
    overwrite: bool = False,
    source: Mapping | None = None,
    weights: np.ndarray | None = None,
) -> Table:
    """Write a table that is in memory; see TableWriter. weights (N,): if `source` names their column."""
    with TableWriter(Path(path), columns, len(rows), overwrite, source or {}) as writer:
        writer.write(rows, weights)
    return writer.table


def created_by() -> str:
    """Name and version of this program, for a file's attributes."""
    import mpibayes

    return f"mpibayes {getattr(mpibayes, '__version__', '')}".strip()
