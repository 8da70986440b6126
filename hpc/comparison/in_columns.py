"""Columns in which new rows surprise the earlier run: the surprise of a cell given the rest of its row, compared with
that of the rows which the run held out.

A row may be odd in a single column, and a column may move without surprise if it follows another one. So cells are
judged given the rest of their row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtr

from mpibayes.hpc.comparison.moved import CHANCE
from mpibayes.hpc.comparison.paired import mean_of
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.surprisal import Surprise
from mpibayes.io.rows import Rows

ROWS = 500  # rows of each sample
FEWEST = 20  # least cells of each sample, for a standard error


@dataclass(frozen=True)
class InColumn:
    """Mean surprise of a column's cells, in nats, in the old rows and in the new ones, the standard error of the
    difference, and its p-value."""

    name: str
    before: float
    now: float
    error: float
    p_value: float

    @property
    def more(self) -> float:
        return self.now - self.before


def surprising_columns(
    before: Any, draws: int, old: Rows, new: Rows, new_levels: Mapping[str, np.ndarray]
) -> list[InColumn]:
    """Columns in which one sample of unseen rows surprises a run more, or less, than another, beyond chance, most
    surprising first; none for a model without this query.

    before: the run, opened; old, new: rows as it records them; new_levels: cells of the new rows with levels that it
    does not know. As none of N rows had such a level, its surprise is log(N + 1).
    """
    if before.no_questions:
        return []
    asking = Asking.of_run(before, draws)
    if "surprisal" in asking.asked.cannot:
        return []
    names = [column.name for column in asking.columns]
    a, b = (_cells(asking, names, rows) for rows in (old, new))
    for i, name in enumerate(names):
        if name in new_levels:
            b[new_levels[name], i] = np.log(asking.asked.n_rows + 1.0)
    result = [_column(name, *(x[~np.isnan(x)] for x in pair)) for name, *pair in zip(names, a.T, b.T)]
    surprising = [c for c in result if c is not None and c.p_value < CHANCE / len(names)]
    return sorted(surprising, key=lambda c: -c.more)


def _cells(asking: Asking, names: Sequence[str], rows: Rows) -> np.ndarray:
    """Surprise of each cell given the rest of its row, (n, C); NaN if it is missing."""
    known = asking.known(rows, names)
    asking.draws(known.of)
    return Surprise(asking, known, np.arange(1, known.n_rows + 1), None).whole()[1]


def _column(name: str, old: np.ndarray, new: np.ndarray) -> InColumn | None:
    """Compare a column's cells; None if they are too few for a standard error."""
    n = min(len(old), len(new))
    if n < FEWEST:
        return None
    (a, error), (b, other) = mean_of(old), mean_of(new)
    both = float(np.hypot(error, other))
    return InColumn(name, a, b, both, float(2.0 * stdtr(n - 1, -abs(b - a) / both)) if both else 1.0)
