"""Names of the rows of a table: cells of a column of the table, or of the file it was imported from, and lines of that
file.

The import leaves identifiers out of the table, so that they are often only in the source. A source is used once its
cells have been compared with the table's: a file that was sorted or filtered would name other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.dialect import MARKED, python_rows
from mpibayes.io.files import open_regular, reading
from mpibayes.io.infer import ID_NAME
from mpibayes.io.recode import stream_like
from mpibayes.io.rows import ARRAYS, SLICE_ROWS, Column
from mpibayes.io.source import TextSource
from mpibayes.io.table import Table
from mpibayes.io.tables import sources_near
from mpibayes.text import near

Texts = Iterator[list[str]]  # of consecutive rows, in batches


class Name(NamedTuple):
    """One way to name the rows: a heading, and the texts of all rows in order."""

    heading: str
    texts: Callable[[], Texts]


class RowNames:
    """ids: columns that name the rows, from the table or its source; by default the table's identifier, if it has one.
    sources: the files it was imported from, by default files of their names beside the table, in the parent folder, or
    in the working directory.

    names: the requested columns; `row`, from 1; and `line`, if the source is one CSV file without a column that counts
    equal rows. notes: for the user.
    Raises ConfigError (no such column, no such file), DataError (the file is not what the table was imported from).
    """

    def __init__(self, table: Table, ids: Sequence[str] = (), sources: Sequence[Path] = ()):
        self._table, self._given, ids = table, list(sources), list(dict.fromkeys(ids))
        self.notes: list[str] = []
        columns = {c.name: c for c in table.columns}
        result = [columns[name] for name in ids if name in columns] if ids else [*filter(None, [identifier_of(table)])]
        self.names = [Name(c.name, lambda c=c: self._cells(c)) for c in result]
        asked = [name for name in ids if name not in columns]
        if asked:
            source = self._opened(asked[0])
            self.names += [self._of_source(source, name) for name in asked]
            self.names.sort(key=lambda name: ids.index(name.heading))
        self.names.append(Name("row", self._numbers))
        about = table.source
        if about.get("format") == "csv" and len(about.get("files", ())) == 1 and not about.get("count"):
            self.names.append(Name("line", self._lines()))

    def blocks(self, rows: int) -> Iterator[list[list[str]]]:
        """Yield the texts of `rows` rows at a time, a list for each of `names`."""
        parts = [_regrouped(name.texts(), rows) for name in self.names]
        return map(list, zip(*parts, strict=True))

    # --- of the table -------------------------------------------------------------------------------------------------

    def _cells(self, column: Column) -> Texts:
        for start in range(0, self._table.n_rows, SLICE_ROWS):
            rows = self._table.read(start, min(start + SLICE_ROWS, self._table.n_rows))
            cells = getattr(rows, column.block)[:, column.index].tolist()
            texts = [*column.levels, ""]  # missing cells come last
            yield [texts[code] for code in cells] if column.levels else ["" if x != x else f"{x:.15g}" for x in cells]

    def _numbers(self, first: int = 1) -> Texts:
        for start in range(0, self._table.n_rows, SLICE_ROWS):
            stop = min(start + SLICE_ROWS, self._table.n_rows)
            yield [str(n) for n in range(start + first, stop + first)]

    # --- of its source ------------------------------------------------------------------------------------------------

    def _paths(self) -> list[Path] | None:
        """Paths of the source's files; None if they are not there."""
        if self._given:
            return self._given
        return sources_near(self._table.path, self._table.source)

    def _opened(self, column: str) -> TextSource:
        """Open the source and compare it with the table."""
        paths, about = self._paths(), self._table.source
        if paths is None:
            names = ", ".join(about.get("files", ()))
            where = f"the file it was imported from, {names}, is not beside it: name it with --source" if names else (
                "it was not imported from a file"
            )  # fmt: skip
            raise ConfigError(f"{self._table.path}: has no column '{column}', and {where}")
        for path in paths:
            with reading(path, ConfigError):
                if not path.exists():
                    raise ConfigError(f"--source {path}: there is no such file")
        source = _source(paths, about)
        require_same(self._table, paths)
        return source

    def _of_source(self, source: TextSource, column: str) -> Name:
        if column not in source.names:
            raise ConfigError(
                f"--id {column}: no such column in {self._table.path}, nor in {source.paths[0]}"
                f"{near(column, source.names)}"
            )
        at = source.names.index(column)

        def texts() -> Texts:
            for batch in source.batches([at]):
                cells = batch.columns[at]
                yield np.array(cells.texts.to_pylist(), object)[cells.codes].tolist()

        return Name(column, texts)

    def _lines(self) -> Callable[[], Texts]:
        """Lines of the source; if it is missing or has changed, as if each row were one line."""
        header = bool(self._table.source.get("header"))
        paths = self._paths()
        if paths is None:
            self.notes.append("line counts one line for each row, for the table's source is not there to be looked at")
            return lambda: self._numbers(1 + header)
        source, lines = _source(paths, self._table.source), np.zeros(self._table.n_rows, np.int64)
        with open_regular(paths[0]) as raw:
            rows = python_rows(raw, source.dialect, "replace")
            n = -int(header)
            for line, _ in rows:
                if 0 <= n < len(lines):
                    lines[n] = line
                n += 1
        if n != len(lines):
            self.notes.append(f"line counts one line for each row, for {paths[0]} has changed since it was imported")
            return lambda: self._numbers(1 + header)
        return lambda: ([str(n) for n in lines[i : i + SLICE_ROWS].tolist()] for i in range(0, len(lines), SLICE_ROWS))


