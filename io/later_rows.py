"""Files of rows later than a table's: read with the table's column types, never inferred again.

Levels new to the table are collected and follow its existing ones. Other novelties in the new rows are remarked on, or
refused if no cell can hold them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.cells import Batch, Cells
from mpibayes.io.clock import as_text, step_in_words
from mpibayes.io.dates import stored
from mpibayes.io.encode import Offences, known_numbers
from mpibayes.io.files import HDF5, first_bytes
from mpibayes.io.parts import with_levels
from mpibayes.io.recode import opened_like
from mpibayes.io.rows import Column, Rows, check_levels
from mpibayes.io.scales import columns_in
from mpibayes.io.source import Progress
from mpibayes.io.survey_weights import SurveyWeights
from mpibayes.io.table import Table
from mpibayes.text import counted, enumerated, near

SHOWN = 8  # new levels named in a message
ADVICE = "Mend the file, declare the text as missing (--missing), or import all files anew (--force)."


@dataclass
class _Levels(Offences):
    """Texts that are not levels of their column, all of them. A text that its column can never hold is `wrong`."""

    wrong: Offences = field(default_factory=Offences)
    closed: frozenset[str] = frozenset()  # boolean columns
    texts: dict[str, dict[str, int]] = field(default_factory=dict)  # cells, by column and text

    def add(self, batch: Batch, column: str, cells: Cells, counts: np.ndarray, bad: np.ndarray, expected: str) -> None:
        if column in self.closed:
            return self.wrong.add(batch, column, cells, counts, bad, expected)
        new = self.texts.setdefault(column, {})
        for i in np.flatnonzero(bad & (counts > 0)):
            text = cells.texts[int(i)].as_py()
            new[text] = new.get(text, 0) + int(counts[i])
        return None


class NewRows:
    """Files of new rows, and remarks on them."""

    def __init__(self, whole: Table, paths: Sequence[Path], options: dict, missing, progress: Progress | None):
        for path in paths:
            if first_bytes(path) == HDF5:
                raise DataError(f"{path}: a typed table; append the file that it was imported from")
        self._whole, self._paths, self._progress = whole, paths, progress
        count = whole.source.get("count")
        self._options = {**options, "missing": missing, "count": count}
        self._n_new: dict[str, dict[str, int]] = {}
        self._uneven: dict[str, list] = {}  # by column: cells off its steps, and the first such number
        self._files = self._opened(whole.columns)

    def _opened(self, columns: Sequence[Column]) -> list:
        like, every = self._whole.having(columns), [c.name for c in columns]
        return [opened_like(like, path, every, **self._options) for path in self._paths]

    def require_columns(self, drop: Sequence[str]) -> None:
        """Raise DataError with all columns a file lacks or has in excess; ConfigError for a `drop` that is not a
        column."""
        source = self._whole.source
        known = {*source.get("names", ()), *(c.name for c in self._whole.columns), source.get("count")}
        for file in self._files:
            extra = [name for name in file.names if name not in known]
            dropped = columns_in(drop, file.names)
            for name in set(dropped) - set(file.names):
                raise ConfigError(f"--drop {name}: no such column in {file.paths[0]}{near(name, file.names)}")
            in_file = source.get("calendar", {})
            lacking = dict.fromkeys(in_file.get(name, name) for name in file.lacking)
            if weight := self._whole.weight:
                lacking |= {} if weight in file.names else {weight: None}
            problems = [f"no column '{name}'{near(name, extra)}" for name in lacking]
            more = (name for name in extra if name not in dropped)
            problems += [
                f"column '{name}': the table's source had none; leave it out with --drop '{name}'" for name in more
            ]
            if problems:
                raise DataError(f"{file.paths[0]}: has other columns than {self._whole.path}", problems)

    def fitted(self) -> tuple[tuple[Column, ...], int]:
        """Columns that hold all the new cells, and the number of rows. Raises DataError with the cells that no column
        can hold."""
        columns, n_rows = tuple(map(_without_statistics, self._whole.columns)), 0
        while True:
            n_rows, new = self._scanned(columns)
            if not new:
                return columns, n_rows
            columns = with_levels(columns, new)
            self._files = self._opened(columns)
            for column in columns:
                check_levels(column.name, column.kind, column.levels)

    def _scanned(self, columns: Sequence[Column]) -> tuple[int, dict[str, list[str]]]:
        """Number of rows, and for each column the levels it lacks."""
        n_rows, new, self._uneven = 0, {}, {}
        for file in self._files:
            wrong = Offences()
            levels = _Levels(wrong=wrong, closed=frozenset(c.name for c in columns if c.kind == "boolean"))
            n_file = 0
            for rows, _ in self._batches(file, wrong, levels):
                n_file += len(rows)
                self._look_at_numbers(columns, rows, file.paths[0])
            if wrong:
                raise wrong.error(file.source, ADVICE)
            if not n_file:
                raise DataError(f"{file.paths[0]}: has no rows")
            n_rows += n_file
            for name, texts in levels.texts.items():
                for text, n in texts.items():
                    cells = new.setdefault(name, {})
                    cells[text] = cells.get(text, 0) + n
        self._n_new |= new
        by_name = {c.name: c for c in columns}
        return n_rows, {name: in_order(by_name[name].levels, list(texts)) for name, texts in new.items()}

    def _look_at_numbers(self, columns: Sequence[Column], rows: Rows, path: Path) -> None:
        for c in columns:
            if c.kind != "real" or not (c.resolution or c.log):
                continue
            x = rows.reals[:, c.index]
            x = x[~np.isnan(x) & ~np.isin(x, c.atoms)]
            if c.log and (x <= 0.5 * c.resolution).any():
                value = f"{x.min():.10g}"
                raise DataError(
                    f"{path}: column '{c.name}': {value} has no logarithm, which is the table's scale of it; "
                    'import all files anew (--force) with scale = "linear" for it in the schema'
                )
            if c.resolution:
                times = np.abs(x) / c.resolution
                off = np.abs(times - np.round(times)) > 1e-9 * np.maximum(times, 1.0)
                if off.any():
                    entry = self._uneven.setdefault(c.name, [0, float(x[off][0])])
                    entry[0] += int(off.sum())

    def _batches(self, file, wrong: Offences, levels: Offences) -> Iterator[tuple[Rows, np.ndarray | None]]:
        weights = None
        if self._whole.weight is not None:
            weights = SurveyWeights(file.source, self._whole.weight)
            form = self._whole.source.get("forms", {}).get(weights.name)
            weights.form = None if form is None else stored(form)
        for rows, batch in file.batches(wrong, levels, [weights.at] if weights else (), self._progress):
            yield rows, None if weights is None else weights.of(batch)

    def coded(self, columns: Sequence[Column]) -> Iterator[tuple[Rows, np.ndarray | None]]:
        """Yield the rows to write, with their weights if the table has weights."""
        for file in self._files:
            changed = Offences()
            for rows, weights in self._batches(file, changed, changed):
                if changed:
                    raise changed.error(file.source, "The file changed while it was read.")
                yield rows, weights

    def remarks(self, columns: Sequence[Column]) -> Iterator[str]:
        """Yield remarks on cells unlike any in the table."""
        for before, c in zip(self._whole.columns, columns):
            if new := c.levels[len(before.levels) :]:
                cells = sum(self._n_new[c.name].values())
                names = enumerated([repr(v) for v in new[:SHOWN]]) if len(new) <= SHOWN else (
                    f"{', '.join(repr(v) for v in new[:SHOWN])} and {len(new) - SHOWN:,} more"
                )  # fmt: skip
                order = "; they come last in its order, after " + repr(before.levels[-1]) if before.ordered else ""
                yield f"column '{c.name}': {counted(len(new), 'new level')} in {counted(cells, 'cell')}: {names}{order}"
        by_name = {c.name: c for c in columns}
        for name, (n, first) in self._uneven.items():
            c = by_name[name]
            step = step_in_words(c.resolution) if c.unit else f"in steps of {c.resolution:.6g}"
            value = as_text(first, c.unit) if c.unit else f"{first:.10g}"
            are = f"{n:,} values are" if n > 1 else "1 value is"
            yield f"column '{name}': {are} not {step} as the table's are, first {value}; each stands for as wide a cell"


def _without_statistics(column: Column) -> Column:
    fresh = Column(column.name, column.kind, column.block, column.index)
    kept = ("levels", "resolution", "atoms", "log", "unit", "ordered", "part_of", "ends")
    return replace(fresh, **{name: getattr(column, name) for name in kept})


def in_order(levels: Sequence[str], new: Sequence[str]) -> list[str]:
    """Sort new levels by number, if all are numbers, keeping one text of each; otherwise by text.

    >>> in_order(["1", "2"], ["10", "9.0", "9"])
    ['9', '10']
    """
    of_new = known_numbers(pa.array(new, pa.string()))
    if np.isnan(of_new).any():
        return sorted(new)
    shortest: dict[float, str] = {}
    for value, text in sorted(zip(of_new.tolist(), new), key=lambda pair: (pair[0], len(pair[1]), pair[1])):
        shortest.setdefault(value, text)
    if np.isnan(known_numbers(pa.array(list(levels), pa.string()))).any():
        return sorted(new)
    return list(shortest.values())
