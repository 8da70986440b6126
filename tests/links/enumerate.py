"""Exact posteriors of tiny tables with links, by writing out every partition of the rows with every forest of the columns;
no code in common with the program."""

from __future__ import annotations

import itertools
from functools import cached_property

import numpy as np
from scipy.special import gammaln, logsumexp

from tests.exact.enumerate import log_eppf, partitions


def forests(d: int) -> list[tuple[int, ...]]:
    """All rooted forests of d columns: the parent of each, -1 for none."""

    def ends(parents: tuple[int, ...], c: int) -> bool:
        for _ in range(d):
            if c == -1:
                return True
            c = parents[c]
        return c == -1

    every = itertools.product(range(-1, d), repeat=d)
    return [parents for parents in every if all(ends(parents, c) for c in range(d))]


def log_prior(parents: tuple[int, ...]) -> float:
    """Uniform over the number of links, and over the forests with so many."""
    d, e = len(parents), sum(p != -1 for p in parents)
    return float(-np.log(d) - (gammaln(d) - gammaln(e + 1) - gammaln(d - e)) - e * np.log(d))


class LinkedPosterior:
    """cells (N, D), -1 for a missing one; n_levels (D,); prior: Dirichlet(beta) of every column, cluster and context.
    allowed: forests; None: all."""

    def __init__(self, cells, n_levels, beta: float, concentration: float, discount: float, allowed=None):
        self.cells, self.n_levels, self.beta = np.array(cells), list(n_levels), beta
        n, d = self.cells.shape
        self.partitions = partitions(n)
        self.forests = [f for f in forests(d) if allowed is None or allowed(f)]
        eppf = np.array([log_eppf(np.bincount(z), concentration, discount) for z in self.partitions])
        evidence = np.array([[[self._log_evidence(z, c, p) for p in range(-1, d)] for c in range(d)] for z in self.partitions])
        prior = np.array([log_prior(f) for f in self.forests])
        of_forest = np.array([evidence[:, range(d), np.array(f) + 1].sum(axis=1) for f in self.forests])  # (F, B)
        self.log_p = eppf[:, None] + prior + of_forest.T
        self.log_evidence = float(logsumexp(self.log_p))
        self.p = np.exp(self.log_p - self.log_evidence)  # (partitions, forests)

    def _log_evidence(self, z: np.ndarray, child: int, parent: int) -> float:
        """Log marginal likelihood of a column's cells under a parent, -1 for none."""
        x, total = self.cells[:, child], 0.0
        if parent == child:
            return -np.inf
        group = z if parent == -1 else z * 100 + self.cells[:, parent]
        for g in np.unique(group):
            n = np.bincount(x[(group == g) & (x >= 0)], minlength=self.n_levels[child])
            v = len(n)
            total += gammaln(v * self.beta) - gammaln(v * self.beta + n.sum())
            total += float((gammaln(self.beta + n) - gammaln(self.beta)).sum())
        return total

    @cached_property
    def number(self) -> dict[tuple, int]:
        """The place of each state (labels, parents) among all."""
        states = itertools.product(self.partitions.tolist(), self.forests)
        return {(tuple(z), f): i for i, (z, f) in enumerate(states)}

    def state(self, i: int) -> tuple[np.ndarray, tuple[int, ...]]:
        b, f = divmod(i, len(self.forests))
        return self.partitions[b], self.forests[f]
