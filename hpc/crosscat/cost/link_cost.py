"""Cost of a draw of links: seconds and bytes, from rows, columns, contexts and clusters (`links.scores`, `forest`).

The coefficients are of one core of an AMD EPYC, avx512, 2026-11-28: `benchmarks/wide_links.py` has their measurement.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.data.bins import MOST_CONTEXTS
from mpibayes.hpc.links import moves
from mpibayes.hpc.links.scores import AT_ONCE, MOST_SHARED
from mpibayes.io.rows import Column
from mpibayes.text import counted

CELL_S, COUNT_S, TERM_S = 1.1e-9, 4e-9, 5e-9  # a cell in a pass over the rows; a count of a pass; one of an evidence
STEP_S, COLUMN_S = 2.7e-9, 1.5e-4  # of the draw of a forest: a column cubed, a column


def draw_seconds(columns: Sequence[Column], n_rows: int, n_ranks: int, n_clusters: int) -> float:
    """Forecast the seconds of a draw of links on each of `n_ranks` ranks; n_rows: of all of them."""
    contexts = np.array([min(len(c.levels), MOST_CONTEXTS) for c in columns if c.levels])
    levels, d = sum(len(c.levels) + 1 for c in columns if c.levels), len(columns)
    shared = max(2, min(MOST_SHARED, n_rows // (8 * n_clusters)))
    passes = float(np.minimum(1.0, np.log(np.maximum(contexts, 2)) / np.log(shared)).sum())
    rows = passes * len(contexts) / 2 * n_rows / n_ranks * CELL_S  # a pair is counted once
    counts = passes * levels * n_clusters * shared * COUNT_S + levels * n_clusters * contexts.sum() * TERM_S
    return float(rows + counts + STEP_S * d**3 + COLUMN_S * d)


def draw_bytes(rows: int, code_bytes: int, n_columns: int, levels: int, n_clusters: int) -> int:
    """Forecast the bytes at the peak of a draw, or of a scan of columns over views: a copy of the codes, counts by
    cluster and context (4 bytes, and 20 where parents that share a pass are told apart), and eight matrices of
    columns by columns. levels: with the most contexts."""
    at_once = min(AT_ONCE, levels * max(n_clusters, min(MOST_SHARED * n_clusters, rows // 8)))
    return rows * code_bytes + 24 * at_once + 64 * n_columns**2


def in_words(
    columns: Sequence[Column], n_rows: int, n_ranks: int, n_clusters: int, every: int | None, cycles: int
) -> str:
    """Describe the time of the draws of links in a run. every: `sampler.link_moves`."""
    n = sum(moves.due(every, cycle) for cycle in range(1, cycles + 1))
    draw_s = draw_seconds(columns, n_rows, n_ranks, n_clusters)
    return f"{counted(n, 'draw')} of links more, of about {draw_s:.2g} s each (sampler.link_moves)"
