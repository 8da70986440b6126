"""The scans of a launch: repeated draws of the sides of a subset of every group's rows, all of them on one rank.

Odds are computed from whole numbers, so that the order of the rows does not matter: real cells are measured in units
of their group's standard deviation times 2^-20, so that their sums and squares are integers as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.moves.odds import both_sides
from mpibayes.hpc.crosscat.view.sync import Counts, apart
from mpibayes.io.rows import Rows
from mpibayes.kernels.mixture import scans as kernels

EVEN = 0.5  # pseudo-counts of a group's distribution, in units of the columns' base


def as_single(components: Components, rows: Rows, at: np.ndarray) -> tuple[Rows, np.ndarray]:
    """Return rows with all measured cells in `reals`, kind by kind, and the places in them of the rows `at`. Scans
    ignore covariances, lines and times to an event; the odds given the final sides include them."""
    measured = [stored for kind in components.kinds if kind.measured and kind.columns for stored in kind.stored]
    if measured in ([], ["reals"]):
        return rows, at
    rows, own = rows.take(at), components.multinormal.own
    each = (getattr(rows, stored) for stored in measured)
    reals = np.ascontiguousarray(np.concatenate([x[:, own] if x is rows.vectors else x for x in each], axis=1))
    return replace(rows, reals=reals), np.arange(len(at))


class Subset:
    """The chosen rows of some groups. parts: (rows, chosen, group, ids) of shards, in the form for
    kernels.scans.Packed.

    whole: statistics of the chosen rows of every group, of which those of measured kinds are read. shrink (G,) float64:
    number of pseudo-rows with the group's distribution on each side. key: of the stream of sides.
    """

    def __init__(self, components: Components, parts: Sequence[tuple], whole: Statistics, shrink, key):
        self.components, self.shrink, self.key = components, shrink, key
        self.n_real = n_real = sum(len(kind.columns) for kind in components.kinds if kind.measured)
        counted = Counts.zeros(components, 1)
        n_cells, n_sums = (sum(array.size for array in counted.of_wire(wire)) for wire in (np.int32, np.int64))
        self.shape = (len(shrink), n_cells + n_real), (len(shrink), n_sums + 2 * n_real)
        kind = components.categorical
        self.beta = kind.pseudo_counts(np.full(len(kind), EVEN)).copy()
        if kind.linked:
            self.beta[np.setdiff1d(kind.groups[1:] - 1, kind.missing_rows)] = EVEN  # unused codes
        offsets, unit = components.categorical.offsets, self._units(whole, n_real)
        self.packed = kernels.Packed(parts, len(shrink), offsets, *unit)
        self.drawn = -1  # last drawn block of random numbers

    def _units(self, whole: Statistics, n_real: int) -> np.ndarray:
        """Return the mean of each group's real cells, and the inverse of their standard deviation, (2, G, R)."""
        unit = np.zeros((2, len(self.shrink), n_real))
        if n_real:
            moments = (kind.cell_moments(whole.of(kind)) for kind in self.components.kinds if kind.measured)
            n, mean, scatter = map(np.concatenate, zip(*moments))
            unit[0] = mean.T
            precision = np.divide(n, scatter, where=scatter > 0, out=np.zeros_like(mean))
            unit[1] = np.where(np.isfinite(precision), np.sqrt(precision), 0.0).T
        return unit

    def begin(self, side: np.ndarray, fixed: np.ndarray) -> None:
        """Set the starting sides of the rows, side (n,): 0, 1 or -1 for none yet; rows in the mask `fixed` (n,) keep
        theirs."""
        cells, sums = (np.zeros((3, *shape), dtype) for shape, dtype in zip(self.shape, (np.int32, np.int64)))
        self.whole, self.one, self.zero = (kernels.Counts(*both) for both in zip(cells, sums))
        self.packed.set(side == 1, fixed)
        for rows, counts in ((side >= -1, self.whole), (side == 1, self.one), (side == 0, self.zero)):
            self.packed.count(rows, counts)

    def scan(self, first: int, last: int, tilt: np.ndarray | None) -> None:
        """Redraw the side of every row in each scan from first to last - 1. tilt (G,): prior log odds; None: those of
        the sides' sizes."""
        number = first
        while number < last:
            cells, sums = (np.zeros(shape, dtype) for shape, dtype in zip(self.shape, (np.int32, np.int64)))
            after = kernels.Counts(cells, sums)
            block, place = divmod(number, kernels.WORDS)
            times = min(last - number, kernels.WORDS - place)
            if block != self.drawn:
                self.packed.draw(**{**self.key, "sub": block})
                self.drawn = block
            of = self.beta, self.shrink, tilt, self.whole, self.one, self.zero, after
            self.packed.scan(place, *of, times)
            self.one, self.zero = after, None
            number += times

    def sides(self) -> np.ndarray:
        """Return the side, 0 or 1, of each row, in the order of the parts."""
        return self.packed.sides()

    def counts(self) -> Counts:
        """Return the counts of the two sides of every group, of exact kinds."""
        one = self._counts(self.one.cells, self.one.sums)
        if self.zero is None:
            return both_sides(self._counts(self.whole.cells, self.whole.sums), one)
        zero = self._counts(self.zero.cells, self.zero.sums)  # before a scan rows may have no side
        return both_sides(Counts(*(a + b for a, b in zip(zero, one))), one)

    def _counts(self, cells: np.ndarray, sums: np.ndarray) -> Counts:
        n, counts, reals = len(self.shrink), Counts.zeros(self.components, len(self.shrink)), self.n_real
        first = 1 + int(self.components.categorical.offsets[-1])  # of the numbers of observed reals
        exact = np.concatenate([cells[:, :first], cells[:, first + reals :]], axis=1), sums[:, 2 * reals :]
        for wire, counted in zip((np.int32, np.int64), exact):  # arrays with the same wire type are adjacent
            arrays = counts.of_wire(wire)
            for array, part in zip(arrays, apart(counted.T, [array.size // n for array in arrays])):
                array[...] = part.reshape(array.shape)
        return counts
