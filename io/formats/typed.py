"""A file with typed columns: its columns as Arrow arrays, some rows at a time."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mpibayes.errors import DataError
from mpibayes.io.files import first_line, reason
from mpibayes.io.formats.kinds import Kind
from mpibayes.io.packing import UNREADABLE
from mpibayes.text import counted

EXTRA = {"excel": "python_calamine", "labelled": "pyreadstat"}  # packages of the extra `formats`, by module
BATCH_ROWS, BATCH_CELLS = 32_768, 4 << 20  # at most, where the batch size is ours to choose


@dataclass(frozen=True)
class Asked:
    """User's options for a file. sheet: of an Excel workbook, by default `likely_sheet` if it exists, otherwise the
    first. encoding: of its text, None: as the file says."""

    sheet: str | None = None
    likely_sheet: str | None = None
    header: bool | None = None
    encoding: str | None = None
    expected: Sequence[str] = ()


@dataclass
class Typed:
    """title: in words. names, types: of the columns. read(positions): batches of these columns, in this order, of all
    rows. unread: positions of columns without text cells, with the reason. labels: by position, by code as text, in
    order of code; as_labels: those of these columns that are read as labels, not as codes. orders: by position,
    categories that the file declares ordered, least first; () if they are numbers. notes: for the user. lines_above:
    lines of the file above the first row, None if it has no lines. header: True if the first row holds names, None:
    names are stored separately. n_rows: 0 if unknown."""

    title: str
    names: Sequence[str]
    types: Sequence[pa.DataType]
    read: Callable[[Sequence[int]], Iterator[pa.RecordBatch]]
    unread: Mapping[int, str] = field(default_factory=dict)
    labels: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    as_labels: set[int] = field(default_factory=set)
    orders: Mapping[int, Sequence[str]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    lines_above: int | None = None
    header: bool | None = None
    n_rows: int = 0
    metadata: dict | None = None


def look(path: Path, kind: Kind, asked: Asked) -> Typed:
    """Columns of a file of this kind. Raises DataError if the kind or the file cannot be read."""
    if not kind.name:
        raise DataError(f"{path}: is {kind.title}; {kind.advice}")
    package = EXTRA.get(kind.name)
    if package is None:
        return importlib.import_module(f"mpibayes.io.formats.{kind.name}").look(path, kind.variant, asked)
    if importlib.util.find_spec(package) is None:
        raise DataError(
            f"{path}: is {kind.title}, which the optional extra 'formats' reads ({package} is not installed): "
            "pip install 'mpibayes[formats]', or save it as CSV"
        )
    return importlib.import_module("mpibayes.io.formats.apart").look(path, kind, asked)


@contextmanager
def understanding(path: Path, *others: type[Exception], problem: str = "cannot be read") -> Iterator[None]:
    """Turn a reader's error on a damaged file into a DataError. others: exceptions specific to the reader."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: {problem}: {reason(error)}") from error
    except (pa.ArrowException, ValueError, *UNREADABLE, *others) as error:
        raise DataError(f"{path}: {problem}: {first_line(error)}") from error


def rows_at_once(n_columns: int) -> int:
    """Rows in a batch of `n_columns` columns."""
    return max(1, min(BATCH_ROWS, BATCH_CELLS // max(n_columns, 1)))


def require_names(path: Path, names: Sequence[str], given: Sequence[str] | None) -> Sequence[str]:
    """User's names, as many as there are columns, or else the file's. Raises DataError."""
    if given is None:
        return names
    if len(given) != len(names):
        raise DataError(f"{path}: {counted(len(names), 'column')}, but {counted(len(given), 'name')} given")
    return [name.strip() for name in given]


def with_labels(codes: pa.Array, labels: Mapping[str, str]) -> pa.Array:
    """Replace codes by their labels; a code without a label stays."""
    texts = pc.utf8_trim_whitespace(codes.cast(pa.string()))
    matched = pa.array(labels.values(), pa.string()).take(pc.index_in(texts, value_set=pa.array(labels, pa.string())))
    return pc.coalesce(matched, texts)


def has_order(of: pa.DataType) -> bool:
    """True if a column of this type has ordered categories, as in pandas."""
    return pa.types.is_dictionary(of) and of.ordered


def categories(column: pa.DictionaryArray) -> list[str]:
    """Categories of a column as texts, in the form in which its cells are read."""
    return pc.utf8_trim_whitespace(column.dictionary.cast(pa.string())).to_pylist()


def no_cells(of: pa.DataType) -> str:
    """Reason why the cells of a column of this type cannot be read as text; "" if they can."""
    if pa.types.is_nested(of):
        return f"nested ({of})" if len(str(of)) <= 40 else f"nested ({str(of).partition('<')[0]})"
    try:
        pa.array([], of).cast(pa.string())
    except pa.ArrowException:
        return f"of the type {of}, which is neither a number nor text"
    return ""


def is_bytes(of: pa.DataType) -> bool:
    return pa.types.is_binary(of) or pa.types.is_large_binary(of) or pa.types.is_fixed_size_binary(of)


def is_text(array: pa.Array) -> bool:
    """True if all bytes are UTF-8 text."""
    try:
        array.cast(pa.binary()).cast(pa.string()).validate(full=True)
    except pa.ArrowException:
        return False
    return True
