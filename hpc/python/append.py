"""`mpibayes.append_rows`: rows of a DataFrame, or of a file, that came later than those of a table."""

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
    """Add the rows of a DataFrame, or of a file that can be imported, to a typed table (.h5) as a new part of it; print
    how many, and the levels that are new.

    The data have the columns of the table, which says what they are. missing: texts of missing cells besides the
    table's; drop: columns that the table does not have. encoding, delimiter, header: how a text file is written. again:
    append rows even if the table has the same ones as a part. dry_run: only look.
    Returns the path of the table. Raises ConfigError, DataError; the table is then what it was.
    """
    from mpibayes.io import append

    with in_words_of_python(), frames.as_file(data) as source:
        appended = append.append_rows(
            source, table, missing=list(missing), drop=list(drop), encoding=encoding, delimiter=delimiter,
            header=header, again=again, dry_run=dry_run,
        )  # fmt: skip
    print("\n".join(appended.lines()), flush=True)
    return Path(table)
