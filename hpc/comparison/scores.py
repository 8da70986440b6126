"""The log predictive density of held-out rows under a run: the log of the mean over draws, row by row.

As in the trace and in `mpibayes predict`, it is log mean_d p_d(x), in nats. For a regression's response y, given the
rest of the row x, a model of all columns yields log mean_d p_d(x, y) - log mean_d p_d(x).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.comparison.common import Columns, HeldOutRows, NotComparable
from mpibayes.hpc.data.latent import OF_NEW_ROWS
from mpibayes.io.recode import stream_like
from mpibayes.io.rows import Column, Rows

DRAWS = 100  # most kept draws to average over
BATCH = 4096  # rows in memory together


def log_scores(run: Any, name: str, rows: HeldOutRows, columns: Columns, log_width: Mapping[str, float]) -> np.ndarray:
    """Log score of each row, (n,) nats; NaN for a row that a regression leaves out. Raises NotComparable if there is no
    draw, DataError if a file of rows cannot be read."""
    draws = list(run.draws(DRAWS))
    if not draws:
        raise NotComparable(f"{name}: no draw was kept after burn-in", "Continue the run, or give a smaller --burn-in.")
    given, scores = _given(run, columns), [np.zeros(0)]
    for batch in _batches(run, rows):
        seen = batch if run.response else shown(batch, run.data.columns, {*columns.names, *given})
        score = log_mean(draws, seen) + _widths(seen, run.data.columns, log_width)
        if given:
            score -= log_mean(draws, shown(batch, run.data.columns, given))
        if columns.response:
            score[_missing(batch, run.data.columns, columns.response)] = np.nan
        scores.append(score)
    return np.concatenate(scores)


def _given(run: Any, columns: Columns) -> set[str]:
    """Columns from which a model of all columns predicts a response; empty for a regression."""
    if not columns.response or run.response:
        return set()
    return set(run.modelled) - {columns.response}


def log_mean(draws: Sequence[Any], rows: Rows) -> np.ndarray:
    """Log of the mean density of rows over draws, (n,)."""
    total = np.full(len(rows), -np.inf)
    for draw in draws:
        total = np.logaddexp(total, draw.log_density(rows))
    return total - np.log(len(draws))


def _batches(run: Any, rows: HeldOutRows) -> Iterator[Rows]:
    """Yield the rows as the run models them."""
    if rows.numbers is not None:
        for start in range(0, len(rows.numbers), BATCH):
            numbers = rows.numbers[start : start + BATCH]
            yield run.data.as_modelled(run.data.recorded_at(numbers), numbers)
        return
    table, first = run.table, 0
    used = table.having(run.data.stored)
    for batch in stream_like(used, rows.path, unseen=run.chains[0].config.data.unseen, batch_rows=BATCH):
        yield run.data.as_modelled(batch, first + np.arange(len(batch)), OF_NEW_ROWS)
        first += len(batch)


def shown(rows: Rows, columns: Sequence[Column], names: Collection[str]) -> Rows:
    """Copy with all cells missing except those of the table's columns `names`."""
    hidden = [c for c in columns if (c.part_of or c.name) not in names]
    if not hidden:
        return rows
    seen = rows.take(slice(None))
    for c in hidden:
        getattr(seen, c.block)[:, c.index] = c.blank
    return seen


def _missing(rows: Rows, columns: Sequence[Column], name: str) -> np.ndarray:
    """Rows in which a column of the table is missing, bool (n,): each column derived from it is missing."""
    lacks = np.ones(len(rows), bool)
    for c in columns:
        if name in (c.part_of, c.name):
            lacks &= c.is_missing(getattr(rows, c.block)[:, c.index])
    return lacks


def _widths(rows: Rows, columns: Sequence[Column], log_width: Mapping[str, float]) -> np.ndarray:
    """Sum of log_width over the observed cells of each row, (n,): it turns densities into probabilities."""
    total = np.zeros(len(rows))
    for c in columns:
        if c.name in log_width:
            total += np.where(np.isnan(getattr(rows, c.block)[:, c.index]), 0.0, log_width[c.name])
    return total
