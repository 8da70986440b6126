"""Impossible cells: a column that is missing wherever another one has certain levels, as the living have no cause of
death. A mixture still has a distribution of the column there, as for cells that were not observed; a report that shows
it says that the table never has such a value.

All rows are checked as they are written. A pair of level and column is dropped as soon as the column has a value there,
so that few pairs remain after the first rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from mpibayes.io.rows import Column, Rows
from mpibayes.io.summary import named
from mpibayes.text import counted, enumerated

FIRST_ROWS = 2_048  # after which most pairs are dropped
MOST_LEVELS, MOST_PAIRS = 100, 4_000_000  # levels of a column that is checked; pairs of levels and columns
FEWEST_ROWS = 20  # rows with the levels
SLIPS = 0.001  # largest share of the rows with the levels that may have a value
BY_CHANCE = 1e-9  # largest probability that cells missing at random are missing in all rows with the levels
EXPLAINED = 0.5  # smallest share of the column's missing cells that lie in these rows
NAMED = 4


@dataclass(frozen=True)
class Absence:
    """`column` is missing where `where` has one of `levels`: in all of `rows` rows except `present`."""

    column: str
    where: str
    levels: tuple[str, ...]
    rows: int
    present: int

    @classmethod
    def stored(cls, source: Mapping) -> list[Absence]:
        """Read a table's absences from its record of its source."""
        return [cls(**{**entry, "levels": tuple(entry["levels"])}) for entry in source.get("absent", ())]

    def store(self) -> dict:
        return asdict(self)

    @property
    def how_often(self) -> str:
        return "hardly ever" if self.present else "never"

    def met(self, where: Column, codes: np.ndarray) -> np.ndarray:
        """Mask of rows that meet the condition, from their level codes (n,) of the column `where`."""
        return np.isin(codes, [v for v, level in enumerate(where.levels) if level in self.levels])

    def condition(self) -> str:
        """The condition in words: "'death' is '0' (5,705 rows)"."""
        levels = [f"'{level}'" for level in self.levels[:NAMED]]
        if len(self.levels) > NAMED:
            levels.append(counted(len(self.levels) - NAMED, "other level"))
        slips = f", but for {self.present:,}" if self.present else ""
        return f"'{self.where}' is {enumerated(levels, 'or')} ({counted(self.rows, 'row')}{slips})"


def reasons(absences: Sequence[Absence]) -> dict[str, str]:
    """Describe, by column, where each column is always missing."""
    words: dict[str, str] = {}
    for a in absences:
        words.setdefault(a.column, f"{a.how_often} where {a.condition()}")
    return words


def notes(absences: Sequence[Absence]) -> Iterator[str]:
    """Yield a line for each condition under which columns have no value; for each column the best explanation."""
    columns: dict[str, list[str]] = {}
    best = {a.column: a for a in reversed(absences)}
    for a in absences:
        if best[a.column] is a:
            columns.setdefault(a.condition(), []).append(a.column)
    for condition, names in columns.items():
        have = "column {} has" if len(names) == 1 else "columns {} have"
        yield f"{have.format(named(names))} no value where {condition}: missing by definition, as it seems"


def rows_lacking(absences: Sequence[Absence], columns: Sequence[Column], rows: Rows) -> Iterator[tuple[Absence, int]]:
    """Count, for each absence that some row meets, the rows that lack its cell."""
    by_name = {c.name: c for c in columns}
    everything = slice(0, len(rows))
    for a in absences:
        if a.column in by_name and a.where in by_name:
            where = by_name[a.where]
            here = a.met(where, getattr(rows, where.block)[:, where.index])
            if n := int((here & _missing(by_name[a.column], rows, everything)).sum()):
                yield a, n


class Absences:
    """Collects absences from the rows of a table as they are written, in order; `found` yields them."""

    def __init__(self, columns: Sequence[Column]):
        self._columns = columns
        levels = [
            (i, v) for i, c in enumerate(columns) if 2 <= len(c.levels) <= MOST_LEVELS for v in range(len(c.levels))
        ]
        if len(levels) * len(columns) > MOST_PAIRS:
            levels = []
        self._of, self._level = np.array(levels, np.int64).reshape(-1, 2).T
        self._alive = self._of[:, None] != np.arange(len(columns))
        self._present = np.zeros(self._alive.shape, np.int64)
        self._rows = np.zeros(len(levels), np.int64)
        self._missing = np.zeros(len(columns), np.int64)
        self._n = 0

    def add(self, rows: Rows) -> None:
        first = max(0, min(FIRST_ROWS - self._n, len(rows)))
        for part in (slice(0, first), slice(first, len(rows))):
            if part.stop > part.start and self._alive.any():
                self._add(rows, part)

    def _add(self, rows: Rows, part: slice) -> None:
        at, of = np.flatnonzero(self._alive.any(axis=1)), np.flatnonzero(self._alive.any(axis=0))
        present = np.stack([~_missing(self._columns[j], rows, part) for j in of], axis=1).astype(np.float32)
        has = np.empty((len(present), len(at)), np.float32)
        for k, i in enumerate(at):
            column = self._columns[self._of[i]]
            has[:, k] = getattr(rows, column.block)[part, column.index] == self._level[i]
        self._present[np.ix_(at, of)] += np.rint(has.T @ present).astype(np.int64)
        self._rows[at] += has.sum(axis=0, dtype=np.float64).astype(np.int64)
        self._missing[of] += len(present) - present.sum(axis=0, dtype=np.float64).astype(np.int64)
        self._n += len(present)
        self._alive &= self._present <= SLIPS * self._rows[:, None] + 3
        if self._n >= 10 * FIRST_ROWS:
            self._alive &= self._missing > 0

    def found(self) -> Iterator[Absence]:
        """Yield the absences of each column, starting with the one that explains most of its missing cells."""
        for j in range(len(self._columns)):
            each = [self._absence(j, i) for i in np.unique(self._of[self._alive[:, j]])]
            lacking = [a for a in each if a is not None]
            yield from sorted(lacking, key=lambda a: (a.present - a.rows, len(a.levels)))

    def _absence(self, j: int, i: int) -> Absence | None:
        """Absence of column j at levels of column i, or None."""
        at = np.flatnonzero((self._of == i) & self._alive[:, j] & (self._rows >= FEWEST_ROWS))
        at = at[self._present[at, j] <= SLIPS * self._rows[at]]
        rows, present = int(self._rows[at].sum()), int(self._present[at, j].sum())
        others = self._n - rows
        if not len(at) or not others or rows - present < EXPLAINED * self._missing[j]:
            return None
        share = (self._missing[j] - (rows - present)) / others  # share missing where the column has other levels
        with np.errstate(divide="ignore"):
            if self._rows[at].min() * np.log(share) > np.log(BY_CHANCE):
                return None
        levels = tuple(self._columns[i].levels[v] for v in self._level[at])
        return Absence(self._columns[j].name, self._columns[i].name, levels, rows, present)


def _missing(column: Column, rows: Rows, part: slice) -> np.ndarray:
    return column.is_missing(getattr(rows, column.block)[part, column.index])
