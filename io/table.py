"""The typed table: columns of codes, reals and counts in one HDF5 file, written once and read in slices.

File layout (format "mpibayes-table", version 1; all datasets contiguous, row-major, absent when they have no column):

    codes8   (N, C8)  uint8     categorical and boolean columns of at most 255 levels: code 0..V-1, missing = V
    codes16  (N, C16) uint16    categorical columns of 256 to 65,535 levels, coded likewise
    reals    (N, R)   float64   real columns, missing = NaN
    tallies  (N, Q)   float64   count columns: non-negative integers below 2^53, missing = NaN
    columns  JSON text          one object a column, in schema order
    source   JSON text          how the source was read (column names, delimiter, missing markers), for later files
    levels/<column number>      variable-length UTF-8 strings, in code order

The file is sealed (`io/seal.py`): what was read is what was written, or a DataError.

Writing goes to a temporary name beside the target, to the disk, and then under the final name, so a file under its
final name is whole. Reading needs no locks (`locking=False`), which some network file systems do not have.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import h5py
import numpy as np

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.files import HDF5, first_bytes, reading, sync_directory
from mpibayes.io.seal import Seal, append_seal

FORMAT = "mpibayes-table"
VERSION = 1
SUFFIXES = (".h5", ".hdf5")
KINDS = ("categorical", "boolean", "real", "count")
BLOCKS = {"codes8": np.uint8, "codes16": np.uint16, "reals": np.float64, "tallies": np.float64}
ARRAYS = (*BLOCKS, "vectors")  # of Rows
MAX_LEVELS = 65_535
MAX_COUNT = 2.0**53  # above this float64 no longer holds every integer
SLICE_ROWS = 65_536
SLICE_BYTES = 16 << 20
LEFT_OVER_S = 86_400.0  # a temporary file that nobody has written to for so long is a dead import's


@dataclass(frozen=True)
class Column:
    """One column of a typed table: what it is, where it lies, and its summary over all rows."""

    name: str
    kind: str
    block: str
    index: int
    levels: tuple[str, ...] = ()
    n_missing: int = 0
    center: float = 0.0
    scale: float = 1.0
    minimum: float = 0.0
    maximum: float = 0.0


@dataclass
class Rows:
    """Some rows of a table: C-contiguous arrays of the same length, possibly with zero columns.

    codes8 (n, C8) uint8, codes16 (n, C16) uint16, reals (n, R) float64, tallies (n, Q) float64. A run that models
    blocks of real columns jointly has these in vectors (n, sum of widths) float64, the columns of a block side by side,
    and widths (B,) int64; there are none on disk.
    """

    codes8: np.ndarray
    codes16: np.ndarray
    reals: np.ndarray
    tallies: np.ndarray
    vectors: np.ndarray | None = None
    widths: np.ndarray | None = None

    def __post_init__(self):
        if self.vectors is None:
            self.vectors, self.widths = np.empty((len(self.codes8), 0)), np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.codes8)

    def take(self, index: np.ndarray | slice) -> Rows:
        """The chosen rows, copied."""
        return self._alike(lambda array: np.array(array[index], order="C"))

    def without_cells(self) -> Rows:
        """As many rows of no columns."""
        return Rows(*(np.empty((len(self), 0), dtype) for dtype in BLOCKS.values()))

    def _alike(self, change: Callable[[np.ndarray], np.ndarray]) -> Rows:
        return Rows(*(change(getattr(self, b)) for b in ARRAYS), self.widths)

    @classmethod
    def empty(cls, columns: Sequence[Column], n: int) -> Rows:
        """Arrays of the right shapes for `n` rows of `columns`; their content is arbitrary."""
        widths = block_widths(columns)
        return cls(*(np.empty((n, widths[block]), dtype) for block, dtype in BLOCKS.items()))

    @classmethod
    def concatenate(cls, columns: Sequence[Column], parts: Sequence[Rows]) -> Rows:
        if not parts:
            return cls.empty(columns, 0)
        return cls(*(np.concatenate([getattr(p, b) for p in parts]) for b in ARRAYS), parts[0].widths)


def block_widths(columns: Iterable[Column]) -> dict[str, int]:
    """Number of columns in each block."""
    widths = dict.fromkeys(BLOCKS, 0)
    for column in columns:
        widths[column.block] += 1
    return widths


def slice_rows(columns: Iterable[Column]) -> int:
    """Rows that are worked on at a time: at most SLICE_ROWS, and SLICE_BYTES in a wide table."""
    row_bytes = sum(np.dtype(BLOCKS[c.block]).itemsize for c in columns)
    return max(1, min(SLICE_ROWS, SLICE_BYTES // max(row_bytes, 1)))


def place_columns(kinds: Iterable[tuple[str, str, Sequence[str]]]) -> tuple[Column, ...]:
    """Columns (name, kind, levels) in schema order, each given its block and its position there."""
    columns: list[Column] = []
    widths = dict.fromkeys(BLOCKS, 0)
    for name, kind, levels in kinds:
        block = {"real": "reals", "count": "tallies"}.get(kind, "codes8" if len(levels) <= 255 else "codes16")
        columns.append(Column(name, kind, block, widths[block], tuple(levels)))
        widths[block] += 1
    return tuple(columns)


def summarise(columns: Sequence[Column], slices: Iterable[Rows]) -> tuple[Column, ...]:
    """The columns with n_missing, center, scale, minimum and maximum of the observed cells of `slices`.

    Means and sums of squares of the slices are merged by Chan, Golub & LeVeque (1979). The result depends on how the
    rows are cut, so callers cut as slice_rows says, whatever the batches that they come in.
    """
    widths = block_widths(columns)
    missing = {block: np.zeros(width, np.int64) for block, width in widths.items()}
    moments = {block: _Moments(widths[block]) for block in ("reals", "tallies")}
    blank = {
        block: np.array([len(c.levels) for c in columns if c.block == block], dtype=BLOCKS[block])
        for block in ("codes8", "codes16")
    }
    for rows in slices:
        for block in ("codes8", "codes16"):
            missing[block] += (getattr(rows, block) == blank[block]).sum(axis=0)
        for block, moment in moments.items():
            missing[block] += moment.add(getattr(rows, block))
    result = []
    for column in columns:
        change: dict[str, float] = {"n_missing": int(missing[column.block][column.index])}
        if column.block in moments:
            change |= moments[column.block].of(column.index)
        result.append(replace(column, **change))
    return tuple(result)


class _Moments:
    """Count, mean, sum of squares about the mean, minimum and maximum of each column; NaN cells are skipped."""

    def __init__(self, width: int):
        self.n = np.zeros(width)
        self.mean = np.zeros(width)
        self.scatter = np.zeros(width)
        self.minimum = np.full(width, np.inf)
        self.maximum = np.full(width, -np.inf)

    def add(self, x: np.ndarray) -> np.ndarray:
        """Adds the rows of `x` (n, width); returns the number of missing cells a column."""
        seen = ~np.isnan(x)
        n = seen.sum(axis=0).astype(float)
        if x.size:
            mean = np.where(seen, x, 0.0).sum(axis=0) / np.maximum(n, 1)
            scatter = (np.where(seen, x - mean, 0.0) ** 2).sum(axis=0)
            total = np.maximum(self.n + n, 1)
            shift = mean - self.mean
            self.scatter += scatter + shift**2 * self.n * n / total
            self.mean += shift * n / total
            self.n += n
            self.minimum = np.minimum(self.minimum, np.where(seen, x, np.inf).min(axis=0))
            self.maximum = np.maximum(self.maximum, np.where(seen, x, -np.inf).max(axis=0))
        return len(x) - n.astype(np.int64)

    def of(self, i: int) -> dict[str, float]:
        if self.n[i] == 0:
            return {}
        scale = float(np.sqrt(self.scatter[i] / self.n[i]))
        return {
            "center": float(self.mean[i]),
            "scale": scale if scale > 0 else 1.0,
            "minimum": float(self.minimum[i]),
            "maximum": float(self.maximum[i]),
        }


def table_from_arrays(
    columns: Sequence[tuple[str, str, np.ndarray, Sequence[str] | None]],
) -> tuple[tuple[Column, ...], Rows]:
    """A table in memory from (name, kind, values, levels) a column.

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
        if kind in ("real", "count"):
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
    if np.isinf(seen).any():
        raise DataError(f"column '{column.name}': infinite value")
    if column.kind == "count" and ((seen < 0) | (seen != np.floor(seen)) | (seen >= MAX_COUNT)).any():
        raise DataError(f"column '{column.name}': a count must be a non-negative integer below 2^53")
    return values


