"""JSON lines: an object per line. Its keys are the columns, in order of first occurrence.

A column of only numbers is numeric, of only true and false boolean, any other text. The file is read once more than CSV
is, to collect all keys.
"""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from mpibayes.errors import DataError
from mpibayes.io.files import open_regular
from mpibayes.io.formats.kinds import JSON
from mpibayes.io.formats.typed import Asked, Typed, rows_at_once, understanding
from mpibayes.io.packing import decompressed
from mpibayes.text import visible

MAX_LINE = 64 << 20  # characters
MAX_COLUMNS = 100_000
EPOCH = (1e12, 2e12)  # milliseconds since 1970: the years 2001 to 2033
SURE = 5  # distinct values needed, all of whole seconds: numbers of 13 digits are not so by chance


class _Key:
    """Types of value under a key."""

    def __init__(self):
        self.kinds: set[type] = set()
        self.low, self.high = float("inf"), float("-inf")
        self.step, self.distinct = 0, set()  # of integers: the greatest common divisor, and a few distinct ones

    def add(self, value: Any) -> None:
        kind = type(value)
        self.kinds.add(kind)
        if kind is int:  # of any number of digits
            self.low, self.high = min(self.low, value), max(self.high, value)
            self.step = math.gcd(self.step, value)
            if len(self.distinct) < SURE:
                self.distinct.add(value)

    @property
    def type(self) -> pa.DataType:
        kinds = self.kinds - {type(None)}
        if kinds == {bool}:
            return pa.bool_()
        if self.is_epoch and self.step % 1000 == 0 and len(self.distinct) == SURE:
            return pa.timestamp("ms")
        if kinds == {int} and self.low >= -(2**63) and self.high < 2**63:
            return pa.int64()
        small = int not in kinds or (self.low > -(2**1000) and self.high < 2**1000)
        return pa.float64() if kinds and kinds <= {int, float} and small else pa.string()

    @property
    def is_epoch(self) -> bool:
        """True if its numbers may be times, as milliseconds since 1970."""
        return self.kinds <= {int, type(None)} and EPOCH[0] <= self.low and self.high < EPOCH[1]


def look(path: Path, _variant: str, asked: Asked) -> Typed:
    keys: dict[str, _Key] = {}
    n_rows = 0
    for n_rows, row in enumerate(_objects(path, asked.encoding), 1):
        for name, value in row.items():
            keys.setdefault(name, _Key()).add(value)
        if len(keys) > MAX_COLUMNS:
            raise DataError(f"{path}: has more than {MAX_COLUMNS:,} different keys in its first {n_rows:,} lines")
    if not n_rows:
        raise DataError(f"{path}: is empty; expected JSON lines, an object a line")
    nested = {i for i, key in enumerate(keys.values()) if key.kinds & {dict, list}}
    if n_rows == 1 and len(nested) == len(keys):
        raise DataError(f"{path}: is {JSON.title}; {JSON.advice}")
    names, types = list(keys), [key.type for key in keys.values()]
    notes = [_note(name, key) for name, key in keys.items() if key.is_epoch]

    def read(positions: Sequence[int]) -> Iterator[pa.RecordBatch]:
        rows = _objects(path, asked.encoding)
        while chunk := list(itertools.islice(rows, rows_at_once(len(names)))):
            with understanding(path):
                columns = [_column([row.get(names[i]) for row in chunk], types[i]) for i in positions]
            yield pa.record_batch(columns, [names[i] for i in positions])

    unread = dict.fromkeys(nested, "nested (JSON)")
    return Typed("JSON lines", names, types, read, unread, notes=notes, n_rows=n_rows)


def _note(name: str, key: _Key) -> str:
    if pa.types.is_timestamp(key.type):
        return f"column '{name}': read as dates, from milliseconds since 1970 in UTC"
    return (
        f"column '{name}': looks like milliseconds since 1970, and is read as numbers; if they are dates, write them "
        "as text, as df.to_json(..., date_format='iso') does"
    )


def _column(values: list, of: pa.DataType) -> pa.Array:
    if pa.types.is_string(of):
        return pa.array([None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values], of)
    if pa.types.is_floating(of):
        return pa.array([None if v is None or v != v else float(v) for v in values], of)
    return pa.array(values, of)


def _objects(path: Path, encoding: str | None) -> Iterator[dict]:
    """Yield each non-blank line as an object. Raises DataError."""
    with understanding(path, UnicodeError), open_regular(path) as raw:
        text = io.TextIOWrapper(decompressed(raw), encoding or "utf-8-sig", newline="\n")
        for number in itertools.count(1):
            line = text.readline(MAX_LINE + 1)
            if not line:
                return
            if len(line) > MAX_LINE:
                raise DataError(f"{path}: line {number:,} is longer than {MAX_LINE >> 20} MiB")
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                shown = visible(line.strip()[:60])
                raise DataError(f"{path}: line {number:,} is not a JSON object: {shown!r}; {JSON.advice}")
            yield row
