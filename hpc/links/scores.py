"""Evidence of every link given the labels: a column's cells under each possible parent, with the level probabilities of
all clusters and contexts integrated out (docs/links.md).

For a parent, rows are counted by cluster and context as if these were clusters: one pass over the rows per parent, with
counts summed over ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.links.base import Integrated
from mpibayes.hpc.links.bins import n_contexts
from mpibayes.hpc.links.coding import MOST_CODES, Coding
from mpibayes.hpc.links.counts import by_column, count_levels
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io.rows import Column, Rows
from mpibayes.kernels.mixture import updates

AT_ONCE = 1 << 22  # counts summed in one reduction
MOST_SHARED = 32  # contexts of parents that share a pass over the rows, together


def link_scores(
    comm: Communicator, coding: Coding, kind: Categorical, multiplier: np.ndarray,
    labelled: Sequence[tuple[Rows, np.ndarray]], n_labels: int, bases: Integrated | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Log evidence of each column under each parent, (D, D + E), -inf where no link is allowed, and without one, (D,).
    Rows are the D columns of `kind`, in its order; parents are these and then `coding.numbers`. Collective, the same on
    every rank.

    kind, multiplier (D,): the columns with levels, without links, and their hyperparameters. labelled: this rank's rows
    without links, and their labels, negative for idle rows; in other rows no cell of a possible parent is missing.
    bases: given if bases are learned.
    """
    d, labels = len(kind), [z for _, z in labelled]
    evidence = Evidence(comm, coding.contexts, kind, multiplier, [rows for rows, _ in labelled], bases)
    score = np.full((d, d + len(coding.numbers)), -np.inf)
    if bases is None:
        evidence.under_all(labels, n_labels, score)
    for j in range(d) if bases is not None else ():
        children = evidence.children(j)
        if len(children):
            score[children, j] = evidence.under(j, labels, n_labels, children)
    for j, number in enumerate(coding.numbers, d):
        children = evidence.children_of_number(coding.plain[number])
        if len(children):
            score[children, j] = evidence.in_contexts(
                *_of_number(coding, number, labelled), labels, n_labels, children, j
            )
    return score, evidence.alone(labels, n_labels, np.arange(d))


def link_tables(
    comm: Communicator, coding: Coding, kind: Categorical, multiplier: np.ndarray,
    labelled: Sequence[tuple[Rows, np.ndarray]], n_labels: int, bases: Integrated, links: Mapping[int, int],
) -> dict[int, np.ndarray]:  # fmt: skip
    """Tables behind the scores of `links`, child to parent. Collective; other arguments as in `link_scores`."""
    d, labels, result = len(kind), [z for _, z in labelled], {}
    evidence = Evidence(comm, coding.contexts, kind, multiplier, [rows for rows, _ in labelled], bases)
    for child, j in links.items():
        of = evidence.contexts(j) if j < d else _of_number(coding, coding.numbers[j - d], labelled)
        ((_, counts),) = evidence.by_context(*of, labels, n_labels, np.array([child]))
        result[child] = bases.tables(child, j, counts)
    return result


def _of_number(coding: Coding, number: int, labelled) -> tuple[list[np.ndarray], int]:
    """Return the contexts of a number (by index) in the rows of each shard, and how many there are."""
    contexts = [coding.context(number, rows) for rows, _ in labelled]
    return contexts, len(coding.contexts[coding.plain[number].name])


