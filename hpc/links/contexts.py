"""Contexts of a parent column: its levels, or if there are many, the most frequent ones and a rest; for a number, its
atoms and bins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mpibayes.hpc.data.bins import MOST_CONTEXTS
from mpibayes.hpc.links.bins import n_contexts
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io.rows import Column, Rows


def contexts_of(columns: Sequence[Column], rows: Iterable[Rows], comm: Communicator) -> dict[str, np.ndarray]:
    """Context of each level, int64 (V,), of every column with levels, by name; for a number that may be a parent, of
    its atoms and bins (`links.bins`). Collective.

    rows: this rank's training rows, with these columns. Ties in frequency go to the earlier level. Counts are integers,
    so contexts are the same on any number of ranks.
    """
    parents = [c for c in columns if c.levels]
    wide = [c for c in parents if len(c.levels) > MOST_CONTEXTS]
    cells = np.zeros(sum(len(c.levels) for c in wide), np.int64)
    counts = np.split(cells, np.cumsum([len(c.levels) for c in wide])[:-1]) if wide else []
    for batch in rows if wide else ():
        for column, n in zip(wide, counts):
            n += np.bincount(getattr(batch, column.block)[:, column.index], minlength=len(n) + 1)[: len(n)]
    if wide:
        comm.sum_everywhere(cells)
    result = {c.name: np.arange(len(c.levels)) for c in parents}
    result |= {c.name: np.arange(n_contexts(c)) for c in columns if c.cuts}
    for column, n in zip(wide, counts):
        frequent = np.sort(np.argsort(-n, kind="stable")[: MOST_CONTEXTS - 1])
        of_level = np.full(len(n), MOST_CONTEXTS - 1)
        of_level[frequent] = np.arange(len(frequent))
        result[column.name] = of_level
    return result
