"""The cells of a table as the model uses them: real and count columns side by side, standardised or as recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.errors import DataError
from mpibayes.io.rows import Column, Rows


class Cells:
    """Cells of real and count columns. columns: the modelled ones, in the table's order. center, scale (D,): a cell is
    (x - center) / scale."""

    def __init__(self, columns: Sequence[Column], standardise: bool):
        self.columns, self.standardise = tuple(columns), standardise
        self.center = np.array([c.center if standardise else 0.0 for c in columns])
        self.scale = np.array([c.scale if standardise else 1.0 for c in columns])
        self.log_scale = np.log(self.scale)

    def __len__(self) -> int:
        return len(self.columns)

    def of(self, rows: Rows) -> np.ndarray:
        """Return the cells of rows, float64 (n, D), NaN for missing ones."""
        x = np.empty((len(rows), len(self)))
        for d, column in enumerate(self.columns):
            x[:, d] = getattr(rows, column.block)[:, column.index]
        x -= self.center
        x /= self.scale
        return x

    def in_single_precision(self, rows: Rows) -> np.ndarray:
        """Return cells as float32, for the chain. Raises DataError for cells that float32 cannot hold."""
        x = self.of(rows)
        huge = np.abs(x) > np.finfo(np.float32).max
        if huge.any():
            name = self.columns[int(np.flatnonzero(huge.any(axis=0))[0])].name
            raise DataError(
                f"column '{name}': its cells are too large for single precision; set model.standardise = true, or "
                "leave the column out"
            )
        return x

    def in_units(self, d: int, value: np.ndarray) -> np.ndarray:
        """Convert values of column number d to the table's units."""
        return value * self.scale[d] + self.center[d]

    def put(self, rows: Rows, d: int, at: np.ndarray, value: np.ndarray) -> None:
        """Write values of column number d, in the model's units, into rows `at`; counts are rounded."""
        column, value = self.columns[d], self.in_units(d, value)
        if column.kind == "count":
            value = np.maximum(np.round(value), 0.0)
        getattr(rows, column.block)[at, column.index] = value
