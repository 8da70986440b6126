"""When sweeps leave out clusters that a row cannot go to, and the bounds by which they do (docs/math.md 2.13).

The labels are those of the full sweep, bit for bit, so nothing here needs to be the same on all ranks, or in a chain
that is continued: bins, tiles, and whether to prune are matters of speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from mpibayes.hpc.crosscat.state import Shared
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import pruning as kernel

# Costs of a row, in ns on the machine of benchmarks/results: of what a pruned sweep does for every row, of a full one's
# tile of 16 clusters, and of a tile's bounds as a share of it. Their ratios matter, and only to speed.
ROW, ROW_COLUMN = 250.0, 6.0
CODE, REAL, COUNT, PAIR, DRAW = 2.1, 4.8, 3.2, 4.0, 16.0  # PAIR: of a block of full-covariance normals
BOUNDED, SCORED = 0.5, 1.2
ENTRY = 3.0  # of a feature and cluster, once a cycle
FAVOUR = 2.0  # times that a full sweep has to cost what a pruned one does for every row
PAUSE = 16  # passes that are not tried after one that was no gain
EDGE_CELLS = 10_000  # of a column, from which its bins are made
SIMILAR_CELLS = 128  # by which clusters are compared
DEPTH = 6.0  # nats below the best cluster at which all are alike
DIRECTIONS = 8  # of these cells' principal ones


class Pruning:
    """A view's cells on this rank as bounds need them: bins of real and count columns, and some cells to compare
    clusters by."""

    def __init__(self, shards: Sequence[Shard], offsets: np.ndarray):
        self.shards, self.offsets = shards, offsets
        self._last, self._pause = None, 0

    def worthwhile(self, n_clusters: int, n_rows: int) -> bool:
        """True if it pays to bound the scores of so many rows under so many clusters; after a loss, False for PAUSE
        passes."""
        if self._last is not None and self.is_loss(*self._last):
            self._pause = PAUSE
        self._last, self._pause = None, self._pause - 1
        if self._pause >= 0 or not n_rows or self.shards[0].rows.spells.shape[1]:  # which have no bounds
            return False
        row, tile = self._costs
        n_features = int(self.offsets[-1]) + kernel.N_BINS * self._n_binned
        return n_clusters / 16 * tile > FAVOUR * row and n_rows * tile > 5 * 16 * ENTRY * n_features

    @property
    def _costs(self) -> tuple[float, float]:
        """Cost of a row in a pruned sweep, whatever comes of it, and of a row and tile in a full one."""
        rows = self.shards[0].rows
        codes, reals, counts = len(self.offsets) - 1, rows.reals.shape[1], rows.tallies.shape[1]
        pairs = float((rows.widths * (rows.widths + 1) / 2).sum())
        row = ROW + ROW_COLUMN * (codes + reals + counts + rows.vectors.shape[1])
        return row, CODE * codes + REAL * reals + COUNT * counts + PAIR * pairs + DRAW

    def is_loss(self, n_clusters: int, work: np.ndarray) -> bool:
        """True if passes over rows of so many clusters cost more than they saved."""
        (n_rows, bounded, scored, given_up), n_tiles = work, n_clusters / 16
        row, tile = self._costs
        return n_rows * row / tile + BOUNDED * bounded + SCORED * scored + n_tiles * given_up > n_tiles * n_rows

    def renew(self) -> None:
        """Cut the cells into bins anew, since some are others."""
        self.__dict__.pop("binned", None)

    def rows_but_for(self, shards: Sequence[int]) -> int:
        """Rows of the rank that are in none of these shards."""
        return sum(len(shard) for shard in self.shards if shard.index not in shards)

    def bins(self, shard: Shard) -> np.ndarray:
        """Bins of a shard's cells, uint8 (n, real and count columns)."""
        return self.binned[0][shard.index]

    @property
    def _n_binned(self) -> int:
        return self.shards[0].rows.reals.shape[1] + self.shards[0].rows.tallies.shape[1]

    @cached_property
    def binned(self) -> tuple[dict[int, np.ndarray], np.ndarray, np.ndarray]:
        """Bins of each shard's cells by its number, uint8 (n, columns); least and greatest cell of each bin, (columns,
        N_BINS)."""
        least = np.full((self._n_binned, kernel.N_BINS), np.inf)
        greatest, first = -least, 0
        bins = {shard.index: np.empty((len(shard), self._n_binned), np.uint8) for shard in self.shards}
        for array in ("reals", "tallies"):
            cells = [getattr(shard.rows, array) for shard in self.shards]
            step = max(1, sum(map(len, cells)) // EDGE_CELLS)
            edges = _edges(np.concatenate([part[::step] for part in cells]))
            for part, into in zip(cells, bins.values()):
                kernel.bin_cells(part, edges, into, first, least, greatest)
            first += len(edges)
        return bins, least, greatest

    @cached_property
    def _cells(self) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Some cells that are there: level rows, and column and value of reals and of counts."""
        rows = max((shard.rows for shard in self.shards), key=len)
        at = np.arange(0, len(rows), max(1, len(rows) // SIMILAR_CELLS))
        levels = np.concatenate([rows.codes8[at], rows.codes16[at]], axis=1) + self.offsets[:-1]
        there = np.concatenate(
            [levels < self.offsets[1:] - 1, ~np.isnan(rows.reals[at]), ~np.isnan(rows.tallies[at])], 1
        )
        row, column = np.nonzero(there)
        chosen = np.random.default_rng(0).permutation(len(row))[:SIMILAR_CELLS]
        row, column = row[chosen], column[chosen]
        result, first = [], 0
        for array in (levels, rows.reals[at], rows.tallies[at]):
            part = (column >= first) & (column < first + array.shape[1])
            result.append((column[part] - first, array[row[part], column[part] - first]))
            first += array.shape[1]
        return result[0][1], result[1], result[2]

    def similar(self, shared: Shared) -> np.ndarray:
        """The instantiated clusters, similar ones side by side, int64 (K1,)."""
        p, (levels, (r, x), (q, y)) = shared.parameters, self._cells
        terms = [
            p.table[levels],
            p.constant[r] - p.half_precision[r] * (x[:, None] - p.location[r]) ** 2,
            y[:, None] * p.log_rate[q] - p.rate[q],
        ]
        return side_by_side(np.concatenate(terms)) if len(shared.anchor) else np.zeros(0, np.int64)

    def bounds(self, similar: np.ndarray, order: np.ndarray, draw: kernels.Instantiated, prior):
        """Bounds of a draw, which has the clusters of `similar` in this order; None where it does not allow any."""
        _, *cells = self.binned
        bounds = kernel.Bounds(draw, self.shards[0].rows, prior, *cells, np.argsort(order)[similar])
        self._last = draw.n, bounds.work
        return bounds if bounds.usable else None


def _edges(cells: np.ndarray) -> np.ndarray:
    """Edges of each column's bins, (columns, N_BINS - 1): half of them quantiles, half in even steps."""
    edges = np.zeros((cells.shape[1], kernel.N_BINS - 1))
    quantiles, even = np.arange(1, kernel.N_BINS // 2 + 1) / (kernel.N_BINS // 2 + 1), np.arange(1, kernel.N_BINS // 2)
    for c, column in enumerate(cells.T):
        there = column[np.isfinite(column)]
        if len(there):
            least, greatest = there.min(), there.max()
            steps = least + (greatest - least) * (even / (kernel.N_BINS // 2))
            edges[c] = np.sort(np.concatenate([np.quantile(there, quantiles, method="nearest"), steps]))
    return edges


def side_by_side(terms: np.ndarray) -> np.ndarray:
    """An order of clusters in which 16, and 4, side by side have similar terms, int64 (K,). terms: (cells, K).

    Halves the clusters again and again across the one of the terms' principal directions in which they differ most.
    """
    n = terms.shape[1]
    if not terms.size:
        return np.arange(n)
    terms = np.maximum(terms, terms.max(axis=1, keepdims=True) - DEPTH)
    terms = np.nan_to_num(terms - terms.mean(axis=1, keepdims=True))
    directions = np.linalg.eigh(terms @ terms.T)[1][:, -DIRECTIONS:]
    places, done, waiting = terms.T @ directions, [], [np.arange(n)]
    while waiting:
        part = waiting.pop()
        size = len(part)
        unit = 16 if size > 16 else 4
        if size <= 4:
            done.append(part)
            continue
        here = places[part]
        part = part[np.argsort(here[:, here.var(axis=0).argmax()], kind="stable")]
        half = -(-size // (2 * unit)) * unit
        waiting += [part[half:], part[:half]]
    return np.concatenate(done)
