"""Feather, which is Arrow's file format, and Arrow streams. Batches are those of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.ipc

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


def look(path: Path, variant: str, _asked: Asked) -> Typed:
    content = Seekable(path)
    with understanding(path, problem="damaged Arrow file"), content.open() as file:
        schema, batches = _opened(file, variant)
        first = next(batches, None)
    unread = {i: why for i, f in enumerate(schema) if (why := no_cells(f.type))}
    for i, f in enumerate(schema):
        if i not in unread and is_bytes(f.type) and first is not None and not is_text(first.column(i)):
            unread[i] = "bytes, not text"

    def read(positions: Sequence[int]) -> Iterator[pa.RecordBatch]:
        with understanding(path), content.open() as file:
            _, batches = _opened(file, variant)
            size = rows_at_once(len(schema))
            for batch in batches:
                for start in range(0, len(batch), size):
                    yield batch.slice(start, size).select(list(positions))

    in_order = [i for i, f in enumerate(schema) if has_order(f.type) and i not in unread and first is not None]
    orders = {i: categories(first.column(i)) for i in in_order}
    return Typed("Feather (Arrow)", schema.names, schema.types, read, unread, orders=orders, metadata=schema.metadata)


def _opened(file: BinaryIO, variant: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if variant == "stream":
        reader = pa.ipc.open_stream(file)
        return reader.schema, iter(reader)
    reader = pa.ipc.open_file(file)
    return reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))
