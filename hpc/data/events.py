"""Known cells of some rows: a few different events for each column, and the event of each row.

An event is about a recorded value: one of some levels, one of some atoms, or a number between two bounds. A number that
was recorded in steps stands for its cell, so that events have probabilities; in a column without a step, a single
number is an event of no width, which has a density.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibayes.io import spells
from mpibayes.io.rows import Column, Rows


@dataclass(frozen=True)
class Events:
    """U events of one column.

    codes (U,) int64: the level of a column with levels, or the atom of one with atoms; -1: none. sets (U, levels or
    atoms) bool: instead of codes, where an event has several. low, high (U,) float64: bounds of recorded values, the
    ends of their cells, of a column of numbers; NaN for an event that is of atoms alone. of a count they are the first
    and the last value; of a survival column, of the time of its event.
    """

    column: Column
    codes: np.ndarray
    sets: np.ndarray | None = None
    low: np.ndarray = field(default_factory=lambda: np.zeros(0))
    high: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, index: np.ndarray) -> Events:
        """Select some of the events."""
        sets = None if self.sets is None else self.sets[index]
        low, high = (a[index] if len(a) else a for a in (self.low, self.high))
        return Events(self.column, self.codes[index], sets, low, high)


@dataclass(frozen=True)
class Known:
    """Known cells of n rows: by the name of a column its events, and the event of each row, (n,) intp; the number of
    events stands for an unknown cell."""

    n_rows: int
    of: Mapping[str, tuple[Events, np.ndarray]]

    def take(self, index: np.ndarray | slice) -> Known:
        """Known cells of some rows."""
        taken = {name: (events, which[index]) for name, (events, which) in self.of.items()}
        return Known(len(np.zeros(self.n_rows, np.int8)[index]), taken)

    def block(self, rows: slice) -> Known:
        """Known cells of consecutive rows; where there are more events than rows, without events that none of them
        has."""
        taken = self.take(rows)
        of = {}
        for name, (events, which) in taken.of.items():
            if len(events) > taken.n_rows:
                used = np.zeros(len(events) + 1, bool)
                used[which] = True
                place = np.cumsum(used) - 1
                kept = np.flatnonzero(used[:-1])
                place[-1] = len(kept)
                events, which = events.take(kept), place[which]
            of[name] = events, which
        return Known(taken.n_rows, of)

    def only(self, names: Sequence[str]) -> Known:
        """Known cells of these columns, as far as there are any."""
        return Known(self.n_rows, {name: self.of[name] for name in names if name in self.of})

    def without(self, names: Sequence[str]) -> Known:
        """The other columns."""
        return Known(self.n_rows, {name: of for name, of in self.of.items() if name not in set(names)})

    def join(self, other: Known) -> Known:
        """Add the known cells of other columns of the same rows; those of a single row hold for all."""
        n = max(self.n_rows, other.n_rows)
        return Known(n, {**self.repeat(n).of, **other.repeat(n).of})

    def repeat(self, n: int) -> Known:
        """Known cells of n rows, from those of one row."""
        if self.n_rows == n:
            return self
        return Known(n, {name: (events, np.repeat(which, n)) for name, (events, which) in self.of.items()})


def known_of(rows: Rows, columns: Sequence[Column]) -> Known:
    """Known cells of recorded rows in some of their columns."""
    of = {}
    for column in columns:
        x = getattr(rows, column.block)[:, column.index]
        seen = ~column.is_missing(x)
        values, which = np.unique(x[seen], return_inverse=True)
        place = np.full(len(x), len(values), np.intp)
        place[seen] = which
        of[column.name] = of_values(column, values), place
    return Known(len(rows), of)


def of_values(column: Column, values: np.ndarray) -> Events:
    """Recorded values, each an event: level codes, or numbers."""
    if column.levels:
        return Events(column, values.astype(np.int64))
    codes = np.full(len(values), -1)
    for i, atom in enumerate(column.atoms):
        codes[values == atom] = i
    if column.kind == "survival":
        return Events(column, codes, None, *spells.bounds(values))
    half = 0.5 * column.resolution
    number = np.where(codes < 0, values, np.nan)
    low, high = number - half, number + half
    if column.log:  # which the logarithm has no value of is no atom, and no more is known
        none = number <= half
        low, high = np.where(none, -np.inf, low), np.where(none, np.inf, high)
    return Events(column, codes, None, low, high)


def of_range(column: Column, low: float, high: float) -> Events:
    """One event: a recorded number from low to high, both included. Raises ValueError if there is none."""
    if not low <= high:
        raise ValueError(f"{low:g} is above {high:g}")
    atoms = np.array(column.atoms)
    sets = ((atoms >= low) & (atoms <= high))[None]
    half = 0.5 * column.resolution
    return Events(column, np.full(1, -1), sets, np.array([low - half]), np.array([high + half]))


def of_levels(column: Column, codes: Sequence[int]) -> Events:
    """One event: one of some levels."""
    sets = np.zeros((1, len(column.levels)), bool)
    sets[0, list(codes)] = True
    return Events(column, np.full(1, -1), sets)


def everyone(events: Mapping[str, Events]) -> Known:
    """Known cells of one row, from one event of each column."""
    return Known(1, {name: (e, np.zeros(1, np.intp)) for name, e in events.items()})
