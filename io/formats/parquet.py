"""Parquet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from mpibayes.io.formats.typed import (
    Asked,
    Typed,
    categories,
    has_order,
    is_bytes,
    is_text,
    no_cells,
    rows_at_once,
    understanding,
)
from mpibayes.io.packing import Seekable

SOME_ROWS = 1_000  # of a column of bytes, to decide whether they are text


def look(path: Path, _variant: str, _asked: Asked) -> Typed:
    content = Seekable(path)
    with understanding(path, problem="damaged Parquet file"), content.open() as file:
        schema = pa.parquet.read_schema(file)
        unread = {i: why for i, f in enumerate(schema) if (why := no_cells(f.type) or _no_text(file, i, f.type))}
        orders = {i: _categories(file, i) for i, f in enumerate(schema) if has_order(f.type) and i not in unread}

    def read(positions: Sequence[int]) -> Iterator[pa.RecordBatch]:
        names = [schema.names[i] for i in positions]
        with understanding(path), content.open() as file:
            parquet = pa.parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
            for batch in parquet.iter_batches(rows_at_once(len(schema)), columns=names, use_threads=False):
                yield batch.select(names)

    return Typed("Parquet", schema.names, schema.types, read, unread, orders=orders, metadata=schema.metadata)


def _categories(file, position: int) -> list[str]:
    """Categories in order, from the first rows."""
    first = next(_some(file, position), None)
    return [] if first is None else categories(first.column(0))


def _no_text(file, position: int, of: pa.DataType) -> str:
    """Reason why a column of bytes is not text, by its first rows; "" if it is."""
    if not is_bytes(of):
        return ""
    return "" if all(is_text(batch.column(0)) for batch in _some(file, position)) else "bytes, not text"


def _some(file, position: int) -> Iterator[pa.RecordBatch]:
    """The first rows of a column, if it has any."""
    file.seek(0)
    with pa.parquet.ParquetFile(pa.PythonFile(file, "r")) as parquet:
        name = parquet.schema_arrow.names[position]
        yield from itertools.islice(parquet.iter_batches(SOME_ROWS, columns=[name], use_threads=False), 1)
