"""Tables of other libraries, in and out: pandas, polars, pyarrow, and anything with Arrow's PyCapsule interface.

Input becomes an Arrow table of plain types, as in Parquet; output has the type of the input. Neither pandas nor polars
is imported unless the caller has imported it already, or asks for it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mpibayes.errors import ConfigError, DataError, MpibayesError

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["pandas", "polars", "pyarrow"]
KINDS: tuple[Kind, ...] = ("pandas", "polars", "pyarrow")
EXPECTED = (
    "expected a DataFrame of pandas or polars, a pyarrow Table, anything else with __arrow_c_stream__, a dict of "
    "columns, or the path of a file"
)
NAME = "DataFrame"  # name in messages of rows that are not in a file


def is_path(data: object) -> bool:
    """True if the data are given as a file name."""
    return isinstance(data, str | os.PathLike)


def kind_of(data: object) -> Kind:
    """Library whose tables answer a question about `data`."""
    library = type(data).__module__.partition(".")[0]
    return "pandas" if library == "pandas" else "polars" if library == "polars" else "pyarrow"


def to_arrow(data: Any) -> pa.Table:
    """Convert a DataFrame to an Arrow table (n, C) of plain types; a pandas index is dropped.

    Raises ConfigError if `data` is no table, DataError for columns that Arrow cannot hold.
    """
    import pyarrow as pa

    try:
        if isinstance(data, pa.Table):
            table = data
        elif isinstance(data, Mapping):
            table = pa.table(dict(data))
        elif kind_of(data) == "pandas" and hasattr(data, "columns"):
            table = pa.Table.from_pandas(data, preserve_index=False)
        elif hasattr(data, "__arrow_c_stream__"):
            table = pa.table(data)
        elif hasattr(data, "collect"):
            raise ConfigError(f"{_name(data)}: collect() it first; {EXPECTED}")
        else:
            raise ConfigError(f"{_name(data)}: is no table; {EXPECTED}")
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{NAME}: cannot be read as a table: {'; '.join(map(str, error.args))}") from None
    if not table.num_columns:
        raise DataError(f"{NAME}: has no columns")
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise DataError(f"{NAME}: columns have to have different names; there are several '{twice[0]}'")
    return _plain(table)


def _name(data: object) -> str:
    return f"{type(data).__module__}.{type(data).__qualname__}"


def _plain(table: pa.Table) -> pa.Table:
    """Convert cells to types that every reader of Parquet knows; without metadata, so that equal tables make equal
    files. Ordered categories stay ordered."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for column in table.columns:
        if pa.types.is_dictionary(column.type) and column.type.ordered:
            columns.append(_in_order(column))
            continue
        column = decoded(column)
        column = column.cast(_simple(column.type))
        if pa.types.is_floating(column.type):  # a missing cell; Arrow distinguishes NaN from null
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        columns.append(column)
    return pa.table(columns, names=table.column_names)


def _simple(of: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_null(of) or str(of) in ("string_view", "large_string"):
        return pa.string()
    return pa.float64() if pa.types.is_decimal(of) or pa.types.is_float16(of) else of


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode a column of categories to its cells; others are unchanged."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column
    of = _simple(column.type.value_type)
    chunks = [pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(of)) for c in column.chunks]
    return pa.chunked_array([chunk.dictionary_decode() for chunk in chunks], of)


def _in_order(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Unify the ordered categories of all chunks, as text: Parquet keeps no other categories in order."""
    import pyarrow as pa

    chunks = column.unify_dictionaries().chunks
    texts = [pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(pa.string()), ordered=True) for c in chunks]
    return pa.chunked_array(texts, pa.dictionary(column.type.index_type, pa.string(), ordered=True))


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a complete Parquet file, or none. Raises DataError."""
    import pyarrow.parquet

    from mpibayes.io.files import replacing, writing

    with writing(path, DataError), replacing(path) as file:
        pyarrow.parquet.write_table(table, file)


@contextmanager
def as_file(data: Any) -> Iterator[Path]:
    """Yield the given path, or that of a temporary Parquet file of a DataFrame."""
    if is_path(data):
        yield Path(data).expanduser()
        return
    with tempfile.TemporaryDirectory(prefix="mpibayes-") as folder:
        place = Path(folder) / f"{NAME}.parquet"
        write_parquet(to_arrow(data), place)
        try:
            yield place
        except MpibayesError as error:
            raise retold(error, place) from None


def write_csv(table: pa.Table, path: Path) -> None:
    """Write a complete CSV file, or none. Raises DataError."""
    import pyarrow.csv

    from mpibayes.io.files import replacing, writing

    options = pyarrow.csv.WriteOptions(quoting_style="needed", quoting_header="needed")
    with writing(path, DataError), replacing(path) as file:
        pyarrow.csv.write_csv(table, file, options)


def from_arrow(table: pa.Table, kind: Kind, index: Any = None) -> Any:
    """Convert the table to `kind`. index: for a pandas DataFrame of as many rows."""
    if kind == "polars":
        return _library("polars").from_arrow(table)
    if kind == "pandas":
        _library("pandas")
        frame = table.to_pandas()
        if index is not None:
            frame.index = index
        return frame
    return table


def _library(name: str) -> Any:
    import importlib

    try:
        return sys.modules.get(name) or importlib.import_module(name)
    except ImportError:
        raise ConfigError(f"{name} is not installed; frames='pyarrow' needs nothing more") from None


def as_kind(name: str) -> Kind:
    """Check the name of a kind of table. Raises ConfigError."""
    if name not in KINDS:
        raise ConfigError(f"frames = {name!r}: expected one of {', '.join(KINDS)}")
    return next(kind for kind in KINDS if kind == name)


def retold(error: MpibayesError, path: Path, of: str = NAME) -> MpibayesError:
    """Rephrase an error about a file that the user never saw to name its origin."""
    texts = [text.replace(str(path), of).replace(path.name, of) for text in (error.message, *error.problems)]
    return type(error)(texts[0], texts[1:])