def check_levels(name: str, kind: str, levels: Sequence[str]) -> None:
    """Raises DataError unless `levels` can be those of a column of this kind."""
    if kind in ("real", "count"):
        return
    if kind == "boolean" and len(levels) != 2:
        raise DataError(f"column '{name}': a boolean column has two levels, found {len(levels)}")
    if not levels:
        raise DataError(f"column '{name}': a categorical column needs at least one level")
    if len(levels) > MAX_LEVELS:
        raise DataError(
            f"column '{name}': {len(levels):,} levels, more than the {MAX_LEVELS:,} a categorical column can have; "
            'leave it out (kind = "ignored" in the schema)'
        )
    if len(set(levels)) != len(levels):
        raise DataError(f"column '{name}': a level is listed twice")
    if any("\0" in level for level in levels):
        raise DataError(f"column '{name}': a level contains a NUL character; is this a text file?")


def slices_of(rows: Rows, step: int) -> Iterator[Rows]:
    """`rows` in slices of `step` rows (views, not copies)."""
    for start in range(0, len(rows), step):
        yield rows._alike(lambda array, start=start: array[start : start + step])


class Table:
    """A typed table on disk: its header in memory, its rows read on demand. Use `Table.open`."""

    def __init__(self, path: Path, n_rows: int, columns: tuple[Column, ...], fingerprint: str, source: dict):
        self.path = path
        self.n_rows = n_rows
        self.columns = columns
        self.fingerprint = fingerprint
        self.source = source

    def __len__(self) -> int:
        return self.n_rows

    @classmethod
    def open(cls, path: str | os.PathLike) -> Table:
        """Reads and checks the header. Raises DataError when `path` is not a whole table of this version."""
        path = Path(path)
        with _reading(path) as file:
            return _read_header(path, file)

    def read(self, start: int = 0, stop: int | None = None) -> Rows:
        """Rows start..stop-1. Raises DataError when the file cannot be read, IndexError outside 0..n_rows."""
        stop = self.n_rows if stop is None else stop
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start}..{stop} of a table of {self.n_rows}")
        rows = Rows.empty(self.columns, stop - start)
        with _reading(self.path) as file:
            if file.attrs.get("fingerprint") != self.fingerprint:
                raise DataError(f"{self.path}: the table was replaced while it was in use")
            for block in BLOCKS:
                if getattr(rows, block).size:
                    Seal.of(self.path).verify(*_extent(file[block], start, stop))
            _read_rows(file, rows, start)
        for block in ("codes8", "codes16"):
            codes = getattr(rows, block)
            top = [len(c.levels) for c in self.columns if c.block == block]
            if codes.size and (codes.max(axis=0) > top).any():
                raise DataError(f"{self.path}: damaged table: a code in '{block}' is larger than its column allows")
        return rows

    def slices(self, step: int | None = None) -> Iterator[Rows]:
        """All rows, `step` at a time (default: slice_rows)."""
        step = step or slice_rows(self.columns)
        for start in range(0, self.n_rows, step):
            yield self.read(start, min(start + step, self.n_rows))


