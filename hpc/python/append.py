"""`mpibayes.append_rows`: add later rows, of a DataFrame or a file, to a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpibayes.hpc.python import frames
from mpibayes.hpc.python.rows import in_words_of_python


def append_rows(
    data: Any,
    table: str | os.PathLike[str],
    *,
    missing: Sequence[str] = (),
    drop: Sequence[str] = (),
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    again: bool = False,
    dry_run: bool = False,
) -> Path:
    """Add the rows of a DataFrame, or of a file that can be imported, to a typed table (.h5) as a new part; print their
    number and the new levels.

    The data have the columns of the table, with its kinds. missing: texts of missing cells in addition to the table's;
    drop: columns that the table does not have. encoding, delimiter, header: of a text file. again: append rows even if
    a part of the table has them already. dry_run: only check.
    Returns the path of the table. Raises ConfigError, DataError; the table is then unchanged.
    """
    from mpibayes.io import append

    with in_words_of_python(), frames.as_file(data) as source:
        appended = append.append_rows(
            source, table, missing=list(missing), drop=list(drop), encoding=encoding, delimiter=delimiter,
            header=header, again=again, dry_run=dry_run,
        )  # fmt: skip
    print("\n".join(appended.lines()), flush=True)
    return Path(table)
