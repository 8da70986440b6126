"""Law for queries of real columns that depend on each other in lines: given a cluster's parameters the columns of a
tree are multivariate normal (docs/math.md 1.10, 2.12).

With parameters integrated out, an unknown cell could not be summed out in closed form. So parameters are drawn, given
the rows, once per kept draw: answers average over kept draws, and hence over these parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.components.masses import log_real
from mpibayes.hpc.components.multinormal import Multinormal
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.single import inside
from mpibayes.hpc.crosscat.laws.blocks import IN_CELLS, LEAST, BlockLaw, patterns_of, ranges
from mpibayes.hpc.crosscat.laws.normals import Normals
from mpibayes.hpc.crosscat.lines.boxes import Boxes
from mpibayes.hpc.crosscat.lines.cells import Cells
from mpibayes.hpc.crosscat.lines.parameters import LineParameters
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.pairs import of_tables
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io import recording
from mpibayes.io.rows import Column, Rows

CLOSE, FAR, TINY = 1.0 - 1e-12, 38.0, 1e-300  # FAR: deviations beyond which the probability is 0
MOST_RANGES = 4  # per tree: each adds a dimension to an integral
COARSE = 0.05  # width in deviations above which a cell is treated as a range if there are ranges


def _rectangles(x: np.ndarray, y: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """Return the probabilities of rectangles under standard normal pairs of correlations rho (K,), (U, V, K). x (2, U,
    K) and y (2, V, K): first and last values."""
    below = _below(x[:, :, None, None], y[None, None], rho)  # (2, U, 2, V, K)
    return np.maximum(below[1, :, 1] - below[0, :, 1] - below[1, :, 0] + below[0, :, 0], 0.0)


def _below(h: np.ndarray, k: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """Return the probability that a standard normal pair is below (h, k), by Owen's T (Owen 1956); arguments
    broadcast."""
    from scipy.special import ndtr, owens_t  # slow to import

    rho = np.clip(rho, -CLOSE, CLOSE)
    h, k = (np.clip(np.where(a == 0.0, TINY, a), -FAR, FAR) for a in (h, k))
    root = np.sqrt(1.0 - rho * rho)
    of_h, of_k = owens_t(h, (k / h - rho) / root), owens_t(k, (h / k - rho) / root)
    return 0.5 * ndtr(h) + 0.5 * ndtr(k) - of_h - of_k - np.where(h * k > 0.0, 0.0, 0.5)


@dataclass(frozen=True)
class LineLaw(BlockLaw):
    """Law of one tree of lines. columns: of the tree, as in plain rows, in the order of `names`, parents first.
    number: names each column's random streams. above: index of each column's parent, or ROOT."""

    law: Normals
    columns: Sequence[Column]
    number: Sequence[int]
    above: Sequence[int]

    def cells(self, known: Known) -> Cells:
        """Return the known cells on the model's scale, leaving out columns with ranges."""
        shape = known.n_rows, len(self.names)
        x, log_width, low, high = (np.full(shape, of) for of in (np.nan, 0.0, 0.0, 0.0))
        ranged = self._ranged(known)
        for m, (name, column) in enumerate(zip(self.names, self.columns)):
            if name not in known.of or name in ranged:
                continue
            events, which = known.of[name]
            seen = np.flatnonzero(which < len(events))
            with np.errstate(divide="ignore", invalid="ignore"):
                y = recording.coordinate(column, 0.5 * (events.low + events.high))
                width = np.zeros(len(y)) + recording.log_slope(column, y)
            width += np.log(column.resolution) if column.resolution else 0.0
            possible, (first, last) = np.isfinite(y), self._coordinates(events)
            possible_ends = possible & np.isfinite(first)
            each = (
                np.where(possible, y, column.center),
                np.where(possible, width, -np.inf),
                *(np.where(possible_ends, end, 0.0) for end in (first, last)),
            )
            for out, of in zip((x, log_width, low, high), each):
                out[seen, m] = of[which[seen]]
        return Cells(self.law, self.above, x, log_width, low, high)

    def _informative(self, known: Known) -> Known:
        """Return what is known of these columns, without events that include every number: a log column's cell without
        a logarithm is such an event, and would otherwise make other rows' values count as ranges."""
        of = {}
        for name, (events, which) in known.only(self.names).of.items():
            says = np.isfinite(events.low) | np.isfinite(events.high)
            if not says.all():
                place = np.where(says, np.cumsum(says) - 1, says.sum())
                events, which = events.take(says), np.append(place, says.sum())[which]
            if len(events):
                of[name] = events, which
        return Known(known.n_rows, of)

    def _ranged(self, known: Known) -> list[str]:
        """Return the columns with a known range, and with them the columns with the coarsest cells, parents first."""
        mine = {name: events for name, (events, _) in known.of.items() if name in self.names and len(events)}
        names = [name for name, events in mine.items() if ranges(events).any()]
        if names:
            width = {name: self._width(mine[name]) for name in mine if name not in names}
            coarse = sorted((name for name, of in width.items() if of > COARSE), key=width.__getitem__, reverse=True)
            names += coarse[: max(MOST_RANGES - len(names), 0)]
        return sorted(names, key=self.names.index)

    def _width(self, events: Events) -> float:
        """Return the median width of a column's cells, in deviations given all other columns."""
        m, (low, high) = self.names.index(events.column.name), self._coordinates(events)
        precision = np.linalg.pinv(self.law.matrix, hermitian=True)[:, m, m]
        return float(np.median(high - low) * np.sqrt(np.median(precision)))

    def _boxes(self, known: Known) -> Boxes | None:
        """Return all that is known of these columns as boxes, or None without ranges. Raises ConfigError for more than
        MOST_RANGES ranges."""
        names = self._ranged(known)
        if not names:
            return None
        if len(names) > MOST_RANGES:
            raise ConfigError(
                f"{len(names)} ranges of numbers that depend on each other linearly: give values of some, or at most "
                f"{MOST_RANGES} ranges"
            )
        low, high = (np.full((known.n_rows, len(names)), end) for end in (-np.inf, np.inf))
        for i, name in enumerate(names):
            events, which = known.of[name]
            seen, bounds = which < len(events), self._coordinates(events)
            low[seen, i], high[seen, i] = (end[which[seen]] for end in bounds)
        return Boxes([self.names.index(name) for name in names], self.cells(known).x, low, high)

    def _coordinates(self, events: Events) -> np.ndarray:
        """Return the first and last value of each event on the model's scale, (2, U)."""
        column, bounds = self._column(events.column.name), np.stack([events.low, events.high])
        if column.log:
            bounds = np.maximum(bounds, 0.0)
        with np.errstate(divide="ignore"):
            return recording.coordinate(column, bounds)

    def score(self, known: Known) -> np.ndarray:
        known = self._informative(known)
        if len(known.of) == 1:
            return self.alone(*next(iter(known.of.values())))
        boxes = self._boxes(known)
        total = self.cells(known).log_p()
        if boxes is not None:
            total += boxes.log_p(self.law)
        self.put_alone(known, total)
        return total

    def log_masses(self, events: Events) -> np.ndarray:
        m, law = self.names.index(events.column.name), self.law
        scale = np.sqrt(law.matrix[:, m, m])
        return log_real(self.columns[m], law.location[:, m], scale, np.inf, events.low[:, None], events.high[:, None])

    def averaged(self, events: Events, weight: np.ndarray, given: Known) -> np.ndarray:
        given = self._informative(given.without([events.column.name]))
        boxes, m = self._boxes(given), self.names.index(events.column.name)
        if boxes is not None:
            return boxes.averaged(self.law, m, *self._coordinates(events), weight)
        cells, column = self.cells(given), self.columns[m]
        ends = self._coordinates(events)
        out, coarse = cells.averaged(m, *ends, weight)
        exact = events.low == events.high
        if coarse.any() and exact.any():  # densities of recorded numbers
            out[:, exact] *= np.exp(recording.log_slope(column, ends[0, exact]))
        x, weight = cells.x, np.where(coarse, 0.0, weight)
        for seen, at in patterns_of(x):
            location, scale, _ = self.law.single(x[at][:, seen], seen, m)
            rows, k = np.nonzero(weight[at] > LEAST)
            of = location[rows, k, None], scale[rows, k, None], np.inf
            each = log_real(column, *of, events.low[None], events.high[None])
            np.add.at(out, at[rows], np.exp(each) * weight[at[rows], k, None])
        return out

    def joint(
        self, one: Events, others: Mapping[str, Events], weight: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray, float]]:
        """See `links.law.TreeLaw.joint`."""
        for name, other in others.items():
            yield name, *of_tables(self.together(one, other) * weight)

    def together(self, one: Events, other: Events) -> np.ndarray:
        """Return the joint probabilities of the events of two columns in every cluster, (U, U', K + 1)."""
        at, matrix = [self.names.index(of.column.name) for of in (one, other)], self.law.matrix
        scale = np.sqrt(np.diagonal(matrix, axis1=1, axis2=2)[:, at])
        rho = matrix[:, at[0], at[1]] / scale.prod(axis=1)
        ends = []
        for i, of in enumerate((one, other)):
            ends.append((self._coordinates(of)[..., None] - self.law.location[:, at[i]]) / scale[:, i])
        return _rectangles(ends[0], ends[1], rho)

    def scored(self, rows: Rows) -> np.ndarray:
        """Return the log density of the observed cells of plain rows, on the model's scale, by cluster, (n, K + 1)."""
        x, total = self._cells_of(rows), np.zeros((len(rows), len(self.law.nu)))
        for seen, at in patterns_of(x):
            if len(seen):
                total[at] = self.law.log_density(x[at][:, seen], seen)
        return total

    def moments(self, rows: Rows, name: str, weight: np.ndarray) -> np.ndarray:
        """Sum over clusters, with weights (n, K + 1), the first two moments of a column about its center given the
        other columns of plain rows, (n, 2)."""
        x, m, out = self._cells_of(rows), self.names.index(name), np.empty((len(rows), 2))
        x[:, m] = np.nan
        for seen, at in patterns_of(x):
            location, scale, _ = self.law.single(x[at][:, seen], seen, m)
            shift = location - self.columns[m].center
            out[at] = np.stack([(weight[at] * of).sum(axis=1) for of in (shift, scale**2 + shift**2)], axis=1)
        return out

    def lacks(self, rows: Rows) -> np.ndarray:
        """Return the mask of plain rows with a missing cell in these columns, bool (n,)."""
        return np.isnan(self._cells_of(rows)).any(axis=1)

    def _cells_of(self, rows: Rows) -> np.ndarray:
        return rows.reals[:, [column.index for column in self.columns]]

    def drawn(
        self, known: Known, requested: set[str], cluster: np.ndarray, stream: Stream, ids: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return recorded values (n,) of the requested columns: known, or drawn given what is known and the cluster."""
        known = self._informative(known)
        boxes = self._boxes(known)
        if boxes is not None:
            x = boxes.drawn(self.law, self.number, cluster, stream, ids)
        else:
            u = replace(stream, sub=IN_CELLS)
            x = self.cells(known).drawn(cluster, lambda m, at: inside(u.uniforms(self.number[m] << 32 | ids[at])))
        names = [self.names[m] for m in range(len(self.names)) if self.names[m] in requested]
        normals = replace(stream, sub=Multinormal.substreams[0])
        for seen, at in patterns_of(x):
            lacking = np.array([m for m in map(self.names.index, names) if m not in seen], np.intp)
            z = [normals.normals(self.number[m] << 32 | ids[at]) for m in lacking]
            for k in np.unique(cluster[at]) if len(lacking) else ():
                here = np.flatnonzero(cluster[at] == k)
                of_k = Normals(self.law.location[[k]], self.law.matrix[[k]], self.law.nu[[k]])
                of = x[at[here]][:, seen], seen, lacking, np.column_stack(z)[here]
                x[np.ix_(at[here], lacking)] = of_k.draw(*of, None)
        values = {name: recording.recorded(self._column(name), None, x[:, self.names.index(name)]) for name in names}
        return values

    def _column(self, name: str) -> Column:
        return self.columns[self.names.index(name)]


def line_laws(
    components: Components, hyper: Any, statistics: Any, coding: Coding, key: Mapping[str, int]
) -> list[tuple[int, list[LineLaw]]]:
    """Return the trees of columns in lines: (index of the root column, laws in each of the root's contexts), with
    parameters drawn given the rows of the clusters; the last cluster is a new one."""
    sizes = hashlib.sha256(np.asarray(statistics.size, np.int64).tobytes()).digest()
    seed, children = int.from_bytes(sizes[:7], "little"), {}
    for c in coding.in_lines:
        children.setdefault(int(coding.parents[c]), []).append(c)
    draw = LineParameters(components, hyper, statistics, Purpose.LINES, {"seed": seed, **key})
    result = []
    for root in sorted(c for c in children if c not in coding.in_lines):
        plain = [root]
        for c in plain:  # the list grows as it is read
            plain += children.get(c, ())
        columns = [coding.plain[c] for c in plain]
        above = [ROOT if c == root else plain.index(int(coding.parents[c])) for c in plain]
        names = [column.name for column in columns[1:]]
        lines = dict(zip(names, draw.slopes(names)))
        first = draw.place(columns[1].name) - 1  # the copy of its parent's cell
        numbers = [first, *(draw.place(column.name) for column in columns[1:])]
        laws = [
            LineLaw([c.name for c in columns], _normals(columns, above, *of, lines), columns, numbers, above)
            for of in zip(*next(draw.roots([columns[0].name])))
        ]
        result.append((root, laws))
    return result


def _normals(
    columns: Sequence[Column], above: Sequence[int], location: np.ndarray, variance: np.ndarray, lines: Mapping
) -> Normals:
    """Return the joint normal of a tree's columns. location, variance (K + 1,): of the first column."""
    d, k = len(columns), len(location)
    mean, matrix = np.zeros((k, d)), np.zeros((k, d, d))
    mean[:, 0], matrix[:, 0, 0] = location, variance
    for c, parent in enumerate(above):
        if parent == ROOT:
            continue
        at_parent, middle, slope, variance = lines[columns[c].name]
        mean[:, c] = middle + slope * (mean[:, parent] - at_parent)
        matrix[:, c, :c] = matrix[:, :c, c] = slope[:, None] * matrix[:, parent, :c]
        matrix[:, c, c] = slope**2 * matrix[:, parent, parent] + variance
    return Normals(mean, matrix, np.full(k, np.inf))
