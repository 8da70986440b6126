"""The evidence of every link given the labels: a column's cells under each parent that it may have, with the level
probabilities of all clusters and contexts integrated out (docs/links.md).

For a parent the rows are counted by cluster and context, as if these were clusters: a pass over the rows a parent, and
the counts are added up over ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.links.coding import MOST_CODES, Coding
from mpibayes.hpc.links.counts import count_levels
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io.rows import Rows
from mpibayes.kernels.mixture import updates

AT_ONCE = 1 << 23  # counts that are added up together


def link_scores(
    comm: Communicator, coding: Coding, kind: Categorical, multiplier: np.ndarray,
    labelled: Sequence[tuple[Rows, np.ndarray]], n_labels: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Log evidence of each column under each parent, (D, D + E), -inf where there must be no link, and without one,
    (D,); in the order of `kind`'s columns, of which there are D, and `coding.numbers`. Collective, the same on every
    rank.

    coding: of the columns. kind, multiplier (D,): those with levels, without links, and their hyperparameters.
    labelled: this rank's rows without links, and their labels, negative for idle rows; no cell of another row is
    missing, of a column that may be a parent.
    """
    d, every = len(kind), np.arange(len(kind))
    evidence = _Evidence(comm, kind, multiplier, [rows for rows, _ in labelled])
    labels, place = [z for _, z in labelled], {column.name: i for i, column in enumerate(coding.plain)}
    parents = [*(place[column.name] for column in kind.columns), *coding.numbers]
    score = np.full((d, len(parents)), -np.inf)
    for j, parent in enumerate(parents):
        column = coding.plain[parent]
        if column.name not in coding.contexts:
            continue
        n = int(coding.contexts[column.name].max()) + 1
        own = [np.maximum(coding.context(parent, rows), 0) for rows in evidence.rows]  # of a missing cell, in idle rows
        split = [np.where(z >= 0, z * n + u, -1).astype(np.int32) for z, u in zip(labels, own)]
        itself = j if column.levels else next((c for c in every if kind.columns[c].part_of == column.name), -1)
        children = every[(every != itself) & (n * (kind.n_levels + 1) <= MOST_CODES)]
        score[children, j] = evidence(split, n_labels * n, children)
    return score, evidence(labels, n_labels, every)


class _Evidence:
    """Log marginal likelihoods of columns in groups of rows. rows: of each shard of this rank."""

    def __init__(self, comm: Communicator, kind: Categorical, multiplier: np.ndarray, rows: Sequence[Rows]):
        self.comm, self.kind, self.rows = comm, kind, rows
        self._width, self._beta = kind.n_levels + 1, np.split(kind.pseudo_counts(multiplier), kind.offsets[1:-1])

    def __call__(self, groups: Sequence[np.ndarray], k: int, columns: np.ndarray) -> np.ndarray:
        """Log marginal likelihood of each of `columns`, (n,). groups: of the rows of each shard, 0..k-1 or negative.
        Collective."""
        parts = [self._of_some(groups, k, some) for some in self._pieces(columns, k)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _pieces(self, columns: np.ndarray, k: int) -> Iterator[np.ndarray]:
        """Columns whose counts fit in AT_ONCE together, one at least."""
        total = np.cumsum(self._width[columns] * k)
        while len(columns):
            n = max(1, int(np.searchsorted(total, AT_ONCE, side="right")))
            yield columns[:n]
            columns, total = columns[n:], total[n:] - total[n - 1]

    def _of_some(self, groups: Sequence[np.ndarray], k: int, columns: np.ndarray) -> np.ndarray:
        levels, offsets = count_levels(self.comm, self.kind, zip(self.rows, groups), k, columns)
        beta = np.concatenate([self._beta[c] for c in columns.tolist()])
        return updates.log_marginals(levels, beta, offsets, 0, len(columns))[0]
