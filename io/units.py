"""The number of a unit that has several rows one after another, as in a panel: 8 years of man 13, 8 of man 17, ...

Such numbers are names, not quantities. As a column, they would be what clusters gather: the rows of the same units.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

FEWEST = 20  # units
YEARS = 1500, 2200  # a table sorted by year has runs of years
TIMES = {"age", "date", "day", "hour", "minute", "month", "quarter", "time", "week", "year"}


class Runs:
    """Runs of equal cells down a column, added batch by batch, in order.

    number: of runs so far, the last one included. length: of all runs but the last, 0 if they differ.
    """

    def __init__(self) -> None:
        self.number = 0
        self.length: int | None = None
        self._last: str | None = None
        self._current = 0

    def add(self, texts: pa.StringArray, codes: np.ndarray) -> None:
        """Add cells, cell i being texts[codes[i]]."""
        if not len(codes):
            return
        starts = np.concatenate([[0], np.flatnonzero(codes[1:] != codes[:-1]) + 1])
        lengths = np.diff(starts, append=len(codes))
        if texts[int(codes[0])].as_py() == self._last:
            lengths[0] += self._current
            self.number -= 1
        elif self.number:
            lengths = np.concatenate([[self._current], lengths])
            self.number -= 1
        self.number += len(lengths)
        self._last, self._current = texts[int(codes[-1])].as_py(), int(lengths[-1])
        for length in np.unique(lengths[:-1]):
            self.length = int(length) if self.length in (None, int(length)) else 0

    @property
    def equal(self) -> int:
        """Length of all runs if it is the same, else 0."""
        return self._current if self.length in (None, self._current) else 0


def names_time(name: str) -> bool:
    """True if a word of a column's name, such as days_in_study or ObsTime, is among TIMES.

    >>> names_time("days_in_study"), names_time("ObsTime"), names_time("dayton")
    (True, True, False)
    """
    return any(word.lower().removesuffix("s") in TIMES for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name))


def rows_a_unit(runs: Runs, name: str, n_distinct: int, low: float, high: float) -> int:
    """Return the rows of each unit, at least 2, if a column of n_distinct integers from `low` to `high` numbers units
    that follow one another, each with as many rows; else 0. Evenly spaced ones may be doses, days, ages or places, and
    a column with the name of a time counts it."""
    if names_time(name) or n_distinct < FEWEST or runs.number != n_distinct or runs.equal < 2:
        return 0
    years = YEARS[0] <= low and high <= YEARS[1]
    numbers_units = not years and (high - low) % (n_distinct - 1) != 0
    return runs.equal if numbers_units else 0