def _read_rows(file: h5py.File, rows: Rows, start: int) -> None:
    for block in BLOCKS:
        target = getattr(rows, block)
        if target.size:
            file[block].read_direct(target, np.s_[start : start + len(rows)])


def _extent(data: h5py.Dataset, start: int, stop: int) -> tuple[int, int]:
    """Where rows start..stop-1 of a contiguous dataset lie in the file."""
    offset, width = data.id.get_offset(), data.shape[1] * data.dtype.itemsize
    return (0, 0) if offset is None else (offset + start * width, offset + stop * width)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[h5py.File]:
    """The open file; every way in which it can fail to be readable becomes one DataError."""
    advice = "expected a typed table made by 'mpibayes import'"
    if first_bytes(path, advice) != HDF5:
        raise DataError(f"{path}: not an HDF5 file; {advice}")
    try:
        seal = Seal.of(path)
        seal.verify_contents()
        with h5py.File(path, "r", locking=False) as file:
            if file.attrs.get("format") == FORMAT:
                seal.require()
            yield file
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        cut = "truncated" in str(error)
        why = "truncated HDF5 file, or changed since its import" if cut else f"damaged HDF5 file ({_reason(error)})"
        raise DataError(f"{path}: {why}; import the table again or copy it again") from error


def _read_header(path: Path, file: h5py.File) -> Table:
    if file.attrs.get("format") != FORMAT:
        raise DataError(f"{path}: an HDF5 file, but no mpibayes table; make one with 'mpibayes import'")
    version = int(file.attrs["version"])
    if version != VERSION:
        raise DataError(
            f"{path}: table version {version}; this program reads version {VERSION}: import the source again"
        )
    n_rows = int(file.attrs["n_rows"])
    if n_rows < 1:
        raise DataError(f"{path}: the table has no rows")
    columns = []
    for number, entry in enumerate(json.loads(file["columns"][()])):
        if entry.pop("n_levels"):
            entry["levels"] = tuple(file[f"levels/{number}"].asstr()[:])
        columns.append(Column(**entry))
    problems = []
    for block, width in block_widths(columns).items():
        found = (file[block].shape, file[block].dtype) if block in file else ((n_rows, 0), np.dtype(BLOCKS[block]))
        if found != ((n_rows, width), np.dtype(BLOCKS[block])):
            expected = f"{(n_rows, width)} {np.dtype(BLOCKS[block])}"
            problems.append(f"dataset '{block}' is {found[0]} {found[1]}, expected {expected}")
    if not columns:
        problems.append("no columns")
    if place_columns((c.name, c.kind, c.levels) for c in columns) != tuple(
        Column(c.name, c.kind, c.block, c.index, c.levels) for c in columns
    ):
        problems.append("the column list and the blocks disagree")
    if problems:
        raise DataError(f"{path}: the table is inconsistent; import the source again", problems)
    source = json.loads(file["source"][()]) if "source" in file else {}
    return Table(path, n_rows, tuple(columns), str(file.attrs["fingerprint"]), source)


