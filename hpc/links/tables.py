"""Probabilities of a linked column's levels in every context of its parent: in all clusters of a draw, or in the
cluster of each row.

They are counts plus pseudo-counts over their totals, computed on demand: a column of many levels has more of them than
a draw should hold twice. K + 1 counts the clusters and a new one; a column without a parent has one context.
"""

from __future__ import annotations

import numpy as np


class Table:
    """Levels of a column, with the parameters of clusters integrated out or drawn.

    counts (U, V, K) of a draw and pseudo (U, V), or drawn probabilities (U, V, K + 1) and no pseudo-counts. The last
    axis of results runs over the K + 1 clusters. Methods take row numbers, which only `OfRows` uses.
    """

    def __init__(self, counts: np.ndarray, pseudo: np.ndarray | None = None):
        self.counts, self.pseudo = counts, pseudo
        self.n_contexts, self.n_levels = counts.shape[:2]
        self.total = self.counts.sum(axis=1, dtype=np.float64)
        if pseudo is not None:
            self.total = _with_new(self.total) + pseudo.sum(axis=1)[:, None]

    def of(self, cluster: np.ndarray, left_out: tuple[np.ndarray, np.ndarray] | None = None) -> OfRows:
        """Return the table in the cluster of each row; see `OfRows`."""
        return OfRows(self, cluster, left_out)

    def take(self, rows: np.ndarray) -> Table:
        """Return the table for some of the rows."""
        return self

    def sliced(self, n: int, context: int) -> Table:
        """Return the table in one of the n contexts of the second parent."""
        pseudo = None if self.pseudo is None else self.pseudo[context::n]
        return Table(self.counts[context::n], pseudo)

    def weight(self, context, level) -> np.ndarray:
        """Counts plus pseudo-counts, (..., K + 1), before division by their totals."""
        counts = self.counts[context, level]
        if self.pseudo is None:
            return counts.astype(np.float64)
        return _with_new(counts) + self.pseudo[context, level][..., None]

    def of_cells(self, rows: np.ndarray, context: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Probability of each row's level in its context, (n, K + 1)."""
        return self.weight(context, level) / self.total[context]

    def in_contexts(self, rows: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Probability of each row's level in all contexts, (n, U, K + 1)."""
        every = np.arange(self.n_contexts)
        return self.weight(every[None, :], level[:, None]) / self.total

    def grouped(self, groups: np.ndarray, share: np.ndarray | None) -> np.ndarray:
        """Sum weights times share (V, K + 1 or 1) over the levels of each group (V,): (U, W, K + 1)."""
        order = np.argsort(groups, kind="stable")
        first = np.searchsorted(groups[order], np.arange(groups.max() + 1))
        weight = self.weight(slice(None), order)
        return np.add.reduceat(weight if share is None else weight * share[order], first, axis=1)

    def by_group(self, rows: np.ndarray, context, groups: np.ndarray, share) -> np.ndarray:
        """Probability of each group of levels: in each row's context, (n, W, K + 1), or if context is None in all
        contexts, (1, U, W, K + 1), the same for all rows."""
        sums = self.grouped(groups, share) / self.total[:, None]
        return sums[None] if context is None else sums[context]

    def levels(self, context: int) -> np.ndarray:
        """Probabilities of all levels in one context, (V, K + 1)."""
        return self.weight(context, slice(None)) / self.total[context]


class OfRows:
    """Levels of a column in each row's cluster (n,): last axes have length 1.

    left_out: (context, level) of each row, (n,) each, to subtract from its cluster's counts; level -1 for nothing.
    """

    def __init__(self, table: Table, cluster: np.ndarray, left_out: tuple[np.ndarray, np.ndarray] | None = None):
        self._table, self._cluster, self._left_out = table, cluster, left_out
        self.n_contexts, self.n_levels = table.n_contexts, table.n_levels

    def take(self, rows: np.ndarray) -> OfRows:
        left_out = None if self._left_out is None else (self._left_out[0][rows], self._left_out[1][rows])
        return type(self)(self._table, self._cluster[rows], left_out)

    def sliced(self, n: int, context: int) -> OfRows:
        if self._left_out is None:
            return OfRows(self._table.sliced(n, context), self._cluster)
        of, level = self._left_out
        left_out = of // n, np.where(of % n == context, level, -1)
        return OfRows(self._table.sliced(n, context), self._cluster, left_out)

    def of_cells(self, rows: np.ndarray, context: np.ndarray, level: np.ndarray) -> np.ndarray:
        k, (of, part) = self._cluster[rows], self._own(rows)
        weight = self._weight(context, level, k) - ((context == of) & (level == part))
        return (weight / (self._table.total[context, k] - ((context == of) & (part >= 0))))[:, None]

    def in_contexts(self, rows: np.ndarray, level: np.ndarray) -> np.ndarray:
        k, (of, part) = self._cluster[rows][:, None], self._own(rows)
        every = np.arange(self.n_contexts)
        here = (every == of[:, None]) & (part >= 0)[:, None]
        weight = self._weight(every, level[:, None], k) - (here & (part == level)[:, None])
        return (weight / (self._table.total[every, k] - here))[..., None]

    def by_group(self, rows: np.ndarray, context, groups: np.ndarray, share) -> np.ndarray:
        k, (of, part) = self._cluster[rows], self._own(rows)
        sums = np.moveaxis(self._table.grouped(groups, share)[:, :, k], 2, 0).copy()
        total = self._table.total[:, k].T.copy()
        out = np.flatnonzero(part >= 0)
        removed = 1.0 if share is None else share[part[out], k[out] if share.shape[1] > 1 else 0]
        sums[out, of[out], groups[part[out]]] -= removed
        total[out, of[out]] -= 1.0
        sums /= total[:, :, None]
        return (sums if context is None else sums[np.arange(len(rows)), context])[..., None]

    def rows_of_levels(self, rows: np.ndarray, context: np.ndarray) -> np.ndarray:
        """Probabilities of all levels in each row's context and cluster, (n, V)."""
        k, (of, part) = self._cluster[rows], self._own(rows)
        weight = self._weight(context[:, None], np.arange(self.n_levels), k[:, None])
        out = np.flatnonzero((part >= 0) & (context == of))
        weight[out, part[out]] -= 1.0
        return weight / weight.sum(axis=1, keepdims=True)

    def shares(self, rows: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Return share (V, K + 1 or 1) in each row's cluster, (n, V)."""
        return share.T if share.shape[1] == 1 else share[:, self._cluster[rows]].T

    def _own(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._left_out is None:
            return np.full((2, len(rows)), -1)
        return self._left_out[0][rows], self._left_out[1][rows]

    def _weight(self, context, level, k: np.ndarray) -> np.ndarray:
        counts, pseudo = self._table.counts, self._table.pseudo
        if pseudo is None:
            return counts[context, level, k].astype(np.float64)
        last = counts.shape[2] - 1
        return counts[context, level, np.minimum(k, last)] * (k <= last) + pseudo[context, level]


def _with_new(counts: np.ndarray) -> np.ndarray:
    return np.append(counts, np.zeros((*counts.shape[:-1], 1)), axis=-1)
