"""Rows that represent several: a column of the source gives the number of equal rows, as in R's as.data.frame(table),
SQL's GROUP BY and pandas' value_counts. Each row is read as often as it counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from mpibayes.errors import DataError
from mpibayes.io.cells import Batch, Cells

MOST_ROWS = 2**31 - 1  # of a chain
AT_ONCE = 1 << 18  # rows in a batch, at most


def repeated(batch: Batch, name: str, at: int, total: int) -> Iterator[Batch]:
    """Yield the rows of a batch, each as often as its cell in the column `name`, at position `at`, says; a row with
    count 0 is left out. total: rows in earlier batches.

    Raises DataError if a count is not a non-negative integer, or if there are more rows than a chain can have.
    """
    cells = batch.columns[at]
    counts = np.array([_number(text) for text in cells.texts.to_pylist()])
    wrong = ~((counts >= 0) & (counts == np.floor(counts)) & (counts <= MOST_ROWS))
    wrong[np.setdiff1d(np.arange(len(counts)), cells.codes)] = False
    if wrong.any():
        first = int(np.flatnonzero(wrong[cells.codes])[0])
        text = cells.texts[int(cells.codes[first])].as_py()
        raise DataError(
            f"{batch.path} row {batch.first_row + first:,}, column '{name}': found {text[:60]!r}, expected the number "
            "of equal rows that the row stands for: 0, 1, 2, ..."
        )
    ends = np.cumsum(np.where(wrong, 0.0, counts).astype(np.int64)[cells.codes])
    if total + int(ends[-1]) > MOST_ROWS:
        raise DataError(f"{batch.path}: column '{name}' counts more than {MOST_ROWS:,} rows; a table can have no more")
    for start in range(0, int(ends[-1]), AT_ONCE):
        stop = min(start + AT_ONCE, int(ends[-1]))
        rows = np.searchsorted(ends, np.arange(start, stop), side="right")
        columns = {i: _taken(of, rows) for i, of in batch.columns.items()}
        yield Batch(batch.path, batch.first_row, stop - start, columns, rows)


def _number(text: str) -> float:
    try:
        return np.nan if "_" in text else float(text)
    except ValueError:
        return np.nan


def _taken(cells: Cells, rows: np.ndarray) -> Cells:
    return Cells(cells.texts, cells.codes[rows], cells.original.take(pa.array(rows)))
