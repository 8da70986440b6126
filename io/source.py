"""Reading files of other programs as text: CSV in any dialect, and files with typed columns (`formats`), as batches of
dictionary-encoded columns.

Every cell arrives as text (`cells`); its meaning is decided elsewhere (`infer`, `encode`). Files are streamed: memory
depends on the block size, never on the number of rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.cells import Batch, Cells, Place
from mpibayes.io.csv_rows import lines_of, read_csv, read_csv_loose
from mpibayes.io.dialect import MAX_PROBLEMS, Dialect, check_encoding, look, python_rows
from mpibayes.io.files import first_line, open_regular, reading
from mpibayes.io.formats.typed import Asked, Typed
from mpibayes.io.repeated import repeated
from mpibayes.io.watched import pairs_of, with_pairs
from mpibayes.text import counted, near, option

Progress = Callable[[str, int, float], None]  # phase, rows done, share of the input read


class TextSource:
    """One or several files with the same columns, read in the order given."""

    def __init__(
        self,
        paths: str | os.PathLike | Sequence[str | os.PathLike],
        *,
        delimiter: str | None = None,
        header: bool | None = None,
        encoding: str | None = None,
        names: Sequence[str] | None = None,
        expected: Sequence[str] = (),
        sheet: str | None = None,
        likely_sheet: str | None = None,
        count: str | None = None,
        survival: Sequence[str] = (),
    ):
        """Look at the head of each file. expected: names that mark a first line as a header if most are present. sheet:
        of an Excel workbook; likely_sheet: read if it exists, otherwise the first sheet. count: column with the number
        of equal rows that each row represents; each is read so often (`repeated`). survival: pairs of columns read as
        one, at the place of the first (`watched`).

        Raises DataError for a file that is missing, empty, not text, or whose columns differ from the first file's;
        ConfigError for an unknown encoding, an impossible delimiter, or a count that is not a column.
        """
        paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        if not paths:
            raise ConfigError("no file to import")
        self.paths = tuple(Path(p) for p in paths)
        self.header_detected = header is None
        self.sheet = sheet
        asked = Asked(sheet, likely_sheet, header, encoding, expected)
        encoding = check_encoding(encoding, self.paths[0])
        if delimiter is not None and (not delimiter.isascii() or len(delimiter) != 1 or delimiter in '\0"\r\n'):
            raise ConfigError(f"delimiter {delimiter!r}: expected one ASCII character, such as ',' or ';' or a tab")
        first = look(self.paths[0], delimiter, encoding, names, asked)
        self.names = first.names
        self.dialect = first
        self._dialects = [first]
        for path in self.paths[1:]:
            self._dialects.append(self._look_again(path, first, encoding, replace(asked, expected=self.names)))
        self.count = count
        if count is not None:
            self.position_of("count", count)
        self.survival = pairs_of(survival, self.names)
        self.notes = [note for dialect in self._dialects if dialect.typed for note in dialect.typed.notes]

    def position_of(self, option: str, name: str) -> int:
        """Position of the numeric column that an option names. Raises ConfigError if there is none."""
        if name not in self.names or self.names.index(name) in self.dialect.unread:
            has = (
                near(name, self.names)
                or f"; it has {', '.join(self.names[:12])}{' ...' if len(self.names) > 12 else ''}"
            )
            raise ConfigError(f"{option}: no column of numbers '{name}' in {self.paths[0]}{has}")
        return self.names.index(name)

    @property
    def labels(self) -> Mapping[int, Mapping[str, str]]:
        """Labels by code, in the codes' order, of each column that is read as its labels, by position."""
        content = self.dialect.typed
        return {i: content.labels[i] for i in content.as_labels} if content else {}

    @property
    def orders(self) -> Mapping[int, Sequence[str]]:
        """Categories from least to greatest, for each column that the file declares ordered, by position."""
        return self.dialect.typed.orders if self.dialect.typed else {}

    def _look_again(self, path: Path, first: Dialect, encoding: str, asked: Asked) -> Dialect:
        """Dialect of a later file: its columns must be the first file's, in the same order."""
        other = look(path, first.delimiter, encoding, None, asked)
        if other.typed and first.typed:
            other.typed.as_labels = first.typed.as_labels & other.typed.labels.keys()
        if other.header is False:
            if len(other.names) == len(self.names):
                return replace(other, names=self.names)
            raise DataError(f"{path}: {counted(len(other.names), 'column')}; {self.paths[0]} has {len(self.names)}")
        if other.names != self.names:
            here, there = set(other.names), set(self.names)
            problems = [f"missing: {n}" for n in self.names if n not in here]
            problems += [f"not in the first file: {n}" for n in other.names if n not in there]
            raise DataError(
                f"{path}: its columns differ from those of {self.paths[0]}",
                problems[:MAX_PROBLEMS] or ["the same names in another order"],
            )
        return other

    def batches(
        self,
        positions: Iterable[int] | None = None,
        progress: Progress | None = None,
        phase: str = "reading",
        as_text: Collection[int] | None = None,
    ) -> Iterator[Batch]:
        """Yield all rows, with the columns at `positions` (default: all) that have text cells. as_text: columns that
        are read as text, so that the rest may hold anything. Raises DataError if the text cannot be read."""
        positions = range(len(self.names)) if positions is None else sorted(set(positions))
        positions = [i for i in positions if as_text is not None or i not in self.dialect.unread]
        count = None if self.count is None else self.names.index(self.count)
        if count is not None:
            positions = sorted({*positions, count})
        kept, places = set(positions), {name: i for i, name in enumerate(self.names)}
        pairs = {(places[p.time], places[p.event]): p for p in self.survival if places[p.time] in kept}
        if pairs:
            positions = sorted(kept | {event for _, event in pairs})
            as_text = None if as_text is None else {*as_text, *(event for _, event in pairs)}
        sizes = [_size(p) for p in self.paths]
        total, before, rows = max(sum(sizes), 1), 0, 0
        for path, dialect, size in zip(self.paths, self._dialects, sizes, strict=True):
            with reading(path), open_regular(path) as raw:
                row = 1
                for columns, n in _read(path, raw, dialect, positions, as_text):
                    batch = with_pairs(Batch(path, row, n, columns), pairs, kept)
                    row += n
                    for part in [batch] if count is None else repeated(batch, self.count, count, rows):
                        yield part
                        rows += part.n_rows
                    if progress is not None:
                        known = dialect.typed.n_rows if dialect.typed else 0
                        done = size * row / known if known else raw.tell()
                        progress(phase, rows, min((before + done) / total, 1.0))
            before += size

    def head(self) -> list[str] | None:
        """Cells of the first file's header, as they are; None if it has none."""
        dialect = self.dialect
        if dialect.typed:
            return list(self.names)
        if not dialect.header:
            return None
        with reading(self.paths[0]), open_regular(self.paths[0]) as raw:
            return next(python_rows(raw, dialect))[1]

    def describe(self, places: Sequence[Place]) -> list[str]:
        """Describe each place as 'FILE row R (line L)'; the line is looked up by reading the file again."""
        rows: dict[Path, set[int]] = {}
        for place in places:
            rows.setdefault(place.path, set()).add(place.row)
        lines = {}
        for path, dialect in zip(self.paths, self._dialects, strict=True):
            if path in rows and dialect.format == "csv":
                lines |= {(path, row): line for row, line in lines_of(path, dialect, rows[path])}
            elif path in rows and dialect.typed.lines_above is not None:
                lines |= {(path, row): row + dialect.typed.lines_above for row in rows[path]}
        words = []
        for place in places:
            line = lines.get((place.path, place.row))
            words.append(f"{place.path} row {place.row:,}" + (f" (line {line:,})" if line else ""))
        return words


