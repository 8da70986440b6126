"""Real columns as a mixture models them: a value recorded in steps becomes a latent number in its interval.

A density is unbounded at a repeated value, and people's values repeat. So the latent number of a recorded value is
uniform in its interval, and depends on table, column and row alone: chains with any seed have the same data, and target
the same posterior. A column with atoms becomes two columns, modelled separately (docs/math.md 1.7): which atom a cell
is, if any, and the rest (`io.recording`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io import recording
from mpibayes.io.rows import Column, Rows

OF_TABLE, OF_NEW_ROWS = 0, 1  # source of the row numbers that name the latent numbers


def key_of(name: str) -> int:
    """Stream number of a column's cells: a function of its name, so that other columns do not change it."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


def _on_its_scale(column: Column) -> Column:
    """Return a real column with the mean and deviation of its cells on the model's scale; with a shape, about 0 and
    1."""
    center, scale = (column.rest_center, column.rest_scale) if column.shape is None else (0.0, 1.0)
    return replace(column, center=center, scale=scale)


class AsRecorded:
    """Leaves rows as recorded; same interface as `Latent`."""

    def __init__(self, stored: Sequence[Column]):
        self.columns = tuple(stored)
        self.which: dict[str, Column] = {}
        self.widths: dict[str, float] = {}

    def __call__(self, rows: Rows, numbers: np.ndarray, of: int = OF_TABLE) -> Rows:
        return rows

    def recorded(self, rows: Rows) -> Rows:
        return rows


class Latent:
    """Converts Rows of `stored` columns, as recorded, to Rows of `columns`.

    fingerprint: the table's. joint: names of columns modelled in blocks, which keep no separate atoms.
    """

    def __init__(self, stored: Sequence[Column], fingerprint: str, joint: Collection[str] = ()):
        self.stored, self._seed = tuple(stored), int(fingerprint[:15] or "0", 16)
        plain = {"atoms": (), "log": False, "shape": None, "cuts": ()}
        reals = [replace(c, **plain) if c.name in joint else c for c in stored if c.kind == "real"]
        self._reals = [c for c in reals if c.resolution or c.atoms or c.log or c.shape is not None]
        self._first = sum(c.block == "codes8" for c in stored)
        taken, added = {c.name for c in stored}, []
        for i, c in enumerate(c for c in self._reals if c.atoms):
            name = f"{c.name} ({' or '.join(recording.levels(c))})"
            while name in taken:
                name += "'"
            levels = recording.levels(c)
            added.append(Column(name, "categorical", "codes8", self._first + i, levels, c.n_missing, part_of=c.name))
        self.widths = {c.name: c.resolution for c in self._reals if c.resolution}  # of intervals with a probability
        # by column name: the column that records its atom
        self.which = {c.name: column for c, column in zip((c for c in self._reals if c.atoms), added)}
        latent = {c.name: c if c.name in joint else _on_its_scale(c) for c in self._reals}
        self.columns = (*(latent.get(c.name, c) for c in stored), *added)

    def __call__(self, rows: Rows, numbers: np.ndarray, of: int = OF_TABLE) -> Rows:
        """Convert recorded rows. numbers: of the rows in the table, or in the file of new rows (see `of`), int64
        (n,)."""
        if not self._reals:
            return rows
        reals, codes = rows.reals.copy(), np.empty((len(rows), len(self.which)), np.uint8)
        for c in self._reals:
            x = rows.reals[:, c.index]
            if c.name in self.which:
                codes[:, self.which[c.name].index - self._first] = recording.which(c, x)
            reals[:, c.index] = recording.rest(c, x, self._shift(c, numbers, of))
        return Rows(np.column_stack([rows.codes8, codes]), rows.codes16, reals, rows.tallies)

    def _shift(self, column: Column, numbers: np.ndarray, of: int) -> np.ndarray:
        """Offsets of the latent numbers from the middle of their intervals."""
        u = Stream(self._seed, Purpose.RECORDED, cycle=0, chain=of, sub=key_of(column.name)).uniforms(numbers)
        return column.resolution * (u - 0.5)

    def recorded(self, rows: Rows) -> Rows:
        """Convert Rows of `columns` to their recorded values."""
        if not self._reals:
            return rows
        reals = rows.reals.copy()
        for c in self._reals:
            atoms = self.which.get(c.name)
            code = None if atoms is None else rows.codes8[:, atoms.index]
            reals[:, c.index] = recording.recorded(c, code, rows.reals[:, c.index])
        return Rows(np.ascontiguousarray(rows.codes8[:, : self._first]), rows.codes16, reals, rows.tallies)
