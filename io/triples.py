"""Files of (row, column, value) triples, a chunk at a time: UCI bags of words, Matrix Market, SciPy's npz, and text
with three or four fields a line. What is wrong is reported with its line.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.dialect import MAX_PROBLEMS, MAX_ROW_BYTES, UNREADABLE
from mpibayes.io.files import first_line, open_regular, reading
from mpibayes.io.packing import decompressed
from mpibayes.io.sparse import MAX_COUNT
from mpibayes.text import counted

BLOCK_BYTES = 1 << 22  # of text that is parsed at a time
CHUNK = 1 << 20  # entries of an npz file that are read at a time
SEPARATORS = ("::", "\t", ";", ",", "|", " ")
UNIT = b"\x1f"  # stands for a separator of two characters
MOST_IDS = (1 << 31) - 1


@dataclass
class Chunk:
    """Some entries: rows, columns int64 from 0, values float64, times float64 or None; (e,) each."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    times: np.ndarray | None = None


@dataclass
class Triples:
    """A source. format: in words. names: of rows, columns, values, and times where it has them. shape: rows and columns
    as the source announces them, (0, 0) where it does not. row_ids, column_ids: filled while chunks are read, None for
    a source that has numbers alone."""

    path: Path
    format: str
    names: tuple[str, ...]
    chunks: Callable[[], Iterator[Chunk]]
    shape: tuple[int, int] = (0, 0)
    row_ids: dict[str, int] | None = None
    column_ids: dict[str, int] | None = None

    @property
    def timed(self) -> bool:
        return len(self.names) == 4


def look(
    path: Path, delimiter: str | None, header: bool | None, names: Sequence[str] | None, encoding: str | None
) -> Triples:
    """What a file is, by its beginning. Raises ConfigError or DataError."""
    with reading(path), open_regular(path) as raw:
        if raw.read(4) == b"PK\x03\x04":
            return _look_npz(path)
    lines = []
    for _, block in whole_lines(path, 1 << 16):
        lines = block.split(b"\n")
        break
    head = [line.strip() for line in lines if line.strip()][:4]
    if not head:
        raise DataError(f"{path}: is empty")
    if head[0].lower().startswith(b"%%matrixmarket"):
        return _look_matrix_market(path, head[0])
    if len(head) > 2 and all(line.isdigit() for line in head[:3]) and delimiter is None:
        return _look_docword(path, [int(line) for line in head[:3]])
    return _look_text(path, head, delimiter, header, names, encoding or "utf-8")


# --- lines ------------------------------------------------------------------------------------------------------------


