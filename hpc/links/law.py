"""Predictive law of a tree of linked columns (docs/links.md): within a cluster its columns depend on each other, and
unknown ones are summed out. Same interface as a block of columns (`crosscat/laws/blocks.py`).

A numeric column with atoms takes part through its atom, or that it is none; the number itself depends on that alone. A
numeric parent is a node of its own, below the node of its atom; its levels are its atoms and bins (`bins`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from mpibayes.hpc.components.categorical import Categorical, Levels
from mpibayes.hpc.components.single import one_uniform
from mpibayes.hpc.data.events import Events, Known, conditional
from mpibayes.hpc.links.bins import Bins, bounds
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.crossed import CrossedBelief, belief_in, drawn, log_p
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.linked import Branch, Linked
from mpibayes.hpc.links.pairs import given_each_level, in_clusters, in_groups, of_tables
from mpibayes.hpc.links.tables import OfRows, Table
from mpibayes.hpc.links.tree import UNKNOWN, Belief, Evidence
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io.rows import Column, Rows

AT_ONCE = 4_000_000  # numbers in a message held at once
OF_CASES = 1 << 30  # added to a column's number, names the uniforms that draw contexts of second parents


class TreeLaw:
    """Law of one tree. tables: one per column of the tree, for all clusters. numbers(events): log probability of the
    numbers in events of a column in every cluster, given that they are no atoms, (E, K + 1). names: the table's
    columns; each is at a node, `_at`, or in a branch, `_branch`."""

    def __init__(
        self, of: Linked, tables: Sequence[Table], numbers: Callable[[Events], np.ndarray] | None = None,
        branches: Sequence[Branch] = (),
    ):  # fmt: skip
        self._of, self._tables, self._numbers, self.branches = of, tables, numbers, branches
        self._branch = {name: branch for branch in branches for name in branch.names}
        self.names, self._width = [*(name for name in of.names if name), *self._branch], tables[0].total.shape[1]
        self._at = {name: c for c, name in enumerate(of.names) if name}
        widest = max(int(contexts.max()) + 1 for contexts in of.tree.contexts)
        self._step = max(16, AT_ONCE // (widest * self._width))

    def knows(self, known: Known) -> bool:
        return any(name in known.of for name in self.names)

    def score(self, known: Known) -> np.ndarray:
        """Log probability of the known cells of these columns in every cluster, (n, K + 1)."""
        evidence, total = self.evidence(known)
        for rows in self._pieces(known.n_rows):
            total[rows] += log_p(self._of.tree, self._tables, evidence.take(rows), self._width)
        return total

    def given(self, known: Known, given: Known | None) -> np.ndarray:
        """Log probability of `known` given `given`, (n, K + 1); 0 in clusters where `given` is impossible."""
        if given is None or not self.knows(given):
            return self.score(known)
        return conditional(self.score, known, given)

    def log_masses(self, events: Events) -> np.ndarray:
        """Log probability of each event of a column in every cluster, (U, K + 1)."""
        return self.score(Known(len(events), {events.column.name: (events, np.arange(len(events)))}))

    def averaged(self, events: Events, weight: np.ndarray, given: Known) -> np.ndarray:
        """Probabilities (n, U) of a column's events given other columns of the tree as well; weight (n, K + 1)."""
        branch = self._branch.get(events.column.name)
        if branch is not None:
            evidence, _ = self.evidence(given.without([events.column.name]))
            return branch.averaged(events, self.in_contexts(evidence, branch.node, weight), given)
        c = self._at[events.column.name]
        evidence, _ = self.evidence(given)
        out = np.empty((len(weight), len(events)))
        if c in self._of.numbers:
            share = self._share_by_cluster(events)
            for rows, belief in self._beliefs(evidence, c):
                out[rows] = 0.0
                for v in np.flatnonzero(share.any(axis=(0, 2))):
                    out[rows] += belief.level(v, weight[rows]) @ share[:, v].T
            return out
        share, log_number = self._shares(events)
        for rows, belief in self._beliefs(evidence, c):
            out[rows] = belief.levels(weight[rows]) @ share.T
            if log_number is not None:
                out[rows] += belief.level(share.shape[1] - 1, weight[rows]) @ np.exp(log_number).T
        return out

    def in_contexts(self, evidence: Evidence, c: int, weight: np.ndarray) -> np.ndarray:
        """Split the clusters' weights (n, K + 1) over the contexts of a node given all known cells, (n, W, K + 1)."""
        contexts, level = self._of.tree.contexts[c], evidence.levels[:, c]
        out = np.zeros((len(weight), int(contexts.max()) + 1, self._width))
        known = np.flatnonzero(level >= 0)
        out[known, contexts[level[known]]] = weight[known]
        unknown = np.flatnonzero(level < 0)
        if not len(unknown):
            return out
        part, one = evidence.take(unknown), np.ones((len(unknown), self._width))
        share = {e: 1.0 if e == UNKNOWN else part.sets[c][-2 - e] for e in np.unique(level[unknown]).tolist()}
        of_unknown = np.zeros((len(unknown), *out.shape[1:]))
        for rows, belief in self._beliefs(part, c):
            for v, u in enumerate(contexts.tolist()):
                p = belief.level(v, one[rows])
                for event, of_level in share.items():
                    at = level[unknown[rows]] == event
                    of_unknown[rows][at, u] += p[at] * (of_level if np.ndim(of_level) == 0 else of_level[v])
        total = of_unknown.sum(axis=1, keepdims=True)
        out[unknown] = (
            np.where(total > 0.0, of_unknown / np.where(total > 0.0, total, 1.0), 0.0) * weight[unknown, None]
        )
        return out

    def joint(
        self, one: Events, others: Mapping[str, Events], weight: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray, float]]:
        """Yield (name, table, inside) for each other column of the tree. table (U, U'): joint probabilities of its
        events and those of `one`; inside: the mutual information of the two within a cluster. Both are summed over the
        clusters, weighted by (K + 1,)."""
        x, of_one = self._node_of(one.column.name), self._share_by_cluster(one)
        node = {name: self._node_of(name) for name in others if name != one.column.name}
        alone = self._alone(x) if x in node.values() else np.zeros(0)
        for name in (name for name, c in node.items() if c == x):
            of_other, branch = self._share_by_cluster(others[name]), self._branch.get(name)
            if branch is None or branch is not self._branch.get(one.column.name):
                yield name, *in_clusters(of_one * (alone * weight), of_other)
                continue
            both = branch.together(one, others[name])
            yield name, *of_tables((both * in_groups(self._of.tree.contexts[x], alone) * weight).sum(axis=2))
        for c, p in given_each_level(self._of.tree, self._tables, x, self._width, x in self._of.numbers):
            for name in (name for name, at in node.items() if at == c):
                both = np.einsum("eik,ivk->evk", of_one, p * weight, optimize=True)
                yield name, *in_clusters(both, self._share_by_cluster(others[name]))

    def _node_of(self, name: str) -> int:
        """Node of a column, or the node that its branch depends on."""
        return self._branch[name].node if name in self._branch else self._at[name]

    def _alone(self, c: int) -> np.ndarray:
        """Probabilities of a node's levels in every cluster, (V, K + 1)."""
        n = self._tables[c].n_levels
        levels = np.full((n, len(self._tables)), UNKNOWN)
        levels[:, c] = np.arange(n)
        return np.exp(log_p(self._of.tree, self._tables, Evidence(levels), self._width))

    def _share_by_cluster(self, events: Events) -> np.ndarray:
        """Probability of each event given each level, (U, V, K + 1); for a branch, given the levels of its node."""
        if events.column.name in self._branch:
            branch = self._branch[events.column.name]
            return np.exp(branch.log_masses(events))[:, self._of.tree.contexts[branch.node]]
        if self._at[events.column.name] in self._of.numbers:
            return self._of_bins(events)
        share, log_number = self._shares(events)
        if log_number is None:
            return np.broadcast_to(share[:, :, None], (*share.shape, self._width))
        by_cluster = np.repeat(share[:, :, None], self._width, axis=2)
        by_cluster[:, -1] += np.exp(log_number)
        return by_cluster

    def _of_bins(self, events: Events) -> np.ndarray:
        """Probability of each event of a number given each of its atoms and bins, (U, V, K + 1)."""
        c = self._at[events.column.name]
        column, n_atoms = self._of.numbers[c], len(events.column.atoms)
        share = np.zeros((len(events), self._tables[c].n_levels, self._width))
        if n_atoms and events.sets is not None:
            share[:, :n_atoms] = events.sets[:, :, None]
        elif n_atoms:
            subset = np.flatnonzero(events.codes >= 0)
            share[subset, events.codes[subset]] = 1.0
        mass = self._tables[c].counts[-1, n_atoms:]
        for b, (first, last) in enumerate(zip(*bounds(column))):
            low, high = np.fmax(events.low, first), np.fmin(events.high, last)
            one = (low == high) & ((column.kind == "count") | (events.low == events.high))  # a value, not a border
            subset = np.flatnonzero(((low < high) | one) & ~np.isnan(events.low))  # NaN: atoms only
            if len(subset):
                blank = np.full(len(subset), -1)
                both = np.exp(self._numbers(Events(events.column, blank, None, low[subset], high[subset])))
                share[subset, n_atoms + b] = np.where(mass[b] > 0.0, both / np.where(mass[b] > 0.0, mass[b], 1.0), 0.0)
        return share

    def believed(self, evidence: Evidence, column: int, weight: np.ndarray) -> np.ndarray:
        """Sums over the clusters, weighted by (n, K + 1), of the probabilities of a column's levels given all other
        known cells, (n, V)."""
        parts = [b.levels(weight[rows]) for rows, b in self._beliefs(evidence, column)]
        return np.concatenate(parts) if parts else np.zeros((0, self._tables[column].n_levels))

    def believed_level(self, evidence: Evidence, column: int, v: int) -> np.ndarray:
        """Probability of one level of a column given all other known cells, in every cluster, (n, K + 1)."""
        one = np.ones((len(evidence), self._width))
        parts = [b.level(v, one[rows]) for rows, b in self._beliefs(evidence, column)]
        return np.concatenate(parts) if parts else np.zeros((0, self._width))

    def scored(self, evidence: Evidence) -> np.ndarray:
        """Log probability of the known cells in every cluster, (n, K + 1)."""
        total = np.empty((len(evidence), self._width))
        for rows in self._pieces(len(evidence)):
            total[rows] = log_p(self._of.tree, self._tables, evidence.take(rows), self._width)
        return total

    def of_rows(self, coding: Coding, rows: Rows) -> Evidence:
        """Return the cells of plain rows as evidence; numbers are on the model's scale."""
        below: dict[int, np.ndarray] = {}
        for branch in self.branches:
            below[branch.node] = below.get(branch.node, 0.0) + branch.scored(rows)
        return Evidence(self.levels_of(coding, rows), {}, below)

    def moments(self, evidence: Evidence, column: int, of_bins: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Sums over the clusters, weighted by (n, K + 1), of a number's first two moments given the other columns of
        the tree, times the probability that it is no atom, (n, 2). of_bins: see `bins.moments`."""
        levels, out = evidence.levels.copy(), np.zeros((len(evidence), 2))
        above = self._of.tree.parents[column]
        if above != ROOT:
            levels[levels[:, above] == self._tables[above].n_levels - 1, above] = UNKNOWN
        first = self._tables[column].n_levels - len(of_bins)
        for rows, belief in self._beliefs(Evidence(levels, {}, evidence.below), column):
            for b, each in enumerate(of_bins):
                out[rows] += belief.level(first + b, weight[rows]) @ each
        return out

    def left_out(
        self, known: Known, cluster: np.ndarray, levels: np.ndarray,
        masses: Callable[[Column], np.ndarray] | None = None,
        score: Callable[[Branch, Known, np.ndarray], np.ndarray] | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Log probability (n,) of the known cells of training rows in their own clusters (n,), counted without the row
        itself, except for numbers that are nodes. levels (n, C): all cells of the rows, -1 where missing.
        masses(column): probabilities of a number's bins in each row's cluster without the row, (B, n). score(branch,
        known, context): log probabilities of a branch's known cells in each row's context (-1 for none), (n, W)."""
        evidence, _ = self.evidence(known)
        below: dict[int, np.ndarray] = {}
        for branch in (b for b in self.branches if any(name in known.of for name in b.names)):
            context = np.append(self._of.tree.contexts[branch.node], -1)[levels[:, branch.node]]
            below[branch.node] = below.get(branch.node, 0.0) + score(branch, known, context)[:, :, None]
        evidence = Evidence(evidence.levels, evidence.sets, below)
        tables = self._of_rows(self._tables, cluster, levels)
        for c, column in self._of.numbers.items():
            tables[c] = Bins(len(column.atoms), masses(column)).of(np.arange(len(cluster)))
        return log_p(self._of.tree, tables, evidence, 1)[:, 0]

    def draw(
        self,
        tables: Sequence[Table],
        known: Known,
        requested: Collection[str],
        cluster: np.ndarray,
        stream: Stream,
        ids,
        branches: Sequence[Branch] = (),
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return level codes (n,) of the requested columns, known or drawn given the known cells and the rows'
        clusters; and the numbers of branches. tables, branches: with drawn parameters, or this law's own. A column with
        atoms gets the code of its atom; a numeric parent, the code of its atom or bin."""
        grown = [branch for branch in branches if not set(requested).isdisjoint(branch.names)]
        columns = sorted({*(c for name, c in self._at.items() if name in requested), *(b.node for b in grown)})
        evidence = self.evidence(known, branches)[0]
        below = {c: log_p[np.arange(len(ids)), :, cluster][:, :, None] for c, log_p in evidence.below.items()}
        evidence = Evidence(evidence.levels, evidence.sets, below)
        out = np.empty((len(columns), len(ids)), np.intp)
        for rows in self._pieces(len(ids)):

            def uniforms(c: int, of: int = 0, rows=rows) -> np.ndarray:
                return one_uniform(stream, Categorical.substreams[0], of + self._of.column[c], ids[rows])

            of_rows, cases = [table.of(cluster[rows]) for table in tables], partial(uniforms, 0, OF_CASES)
            result = drawn(self._of.tree, of_rows, evidence.take(rows), columns, uniforms, cases)
            out[:, rows] = [result[c] for c in columns]
        level = dict(zip(columns, out))
        values: dict[str, np.ndarray] = {}
        for branch in grown:
            context = self._of.tree.contexts[branch.node][level[branch.node]]
            values |= branch.drawn(known, requested, cluster, context, stream, ids)
        return {self._of.names[c]: of for c, of in level.items() if self._of.names[c] in requested}, values

    def number(self, name: str) -> Column | None:
        """Return the modelled column of this name if it is a numeric parent, else None."""
        return self._of.numbers.get(self._at[name]) if name in self._at else None

    @property
    def linked(self) -> Linked:
        """Columns of the tree."""
        return self._of

    @property
    def tables(self) -> Sequence[Table]:
        """Tables of the columns, with parameters integrated out."""
        return self._tables

    def drawn_tables(self, levels: Levels, masses: Callable[[Column], np.ndarray] | None = None) -> list[Table]:
        """Return tables with drawn parameters. masses: see `counted`."""
        return [
            Bins(len(self._of.numbers[i].atoms), masses(self._of.numbers[i]))
            if i in self._of.numbers
            else Table(levels.in_contexts(c))
            for i, c in enumerate(self._of.column)
        ]

    def columns(self, coding: Coding) -> list[Column]:
        """Return the tree's columns in plain form."""
        return [coding.plain[c] for c in self._of.plain]

    def levels_of(self, coding: Coding, rows: Rows) -> np.ndarray:
        """Levels of the tree's columns in plain rows, UNKNOWN where missing, (n, C)."""
        result = []
        for place, c in zip(self._of.plain, self.columns(coding)):
            if not c.levels:
                result.append(coding.context(place, rows))
                continue
            x = getattr(rows, c.block)[:, c.index].astype(np.intp)
            result.append(np.where(x == len(c.levels), UNKNOWN, x))
        return np.column_stack(result)

    def _of_rows(self, tables, cluster: np.ndarray, levels: np.ndarray) -> list[OfRows]:
        context_of = self._of.tree.context_of
        return [table.of(cluster, (context_of(c, levels), levels[:, c])) for c, table in enumerate(tables)]

    def evidence(self, known: Known, branches: Sequence[Branch] | None = None) -> tuple[Evidence, np.ndarray]:
        """Return the known cells of the tree's columns and of its branches (or of `branches` instead); and the log
        probability of the numbers of columns with atoms, given that they are no atoms, (n, K + 1)."""
        levels = np.full((known.n_rows, len(self._of.names)), UNKNOWN)
        total, sets = np.zeros((known.n_rows, self._width)), {}
        for name, c in self._at.items():
            if name in known.of:
                events, which = known.of[name]
                seen = which < len(events)
                at = which[seen]
                if c in self._of.numbers:
                    code, log_number = self._numbered(c, events)
                    total[seen] += log_number[at]
                    levels[seen, c] = code[at]
                    above = self._of.tree.parents[c]
                    if above != ROOT:
                        levels[seen, above] = np.where(code < 0, UNKNOWN, np.minimum(code, len(events.column.atoms)))[
                            at
                        ]
                    if (code < 0).any():
                        sets[c] = self._of_bins(events)
                    continue
                if events.column.levels and events.sets is None:
                    levels[seen, c] = events.codes[at]
                    continue
                share, log_number = self._shares(events)
                code = np.where(share.sum(axis=1) == 1.0, share.argmax(axis=1), -2 - np.arange(len(events)))
                if log_number is not None:
                    number, alone = ~np.isnan(events.low), ~share.any(axis=1)
                    code = np.where(number, np.where(alone, share.shape[1] - 1, -2 - np.arange(len(events))), code)
                    total[seen] += np.where((number & alone)[:, None], log_number, 0.0)[at]
                levels[seen, c] = code[at]
                if (code < 0).any():
                    sets[c] = share[:, :, None] if log_number is None else self._share_by_cluster(events)
        below: dict[int, np.ndarray] = {}
        for branch in self.branches if branches is None else branches:
            if any(name in known.of for name in branch.names):
                below[branch.node] = below.get(branch.node, 0.0) + branch.score(known)
        return Evidence(levels, sets, below), total

    def _numbered(self, c: int, events: Events) -> tuple[np.ndarray, np.ndarray]:
        """Return the atom or bin of each of a number's events, (U,), -2 - e for an event e that spans several; and the
        log probability of numbers within a single bin, (U, K + 1)."""
        n_atoms, (first, last) = len(events.column.atoms), bounds(self._of.numbers[c])
        low = np.clip(np.searchsorted(first, events.low, side="right") - 1, 0, None)
        high = np.searchsorted(last, events.high, side="left")
        number = ~np.isnan(events.low)
        atoms = np.zeros(len(events), bool) if events.sets is None else events.sets.any(axis=1)
        inside = number & ~atoms & (low == high)
        several = -2 - np.arange(len(events))
        code = np.where(inside, n_atoms + high, np.where(events.codes >= 0, events.codes, several))
        log_number = np.zeros((len(events), self._width))
        if inside.any():
            log_number[inside] = self._numbers(events.take(np.flatnonzero(inside)))
        return code, log_number

    def _shares(self, events: Events) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the indicator of the levels, or atoms, in each event, (U, V); and for a column with atoms, the log
        probability of the events' numbers in every cluster, given that they are no atoms, (U, K + 1)."""
        column = events.column
        n_levels = self._tables[self._at[column.name]].n_levels
        share = np.zeros((len(events), n_levels))
        if events.sets is None:
            subset = np.flatnonzero(events.codes >= 0)
            share[subset, events.codes[subset]] = 1.0
        else:
            share[:, : events.sets.shape[1]] = events.sets
        if column.levels:
            return share, None
        log_number, there = np.full((len(events), self._width), -np.inf), ~np.isnan(events.low)
        if there.any():
            log_number[there] = self._numbers(events.take(np.flatnonzero(there)))
        return share, log_number

    def _beliefs(self, evidence: Evidence, column: int) -> Iterator[tuple[slice, Belief | CrossedBelief]]:
        for rows in self._pieces(len(evidence)):
            yield rows, belief_in(self._of.tree, self._tables, evidence.take(rows), self._width, column)

    def _pieces(self, n: int) -> list[slice]:
        return [slice(i, min(i + self._step, n)) for i in range(0, n, self._step)]
