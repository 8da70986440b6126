"""Moments, in the clusters of a view, of real columns that may depend on each other in a line: those of one block of
all columns, or, where they are too many for a block, of blocks that together contain every pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations

import numpy as np

from mpibayes.hpc.components.block import unpack
from mpibayes.hpc.components.multinormal import Multinormal
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.links.lines import Moments
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io.rows import Column, Rows

WIDEST = 64  # most columns of a block


def line_moments(
    comm: Communicator, columns: Sequence[Column], labelled: Sequence[tuple[Rows, np.ndarray]], k: int, n_shards: int
) -> Moments:
    """Return moments of real columns in clusters 0..k-1, the same on any number of ranks. Rows with a missing cell do
    not count. Collective.

    labelled: rows without links and their labels, for each of this rank's shards; negative labels are skipped.
    """
    r = len(columns)
    n, mean, products = np.zeros(k), np.zeros((r, k)), np.zeros((r, r, k))
    for part in _parts(r) if r else ():
        block = _block(tuple(columns[c] for c in part))
        cells = [(_as_block(rows, [columns[c].index for c in part]), z) for rows, z in labelled]
        of = sync.statistics(comm, block, cells, k, n_shards).of(Multinormal)
        n[:], mean[part], products[np.ix_(part, part)] = of[0][0], of[1], np.moveaxis(unpack(of[2]), 0, -1)
    return Moments(n, mean, products)


@lru_cache(maxsize=64)
def _block(columns: tuple[Column, ...]) -> Components:
    """Return the columns as one block; cached because a scan asks for the same columns under each partition."""
    chosen = [replace(column, block="vectors", index=i) for i, column in enumerate(columns)]
    return Components(chosen, joint={"lines": {"columns": [c.name for c in chosen]}})


def _parts(r: int) -> Iterator[list[int]]:
    """Yield sets of columns such that every pair is in some set."""
    if r <= WIDEST:
        yield list(range(r))
        return
    halves = [list(range(i, min(i + WIDEST // 2, r))) for i in range(0, r, WIDEST // 2)]
    yield from (a + b for a, b in combinations(halves, 2))


def _as_block(rows: Rows, at: Sequence[int]) -> Rows:
    vectors = np.ascontiguousarray(rows.reals[:, at])
    return replace(rows.only(()), vectors=vectors, widths=np.array([len(at)], np.int64))
