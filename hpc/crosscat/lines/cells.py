"""Cells of columns in lines: probability of all of a row's recorded cells, draws within them, and the distribution of
one more column (docs/math.md 2.12).

In a cluster a column is normal given its neighbour in the tree, so an integral over all cells is taken one cell at a
time, from the leaves to the root. A cell gets more Gauss-Legendre nodes the wider it is in conditional standard
deviations, so their number depends on the row and the cluster alone; an unknown column between known ones is summed
out by the trapezoidal rule. The probability of a cell that is narrow in a cluster is density times width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpibayes.hpc.components.nodes import NODES, log_sum, nodes_in, width_level
from mpibayes.hpc.crosscat.laws.blocks import LEAST, patterns_of
from mpibayes.hpc.crosscat.laws.normals import LOG_2PI, Normals
from mpibayes.hpc.links.forest import ROOT

PANEL = 3.0  # width of an event's panels, of 6 nodes each
LEAST_NOISE = 1.0 / 60.0  # least deviation of a column given its neighbour, in units of their cells
TAIL, MOST_TAIL = 0.25, 10.0  # a cell at z deviations varies like one TAIL z times as wide, up to MOST_TAIL
REACH = 6.5  # deviations of an unknown column that are summed over; 1.5 times as many for an event
AT_ONCE = 1_000_000  # numbers in a message


def spanned(above: Sequence[int], needed: set[int], root: int) -> list[tuple[int, int]]:
    """Return the columns of the subtree that spans `needed`, as (column, the column it is reached from), starting at
    the root, which is reached from ROOT."""
    near: dict[int, set[int]] = {c: set() for c in range(len(above))}
    for c, parent in enumerate(above):
        if parent != ROOT:
            near[c].add(parent)
            near[parent].add(c)
    left = set(near)
    while bare := {c for c in left - needed if len(near[c] & left) <= 1}:
        left -= bare
    order = [(root, ROOT)]
    for c, parent in order:  # the list grows as it is read
        order += [(d, c) for d in sorted(near[c] & left) if d != parent]
    return order


@dataclass(frozen=True)
class Cells:
    """Known cells of the columns of a tree, on the model's scale. law: distribution of the columns in each cluster.
    above: index of each column's parent, or ROOT.

    x (n, D): values, NaN where unknown; log_width (n, D): log widths of the cells, or the log Jacobian that makes the
    density one of recorded numbers; low, high (n, D): ends of the cells, equal where there is no cell."""

    law: Normals
    above: Sequence[int]
    x: np.ndarray
    log_width: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def nodes(self, rows: np.ndarray, c: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a column's nodes in the given rows and their log weights: n per cell, (m, n), or the middle alone."""
        if n == 1 or not (self.high > self.low)[rows, c].any():
            return self.x[rows, c][:, None], self.log_width[rows, c][:, None]
        return nodes_in(self.low[rows, c], self.high[rows, c], n)

    def log_p(self) -> np.ndarray:
        """Return the log probability of the cells in every cluster, (n, K)."""
        total = np.zeros((len(self.x), len(self.law.nu)))
        for seen, at in patterns_of(self.x):
            if len(seen):
                width = np.where(np.isnan(self.x[at]), 0.0, self.log_width[at]).sum(axis=1)
                total[at] = self.law.log_density(self.x[at][:, seen], seen) + width[:, None]
                self._put_coarse(total, seen, at)
        return total

    def _put_coarse(self, total: np.ndarray, seen: np.ndarray, at: np.ndarray) -> None:
        """Replace the entries of `total` for rows and clusters with wide cells."""
        for pairs in self._groups(seen, at, int(seen[0])):
            total[pairs.rows, pairs.k] = pairs.in_pieces(Pairs.total)

    def drawn(self, cluster: np.ndarray, uniforms: Callable[[int, np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the values, (n, D), with draws from within wide cells given each row's cluster.
        uniforms(column, rows): one number inside (0, 1) per row."""
        x = self.x.copy()
        for seen, at in patterns_of(self.x):
            for pairs in self._groups(seen, at, int(seen[0])) if len(seen) else ():
                own = pairs.take(cluster[pairs.rows] == pairs.k)
                if len(own.rows):
                    coarse = [c for c in seen.tolist() if own.node_counts[c] > 1]
                    each = own.drawn([uniforms(c, own.rows) for c, _ in own.order])
                    x[np.ix_(own.rows, coarse)] = np.column_stack([each[c] for c in coarse])
        return x

    def averaged(
        self, member: int, low: np.ndarray, high: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sum over clusters, with weights (n, K), the probabilities of intervals of column `member` from low to high
        (U,), densities where these are equal. Counts only clusters with wide cells; returns the sums (n, U) and the
        mask (n, K) of those clusters."""
        out, coarse = np.zeros((len(weight), len(low))), np.zeros(weight.shape, bool)
        for seen, at in patterns_of(self.x):
            for pairs in self._groups(seen, at, member) if len(seen) else ():
                coarse[pairs.rows, pairs.k] = True
                for of in pairs.take(weight[pairs.rows, pairs.k] > LEAST).by_cluster():
                    np.add.at(out, of.rows, of.events(low, high) * weight[of.rows, of.k, None])
        return out, coarse

    def _groups(self, seen: np.ndarray, at: np.ndarray, root: int) -> Iterator[Pairs]:
        """Yield the pairs of row and cluster with wide cells, grouped by their numbers of nodes."""
        step = {c: self.high[at, c] - self.low[at, c] for c in seen.tolist()}
        if not any(h.any() for h in step.values()):
            return
        order = spanned(self.above, {*seen.tolist(), root}, root)
        unknown = {c: self._unknown(c, seen, at, step) for c, _ in order if c not in step}
        filled = {c: self.x[at, c, None] if c in step else unknown[c][0] for c, _ in order}
        spread = {c: h[:, None] for c, h in step.items()}
        edges = Edges(self.law, order, spread | {c: scale + 2.0 * more for c, (_, scale, more) in unknown.items()})
        level, wide = np.zeros((len(at), len(self.law.nu)), np.intp), {}
        for c, h in step.items():
            width = h[:, None] * np.sqrt(edges.precision(c))
            tail = np.minimum(TAIL * h[:, None] * np.abs(edges.pull(c, filled)), MOST_TAIL)
            level = np.maximum(level, width_level(np.maximum(width, tail)))
        for c, (_, scale, more) in unknown.items():
            root_of = np.sqrt(edges.precision(c))
            wide[c] = np.ceil(np.log2(REACH * np.maximum(scale * root_of, 1.0) + more * root_of))
        keys, which = _combined([level, *wide.values()])
        for i, (of, *power) in enumerate(keys):
            if of == 0:
                continue
            rows, k = np.nonzero(which == i)
            counts = {c: int(NODES[of]) if h.any() else 1 for c, h in step.items()}
            middle = {c: m[rows, k] for c, (m, _, _) in unknown.items()}
            halves = {c: 2.0**p for c, p in zip(wide, power)}
            yield Pairs(self, edges, at[rows], rows, k, counts, middle, halves)

    def _unknown(
        self, c: int, seen: np.ndarray, at: np.ndarray, step: dict[int, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the mean and deviation of a column given the middles of the cells, and how far the mean moves within
        the cells, (n, K) each."""
        mean, scale, _ = self.law.single(self.x[at][:, seen], seen, c)
        m, i = self.law.matrix, np.arange(len(seen))
        of = m[:, seen[:, None], seen]
        of[:, i, i] *= 1.0 + 1e-12
        slope = np.abs(np.linalg.solve(of, m[:, seen, c][..., None])[..., 0])
        more = sum((0.5 * step[s][:, None] * slope[:, j] for j, s in enumerate(seen.tolist())), np.zeros(mean.shape))
        return mean, scale, more


def _combined(parts: Sequence[np.ndarray]) -> tuple[list[list[int]], np.ndarray]:
    """Return the distinct combinations of the entries of arrays of one shape (n, K), in order, and the index of each
    entry's combination, (n, K)."""
    code = np.zeros(parts[0].shape, np.int64)
    for part in (p.astype(np.int64) for p in parts):
        if part.min() < part.max():
            code = np.unique(code * (int(part.max()) + 1) + part, return_inverse=True)[1].reshape(code.shape)
    _, first = np.unique(code, return_index=True)
    return [[int(part.flat[i]) for part in parts] for i in first], code


class Edges:
    """Regression of each column of a tree on the column it is reached from, in every cluster. spread: width of the
    cells, or of the range of nodes, (n, 1) or (n, K). variance: residual variance, (n, K) or (1, K), with a floor
    below which the nodes would miss the peak."""

    def __init__(self, law: Normals, order: Sequence[tuple[int, int]], spread: dict[int, np.ndarray]):
        self.law, self.order, self.parent, m = law, order, dict(order), law.matrix
        self.slope = {c: m[:, c, p] / m[:, p, p] for c, p in order if p != ROOT}
        self.variance = {c: self._rest(c, p, spread) for c, p in order}

    def _rest(self, c: int, parent: int, spread: dict[int, np.ndarray]) -> np.ndarray:
        rest, none = self.law.matrix[:, c, c], np.zeros((1, 1))
        least = spread.get(c, none) ** 2
        if parent != ROOT:
            rest = np.maximum(rest - self.slope[c] * self.law.matrix[:, c, parent], 1e-13 * rest)
            least = least + (self.slope[c] * spread.get(parent, none)) ** 2
        return np.maximum(rest, LEAST_NOISE**2 * least)

    def below(self, c: int) -> list[int]:
        return [d for d, parent in self.order if parent == c]

    def precision(self, c: int) -> np.ndarray:
        """Return 1 / the variance of a column given its neighbours, (n, K) or (1, K)."""
        return sum((self.slope[d] ** 2 / self.variance[d] for d in self.below(c)), 1.0 / self.variance[c])

    def residual(self, c: int, x: dict[int, np.ndarray]) -> np.ndarray:
        """Return a column's distance from its mean given its neighbour, (n, K), from values (n, K) or (n, 1)."""
        off, parent = x[c] - self.law.location[:, c], self.parent[c]
        return off if parent == ROOT else off - self.slope[c] * (x[parent] - self.law.location[:, parent])

    def pull(self, c: int, x: dict[int, np.ndarray]) -> np.ndarray:
        """Return the derivative of the log density with respect to a column's value, (n, K)."""
        each = (self.slope[d] * self.residual(d, x) / self.variance[d] for d in self.below(c))
        return sum(each, -self.residual(c, x) / self.variance[c])


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows (P,) and clusters k (P,). place: index of each row in `edges`. node_counts: nodes per cell, by
    column. middle, half: center and half-width of the range over which an unknown column is summed, the half-width in
    deviations given its neighbours."""

    of: Cells
    edges: Edges
    rows: np.ndarray
    place: np.ndarray
    k: np.ndarray
    node_counts: dict[int, int]
    middle: dict[int, np.ndarray]
    half: dict[int, float]

    @property
    def order(self) -> Sequence[tuple[int, int]]:
        return self.edges.order

    def take(self, at: np.ndarray | slice) -> Pairs:
        middle = {c: m[at] for c, m in self.middle.items()}
        of = self.rows[at], self.place[at], self.k[at]
        return Pairs(self.of, self.edges, *of, self.node_counts, middle, self.half)

    def by_cluster(self) -> Iterator[Pairs]:
        return (self.take(self.k == k) for k in np.unique(self.k))

    def in_pieces(self, answer: Callable[[Pairs], np.ndarray], first: int = 0) -> np.ndarray:
        """Return the pairs' answers, worked out in pieces small enough for messages to fit in memory. first: least
        number of nodes to allow for at the root."""
        n = [self.node_counts.get(c, 0) or int(2 * self.half.get(c, 0.5)) + 1 for c, _ in self.order]
        step = max(1, AT_ONCE // (max(*n, first) * max(n)))
        return np.concatenate([answer(self.take(slice(i, i + step))) for i in range(0, len(self.rows), step)])

    def _of(self, a: np.ndarray) -> np.ndarray:
        """Return the entries of an array (n, K) or (1, K) for the pairs."""
        return a[self.place if len(a) > 1 else 0, self.k]

    @cached_property
    def pitch(self) -> dict[int, np.ndarray]:
        """Deviations of unknown columns given their neighbours, (P,)."""
        return {c: 1.0 / np.sqrt(self._of(self.edges.precision(c))) for c in self.half}

    @cached_property
    def nodes(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Nodes of each column and their log weights, (P, Q) each."""
        result = {}
        for c, n in self.node_counts.items():
            result[c] = self.of.nodes(self.rows, c, n)
        for c, middle in self.middle.items():
            places = np.arange(-self.half[c], self.half[c] + 1.0)
            result[c] = middle[:, None] + self.pitch[c][:, None] * places, np.log(self.pitch[c])[:, None]
        return result

    def density(self, c: int, x: np.ndarray, u: np.ndarray | None) -> np.ndarray:
        """Return the log density of a column's values x (P, Q) given its neighbour's values u (P, U), (P, U, Q); with
        u None, the root's marginal, (P, Q)."""
        location, variance = self.of.law.location[self.k], self._of(self.edges.variance[c])
        off = x - location[:, [c]]
        if u is None:
            return -0.5 * (off * off / variance[:, None] + np.log(variance)[:, None] + LOG_2PI)
        slope = self.edges.slope[c][self.k, None]
        off = off[:, None, :] - (slope * (u - location[:, [self.edges.parent[c]]]))[:, :, None]
        return -0.5 * (off * off / variance[:, None, None] + np.log(variance)[:, None, None] + LOG_2PI)

    def inner(self, c: int) -> np.ndarray:
        """Return the log weights of a column's nodes times the probability of the cells below it, (P, Q)."""
        x, log_weight = self.nodes[c]
        return log_weight + self.below(c, x)

    def below(self, c: int, x: np.ndarray) -> np.ndarray:
        """Return the log probability of the cells below a column given its values x (P, Q)."""
        return sum((self.up(d, x) for d in self.edges.below(c)), np.zeros((len(x), 1)))

    def up(self, c: int, u: np.ndarray) -> np.ndarray:
        """Return the log probability of the cells of a column and below it given its neighbour's values u (P, U)."""
        return log_sum(self.density(c, self.nodes[c][0], u) + self.inner(c)[:, None, :])

    def total(self) -> np.ndarray:
        """Return the log probability of all known cells, (P,)."""
        root = self.order[0][0]
        return log_sum(self.density(root, self.nodes[root][0], None) + self.inner(root))

    def drawn(self, u: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
        """Draw a node of each column given all known cells, (P,) by column. u: uniform numbers (P,) for each column, in
        the sequence of `order`."""
        x: dict[int, np.ndarray] = {}
        for (c, parent), number in zip(self.order, u):
            values = self.nodes[c][0]
            log = self.density(c, values, None if parent == ROOT else x[parent][:, None])
            log = log.reshape(len(values), -1) + self.inner(c)
            p = np.exp(log - log.max(axis=1, keepdims=True)).cumsum(axis=1)
            place = (p[:, :-1] <= number[:, None] * p[:, -1:]).sum(axis=1)
            x[c] = values[np.arange(len(values)), place]
        return x

    def events(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return the probabilities of intervals (U,) of the unknown root given all known cells, (P, U), by panels of
        6 nodes. All pairs must have the same cluster."""
        if not len(self.rows):
            return np.zeros((0, len(low)))
        root, x, w = self.order[0][0], *np.polynomial.legendre.leggauss(6)
        half, bare = 1.5 * self.half[root], Edges(self.of.law, self.order, {})  # the same for all rows
        pitch = 1.0 / np.sqrt(bare.precision(root)[0, self.k[0]])
        panels = np.maximum(np.ceil(np.minimum((high - low) / pitch, 2.0 * half) / PANEL), 1).astype(np.intp)
        event = np.repeat(np.arange(len(low)), panels)
        number = np.arange(len(event)) - np.repeat(panels.cumsum() - panels, panels)
        place = ((number[:, None] + 0.5 * (x + 1.0)) / panels[event][:, None])[None]

        def answer(pairs: Pairs) -> np.ndarray:
            middle, reach = np.clip(pairs.middle[root][:, None], low, high), half * pairs.pitch[root][:, None]
            first, last = np.maximum(low, middle - reach), np.minimum(high, middle + reach)
            at = first[:, event, None] + (last - first)[:, event, None] * place  # (P, panels, 6)
            weight = np.where(high > low, last - first, 1.0) / panels
            values = at.reshape(len(first), -1)
            log = pairs.density(root, values, None) + pairs.below(root, values) - pairs.total()[:, None]
            p = (np.exp(log).reshape(at.shape) * (0.5 * w)).sum(axis=2)
            return np.add.reduceat(p, panels.cumsum() - panels, axis=1) * weight

        return self.in_pieces(answer, 6 * len(event))
