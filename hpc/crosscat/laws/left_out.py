"""Training rows under a draw, with each row left out in turn (docs/math.md 2.12).

The row's own cluster has one row less, with statistics of the remaining rows; a row alone in its cluster would have to
open a new one. With draws from the posterior given all rows, 1 / p(x_c | the rest of the row, all other rows) is the
average of 1 / p_d(x_c | the rest of the row) over draws d (Gelfand, Dey & Chang 1992).

Numeric columns in lines have parameters drawn given all rows. These are part of the draw d, so those of the row's
cluster are not changed. In a new cluster they are integrated out under the prior (`lines/new.py`), whether or not the
row is alone.
"""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.components.masses import log_negative_binomial, log_real
from mpibayes.hpc.components.normal import posterior
from mpibayes.hpc.crosscat.laws.branches import LineBranch, NumberBranch
from mpibayes.hpc.crosscat.laws.view_law import Scores, ViewLaw, normalised
from mpibayes.hpc.crosscat.lines.law import LineLaw
from mpibayes.hpc.crosscat.lines.new import opened
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.links import bins
from mpibayes.hpc.links.law import TreeLaw
from mpibayes.io.rows import Column, Rows


class LeftOut:
    """n training rows in a view. rows: the view's columns as modelled, with the missing cells that are part of the
    draw; known: the cells as recorded. The rows' clusters are the view's labels (n,)."""

    def __init__(self, view: ViewLaw, rows: Rows, known: Known):
        view = opened(view)
        self._view, self._rows, self._own = view, rows, view.labels.astype(np.intp)
        self._at = np.arange(len(rows)), self._own
        names = [name for name in known.of if name in view.names]
        self._known = known.only(names)
        self._trees = [tree for tree in view.trees if tree.knows(self._known)]
        self._lines = [law for law in view.lines if law.knows(self._known)]
        linked = {name for tree in (*self._trees, *self._lines) for name in tree.names}
        self._whole: Scores = {}
        self._of_trees = {id(tree): self._log_linked(tree, self._known) for tree in self._trees}
        # log probability of the row's event in its own cluster
        self._of_own = {name: self._log_own(*self._known.of[name]) for name in names if name not in linked}

    def given(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the log probability of each row, (n,), and the probabilities of its clusters given all of it, a new
        one last, (n, K + 1)."""
        view = self._view
        scores = view.scores(self._known, whole=self._whole)
        in_lines = sum(self._whole[id(law)][self._at] for law in self._lines)
        alpha, d, size = view.hyper.concentration, view.hyper.discount, view.statistics.size
        rest = size.sum() - 1.0 + alpha
        scores += np.log(size.sum() + alpha) - np.log(rest)
        left = size[self._own] - 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.where(left > 0, np.log(left - d) - np.log(rest), -np.inf)
            alone = np.log(alpha + (len(size) - 1) * d) - np.log(alpha + len(size) * d)
        scores[self._at] = weight + sum(self._of_own.values(), np.zeros(len(left)))
        scores[self._at] += sum(self._of_trees.values()) + in_lines
        scores[:, -1] += np.where(left > 0, 0.0, alone)
        return normalised(scores)

    def inverse(self, name: str, weight: np.ndarray) -> np.ndarray:
        """Return 1 / p(cell of a column | other cells), (n,), NaN if it is missing. weight: of clusters, given all."""
        events, which = self._known.of[name]
        if name in self._of_own:
            return self._view.inverse(events, which, weight, (self._at, self._of_own[name]))
        tree = self._view.block_of(name)
        if isinstance(tree, LineLaw):
            return self._view.inverse(events, which, weight, None, self._known, self._whole)
        part = self._of_trees[id(tree)] - self._log_linked(tree, self._known.without([name]))
        return self._view.inverse(events, which, weight, (self._at, part), self._known, self._whole)

    def _log_linked(self, tree: TreeLaw, known: Known) -> np.ndarray:
        """Return the log probability of a tree's known cells in each row's own cluster without the row, (n,)."""
        levels = tree.levels_of(self._view.coding, self._rows)
        total = tree.left_out(known, self._own, levels, self._masses, self._log_branch)
        grown = {name for branch in tree.branches for name in branch.names}
        for name in known.of:
            if name in tree.names and name not in grown and not known.of[name][0].column.levels:
                total += self._log_rest(*known.of[name])
        return total

    def _log_branch(self, branch: NumberBranch | LineBranch, known: Known, context: np.ndarray) -> np.ndarray:
        """Return the log probability of a branch's known cells in each context of its parent, (n, W), in each row's own
        cluster, without the row in its own context (n,)."""
        if isinstance(branch, LineBranch):
            return branch.score(known)[self._at[0], :, self._own]
        events, which = known.of[branch.column.name]
        total = branch.score(known)[np.arange(len(which)), :, self._own]
        at = np.flatnonzero((which < len(events)) & (context >= 0))
        low, high = events.low[which[at]], events.high[which[at]]
        parts = branch.parts.start + context[at]
        total[at, context[at]] = self._log_number(events.column, at, low, high, parts)
        return total

    def _masses(self, column: Column) -> np.ndarray:
        """Return the probabilities of a numeric column's bins in each row's own cluster without the row, (B, n)."""
        every = np.arange(len(self._own))
        ends = (np.broadcast_to(end[:, None], (len(end), len(every))) for end in bins.bounds(column))
        return np.exp([self._log_number(column, every, low, high) for low, high in zip(*ends)])

    def _log_own(self, events: Events, which: np.ndarray) -> np.ndarray:
        """Return the log probability of each row's event in its own cluster without the row, (n,); 0 if missing."""
        column, seen = events.column, which < len(events)
        at, cluster = which[seen], self._own[seen]
        if column.levels:
            total = np.zeros(len(which))
            total[seen] = self._log_level(column.name, events.codes[at], cluster)
            return total
        total, atoms = self._log_rest(events, which), self._view.columns_of(column.name)[1]
        if atoms is not None:
            codes = np.where(events.codes[at] < 0, len(column.atoms), events.codes[at])
            total[seen] += self._log_level(atoms, codes, cluster)
        return total

    def _log_rest(self, events: Events, which: np.ndarray) -> np.ndarray:
        """Return the log probability of each row's number given that it is not an atom; 0 for an atom."""
        total, seen = np.zeros(len(which)), np.flatnonzero(which < len(events))
        low, high = events.low[which[seen]], events.high[which[seen]]
        number = ~np.isnan(low)
        total[seen[number]] = self._log_number(events.column, seen[number], low[number], high[number])
        return total

    def _log_level(self, name: str, codes: np.ndarray, mine: np.ndarray) -> np.ndarray:
        kind, c = self._view.place[name]
        row = kind.offsets[c] + codes
        count = self._view.statistics.levels[row, mine] + self._view.pseudo_counts[row] - 1.0
        with np.errstate(divide="ignore"):
            return np.log(count) - np.log(self._view.level_totals[c, mine] - 1.0)

    def _log_number(
        self, column, at: np.ndarray, low: np.ndarray, high: np.ndarray, parts: np.ndarray | None = None
    ) -> np.ndarray:
        """Return log probabilities of the range low to high for the rows `at`, each left out of its cluster. parts: for
        a column in contexts, the place of each row's context."""
        kind, c = self._view.place[column.name]
        hyper, cluster = getattr(self._view.hyper, kind.hyper)[c], self._own[at]
        if column.kind == "survival":
            x = self._rows.spells[at, kind.members(c)[0].index]
            left = kind.without(self._view.statistics.of(kind), c, x, cluster)
            law = kind.predictive(getattr(self._view.hyper, kind.hyper), left)
            return law.log_probability(c, low, high, np.arange(len(at)))
        s = [a[c if parts is None else parts, cluster] for a in self._view.statistics.of(kind)]
        index = next(plain.index for plain in self._view.columns if plain.name == column.name)
        if column.kind == "count":
            n, total = s
            x = self._rows.tallies[at, index]
            return log_negative_binomial(hyper[0] + total - x, hyper[1] + n - 1.0, low, high)
        y = self._rows.reals[at, index]
        there = ~np.isnan(y)  # log columns are undefined at x <= 0
        y = np.where(there, y, 0.0)
        n, mean, scatter = s
        n_left = n - there
        mean_left = np.where(n_left > 0, (n * mean - y * there) / np.maximum(n_left, 1), 0.0)
        scatter_left = np.where(there, np.maximum(scatter - (y - mean) * (y - mean_left), 0.0), scatter)
        scatter_left = np.where(n_left > 0, scatter_left, 0.0)
        location, kappa, nu, spread = (a[0] for a in posterior(hyper[None], n_left[None], mean_left, scatter_left))
        scale = np.sqrt(spread / nu * (1.0 + 1.0 / kappa))
        return log_real(column, location, scale, nu, low, high)
