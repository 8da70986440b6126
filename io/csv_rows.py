"""Rows of CSV files in any dialect, as batches of dictionary-encoded columns of text.

pyarrow reads them in blocks; a file with rows larger than a block is read again in whole rows, and one with quotes
after blanks by Python's csv module. Rows with another number of fields, and quotes left open, are errors that
name their lines.
"""

from __future__ import annotations

import atexit
import contextlib
import csv
import io
import itertools
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.csv

from mpibayes.errors import DataError
from mpibayes.io.cells import Cells
from mpibayes.io.dialect import (
    MAX_PROBLEMS,
    MAX_ROW_BYTES,
    UNREADABLE,
    Dialect,
    not_decodable,
    python_rows,
    row_too_long,
)
from mpibayes.io.files import first_line, open_regular
from mpibayes.io.packing import decompressed
from mpibayes.text import counted

LONGEST_READ = 5.0  # seconds that a thread may take for the block that it reads


def read_csv(
    path: Path, raw, dialect: Dialect, positions: list[int], done: int = 0
) -> Iterator[tuple[dict[int, Cells], int]]:
    """Yield all rows except the first `done`. If a row does not fit into blocks, read the file again as
    `_WholeRows`."""
    row, last = 0, ""
    try:
        for batch in _blocks(path, raw, dialect, [*positions, len(dialect.names) - 1]):
            row += len(batch)
            if row > done:
                batch = batch.slice(max(0, len(batch) - (row - done)))
                done, last = row, batch.column(len(positions))[-1].as_py()
                yield {i: Cells.of(batch.column(j)) for j, i in enumerate(positions)}, len(batch)
        _require_closed_quote(path, dialect, row, last)
    except _LargerThanBlock as error:
        if dialect.long_rows:
            raise row_too_long(path, "a row") from error
        with open_regular(path) as again:
            yield from read_csv(path, again, replace(dialect, long_rows=True), positions, done)


class _LargerThanBlock(Exception):
    """A row is larger than two blocks, or than one and its part in the next; or than MAX_ROW_BYTES."""


class _WholeRows:
    """Stream of UTF-8 whose reads each return whole rows: about a block, or more if a row is longer.

    pyarrow takes the result of a read for a block. So a long row enlarges one block, and not all those read ahead.
    """

    def __init__(self, raw, dialect: Dialect):
        encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
        self._text = io.TextIOWrapper(decompressed(raw), encoding, newline="")
        self._rows = csv.reader(self._noted(), delimiter=dialect.delimiter)
        self._lines: list[str] = []
        self._length, self._enough = 0, dialect.block_bytes

    closed = property(lambda self: self._text.closed)

    def close(self) -> None:
        self._text.close()

    def _noted(self) -> Iterator[str]:
        while line := self._text.readline(MAX_ROW_BYTES + 1):
            self._lines.append(line)
            self._length += len(line)
            if self._length > self._enough + MAX_ROW_BYTES:
                raise _LargerThanBlock
            yield line

    def read(self, _: int) -> bytes:
        for _ in self._rows:
            if self._length >= self._enough:
                break
        rows = "".join(self._lines).encode()
        self._lines.clear()
        self._length = 0
        return rows


class _Stream:
    """Content as pyarrow reads it, until `over`. Only pyarrow holds this object."""

    def __init__(self, content, over: threading.Event):
        self._content = content
        # no method: the traceback of an error in it would hold this object
        self.read = lambda n: b"" if over.is_set() else content.read(n)

    closed = property(lambda self: self._content.closed)

    def close(self) -> None:
        self._content.close()


class _Reading:
    """Batches of a stream from which a thread of pyarrow reads ahead.

    Python stops a thread that calls it while the interpreter exits, and C++ answers that with abort(). So a reading
    that is not followed to its end (after an error, say) ends only when that thread has let go of its stream.
    """

    _going: ClassVar[weakref.WeakSet[_Reading]] = weakref.WeakSet()

    def __init__(self, content):
        self._content, self._over, self._let_go = content, threading.Event(), threading.Event()
        self.batches: Iterator[pa.RecordBatch] = iter(())
        self._going.add(self)

    def stream(self) -> _Stream:
        stream = _Stream(self._content, self._over)
        weakref.finalize(stream, self._let_go.set).atexit = False
        return stream

    def next(self) -> pa.RecordBatch | None:
        """Read the next batch, without the traceback that pyarrow prints for a too long row that is not UTF-8."""
        with _quiet():
            return next(self.batches, None)

    def end(self) -> None:
        self._over.set()
        with contextlib.suppress(*UNREADABLE), _quiet():
            deque(self.batches, maxlen=0)
        self.batches = iter(())
        self._let_go.wait(LONGEST_READ)
        self._going.discard(self)

    @classmethod
    def end_all(cls) -> None:
        for reading in list(cls._going):
            reading.end()


atexit.register(_Reading.end_all)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    before = sys.unraisablehook
    sys.unraisablehook = lambda what: None if isinstance(what.exc_value, UnicodeError) else before(what)
    try:
        yield
    finally:
        sys.unraisablehook = before


