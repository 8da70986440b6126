"""A file of synthetic rows in the format of another file: its columns in its order, its dialect or types, and its forms
of numbers and dates. Columns of that file that are not modelled are left out."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from mpibayes.io.complete import target_of
from mpibayes.io.dates import Dates
from mpibayes.io.files import HDF5, first_bytes, replacing, writing
from mpibayes.io.recode import Originals, opened_like
from mpibayes.io.rows import Column
from mpibayes.io.table import Table

Write = Callable[[Mapping[str, np.ndarray]], None]


@contextmanager
def synthesized(like: Table, source: Path, out: Path, merged: Mapping[str, str]) -> Iterator[Write]:
    """Yield a function write(cells) for the next rows of `out`; the complete file appears at the end. cells: by column,
    level codes or numbers (n,), with the column's blank for missing cells. merged: by column, the text of the code
    after the blank. Raises ConfigError, DataError (a Parquet column cannot hold its value)."""
    lacking = [c.name for c in like.columns]
    originals = opened_like(like, source, lacking).originals()
    columns = _in_order(like, originals)
    types = _types(originals) if out.suffix == ".parquet" else {}
    head = None if originals.head is None else [originals.head[place] for _, place in columns if place is not None]
    about = {} if first_bytes(source) == HDF5 else like.source
    empty = {name for name, texts in about.get("no", {}).items() if "" in texts}  # an empty cell is their first level
    markers = {} if types else _markers(about)
    with writing(out), ExitStack() as stack:
        file = stack.enter_context(replacing(out))
        if out.suffix == ".gz":
            file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
        target = target_of(file, replace(originals, head=head, metadata=None), out)
        stack.callback(target.close)

        def write(cells: Mapping[str, np.ndarray]) -> None:
            rows = {}
            for column, place in columns:
                x, name, held = cells[column.name], column.name, None
                lacks = column.is_missing(x)
                blank = lacks | (x == 0) if name in empty and name not in merged else lacks
                if name in merged:  # its code is after the blank's
                    column = replace(column, levels=(*column.levels, "", merged[name]))
                elif place in types:
                    held = pa.nulls(len(x), types[place])
                at = np.flatnonzero(~blank)
                put = target.put(held, len(x), at, x[at], column, originals.forms.get(name))
                if name in markers:
                    put = target.blank(put, len(x), lacks, column, markers[name])
                rows[name if place is None else place] = put
            target.add(rows)

        yield write


def _in_order(like: Table, originals: Originals) -> list[tuple[Column, int | None]]:
    """Columns with their places in the file, in its order, followed by columns that it lacks. Parts of a date are
    omitted if the date itself is present."""
    result = []
    for column in like.columns:
        form, place = originals.forms.get(column.name), originals.places.get(column.name)
        if isinstance(form, Dates) and form.part:
            place = None if place is None else originals.names[place]
            if place in {c.name for c in like.columns}:
                continue
            result.append((column, None))
            continue
        result.append((column, place))
    last = len(originals.names)
    return sorted(result, key=lambda pair: last if pair[1] is None else pair[1])


def _markers(about: Mapping) -> dict[str, str]:
    """Text of missing cells, by column, for columns in which an empty cell is not missing."""
    return {name: texts[0] for name, texts in about.get("missing", {}).items() if texts and "" not in texts}


def _types(originals: Originals) -> dict[int, pa.DataType]:
    """Types of the columns of a Parquet file, or of a typed table, by place."""
    first = next(iter(originals.batches()), None)
    return {} if first is None else {i: array.type for i, array in first[0].items()}
