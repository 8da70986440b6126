"""Columns of an answer in the types of their table: integers, dates and truth values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibayes.hpc.query.answer import arrow
from mpibayes.io.dates import type_of
from mpibayes.io.rows import Column

if TYPE_CHECKING:
    import pyarrow as pa

TRUTH = {"false": False, "true": True}


def typed(columns: Mapping[str, np.ndarray], of: Sequence[Column]) -> pa.Table:
    """Convert columns of drawn rows, text if they are levels or dates, to an Arrow table."""
    import pyarrow as pa

    by_name = {c.name: c for c in of}
    return pa.table({name: _array(by_name[name], values) for name, values in columns.items()})


def _array(column: Column, values: np.ndarray) -> Any:
    import pyarrow as pa

    if column.unit:
        try:
            return arrow(values).cast(type_of(column.unit, column.resolution))
        except pa.ArrowInvalid:  # a day outside the calendar
            return arrow(values)
    if column.kind == "boolean" and {level.lower() for level in column.levels} <= TRUTH.keys():
        return pa.array([None if x is None else TRUTH[x.lower()] for x in values.tolist()], pa.bool_())
    if column.levels:
        return arrow(values)
    whole = column.kind == "count" or (column.resolution >= 1.0 and column.resolution == round(column.resolution))
    seen = values[~np.isnan(values)]
    if whole and (np.abs(seen) < 2**53).all() and (seen == np.round(seen)).all():
        return pa.array(np.where(np.isnan(values), 0, values).astype(np.int64), mask=np.isnan(values))
    return arrow(values)
