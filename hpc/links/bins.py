"""Numeric columns as parents: their contexts are atoms, one by one, and bins of all other values.

In a tree of links (`law.py`) such a column is a node whose levels are its atoms and bins; if it has atoms, its parent
is the column that records which atom it is. A known value lies in one bin, and its own probability is counted
elsewhere. The bins' probabilities in a cluster matter only if the value is unknown; they come from the column's law.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.links.tables import OfRows, Table
from mpibayes.io import recording
from mpibayes.io.rows import Column, Rows

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
NODES, WEIGHTS = 0.5 * (NODES + 1.0), 0.5 * WEIGHTS


def n_contexts(column: Column) -> int:
    """Number of atoms and bins of a numeric column."""
    return len(column.atoms) + len(column.cuts) + 1


def which_of(columns: Sequence[Column], column: Column) -> int | None:
    """Index in `columns` of the column that records which atom a numeric column is; None if it has no atoms."""
    return next((i for i, c in enumerate(columns) if c.part_of == column.name), None)


def bounds(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """First and last recorded value of each bin, (B,) each; integers for counts. Open ends are infinite."""
    cuts = np.array(column.cuts)
    if column.kind == "count":
        return np.append(0.0, np.floor(cuts) + 1.0), np.append(np.floor(cuts), np.inf)
    return np.append(-np.inf, cuts), np.append(cuts, np.inf)


def on_the_scale(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """First and last value of each bin on the model's scale."""
    if column.kind == "count":
        return bounds(column)
    cuts = recording.coordinate(column, np.array(column.cuts))
    return np.append(-np.inf, cuts), np.append(cuts, np.inf)


def contexts_in(column: Column, which: Column | None, rows: Rows) -> np.ndarray:
    """Return the atom or bin of each modelled row, (n,), -1 where the cell is missing. which: the column that records
    the atom; it may be coded."""
    y = getattr(rows, column.block)[:, column.index]
    n_atoms = len(column.atoms)
    last = on_the_scale(column)[1][:-1]  # value of each bin but the last
    code = np.where(np.isnan(y), -1, n_atoms + np.searchsorted(last, y, side="left"))
    if which is not None:
        atom = getattr(rows, which.block)[:, which.index] % np.intp(n_atoms + 2)
        code = np.where(atom < n_atoms, atom, np.where(atom == n_atoms, code, -1))
    return code


def masses(column: Column, law, c: int) -> np.ndarray:
    """Probability of each bin in every cluster, (B, K + 1). law: the law of the column's kind; c: the column's index in
    it."""
    low, high = on_the_scale(column)
    return np.exp(law.log_masses(c, low[:, None], high[:, None]))


def moments(column: Column, law, c: int, width: int) -> np.ndarray:
    """First two moments about the column's center within each bin in every cluster, (B, K + 1, 2), by quadrature at 16
    points of the distribution function."""
    low, high = on_the_scale(column)
    clusters = np.repeat(np.arange(width), len(NODES))
    u = np.tile(NODES, width)
    result = []
    for a, b in zip(low, high):
        x = law.within(c, clusters, np.full(len(u), a), np.full(len(u), b), u).reshape(width, -1) - column.center
        result.append(np.stack([x @ WEIGHTS, (x * x) @ WEIGHTS], axis=1))
    return np.array(result)


class Bins(Table):
    """Atoms and bins of a number, given its atom or that it is none. masses (B, K): probability of the bins in each
    cluster, or for each row."""

    def __init__(self, n_atoms: int, masses: np.ndarray):
        of_bins = masses / np.maximum(masses.sum(axis=0), 1e-300)
        n = n_atoms + len(masses)
        p = np.zeros((n_atoms + 1, n, masses.shape[1]))
        p[np.arange(n_atoms), np.arange(n_atoms)] = 1.0
        p[n_atoms, n_atoms:] = of_bins
        super().__init__(p)

    def of_cells(self, rows: np.ndarray, context: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Return 1: the probability of a known number is counted elsewhere."""
        return np.ones((len(rows), self.total.shape[-1]))

    def in_contexts(self, rows: np.ndarray, level: np.ndarray) -> np.ndarray:
        return np.repeat(_possible(self.n_contexts, level)[..., None], self.total.shape[-1], axis=2)

    def of(self, cluster: np.ndarray, left_out=None) -> OfRows:
        return BinsOfRows(self, cluster)


class BinsOfRows(OfRows):
    """Atoms and bins of a number in each row's cluster alone."""

    def of_cells(self, rows: np.ndarray, context: np.ndarray, level: np.ndarray) -> np.ndarray:
        return np.ones((len(rows), 1))

    def in_contexts(self, rows: np.ndarray, level: np.ndarray) -> np.ndarray:
        return _possible(self.n_contexts, level)[..., None]


def _possible(n_contexts: int, level: np.ndarray) -> np.ndarray:
    """Indicator of the context that contains each level, (n, U)."""
    return (np.arange(n_contexts) == np.minimum(level, n_contexts - 1)[:, None]).astype(np.float64)
