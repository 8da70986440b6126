"""Dialect of a file: packing, encoding, delimiter, header and column names, from its beginning."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from mpibayes.errors import ConfigError, DataError
from mpibayes.io import encodings, packing
from mpibayes.io.files import first_bytes, first_line, open_regular
from mpibayes.io.formats import typed
from mpibayes.io.formats.kinds import EXCEL, kind_of
from mpibayes.io.formats.typed import Asked, Typed
from mpibayes.io.header import is_header
from mpibayes.io.packing import decompressed
from mpibayes.text import is_unicode

BLOCK_BYTES = 1 << 20  # pyarrow reads up to 32 blocks ahead
WIDE_BLOCK_BYTES = 16 << 20  # at most, for long rows: each block has a fixed cost per column
WIDE_ROWS = 128  # rows desired in such a block
SAMPLE_BYTES = 1 << 18  # of text to find delimiter and header, if it holds SAMPLE_ROWS rows
MORE_BYTES = 1 << 22  # of text beyond which two whole rows suffice
SAMPLE_ROWS = 20
MAX_ROW_BYTES = 64 << 20
NULS = 0.2  # share of NUL characters above which a file is not text, or is UTF-16
MAX_PROBLEMS = 10
DELIMITERS, RARE_DELIMITERS = ",\t;|", " :"
NO_TEXT = ("idna", "punycode", "unicode_escape", "raw_unicode_escape")  # encodings not used for files
PROBE = 'a,1;"b"\r\n'
MARKED = "utf-8", "utf-16"  # encodings distinguished by a file's first bytes
UNREADABLE = (pa.ArrowException, UnicodeError, csv.Error, *packing.UNREADABLE)

csv.field_size_limit(MAX_ROW_BYTES)  # limit of Python's csv module for a cell; its default is 128 KiB


@dataclass(frozen=True)
class Dialect:
    """How one file is read. format: "csv", or the kind of a file whose columns have types (`typed`); these have no
    delimiter, and most have no header."""

    names: tuple[str, ...]
    format: str = "csv"
    delimiter: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"
    loose_quotes: bool = False  # blanks between delimiter and quote; pyarrow does not accept such quotes
    block_bytes: int = BLOCK_BYTES
    long_rows: bool = False  # some rows do not fit into a block
    no_rows: bool = False  # only a header without a line end, which pyarrow cannot read
    typed: Typed | None = None

    @property
    def unread(self) -> Mapping[int, str]:
        """Positions of columns without text cells, and the reason."""
        return {} if self.typed is None else self.typed.unread

    @property
    def batch_rows(self) -> int:
        return typed.rows_at_once(len(self.names))


def look(path: Path, delimiter: str | None, encoding: str, names: Sequence[str] | None, asked: Asked) -> Dialect:
    """Detect format, delimiter, header and column names of one file from the beginning of its text."""
    kind = kind_of(path, encoding)
    if asked.sheet is not None and kind is not EXCEL:
        raise ConfigError(f"--sheet {asked.sheet}: {path} is not an Excel workbook; leave --sheet out")
    if kind.name != "csv":
        content = typed.look(path, kind, asked)
        names = typed.require_names(path, content.names, names)
        _check_names(path, names)
        return Dialect(tuple(names), kind.name, header=content.header, typed=content)
    return _look_text(path, delimiter, encoding, names, asked)


def _look_text(path: Path, delimiter: str | None, encoding: str, names: Sequence[str] | None, asked: Asked) -> Dialect:
    header = asked.header
    delimiter, loose, rows, alone = _first_rows(path, encoding, delimiter)
    if header is None:
        header = is_header(rows, asked.expected)
    in_file = [(n.strip() if header else "") or f"column_{i}" for i, n in enumerate(rows[0], 1)]
    names = [n.replace("\0", "\u2400") for n in typed.require_names(path, in_file, names)]
    _check_names(path, names)
    if "\ufffd" in "".join(names):
        _require_decodable(path, encoding)
    usual = statistics.median_high(sum(map(len, row)) + len(row) for row in rows)
    block = max(BLOCK_BYTES, min(WIDE_ROWS * usual, WIDE_BLOCK_BYTES))
    return Dialect(tuple(names), "csv", delimiter, header, encoding, loose, block, no_rows=header and alone)


def _check_names(path: Path, names: Sequence[str]) -> None:
    if not names:
        raise DataError(f"{path}: no columns")
    if not all(map(is_unicode, names)):
        raise DataError(f"{path}: not UTF-8: the column name {next(n for n in names if not is_unicode(n))}")
    repeated = sorted(n for n, count in Counter(names).items() if count > 1)
    if repeated:
        problems = [
            f"'{n}' is the name of columns {', '.join(str(i) for i, m in enumerate(names, 1) if m == n)}"
            for n in repeated[:MAX_PROBLEMS]
        ]
        raise DataError(
            f"{path}: duplicate column names; rename them or give names (--names), "
            "or say --no-header if the first line is data",
            problems,
        )


def check_encoding(encoding: str | None, path: Path) -> str:
    """Return the given encoding, or the one of the first file's byte order mark; UTF-8 without one."""
    if encoding is None:
        marked = os.path.isfile(path) and first_bytes(path)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        return MARKED[marked]
    try:
        name = codecs.lookup(encoding).name
        of_text = (
            name.replace("-", "_") not in NO_TEXT and PROBE.encode(name).decode(name).removeprefix("\ufeff") == PROBE
        )
    except (LookupError, UnicodeError, ValueError):  # ValueError: a NUL in it
        of_text = False
    if not of_text:
        raise ConfigError(
            f"encoding '{encoding}': no such text encoding; common ones are utf-8, cp1252, latin-1, mac_roman"
        )
    return "utf-8" if name in ("utf-8", "utf-8-sig", "ascii") else name