def require_same(table: Table, paths: Sequence[Path]) -> None:
    """Raise DataError unless the files have the table's rows in its order."""
    row = 0
    other = f"{', '.join(map(str, paths))}: not what {table.path} was imported from"
    advice = "give the file as it was then, or import it again"
    for path in paths:
        for rows in stream_like(table, path, check_first=False, count=table.source.get("count")):
            n = min(len(rows), table.n_rows - row)
            mine = table.read(row, row + n)
            for block in ARRAYS:
                a, b = getattr(mine, block), getattr(rows, block)[:n]
                same = (a == b) | ((a != a) & (b != b))
                if not same.all():
                    at = row + int(np.flatnonzero(~same.all(axis=1))[0])
                    raise DataError(f"{other}: row {at + 1:,} has other cells; {advice}")
            row += n
            if n < len(rows):
                raise DataError(f"{other}: more than the table's {table.n_rows:,} rows; {advice}")
    if row < table.n_rows:
        raise DataError(f"{other}: {row:,} rows instead of {table.n_rows:,}; {advice}")


def identifier_of(table: Table) -> Column | None:
    """First column that names the rows: with as many levels as rows, or with distinct numbers under the name of an
    identifier. The import leaves such columns out unless they are kept (--keep)."""
    for column in table.columns:
        if column.n_missing == 0 and (
            len(column.levels) == table.n_rows > 1
            or (not column.levels and ID_NAME.search(column.name) and _all_differ(table, column))
        ):
            return column
    return None


def _all_differ(table: Table, column: Column) -> bool:
    values = np.concatenate([getattr(rows, column.block)[:, column.index] for rows in table.slices()])
    return len(np.unique(values)) == len(values)


def _source(paths: Sequence[Path], about: dict) -> TextSource:
    """Open the files in the way that the table's import read them."""
    given = {key: about.get(key) for key in ("delimiter", "header", "encoding", "count")}
    if given["encoding"] in MARKED:  # the file itself shows which
        given["encoding"] = None
    return TextSource(paths, **given, names=None if about.get("header", True) else about.get("names"))


def _regrouped(texts: Texts, n: int) -> Texts:
    """Regroup the texts, n at a time."""
    held: list[str] = []
    for subset in texts:
        held += subset
        while len(held) >= n:
            yield held[:n]
            held = held[n:]
    if held:
        yield held
