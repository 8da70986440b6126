"""Rows of one synthetic table, some at a time: their cells, then missing cells and merged levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mpibayes.hpc.law import Synthesis
from mpibayes.hpc.query.new_rows import BATCH
from mpibayes.hpc.synthetic.gaps import Gaps
from mpibayes.hpc.synthetic.rare import Merging
from mpibayes.io.rows import Column

Cells = dict[str, np.ndarray]  # by column, (n,): level codes (the blank: missing; after it: merged) or numbers


def blocks(
    synthesis: Synthesis, columns: Sequence[Column], n: int, gaps: Gaps | None, merging: Merging
) -> Iterator[Cells]:
    """Yield the cells of rows 0 ... n - 1, in order."""
    for first in range(0, n, BATCH):
        ids = np.arange(first, min(first + BATCH, n))
        parts = synthesis.parts(ids)
        cells = synthesis.cells(ids, parts)
        blank = gaps.mask(ids, parts, cells) if gaps is not None else {}
        done = {}
        for c in columns:
            x = merging.coded(c.name, cells[c.name]) if c.levels else cells[c.name]
            done[c.name] = np.where(blank[c.name], c.blank, x) if c.name in blank else x
        yield done
