"""Sparse tables from arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpibayes.errors import DataError
from mpibayes.io.sparse import NAMES, Entries, SparseRows, SparseTable, write_entries


def write_sparse(
    path: str | os.PathLike,
    rows: SparseRows,
    n_columns: int,
    *,
    row_ids: Sequence[str] | None = None,
    column_ids: Sequence[str] | None = None,
    names: Sequence[str] = NAMES,
    overwrite: bool = False,
    source: Mapping[str, Any] | None = None,
) -> SparseTable:
    """Write a sparse table that is in memory: columns ascending and unique within a row."""
    inside = np.ones(len(rows.columns), bool)
    inside[rows.starts[:-1][rows.lengths() > 0]] = False
    if (np.diff(rows.columns, prepend=-1)[inside] <= 0).any() or (
        len(rows.columns) and rows.columns.max() >= n_columns
    ):
        raise DataError(f"{path}: columns of a row have to ascend, and to be below {n_columns:,}")
    rows = SparseRows(
        rows.starts, rows.columns.astype(np.int32), rows.values.astype(np.float32),
        None if rows.times is None else rows.times.astype(np.float64),
    )  # fmt: skip
    entries = Entries(
        len(rows), n_columns, len(rows.columns), rows.times is not None, lambda: iter([rows]), row_ids, column_ids
    )
    return write_entries(path, entries, {"names": list(names), **(source or {})}, overwrite)