def _first_rows(path: Path, encoding: str, delimiter: str | None) -> tuple[str, bool, list[list[str]], bool]:
    """Return the delimiter, True if there are loose quotes, the first complete rows, and True if the file is one row
    without a line end."""
    n_bytes, enough, tried = SAMPLE_BYTES, SAMPLE_ROWS, delimiter or DELIMITERS + RARE_DELIMITERS
    while True:
        text, whole = _head(path, encoding, n_bytes)
        if not text.strip() and whole:
            raise DataError(f"{path}: is empty; expected CSV or Parquet with at least one row")
        if text.count("\0") > NULS * len(text):
            raise DataError(f"{path}: contains NUL bytes; expected text (see --encoding for other than UTF-8)")
        if whole or n_bytes >= MAX_ROW_BYTES:
            break
        # the delimiter determines where a quote opens a field, and so where a row ends
        if all(len(_sample(text, by, True, whole, enough)) == enough for by in tried):
            break
        n_bytes *= 4
        enough = SAMPLE_ROWS if n_bytes < MORE_BYTES else 2
    by = delimiter or sniff_delimiter(text, whole)
    loose = any(f'{by}{blank}"' in text for blank in (" ", "\t") if blank != by)
    rows = _sample(text, by, loose, whole)
    if not rows:
        raise row_too_long(path, "its first row")
    return by, loose, rows, whole and len(rows) == 1 and not text.endswith(("\n", "\r"))


def _head(path: Path, encoding: str, n_bytes: int) -> tuple[str, bool]:
    """First n_bytes of the text, without a character cut at the end, and True if that is the whole file."""
    data = bytearray()
    try:
        with open_regular(path) as raw:
            stream = decompressed(raw)
            while len(data) < n_bytes and (piece := stream.read(n_bytes - len(data))):
                data += piece
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read: {first_line(error)}") from error
    text = codecs.getincrementaldecoder(encoding)("replace").decode(bytes(data))
    return text.removeprefix("\ufeff"), len(data) < n_bytes


