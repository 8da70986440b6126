"""Bins of the numeric columns that may be parents (docs/links.md): cut at the eighths of the training rows at the first
start of a run, and stored with it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mpibayes.hpc.data.rows import Data
from mpibayes.io.rows import Column

N_BINS = 8
MOST_ROWS = 10_000  # most rows examined, evenly spaced


def fit_bins(data: Data, links: str | Mapping[str, str]) -> dict[str, tuple[float, ...]]:
    """Return the cuts, as recorded values, of the numeric columns that may be parents, by name: all those without
    missing cells that are in no block or line and have no parent, or those named as parents. links: see
    `view.Settings`."""
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
    """Cuts of recorded values x (n,), ignoring atoms: at most N_BINS - 1, fewer if values repeat; none if all are
    equal. A cut lies between two values, on the border of the intervals that they represent."""
    x = np.sort(x[~np.isnan(x) & ~np.isin(x, column.atoms)])
    if not len(x):
        return ()
    below = np.unique(x[np.maximum(np.arange(1, N_BINS) * len(x) // N_BINS - 1, 0)])
    below = below[below < x[-1]]  # last value of each bin
    above = x[np.searchsorted(x, below, side="right") % len(x)]
    step = 1.0 if column.kind == "count" else column.resolution
    return tuple((below + 0.5 * step if step else 0.5 * below + 0.5 * above).tolist())
