"""Counts of levels in groups of rows, summed over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io.rows import CODES, Rows
from mpibayes.kernels.mixture import counts


def by_column(rows: Rows) -> dict[str, np.ndarray]:
    """Return the codes of rows, (C, n) by array, each column's side by side: a table is then counted many times."""
    return {block: np.ascontiguousarray(getattr(rows, block).T) for block in CODES}


def count_levels(
    comm: Communicator, kind: Categorical, grouped: Iterable[tuple[Mapping[str, np.ndarray], np.ndarray]], k: int,
    columns: Sequence[int],
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Count level rows by group, (L, k) int32, for the given columns of `kind`; also return the first level row of
    each, (C + 1,) int64. Collective.

    columns: indices, ascending. grouped: the rows of each of this rank's shards as in `by_column` and their groups,
    0..k-1, negative for rows to skip.
    """
    offsets = np.concatenate([[0], np.cumsum(np.diff(kind.offsets)[columns])]).astype(np.int64)
    levels = np.zeros((int(offsets[-1]), k), np.int32)
    stored = [(kind.columns[c].block, kind.columns[c].index) for c in columns]
    chosen = {block: [i for i, (part, _) in enumerate(stored) if part == block] for block in CODES}
    for codes, groups in grouped:
        for block, of in chosen.items():
            at = np.array([stored[i][1] for i in of], np.int64)
            counts.add_codes(codes[block], at, groups, offsets[of], levels)
    comm.sum_everywhere(levels)
    return levels, offsets