def _blocks(path: Path, raw, dialect: Dialect, positions: list[int]) -> Iterator[pa.RecordBatch]:
    ragged: list = []

    def on_bad_row(row) -> str:
        ragged.append((row.number, row.actual_columns, row.text))
        return "skip" if len(ragged) < MAX_PROBLEMS else "error"

    n_fields = len(dialect.names)
    fields = [str(i) for i in range(n_fields)]  # the true names may be anything
    text = pa.dictionary(pa.int32(), pa.string())
    content = _WholeRows(raw, dialect) if dialect.long_rows else decompressed(raw)
    reading = _Reading(content)
    try:
        with _quiet():
            reading.batches = pa.csv.open_csv(
                reading.stream(),
                pa.csv.ReadOptions(
                    use_threads=False,
                    block_size=1 << 30 if dialect.long_rows else dialect.block_bytes,
                    column_names=fields,
                    skip_rows_after_names=int(bool(dialect.header)),
                    encoding="utf-8" if dialect.long_rows else dialect.encoding,
                ),
                pa.csv.ParseOptions(
                    delimiter=dialect.delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=n_fields > 1,  # in a table of one column an empty line is a missing cell
                    invalid_row_handler=on_bad_row,
                ),
                pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(fields, text),
                    include_columns=[fields[i] for i in positions],
                    strings_can_be_null=False,
                ),
            )
        while (batch := reading.next()) is not None:
            yield batch
    except UNREADABLE as error:
        if not ragged and ("straddling" in str(error) or "skip initial" in str(error)):  # the latter: the header
            raise _LargerThanBlock from error
        if not ragged:
            raise _unreadable(path, dialect, error) from error
    finally:
        reading.end()
        if dialect.long_rows:
            content.close()
    if ragged:
        raise _ragged(path, dialect, [(number - bool(dialect.header), n, text) for number, n, text in ragged])


def read_csv_loose(path: Path, raw, dialect: Dialect, positions: list[int]) -> Iterator[tuple[dict[int, Cells], int]]:
    """Read with Python's csv module, which accepts a quote after blanks; about five times slower."""
    ragged: list = []
    row, last = 0, ""
    try:
        rows = python_rows(raw, dialect)
        if dialect.header:
            next(rows)
        while chunk := list(itertools.islice(rows, dialect.batch_rows)):
            for _, cells in chunk:
                row += 1
                if len(cells) != len(dialect.names):
                    ragged.append((row, len(cells), dialect.delimiter.join(cells)))
            if not ragged:
                columns = list(zip(*(cells for _, cells in chunk), strict=True))
                last = columns[-1][-1]
                yield {i: Cells.of(pa.array(columns[i], pa.string())) for i in positions}, len(chunk)
            if len(ragged) >= MAX_PROBLEMS:
                break
    except UNREADABLE as error:
        raise _unreadable(path, dialect, error) from error
    if ragged:
        raise _ragged(path, dialect, ragged[:MAX_PROBLEMS])
    _require_closed_quote(path, dialect, row, last)


def _require_closed_quote(path: Path, dialect: Dialect, row: int, last: str) -> None:
    """Raise DataError for a quote that is never closed: it turns all following text into one cell, the last cell of the
    last row, with line breaks in it. An appended line would become part of that cell."""
    if not ("\n" in last or "\r" in last):
        return
    with open_regular(path) as raw:
        [(_, cells)] = deque(python_rows(raw, dialect, "replace", after=["end"]), 1)
    if cells != ["end"]:
        where = f"row {row:,}" + "".join(f" (line {line:,})" for _, line in lines_of(path, dialect, {row}))
        raise DataError(f"{path}: {where}: a quote is left open, so that all that follows is one cell; close it")


def lines_of(path: Path, dialect: Dialect, rows: set[int]) -> Iterator[tuple[int, int]]:
    """Yield (row, line) of the requested data rows; stop quietly if the file cannot be parsed."""
    last = max(rows)
    try:
        with open_regular(path) as raw:
            for row, (line, _) in enumerate(python_rows(raw, dialect, "replace"), 1 - bool(dialect.header)):
                if row in rows:
                    yield row, line
                if row >= last:
                    return
    except UNREADABLE:
        return


def _ragged(path: Path, dialect: Dialect, result: list[tuple[int, int, str]]) -> DataError:
    lines = dict(lines_of(path, dialect, {row for row, _, _ in result}))
    problems = []
    for row, n, text in result:
        where = f"row {row:,}" + (f" (line {lines[row]:,})" if row in lines else "")
        problems.append(f"{where}: {counted(n, 'field')}, expected {len(dialect.names)}: {_excerpt(text)}")
    more = " (the first ones)" if len(result) >= MAX_PROBLEMS else ""
    return DataError(
        f"{path}: rows with another number of fields than the first one{more}; "
        f"read with delimiter {dialect.delimiter!r}{_advice(dialect, result)}",
        problems,
    )


def _advice(dialect: Dialect, result: list[tuple[int, int, str]]) -> str:
    """Advice if all rows with a wrong number of fields are alike."""
    widths = {n for _, n, _ in result}
    if dialect.delimiter == " ":
        return "; if its columns are lined up by several blanks, make them one: tr -s ' '"
    if widths == {len(dialect.names) + 1} and all(text.rstrip().endswith(dialect.delimiter) for _, _, text in result):
        return "; if every row but the first one ends with a delimiter, add one to the first, too"
    if len(widths) == 1 and len(result) >= MAX_PROBLEMS:
        return "; if the file begins with a title, remove it, so that its first line has the names"
    return ""


def _unreadable(path: Path, dialect: Dialect, error: Exception) -> DataError:
    text = str(error)
    if isinstance(error, UnicodeError) or "UTF8" in text or "UTF-8" in text:
        return not_decodable(path, dialect.encoding)
    if "field larger" in text:
        return row_too_long(path, "a row")
    return DataError(f"{path}: cannot be read: {first_line(error)}")


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