def whole_lines(path: Path, size: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """(number of its first line, from 1; about `size` bytes that end with a line) of a file, unpacked."""
    line, rest = 1, b""
    with reading(path), open_regular(path) as raw:
        try:
            stream = decompressed(raw)
            while more := stream.read(size):
                cut = more.rfind(b"\n") + 1
                if not cut:
                    rest += more
                    if len(rest) > MAX_ROW_BYTES:
                        raise DataError(f"{path}: line {line:,} is longer than {MAX_ROW_BYTES >> 20} MiB")
                    continue
                block, rest = rest + more[:cut], more[cut:]
                yield line, block
                line += block.count(b"\n")
        except UNREADABLE as error:
            raise DataError(f"{path}: cannot be read: {first_line(error)}") from error
    if rest:
        yield line, rest


def _refuse(path: Path, first: int, block: bytes, separator: str | None, problem: Callable[[list[str]], str]) -> None:
    """DataError with the lines of a block that have a problem; none where all is well."""
    found = []
    for number, line in enumerate(block.decode("utf-8", "replace").split("\n"), first):
        line = line.rstrip("\r")
        if line.strip() and (words := problem(_fields(line, separator))):
            found.append(f"line {number:,}: {words}: {line[:60]!r}")
            if len(found) == MAX_PROBLEMS:
                break
    if found:
        raise DataError(f"{path}: lines that cannot be read", found)


def _fields(line: str, separator: str | None) -> list[str]:
    if separator is None:
        return line.split()
    return line.split(separator) if len(separator) > 1 else next(csv.reader([line], delimiter=separator))


def value_problem(text: str) -> str:
    """What is wrong with a value; "" if nothing is."""
    try:
        value = float(text)
    except ValueError:
        return f"expected a number, got {text.strip()!r}"
    return _wrong_value(value)


def _wrong_value(value: float) -> str:
    if not np.isfinite(value):
        return f"expected a finite number, got {value}"
    return f"{value:g} is {MAX_COUNT:,} or more, too large to be exact" if abs(value) >= MAX_COUNT else ""


def _bad_values(values: np.ndarray) -> bool:
    return bool(len(values)) and not (np.abs(values) < MAX_COUNT).all()


# --- numbered triples: bags of words and Matrix Market ----------------------------------------------------------------


@dataclass
class _Numbered:
    """Lines "row column value", numbered from 1, after some lines that are skipped."""

    path: Path
    skipped: int
    shape: tuple[int, int]
    n_entries: int
    fields: int = 3
    what: tuple[str, str] = ("row", "column")

    def __call__(self) -> Iterator[Chunk]:
        done, left = 0, self.skipped
        for first, block in whole_lines(self.path):
            while left and block:
                _, _, block = block.partition(b"\n")
                left, first = left - 1, first + 1
            if not block.strip():
                continue
            chunk = self._parsed(first, block)
            done += len(chunk.rows)
            yield chunk
        if done != self.n_entries:
            raise DataError(
                f"{self.path}: has {counted(done, 'entry', 'entries')}, but its head announces {self.n_entries:,}; is "
                "the file whole?"
            )

    def _parsed(self, first: int, block: bytes) -> Chunk:
        names = ["row", "column", "value"][: self.fields]
        try:
            table = pa.csv.read_csv(
                io.BytesIO(block),
                pa.csv.ReadOptions(use_threads=False, column_names=names, block_size=len(block) + 1),
                pa.csv.ParseOptions(delimiter=" ", quote_char=False),
                pa.csv.ConvertOptions(
                    column_types={"row": pa.int64(), "column": pa.int64(), "value": pa.float64()}, null_values=[]
                ),
            )
            rows, columns, *values = (table.column(name).to_numpy() for name in names)
        except pa.ArrowException:  # several blanks, or something else
            rows, columns, values = self._slowly(first, block)
        values = values[0] if values else np.ones(len(rows))
        n, v = self.shape
        if _bad_values(values) or _outside(rows, n) or _outside(columns, v):
            _refuse(self.path, first, block, None, self._problem)
        return Chunk(rows - 1, columns - 1, values)

    def _slowly(self, first: int, block: bytes):
        try:
            numbers = np.array(block.split(), np.float64).reshape(-1, self.fields)
            if (numbers[:, :2] % 1).any():
                raise ValueError
        except ValueError:
            _refuse(self.path, first, block, None, self._problem)
            raise
        if len(numbers) != sum(1 for line in block.split(b"\n") if line.strip()):
            _refuse(self.path, first, block, None, self._problem)
        return (
            numbers[:, 0].astype(np.int64),
            numbers[:, 1].astype(np.int64),
            [numbers[:, 2]] if self.fields > 2 else [],
        )

    def _problem(self, fields: list[str]) -> str:
        if len(fields) != self.fields:
            return f"{counted(len(fields), 'field')}, expected {self.fields}"
        for text, many, what in zip(fields, self.shape, self.what):
            if not text.isdigit() or not 1 <= int(text) <= many:
                return f"{what} {text}: expected a whole number from 1 to {many:,}"
        return value_problem(fields[2]) if self.fields > 2 else ""


def _outside(ids: np.ndarray, many: int) -> bool:
    return bool(len(ids)) and not (ids.min() >= 1 and ids.max() <= many)


def _look_docword(path: Path, head: list[int]) -> Triples:
    n, v, e = head
    _require_shape(path, n, v)
    chunks = _Numbered(path, 3, (n, v), e, what=("document", "word"))
    return Triples(path, "UCI bag of words", ("document", "word", "count"), chunks, (n, v))


def _look_matrix_market(path: Path, head: bytes) -> Triples:
    words = head.decode("ascii", "replace").lower().split()
    if len(words) != 5 or words[1:3] != ["matrix", "coordinate"] or words[3] not in ("integer", "real", "pattern"):
        raise DataError(
            f"{path}: line 1: expected '%%MatrixMarket matrix coordinate integer|real|pattern general', got "
            f"{head.decode('ascii', 'replace')[:80]!r}"
        )
    if words[4] != "general":
        raise DataError(f"{path}: line 1: a {words[4]} matrix; expected a general one, of documents and words say")
    number = 0
    for first, block in whole_lines(path, 1 << 16):
        for number, line in enumerate(block.split(b"\n"), first):
            if line.strip() and not line.startswith(b"%"):
                size = line.split()
                if len(size) != 3 or not all(text.isdigit() for text in size):
                    raise DataError(f"{path}: line {number:,}: expected numbers of rows, columns and entries")
                n, v, e = (int(text) for text in size)
                _require_shape(path, n, v)
                chunks = _Numbered(path, number, (n, v), e, 2 if words[3] == "pattern" else 3)
                return Triples(path, "Matrix Market", ("row", "column", "value"), chunks, (n, v))
    raise DataError(f"{path}: ends before the numbers of rows, columns and entries")


def _require_shape(path: Path, n: int, v: int) -> None:
    if not (1 <= n <= MOST_IDS and 1 <= v <= MOST_IDS):
        raise DataError(f"{path}: {n:,} rows and {v:,} columns; expected from 1 to {MOST_IDS:,} of each")


# --- text -------------------------------------------------------------------------------------------------------------


@dataclass
class _Text:
    """Lines of three or four fields: two ids, a value, and a time."""

    path: Path
    separator: str
    skipped: int
    fields: int
    encoding: str
    row_ids: dict[str, int] = field(default_factory=dict)
    column_ids: dict[str, int] = field(default_factory=dict)

    def __call__(self) -> Iterator[Chunk]:
        left = self.skipped
        for first, block in whole_lines(self.path):
            while left and block:
                _, _, block = block.partition(b"\n")
                left, first = left - 1, first + 1
            if block.strip():
                yield self._parsed(first, block)

    def _parsed(self, first: int, block: bytes) -> Chunk:
        if self.encoding != "utf-8":
            block = block.decode(self.encoding, "strict").encode()
        names = ["row", "column", "value", "time"][: self.fields]
        text = block.replace(self.separator.encode(), UNIT) if len(self.separator) > 1 else block
        kinds = {"row": pa.dictionary(pa.int32(), pa.string()), "column": pa.dictionary(pa.int32(), pa.string())}
        try:
            table = pa.csv.read_csv(
                io.BytesIO(text),
                pa.csv.ReadOptions(use_threads=False, column_names=names, block_size=len(text) + 1),
                pa.csv.ParseOptions(delimiter=UNIT.decode() if len(self.separator) > 1 else self.separator),
                pa.csv.ConvertOptions(
                    column_types=kinds | {"value": pa.float64(), "time": pa.float64()}, null_values=[],
                    strings_can_be_null=False,
                ),
            ).combine_chunks()  # fmt: skip
        except pa.ArrowException as error:
            self._refuse(first, block)
            raise DataError(f"{self.path}: cannot be read from line {first:,} on: {first_line(error)}") from error
        rows = _numbered(table.column("row"), self.row_ids)
        columns = _numbered(table.column("column"), self.column_ids)
        values = table.column("value").to_numpy()
        times = table.column("time").to_numpy() if self.fields > 3 else None
        if _bad_values(values) or "" in self.row_ids or "" in self.column_ids:
            self._refuse(first, block)
        return Chunk(rows, columns, values, times)

    def _refuse(self, first: int, block: bytes) -> None:
        _refuse(self.path, first, block, self.separator, self._problem)

    def _problem(self, fields: list[str]) -> str:
        if len(fields) != self.fields:
            return f"{counted(len(fields), 'field')}, expected {self.fields}"
        if not fields[0].strip() or not fields[1].strip():
            return "an id is missing"
        if words := value_problem(fields[2]):
            return words
        try:
            float(fields[-1])
        except ValueError:
            return f"expected a time as a number, got {fields[3].strip()!r}"
        return ""


def _numbered(column, ids: dict[str, int]) -> np.ndarray:
    """Numbers of a dictionary column's texts, those that are new after the others."""
    parts = []
    for chunk in column.chunks:
        known = [ids.setdefault(text.strip(), len(ids)) for text in chunk.dictionary.to_pylist()]
        parts.append(np.array(known, np.int64)[chunk.indices.to_numpy(zero_copy_only=False)])
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _look_text(
    path: Path,
    head: list[bytes],
    delimiter: str | None,
    header: bool | None,
    names: Sequence[str] | None,
    encoding: str,
) -> Triples:
    try:
        lines = [line.decode(encoding) for line in head]
    except (UnicodeDecodeError, LookupError) as error:
        raise DataError(f"{path}: cannot be read as {encoding}; see --encoding") from error
    lines[0] = lines[0].removeprefix("\ufeff")
    last = lines[-1]
    separator = delimiter or next((s for s in SEPARATORS if len(_fields(last, s)) in (3, 4)), None)
    n = len(_fields(last, separator)) if separator else 0
    if n not in (3, 4):
        raise DataError(
            f"{path}: expected lines of three or four fields (document, word, count; or user, item, rating, time), "
            f"with a comma, tab, semicolon or '::' between them; got {last[:60]!r}"
        )
    first = _fields(lines[0], separator)
    if header is None:
        header = len(first) == n and bool(value_problem(first[2]))
    if names is not None and len(names) != n:
        raise ConfigError(f"--names: {counted(len(names), 'name')} given, but {path} has {n} fields a line")
    given = tuple(names or ([text.strip() for text in first] if header else ("row", "column", "value", "time")[:n]))
    chunks = _Text(path, separator, int(header), n, encoding)
    shown = {"\t": "tab", " ": "blank"}.get(separator, repr(separator))
    words = f"text with {shown} between fields, {'first line taken as header' if header else 'no header'}"
    return Triples(path, words, given, chunks, row_ids=chunks.row_ids, column_ids=chunks.column_ids)


# --- SciPy's npz ------------------------------------------------------------------------------------------------------


def _look_npz(path: Path) -> Triples:
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            if not {"format.npy", "shape.npy", "data.npy"} <= names:
                raise DataError(f"{path}: no sparse matrix as scipy.sparse.save_npz writes it")
            kind = bytes(_array(archive, "format").tobytes()).rstrip(b"\0").decode()
            n, v = (int(x) for x in _array(archive, "shape"))
    except (zipfile.BadZipFile, OSError, ValueError, KeyError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if kind not in ("csr", "coo"):
        raise DataError(f"{path}: a matrix in the form {kind!r}; expected csr or coo (`.tocsr()` in SciPy)")
    _require_shape(path, n, v)
    return Triples(path, f"SciPy npz ({kind})", ("row", "column", "value"), lambda: _npz(path, kind, n, v), (n, v))


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _stream(archive: zipfile.ZipFile, name: str) -> Iterator[np.ndarray]:
    """An array of one axis, a chunk at a time."""
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(file)
        left = int(shape[0])
        while left:
            n = min(left, CHUNK)
            yield np.frombuffer(file.read(n * kind.itemsize), kind, n)
            left -= n


def _npz(path: Path, kind: str, n: int, v: int) -> Iterator[Chunk]:
    try:
        with zipfile.ZipFile(path) as archive:
            starts = _array(archive, "indptr").astype(np.int64) if kind == "csr" else None
            names = ("indices", "data") if kind == "csr" else ("row", "col", "data")
            at = 0
            for parts in zip(*(_stream(archive, name) for name in names), strict=True):
                *ids, values = parts
                if starts is not None:
                    place = np.arange(at, at + len(values))
                    rows = np.searchsorted(starts, place, side="right") - 1
                    columns = ids[0].astype(np.int64)
                else:
                    rows, columns = (x.astype(np.int64) for x in ids)
                values = values.astype(np.float64)
                bad = np.flatnonzero(
                    ~(np.abs(values) < MAX_COUNT) | (rows < 0) | (rows >= n) | (columns < 0) | (columns >= v)
                )
                if len(bad):
                    i = bad[0]
                    what = _wrong_value(values[i]) or f"row {rows[i]}, column {columns[i]} of {n:,} by {v:,}"
                    raise DataError(f"{path}: entry {at + i + 1:,}: {what}")
                at += len(values)
                yield Chunk(rows, columns, values)
    except (zipfile.BadZipFile, OSError, ValueError, KeyError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
