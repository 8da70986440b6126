"""Counts of levels in groups of rows, summed over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io.rows import CODES, Rows
from mpibayes.kernels import mixture as kernels


def count_levels(
    comm: Communicator, kind: Categorical, grouped: Iterable[tuple[Rows, np.ndarray]], k: int, columns: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Count level rows by group, (L, k) int32, for the given columns of `kind`; also return the first level row of
    each, (C + 1,) int64. Collective.

    columns: indices, ascending. grouped: rows of each of this rank's shards and their groups, 0..k-1, negative for rows
    to skip.
    """
    offsets = np.concatenate([[0], np.cumsum(np.diff(kind.offsets)[columns])]).astype(np.int64)
    levels = np.zeros((int(offsets[-1]), k), np.int32)
    stored = [(kind.columns[c].block, kind.columns[c].index) for c in columns]
    at = {block: [index for part, index in stored if part == block] for block in CODES}
    for rows, groups in grouped:
        codes = (np.ascontiguousarray(getattr(rows, block)[:, part]) for block, part in at.items())
        none = np.empty((len(rows), 0))
        levels += kernels.accumulate(Rows(*codes, none, none), groups, k, offsets)[1]
    comm.sum_everywhere(levels)
    return levels, offsets
