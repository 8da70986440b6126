"""Counts and sums of columns' cells in the clusters of partitions of the rows, from passes over the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.components.normal import Normal, merge_moments
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.io.recording import unshaped
from mpibayes.io.rows import Column, Rows
from mpibayes.io.spells import boundaries


class Tallies:
    """Columns whose cells are tallied. Subclasses define `slices`."""

    columns: Sequence[Column]
    components: Components
    n_rows: int  # training rows

    def slices(self) -> Iterator[tuple[int, Rows]]:
        """Yield (first training row, Rows of these columns), in order."""
        raise NotImplementedError

    def coded(self, rows: Rows) -> Rows:
        """Return rows of these columns in the components' coding."""
        return rows

    def statistics(self, partitions: Sequence[np.ndarray]) -> list[Statistics]:
        """Compute the statistics of the clusters of each partition, (N,) labels 0..K-1, in one pass over the table."""
        totals = [Total(self.components, z) for z in partitions]
        for start, rows in self.slices():
            cells = self.coded(rows)
            for total in totals:
                total.add(cells, start)
        return [total.statistics for total in totals]

    def sample(self, most: int) -> Rows:
        """Return about `most` training rows, evenly spaced."""
        step = max(1, self.n_rows // most)
        return Rows.concatenate(
            self.columns, [r.take(np.arange(-start % step, len(r), step)) for start, r in self.slices()]
        )

    def histograms(self, z: np.ndarray, cuts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Count the cells of real and count columns by interval and cluster of the partition z, (len(cuts) + 1, K)
        int64, by name."""
        k = int(z.max()) + 1
        counts = {name: np.zeros((len(at) + 1, k), np.int64) for name, at in cuts.items()}
        numeric = [c for c in self.columns if c.name in cuts]
        for start, rows in self.slices() if numeric else ():
            part_z = z[start : start + len(rows)]
            for c in numeric:
                x = getattr(rows, c.block)[:, c.index]
                seen = ~np.isnan(x)
                cell = np.searchsorted(cuts[c.name], x[seen]) * k + part_z[seen]
                counts[c.name] += np.bincount(cell, minlength=counts[c.name].size).reshape(-1, k)
        return counts

    def moments(self, z: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Compute the mean and the sum of squares about it, (K,) each, of the observed cells of real and count columns
        in each cluster of z, by name; of logarithms for columns on a log scale."""
        from mpibayes.kernels import mixture as kernels

        # counts are summarised here as real numbers: the model does not use their squares, but readers of a report do
        numeric = [c for c in self.columns if not c.levels]
        k, total = int(z.max()) + 1, None
        for start, rows in self.slices() if numeric else ():
            n = len(rows)
            x = np.column_stack([unshaped(c, getattr(rows, c.block)[:, c.index]) for c in numeric])
            plain = replace(Rows.empty((), n), reals=np.ascontiguousarray(x))
            part_z = np.ascontiguousarray(z[start : start + n], np.int32)
            part = Statistics(*kernels.accumulate(plain, part_z, k, np.zeros(1, np.int64))).of(Normal)
            total = part if total is None else merge_moments(total, part)
        return {c.name: (total[1][i], total[2][i]) for i, c in enumerate(numeric)}


class Total:
    """Statistics of the clusters of one partition, (N,) labels 0..K-1, accumulated slice by slice."""

    def __init__(self, components: Components, labels: np.ndarray):
        self._components, self._labels, self._n_clusters = components, labels, int(labels.max()) + 1
        self.statistics: Statistics | None = None

    def add(self, rows: Rows, start: int) -> None:
        """Add the rows from `start` on, in the components' coding."""
        from mpibayes.kernels import mixture as kernels

        z = np.ascontiguousarray(self._labels[start : start + len(rows)], np.int32)
        offsets = self._components.categorical.offsets
        part = Statistics(*kernels.accumulate(rows, z, self._n_clusters, offsets))
        before = self.statistics
        self.statistics = part if before is None else self._components.union(before, part)


def cuts(column: Column, x: np.ndarray) -> np.ndarray:
    """Return the ends of the intervals (.., c0], (c0, c1], .. of a column, ascending, distinct. Real or count: the 10,
    20, .. 90 % points of its observed cells and of its distinct values, so that a value of most cells does not hide the
    others. Survival: the boundaries between pieces of the time axis."""
    if column.kind == "survival":
        return boundaries()
    x = x[~np.isnan(x)]
    levels = np.linspace(0.1, 0.9, 9)
    return np.unique([np.quantile(x, levels), np.quantile(np.unique(x), levels)]) if len(x) else np.zeros(0)
