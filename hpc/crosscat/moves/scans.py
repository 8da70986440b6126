"""The scans of a launch: a subset of every group's rows, on all ranks, that take a side each again and again.

A rank works out the odds of its groups by itself, from counts that all ranks have added up: a scan is one sum of whole
numbers over ranks. Real cells take part in units of their group's standard deviation times 2^-20, so that their sums
and squares are whole numbers as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.components.multinormal import n_pairs
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.moves.odds import both_sides
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.kernels.mixture import scans as kernels

EVEN = 0.5  # pseudo-counts of a group's own distribution, in units of the columns' base


def as_single(rows):
    """Rows whose blocks of columns are single real columns, behind the others: a launch takes no notice of covariances,
    which come in with the odds of its last sides."""
    reals = np.concatenate([rows.reals, rows.vectors], axis=1)
    return type(rows)(rows.codes8, rows.codes16, reals, rows.tallies)


class Subset:
    """parts: of each of this rank's shards (rows, chosen, group, ids), as kernels.scans.Packed takes them.

    whole: moments of the chosen rows of every group, over all ranks, on root; with real columns alone. shrink (G,)
    float64: rows of the whole group that each side has besides its own, the same bits on every rank. key: of the stream
    of sides.
    """

    def __init__(
        self, comm: Communicator, components: Components, parts: Sequence[tuple], whole: Statistics | None, shrink, key
    ):
        self.comm, self.shrink, self.key = comm, shrink, key
        n_levels, n_single, n_count, widths = components.shape
        n_real = n_single + int(widths.sum())
        self.widths = widths
        self.shape = (len(shrink), 1 + n_levels + n_real + n_count), (len(shrink), 2 * n_real + n_count)
        self.beta = components.categorical.pseudo_counts(np.full(len(components.categorical.n_levels), EVEN))
        offsets, unit = components.categorical.offsets, self._units(whole, n_real)
        self.packed = kernels.Packed(parts, len(shrink), offsets, *unit) if parts else None
        self.drawn = -1  # block of random numbers at hand

    def _units(self, whole: Statistics | None, n_real: int) -> np.ndarray:
        """Centre of each group's real cells, and one over their deviation, (2, G, R)."""
        unit = np.zeros((2, len(self.shrink), n_real))
        if n_real and self.comm.rank == 0:
            pairs = np.cumsum([0, *n_pairs(self.widths)])[:-1]
            squares = [first + n_pairs(np.arange(1, d + 1)) - 1 for first, d in zip(pairs, self.widths)]
            mean = np.concatenate([whole.real_mean, whole.vector_mean])
            n = np.concatenate([whole.real_n, np.repeat(whole.vector_n, self.widths, axis=0)])
            diagonal = np.concatenate([np.zeros(0, np.intp), *squares]).astype(np.intp)
            scatter = np.concatenate([whole.real_scatter, whole.vector_scatter[diagonal]])
            unit[0] = mean.T
            precision = np.divide(n, scatter, where=scatter > 0, out=np.zeros_like(mean))
            unit[1] = np.where(np.isfinite(precision), np.sqrt(precision), 0.0).T
        if unit.size:
            self.comm.broadcast(unit)
        return unit

    def begin(self, side: np.ndarray, fixed: np.ndarray) -> None:
        """Put the rows on sides (n,), 0, 1 or -1: none yet; those that are `fixed`, bool (n,), stay there."""
        cells, sums = (np.zeros((3, *shape), dtype) for shape, dtype in zip(self.shape, (np.int32, np.int64)))
        self.whole, self.one, self.zero = (kernels.Counts(*both) for both in zip(cells, sums))
        if self.packed:
            self.packed.set(side == 1, fixed)
            for rows, counts in ((side >= -1, self.whole), (side == 1, self.one), (side == 0, self.zero)):
                self.packed.count(rows, counts)
        self._add_up(cells, sums)

    def scan(self, number: int, tilt: np.ndarray | None) -> None:
        """Every row takes a side anew. tilt (G,): log odds before a cell is looked at; None: those of the sizes."""
        cells, sums = (np.zeros(shape, dtype) for shape, dtype in zip(self.shape, (np.int32, np.int64)))
        after = kernels.Counts(cells, sums)
        if self.packed:
            block, place = divmod(number, kernels.WORDS)
            if block != self.drawn:
                self.packed.draw(**{**self.key, "sub": block})
                self.drawn = block
            self.packed.scan(place, self.beta, self.shrink, tilt, self.whole, self.one, self.zero, after)
        self._add_up(cells, sums)
        self.one, self.zero = after, None

    def _add_up(self, cells: np.ndarray, sums: np.ndarray) -> None:
        self.comm.sum_everywhere(cells)
        if sums.size:
            self.comm.sum_everywhere(sums)

    def sides(self) -> np.ndarray:
        """0 or 1 for each row of this rank, in the order of the parts."""
        return self.packed.sides() if self.packed else np.zeros(0, np.uint8)

    def statistics(self) -> Statistics:
        """Statistics of the two sides of every group over all ranks, for tables without real columns."""
        return both_sides(*(self._statistics(counts) for counts in (self.whole, self.one)))

    def _statistics(self, counts: kernels.Counts) -> Statistics:
        n_levels, n_groups = len(self.beta), len(self.shrink)
        levels, nothing = counts.cells[:, 1 : 1 + n_levels], np.zeros((0, n_groups))
        return Statistics(
            counts.cells[:, 0].astype(np.int64), np.ascontiguousarray(levels.T), nothing.astype(np.int64), nothing,
            nothing, counts.cells[:, 1 + n_levels :].T.astype(np.int64), counts.sums.T.astype(np.float64),
            nothing.astype(np.int64), nothing, nothing,
        )  # fmt: skip
