"""Files of (row, column, value) triples, a chunk at a time: UCI bags of words, Matrix Market, SciPy's npz, and text
with three or four fields per line. Problems are reported with their line.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.dialect import MAX_PROBLEMS, MAX_ROW_BYTES, UNREADABLE
from mpibayes.io.encode import NUMBER
from mpibayes.io.files import first_line, open_regular, reading
from mpibayes.io.packing import decompressed
from mpibayes.io.sparse import MAX_COUNT
from mpibayes.text import counted

BLOCK_BYTES = 1 << 22  # of text parsed at a time
SEPARATORS = ("::", "\t", ";", ",", "|", " ")
UNIT = b"\x1f"  # replaces a separator of two characters
MOST_IDS = (1 << 31) - 1
COUNTS = re.compile(r"(counts?|n|num(ber)?|freq(uency)?|tf|occurrences)$", re.IGNORECASE)  # names of additive values


@dataclass
class Chunk:
    """Some entries: rows, columns int64 from 0, values float64, times float64 or None; (e,) each."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    times: np.ndarray | None = None


@dataclass
class Triples:
    """A source. format: in words. names: of rows, columns, values, and times if it has them. shape: announced numbers
    of rows and columns, (0, 0) if none. row_ids, column_ids: filled while chunks are read, None for a source with only
    numbers. adds: True if the values of equal pairs are counts to be added up."""

    path: Path
    format: str
    names: tuple[str, ...]
    chunks: Callable[[], Iterator[Chunk]]
    shape: tuple[int, int] = (0, 0)
    row_ids: dict[str, int] | None = None
    column_ids: dict[str, int] | None = None
    adds: bool = True

    @property
    def timed(self) -> bool:
        return len(self.names) == 4


# --- lines ------------------------------------------------------------------------------------------------------------


def whole_lines(path: Path, encoding: str, size: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, from 1; about `size` bytes of UTF-8 that end with a line) of a file, unpacked.
    Lines may also end with only a carriage return, as on old Macs."""
    line, rest, size = 1, b"", size or BLOCK_BYTES
    with reading(path), open_regular(path) as raw:
        try:
            stream = decompressed(raw)
            if encoding != "utf-8":
                stream = codecs.EncodedFile(stream, "utf-8", encoding)
            old_mac = None
            while more := stream.read(size):
                if old_mac is None:
                    more = more.removeprefix(codecs.BOM_UTF8)
                    old_mac = b"\r" in more and b"\n" not in more
                if old_mac:
                    more = more.replace(b"\r", b"\n")
                cut = more.rfind(b"\n") + 1
                if not cut:
                    rest += more
                    if len(rest) > MAX_ROW_BYTES:
                        raise DataError(f"{path}: line {line:,} is longer than {MAX_ROW_BYTES >> 20} MiB")
                    continue
                block, rest = rest + more[:cut], more[cut:]
                yield line, block
                line += block.count(b"\n")
        except UnicodeError as error:
            raise DataError(f"{path}: cannot be read as {encoding}; see --encoding") from error
        except UNREADABLE as error:
            raise DataError(f"{path}: cannot be read: {first_line(error)}") from error
    if rest:
        yield line, rest


def lines_below(path: Path, encoding: str, skipped: int) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of `whole_lines`, without the first `skipped` lines and without blank blocks."""
    left = skipped
    for first, block in whole_lines(path, encoding):
        before = left
        block, left = _below(block, left)
        if block.strip():
            yield first + before - left, block


def _below(block: bytes, lines: int) -> tuple[bytes, int]:
    """Drop the first lines of a block; return the rest, and the number of these lines still to be dropped."""
    there = block.count(b"\n")
    if there < lines:
        return b"", lines - there
    at = 0
    for _ in range(lines):
        at = block.index(b"\n", at) + 1
    return block[at:], 0


def refuse(path: Path, first: int, block: bytes, separator: str | None, problem: Callable[[list[str]], str]) -> None:
    """Raise DataError with the problematic lines of a block; do nothing if there are none."""
    problems = []
    for number, line in enumerate(block.decode("utf-8", "replace").split("\n"), first):
        line = line.rstrip("\r")
        if line.strip() and (words := problem(_fields(line, separator))):
            problems.append(f"line {number:,}: {words}: {line[:60]!r}")
            if len(problems) == MAX_PROBLEMS:
                break
    if problems:
        raise DataError(f"{path}: lines that cannot be read", problems)


def _fields(line: str, separator: str | None) -> list[str]:
    if separator is None:
        return line.split()
    return line.split(separator) if len(separator) > 1 else next(csv.reader([line], delimiter=separator))


def require_shape(path: Path, n: int, v: int) -> None:
    if not (1 <= n <= MOST_IDS and 1 <= v <= MOST_IDS):
        raise DataError(f"{path}: {n:,} rows and {v:,} columns; expected from 1 to {MOST_IDS:,} of each")


def value_problem(text: str, what: str = "number") -> str:
    """Describe the problem with a value; "" if there is none."""
    text = text.strip()
    if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return f"expected a finite {what}, got {text}"
    if not re.match(NUMBER, text, re.ASCII):
        return f"expected a {what}, got {text[:40]!r}"
    return wrong_value(float(text)) if what == "number" else ""


def wrong_value(value: float) -> str:
    """Describe the problem with a number; "" if there is none."""
    if not np.isfinite(value):
        return f"expected a finite number, got {value}"
    return f"{value:g} is {MAX_COUNT:,} or more, too large to be exact" if abs(value) >= MAX_COUNT else ""


def bad_values(values: np.ndarray) -> bool:
    return bool(len(values)) and not (np.abs(values) < MAX_COUNT).all()


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
        for first, block in lines_below(self.path, self.encoding, self.skipped):
            yield self._parsed(first, block)

    def _parsed(self, first: int, block: bytes) -> Chunk:
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
        if (
            bad_values(values)
            or (times is not None and not np.isfinite(times).all())
            or "" in self.row_ids
            or "" in self.column_ids
        ):
            self._refuse(first, block)
        return Chunk(rows, columns, values, times)

    def _refuse(self, first: int, block: bytes) -> None:
        refuse(self.path, first, block, self.separator, self._problem)

    def _problem(self, fields: list[str]) -> str:
        if len(fields) != self.fields:
            return f"{counted(len(fields), 'field')}, expected {self.fields}"
        if not fields[0].strip() or not fields[1].strip():
            return "an id is missing"
        return value_problem(fields[2]) or (value_problem(fields[3], "number as time") if self.fields > 3 else "")


def _numbered(column, ids: dict[str, int]) -> np.ndarray:
    """Numbers of a dictionary column's texts; new texts are numbered after the known ones."""
    parts = []
    for chunk in column.chunks:
        known = [ids.setdefault(text.strip(), len(ids)) for text in chunk.dictionary.to_pylist()]
        parts.append(np.array(known, np.int64)[chunk.indices.to_numpy(zero_copy_only=False)])
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def look_text(
    path: Path,
    head: list[bytes],
    delimiter: str | None,
    header: bool | None,
    names: Sequence[str] | None,
    encoding: str,
) -> Triples:
    try:
        lines = [line.decode() for line in head]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: cannot be read as {encoding}; see --encoding") from error
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
    adds = n == 3 and COUNTS.search(given[2]) is not None
    return Triples(path, words, given, chunks, row_ids=chunks.row_ids, column_ids=chunks.column_ids, adds=adds)
