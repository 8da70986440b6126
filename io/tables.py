"""Tables of either kind by their path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpibayes.errors import MpibayesError
from mpibayes.io.opened import open_sealed
from mpibayes.io.sparse import FORMAT, SparseTable
from mpibayes.io.table import Table
from mpibayes.io.table_header import source_of

AnyTable = Table | SparseTable


def is_sparse(path: str | os.PathLike) -> bool:
    """True if the table at `path` is sparse. Raises DataError if there is no table."""
    with open_sealed(Path(path)) as file:
        return file.attrs.get("format") == FORMAT


def open_table(path: str | os.PathLike, sparse: bool) -> AnyTable:
    """The table at `path`, of the kind that is wanted; DataError where it is of the other, or none."""
    return SparseTable.open(path) if sparse else Table.open(path)


def sources_near(table: Path, source: Mapping[str, Any]) -> list[Path] | None:
    """Files of the names that a table was imported from, beside it, in the folder above, or here; None without."""
    for folder in (table.absolute().parent, table.absolute().parent.parent, Path.cwd()):
        paths = [folder / name for name in source.get("files", ())]
        if paths and all(path.is_file() for path in paths):
            return paths
    return None


def imported_from(path: Path) -> list[Path]:
    """The files that the table at `path` was made from, where they are near; [] of what is no table."""
    with suppress(OSError, MpibayesError), open_sealed(path) as file:
        return sources_near(path, source_of(file)) or []
    return []
