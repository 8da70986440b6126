"""`mpibayes import --sparse`: files of (row, column, value) triples into a sparse table.

The files are read once, a chunk at a time. Entries wait in temporary files beside the target until they are in order:
memory depends on the number of rows and columns and on the length of their ids, not on the number of entries.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.dialect import check_encoding
from mpibayes.io.files import open_regular, read_regular, reading, require_unchanged, stamps, writing
from mpibayes.io.npz import look_npz
from mpibayes.io.numbered import look_docword, look_matrix_market
from mpibayes.io.packing import decompressed, members
from mpibayes.io.source import Progress
from mpibayes.io.sparse import MAX_COUNT, TYPES, Entries, SparseRows, SparseTable, cuts, in_words, write_entries
from mpibayes.io.table import check_table_name
from mpibayes.io.target import SPARSE, check_target
from mpibayes.io.triples import Triples, look_text, whole_lines
from mpibayes.text import counted

PIECE = 1 << 20  # entries sorted at a time, or more if a row has more
FIELDS = ("columns", "values", "times")


@dataclass(frozen=True)
class SparseSummary:
    """Summary of an import. format: in words. warnings: for the user."""

    table: SparseTable
    format: str
    warnings: tuple[str, ...]
    seconds: float


def import_sparse(
    sources: Sequence[str | os.PathLike],
    out: str | os.PathLike,
    *,
    vocabulary: str | os.PathLike | None = None,
    row_ids: str | os.PathLike | None = None,
    names: Sequence[str] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> SparseSummary:
    """Import one file of triples, or several parts of text, into the sparse table `out`.

    vocabulary, row_ids: files with the ids of columns and of rows, one per line, for sources with numbers; for
    docword.NAME, the file vocab.NAME beside it is used by default. names: of rows, columns, values and times. Raises
    ConfigError or DataError. Nothing appears under the final name unless all succeeds.
    """
    began = time.perf_counter()
    out = Path(out)
    check_table_name(out)
    check_target(out, overwrite, SPARSE, [*sources, vocabulary, row_ids], DataError)
    paths = [Path(source) for source in sources]
    before = stamps(paths)
    parts = [look(path, delimiter, header, names, encoding) for path in paths]
    first = parts[0]
    if len(parts) > 1:
        _require_parts(parts)
    if first.row_ids is not None and (vocabulary is not None or row_ids is not None):
        option = "--vocabulary" if vocabulary is not None else "--row-ids"
        raise ConfigError(f"{option}: {first.path} has ids itself; leave it out")
    vocabulary = vocabulary or _beside(first)
    given = (_lines(row_ids, first.shape[0], "rows"), _lines(vocabulary, first.shape[1], "columns"))
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.tmp-", dir=out.parent) as folder:
        with writing(out, DataError):
            spool = _Spool(Path(folder), first.timed, all(part.adds for part in parts))
            spool.fill(parts, progress)
            require_unchanged(before)
            twice, entries = spool.in_order(first, *(ids and ids[:n] for ids, n in zip(given, first.shape)))
        warnings = [*_left_over(vocabulary, given[1], first.shape[1]), *_left_over(row_ids, given[0], first.shape[0])]
        warnings += _warnings(spool, entries, twice)
        about = {
            "names": list(first.names), "files": [path.name for path in paths], "format": first.format,
            "vocabulary": None if vocabulary is None else Path(vocabulary).name, "asked": warnings,
        }  # fmt: skip
        table = write_entries(out, entries, about, overwrite)
    return SparseSummary(table, first.format, tuple(warnings), time.perf_counter() - began)


def look(
    path: Path, delimiter: str | None, header: bool | None, names: Sequence[str] | None, encoding: str | None
) -> Triples:
    """Recognise a file by its beginning. Raises ConfigError or DataError."""
    encoding = check_encoding(encoding, path)
    with reading(path), open_regular(path) as raw:
        if raw.read(4) == b"PK\x03\x04" and (len(names_in := members(raw)) != 1 or names_in[0].endswith(".npy")):
            return look_npz(path)
    lines = []
    for _, block in whole_lines(path, encoding, 1 << 16):
        lines = block.split(b"\n")
        break
    head = [line.strip() for line in lines if line.strip()][:4]
    if not head:
        raise DataError(f"{path}: is empty")
    if head[0].lower().startswith(b"%%matrixmarket"):
        return look_matrix_market(path, encoding, head[0])
    if len(head) > 2 and all(line.isdigit() for line in head[:3]) and delimiter is None:
        return look_docword(path, encoding, head[:3])
    return look_text(path, head, delimiter, header, names, encoding)


def _require_parts(parts: Sequence[Triples]) -> None:
    first = parts[0]
    for part in parts:
        if part.row_ids is None:
            raise ConfigError(f"{part.path}: {part.format}; several files can only be parts of one text")
        if len(part.names) != len(first.names):
            raise DataError(f"{part.path}: {len(part.names)} fields a line; {first.path} has {len(first.names)}")
    for part in parts[1:]:
        part.chunks.row_ids, part.chunks.column_ids = first.row_ids, first.column_ids


def _beside(source: Triples) -> Path | None:
    """Path of the vocabulary whose name matches that of a bag of words."""
    match = re.fullmatch(r"docword\.(.+)", source.path.name)
    if match is None or source.row_ids is not None:
        return None
    bare = re.sub(r"\.(gz|xz|bz2|zst)$", "", match[1])
    folder = source.path.parent
    places = (folder / f"vocab.{name}{packed}" for name in {match[1], bare} for packed in ("", ".gz", ".xz", ".bz2"))
    return next((place for place in places if place.exists()), None)


def _lines(path: str | os.PathLike | None, many: int, what: str) -> list[str] | None:
    """Lines of a file of ids; it must have at least `many`. Raises DataError."""
    if path is None:
        return None
    with reading(path):
        try:
            text = decompressed(io.BytesIO(read_regular(path, pipe=True))).read().decode("utf-8-sig")
        except (UnicodeDecodeError, EOFError) as error:
            raise DataError(f"{path}: not a readable list of ids, one a line: {error}") from error
    lines = [line.rstrip("\r") for line in text.rstrip("\r\n").split("\n")]
    if len(lines) < many:
        raise DataError(f"{path}: {counted(len(lines), 'line')}, but there are {many:,} {what}: expected one id a line")
    return lines


class _Spool:
    """Entries in temporary files: first in order of arrival, then by row."""

    def __init__(self, folder: Path, timed: bool, adds: bool):
        self.folder, self.adds = folder, adds
        self.fields = FIELDS if timed else FIELDS[:-1]
        self.n_entries, self.in_rows, self.whole = 0, True, True
        self.per_row = np.zeros(0, np.int64)
        self.seen = np.zeros(0, bool)  # columns with an entry

    def fill(self, parts: Sequence[Triples], progress: Progress | None) -> None:
        """Store all entries in order of arrival."""
        last = -1
        with contextlib.ExitStack() as stack:
            files = {name: stack.enter_context((self.folder / name).open("wb")) for name in ("rows", *self.fields)}
            for part in parts:
                for chunk in part.chunks():
                    rows = chunk.rows
                    if not len(rows):
                        continue
                    self.in_rows = self.in_rows and rows[0] >= last and bool((np.diff(rows) >= 0).all())
                    last = rows[-1]
                    self.whole = self.whole and bool(((chunk.values >= 0) & (chunk.values % 1 == 0)).all())
                    counts = np.bincount(rows, minlength=len(self.per_row))
                    counts[: len(self.per_row)] += self.per_row
                    self.per_row = counts
                    if (most := int(chunk.columns.max()) + 1) > len(self.seen):
                        self.seen = np.concatenate([self.seen, np.zeros(max(most, len(self.seen)), bool)])
                    self.seen[chunk.columns] = True
                    files["rows"].write(np.ascontiguousarray(rows, np.int32))
                    for name in self.fields:  # `tofile` would not give the reason of a failure
                        files[name].write(np.ascontiguousarray(getattr(chunk, name), TYPES[name]))
                    self.n_entries += len(rows)
                    if progress is not None:
                        progress("reading", self.n_entries, 0.0)
        if not self.n_entries:
            raise DataError(f"{parts[0].path}: has no entries")

    def in_order(self, source: Triples, row_ids, column_ids) -> tuple[int, Entries]:
        """Sort entries by row and column and add up equal pairs; return the number of repeated entries, and the
        entries."""
        n = max(source.shape[0], len(self.per_row))
        self.per_row = np.concatenate([self.per_row, np.zeros(n - len(self.per_row), np.int64)])
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.per_row)])
        kept = {name: np.memmap(self.folder / name, TYPES[name], "r+", shape=self.n_entries) for name in self.fields}
        if not self.in_rows:
            kept = self._by_row(kept, starts)
        ids = (row_ids or _texts(source.row_ids), column_ids or _texts(source.column_ids))
        at, lengths = 0, self.per_row
        for first, last in cuts(starts, PIECE):
            rows = np.repeat(np.arange(first, last), np.diff(starts[first : last + 1]))
            piece = slice(starts[first], starts[last])
            columns = np.array(kept["columns"][piece])
            order = np.lexsort((columns, rows))
            rows, columns = rows[order], columns[order]
            new = np.concatenate([np.ones(min(1, len(rows)), bool), (np.diff(rows) > 0) | (np.diff(columns) > 0)])
            into = slice(at, at + int(new.sum()))
            for name in self.fields:
                values = np.array(kept[name][piece])[order]
                if not new.all():
                    values = self._merged(name, values, rows, columns, new, ids)
                kept[name][into] = values
            if not new.all():
                lengths[first:last] = np.bincount(rows[new] - first, minlength=last - first)
            at = into.stop
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

        def pieces() -> Iterator[SparseRows]:
            for first, last in cuts(starts, PIECE):
                piece = slice(starts[first], starts[last])
                arrays = {name: np.array(kept[name][piece]) for name in self.fields}
                yield SparseRows(starts[first : last + 1] - starts[first], **arrays)

        v = max(source.shape[1], int(self.seen.nonzero()[0][-1]) + 1)
        return self.n_entries - at, Entries(n, v, at, "times" in self.fields, pieces, *ids)

    def _by_row(self, kept: dict[str, np.memmap], starts: np.ndarray) -> dict[str, np.memmap]:
        """Sort the entries so that those of a row are adjacent, in order of arrival."""
        rows = np.memmap(self.folder / "rows", np.int32, "r", shape=self.n_entries)
        sorted_ = {name: self._room(f"sorted-{name}", TYPES[name]) for name in self.fields}
        free = starts[:-1].copy()
        for start in range(0, self.n_entries, PIECE):
            piece = slice(start, start + PIECE)
            order = np.argsort(rows[piece], kind="stable")
            of_piece = np.array(rows[piece])[order]
            which, at, many = np.unique(of_piece, return_index=True, return_counts=True)
            place = np.repeat(free[which] - at, many) + np.arange(len(of_piece))
            free[which] += many
            for name in self.fields:
                sorted_[name][place] = np.array(kept[name][piece])[order]
        return sorted_

    def _room(self, name: str, dtype: type) -> np.memmap:
        """Map a file for all entries into memory. Its disk space is reserved first: a disk full at a page's write-back
        would kill the process."""
        with (self.folder / name).open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, self.n_entries * np.dtype(dtype).itemsize)
        return np.memmap(self.folder / name, dtype, "r+", shape=self.n_entries)

    def _merged(self, name: str, result, rows, columns, new, ids) -> np.ndarray:
        """Sum the values of equal pairs; keep the first of columns and times."""
        if name != "values":
            return result[new]
        if not self.whole or not self.adds:
            i = int(np.flatnonzero(~new)[0])
            row, column = (of[k] if of is not None else str(k + 1) for of, k in zip(ids, (rows[i], columns[i])))
            raise DataError(
                f"row {row!r} has two values in column {column!r}; expected one of each pair. Counts are added up if "
                "they are whole and called so: --names document,word,count"
            )
        total = np.add.reduceat(result.astype(np.float64), np.flatnonzero(new))
        if total.max() >= MAX_COUNT:
            raise DataError(f"the counts of a pair add up to {total.max():,.0f}; expected less than {MAX_COUNT:,}")
        return total


def _texts(ids: dict[str, int] | None) -> list[str] | None:
    return None if ids is None else list(ids)


def _left_over(path: str | os.PathLike | None, ids: Sequence[str] | None, many: int) -> Iterator[str]:
    if ids is not None and len(ids) > many:
        yield f"{path}: {len(ids):,} lines, of which the first {many:,} are used"


def _warnings(spool: _Spool, entries: Entries, twice: int) -> Iterator[str]:
    if twice:
        yield f"{counted(twice, 'entry', 'entries')} of a pair that was there before: values added up"
    if empty := int((spool.per_row == 0).sum()):
        yield f"{counted(empty, 'row')} without an entry"
    if idle := entries.n_columns - int(spool.seen.sum()):
        yield f"{counted(idle, 'column')} without an entry"


def print_sparse(summary: SparseSummary) -> None:
    """Print the summary of an import on standard output."""
    from mpibayes.text import visible

    for title, text in [*in_words(summary.table), ("read as", summary.format), ("time", f"{summary.seconds:.1f} s")]:
        print(f"{title + ':':<16}{visible(text)}")
    for warning in summary.warnings:
        print(f"warning: {visible(warning)}")
