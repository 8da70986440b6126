"""The index of the pandas DataFrame that a run was made from, kept beside the run directory: DIR.index.parquet.

The table has no index, and its cells could not restore it when the run is opened again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mpibayes.hpc.python.frames import kind_of, write_parquet
from mpibayes.io.files import reading


def keep_index(data: Any, folder: Path) -> str:
    """Write the index of a DataFrame beside the run directory `folder`, or remove an existing one if `data` has none.
    Returns a note for the user if it cannot be kept, otherwise "". Raises DataError."""
    import pyarrow as pa

    place = _place(folder)
    if kind_of(data) != "pandas" or not hasattr(data, "columns"):
        place.unlink(missing_ok=True)
        return ""
    try:
        table = pa.Table.from_pandas(data.iloc[:, :0], preserve_index=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        place.unlink(missing_ok=True)
        return f"the DataFrame's index cannot be kept ({error}); frames of the run are numbered from 0"
    write_parquet(table, place)
    return ""


def kept_index(directory: Path, table: Any) -> Any:
    """Index of the DataFrame that a run's table was imported from; None if there is none."""
    import pyarrow as pa
    import pyarrow.parquet

    place = _place(directory)
    if table.source.get("files") != [f"{directory.name}.parquet"] or not place.exists():
        return None
    try:
        with reading(place):
            index = pyarrow.parquet.read_table(place).to_pandas().index
    except pa.ArrowException:
        return None
    return index if len(index) == table.n_rows else None


def _place(folder: Path) -> Path:
    folder = folder.absolute()
    return folder.with_name(f"{folder.name}.index.parquet")
