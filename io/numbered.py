"""Numbered triples: UCI bags of words and Matrix Market, whose first lines give the numbers of rows, columns and
entries.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from mpibayes.errors import DataError
from mpibayes.io.files import first_line
from mpibayes.io.triples import (
    Chunk,
    Triples,
    bad_values,
    lines_below,
    refuse,
    require_shape,
    value_problem,
    whole_lines,
)
from mpibayes.text import counted, whole_number


@dataclass
class _Numbered:
    """Lines "row column value", numbered from 1, after some skipped lines."""

    path: Path
    skipped: int
    shape: tuple[int, int]
    n_entries: int
    encoding: str
    fields: int = 3
    least: float = -np.inf
    whole: bool = False
    what: tuple[str, str] = ("row", "column")

    def __call__(self) -> Iterator[Chunk]:
        done = 0
        for first, block in lines_below(self.path, self.encoding, self.skipped):
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
        except pa.ArrowException:  # several blanks, or a malformed line
            rows, columns, values = self._slowly(first, block)
        values = values[0] if values else np.ones(len(rows))
        n, v = self.shape
        if bad_values(values) or self._no_count(values).any() or _outside(rows, n) or _outside(columns, v):
            refuse(self.path, first, block, None, self._problem)
        return Chunk(rows - 1, columns - 1, values)

    def _slowly(self, first: int, block: bytes):
        try:
            numbers = np.array(block.split(), np.float64).reshape(-1, self.fields)
            ids = numbers[:, :2]
            if not (np.abs(ids) < 2.0**53).all() or (ids != np.floor(ids)).any() or b"_" in block:  # Python's 1_000
                raise ValueError
        except ValueError as error:
            refuse(self.path, first, block, None, self._problem)
            raise DataError(f"{self.path}: cannot be read from line {first:,} on: {first_line(error)}") from None
        if len(numbers) != sum(1 for line in block.split(b"\n") if line.strip()):
            refuse(self.path, first, block, None, self._problem)
        return (
            numbers[:, 0].astype(np.int64),
            numbers[:, 1].astype(np.int64),
            [numbers[:, 2]] if self.fields > 2 else [],
        )

    def _problem(self, fields: list[str]) -> str:
        if len(fields) != self.fields:
            return f"{counted(len(fields), 'field')}, expected {self.fields}"
        for text, many, what in zip(fields, self.shape, self.what):
            if not 1 <= (whole_number(text) or 0) <= many:
                return f"{what} {text[:40]}: expected a whole number from 1 to {many:,}"
        if self.fields < 3:
            return ""
        problem = value_problem(fields[2])
        if problem or not self._no_count(np.array([float(fields[2])])).any():
            return problem
        return f"expected a whole number{' from 0' if self.least == 0 else ''}, got {fields[2]}"

    def _no_count(self, values: np.ndarray) -> np.ndarray:
        """True for values that must be counts but are fractional or too small."""
        return (values < self.least) | (self.whole & (values % 1 != 0))


def _numbers(path: Path, first: int, lines: Sequence[bytes]) -> list[int]:
    """Parse numbers of rows, columns or entries, from this line on. Raises DataError."""
    numbers = []
    for line, text in enumerate((text.decode("ascii", "replace") for text in lines), first):
        if (number := whole_number(text)) is None:
            raise DataError(f"{path}: line {line:,}: expected a number of at most 18 digits, got {text[:40]!r}")
        numbers.append(number)
    return numbers


def _outside(ids: np.ndarray, many: int) -> bool:
    return bool(len(ids)) and not (ids.min() >= 1 and ids.max() <= many)


def look_docword(path: Path, encoding: str, head: Sequence[bytes]) -> Triples:
    n, v, e = _numbers(path, 1, head)
    require_shape(path, n, v)
    chunks = _Numbered(path, 3, (n, v), e, encoding, least=0, whole=True, what=("document", "word"))
    return Triples(path, "UCI bag of words", ("document", "word", "count"), chunks, (n, v))


def look_matrix_market(path: Path, encoding: str, head: bytes) -> Triples:
    words = head.decode("ascii", "replace").lower().split()
    if len(words) != 5 or words[1:3] != ["matrix", "coordinate"] or words[3] not in ("integer", "real", "pattern"):
        raise DataError(
            f"{path}: line 1: expected '%%MatrixMarket matrix coordinate integer|real|pattern general', got "
            f"{head.decode('ascii', 'replace')[:80]!r}"
        )
    if words[4] != "general":
        raise DataError(f"{path}: line 1: a {words[4]} matrix; expected a general one, of documents and words say")
    number = 0
    for first, block in whole_lines(path, encoding, 1 << 16):
        for number, line in enumerate(block.split(b"\n"), first):
            if line.strip() and not line.startswith(b"%"):
                size = line.split()
                if len(size) != 3 or not all(text.isdigit() for text in size):
                    raise DataError(f"{path}: line {number:,}: expected numbers of rows, columns and entries")
                n, v, e = _numbers(path, number, size)
                require_shape(path, n, v)
                fields, whole = 2 if words[3] == "pattern" else 3, words[3] == "integer"
                chunks = _Numbered(path, number, (n, v), e, encoding, fields, whole=whole)
                return Triples(path, "Matrix Market", ("row", "column", "value"), chunks, (n, v))
    raise DataError(f"{path}: ends before the numbers of rows, columns and entries")
