"""Real columns in lines in a cluster of one row, with parameters integrated out (docs/math.md 1.10, 2.12).

A row alone in its cluster is the only data about the cluster's parameters. Drawn given it, they would make it likely in
most draws and impossible in a few, and an average of 1 / p would not converge; so for a left-out row the new cluster
follows the prior. There each column is a t given its parent, and unknown columns are summed out from the leaves to the
root by quadrature: under the prior slopes have mean 0, so all functions of a column vary about two points only, and one
set of nodes serves all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.line import Line
from mpibayes.hpc.components.nodes import NODES as NODES_IN
from mpibayes.hpc.components.nodes import log_sum, width_level
from mpibayes.hpc.components.normal import posterior
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.laws.blocks import patterns_of
from mpibayes.hpc.crosscat.laws.view_law import ViewLaw
from mpibayes.hpc.crosscat.lines.cells import Cells
from mpibayes.hpc.crosscat.lines.law import LineLaw
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.forest import ROOT
from mpibayes.kernels.common.functions import gammaln

NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
DOUBLINGS = 26  # of the first panel, enough to exhaust a t with one degree of freedom
AT_ONCE = 2_000  # rows


@dataclass(frozen=True)
class Student:
    """A column given its parent's value u: a t with nu degrees of freedom about `location`, with squared scale
    variance (level + (u - at)^2 / square); square is infinite for a root."""

    location: float
    nu: float
    variance: float
    level: float
    at: float = 0.0
    square: float = np.inf

    def log_density(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        spread = self.nu * self.variance * (self.level + (u - self.at) ** 2 / self.square)
        constant = float(gammaln(np.array(0.5 * (self.nu + 1.0))) - gammaln(np.array(0.5 * self.nu)))
        off = np.log1p((x - self.location) ** 2 / spread)
        return constant - 0.5 * (np.log(np.pi * spread) + (self.nu + 1.0) * off)

    @property
    def width(self) -> float:
        """Scale at the parent's mean."""
        return float(np.sqrt(self.variance * self.level))

    @property
    def reach(self) -> float:
        """Change in the parent's value that changes the scale noticeably."""
        return float(np.sqrt(self.square * self.level))


