"""One draw of a mixture as a distribution over rows (docs/math.md 2.6).

A view is a mixture over its columns: with clusters k of the draw, and a new one, p(x, k) = w_k f(x | rows of k), where
weights and parameters are integrated out and missing cells marginalised. Views are independent, so that a draw is
their product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.component import Component, Law
from mpibayes.hpc.components.grid import pick_on_grid
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.single import one_uniform
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.collapsed import collapsed_clusters
from mpibayes.hpc.data.rows import take_columns
from mpibayes.hpc.links import bins
from mpibayes.hpc.links import law as links
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.law import TreeLaw
from mpibayes.hpc.links.tree import UNKNOWN
from mpibayes.hpc.parallel.streams import Stream, in_lane
from mpibayes.io.recording import log_cells
from mpibayes.io.rows import Column, Rows
from mpibayes.kernels import mixture as kernels

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.view import View

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


def patterns(
    components: Components, rows: Rows, partly: bool = False, coding: Coding | None = None
) -> Iterator[Pattern]:
    """Patterns of missing cells of the rows, by column; `partly`: only rows with other cells of the same block. coding:
    the links that the components have, and the rows have not."""
    plain = {} if coding is None else {column.name: column for column in coding.plain}
    for kind in components.kinds:
        for c in range(len(kind)):
            members = [plain.get(column.name, column) for column in kind.members(c)]
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

    Rows have the view's columns. cells: whether single cells are wanted as well, by `averages` and `simulate`. coding:
    the links that components and statistics have, and rows have not; `columns` are the rows' own.
    """

    def __init__(
        self, components: Components, hyper: Hyper, statistics: Statistics, cells: bool = True,
        coding: Coding | None = None,
    ):  # fmt: skip
        self.components = components
        self._coding = coding if coding is not None and coding.linked else None
        self.columns = [c for kind in components.kinds for c in kind.columns]
        if self._coding is not None:
            self.columns, self._of = list(self._coding.plain), (hyper, statistics)
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
        density = kernels.log_predictive(self._coded(rows), self.tail) + self._log_cells(rows)
        partly = [p.rows for p in patterns(self.components, rows, partly=True)] + self._lacking_parents(rows)
        if partly:  # by themselves, so that the other rows' last bits do not depend on them
            incomplete = np.unique(np.concatenate(partly))
            density[incomplete] = np.logaddexp.reduce(self.log_terms(rows.take(incomplete)), axis=1)
        return density

    def log_terms(self, rows: Rows, partly: Sequence[Pattern] | None = None) -> np.ndarray:
        """log p(x, k) of the observed cells x of each row, (n, K + 1). partly: `patterns` of the rows, if known."""
        terms = kernels.log_predictive_clusters(self._coded(rows), self.tail) + self._log_cells(rows)[:, None]
        for at in self._lacking_parents(rows):
            terms[at] = self._summed_out(rows.take(at))
        for p in patterns(self.components, rows, partly=True) if partly is None else partly:
            if len(p.seen):  # the kernel leaves blocks out that are not whole
                terms[p.rows] += self._laws[p.kind.name].log_density(p.column, p.x, p.seen)
        return terms

    @cached_property
    def _trees(self) -> list[TreeLaw]:
        """The trees of linked columns."""
        if self._coding is None:
            return []
        kind = self.components.categorical
        trees = links.linked(self._coding, kind)
        hyper, statistics = self._of
        of = hyper.dirichlet, statistics.levels
        return [TreeLaw(tree, links.counted(kind, *of, tree, self._masses)) for tree in trees]

    def _masses(self, column: Column) -> np.ndarray:
        """Probabilities of a number's bins in every cluster, (B, K + 1)."""
        return bins.masses(column, *self._number(column))

    def _number(self, column: Column) -> tuple[Law, int]:
        """The law of a number's kind, and its place there."""
        hyper, statistics = self._of
        kind = self.components.poisson if column.kind == "count" else self.components.normal
        if kind.name not in self._laws:
            self._laws[kind.name] = kind.predictive(getattr(hyper, kind.hyper), statistics.of(kind))
        return self._laws[kind.name], [c.name for c in kind.columns].index(column.name)

    def _coded(self, rows: Rows) -> Rows:
        return rows if self._coding is None else self._coding.coded(rows)

    def _lacking_parents(self, rows: Rows) -> list[np.ndarray]:
        """The rows, if there are any, that lack a cell which one that is there leans on."""
        at = np.zeros(0, np.intp) if self._coding is None else np.flatnonzero(self._coding.lacks_a_parent(rows))
        return [at] if len(at) else []

    def _summed_out(self, rows: Rows) -> np.ndarray:
        """log p(x, k) of such rows but for cells of blocks that are partly there, (n, K + 1)."""
        bare, used = rows.take(slice(None)), [*range(self.tail.n_slots), -1]  # clusters behind them are empty
        scores = sum(tree.scored(tree.levels_of(self._coding, rows)) for tree in self._trees)
        for column in (c for tree in self._trees for c in tree.columns(self._coding) if c.levels):
            getattr(bare, column.block)[:, column.index] = column.blank
        terms = kernels.log_predictive_clusters(self._coded(bare), self.tail)
        return terms + scores[:, used] + self._log_cells(rows)[:, None]

    def patterns(self, rows: Rows) -> Iterator[Pattern]:
        """Patterns of missing cells of the rows, by column."""
        return patterns(self.components, rows, coding=self._coding)

    def averages(self, p: Pattern, weight: np.ndarray, rows: Rows) -> list[np.ndarray]:
        """Sums over the clusters, weighted by (m, K + 1), for each cell that the rows of `p` lack: of the probabilities
        of its levels (m, V), or of the first two moments about the column's center (m, 2). rows: that `p` is of."""
        tree, c = self._in_tree(p.kind.members(p.column)[0].name)
        if tree is not None:
            levels, column = tree.levels_of(self._coding, rows)[p.rows], tree.columns(self._coding)[c]
            if column.levels:
                return [tree.believed(levels, c, weight)]
            levels[:, c] = UNKNOWN
            of_bins = bins.moments(column, *self._number(column), weight.shape[1])
            return [tree.moments(levels, c, of_bins, weight)]
        return self._laws[p.kind.name].averages(p.column, p.x, p.seen, p.lacking, weight)

    def share_of_rest(self, which: Column, rows: Rows, at: np.ndarray) -> np.ndarray | float:
        """Probability of the last level of a categorical column that some of the rows lack in every cluster,
        (K + 1,), or given their other cells (m, K + 1); 1 where averages of the number have it, since others lean on
        it."""
        if self._in_tree(which.part_of)[0] is not None:
            return 1.0
        tree, c = self._in_tree(which.name)
        if tree is not None:
            levels = tree.levels_of(self._coding, rows)[at]
            levels[:, c] = UNKNOWN
            return tree.believed_level(levels, c, len(which.levels) - 1)
        number = [column.name for column in self.components.categorical.columns].index(which.name)
        return self._laws["categorical"].probabilities(number)[-1]

    def _in_tree(self, name: str) -> tuple[TreeLaw | None, int]:
        """The tree of linked columns that a column is in, and its place there."""
        for tree in self._trees:
            names = [column.name for column in tree.columns(self._coding)]
            if name in names:
                return tree, names.index(name)
        return None, 0

    def simulate(self, given: Rows, columns: Sequence[Column], stream: Stream, first_row: int = 0) -> Rows:
        """See `Predictive.simulate`; `columns` are some of the view's."""
        names, n = {column.name for column in columns}, len(given)
        drawn, ids = given.take(slice(None)), first_row + np.arange(n)
        if not names:
            return drawn
        cluster = pick_on_grid(self.log_terms(given), replace(stream, sub=CLUSTER).uniforms(ids))
        linked = {column.name for tree in self._trees for column in tree.columns(self._coding)}
        for tree in self._trees:
            self._draw_linked(tree, given, drawn, names, cluster, stream, ids)
        for p in self.patterns(given):
            members = [(i, column) for i, column in p.members() if column.name in names - linked]
            if members:
                law = self._laws[p.kind.name]
                x = law.draw(p.column, p.x, p.seen, p.lacking, cluster[p.rows], stream, ids[p.rows])
                for i, column in members:
                    getattr(drawn, column.block)[p.rows, column.index] = x[:, i]
        return drawn

    def _draw_linked(self, tree: TreeLaw, given: Rows, drawn: Rows, names, cluster, stream: Stream, ids) -> None:
        """Draw the missing cells of the columns of a tree with these names, into `drawn`."""
        columns = tree.columns(self._coding)
        chosen = [i for i, column in enumerate(columns) if column.name in names]
        codes = tree.drawn(tree.levels_of(self._coding, given), chosen, cluster, stream, ids)
        for i, code in zip(chosen, codes):
            column = columns[i]
            into = getattr(drawn, column.block)[:, column.index]
            into[:] = code if column.levels else self._in_bins(column, into, code, cluster, stream, ids)

    def _in_bins(self, column: Column, x: np.ndarray, code: np.ndarray, cluster, stream: Stream, ids) -> np.ndarray:
        """Cells x of a number, those that are missing drawn within the bin of each row; NaN where it is an atom."""
        at = np.flatnonzero(np.isnan(x) & (code >= len(column.atoms)))
        low, high = (end[code[at] - len(column.atoms)] for end in bins.on_the_scale(column))
        (law, c), found = self._number(column), x.copy()
        kind = self.components.poisson if column.kind == "count" else self.components.normal
        found[at] = law.within(c, cluster[at], low, high, one_uniform(stream, kind.substreams[0], c, ids[at]))
        return found

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


def predictives(views: Sequence[View], codings: Sequence[Coding | None]) -> list[ViewPredictive]:
    """The views of a chain, without single cells. codings: the links of each."""
    return [ViewPredictive(v.components, v.hyper, v.partition.statistics, False, of) for v, of in zip(views, codings)]


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
            lane = replace(stream, chain=in_lane(stream.chain, v))
            part = view.simulate(self.rows_of(v, given), [c for c in view.columns if c.name in names], lane, first_row)
            for c in view.columns:
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
