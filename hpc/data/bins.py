"""Bins of the numeric columns that may be parents (docs/links.md): cut at the octiles of the training rows at the first
start of a run, and stored with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpibayes.hpc.data.rows import Data
from mpibayes.io.rows import Column

N_BINS = 8
MOST_CONTEXTS = 32  # more contexts each carry less: on birdstrikes 31 levels and the rest beat 15 and all 256
OFF = 1e-6  # steps from a multiple of the step, within which a value is one
MOST_ROWS = 10_000  # most rows examined, evenly spaced


def fit_bins(data: Data, links: str | Mapping[str, str]) -> dict[str, tuple[float, ...]]:
    """Return the cuts, as recorded values, of the numeric columns that may be parents, by name: all those without
    missing cells that are in no block or line and have no parent, or those named as parents. links: see
    `view.Settings`."""
    joint = {c.name for c in data.columns if c.block == "vectors"}
    named = None if isinstance(links, str) else {*links.values(), *(c.second for c in data.stored if c.second)}
    numbers = [c for c in data.stored if c.kind in ("real", "count") and not c.n_missing]
    columns = [c for c in numbers if c.name not in joint and not c.line and not c.child]
    columns = [c for c in columns if named is None or c.name in named]
    if not columns:
        return {}
    places = np.unique(np.linspace(0, data.n_rows - 1, min(data.n_rows, MOST_ROWS)).astype(np.int64))
    numbers = places if data.training_rows is None else data.training_rows[places]
    rows = data.recorded_at(numbers)
    pairs = [] if isinstance(links, str) else [(links[c.name], c.second) for c in data.stored if c.second]
    most = most_contexts(data.stored, pairs)
    n_bins = {c.name: most[c.name] - len(c.atoms) if c.name in most else N_BINS for c in columns}
    result = {c.name: cuts_of(c, getattr(rows, c.block)[:, c.index], n_bins[c.name]) for c in columns}
    return {name: cuts for name, cuts in result.items() if cuts}


def most_contexts(columns: Sequence[Column], pairs: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the contexts, atoms and bins, of each number in a pair of parents, by name: as many as leave each pair at
    most MOST_CONTEXTS. Of two numbers the first keeps its bins."""
    of, result = {c.name: c for c in columns}, {}

    def n_contexts(name: str) -> int:
        n = len(of[name].levels) or N_BINS + len(of[name].atoms)
        return result.get(name, min(n, MOST_CONTEXTS))

    for pair in pairs:
        for name, other in (pair[::-1], pair):
            if not of[name].levels:
                result[name] = min(n_contexts(name), MOST_CONTEXTS // n_contexts(other))
    return result


def cuts_of(column: Column, x: np.ndarray, n_bins: int = N_BINS) -> tuple[float, ...]:
    """Cuts of recorded values x (n,), ignoring atoms: at most n_bins - 1, fewer if values repeat; none if all are
    equal. A cut lies between two values, on the border of the intervals that they represent."""
    x = np.sort(x[~np.isnan(x) & ~np.isin(x, column.atoms)])
    if not len(x):
        return ()
    below = np.unique(x[np.maximum(np.arange(1, n_bins) * len(x) // n_bins - 1, 0)])
    step = 1.0 if column.kind == "count" else column.resolution
    if step:  # a cut half a step above a value between steps would split the rows of the step above it
        up = np.ceil(below / step) * step
        below = np.unique(np.where(np.abs(below / step - np.round(below / step)) > OFF, up, below))
    below = below[below < x[-1]]  # last value of each bin
    above = x[np.searchsorted(x, below, side="right") % len(x)]
    return tuple((below + 0.5 * step if step else 0.5 * below + 0.5 * above).tolist())