class NewTree:
    """The columns of a tree in a new cluster, parents first. above: index of each column's parent, or ROOT."""

    def __init__(self, columns: Sequence[Student], above: Sequence[int]):
        self._columns, self._below = columns, [[d for d, p in enumerate(above) if p == c] for c in range(len(above))]

    def log_p(self, cells: Cells) -> np.ndarray:
        """Return the log probability of the cells, (n,)."""
        total = np.zeros(len(cells.x))
        for seen, at in patterns_of(cells.x):
            level = self._levels(cells, seen, at) if len(seen) else np.zeros(0, np.intp)
            for of in np.unique(level):
                same = at[level == of]
                for part in np.array_split(same, max(1, len(same) * NODES_IN[of] // AT_ONCE)):
                    known = {c: cells.nodes(part, c, int(NODES_IN[of])) for c in seen.tolist()}
                    total[part] = self._given(0, np.zeros((1, 1)), known)[:, 0]
        return total

    def _levels(self, cells: Cells, seen: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Return the number of nodes that each row needs (n,), as an index into NODES_IN. Widths of cells are measured
        against the column's scale at its parent's mean and against the reach of the columns below."""
        width = np.zeros(len(at))
        for c in seen.tolist():
            below = [self._columns[d].reach for d in self._below[c]]
            width = np.maximum(width, (cells.high - cells.low)[at, c] / min([self._columns[c].width, *below]))
        return width_level(width)

    def _given(self, c: int, u: np.ndarray, known: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Return the log probability of the cells of a column and below it given its parent's value u (n, U) or (1, U),
        as an array that broadcasts to (n, U). known: by column, nodes of its cells and their log weights."""
        if c in known:
            here, log_weight = known[c]
            each = log_weight + self._all_below(c, here, known)
            return log_sum(self._columns[c].log_density(here[:, None, :], u[:, :, None]) + each[:, None, :])
        if not self._knows(c, known):
            return np.zeros((1, 1))
        points, log_weight = self._nodes[c]
        below = log_weight + self._all_below(c, points[None], known)
        if len(u) > 1 or u.size == 1:
            return log_sum(self._columns[c].log_density(points[None, None], u[:, :, None]) + below[:, None, :])
        top = below.max(axis=1, keepdims=True)
        each = np.exp(self._columns[c].log_density(points[:, None], u))
        return top + np.log(np.einsum("nq,qu->nu", np.exp(below - top), each))

    def _all_below(self, c: int, here: np.ndarray, known: Mapping) -> np.ndarray:
        return sum((self._given(d, here, known) for d in self._below[c]), np.zeros((1, 1)))

    def _knows(self, c: int, known: Mapping) -> bool:
        return c in known or any(self._knows(d, known) for d in self._below[c])

    @cached_property
    def _nodes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Nodes of each column and their log weights in an integral over it: Gauss-Legendre on panels that double in
        width away from the points about which the integrand varies."""
        result = []
        for column, below in zip(self._columns, self._below):
            centers = {column.location: column.width}
            for d in (self._columns[d] for d in below):
                centers[d.at] = min(centers.get(d.at, np.inf), d.reach)
            steps = 0.5 * 2.0 ** np.arange(DOUBLINGS)
            widest = max(centers.values())
            sides = [s * np.append(steps, steps[-1] * widest / s) for s in centers.values()]
            edges = np.unique([[a - of, a + of] for a, side in zip(centers, sides) for of in side])
            half = 0.5 * np.diff(edges)
            points = edges[:-1, None] + half[:, None] * (1.0 + NODES)
            result.append((points.ravel(), np.log(np.outer(half, WEIGHTS)).ravel()))
        return result


def new_tree(components: Components, hyper: Hyper, coding: Coding, law: LineLaw) -> NewTree:
    """Return the columns of a tree of lines in a new cluster."""
    names, place = [c.name for c in coding.plain], {name: i for i, name in enumerate(law.names)}
    above = [place.get(names[p], ROOT) if p != ROOT else ROOT for p in
             (int(coding.parents[names.index(name)]) for name in law.names)]  # fmt: skip
    _, c = components.kind_of(law.names[0])
    location, kappa, nu, spread = (a.item() for a in posterior(hyper.normal[c], *np.zeros((3, 1))))
    columns = [Student(location, nu, spread / nu, 1.0 + 1.0 / kappa)]
    lines = {b.name: (b, w) for b, w in zip(components.multinormal.blocks, hyper.wishart) if isinstance(b, Line)}
    for name in law.names[1:]:
        block, wishart = lines[name]
        p = block.posterior(wishart, 0.0, np.zeros(2), np.zeros(3))
        of = p.location, p.nu, p.rest / p.nu, 1.0 + 1.0 / p.kappa, p.given, p.first
        columns.append(Student(*(float(a) for a in of)))
    return NewTree(columns, above)


@dataclass(frozen=True)
class OpenLaw(LineLaw):
    """Law of a tree of lines that integrates out the parameters of the new cluster, by `new`."""

    new: NewTree

    def score(self, known: Known) -> np.ndarray:
        total, known = super().score(known), self._informative(known)
        total[:, -1] = self.new.log_p(self.cells(known))
        return total


def opened(view: ViewLaw) -> ViewLaw:
    """Return the view with an OpenLaw for each tree of lines."""
    made = []
    for root, laws in view.all_lines:
        assert view.coding is not None  # there are lines
        new = new_tree(view.components, view.hyper, view.coding, laws[0])
        made.append((root, [OpenLaw(law.names, law.law, law.columns, law.number, law.above, new) for law in laws]))
    return view.with_lines(made)
