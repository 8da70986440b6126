"""Files that `fit` and `submit` make beside the run directory: the rows of a DataFrame, or a table with given kinds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.python import child, frames
from mpibayes.hpc.python.display import Display
from mpibayes.hpc.python.index import keep_index
from mpibayes.hpc.python.rows import in_words_of_python
from mpibayes.hpc.run.from_file import is_data, stem

if TYPE_CHECKING:
    from mpibayes.io.table import Table


def placed(
    data: Any,
    directory: str | os.PathLike[str] | None,
    fresh: bool,
    display: Display,
    *,
    kinds: Mapping[str, str] | None = None,
    schema: str | os.PathLike[str] | None = None,
    missing: Sequence[str] = (),
    weight: str | None = None,
) -> tuple[Path, Path]:
    """Return the file that the program is given, and the run directory.

    A DataFrame is written beside the run directory; with kinds, schema, missing or weight a table is made there. Raises
    ConfigError and DataError.
    """
    source, folder = _as_file(data, directory, fresh, display)
    if kinds or schema is not None or missing or weight is not None:
        if source.suffix == ".toml":
            names = "kinds, schema, missing and weight"
            raise ConfigError(f"{source}: {names} are for data that is imported, not for a table")
        options: dict[str, Any] = {"kinds": kinds, "schema": schema, "missing": missing, "weight": weight}
        source = _imported(source, folder, fresh, display, **options)
    return source, folder


def _as_file(data: Any, directory: str | os.PathLike[str] | None, fresh: bool, display: Display) -> tuple[Path, Path]:
    folder = None if directory is None else Path(directory).expanduser()
    if frames.is_path(data):
        path = Path(data).expanduser()
        if folder is None:
            folder = path.parent / "runs" / (stem(path) if is_data(path) else path.stem)
        return path, folder
    table = frames.to_arrow(data)
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="mpibayes-")) / "run"
        display.say(f"the run is in {folder}; name a directory to find it again")
    if folder.name in ("", ".."):
        raise ConfigError(f"directory = {str(folder)!r}: needs a name, for its table lies beside it and has it too")
    _make(folder.parent)
    place, new = (folder.with_name(f"{folder.name}{end}.parquet") for end in ("", ".new"))
    frames.write_parquet(table, new)
    _put(new, place, _same_rows, folder, fresh, "of another DataFrame")
    if note := keep_index(data, folder):
        display.say(note)
    return place, folder


def _put(new: Path, place: Path, same: Callable[[Path, Path], bool], folder: Path, fresh: bool, what: str) -> None:
    """Move a new table to its place beside the run directory, unless it is there already; remove the new one otherwise.

    Raises ConfigError if a run was started with a different one.
    """
    try:
        if place.exists() and same(new, place):
            return
        if place.exists() and (folder / "config.toml").exists() and not fresh:
            raise ConfigError(f"{folder}: holds a run {what}, which was left as it is; choose another directory")
        os.replace(new, place)
    finally:
        new.unlink(missing_ok=True)


def _make(folder: Path) -> None:
    from mpibayes.io.files import make_directory, writing

    with writing(folder):
        make_directory(folder)


def _same_rows(a: Path, b: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        one, other = (pyarrow.parquet.read_table(path) for path in (a, b))
        return one.column_names == other.column_names and all(
            frames.decoded(x).equals(frames.decoded(y)) for x, y in zip(one.columns, other.columns, strict=True)
        )
    except (OSError, pa.ArrowException):
        return False


def _same_table(new: Path, place: Path) -> bool:
    """True if two tables hold the same cells. If they differ in which columns are ordered, or in the weights of rows,
    on which no run depends, the new one replaces the existing one."""
    from mpibayes.io.table import Table

    try:
        one, other = Table.open(new), Table.open(place)
    except DataError:
        return False
    same = one.fingerprint == other.fingerprint
    if same and (one.columns != other.columns or not _same_weights(one, other)):
        os.replace(new, place)
    return same


def _same_weights(one: Table, other: Table) -> bool:
    if one.weight is None or other.weight is None:
        return one.weight == other.weight
    return one.weight == other.weight and bool((one.weights() == other.weights()).all())


def _imported(source: Path, folder: Path, fresh: bool, display: Display, **options: Any) -> Path:
    """Typed table beside the run directory, imported with these options; an equal existing table is kept."""
    from mpibayes.io import ingest
    from mpibayes.io.summary import summary_lines

    place, new = (folder.with_name(f"{folder.name}{end}.h5") for end in ("", ".new"))
    _make(folder.parent)
    with in_words_of_python():
        summary = ingest.import_table(source, new, overwrite=True, **options)
    for line in summary_lines(summary):
        if line.startswith(child.ADVICE):
            display.say(child.in_python(line))
    _put(new, place, _same_table, folder, fresh, "of another table, or with other columns")
    return place
