"""Exact posteriors of tiny tables with links in views, by enumerating the partitions of the columns with, in each view,
the partitions of the rows and the forests; no code in common with the program."""

from __future__ import annotations

import itertools
from functools import cached_property, reduce

import numpy as np
from scipy.special import gammaln, logsumexp

from tests.exact.enumerate import log_eppf, log_marginal, partitions
from tests.links.enumerate import forests, log_prior
from tests.links.lines import log_regression

LINE, CHILD, BOTH = -1, -2, -3  # numbers that may be in lines, may depend on columns with levels, or both
REAL = {"mean": 0.1, "kappa": 0.3, "nu": 2.0, "variance": 0.3}


class ViewsPosterior:
    """columns: of each its levels (N,) and their number, or numbers (N,) and None, LINE, CHILD or BOTH; all but the
    first of these have one of `variances`, equally likely. betas: Dirichlet(beta) of every column with levels, cluster
    and context, with the beta of each column one of these, equally likely. views, rows: concentration and discount of
    the columns over views, and of every view's rows. allowed: links (child, parent); None: all. named: the parent of
    each column that has one, if links are given: a tree is then one column in the prior of the views.

    p (S,). A state: the view of each column by first appearance (S, C), the number of the partition of its rows (S, C),
    and its parent (S, C), -1 for none.
    """

    def __init__(
        self, columns, betas, views=(1.0, 0.0), rows=(1.0, 0.0), allowed=None, named=None, variances=(REAL["variance"],)
    ):
        self.variances = variances
        self.columns, self.betas, self.law_of_views, self.law_of_rows = columns, betas, views, rows
        self.n_rows = len(columns[0][0])
        self.partitions = partitions(self.n_rows)
        eppf = np.array([log_eppf(np.bincount(z), *rows) for z in self.partitions])
        c = len(columns)
        self.evidence = [  # by partition, column, parent + 1: betas or variances
            [
                [[self._log_evidence(z, i, p, h) for h in self.grid(i)] for p in range(-1, c)] for i in range(c)
            ]
            for z in self.partitions
        ]  # fmt: skip
        each = [[[logsumexp(h) - np.log(len(h)) for h in of] for of in row] for row in self.evidence]
        evidence = np.array(each)
        log_p, where, by, parents = [], [], [], []
        for view in partitions(c):
            if named is not None and any(view[i] != view[j] for i, j in named.items()):
                continue
            counted = view if named is None else np.delete(view, list(named))
            log_v, choices = log_eppf(np.bincount(counted), *views), []
            for v in range(view.max() + 1):
                part = np.flatnonzero(view == v)
                linkable = [i for i in part.tolist() if columns[i][1]]
                of_view = []
                for f in forests(len(linkable)):
                    home = dict(zip(linkable, (linkable[p] if p != -1 else -1 for p in f)))
                    links = [(child, p) for child, p in home.items() if p != -1]
                    if allowed is not None and not all(allowed(*link) for link in links):
                        continue
                    if named is not None and any(p != named.get(i, -1) for i, p in home.items()):
                        continue
                    prior = log_prior(f) if f and named is None else 0.0
                    at = [home.get(i, -1) + 1 for i in part.tolist()]
                    total = eppf + prior + evidence[:, part, at].sum(axis=1)
                    of_view += [(total[b], v, b, home) for b in range(len(total)) if np.isfinite(total[b])]
                choices.append(of_view)
            for of in itertools.product(*choices):
                log_p.append(log_v + sum(x[0] for x in of))
                where.append(view)
                by.append(np.array([x[2] for x in of])[view])
                home = reduce(dict.__or__, (x[3] for x in of))
                parents.append([home.get(i, -1) for i in range(c)])
        self.views, self.by, self.parents = np.array(where), np.array(by), np.array(parents)
        self.log_evidence = float(logsumexp(log_p))
        self.p = np.exp(np.array(log_p) - self.log_evidence)

    def grid(self, c: int) -> tuple[float, ...]:
        """Possible values of a column's pseudo-count or variance."""
        return self.betas if (self.columns[c][1] or 0) >= 0 else self.variances

    def _log_evidence(self, z, child: int, parent: int, beta: float) -> float:
        """Log marginal likelihood of a column's cells under a parent, -1 for none; beta: for lines, a variance."""
        x, n_levels = np.array(self.columns[child][0]), self.columns[child][1]
        if n_levels is None:
            if parent != -1:
                return -np.inf
            return sum(log_marginal("real", x[z == k], REAL) for k in range(z.max() + 1))
        of = 0 if parent == -1 else self.columns[parent][1]
        if parent == child or of is None:
            return -np.inf
        above = None if parent == -1 else np.array(self.columns[parent][0])
        group, total = (z * 100 + above if of > 0 else z), 0.0
        if n_levels < 0:
            if (of > 0 and n_levels == LINE) or (of < 0 and CHILD in (n_levels, of)):
                return -np.inf
            return sum(self._log_line(x, above if of < 0 else None, group == g, beta) for g in np.unique(group))
        if of < 0:
            return -np.inf
        for g in np.unique(group):
            n = np.bincount(x[(group == g) & (x >= 0)], minlength=n_levels)
            total += gammaln(n_levels * beta) - gammaln(n_levels * beta + n.sum())
            total += float((gammaln(beta + n) - gammaln(beta)).sum())
        return float(total)

    @staticmethod
    def _log_line(x, u, here, variance: float) -> float:
        """Log evidence of numbers in a cluster, on a line in u unless that is None."""
        design, precision = np.ones((here.sum(), 1)), np.array([REAL["kappa"]])
        if u is not None:
            design = np.column_stack([design, (u - u.mean())[here]])
            precision = np.append(precision, REAL["kappa"] ** 2 * u.var())
        center = np.append(REAL["mean"], np.zeros(len(precision) - 1))
        return log_regression(x[here], design, precision, center, REAL["nu"], variance)

    def draw_hyper(self, s: int, generator) -> dict[int, float | np.ndarray]:
        """Draw the beta of each column with levels given a state, and hyperparameters of numbers that may depend on
        others."""
        result = {}
        for c, (_, n_levels) in enumerate(self.columns):
            if n_levels:
                log_p = self.evidence[self.by[s, c]][c][self.parents[s, c] + 1]
                drawn = float(generator.choice(self.grid(c), p=np.exp(log_p - logsumexp(log_p))))
                result[c] = drawn if n_levels > 0 else np.array([REAL["mean"], REAL["kappa"], REAL["nu"], drawn])
        return result

    @cached_property
    def _number(self) -> dict[tuple, int]:
        states = zip(self.views.tolist(), self.by.tolist(), self.parents.tolist())
        return {tuple(map(tuple, state)): s for s, state in enumerate(states)}

    @cached_property
    def _of_labels(self) -> dict[tuple, int]:
        return {tuple(z): b for b, z in enumerate(self.partitions.tolist())}

    def number(self, views, labels, parents) -> int:
        """Number of a state: view of each column, labels (C, N) of its rows, and its parent."""
        first: dict = {}
        views = tuple(first.setdefault(v, len(first)) for v in views)
        by = []
        for z in labels:
            names: dict = {}
            by.append(self._of_labels[tuple(names.setdefault(k, len(names)) for k in z)])
        return self._number[views, tuple(by), tuple(parents)]

    @cached_property
    def summaries(self) -> tuple[list[str], np.ndarray]:
        """Names, and indicators of the events in each state, (events, S)."""
        names, table, c = [], [], self.views.shape[1]
        linked = {(i, j): self.parents[:, i] == j for i in range(c) for j in range(c) if i != j}
        for view in partitions(c):
            name, here = "columns " + "".join(map(str, view)), (self.views == view).all(axis=1)
            names.append(name)
            table.append(here)
            for e in range(c):
                names.append(f"{name}, {e} links")
                table.append(here & ((self.parents != -1).sum(axis=1) == e))
        for (i, j), happens in linked.items():
            names.append(f"link {i} on {j}")
            table.append(happens)
        together = self.partitions[:, :, None] == self.partitions[:, None, :]
        for f in range(c):
            for i, j in zip(*np.triu_indices(self.n_rows, 1)):
                same = together[self.by[:, f], i, j]
                names.append(f"rows {i}, {j} together for column {f}")
                table.append(same)
                for g in range(c):
                    if g != f:
                        names.append(f"{f} on {g}, rows {i}, {j} together")
                        table.append(same & linked[f, g])
        return names, np.array(table, float)
