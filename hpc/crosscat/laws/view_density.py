"""A view of a draw as a density of rows (docs/math.md 2.6), scored by the kernels.

A view is a mixture over its columns: with clusters k of the draw, and a new one, p(x, k) = w_k f(x | rows of k), where
weights and parameters are integrated out and missing cells marginalised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibayes.hpc.components.component import Component
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.masses import log_negative_binomial, log_real
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.laws.branches import branches_of
from mpibayes.hpc.crosscat.laws.collapsed import collapsed_clusters
from mpibayes.hpc.crosscat.lines.law import LineLaw, line_laws
from mpibayes.hpc.data.events import Events
from mpibayes.hpc.links import bins
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.law import TreeLaw
from mpibayes.hpc.links.linked import counted, linked
from mpibayes.hpc.links.tree import UNKNOWN
from mpibayes.io import recording
from mpibayes.io.rows import Column, Rows
from mpibayes.kernels import mixture as kernels

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.view.view import View


@dataclass
class Pattern:
    """Rows that lack the same cells of a column or block. rows (m,): their numbers; seen, lacking: observed and missing
    members (places among the kind's `members`); x (m, len(seen)): observed cells."""

    kind: Component
    column: int
    rows: np.ndarray
    seen: np.ndarray
    lacking: np.ndarray
    x: np.ndarray

    def members(self) -> Iterator[tuple[int, Column]]:
        """Yield (place in `lacking`, column) of each missing column."""
        columns = self.kind.members(self.column)
        return ((i, columns[member]) for i, member in enumerate(self.lacking))


def patterns(
    components: Components, rows: Rows, partly: bool = False, coding: Coding | None = None
) -> Iterator[Pattern]:
    """Yield the patterns of missing cells of the rows, by column. partly: True for partly missing blocks only. coding:
    links of the components; the rows are not coded."""
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
    """Return a mask of the missing cells of a column, bool (n,)."""
    return column.is_missing(getattr(rows, column.block)[:, column.index])


class ViewDensity:
    """A view's mixture as a density of rows: K clusters, numbered as in `statistics`, none empty, and a new one last.

    Rows have the view's columns, uncoded. coding: links of components and statistics; columns: of the rows. key: of the
    stream of drawn parameters, set by the draw.
    """

    key: Mapping[str, int] = {}

    def __init__(self, components: Components, hyper: Hyper, statistics: Statistics, coding: Coding | None = None):
        self.components, self.hyper, self.statistics = components, hyper, statistics
        self.coding = coding if coding is not None and coding.linked else None
        self.place = {kind.members(c)[0].name: (kind, c) for kind in components.kinds for c in range(len(kind))}
        self._laws: dict[str, Any] = {}

    @cached_property
    def columns(self) -> list[Column]:
        """The columns of the rows."""
        if self.coding is not None:
            return list(self.coding.plain)
        return [c for kind in self.components.kinds for c in kind.columns]

    @cached_property
    def tail(self) -> kernels.Tail:
        """The clusters of the training rows, in the kernels' form."""
        return collapsed_clusters(self.components, self.hyper, self.statistics)

    def law(self, kind: Component) -> Any:
        """Return the predictive law of a kind's columns, see `components.component.Law`."""
        if kind.name not in self._laws:
            self._laws[kind.name] = kind.predictive(getattr(self.hyper, kind.hyper), self.statistics.of(kind))
        return self._laws[kind.name]

    def prepare(self, cells: bool) -> None:
        """Compute the laws that rows will need: of blocks, and with `cells` of every kind, for `averages`."""
        for kind in self.components.kinds:
            if len(kind) and (cells or any(len(kind.members(c)) > 1 for c in range(len(kind)))):
                self.law(kind)

    @property
    def n_bytes(self) -> int:
        """Memory of the clusters: counts and their logarithms, and the laws of single cells."""
        counts = self.tail.n_slots * 4 * 3 * int(self.components.categorical.offsets[-1])
        return counts + sum(law.n_bytes for law in self._laws.values())

    def log_density(self, rows: Rows) -> np.ndarray:
        """Return the log density of the observed cells of each row, (n,) float64."""
        density = kernels.log_predictive(self._coded(rows), self.tail) + self._log_cells(rows)
        partly = [p.rows for p in patterns(self.components, rows, partly=True)] + self._lacking_parents(rows)
        if partly:  # by themselves, so that the other rows' last bits do not depend on them
            incomplete = np.unique(np.concatenate(partly))
            density[incomplete] = np.logaddexp.reduce(self.log_terms(rows.take(incomplete)), axis=1)
        return density

    def log_terms(self, rows: Rows, partly: Sequence[Pattern] | None = None) -> np.ndarray:
        """Return log p(x, k) of the observed cells x of each row, (n, K + 1). partly: `patterns` of the rows, if
        known."""
        terms = kernels.log_predictive_clusters(self._coded(rows), self.tail) + self._log_cells(rows)[:, None]
        for at in self._lacking_parents(rows):
            terms[at] = self._summed_out(rows.take(at))
        for p in patterns(self.components, rows, partly=True) if partly is None else partly:
            if len(p.seen):  # the kernel skips partly missing blocks
                terms[p.rows] += self.law(p.kind).log_density(p.column, p.x, p.seen)
        return terms

    @cached_property
    def trees(self) -> list[TreeLaw]:
        """The trees of linked columns."""
        if self.coding is None:
            return []
        kind, levels = self.components.categorical, self.statistics.levels
        trees = linked(self.coding, kind)
        tables = [counted(kind, self.hyper.dirichlet, levels, tree, self._masses) for tree in trees]
        grown = [branches_of(tree, self.coding, self.components, self.law, self.all_lines) for tree in trees]
        return [TreeLaw(tree, of, self._log_rests, more) for tree, of, more in zip(trees, tables, grown)]

    @cached_property
    def all_lines(self) -> list[tuple[int, list[LineLaw]]]:
        """See `line_laws`."""
        if self.coding is None or not self.coding.in_lines:
            return []
        return line_laws(self.components, self.hyper, self.statistics, self.coding, self.key)

    @property
    def lines(self) -> list[LineLaw]:
        """Trees of columns in lines whose root depends on no categorical column."""
        return [laws[0] for root, laws in self.all_lines if self.coding.parents[root] == ROOT]

    def _masses(self, column: Column) -> np.ndarray:
        """Return the probabilities of a numeric column's bins in every cluster, (B, K + 1)."""
        kind, c = self.place[column.name]
        return bins.masses(column, self.law(kind), c)

    def _log_rests(self, events: Events) -> np.ndarray:
        """Return the log probability of the numbers of a column's events, given that they are no atoms, (U, K + 1)."""
        return self.log_numbers(events.column, events.low[:, None], events.high[:, None])

    def log_numbers(self, column: Column, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return the log probability of recorded numbers from low to high that are no atoms, (U, K + 1); low and high
        broadcast."""
        kind, c = self.place[column.name]
        law = self.law(kind)
        if column.kind == "count":
            return log_negative_binomial(law.shape[c], law.rate[c], low, high)
        if column.kind == "survival":
            return law.log_masses(c, low, high)
        return log_real(column, law.location[c], law.scale[c], law.nu[c], low, high)

    def _coded(self, rows: Rows) -> Rows:
        return rows if self.coding is None else self.coding.coded(rows)

    def _lacking_parents(self, rows: Rows) -> list[np.ndarray]:
        """Return the rows, if any, that lack the parent of an observed cell, or a cell of a column in lines."""
        if self.coding is None:
            return []
        lacks = self.coding.lacks_a_parent(rows)
        if self.coding.in_lines and np.isnan(rows.reals).any():
            lacks = np.logical_or.reduce([lacks, *(laws[0].lacks(rows) for _, laws in self.all_lines)])
        return [np.flatnonzero(lacks)] if lacks.any() else []

    def _summed_out(self, rows: Rows) -> np.ndarray:
        """Return log p(x, k) of rows from `_lacking_parents`, summed over missing parents and without partly missing
        blocks, (n, K + 1)."""
        bare, used = rows.take(slice(None)), [*range(self.tail.n_slots), -1]  # clusters behind them are empty
        scores = sum(tree.scored(tree.of_rows(self.coding, rows)) for tree in self.trees)
        scores = scores + sum(law.scored(rows) for law in self.lines)
        of_trees = [c for tree in self.trees for c in tree.columns(self.coding) if c.levels]
        grown = [self.coding.plain[c] for c in self.coding.in_contexts]
        for column in (*of_trees, *grown, *(c for _, laws in self.all_lines for c in laws[0].columns)):
            getattr(bare, column.block)[:, column.index] = column.blank
        terms = kernels.log_predictive_clusters(self._coded(bare), self.tail)
        return terms + scores[:, used] + self._log_cells(rows)[:, None]

    def patterns(self, rows: Rows) -> Iterator[Pattern]:
        """Yield the patterns of missing cells of the rows, by column."""
        return patterns(self.components, rows, coding=self.coding)

    def averages(self, p: Pattern, weight: np.ndarray, rows: Rows) -> list[np.ndarray]:
        """Return, for each missing cell of the pattern, the probabilities of its levels (m, V), or the first two
        moments about the column's center (m, 2), summed over clusters with weights (m, K + 1). rows: of the pattern."""
        name = p.kind.members(p.column)[0].name
        law = next((law for law in self.lines if name in law.names), None)
        if law is not None:
            return [law.moments(rows.take(p.rows), name, weight)]
        for grown in self.trees:
            for branch in (branch for branch in grown.branches if name in branch.names):
                part = rows.take(p.rows)
                in_contexts = grown.in_contexts(grown.of_rows(self.coding, part), branch.node, weight)
                return [branch.moments(part, name, in_contexts)]
        tree, c = self._in_tree(name)
        if tree is not None:
            evidence, column = tree.of_rows(self.coding, rows.take(p.rows)), tree.columns(self.coding)[c]
            if column.levels:
                return [tree.believed(evidence, c, weight)]
            evidence.levels[:, c] = UNKNOWN
            kind, number = self.place[column.name]
            of_bins = bins.moments(column, self.law(kind), number, weight.shape[1])
            return [tree.moments(evidence, c, of_bins, weight)]
        return self.law(p.kind).averages(p.column, p.x, p.seen, p.lacking, weight)

    def share_of_rest(self, which: Column, rows: Rows, at: np.ndarray) -> np.ndarray | float:
        """Return the probability of the last level of a column of atoms in every cluster, (K + 1,), or given the other
        cells of the rows `at`, (m, K + 1); 1 if the number has children, since its averages then include it."""
        if self._in_tree(which.part_of)[0] is not None:
            return 1.0
        tree, c = self._in_tree(which.name)
        if tree is not None:
            evidence = tree.of_rows(self.coding, rows.take(at))
            evidence.levels[:, c] = UNKNOWN
            return tree.believed_level(evidence, c, len(which.levels) - 1)
        kind, number = self.place[which.name]
        return self.law(kind).probabilities(number)[-1]

    def _in_tree(self, name: str) -> tuple[TreeLaw | None, int]:
        """Return the tree of linked columns that has a column, and the column's place there."""
        for tree in self.trees:
            names = [column.name for column in tree.columns(self.coding)]
            if name in names:
                return tree, names.index(name)
        return None, 0

    def _log_cells(self, rows: Rows) -> np.ndarray:
        """See `io.recording.log_cells`."""
        plain = {} if self.coding is None else {column.name: column for column in self.coding.plain}
        columns = {c.name: c for kind in self.components.kinds for c in kind.columns}.values()
        return recording.log_cells((plain.get(c.name, c) for c in columns), rows)


def densities(views: Sequence[View], codings: Sequence[Coding | None], number: int = 0) -> list[ViewDensity]:
    """Return the densities of a chain's views in their present state. codings: links of each. number: of the draw."""
    made = [ViewDensity(v.components, v.hyper, v.partition.statistics, of) for v, of in zip(views, codings)]
    for view in made:
        view.key = {"cycle": number}
    return made
