"""A tree of linked columns in the clusters of a draw: unknown levels are summed out by messages.

In a cluster, the probabilities of a column's levels depend on the context of its parent's level alone. From the leaves
up, each column sends its parent the probability of all known cells at and below it, in each context of the parent
(Pearl 1988). A column whose level is known cuts the tree: messages to it are needed in one context. All in logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mpibayes.hpc.links.forest import ROOT

UNKNOWN = -1


@dataclass(frozen=True)
class Tree:
    """C columns, parents before children.

    parents: index of each column's parent, ROOT for none. contexts: the context of each level, (V,), by column. second:
    index of the second parent of each column with two, by its index (`crossed`); its contexts change fastest.
    """

    parents: Sequence[int]
    contexts: Sequence[np.ndarray]
    second: Mapping[int, int] = field(default_factory=dict)

    def path(self, column: int) -> list[int]:
        """Return the path from the root to a column, inclusive."""
        path = [column]
        while self.parents[path[-1]] != ROOT:
            path.append(self.parents[path[-1]])
        return path[::-1]

    def context_of(self, column: int, levels: np.ndarray) -> np.ndarray:
        """Context of a column in rows with these levels of all columns, (n, C): (n,)."""
        parent = self.parents[column]
        if parent == ROOT:
            return np.zeros(len(levels), np.intp)
        context = self.contexts[parent][levels[:, parent]]
        if column not in self.second:
            return context
        of = self.contexts[self.second[column]]
        return context * (int(of.max()) + 1) + of[levels[:, self.second[column]]]


@dataclass(frozen=True)
class Evidence:
    """Known cells of n rows. levels (n, C): the level, UNKNOWN, or -2 - e for set e of the column's `sets`, (E, V, K +
    1 or 1), the probability of the known event given each level. below: log probability of the known cells of numbers
    below a column, in each of its contexts, (n, W, K + 1 or 1)."""

    levels: np.ndarray
    sets: Mapping[int, np.ndarray] = field(default_factory=dict)
    below: Mapping[int, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.levels)

    def take(self, rows: np.ndarray | slice) -> Evidence:
        return Evidence(self.levels[rows], self.sets, {c: log_p[rows] for c, log_p in self.below.items()})

    def without(self, column: int) -> Evidence:
        """Return a copy with one column unknown."""
        levels = self.levels.copy()
        levels[:, column] = UNKNOWN
        return Evidence(levels, self.sets, self.below)


class Messages:
    """Messages of all columns but the silent ones to their parents. tables: for each column a `tables.Table`, or for
    each a `tables.OfRows`. width: length of their last axis.

    total (n, width): log probability of the known cells whose messages reached the root.
    """

    def __init__(self, tree: Tree, tables: Sequence, evidence: Evidence, width: int, silent: Collection[int] = ()):
        self.tree, self.tables, self.evidence, self.width = tree, tables, evidence, width
        self.total = np.zeros((len(evidence), width))
        self._point: dict[int, np.ndarray] = {}  # (n, width): to columns whose level is known, in its context
        self._table: dict[int, np.ndarray] = {}  # (rows, W, width): to other columns, in all contexts
        informed = evidence.levels != UNKNOWN
        for c, log_p in evidence.below.items():
            informed[:, c] |= log_p.any(axis=(1, 2))
            self._take_in(c, log_p)
        for c in range(len(tree.parents) - 1, -1, -1):
            if c in silent:
                continue
            rows, parent = np.flatnonzero(informed[:, c]), tree.parents[c]
            if len(rows):
                if parent != ROOT:
                    informed[rows, parent] = True
                self._send(c, rows, parent)

    def _take_in(self, c: int, log_p: np.ndarray) -> None:
        """Start a column's messages with those of the numbers below it."""
        context, unknown = self.context(c, np.arange(len(log_p))), self._unknown[c]
        known = np.flatnonzero(context >= 0)
        self._point[c] = np.zeros((len(log_p), self.width))
        self._point[c][known] = log_p[known, context[known]]
        self._table[c] = log_p[unknown].copy()

    def _send(self, c: int, rows: np.ndarray, parent: int) -> None:
        context = self.context(parent, rows)
        near, far = np.flatnonzero(context >= 0), np.flatnonzero(context < 0)
        if len(near):
            message = self.message(c, rows[near], context[near])
            if parent == ROOT:
                self.total[rows[near]] += message
            else:
                point = self._point.setdefault(parent, np.zeros((len(self.evidence), self.width)))
                point[rows[near]] += message
        if len(far):
            if parent not in self._table:
                n_contexts = int(self.tree.contexts[parent].max()) + 1
                self._table[parent] = np.zeros((len(self._unknown[parent]), n_contexts, self.width))
            self._table[parent][self._place[parent][rows[far]]] += self.message(c, rows[far], None)

    def context(self, parent: int, rows: np.ndarray) -> np.ndarray:
        """Context of a column's level in rows, -1 if unknown; 0 above the root."""
        if parent == ROOT:
            return np.zeros(len(rows), np.intp)
        level = self.evidence.levels[rows, parent]
        return np.where(level >= 0, self.tree.contexts[parent][np.maximum(level, 0)], -1)

    @cached_property
    def _unknown(self) -> list[np.ndarray]:
        """Rows in which each column's level is unknown."""
        return [np.flatnonzero(level < 0) for level in self.evidence.levels.T]

    @cached_property
    def _place(self) -> list[np.ndarray]:
        """Position of each row among the rows in which each column is unknown."""
        return [np.cumsum(level < 0) - 1 for level in self.evidence.levels.T]

    def at(self, c: int, rows: np.ndarray) -> np.ndarray | float:
        """Sum of the messages to a column in rows where its level is known, (n, width)."""
        return self._point[c][rows] if c in self._point else 0.0

    def below(self, c: int, rows: np.ndarray) -> np.ndarray | None:
        """Sum of the messages to a column in all its contexts, (n, W, width), in rows where its level is unknown; None
        if there is no message."""
        return self._table[c][self._place[c][rows]] if c in self._table else None

    def message(self, c: int, rows: np.ndarray, context: np.ndarray | None) -> np.ndarray:
        """Log probability of the known cells at and below a column, in a context of its parent, (n, width), or if that
        is None in all contexts, (n, U, width)."""
        level = self.evidence.levels[rows, c]
        shape = (len(rows), self.width) if context is not None else (len(rows), self.tables[c].n_contexts, self.width)
        out = np.empty(shape)
        i = np.flatnonzero(level >= 0)
        if len(i):
            above, table, at = self.at(c, rows[i]), self.tables[c], (rows[i], level[i])
            if context is None:
                out[i] = log(table.in_contexts(*at)) + (above if np.ndim(above) == 0 else above[:, None])
            else:
                out[i] = log(table.of_cells(at[0], context[i], at[1])) + above
        for event in np.unique(level[level < 0]):
            i = np.flatnonzero(level == event)
            share, s = self.share(c, event), self.below(c, rows[i])
            p = self.tables[c].by_group(rows[i], None if context is None else context[i], self.groups(c, s), share)
            out[i] = summed(p, s)
        return out

    def groups(self, c: int, below: np.ndarray | None) -> np.ndarray:
        """Groups of a column's levels that the messages to it distinguish, (V,)."""
        return self.tree.contexts[c] if below is not None else np.zeros(self.tables[c].n_levels, np.intp)

    def share(self, c: int, event: int) -> np.ndarray | None:
        """Probability of a column's event given each level, (V, K + 1 or 1); None if nothing is known."""
        return None if event == UNKNOWN else self.evidence.sets[c][-2 - event]


