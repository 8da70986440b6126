"""Completed copies of a table as DataFrames."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpibayes.hpc.python.rows import Handed, folder_for_files, nowhere

if TYPE_CHECKING:
    import pyarrow as pa


def copies_of(
    directories: list[Path], handed: Handed | None, copies: int, long: bool, seed: int, unseen: str,
    burn_in: int | None, table: Path | None, calibrate: bool = False,
) -> tuple[list[pa.Table], list[str]]:  # fmt: skip
    """Return the copies, or one table of all, and notes. handed: rows that the run's table lacks."""
    from mpibayes.hpc.results.complete import complete

    given = nullcontext(None) if handed is None else handed.file()
    with folder_for_files() as folder, given as source:
        done = complete(
            directories, source, folder / "copies", copies=copies, long=long, otherwise="parquet", seed=seed,
            unseen=unseen, burn_in=burn_in, table=table, calibrate=calibrate, console=nowhere(),
        )  # fmt: skip
        assert done is not None  # this process is root
        notes = [note if handed is None else note.replace(str(source), handed.name) for note in done.notes]
        return [read_table(path, done.dialect) for path in done.paths], notes


def read_table(path: Path, dialect: Any) -> pa.Table:
    """Read a written file: Parquet, or CSV in this dialect."""
    import pyarrow.csv
    import pyarrow.parquet

    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).replace_schema_metadata(None)
    return pyarrow.csv.read_csv(
        path,
        pyarrow.csv.ReadOptions(encoding=dialect.encoding, column_names=dialect.names or None),
        pyarrow.csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
        pyarrow.csv.ConvertOptions(null_values=[""], strings_can_be_null=True),
    )
