"""Trees in which columns have two parents. Given the contexts of all second parents, each column depends on its first
parent alone, so messages along a tree are exact; answers sum over the combinations of these contexts (conditioning on a
cutset, Pearl 1988). A row in which a second parent is known has its context only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from mpibayes.hpc.links.tree import UNKNOWN, Belief, Evidence, Messages, Tree, drawn_in, scaled

MOST_CASES = 256  # most combinations of contexts of second parents in a run


@dataclass(frozen=True)
class Case:
    """A combination of contexts of the second parents. contexts: by second parent. rows (n,): those in which it is
    possible. tables, evidence: of these rows, under the combination."""

    contexts: Mapping[int, int]
    rows: np.ndarray
    tables: Sequence
    evidence: Evidence


def cases(tree: Tree, tables: Sequence, evidence: Evidence) -> Iterator[Case]:
    """Yield the combinations that are possible in any row."""
    second = sorted(set(tree.second.values()))
    levels = evidence.levels
    known = {q: np.where(levels[:, q] < 0, -1, tree.contexts[q][np.maximum(levels[:, q], 0)]) for q in second}
    for combination in product(*(range(int(tree.contexts[q].max()) + 1) for q in second)):
        contexts = dict(zip(second, combination))
        fits = [(known[q] < 0) | (known[q] == u) for q, u in contexts.items()]
        rows = np.flatnonzero(np.logical_and.reduce(fits))
        if len(rows):
            part = [table.take(rows) for table in tables]
            for child, q in tree.second.items():
                part[child] = part[child].sliced(int(tree.contexts[q].max()) + 1, contexts[q])
            yield Case(contexts, rows, part, _within(tree, evidence.take(rows), contexts))


def _within(tree: Tree, evidence: Evidence, contexts: Mapping[int, int]) -> Evidence:
    """Return the evidence, and that unknown second parents are in their contexts."""
    levels, sets = evidence.levels.copy(), dict(evidence.sets)
    for q, u in contexts.items():
        here = (tree.contexts[q] == u).astype(np.float64)[None, :, None]
        given = sets.get(q, np.zeros((0, here.shape[1], 1)))
        sets[q] = np.concatenate([given * here, np.broadcast_to(here, (1, here.shape[1], given.shape[2]))])
        levels[levels[:, q] == UNKNOWN, q] = -2 - len(given)
    return Evidence(levels, sets, evidence.below)


def log_p(tree: Tree, tables: Sequence, evidence: Evidence, width: int) -> np.ndarray:
    """Log probability of the known cells, (n, width)."""
    if not tree.second:
        return Messages(tree, tables, evidence, width).total
    total = np.full((len(evidence), width), -np.inf)
    for case in cases(tree, tables, evidence):
        total[case.rows] = np.logaddexp(total[case.rows], Messages(tree, case.tables, case.evidence, width).total)
    return total


def belief_in(tree: Tree, tables: Sequence, evidence: Evidence, width: int, column: int) -> Belief | CrossedBelief:
    """Return the probabilities of a column's levels given all other known cells."""
    return (CrossedBelief if tree.second else Belief)(tree, tables, evidence, width, column)


class CrossedBelief:
    """See `tree.Belief`: an average over the cases.

    A second parent's own levels are those of a case's context: `Belief` has them among all its levels, so its weights
    are divided by the probability of that context.
    """

    def __init__(self, tree: Tree, tables: Sequence, evidence: Evidence, width: int, column: int):
        self._n, self._width, self._n_levels = len(evidence), width, tables[column].n_levels
        evidence = evidence.without(column)
        total, found = np.full((self._n, width), -np.inf), []
        for case in cases(tree, tables, evidence):
            inside = Messages(tree, case.tables, case.evidence, width).total
            total[case.rows] = np.logaddexp(total[case.rows], inside)
            fits = np.ones(self._n_levels)
            if column in case.contexts:
                inside = Messages(tree, case.tables, case.evidence.without(column), width).total
                fits = (tree.contexts[column] == case.contexts[column]).astype(np.float64)
            found.append((case.rows, fits, inside, Belief(tree, case.tables, case.evidence, width, column)))
        possible = np.isfinite(total)
        total = np.where(possible, total, 0.0)
        self._cases = [
            (rows, fits, np.where(possible[rows], np.exp(inside - total[rows]), 0.0), of)
            for rows, fits, inside, of in found
        ]

    def levels(self, weight: np.ndarray) -> np.ndarray:
        """Sum the levels' probabilities over the clusters, weighted by (n, width): (n, V)."""
        out = np.zeros((self._n, self._n_levels))
        for rows, fits, share, of in self._cases:
            out[rows] += of.levels(weight[rows] * share) * fits
        return out

    def level(self, v: int, weight: np.ndarray) -> np.ndarray:
        """Weighted probability of one level in every cluster, (n, width)."""
        out = np.zeros((self._n, self._width))
        for rows, fits, share, of in self._cases:
            if fits[v]:
                out[rows] += of.level(v, weight[rows] * share)
        return out


def drawn(
    tree: Tree, tables: Sequence, evidence: Evidence, requested: Collection[int],
    uniforms: Callable[[int], np.ndarray], of_case: Callable[[], np.ndarray],
) -> dict[int, np.ndarray]:  # fmt: skip
    """Return levels (n,) of the requested columns, as `tree.drawn_in`. of_case(): uniforms that draw the case, (n,)."""
    if not tree.second:
        return drawn_in(tree, tables, evidence, requested, uniforms)
    every = list(cases(tree, tables, evidence))
    each = np.full((len(evidence), len(every), 1), -np.inf)
    for i, case in enumerate(every):
        each[case.rows, i] = Messages(tree, case.tables, case.evidence, 1).total
    cumulative = scaled(each)[0][:, :, 0].cumsum(axis=1)
    chosen = (cumulative[:, :-1] <= (of_case() * cumulative[:, -1])[:, None]).sum(axis=1)
    result = {c: np.empty(len(evidence), np.intp) for c in requested}
    for i, case in enumerate(every):
        here = np.flatnonzero(chosen[case.rows] == i)
        rows = case.rows[here]
        if len(rows):
            part = [table.take(here) for table in case.tables]
            of = drawn_in(tree, part, case.evidence.take(here), requested, lambda c, rows=rows: uniforms(c)[rows])
            for c in requested:
                result[c][rows] = of[c]
    return result
