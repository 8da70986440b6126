"""Exact posteriors of tiny tables with links, by enumerating the partitions of the rows with the forests of the
columns; no code in common with the program."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache, cached_property
from math import lgamma

import numpy as np
from scipy.special import gammaln, logsumexp

from tests.exact.enumerate import blocks, log_eppf, partitions


def forests(d: int, above: int | None = None) -> list[tuple[int, ...]]:
    """All rooted forests of d columns: the parent of each, -1 for none. above: a column d that is only a parent, itself
    below this one, or below none, -1."""

    def ends(parents: tuple[int, ...], c: int) -> bool:
        for _ in range(d + 1):
            if c == -1:
                return True
            c = above if c == d else parents[c]
        return c == -1

    every = itertools.product(range(-1, d + (above is not None)), repeat=d)
    return [parents for parents in every if all(ends(parents, c) for c in range(d))]


def log_prior(parents: tuple[int, ...], more: int = 0) -> float:
    """Log prior, uniform over the number of links, and over the forests with that number. more: number of columns that
    are only parents; forests in which they depend on others are then excluded."""
    d, e = len(parents) + more, sum(p != -1 for p in parents)
    return float(-np.log(d) - (gammaln(d) - gammaln(e + 1) - gammaln(d - e)) - e * np.log(d))


def log_dirichlet(counts: list[int], beta: float) -> float:
    """Log marginal likelihood of cells with these counts of each level, with Dirichlet(beta)."""
    total = lgamma(len(counts) * beta) - lgamma(len(counts) * beta + sum(counts))
    return total + sum(lgamma(beta + n) - lgamma(beta) for n in counts if n)


@dataclass(frozen=True)
class Number:
    """A column of normal numbers that others may depend on: x (N,), NaN for an atom; cuts of its bins; prior: mean,
    kappa, nu, variance; above: the column that gives its atom, with last level none, or -1."""

    x: np.ndarray
    cuts: tuple[float, ...]
    prior: tuple[float, float, float, float]
    above: int = -1

    def contexts(self, cells: np.ndarray) -> np.ndarray:
        """Atom or bin of each row, (N,)."""
        n_atoms = 0 if self.above == -1 else int(cells[:, self.above].max())
        bin_of = n_atoms + (self.x[:, None] > np.array(self.cuts)).sum(axis=1)
        return bin_of if self.above == -1 else np.where(np.isnan(self.x), cells[:, self.above], bin_of)

    def log_evidence(self, z: np.ndarray) -> float:
        """Log marginal likelihood given a partition (Gelman et al. 2013, section 3.3)."""
        (m, kappa, nu, variance), total = self.prior, 0.0
        for k in np.unique(z):
            x = self.x[(z == k) & ~np.isnan(self.x)]
            n = len(x)
            if n:
                mean = x.mean()
                spread = nu * variance + ((x - mean) ** 2).sum() + n * kappa / (kappa + n) * (mean - m) ** 2
                total += gammaln(0.5 * (nu + n)) - gammaln(0.5 * nu) + 0.5 * np.log(kappa / (kappa + n))
                total += 0.5 * nu * np.log(nu * variance) - 0.5 * (nu + n) * np.log(spread) - 0.5 * n * np.log(np.pi)
        return float(total)


class LinkedPosterior:
    """cells (N, D), -1 for a missing one; n_levels (D,); prior: Dirichlet(beta) of every column, cluster and context,
    with the beta of each column one of the values `betas`, equally likely. Missing cells are summed out: each way to
    fill them in is a separate table. number: a further column, number D, that others may depend on."""

    def __init__(self, cells, n_levels, betas, concentration: float, discount: float, number: Number | None = None):
        self.cells, self.n_levels, self.betas, self.of = np.array(cells), list(n_levels), betas, number
        self.process = concentration, discount
        n, d = self.cells.shape
        more = int(number is not None)
        self.partitions, self.forests = partitions(n), forests(d, None if number is None else number.above)
        eppf = log_eppf(blocks(n)[1], concentration, discount)
        if number is not None:
            eppf += [number.log_evidence(z) for z in self.partitions]
        self.tables = self._filled_in()
        self.evidence = np.array(  # (tables, B, D, parent + 1, betas)
            [
                [
                    [
                        [[self._log_evidence(x, z, c, p, b) for b in betas] for p in range(-1, d + more)]
                        for c in range(d)
                    ]
                    for z in self.partitions
                ]
                for x in self.tables
            ]
        )
        evidence = logsumexp(self.evidence, axis=-1) - np.log(len(betas))
        prior = np.array([log_prior(f, more) for f in self.forests])
        of_forest = np.stack(  # (tables, B, F)
            [evidence[:, :, range(d), np.array(f) + 1].sum(axis=2) for f in self.forests], axis=-1
        )
        self.log_each = eppf[:, None] + prior + of_forest
        log_p = logsumexp(self.log_each, axis=0)
        self.log_evidence = float(logsumexp(log_p))
        self.p = np.exp(log_p - self.log_evidence)  # (partitions, forests)

    def _filled_in(self) -> list[np.ndarray]:
        holes = np.array(self.holes, np.intp).reshape(-1, 2)
        tables = []
        for levels in itertools.product(*(range(self.n_levels[c]) for _, c in holes)):
            tables.append(self.cells.copy())
            tables[-1][tuple(holes.T)] = levels
        return tables

    def _log_evidence(self, cells: np.ndarray, z: np.ndarray, child: int, parent: int, beta: float) -> float:
        """Log marginal likelihood of a column's cells under a parent, -1 for none."""
        x = cells[:, child]
        if parent == child:
            return -np.inf
        group = z
        if parent == len(self.n_levels):
            group = z * 100 + self.of.contexts(cells)
        elif parent != -1:
            group = z * 100 + cells[:, parent]
        return self._of_groups(tuple(x.tolist()), tuple(group.tolist()), self.n_levels[child], beta)

    @staticmethod
    @cache
    def _of_groups(x: tuple[int, ...], group: tuple[int, ...], n_levels: int, beta: float) -> float:
        """Log marginal likelihood of cells with n_levels levels, each group with separate probabilities."""
        counts: dict[int, list[int]] = {}
        for v, g in zip(x, group):
            counts.setdefault(g, [0] * n_levels)[v] += 1
        return sum(log_dirichlet(n, beta) for n in counts.values())

    @cached_property
    def holes(self) -> list[tuple[int, int]]:
        """Rows and columns of the missing cells."""
        return [tuple(at) for at in np.argwhere(self.cells < 0).tolist()]

    def needed(self, forest: tuple[int, ...], row: int, column: int) -> bool:
        """True if a cell of the row that depends on this one is present, or is missing and itself needed."""
        children = [c for c, parent in enumerate(forest) if parent == column]
        return any(self.cells[row, c] >= 0 or self.needed(forest, row, c) for c in children)

    def p_of_cell(self, row: int, column: int, level: int) -> float:
        """Probability that a missing cell is needed and has a level."""
        p = sum(
            np.exp(each - self.log_evidence) for x, each in zip(self.tables, self.log_each) if x[row, column] == level
        )
        return float(p[:, [self.needed(f, row, column) for f in self.forests]].sum())

    def draw(self, i: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw all cells (N, D) and the beta of each column, (D,), given the state number i."""
        b, f = divmod(i, len(self.forests))
        t = generator.choice(len(self.tables), p=_normalised(self.log_each[:, b, f]))
        log_p = self.evidence[t, b, range(len(self.n_levels)), np.array(self.forests[f]) + 1]
        return self.tables[t], np.array([generator.choice(self.betas, p=_normalised(part)) for part in log_p])

    @cached_property
    def number(self) -> dict[tuple, int]:
        """Index of each state (labels, parents)."""
        states = itertools.product(self.partitions.tolist(), self.forests)
        return {(tuple(z), f): i for i, (z, f) in enumerate(states)}

    def state(self, i: int) -> tuple[np.ndarray, tuple[int, ...]]:
        b, f = divmod(i, len(self.forests))
        return self.partitions[b], self.forests[f]


def _normalised(log_p: np.ndarray) -> np.ndarray:
    return np.exp(log_p - logsumexp(log_p))
