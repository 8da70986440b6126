"""The evidence of every link given the labels: a column's cells under each parent that it may have, with the level
probabilities of all clusters and contexts integrated out (docs/links.md).

For a parent the rows are counted by cluster and context, as if these were clusters: a pass over the rows a parent, and
the counts are added up over ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.links.coding import MOST_CODES, Coding
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io.rows import Rows
from mpibayes.kernels import mixture as kernels


def link_scores(
    comm: Communicator, coding: Coding, kind: Categorical, multiplier: np.ndarray,
    labelled: Sequence[tuple[Rows, np.ndarray]], n_labels: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Log evidence of each column under each parent, (D, D), -inf where there must be no link, and without one, (D,);
    in the order of `kind`'s columns. Collective, the same on every rank.

    kind, multiplier (D,): the columns without links, and their hyperparameters. labelled: this rank's rows as `coding`
    has them, and their labels, negative for idle rows.
    """
    names, d = [c.name for c in kind.columns], len(kind)
    plain = [(coding.decoded(rows).only(("codes8", "codes16")), z) for rows, z in labelled]

    def evidence(labels: Sequence[np.ndarray], k: int) -> np.ndarray:
        levels = np.zeros((int(kind.offsets[-1]), k), np.int32)
        for (rows, _), z in zip(plain, labels):
            levels += kernels.accumulate(rows, z, k, kind.offsets)[1]
        comm.sum_everywhere(levels)
        return kind.log_marginal(multiplier, (levels,), slice(0, d))

    score = np.full((d, d), -np.inf)
    for j, column in enumerate(kind.columns):
        if column.name not in coding.contexts:
            continue
        of_level = coding.contexts[column.name].astype(np.int32)
        n = int(of_level.max()) + 1
        split = [np.where(z >= 0, z * n + of_level[_cells(rows, column)], -1).astype(np.int32) for rows, z in plain]
        fits = n * (kind.n_levels + 1) <= MOST_CODES
        score[:, j] = np.where(fits, evidence(split, n_labels * n), -np.inf)
        score[names.index(column.name), j] = -np.inf
    return score, evidence([z for _, z in plain], n_labels)


def _cells(rows: Rows, column) -> np.ndarray:
    return getattr(rows, column.block)[:, column.index]