def check_table_name(path: Path) -> None:
    """Raises where a name would promise something else than a table, such as a CSV file."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path}: a typed table is HDF5; expected a name that ends in {' or '.join(SUFFIXES)}")


def check_target(path: Path, overwrite: bool) -> None:
    """Raises before any work is done when a new file cannot be put at `path`."""
    with reading(path):
        if path.is_dir():
            raise ConfigError(f"{path}: is a directory; name a file to write")
        if path.exists() and not overwrite:
            raise ConfigError(f"{path}: exists and is kept; choose another name, or replace it with --force")
        if not path.parent.is_dir():
            raise DataError(f"{path}: cannot be written: no directory {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"{path}: cannot be written: no permission to write in {path.parent}")


@dataclass
class TableWriter:
    """Writes a table of a known number of rows batch by batch; the final name appears at the end or never.

    with TableWriter(path, columns, n_rows) as writer:
        writer.write(rows)          # in row order, n_rows in all
    table = writer.table

    Columns' statistics are computed here. Raises ConfigError when `path` exists and `overwrite` is not set, DataError
    when it cannot be written (the temporary file is then removed).
    """

    path: Path
    columns: Sequence[Column]
    n_rows: int
    overwrite: bool = False
    source: Mapping = field(default_factory=dict)
    table: Table | None = None

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        if self.n_rows < 1:
            raise DataError(f"{self.path}: a table needs at least one row")
        if not self.columns:
            raise DataError(f"{self.path}: a table needs at least one column")

    def __enter__(self) -> TableWriter:
        check_target(self.path, self.overwrite)
        _remove_left_overs(self.path)
        with self._explain():
            self._check_space()
        self._temporary = self.path.with_name(f".{self.path.name}.tmp-{secrets.token_hex(8)}")
        self._done = 0
        self._file = None
        try:
            with self._explain():
                self._file = h5py.File(self._temporary, "x")  # as `files.create`: follows no link
                for block, width in block_widths(self.columns).items():
                    if width:
                        self._file.create_dataset(block, (self.n_rows, width), BLOCKS[block], fillvalue=None)
        except BaseException:
            self._discard()
            raise
        return self

    def _check_space(self) -> None:
        itemsize = {block: np.dtype(dtype).itemsize for block, dtype in BLOCKS.items()}
        need = self.n_rows * sum(itemsize[c.block] for c in self.columns)
        free = shutil.disk_usage(self.path.parent).free
        if need > free:
            raise DataError(f"{self.path}: needs {need / 1e6:,.1f} MB of disk, {free / 1e6:,.1f} MB are free")

    def write(self, rows: Rows) -> None:
        stop = self._done + len(rows)
        if stop > self.n_rows:
            raise DataError(f"{self.path}: more rows than the {self.n_rows:,} announced; did the source change?")
        with self._explain():
            for block in BLOCKS:
                if getattr(rows, block).size:
                    self._file[block].write_direct(getattr(rows, block), dest_sel=np.s_[self._done : stop])
        self._done = stop

    def __exit__(self, kind, error, trace) -> None:
        if kind is not None:
            self._discard()
            return
        try:
            if self._done != self.n_rows:
                raise DataError(
                    f"{self.path}: {self._done:,} rows instead of the {self.n_rows:,} announced; did the source change?"
                )
            with self._explain():
                self._finish()
        except BaseException:
            self._discard()
            raise

    def _finish(self) -> None:
        self._file.flush()
        digests = {block: hashlib.sha256() for block in BLOCKS}
        columns = summarise(self.columns, self._read_back(digests))
        entries = [asdict(c) | {"n_levels": len(c.levels)} for c in columns]
        for number, entry in enumerate(entries):
            levels = entry.pop("levels")
            if levels:
                self._file.create_dataset(f"levels/{number}", data=list(levels), dtype=h5py.string_dtype("utf-8"))
        self._file["columns"] = json.dumps(entries, ensure_ascii=False)
        self._file["source"] = json.dumps(dict(self.source), ensure_ascii=False)
        content = [[c.name, c.kind, list(c.levels)] for c in columns]
        content.append([self.n_rows, *(d.hexdigest() for d in digests.values())])
        fingerprint = hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()
        self._file.attrs.update(
            format=FORMAT, version=VERSION, n_rows=self.n_rows, fingerprint=fingerprint, created_by=_created_by()
        )
        blocks = (self._file[block] for block in BLOCKS if block in self._file)
        apart = [_extent(data, 0, len(data)) for data in blocks]
        self._file.close()
        with self._temporary.open("rb+") as raw:
            append_seal(raw, apart)
            raw.flush()
            os.fsync(raw.fileno())
        if not self.overwrite and self.path.exists():
            raise ConfigError(f"{self.path}: appeared while the table was written; it is kept")
        os.replace(self._temporary, self.path)
        sync_directory(self.path.parent)
        self.table = Table(self.path, self.n_rows, columns, fingerprint, dict(self.source))

    def _read_back(self, digests: dict) -> Iterator[Rows]:
        """What was written, in slices of our own: fingerprint and statistics do not depend on the batches."""
        step = slice_rows(self.columns)
        for start in range(0, self.n_rows, step):
            rows = Rows.empty(self.columns, min(step, self.n_rows - start))
            _read_rows(self._file, rows, start)
            for block, digest in digests.items():
                digest.update(getattr(rows, block))
            yield rows

    def _discard(self) -> None:
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            if self._file is not None:
                self._file.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink()

    @contextlib.contextmanager
    def _explain(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise DataError(f"{self.path}: cannot be written: {_reason(error)}") from error


def _remove_left_overs(table: Path) -> None:
    """Temporary files of imports that were killed: they may be as large as a table. What cannot be removed is left.

    Only their age tells: host name and process id are those of a live import, too, in another container.
    """
    ours = re.compile(re.escape(f".{table.name}.tmp-") + "[0-9a-f]{16}")
    with contextlib.suppress(OSError):
        for path in table.parent.iterdir():
            with contextlib.suppress(OSError):
                if ours.fullmatch(path.name) and time.time() - path.lstat().st_mtime > LEFT_OVER_S:
                    path.unlink()


def write_table(
    path: str | os.PathLike,
    columns: Sequence[Column],
    rows: Rows,
    *,
    overwrite: bool = False,
    source: Mapping | None = None,
) -> Table:
    """Writes a table that is in memory; see TableWriter."""
    with TableWriter(Path(path), columns, len(rows), overwrite, source or {}) as writer:
        writer.write(rows)
    return writer.table


def _reason(error: Exception) -> str:
    """The operating system's words out of an HDF5 message that buries them."""
    text = str(error)
    found = re.search(r"error message = '([^']+)'", text)
    if found:
        return found.group(1)
    return getattr(error, "strerror", None) or text.splitlines()[0] if text else type(error).__name__


def _created_by() -> str:
    import mpibayes

    return f"mpibayes {getattr(mpibayes, '__version__', '')}".strip()
