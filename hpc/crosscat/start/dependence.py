"""Initial views of a search: columns grouped by mutual dependence.

Clusters of rows by unrelated columns are seldom informative, and the few views where they are attract all other
columns. In groups of related columns, clusters are informative from the start.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.crosscat.start.linkage import average_linkage, cut
from mpibayes.io.rows import Column, Rows
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.common.functions import xlogx

BINS = 8  # quantile bins of a numeric column
MAX_LEVELS = 24  # of a column that count separately; rarer ones are pooled
MAX_COLUMNS = 2_000  # a table of their pairs is in memory; more columns are assigned to groups in turn
MAX_CELL_PAIRS = 4_000_000_000  # to count, unless that leaves fewer than MIN_ROWS rows
MIN_ROWS = 1_000
MIN_DEVIATIONS = 2.0  # by which information must exceed its mean under independence: few enough to group columns


def linked(between: np.ndarray) -> np.ndarray:
    """Cluster units by average linkage of their dependence, (U, U); return a linkage in scipy's form, (U - 1, 4)
    float64; (0, 4) for a single unit, or where no dependence is known."""
    return average_linkage(1.0 - between) if len(between) > 1 else np.zeros((0, 4))


def between_units(
    columns: Sequence[Column], rows: Rows, units: Sequence[Sequence[str]], deviations: float = MIN_DEVIATIONS
) -> np.ndarray:
    """Return the dependence of units of columns, (U, U), in 0..1: that of the closest columns of two; (0, 0) for more
    than MAX_COLUMNS columns. deviations: as for `dependence`."""
    if len(columns) > MAX_COLUMNS:
        return np.zeros((0, 0))
    number = {name: i for i, names in enumerate(units) for name in names}
    unit_of = np.array([number[c.name] for c in columns])
    between = np.zeros((len(units), len(units)))
    if len(units) > 1:
        np.maximum.at(between, (unit_of[:, None], unit_of[None, :]), dependence(columns, rows, deviations))
    return between


def grouped(tree: np.ndarray, n_units: int, n_groups: int) -> np.ndarray:
    """Cut the tree into at most n_groups groups; return the group of each unit, (n_units,). Without a tree, units are
    assigned in turn."""
    if n_units <= n_groups:
        return np.arange(n_units)
    return cut(tree, n_groups) if len(tree) else np.arange(n_units) % n_groups


def branches(tree: np.ndarray) -> list[frozenset[int]]:
    """Return the set of units below each join of a tree, except the root."""
    sets = [frozenset([unit]) for unit in range(len(tree) + 1)]
    for a, b in tree[:, :2].astype(int).tolist():
        sets.append(sets[a] | sets[b])
    return sets[len(tree) + 1 : -1]


def dependence(columns: Sequence[Column], rows: Rows, deviations: float = MIN_DEVIATIONS) -> np.ndarray:
    """Return the dependence of each pair of columns, (C, C) symmetric: mutual information over the smaller of the two
    entropies, in 0..1, from rows where neither cell is missing. deviations: standard deviations by which information
    must exceed its mean under independence."""
    every = -(-len(rows) // max(MAX_CELL_PAIRS // len(columns) ** 2, MIN_ROWS))
    rows = rows.take(slice(None, None, every))
    codes = np.column_stack([_coarse(c, getattr(rows, c.block)[:, c.index]) for c in columns])
    n_levels = codes.max(axis=0, initial=0) + 1
    ends = np.concatenate([[0], np.cumsum(n_levels + 1)])
    cells = np.where(codes < 0, n_levels, codes).astype(np.uint8)  # missing cells come last
    cells = Rows(cells, np.empty((len(rows), 0), np.uint16), np.empty((len(rows), 0)), np.empty((len(rows), 0)))
    counted = (kernels.accumulate(cells, z, n, ends)[1] for z, n in zip(codes.T.copy(), n_levels))
    shared = [_information(counts, ends, deviations) for counts in counted]
    return np.maximum(shared, np.transpose(shared))


def _information(counts: np.ndarray, ends: np.ndarray, deviations: float) -> np.ndarray:
    """Return the dependence of one column and each column, (C,), from counts (levels of all columns, levels of the
    one)."""
    counts = counts.astype(float)
    counts[ends[1:] - 1] = 0.0
    both = np.add.reduceat(xlogx(counts).sum(axis=1), ends[:-1])
    of_one, of_each = np.add.reduceat(counts, ends[:-1]), counts.sum(axis=1)
    n = of_one.sum(axis=1)
    entropy_of_one = xlogx(n) - xlogx(of_one).sum(axis=1)
    entropy_of_each = xlogx(n) - np.add.reduceat(xlogx(of_each), ends[:-1])
    freedom = ((of_one > 0).sum(axis=1) - 1) * (np.add.reduceat(of_each > 0, ends[:-1], dtype=np.int64) - 1)
    by_chance = 0.5 * freedom + deviations * np.sqrt(0.5 * np.maximum(freedom, 0))
    information = entropy_of_one + entropy_of_each - (xlogx(n) - both) - by_chance
    least = np.minimum(entropy_of_one, entropy_of_each)
    return np.clip(np.divide(information, least, out=np.zeros(len(n)), where=least > 0), 0.0, 1.0)


def _coarse(column: Column, x: np.ndarray) -> np.ndarray:
    """Code the cells of a column coarsely, int32 (n,); -1 for missing cells."""
    gone = column.is_missing(x)
    if column.levels:
        count = np.bincount(x[~gone], minlength=len(column.levels))
        rank = np.argsort(np.argsort(-count, kind="stable"))
        codes = np.minimum(rank, MAX_LEVELS - 1)[np.where(gone, 0, x)]
    else:
        cuts = np.unique(np.quantile(x[~gone], np.arange(1, BINS) / BINS)) if not gone.all() else np.empty(0)
        codes = np.searchsorted(cuts, x)
    return np.where(gone, -1, codes).astype(np.int32)