class Evidence:
    """Log marginal likelihoods of columns with levels in clusters, with and without a parent. rows: each of this rank's
    shards, without links. contexts: the context of each level, by name of the possible parent. Other arguments as in
    `link_scores`."""

    def __init__(
        self, comm: Communicator, contexts: Mapping[str, np.ndarray], kind: Categorical, multiplier: np.ndarray,
        rows: Sequence[Rows], bases: Integrated | None = None,
    ):  # fmt: skip
        self.bases = bases
        self.comm, self.kind, self.rows, self._contexts = comm, kind, rows, contexts
        self._width, self._beta = kind.n_levels + 1, np.split(kind.pseudo_counts(multiplier), kind.offsets[1:-1])

    @cached_property
    def _codes(self) -> list[dict[str, np.ndarray]]:
        return [by_column(rows) for rows in self.rows]

    def children(self, j: int) -> np.ndarray:
        """Columns that may depend on column j."""
        return np.flatnonzero(self._allowed[j])

    @cached_property
    def _allowed(self) -> np.ndarray:
        """Mask of the links that are allowed, (D, D): parent, child."""
        of_level = [self._contexts.get(column.name) for column in self.kind.columns]
        n = np.array([MOST_CODES if of is None else int(of.max()) + 1 for of in of_level], np.int64)
        return (n[:, None] * self._width <= MOST_CODES) & ~np.eye(len(n), dtype=bool)

    def under(self, j: int, labels: Sequence[np.ndarray], k: int, children: np.ndarray) -> np.ndarray:
        """Log evidence of `children` with parent j, (n,). labels: for the rows of each shard, 0..k-1 or negative.
        Collective."""
        return self.in_contexts(*self.contexts(j), labels, k, children, j)

    def under_all(self, labels: Sequence[np.ndarray], k: int, score: np.ndarray) -> None:
        """Put the log evidence of every column with each parent among these D into `score` (D, D), where a link is
        allowed. Parents of few contexts share a pass over the rows, which counts cells by all their contexts together;
        the counts of a pair are those of either direction, if each level of the parent is a context. Collective."""
        n_rows = np.array([sum(map(len, labels))], np.int64)
        self.comm.sum_everywhere(n_rows)
        most = min(MOST_SHARED, int(n_rows[0]) // (8 * k), MOST_CODES // int(self._width.max(initial=1)))
        left = np.ones(len(self.kind), bool)  # columns without the pairs of which they are the parent
        for parents, n in self._shared(most):
            each, whole = [self.contexts(j) for j in parents], np.arange(n)
            groups, own, step = _split(_crossed(each), n, labels), {}, n
            for j, (_, n_own) in zip(parents, each):
                step //= n_own
                own[j] = np.eye(n_own)[whole // step % n_own]  # (n, n_own): its context in each combination
            counted = self._allowed[parents].any(axis=0) | self._allowed[:, parents].any(axis=1)
            for subset in self._pieces(np.flatnonzero(left & counted), k * n):
                levels, offsets = count_levels(self.comm, self.kind, zip(self._codes, groups), k * n, subset)
                beta = np.concatenate([self._beta[c] for c in subset.tolist()])
                others = left[subset] & ~np.isin(subset, parents)
                for j, of in own.items():
                    part = levels
                    if len(own) > 1:
                        part = (levels.reshape(-1, n) @ of).astype(np.int32).reshape(len(levels), -1)
                    log_p = updates.log_marginals(part, beta, offsets, 0, len(subset))[0]
                    allowed = self._allowed[j, subset]
                    score[subset[allowed], j] = log_p[allowed]
                    back = others & self._allowed[subset, j]
                    if self._is_whole[j] and back.any():
                        score[j, subset[back]] = self._reversed(j, part.reshape(len(part), k, -1), offsets, subset)[
                            back
                        ]
            left[[j for j in parents if self._is_whole[j]]] = False

    def _reversed(self, j: int, counts: np.ndarray, offsets: np.ndarray, subset: np.ndarray) -> np.ndarray:
        """Log evidence of column j under each parent of `subset`, from counts by the parents' level rows, cluster and
        level of j, (L, k, V); cells of possible parents are not missing."""
        if not self._is_whole[subset].all():
            row = np.arange(len(counts))
            for c, first in zip(subset.tolist(), offsets.tolist()):
                of_level = self._contexts.get(self.kind.columns[c].name)
                if of_level is not None:
                    row[first : first + len(of_level)] = first + of_level
            merged = np.zeros_like(counts)
            np.add.at(merged, row, counts)
            counts = merged
        table = np.zeros((counts.shape[2] + 1, counts.shape[0] * counts.shape[1]), np.int32)
        table[:-1] = counts.reshape(table.shape[1], -1).T
        log_p = updates.log_marginals(table, self._beta[j], np.array([0, len(table)]), 0, 1)[1]
        return np.add.reduceat(log_p.reshape(len(counts), -1).sum(axis=1), offsets[:-1])

    @cached_property
    def _is_whole(self) -> np.ndarray:
        """Mask of the columns whose levels are each a context, or that are no parents, (D,)."""
        of_level = [self._contexts.get(column.name) for column in self.kind.columns]
        return np.array([of is None or np.array_equal(of, np.arange(len(of))) for of in of_level], bool)

    def _shared(self, most: int) -> Iterator[tuple[list[int], int]]:
        """Yield parents that share a pass, and the product of their contexts: at most `most`, or those of one parent.
        Those of few contexts come first, and those with levels that share a context last."""
        possible = np.flatnonzero(self._allowed.any(axis=1)).tolist()
        n_of = {j: int(self._contexts[self.kind.columns[j].name].max()) + 1 for j in possible}
        parents: list[int] = []
        product = 1
        for j in sorted(possible, key=lambda j: (not self._is_whole[j], n_of[j])):
            mixed = parents and self._is_whole[parents[0]] != self._is_whole[j]
            if parents and (product * n_of[j] > most or mixed):
                yield parents, product
                parents, product = [], 1
            parents, product = [*parents, j], product * n_of[j]
        if parents:
            yield parents, product

    def contexts(self, j: int) -> tuple[list[np.ndarray], int]:
        """Return the contexts of column j in the rows of each shard, and how many there are."""
        column = self.kind.columns[j]
        of_level = np.append(self._contexts[column.name], 0).astype(np.int32)  # last: a missing cell in an idle row
        return [of_level[codes[column.block][column.index]] for codes in self._codes], int(of_level.max()) + 1

    def children_of_number(self, number: Column) -> np.ndarray:
        """Columns that may depend on a number: all but the one that records its atom."""
        fits = n_contexts(number) * self._width <= MOST_CODES
        return np.flatnonzero(fits & [column.part_of != number.name for column in self.kind.columns])

    def in_contexts(
        self, contexts: Sequence[np.ndarray], n: int, labels, k: int, children: np.ndarray, parent: int
    ) -> np.ndarray:
        """Log marginal likelihood of each of `children` in the n contexts of a parent. contexts: for the rows of each
        shard. parent: its number. Collective."""
        if self.bases is None:
            return self.alone(_split(contexts, n, labels), k * n, children)
        each = self.by_context(contexts, n, labels, k, children)
        return np.array([self.bases.log_weight(c, parent, counts) for c, counts in each])

    def by_context(self, contexts, n: int, labels, k: int, children: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each of `children` and its counts by context, level and cluster, int32 (n, V + 1, k). Collective."""
        groups = _split(contexts, n, labels)
        for subset in self._pieces(children, k * n):
            levels, offsets = count_levels(self.comm, self.kind, zip(self._codes, groups), k * n, subset)
            for i, child in enumerate(subset.tolist()):
                part = levels[offsets[i] : offsets[i + 1]].reshape(-1, k, n)
                yield child, np.ascontiguousarray(part.transpose(2, 0, 1))

    def alone(self, groups: Sequence[np.ndarray], k: int, columns: np.ndarray) -> np.ndarray:
        """Log evidence of columns without a parent, (n,). groups: for the rows of each shard, 0..k-1 or negative.
        Collective."""
        parts = [self._of_some(groups, k, subset) for subset in self._pieces(columns, k)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _pieces(self, columns: np.ndarray, k: int) -> Iterator[np.ndarray]:
        """Split columns into pieces of at least one, whose counts fit in AT_ONCE."""
        total = np.cumsum(self._width[columns] * k)
        while len(columns):
            n = max(1, int(np.searchsorted(total, AT_ONCE, side="right")))
            yield columns[:n]
            columns, total = columns[n:], total[n:] - total[n - 1]

    def _of_some(self, groups: Sequence[np.ndarray], k: int, columns: np.ndarray) -> np.ndarray:
        levels, offsets = count_levels(self.comm, self.kind, zip(self._codes, groups), k, columns)
        beta = np.concatenate([self._beta[c] for c in columns.tolist()])
        return updates.log_marginals(levels, beta, offsets, 0, len(columns))[0]


def _split(contexts: Sequence[np.ndarray], n: int, labels: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Combine the cluster and context of each row into one number, negative for idle rows."""
    both = zip(labels, contexts)
    return [np.where(z >= 0, z.astype(np.int32, copy=False) * n + u, -1).astype(np.int32, copy=False) for z, u in both]


def _crossed(each: Sequence[tuple[Sequence[np.ndarray], int]]) -> list[np.ndarray]:
    """Combine the contexts of several parents into one number, the last one's fastest, for the rows of each shard."""
    result, _ = each[0]
    for contexts, n in each[1:]:
        result = [a * np.int32(n) + b for a, b in zip(result, contexts)]
    return list(result)
