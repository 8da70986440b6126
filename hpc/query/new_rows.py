"""Rows that a question is about: from a file, read like the table, or from the table by number; whole, or in
batches."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.parallel.agreement import agree, on_root
from mpibayes.hpc.query.asking import Asking
from mpibayes.io.files import read_regular, reason
from mpibayes.io.rows import Rows
from mpibayes.text import counted, whole_number

BATCH = 8_192  # rows
_RANGE = r"[0-9]++(?:\s*+-\s*+[0-9]++)?+"
NUMBERS = re.compile(rf"\s*+{_RANGE}(?:[\s,]++{_RANGE})*+[\s,]*+")  # possessive: long blanks are scanned once


@dataclass(frozen=True)
class Named:
    """A file of rows, and its name in messages."""

    path: Path
    name: str


Source = Path | Named | str | np.ndarray  # a file, or rows of the table by number, possibly as a text


@dataclass(frozen=True)
class NewRows:
    """path: file, or name, of the rows; rows: of the table's used columns, as recorded; lacking: columns that the file
    lacks; notes: cells read as missing, for people. parts: reads the rows from the file if they are not held; `rows` is
    then empty. weights (n,): of all rows, in order, if they count by weight. numbers: of the rows in the table."""

    path: Path
    rows: Rows
    lacking: frozenset[str]
    notes: Sequence[str]
    parts: Callable[[], Iterator[Rows]] | None = None
    weights: np.ndarray | None = None
    numbers: np.ndarray | None = None

    def there(self, asking: Asking) -> list[str]:
        """Columns that can be asked about and are in the file."""
        return [c.name for c in asking.columns if c.name not in self.lacking]

    def batches(self) -> Iterator[NewRows]:
        """Yield batches of rows in order, at least one."""
        held = (self.rows.take(slice(i, i + BATCH)) for i in range(0, max(len(self.rows), 1), BATCH))
        for rows in self.parts() if self.parts else held:
            yield replace(self, rows=rows, parts=None)

    def whole(self, asking: Asking) -> NewRows:
        """A copy with all rows held in memory."""
        if self.parts is None:
            return self
        rows = Rows.concatenate(asking.asked.like.columns, list(self.parts()))
        return replace(self, rows=rows, parts=None)


def rows_of(asking: Asking, source: Source, unseen: str = "missing") -> NewRows:
    """Return the rows that a source names, read in batches if there are many. Collective. Raises ConfigError,
    DataError."""
    comm = asking.comm
    if isinstance(source, str):
        numbers = agree(comm, partial(numbers_in, source, asking.asked.like.n_rows), f"read {source}")
        source = source if numbers is None else numbers
    if isinstance(source, np.ndarray):
        return of_table(asking, source, called(source))
    if isinstance(source, Named):
        rows = rows_of(asking, source.path, unseen)
        notes = [note.replace(str(source.path), source.name) for note in rows.notes]
        return replace(rows, path=Path(source.name), notes=notes)
    read, what = partial(stream, asking, source, unseen), f"read {source}"
    if comm.size == 1:
        return agree(comm, read, what)
    checked = on_root(comm, lambda: read().notes, what=what)
    return agree(comm, lambda: read(notes=checked), what)


def stream(asking: Asking, source: str | Path, unseen: str = "missing", notes: Sequence[str] | None = None) -> NewRows:
    """Rows read in batches when needed, after one pass that checks them. notes: from the pass of another rank. Raises
    DataError."""
    from mpibayes.io.recode import Unseen, lacking_columns, lacking_message, stream_like, unseen_message

    like, record = asking.asked.like, dict[str, Unseen]()
    lacking = lacking_columns(like, source, {c.name for c in like.columns})
    read = partial(
        stream_like, like, source, unseen=unseen, may_lack=lacking, batch_rows=BATCH, check_first=False
    )  # fmt: skip
    first: list[Rows] = []
    if notes is None:
        for batch in read(record=record):
            first = [*first, batch][:2]
        notes = [lacking_message(lacking, like, source), unseen_message(record, source)]
    held = first if len(first) == 1 else []  # a single batch need not be read again
    rows = Rows.concatenate(like.columns, held)
    return NewRows(Path(source), rows, frozenset(lacking), [n for n in notes if n], None if held else read)


def numbers_in(text: str, n_rows: int) -> np.ndarray | None:
    """Row numbers named by `1,5,7-20`, or listed in the FILE of `@FILE`, ascending; None if `text` is neither. Raises
    DataError, and ConfigError for rows that a table of n_rows lacks."""
    if text.startswith("@"):
        try:
            listed = read_regular(text[1:]).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{text[1:]}: not a readable file of row numbers: {reason(error)}") from None
        if not NUMBERS.fullmatch(listed):
            raise DataError(f"{text[1:]}: expected numbers of rows and ranges of them, such as 7-20, and nothing else")
    elif not NUMBERS.fullmatch(text) or os.path.exists(text):
        return None
    else:
        listed = text
    ranges = [np.zeros(0, np.int64)]
    for first, last in re.findall(r"([0-9]++)(?:\s*+-\s*+([0-9]++))?", listed):
        ends = [_row(number, n_rows) for number in (first, last or first)]
        if ends[1] < ends[0]:
            raise ConfigError(f"{first}-{last}: {first} is above {last}")
        ranges.append(np.arange(ends[0], ends[1] + 1))
    return np.unique(np.concatenate(ranges))


def _row(digits: str, n_rows: int) -> int:
    """Row number, checked before a range of that size is made. Raises ConfigError."""
    number = whole_number(digits)
    if number is None or not 1 <= number <= n_rows:
        shown = digits if len(digits) <= 20 else f"{digits[:17]}..."
        raise ConfigError(f"row {shown}: expected rows of the table, 1 to {n_rows:,}")
    return number


def of_table(asking: Asking, numbers: np.ndarray, name: str) -> NewRows:
    """Rows of the table by number from 1, ascending, read in batches; with their weights if the question is about the
    population. Raises ConfigError."""
    n = asking.asked.like.n_rows
    wrong = numbers[(numbers < 1) | (numbers > n)]
    if len(wrong) or not len(numbers):
        name_of_row = f"row {wrong[0]}" if len(wrong) else "no row"
        raise ConfigError(f"{name_of_row}: expected rows of the table, 1 to {n:,}")
    blocks = [numbers[i : i + BATCH] - 1 for i in range(0, len(numbers), BATCH)]
    blank = Rows.concatenate(asking.asked.like.columns, [])
    weights = asking.run.table.weights() if asking.weighted else None
    if weights is not None:
        weights = weights[numbers - 1] / weights.max()  # equal weights are exactly 1
        if not weights.any():
            raise ConfigError(f"{name}: all of its rows have weight 0; compare with --unweighted")
    return NewRows(
        Path(name), blank, frozenset(), (), lambda: (asking.asked.recorded(block) for block in blocks), weights, numbers
    )


def others(asking: Asking, numbers: np.ndarray) -> NewRows:
    """Training rows other than `numbers` (from 1)."""
    rest = np.setdiff1d(asking.asked.training_numbers() + 1, numbers)
    return of_table(asking, rest, "the others")


def called(numbers: np.ndarray) -> str:
    """Name of a group of rows."""
    return f"row {numbers[0]}" if len(numbers) == 1 else f"{counted(len(numbers), 'row')} of the table"


def of_group(asking: Asking, number: int, n: int | None, view: int) -> tuple[NewRows, NewRows]:
    """Training rows of a group of clusters of the report, and all other rows; see `hpc.law.Asked`."""
    group = asking.asked.cluster_group(number, n, view)
    if group is None:
        raise ConfigError(f"a model without clusters has no group {number}")
    rows, n = group[0] + 1, group[1]
    name = f"group {number} of {n} ({counted(len(rows), 'row')})"
    return of_table(asking, rows, name), others(asking, rows)
