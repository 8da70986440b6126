"""Tallies of each column's cells in the clusters of several draws, made in one pass over the table.

Numbers and dates are counted in intervals; their atoms form a separate column (`io.recording`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.crosscat.summaries.of_columns import OfColumns
from mpibayes.io.recording import unshaped
from mpibayes.io.rows import Column, Rows

MOST_LEVELS = 40  # levels of a column that a tree distinguishes; rarer ones are pooled


@dataclass
class Tally:
    """Cells of a column in K clusters. counts (V + 1, K): by level or interval, missing cells last; sums, squares (K,):
    of x and x^2 about `centre`, over the observed cells of a numeric column."""

    column: Column
    counts: np.ndarray
    centre: float = 0.0
    sums: np.ndarray | None = None
    squares: np.ndarray | None = None

    def merged(self, branch: np.ndarray, share: float) -> Tally:
        """Pool the clusters into groups and multiply by `share`; branch (K,): group of each cluster, -1 for none."""
        into = np.zeros((len(branch), int(branch.max(initial=-1)) + 1))
        into[np.flatnonzero(branch >= 0), branch[branch >= 0]] = share
        sums = (None if self.sums is None else self.sums @ into, None if self.squares is None else self.squares @ into)
        return Tally(self.column, self.counts @ into, self.centre, *sums)

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean of the observed cells, and their sum of squares about it, (K,) each; 0 where there are none."""
        n = np.maximum(self.counts[:-1].sum(axis=0), 1e-300)
        mean = np.where(n > 1e-300, self.sums / n, 0.0)
        return mean + self.centre, np.maximum(self.squares - n * mean**2, 0.0)


def tally(views: Sequence[OfColumns], labels: Sequence[Sequence[np.ndarray]], cuts: Mapping[str, np.ndarray]):
    """Tally each view's columns, in their order, in the clusters of all draws, one draw after another.

    views: of one run; labels: by view and draw, the cluster of every row, (N,) 0..K_d-1, none empty; cuts: interval
    bounds of the real and count columns, by name (`tallies.cuts`).
    """
    sizes = [[int(z.max()) + 1 for z in of] for of in labels]
    made = [[_empty(c, cuts, sum(k)) for c in view.columns] for view, k in zip(views, sizes)]
    for start, rows in views[0].run.slices() if views else ():
        for view, of, k, tallies in zip(views, labels, sizes, made):
            cells, parts = view.take(rows), [(n, z[start : start + len(rows)]) for n, z in zip(k, of)]
            for t in tallies:
                _add(t, cells, parts, cuts)
    return made


def _empty(column: Column, cuts: Mapping[str, np.ndarray], k: int) -> Tally:
    if column.levels:
        return Tally(column, np.zeros((len(column.levels) + 1, k), np.int64))
    counts = np.zeros((len(cuts[column.name]) + 2, k), np.int64)
    return Tally(column, counts, column.rest_center, np.zeros(k), np.zeros(k))


def _add(t: Tally, rows: Rows, labels: Sequence[tuple[int, np.ndarray]], cuts: Mapping[str, np.ndarray]) -> None:
    """Add rows to a tally. labels: for each draw, its number of clusters and the labels (n,) of these rows."""
    x = getattr(rows, t.column.block)[:, t.column.index]
    code = x.astype(np.int64) if t.column.levels else in_intervals(x, cuts[t.column.name])
    off = None if t.column.levels else np.where(np.isnan(x), 0.0, unshaped(t.column, x) - t.centre)
    first = 0
    for k, z in labels:
        at = slice(first, first + k)
        t.counts[:, at] += np.bincount(code * k + z, minlength=len(t.counts) * k).reshape(-1, k)
        if off is not None:
            t.sums[at] += np.bincount(z, off, k)
            t.squares[at] += np.bincount(z, off**2, k)
        first += k


def in_intervals(x: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Return the interval of every cell; missing cells get the last number."""
    return np.where(np.isnan(x), len(cuts) + 1, np.searchsorted(cuts, x))


def for_tree(tallies: Sequence[Tally]) -> tuple[np.ndarray, np.ndarray]:
    """Return the observed cells of all columns in the form for `tree.grow`: counts (V, K) and offsets (C + 1,)."""
    parts = [_common(t.counts[:-1]) for t in tallies]
    return np.concatenate(parts), np.cumsum([0, *map(len, parts)])


def _common(counts: np.ndarray) -> np.ndarray:
    """Return the counts of the most common levels, and the pooled counts of the other ones."""
    if len(counts) <= MOST_LEVELS:
        return counts
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    kept, others = order[: MOST_LEVELS - 1], order[MOST_LEVELS - 1 :]
    return np.concatenate([counts[np.sort(kept)], counts[others].sum(axis=0, keepdims=True)])
