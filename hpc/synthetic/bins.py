"""Columns cut into a few bins, the same for real and synthetic rows, to compare their distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpibayes.io.rows import Column

MOST_LEVELS = 32  # the most frequent levels; all others share a bin
QUANTILES = 16  # bins of numbers between atoms, at most, with about equally many rows
MOST_ATOMS = 8


class Bins:
    """Bins of columns, chosen from the cells of training rows; the last bin of a column is for missing cells.
    quantiles: number of bins of numbers.

    sizes (C,): number of bins of each column."""

    def __init__(self, columns: Sequence[Column], cells: Mapping[str, np.ndarray], quantiles: int = QUANTILES):
        self.columns = columns
        self._of = [_Levels(c, cells[c.name]) if c.levels else _Numbers(c, cells[c.name], quantiles) for c in columns]
        self.sizes = np.array([of.n for of in self._of])

    def __call__(self, cells: Mapping[str, np.ndarray]) -> np.ndarray:
        """Bin of each cell, int32 (n, C)."""
        return np.stack([of(cells[c.name]) for c, of in zip(self.columns, self._of)], axis=1).astype(np.int32)


class _Levels:
    """Bins of a column with levels: the most frequent ones in order of frequency, then all others, then missing
    cells."""

    def __init__(self, column: Column, x: np.ndarray):
        blank = len(column.levels)
        count = np.bincount(x.astype(np.intp), minlength=blank + 2)  # after the blank: merged levels
        count[blank] = 0
        first = np.argsort(-count, kind="stable")[: min(MOST_LEVELS, np.count_nonzero(count))]
        self._bin = np.full(blank + 2, len(first))
        self._bin[first] = np.arange(len(first))
        self._bin[blank] = len(first) + 1
        self.n = len(first) + 2

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self._bin[x.astype(np.intp)]


class _Numbers:
    """Bins of a numeric column: intervals between quantiles, then atoms, then missing cells."""

    def __init__(self, column: Column, x: np.ndarray, quantiles: int):
        atoms = np.array(column.atoms)
        often = np.argsort([-(x == a).sum() for a in atoms], kind="stable")[:MOST_ATOMS] if len(atoms) else []
        self._atoms = atoms[often]
        rest = x[~np.isnan(x) & ~np.isin(x, self._atoms)]
        shares = np.linspace(0.0, 1.0, quantiles + 1)[1:-1]
        self._edges = np.unique(np.quantile(rest, shares)) if len(rest) else np.zeros(0)
        self.n = len(self._edges) + 1 + len(self._atoms) + 1

    def __call__(self, x: np.ndarray) -> np.ndarray:
        result = np.searchsorted(self._edges, x, side="left")
        for i, atom in enumerate(self._atoms):
            result[x == atom] = len(self._edges) + 1 + i
        result[np.isnan(x)] = self.n - 1
        return result
