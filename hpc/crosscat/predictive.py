"""One draw of a mixture as a distribution over rows (docs/math.md 2.6).

A view is a mixture over its columns: with clusters k of the draw, and a new one, p(x, k) = w_k f(x | rows of k), where
weights and parameters are integrated out and missing cells marginalised. Views are independent, so that a draw is
their product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.components.component import Component
from mpibayes.hpc.components.grid import pick_on_grid
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.collapsed import collapsed_clusters
from mpibayes.hpc.data.rows import take_columns
from mpibayes.hpc.parallel.streams import Stream, in_lane
from mpibayes.io.recording import log_cells
from mpibayes.io.rows import Column, Rows
from mpibayes.kernels import mixture as kernels

CLUSTER = 2**31  # sub-stream of a row's cluster; those of the kinds of columns are below


@dataclass
class Pattern:
    """Rows that lack the same cells of a column, or of a block of them: their numbers (m,), the members (places among
    the kind's `members`) that are there and those that lack, and the cells x (m, len(seen))."""

    kind: Component
    column: int
    rows: np.ndarray
    seen: np.ndarray
    lacking: np.ndarray
    x: np.ndarray

    def members(self) -> Iterator[tuple[int, Column]]:
        """(place among the lacking ones, column) of each column that lacks."""
        columns = self.kind.members(self.column)
        return ((i, columns[member]) for i, member in enumerate(self.lacking))


def patterns(components: Components, rows: Rows, partly: bool = False) -> Iterator[Pattern]:
    """Patterns of missing cells of the rows, by column; `partly`: only rows with other cells of the same block."""
    for kind in components.kinds:
        for c in range(len(kind)):
            members = kind.members(c)
            if partly and len(members) == 1:
                continue
            x = np.column_stack([getattr(rows, m.block)[:, m.index] for m in members])
            missing = np.column_stack([is_missing(rows, m) for m in members])
            incomplete = np.flatnonzero(missing.any(axis=1))
            kinds, which = np.unique(missing[incomplete], axis=0, return_inverse=True)
            for i, lacking in enumerate(kinds):
                at, seen = incomplete[which.ravel() == i], np.flatnonzero(~lacking)
                if len(seen) or not partly:
                    yield Pattern(kind, c, at, seen, np.flatnonzero(lacking), x[np.ix_(at, seen)])


def is_missing(rows: Rows, column: Column) -> np.ndarray:
    """Mask of the missing cells of a column, bool (n,)."""
    return column.is_missing(getattr(rows, column.block)[:, column.index])


class ViewPredictive:
    """A view's mixture. K clusters as `statistics` numbers them, none of them empty, and last a new one.

    Rows have the view's columns. cells: whether single cells are wanted as well, by `averages` and `simulate`.
    """

    def __init__(self, components: Components, hyper: Hyper, statistics: Statistics, cells: bool = True):
        self.components = components
        self.tail = collapsed_clusters(components, hyper, statistics)
        self._laws = {
            kind.name: kind.predictive(getattr(hyper, kind.hyper), statistics.of(kind))
            for kind in components.kinds
            if len(kind) and (cells or any(len(kind.members(c)) > 1 for c in range(len(kind))))
        }

    @property
    def n_bytes(self) -> int:
        """Memory of the clusters: counts and their logarithms, and what single cells take."""
        counts = self.tail.n_slots * 4 * 3 * int(self.components.categorical.offsets[-1])
        return counts + sum(law.n_bytes for law in self._laws.values())

    def log_density(self, rows: Rows) -> np.ndarray:
        """Log density of the observed cells of each row, (n,) float64."""
        density = kernels.log_predictive(rows, self.tail) + self._log_cells(rows)
        partly = [p.rows for p in patterns(self.components, rows, partly=True)]
        if partly:  # by themselves, so that the other rows' last bits do not depend on them
            incomplete = np.unique(np.concatenate(partly))
            density[incomplete] = np.logaddexp.reduce(self.log_terms(rows.take(incomplete)), axis=1)
        return density

    def log_terms(self, rows: Rows, partly: Sequence[Pattern] | None = None) -> np.ndarray:
        """log p(x, k) of the observed cells x of each row, (n, K + 1). partly: `patterns` of the rows, if known."""
        terms = kernels.log_predictive_clusters(rows, self.tail) + self._log_cells(rows)[:, None]
        for p in patterns(self.components, rows, partly=True) if partly is None else partly:
            if len(p.seen):  # the kernel leaves blocks out that are not whole
                terms[p.rows] += self._laws[p.kind.name].log_density(p.column, p.x, p.seen)
        return terms

    def averages(self, p: Pattern, weight: np.ndarray) -> list[np.ndarray]:
        """Sums over the clusters, weighted by (m, K + 1), for each cell that the rows of `p` lack: of the probabilities
        of its levels (m, V), or of the first two moments about the column's center (m, 2)."""
        return self._laws[p.kind.name].averages(p.column, p.x, p.seen, p.lacking, weight)

    def share_of_rest(self, which: Column) -> np.ndarray:
        """Probability of the last level of a categorical column of at most 255 levels in every cluster, (K + 1,)."""
        return self._laws["categorical"].probabilities(which.index)[-1]

    def simulate(self, given: Rows, columns: Sequence[Column], stream: Stream, first_row: int = 0) -> Rows:
        """See `Predictive.simulate`; `columns` are some of the view's."""
        names, n = {column.name for column in columns}, len(given)
        drawn, ids = given.take(slice(None)), first_row + np.arange(n)
        if not names:
            return drawn
        cluster = pick_on_grid(self.log_terms(given), replace(stream, sub=CLUSTER).uniforms(ids))
        for p in patterns(self.components, given):
            members = [(i, column) for i, column in p.members() if column.name in names]
            if members:
                law = self._laws[p.kind.name]
                x = law.draw(p.column, p.x, p.seen, p.lacking, cluster[p.rows], stream, ids[p.rows])
                for i, column in members:
                    getattr(drawn, column.block)[p.rows, column.index] = x[:, i]
        return drawn

    def _log_cells(self, rows: Rows) -> np.ndarray:
        """See `io.recording.log_cells`."""
        return log_cells((c for kind in self.components.kinds for c in kind.columns), rows)

    def together(self, rows: Rows) -> np.ndarray:
        """See `Predictive.together`."""
        terms = self.log_terms(rows)
        weight = np.exp(terms - np.logaddexp.reduce(terms, axis=1)[:, None])[:, :-1]
        same = weight @ weight.T
        np.fill_diagonal(same, 1.0)
        return same


class Predictive:
    """One draw: the product of its views. `places`: of each view, its columns by array of the rows (see
    `data.rows.take_columns`); None where the only view has all of them."""

    def __init__(self, views: Sequence[ViewPredictive], places: Sequence[Mapping[str, np.ndarray]] | None = None):
        self.views, self._places = list(views), places

    def log_density(self, rows: Rows) -> np.ndarray:
        """Log density of the observed cells of each row, (n,) float64."""
        return sum(view.log_density(self.rows_of(v, rows)) for v, view in enumerate(self.views))

    def simulate(self, given: Rows, columns: Sequence[Column], stream: Stream, first_row: int = 0) -> Rows:
        """`given` with the missing cells of `columns` drawn from this distribution, given the observed cells of their
        row. A row's draws depend on `stream` and its number alone, which counts from first_row."""
        names = {column.name for column in columns}
        drawn = given.take(slice(None))
        for v, view in enumerate(self.views):
            members = [c for kind in view.components.kinds for c in kind.columns]
            lane = replace(stream, chain=in_lane(stream.chain, v))
            part = view.simulate(self.rows_of(v, given), [c for c in members if c.name in names], lane, first_row)
            for c in members:
                at = c.index if self._places is None else self._places[v][c.block][c.index]
                getattr(drawn, c.block)[:, at] = getattr(part, c.block)[:, c.index]
        return drawn

    def together(self, rows: Rows) -> np.ndarray:
        """Share of the views in which two rows would join one cluster of the draw, (n, n), each row by itself and given
        its observed cells; two rows that open new clusters are apart. 1 on the diagonal."""
        return sum(view.together(self.rows_of(v, rows)) for v, view in enumerate(self.views)) / len(self.views)

    def dependent(self, columns: Sequence[Column]) -> np.ndarray:
        """True for pairs of columns in one view, where either is informative about the other; bool (C, C)."""
        home = {c.name: v for v, view in enumerate(self.views) for kind in view.components.kinds for c in kind.columns}
        at = np.array([home[column.name] for column in columns], np.intp)
        return at[:, None] == at

    def rows_of(self, view: int, rows: Rows) -> Rows:
        """The cells of a view's columns."""
        return rows if self._places is None else take_columns(rows, self._places[view])