def summed(p: np.ndarray, s: np.ndarray | None) -> np.ndarray:
    """Log of the sum over W of p (..., W, width) exp(s), s (n, W, width): (n, width), or with contexts before W (n, U,
    width). If s is None there is one group."""
    if s is None:
        return log(p[..., 0, :])
    e, top = scaled(s)
    if p.ndim == 3:
        return log((p * e).sum(axis=1)) + top
    if len(p) == 1 and p.shape[-1] > 1:  # p is the same for all rows: one matrix product per cluster
        sums = np.matmul(e.transpose(2, 0, 1), p[0].transpose(2, 1, 0)).transpose(1, 2, 0)
    else:
        sums = np.einsum("nuwk,nwk->nuk", np.broadcast_to(p, (len(e), *p.shape[1:])), e)
    return log(sums) + top[:, None]


def scaled(s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return exp(s - top) and top (n, width), the maximum of s (n, W, width) over W."""
    top = s.max(axis=1)
    top = np.where(np.isfinite(top), top, 0.0)
    return np.exp(s - top[:, None]), top


def log(p: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(p)


# --- a column given others --------------------------------------------------------------------------------------------


class Belief:
    """Probabilities of a column's levels given all other known cells, in n rows and every cluster."""

    def __init__(self, tree: Tree, tables: Sequence, evidence: Evidence, width: int, column: int):
        self._tables, self._c, self._n = tables, column, len(evidence)
        path = tree.path(column)
        m = self._messages = Messages(tree, tables, evidence.without(column), width, silent=path)
        rows = np.arange(self._n)
        self._context = np.zeros(self._n, np.intp)  # parent's context if known, else -1
        point, table = np.zeros((self._n, width)), None  # log probability of the cells known elsewhere
        for c in path[:-1]:
            point, table = self._down(c, rows, point, table)
            self._context = m.context(c, rows)
        self._above = table  # (rows whose context is unknown, U, width)
        below = m.below(column, rows)
        self._below = None if below is None else scaled(below)[0]
        self._scale()

    def _down(self, c: int, rows: np.ndarray, point: np.ndarray, table: np.ndarray | None):
        """Return the message from column c to a child, in the same form."""
        m = self._messages
        known = m.evidence.levels[:, c] >= 0
        out = np.zeros_like(point)
        unknown = np.flatnonzero(~known)
        near = self._context >= 0
        place = np.cumsum(~near) - 1  # row's position in `table`
        i = np.flatnonzero(known)
        level = m.evidence.levels[:, c]
        if len(i):
            j = i[near[i]]
            out[j] = point[j] + log(m.tables[c].of_cells(j, self._context[j], level[j])) + m.at(c, j)
            j = i[~near[i]]
            if len(j):
                both = table[place[j]] + log(m.tables[c].in_contexts(j, level[j]))
                out[j] = np.logaddexp.reduce(both, axis=1) + m.at(c, j)
        if not len(unknown):
            return out, None
        wide = np.empty((len(unknown), int(m.tree.contexts[c].max()) + 1, out.shape[1]))
        at = np.cumsum(~known) - 1
        for event in np.unique(level[unknown]):
            here = unknown[level[unknown] == event]
            share, groups = m.share(c, event), m.tree.contexts[c]
            j = here[near[here]]
            if len(j):
                p = m.tables[c].by_group(j, self._context[j], groups, share)
                wide[at[j]] = log(p) + point[j][:, None]
            j = here[~near[here]]
            if len(j):
                p = m.tables[c].by_group(j, None, groups, share)
                e, top = scaled(table[place[j]])
                wide[at[j]] = log(_passed(p, e)) + top[:, None]
        below = m.below(c, unknown)
        return out, wide if below is None else wide + below

    def _scale(self) -> None:
        """Set 1 / the probability of the cells known elsewhere, up to the scale of `_above`, (n, width)."""
        m, c, e = self._messages, self._c, self._below
        groups = m.groups(c, e)
        near, far = np.flatnonzero(self._context >= 0), np.flatnonzero(self._context < 0)
        total = np.ones((self._n, m.width))
        if len(near) and e is not None:
            total[near] = (m.tables[c].by_group(near, self._context[near], groups, None) * e[near]).sum(axis=1)
        if len(far):
            self._above = scaled(self._above)[0]
            p = m.tables[c].by_group(far, None, groups, None)
            inside = p[:, :, 0] if e is None else np.exp(summed(p, log(e[far])))
            total[far] = (self._above * inside).sum(axis=1)
        self._inverse = np.where(total > 0.0, 1.0 / np.where(total > 0.0, total, 1.0), 0.0)

    def levels(self, weight: np.ndarray) -> np.ndarray:
        """Sum the levels' probabilities over the clusters, weighted by (n, width): (n, V)."""
        groups = self._messages.groups(self._c, self._below)
        out = np.zeros((self._n, self._tables[self._c].n_levels))
        for rows, q, p in self._by_context(weight):
            if self._below is None:
                out[rows] += q @ p.T
                continue
            for w in range(int(groups.max()) + 1):
                v = np.flatnonzero(groups == w)
                out[np.ix_(rows, v)] += (q * self._below[rows, w]) @ p[v].T
        return out

    def level(self, v: int, weight: np.ndarray) -> np.ndarray:
        """Weighted probability of one level in every cluster, (n, width)."""
        out, w = np.zeros((self._n, self._messages.width)), self._messages.groups(self._c, self._below)[v]
        for rows, q, p in self._by_context(weight):
            out[rows] += q * p[v] * (1.0 if self._below is None else self._below[rows, w])
        return out

    def _by_context(self, weight: np.ndarray):
        """Yield rows, their weights in a context of the parent (m, width), and the levels' probabilities there."""
        weight = weight * self._inverse
        far, table = np.flatnonzero(self._context < 0), self._tables[self._c]
        for u in range(table.n_contexts):
            near = np.flatnonzero(self._context == u)
            if len(near) or len(far):
                p = table.levels(u)
                if len(near):
                    yield near, weight[near], p
                if len(far):
                    yield far, weight[far] * self._above[:, u], p


def _passed(p: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Sum over U of p (1, U, W, width) or (n, U, W, width) times e (n, U, width): (n, W, width)."""
    if len(p) == 1 and p.shape[-1] > 1:
        return np.matmul(e.transpose(2, 0, 1), p[0].transpose(2, 0, 1)).transpose(1, 2, 0)
    return np.einsum("nuwk,nuk->nwk", np.broadcast_to(p, (len(e), *p.shape[1:])), e)


# --- draws ------------------------------------------------------------------------------------------------------------


def drawn_in(
    tree: Tree, tables: Sequence, evidence: Evidence, requested: Collection[int], uniforms: Callable[[int], np.ndarray]
) -> dict[int, np.ndarray]:
    """Return levels (n,) of the requested columns: known, or drawn jointly given all known cells, each row in its
    cluster. tables: all `tables.OfRows`. uniforms(c): the uniforms of column c, (n,)."""
    m = Messages(tree, tables, evidence, 1)
    needed = {a for c in requested for a in tree.path(c)}
    levels: dict[int, np.ndarray] = {}
    for c in sorted(needed):
        level = levels[c] = evidence.levels[:, c].copy()
        rows, parent = np.flatnonzero(level < 0), tree.parents[c]
        if not len(rows):
            continue
        context = np.zeros(len(rows), np.intp) if parent == ROOT else tree.contexts[parent][levels[parent][rows]]
        p = tables[c].rows_of_levels(rows, context)
        below = m.below(c, rows)
        if below is not None:
            p *= scaled(below)[0][:, tree.contexts[c], 0]
        for event in np.unique(level[rows]):
            if event != UNKNOWN:
                here = level[rows] == event
                p[here] *= tables[c].shares(rows[here], m.share(c, event))
        cumulative = p.cumsum(axis=1)
        level[rows] = (cumulative[:, :-1] <= (uniforms(c)[rows] * cumulative[:, -1])[:, None]).sum(axis=1)
    return {c: levels[c] for c in requested}
