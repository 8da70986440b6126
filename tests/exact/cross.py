"""Exact posteriors of cross-categorized tiny tables, by enumerating the partitions of the columns and, for each view,
of the rows. No code in common with the program; shares only the enumeration of mixtures (tests/exact/enumerate.py)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from scipy.special import logsumexp

from tests.exact.enumerate import Case, column_values, log_eppf, log_marginal, partitions, with_spread


@dataclass(frozen=True)
class CrossCase:
    """A table (its `concentration` and `discount` are ignored), and uniform grids: `views` and `rows`, (concentration,
    discount) of the columns over views and of every view's rows; `priors[name]`, of a column. Columns of kind "vector"
    are a block, which counts as one column here.
    """

    case: Case
    views: tuple[tuple[float, float], ...]
    rows: tuple[tuple[float, float], ...]
    priors: dict[str, tuple[dict, ...]]


class Posterior:
    """p (S,): probabilities of the states. A state is the view of each column (`views` (S, C), by first appearance),
    and the partition of the rows in each column's view (`rows` (S, C), numbers in `partitions` (B, N))."""

    def __init__(self, cross: CrossCase):
        columns = cross.case.columns
        self.partitions = partitions(cross.case.n_rows)
        of_views = partitions(len(columns))

        def law(z, points):
            return logsumexp([log_eppf(np.bincount(z), *point) for point in points]) - np.log(len(points))

        prior = np.array([law(z, cross.rows) for z in self.partitions])
        self._scores = [np.array([self._column(c, cross.priors[c[0]], z) for z in self.partitions]) for c in columns]
        likelihood = np.array([logsumexp(part, axis=1) - np.log(part.shape[1]) for part in self._scores])
        log_p, views, rows = [], [], []
        for view in of_views:
            weight = [prior + likelihood[view == v].sum(axis=0) for v in range(view.max() + 1)]
            choices = np.indices([len(w) for w in weight]).reshape(len(weight), -1)
            log_p.append(law(view, cross.views) + reduce(np.add.outer, weight).ravel())
            views.append(np.tile(view, (choices.shape[1], 1)))
            rows.append(choices[view].T)
        self.views, self.rows = np.concatenate(views), np.concatenate(rows)
        every = np.concatenate(log_p)
        self.log_evidence = float(logsumexp(every))
        self.p = np.exp(every - self.log_evidence)
        self._partition = {tuple(z): b for b, z in enumerate(self.partitions.tolist())}

    @staticmethod
    def _column(column, priors, z) -> list[float]:
        """Log marginal likelihood at every point of the column's prior."""
        values = column_values(column)
        if column[1] == "vector":
            priors = [with_spread(values, prior) for prior in priors]
        return [sum(log_marginal(column[1], values[z == k], prior) for k in range(z.max() + 1)) for prior in priors]

    @cached_property
    def _number(self):
        return {self._key(v, r): s for s, (v, r) in enumerate(zip(self.views, self.rows))}

    @staticmethod
    def _key(views, rows):
        return tuple(views), tuple(rows)

    def number(self, views, labels) -> int:
        """Number of a state: the view of each column, and the labels (C, N) that each column follows."""
        first = {}
        views = [first.setdefault(v, len(first)) for v in views]
        rows = []
        for z in labels:
            seen = {}
            rows.append(self._partition[tuple(seen.setdefault(k, len(seen)) for k in z)])
        return self._number[self._key(views, rows)]

    def points(self, column: int) -> np.ndarray:
        """Distribution over the points of a column's prior given each state, (S, points)."""
        part = self._scores[column]
        return np.exp(part - logsumexp(part, axis=1, keepdims=True))[self.rows[:, column]]

    def summaries(self) -> tuple[list[str], np.ndarray]:
        """Names, and indicators of the events in each state (events, S): every partition of the columns, two rows
        together in a column's view, with or without another column there, and numbers of clusters."""
        names, table, n_columns = [], [], self.views.shape[1]
        for view in partitions(n_columns):
            names.append("columns " + "".join(map(str, view)))
            table.append((self.views == view).all(axis=1))
        together = self.partitions[:, :, None] == self.partitions[:, None, :]
        for f in range(n_columns):
            n_clusters = self.partitions.max(axis=1)[self.rows[:, f]] + 1
            for k in range(1, self.partitions.shape[1] + 1):
                names.append(f"K={k} of column {f}")
                table.append(n_clusters == k)
            for i, j in zip(*np.triu_indices(self.partitions.shape[1], 1)):
                same = together[self.rows[:, f], i, j]
                names.append(f"rows {i}, {j} together for column {f}")
                table.append(same)
                for g in range(f):
                    names.append(f"columns {g}, {f} together, rows {i}, {j} too")
                    table.append(same & (self.views[:, f] == self.views[:, g]))
        return names, np.array(table, float)
