"""Pruned sweeps: when to skip clusters that a row cannot join, and the bounds that show it (docs/math.md 2.13).

Labels are those of the full sweep, bit for bit, so nothing here needs to be the same on all ranks or in a resumed
chain: bins, tiles and the choice to prune affect speed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from mpibayes.hpc.crosscat.view.state import Shared
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import pruning as kernel

# Costs per row, in ns on the machine of benchmarks/results: fixed work of a pruned sweep, a tile of 16 clusters in a
# full sweep, and a tile's bounds as a share of it. Only their ratios matter, and only to speed.
ROW, ROW_COLUMN = 250.0, 6.0
CODE, REAL, COUNT, PAIR, DRAW = 2.1, 4.8, 3.2, 4.0, 16.0  # PAIR: of a block of full-covariance normals
BOUNDED, SCORED = 0.5, 1.2
ENTRY = 3.0  # cost per feature and cluster, once a cycle
FAVOUR = 2.0  # least ratio of a full sweep's cost to a pruned sweep's fixed cost
PAUSE = 16  # passes without pruning after a pass that gained nothing
EDGE_CELLS = 10_000  # cells per column that determine its bins
LOOKS = 64  # pairs of rows, to find out if most are equal
SIMILAR_CELLS = 128  # cells by which clusters are compared
DEPTH = 6.0  # nats below the best cluster beyond which differences are ignored
DIRECTIONS = 8  # principal directions of these cells' scores


class Pruning:
    """Preparation of a view's cells on this rank for bounds: bins of real and count columns, and a sample of cells by
    which to compare clusters."""

    def __init__(self, shards: Sequence[Shard], offsets: np.ndarray):
        self.shards, self.offsets = shards, offsets
        self._last, self._pause = None, 0

    def worthwhile(self, n_clusters: int, n_rows: int) -> bool:
        """True if bounding the scores of `n_rows` rows under `n_clusters` clusters pays; after a loss, False for PAUSE
        passes."""
        if self._last is not None and self.is_loss(*self._last):
            self._pause = PAUSE
        self._last, self._pause = None, self._pause - 1
        if self._pause >= 0 or not n_rows or self.shards[0].rows.spells.shape[1]:  # spells have no bounds
            return False
        if self._in_runs:  # a full sweep scores equal rows once, kernels/mixture/runs.h
            return False
        row, tile = self._costs
        n_features = int(self.offsets[-1]) + kernel.N_BINS * self._n_binned
        return n_clusters / 16 * tile > FAVOUR * row and n_rows * tile > 5 * 16 * ENTRY * n_features

    @property
    def _costs(self) -> tuple[float, float]:
        """Fixed cost per row of a pruned sweep, and cost per row and tile of a full one."""
        rows = self.shards[0].rows
        codes, reals, counts = len(self.offsets) - 1, rows.reals.shape[1], rows.tallies.shape[1]
        pairs = float((rows.widths * (rows.widths + 1) / 2).sum())
        row = ROW + ROW_COLUMN * (codes + reals + counts + rows.vectors.shape[1])
        return row, CODE * codes + REAL * reals + COUNT * counts + PAIR * pairs + DRAW

    @cached_property
    def _in_runs(self) -> bool:
        """True if most rows seem to equal their predecessors, as in kernels/mixture/alike.h."""
        rows = self.shards[0].rows
        at = np.arange(LOOKS) * (len(rows) - 1) // LOOKS
        same = np.full(LOOKS, len(rows) > 1)
        for array in (rows.codes8, rows.codes16, rows.reals, rows.tallies, rows.vectors) if len(rows) > 1 else ():
            same &= ((array[at] == array[at + 1]) | (array[at] != array[at])).all(axis=1)
        return bool(same.mean() >= 0.75)

    def is_loss(self, n_clusters: int, work: np.ndarray) -> bool:
        """True if the pruned passes that `work` sums up cost more than they saved."""
        (n_rows, bounded, scored, given_up), n_tiles = work, n_clusters / 16
        row, tile = self._costs
        return n_rows * row / tile + BOUNDED * bounded + SCORED * scored + n_tiles * given_up > n_tiles * n_rows

    def renew(self) -> None:
        """Discard the bins, since some cells have changed."""
        self.__dict__.pop("binned", None)

    def rows_but_for(self, shards: Sequence[int]) -> int:
        """Count the rank's rows outside these shards."""
        return sum(len(shard) for shard in self.shards if shard.index not in shards)

    def bins(self, shard: Shard) -> np.ndarray:
        """Return the bins of a shard's cells, uint8 (n, real and count columns)."""
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
        """Sample of observed cells: level rows, and (column, value) of reals and of counts."""
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
        """Return an order of the instantiated clusters that puts similar ones side by side, int64 (K1,)."""
        p, (levels, (r, x), (q, y)) = shared.parameters, self._cells
        terms = [
            p.table[levels],
            p.constant[r] - p.half_precision[r] * (x[:, None] - p.location[r]) ** 2,
            y[:, None] * p.log_rate[q] - p.rate[q],
        ]
        return side_by_side(np.concatenate(terms)) if len(shared.anchor) else np.zeros(0, np.int64)

    def bounds(self, similar: np.ndarray, order: np.ndarray, draw: kernels.Instantiated, prior):
        """Return bounds for a draw; None if it allows none. order: of the draw's clusters; similar: see `similar`."""
        _, *cells = self.binned
        bounds = kernel.Bounds(draw, self.shards[0].rows, prior, *cells, np.argsort(order)[similar])
        self._last = draw.n, bounds.work
        return bounds if bounds.usable else None


def _edges(cells: np.ndarray) -> np.ndarray:
    """Return the edges of each column's bins, (columns, N_BINS - 1): half are quantiles, half evenly spaced."""
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
    """Order clusters so that runs of 16, and of 4, have similar terms, int64 (K,). terms: (cells, K).

    Halves the clusters repeatedly across the principal direction of the terms in which they differ most.
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
