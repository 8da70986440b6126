"""Known cells of rows: a few distinct events for each column, and the event of each row.

An event is a statement about a recorded value: one of several levels or atoms, or a number between two bounds. A number
recorded in steps represents an interval, so events have probabilities; in a column without a step, a single number is
an event of zero width, which has a density.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibayes.io import spells
from mpibayes.io.rows import Column, Rows


@dataclass(frozen=True)
class Events:
    """U events of one column.

    codes (U,) int64: the level of a column with levels, or the atom of one with atoms; -1: none. sets (U, levels or
    atoms) bool: replaces codes if an event has several. low, high (U,) float64, for numeric columns: bounds of recorded
    values, at the ends of the intervals they represent; NaN for an event of atoms alone. For a count they are the first
    and the last value; for a survival column, bounds of the time of its event.
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
    """Known cells of n rows: for each column name its events, and the event index of each row, (n,) intp; the index
    len(events) marks an unknown cell."""

    n_rows: int
    of: Mapping[str, tuple[Events, np.ndarray]]

    def take(self, index: np.ndarray | slice) -> Known:
        """Select rows."""
        taken = {name: (events, which[index]) for name, (events, which) in self.of.items()}
        return Known(len(np.zeros(self.n_rows, np.int8)[index]), taken)

    def block(self, rows: slice) -> Known:
        """Select consecutive rows; if there are more events than rows, drop events that no row has."""
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
        """Keep only the columns `names`, if present."""
        return Known(self.n_rows, {name: self.of[name] for name in names if name in self.of})

    def without(self, names: Sequence[str]) -> Known:
        """Drop the columns `names`."""
        return Known(self.n_rows, {name: of for name, of in self.of.items() if name not in set(names)})

    def join(self, other: Known) -> Known:
        """Add the known cells of other columns of the same rows; a single row is repeated for all."""
        n = max(self.n_rows, other.n_rows)
        return Known(n, {**self.repeat(n).of, **other.repeat(n).of})

    def repeat(self, n: int) -> Known:
        """Repeat the known cells of one row n times."""
        if self.n_rows == n:
            return self
        return Known(n, {name: (events, np.repeat(which, n)) for name, (events, which) in self.of.items()})


def known_of(rows: Rows, columns: Sequence[Column]) -> Known:
    """Known cells of recorded rows, in the given columns."""
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
    """Turn recorded values, level codes or numbers, into one event each."""
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
    if column.log:  # a value without a logarithm is no atom: nothing more is known
        none = number <= half
        low, high = np.where(none, -np.inf, low), np.where(none, np.inf, high)
    return Events(column, codes, None, low, high)


def of_range(column: Column, low: float, high: float) -> Events:
    """Event that a recorded number lies in low..high, bounds included. Raises ValueError if the range is empty."""
    if not low <= high:
        raise ValueError(f"{low:g} is above {high:g}")
    atoms = np.array(column.atoms)
    sets = ((atoms >= low) & (atoms <= high))[None]
    half = 0.5 * column.resolution
    return Events(column, np.full(1, -1), sets, np.array([low - half]), np.array([high + half]))


def of_levels(column: Column, codes: Sequence[int]) -> Events:
    """Event that the level is one of `codes`."""
    sets = np.zeros((1, len(column.levels)), bool)
    sets[0, list(codes)] = True
    return Events(column, np.full(1, -1), sets)


def conditional(score: Callable[[Known], np.ndarray], known: Known, given: Known) -> np.ndarray:
    """Score of `known` given `given`; 0 where `given` is impossible. score: log probability of known cells in every
    cluster, (n, K + 1)."""
    before = score(given)
    possible = np.isfinite(before)
    return np.where(possible, score(known.join(given)) - np.where(possible, before, 0.0), 0.0)


def everyone(events: Mapping[str, Events]) -> Known:
    """Known cells of one row, from one event per column."""
    return Known(1, {name: (e, np.zeros(1, np.intp)) for name, e in events.items()})
