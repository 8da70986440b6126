"""Recording of a real column: in steps, with atoms, over orders of magnitude; and its two parts in a mixture.

Data are never recorded as densities. A value represents a cell of width `resolution` around it; a value that recurs
often, such as 0 among dividends, is an atom; and values that span orders of magnitude are close to normal only in their
logarithm, or in coordinates that a run has fitted (`io.shape`). So a column is modelled in two parts: *which* atom a
cell is, if any, and the *rest*, a number on the model's scale if it is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.io.clock import as_text
from mpibayes.io.spells import log_ticks

if TYPE_CHECKING:
    from mpibayes.io.rows import Column, Rows


ANOTHER = "another value"  # level of a cell that is none of several atoms


def levels(column: Column) -> tuple[str, ...]:
    """Levels of `which`: the atoms, then any other value."""
    atoms = [as_text(atom, column.unit) if column.unit else f"{atom:.15g}" for atom in column.atoms]
    return (*atoms, f"not {atoms[0]}" if len(atoms) == 1 else ANOTHER)


def which(column: Column, x: np.ndarray) -> np.ndarray:
    """Atom of each cell; len(atoms) if it is none, len(atoms) + 1 if it is missing. uint8 (n,)."""
    n_atoms = len(column.atoms)
    atoms = np.array(column.atoms)
    code = np.minimum(np.searchsorted(atoms, x), n_atoms - 1)
    return np.where(np.isnan(x), n_atoms + 1, np.where(atoms[code] == x, code, n_atoms)).astype(np.uint8)


def rest(column: Column, x: np.ndarray, shift: np.ndarray | float = 0.0) -> np.ndarray:
    """Cells that are not atoms, on the model's scale, shifted before the logarithm; NaN for all other cells, and for
    cells without a logarithm. float64 (n,)."""
    lacks = np.isin(x, column.atoms) if column.atoms else np.zeros(len(x), bool)
    if column.log:
        lacks |= ~(x > 0.5 * column.resolution)
    return coordinate(column, np.where(lacks, np.nan, x + shift))


def coordinate(column: Column, x: np.ndarray) -> np.ndarray:
    """Convert numbers, positive ones if the scale is logarithmic, to the model's scale."""
    t = np.log(x) if column.log else x
    return t if column.shape is None else column.shape.coordinate(t)


def unshaped(column: Column, y: np.ndarray) -> np.ndarray:
    """Undo the column's shape: convert the model's scale to numbers, or to their logarithms on a log scale."""
    return y if column.shape is None else column.shape.number(y)


def number(column: Column, y: np.ndarray) -> np.ndarray:
    """Convert the model's scale to numbers: the inverse of `coordinate`."""
    t = unshaped(column, y)
    return np.exp(t) if column.log else t


def log_slope(column: Column, y: np.ndarray) -> np.ndarray | float:
    """Log derivative of `coordinate` at y: it converts a density on the model's scale to one of numbers."""
    slope = 0.0 if column.shape is None else column.shape.log_slope(y)
    return slope - unshaped(column, y) if column.log else slope


def recorded(column: Column, code: np.ndarray | None, y: np.ndarray) -> np.ndarray:
    """Values with these parts `which` and `rest`, at the column's resolution; code: None for a column without atoms."""
    x = number(column, y)
    if column.resolution:
        x = np.round(x / column.resolution) * column.resolution + 0.0  # no -0
        if column.log:
            x = np.maximum(x, column.resolution)
    if code is None:
        return x
    atoms = np.array([*column.atoms, np.nan, np.nan])
    return np.where(code == len(column.atoms), x, atoms[code])


def log_cells(columns: Iterable[Column], rows: Rows) -> np.ndarray:
    """Log widths, on the model's scale, of the cells that each row's latent numbers represent, summed over its real
    columns, float64 (n,): density times width is the probability of the recorded values. Without a resolution it stays
    a density, as does that of an event, whose tick is converted to the column's unit."""
    total = np.zeros(len(rows))
    for c in columns:
        if c.resolution or c.log or c.shape is not None:
            y = getattr(rows, c.block)[:, c.index]
            width = np.log(c.resolution) if c.resolution else 0.0
            total += np.where(np.isnan(y), 0.0, width + log_slope(c, y))
        elif c.kind == "survival":
            total += log_ticks(c, getattr(rows, c.block)[:, c.index])
    return total
