"""Tables of either kind by their path."""

from __future__ import annotations

import os
from pathlib import Path

from mpibayes.io.sparse import FORMAT, SparseTable
from mpibayes.io.table import Table, open_sealed

AnyTable = Table | SparseTable


def is_sparse(path: str | os.PathLike) -> bool:
    """Whether the table at `path` is a sparse one. Raises DataError where there is no table."""
    with open_sealed(Path(path)) as file:
        return file.attrs.get("format") == FORMAT


def open_table(path: str | os.PathLike, sparse: bool) -> AnyTable:
    """The table at `path`, of the kind that is wanted; DataError where it is of the other, or none."""
    return SparseTable.open(path) if sparse else Table.open(path)