def _sample(text: str, delimiter: str, loose: bool, whole: bool, n: int = 500) -> list[list[str]]:
    """First rows of the text, without blank rows and without a last row that may be cut."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=loose)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if len(rows) == n:
                return rows
            if row:
                rows.append(row)
    except csv.Error:  # such as an unclosed field: the earlier rows suffice
        return rows
    return rows if whole else rows[:-1]


def sniff_delimiter(text: str, whole: bool = True) -> str:
    """Return the delimiter that cuts the most rows of the sample into the same number of fields, at least two.

    Ties go to more fields, then to the order of DELIMITERS. Blanks and colons are tried only if none of these fits. A
    single column has no delimiter; a comma is returned.
    """
    for candidates in (DELIMITERS, RARE_DELIMITERS):
        best = (0.0, 0, ",")
        for delimiter in candidates:
            widths = [len(row) for row in _sample(text, delimiter, True, whole)]
            usual = max(set(widths), key=widths.count, default=0)
            share = widths.count(usual) / max(len(widths), 1)
            if usual > 1 and share >= 0.8 and (round(share, 2), usual) > best[:2]:
                best = (round(share, 2), usual, delimiter)
        if best[1]:
            return best[2]
    return ","


def python_rows(
    raw, dialect: Dialect, errors: str = "strict", after: Sequence[str] = ()
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line on which the row starts, fields) for every row that is not an empty line. after: lines to append."""
    encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
    stream = decompressed(raw)
    line = first = 1 + (stream is raw and raw.tell() > 0)
    text = io.TextIOWrapper(stream, encoding, errors, newline="")
    lines = itertools.chain(text, after)
    reader = csv.reader(lines, delimiter=dialect.delimiter, skipinitialspace=dialect.loose_quotes)
    try:
        for cells in reader:
            if cells or len(dialect.names) == 1:
                yield line, cells or [""]
            line = reader.line_num + first
    finally:
        text.detach()  # the caller closes the file


def row_too_long(path: Path, what: str) -> DataError:
    return DataError(f"{path}: {what} is longer than {MAX_ROW_BYTES >> 20} MiB; is a quote left open?")


def _require_decodable(path: Path, encoding: str) -> None:
    """Raise DataError if the header cannot be decoded; pyarrow skips it without checking its bytes."""
    try:
        with open_regular(path) as raw:
            for _ in itertools.islice(python_rows(raw, Dialect((), delimiter=",", encoding=encoding)), 1):
                pass
    except UnicodeError:
        raise not_decodable(path, encoding) from None


def _word_at(data: bytes, place: int) -> bytes:
    """Cell or word that contains a byte, or its surroundings."""
    before, after = re.split(rb"[,;\t|\r\n\"]", data[max(place - 24, 0) : place]), data[place : place + 24]
    return (before[-1] + re.split(rb"[,;\t|\r\n\"]", after)[0]).strip()


def not_decodable(path: Path, encoding: str) -> DataError:
    """Return an error that locates the first byte that is invalid in this encoding."""
    decoder = codecs.getincrementaldecoder(encoding)()
    offset, line = 0, 1
    with open_regular(path) as raw:
        stream = decompressed(raw)
        while True:
            chunk = stream.read(1 << 20)
            pending = len(decoder.getstate()[0])
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                at = error.start - pending
                line += chunk[: max(at, 0)].count(b"\n")
                bad = error.object[error.start : error.start + 1].hex()
                rest = error.object[max(error.start - 1, 0) :]
                best = encodings.likely(rest)
                word = _word_at(error.object, error.start).decode(best, "replace")
                return DataError(
                    f"{path}: not {encoding.upper()}: byte 0x{bad} on line {line:,} (byte offset {offset + at:,}); "
                    f"say --encoding {best}, in which it reads {word!r}"
                )
            if not chunk:
                return DataError(f"{path}: cannot be decoded as {encoding.upper()}; see --encoding")
            offset += len(chunk)
            line += chunk.count(b"\n")
