"""What a table's header promises, checked before it is believed: kinds of values, and data that are in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import h5py
import numpy as np

from mpibayes.io.rows import BLOCKS, MAX_COUNT, MAX_LEVELS, Column, Rows

ALLOWED = {"str": str, "int": int, "float": (int, float), "bool": bool}
OF_COLUMN = {field.name: field.type for field in fields(Column)}


def column_of(file: h5py.File, number: int, entry: Any) -> Column:
    """Column `number`, from its JSON object and its levels. ValueError where something is not of its kind."""
    if not isinstance(entry, Mapping) or "n_levels" not in entry:
        raise ValueError(f"column {number + 1} is not described")
    entry = dict(entry)
    has_levels = entry.pop("n_levels")
    if unknown := entry.keys() - (OF_COLUMN.keys() - {"levels"}):
        raise ValueError(f"column {number + 1} has '{min(unknown)}', which is unknown")
    for name, value in entry.items():
        if not (_all_floats(value) if name == "atoms" else _is(OF_COLUMN[name], value)):
            raise ValueError(f"'{name}' of column {number + 1} is {value!r}")
    if entry.get("resolution", 0.0) < 0 or entry.get("n_missing", 0) < 0:
        raise ValueError(f"column {number + 1} has a negative resolution or number of missing cells")
    levels = _levels(file, number) if has_levels else ()
    return Column(**entry | {"levels": levels, "atoms": tuple(entry.get("atoms", ()))})


def _all_floats(value: Any) -> bool:
    return isinstance(value, list) and all(_is("float", v) for v in value)


def _is(kind: str, value: Any) -> bool:
    allowed = ALLOWED.get(kind, ())
    return isinstance(value, allowed) and (kind == "bool" or not isinstance(value, bool))


def _levels(file: h5py.File, number: int) -> tuple[str, ...]:
    data = dataset(file, f"levels/{number}")
    if data.ndim != 1 or len(data) > MAX_LEVELS:
        raise ValueError(f"column {number + 1} has levels of shape {data.shape}")
    return tuple(data.asstr()[:])


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """A contiguous dataset that lies in the file: one that only claims a length would be read as zeros, for hours.

    ValueError, KeyError.
    """
    data = file[name]
    if not isinstance(data, h5py.Dataset):
        raise ValueError(f"'{name}' is no dataset")
    if data.size and data.id.get_offset() is None:
        raise ValueError(f"the values of '{name}' are not in the file")
    return data


def text(file: h5py.File, name: str) -> bytes:
    """A text that is kept as a dataset of its own. ValueError, KeyError."""
    value = file[name][()] if isinstance(file[name], h5py.Dataset) else None
    if not isinstance(value, bytes):
        raise ValueError(f"'{name}' is no text")
    return value


def impossible(rows: Rows, columns: tuple[Column, ...]) -> str:
    """The first thing in some rows that no import writes, in words; "" where there is none."""
    for block in BLOCKS:
        cells = getattr(rows, block)
        if not cells.size:
            continue
        if block in ("codes8", "codes16"):
            top = [len(c.levels) for c in columns if c.block == block]
            if (cells.max(axis=0) > top).any():
                return f"a code in '{block}' is larger than its column allows"
        elif np.isinf(cells).any():
            return f"a number in '{block}' is infinite"
        elif block == "tallies":
            seen = cells[~np.isnan(cells)]
            if ((seen < 0) | (seen != np.floor(seen)) | (seen >= MAX_COUNT)).any():
                return "a count is not a non-negative integer below 2^53"
    return ""
