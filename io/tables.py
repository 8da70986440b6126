"""Open a typed or sparse table by its path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
    """Open the table at `path`, of the requested kind. Raises DataError if it is of the other kind, or no table."""
    return SparseTable.open(path) if sparse else Table.open(path)


def sources_near(table: Path, source: Mapping[str, Any]) -> list[Path] | None:
    """Files with the names of a table's sources: beside it, in the parent folder, in the working directory, or where
    they were, seen from the table, when it was imported; else None."""
    beside = table.absolute().parent
    for folder in (beside, beside.parent, Path.cwd(), beside / (source.get("folder") or ".")):
        paths = [folder / name for name in source.get("files", ())]
        if paths and all(path.is_file() for path in paths):
            return paths
    return None


def folder_from(table: Path, sources: Sequence[Path]) -> str:
    """Folder of a table's sources, relative to that of the table; "" if they have several."""
    (folder, *others) = {source.absolute().parent for source in sources}
    return "" if others else os.path.relpath(folder, table.absolute().parent)


def imported_from(path: Path) -> list[Path]:
    """Source files of the table at `path`, if they are near; [] if it is no table."""
    with suppress(OSError, MpibayesError), open_sealed(path) as file:
        return sources_near(path, source_of(file)) or []
    return []
