"""Pairs of ids from CSV, with or without a value, as text and numbers, some lines at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.files import reading, reason

BLOCK = 4 << 20  # bytes of text


def read_pairs(
    path: Path, ids: Sequence[str], value: str | None
) -> Iterator[tuple[list[str], list[str], np.ndarray | None]]:
    """Yield (first ids, second ids, values) of CSV with a header. ids: names of one or two columns; with one, the
    second ids are empty. value: name of a numeric column; None if there is none, and the values are then None, too.

    Raises ConfigError if the file lacks these columns, DataError if it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.csv

    with reading(path, ConfigError):
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file")
    try:
        with pyarrow.csv.open_csv(str(path)) as head:
            names = head.schema.names
        lacking = [name for name in ids if name not in names]
        if lacking:
            raise ConfigError(f"{path}: no column {' and '.join(lacking)}; it has {', '.join(names)}")
        kinds = {name: pa.string() for name in ids}
        columns = list(ids)
        if value is not None and value in names:
            kinds[value] = pa.float64()
            columns.append(value)
        options = pyarrow.csv.ConvertOptions(column_types=kinds, include_columns=columns)
        with pyarrow.csv.open_csv(
            str(path), pyarrow.csv.ReadOptions(block_size=BLOCK), convert_options=options
        ) as batches:
            for batch in batches:
                first = batch.column(0).to_pylist()
                second = batch.column(1).to_pylist() if len(ids) > 1 else []
                values = batch.column(len(ids)).to_numpy(zero_copy_only=False) if len(columns) > len(ids) else None
                if None in first or None in second:
                    raise DataError(f"{path}: a line without {' or '.join(ids)}")
                yield first, second, values
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason(error)}") from None
