"""Excel workbooks, old and new, through Calamine. One sheet is held in memory; it has at most 1,048,576 rows.

A column whose cells are all numbers, all true or false, or all dates has that type; any other is text, with numbers as
shown in Excel: 2 and not 2.0. Blank rows below the last one and columns without name and cells are not part of the
table.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, PasswordError, SheetTypeEnum

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.formats.typed import Asked, Typed, rows_at_once, understanding
from mpibayes.io.header import is_header
from mpibayes.io.packing import Seekable

SAMPLE_ROWS = 500  # used to decide whether the first one holds names
LISTED = 8  # names of sheets in a message


def look(path: Path, _variant: str, asked: Asked) -> Typed:
    try:
        with understanding(path, CalamineError, problem="cannot be read as an Excel workbook"):
            sheet, title, notes = _sheet(path, asked.sheet, asked.likely_sheet)
    except DataError as error:
        if isinstance(error.__cause__, PasswordError):
            raise DataError(f"{path}: is protected by a password; save it without one") from None
        raise
    rows = [[_text(cell) for cell in row] for row in itertools.islice(_rows(sheet), SAMPLE_ROWS)]
    if not rows:
        raise DataError(f"{path}: {title} is empty; expected a table with its names in the first row")
    header = is_header(rows, asked.expected) if asked.header is None else asked.header
    first = rows[0]
    if header and len(first) > 1 and sum(map(bool, first)) == 1 and len(rows) > 1 and sum(map(bool, rows[1])) != 1:
        raise DataError(
            f"{path}: {title} begins with a row of one cell, {next(filter(None, first))[:40]!r}; remove what is above "
            "the row of names"
        )
    kinds: list[set[type]] = [set() for _ in first]
    last = 0
    for number, row in enumerate(_rows(sheet, header), 1):
        for of_column, cell in zip(kinds, row):
            if cell != "":
                of_column.add(type(cell))
                last = number
    names = [name.strip() or f"column_{i}" for i, name in enumerate(first, 1)]
    names = names if header else [f"column_{i}" for i in range(1, len(first) + 1)]
    places = [i for i, of_column in enumerate(kinds) if of_column or (header and first[i].strip())]
    types = [_type(kinds[i]) for i in places]

    def read(positions: Sequence[int]) -> Iterator[pa.RecordBatch]:
        cells = itertools.islice(_rows(sheet, header), last)
        while chunk := list(itertools.islice(cells, rows_at_once(len(places)))):
            columns = [_column([row[places[i]] for row in chunk], types[i]) for i in positions]
            yield pa.record_batch(columns, [names[places[i]] for i in positions])

    above = (sheet.start or (0, 0))[0] + header
    return Typed(
        title, [names[i] for i in places], types, read, notes=notes, lines_above=above, header=header, n_rows=last
    )


def _sheet(path: Path, asked: str | None, likely: str | None) -> tuple[CalamineSheet, str, list[str]]:
    """Sheet, its title, and notes on other sheets. Raises ConfigError if there is none of this name."""
    with Seekable(path).open() as file:
        book = CalamineWorkbook.from_filelike(file)
        names = [sheet.name for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
        listed = ", ".join(map(repr, names[:LISTED])) + (", ..." if len(names) > LISTED else "")
        if not names:
            raise ValueError("it has no sheet")
        if asked is not None and asked not in names:
            raise ConfigError(f"--sheet {asked}: {path} has no such sheet; it has {listed}")
        name = asked or (likely if likely in names else names[0])
        several = len(names) > 1 and asked is None and likely is None
        notes = (
            [f"{path.name}: the first of its sheets was read, {name!r}, of {listed}: --sheet NAME"] if several else []
        )
        return book.get_sheet_by_name(name), f"Excel, sheet {name!r}", notes


def _rows(sheet: CalamineSheet, header: bool = False) -> Iterator[list[Any]]:
    """Rows of cells, "" for a blank one, from the first non-blank row; header: skip that row."""
    rows = itertools.dropwhile(lambda row: all(cell == "" for cell in row), sheet.iter_rows())
    return itertools.islice(rows, int(header), None)


def _type(kinds: set[type]) -> pa.DataType:
    if kinds and kinds <= {int, float}:
        return pa.float64()
    if kinds == {bool}:
        return pa.bool_()
    if kinds and kinds <= {datetime.date, datetime.datetime}:
        return pa.date32() if kinds == {datetime.date} else pa.timestamp("ms")
    return pa.time64("us") if kinds == {datetime.time} else pa.string()


def _column(cells: list[Any], of: pa.DataType) -> pa.Array:
    if pa.types.is_string(of):
        return pa.array([_text(cell) for cell in cells], of)
    if pa.types.is_timestamp(of):  # a date among times counts as its midnight
        cells = [datetime.datetime(c.year, c.month, c.day) if type(c) is datetime.date else c for c in cells]
    return pa.array([None if cell == "" else cell for cell in cells], of)


def _text(cell: Any) -> str:
    """Format a cell as Excel does in CSV."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
    if isinstance(cell, datetime.timedelta):  # a time of more than a day
        seconds = round(cell.total_seconds())
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return str(cell).strip()
