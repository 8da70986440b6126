"""`mpibayes import --append`: adds later rows to a table as a new part (`io/parts.py`).

The table defines the columns: kinds, steps, atoms, markers of missing cells and forms of numbers are never inferred
again. Its files are not touched; the new part appears under its name when it is complete, or never.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.files import require_unchanged, stamps
from mpibayes.io.import_notes import NONE
from mpibayes.io.later_rows import NewRows
from mpibayes.io.parts import in_columns, part_path, table_of_part
from mpibayes.io.rows import BLOCKS, Column, Rows, slice_rows
from mpibayes.io.source import Progress
from mpibayes.io.table import Table, TableWriter
from mpibayes.io.tables import folder_from
from mpibayes.io.turns import in_turn
from mpibayes.text import counted, duration, visible

WAITED_S = 2.0  # for another append; a shorter wait is not reported


class RowsAreThere(DataError):
    """A part of the table has the same rows."""


@dataclass(frozen=True)
class Appended:
    """Outcome of an append: the table with its new part, and remarks for its owner. written: False for a dry run."""

    table: Path
    part: Path
    n_rows: int
    n_before: int
    remarks: tuple[str, ...]
    seconds: float
    written: bool

    def lines(self) -> list[str]:
        """The summary for people."""
        n, total = counted(self.n_rows, "row"), self.n_before + self.n_rows
        if not self.written:
            head = f"{self.table}: {n} fit, and would follow its {self.n_before:,}; nothing was written"
        else:
            head = f"{self.table}: {n} appended, in {self.part.name}: now {total:,} rows, {self.seconds:.1f} s"
        return [visible(head), *(f"note: {visible(remark)}" for remark in self.remarks)]


def append_rows(
    sources: str | os.PathLike | Sequence[str | os.PathLike],
    table: str | os.PathLike,
    *,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    missing: Sequence[str] = (),
    drop: Sequence[str] = (),
    again: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    check: Callable[[Sequence[Column], int], None] | None = None,
) -> Appended:
    """Append the rows of one or several files to the typed table `table`, as a new part.

    missing: markers in addition to the table's; drop: columns of the files to skip, which the table's sources did not
    have; again: append rows even if a part of the table has them already. dry_run: only check. check: called with the
    columns and the number of new rows before they become part of the table; an exception from it keeps them out. Levels
    new to the table follow its existing ones.

    Raises ConfigError (no such column to drop; another append was faster) or DataError (columns differ from the
    table's, cells they cannot hold, rows already in the table, files that cannot be read or written). On any error the
    table is unchanged.
    """
    start = time.perf_counter()
    paths = [Path(p) for p in ([sources] if isinstance(sources, str | os.PathLike) else sources)]
    options = {"delimiter": delimiter, "header": header, "encoding": encoding}
    with nullcontext(0.0) if dry_run else in_turn(Path(table)) as waited:
        whole = Table.open(table)
        part = _new_part(whole)
        before = stamps(paths)
        new = NewRows(whole, paths, options, missing, progress)
        new.require_columns(drop)
        columns, n_rows = new.fitted()
        if check is not None:
            check(columns, n_rows)
        files = {"files": [path.name for path in paths], "folder": folder_from(whole.path, paths)}
        source = {**whole.source, **files, "absent": [], **NONE}
        writing = TableWriter(part, columns, n_rows, source=source, follows=whole.fingerprint)
        with nullcontext() if dry_run else writing as writer:
            digest = _written(new, columns, writer)
            if not again:
                _require_new(whole, columns, n_rows, digest)
            require_unchanged(before)
            if Table.open(whole.path).fingerprint != whole.fingerprint:
                raise ConfigError(f"{whole.path}: changed meanwhile; run the same command again")
    remarks = list(new.remarks(columns))
    if waited > WAITED_S:
        remarks.insert(0, f"waited {duration(waited, words=True)} for another change of a table in this folder")
    seconds = time.perf_counter() - start
    return Appended(whole.path, part, n_rows, whole.n_rows, tuple(remarks), seconds, not dry_run)


def _written(new: NewRows, columns: Sequence[Column], writer: TableWriter | None) -> str:
    """Write the new rows, unless this is a dry run, and return a digest of their cells."""
    content = _Content()
    for rows, weights in new.coded(columns):
        content.add(rows)
        if writer is not None:
            writer.write(rows, weights)
    return content.digest()


def _new_part(whole: Table) -> Path:
    """Path of a table's next part."""
    if whole.pieces[0].follows:
        table = table_of_part(whole.path)
        raise ConfigError(f"{whole.path}: is a part of a table; name the table{f' {table}' if table else ''}")
    part = part_path(whole.path, len(whole.pieces) + 1)
    if os.path.lexists(part):
        raise ConfigError(f"{part}: has the name of the table's next part, but is none; move it away")
    return part


def _require_new(whole: Table, columns: Sequence[Column], n_rows: int, digest: str) -> None:
    """Raise DataError if a part of the table has the same rows. Only parts with equally many rows are read."""
    for number, piece in enumerate(whole.pieces, 1):
        if piece.n_rows == n_rows:
            content, step = _Content(), slice_rows(columns)
            for start in range(0, n_rows, step):
                rows = piece.read(start, min(start + step, n_rows))
                content.add(in_columns(rows, piece.columns, columns))
            if content.digest() == digest:
                which = f"its part {number}, {piece.path.name}," if number > 1 else "the table, as first imported,"
                raise RowsAreThere(
                    f"{whole.path}: {which} has these {counted(n_rows, 'row')} already; nothing was appended. If they "
                    "are other rows that happen to be equal, append them with --force"
                )


class _Content:
    """Digest of the cells of rows in order, independent of batch sizes."""

    def __init__(self):
        self._blocks = {block: hashlib.sha256() for block in BLOCKS}

    def add(self, rows: Rows) -> None:
        for block, digest in self._blocks.items():
            digest.update(np.ascontiguousarray(getattr(rows, block)))

    def digest(self) -> str:
        return "".join(digest.hexdigest() for digest in self._blocks.values())