def _size(path: Path) -> int:
    with reading(path):
        return path.stat().st_size


def _read(
    path: Path, raw, dialect: Dialect, positions: list[int], as_text: Collection[int] | None
) -> Iterator[tuple[dict[int, Cells], int]]:
    if dialect.no_rows:
        return
    if dialect.typed is not None:
        unread = dialect.unread if as_text is None else set(positions) - set(as_text)
        yield from _read_typed(path, dialect.typed, positions, unread)
    elif dialect.loose_quotes:
        yield from read_csv_loose(path, raw, dialect, positions)
    else:
        yield from read_csv(path, raw, dialect, positions)


def _read_typed(
    path: Path, content: Typed, positions: list[int], unread: Collection[int]
) -> Iterator[tuple[dict[int, Cells], int]]:
    for batch in content.read(positions or [0]):
        columns = {}
        for at, i in enumerate(positions):
            array = batch.column(at)
            try:
                columns[i] = Cells.unread(array) if i in unread else Cells.of(array)
            except pa.ArrowInvalid as error:
                if "UTF8" not in str(error):
                    raise DataError(f"{path}: cannot be read: {first_line(error)}") from error
                name = content.names[i]
                what = f"column '{name}' has bytes that are not UTF-8 text; leave it out: {option('drop', name)}"
                raise DataError(f"{path}: {what}") from error
        yield columns, len(batch)
