"""Bins of the columns of numbers that others may lean on (docs/links.md): cut at the eighths of the training rows at
the first start of a run, and recorded with it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mpibayes.hpc.data.rows import Data
from mpibayes.io.rows import Column

N_BINS = 8
MOST_ROWS = 10_000  # that are looked at, evenly spaced


def fit_bins(data: Data, links: str | Mapping[str, str]) -> dict[str, tuple[float, ...]]:
    """Return by name the cuts, as values are recorded, of the columns of numbers that others may lean on: all whose
    cells are all there, that are in no block or line and lean on no other, or those that are named as parents. links:
    see `view.Settings`."""
    joint = {c.name for c in data.columns if c.block == "vectors"}
    named = None if isinstance(links, str) else set(links.values())
    numbers = [c for c in data.stored if c.kind in ("real", "count") and not c.n_missing]
    columns = [c for c in numbers if c.name not in joint and not c.line and not c.child]
    columns = [c for c in columns if named is None or c.name in named]
    if not columns:
        return {}
    places = np.unique(np.linspace(0, data.n_rows - 1, min(data.n_rows, MOST_ROWS)).astype(np.int64))
    numbers = places if data.training_rows is None else data.training_rows[places]
    rows = data.recorded_at(numbers)
    result = {c.name: cuts_of(c, getattr(rows, c.block)[:, c.index]) for c in columns}
    return {name: cuts for name, cuts in result.items() if cuts}


def cuts_of(column: Column, x: np.ndarray) -> tuple[float, ...]:
    """Cuts of recorded values x (n,) that are no atoms: N_BINS - 1 at most, fewer where values come again often; none
    where all are the same. A cut is between two values, and on the border of the cells that they stand for."""
    x = np.sort(x[~np.isnan(x) & ~np.isin(x, column.atoms)])
    if not len(x):
        return ()
    below = np.unique(x[np.maximum(np.arange(1, N_BINS) * len(x) // N_BINS - 1, 0)])
    below = below[below < x[-1]]  # the last value of a bin
    above = x[np.searchsorted(x, below, side="right") % len(x)]
    step = 1.0 if column.kind == "count" else column.resolution
    return tuple((below + 0.5 * step if step else 0.5 * below + 0.5 * above).tolist())
