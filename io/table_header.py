"""Validation of a typed table's header: types of values, and data that are really in the file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import h5py
import numpy as np

from mpibayes.errors import DataError
from mpibayes.io.documents import json_value
from mpibayes.io.rows import BLOCKS, CODES, KINDS, MAX_COUNT, MAX_LEVELS, MAX_REAL, Column, Rows, check_levels
from mpibayes.io.spells import wrong_ends

ALLOWED = {"str": str, "int": int, "float": (int, float), "bool": bool}
OF_A_RUN = {"shape", "cuts", "line", "leans_on"}  # fields of a column that a table does not store
OF_COLUMN = {field.name: field.type for field in fields(Column) if field.name not in OF_A_RUN}


def column_of(file: h5py.File, number: int, entry: Any) -> Column:
    """Column `number`, from its JSON object and its levels. Raises ValueError if a value has the wrong type."""
    if not isinstance(entry, Mapping) or "n_levels" not in entry:
        raise ValueError(f"column {number + 1} is not described")
    entry = dict(entry)
    has_levels = entry.pop("n_levels")
    if unknown := entry.keys() - (OF_COLUMN.keys() - {"levels", "ordered"}):
        raise ValueError(f"column {number + 1} has '{min(unknown)}', which is unknown")
    for name, value in entry.items():
        if not (_all_floats(value) if name in ("atoms", "ends") else _is(OF_COLUMN[name], value)):
            raise ValueError(f"'{name}' of column {number + 1} is {value!r}")
    if entry.get("resolution", 0.0) < 0 or entry.get("n_missing", 0) < 0:
        raise ValueError(f"column {number + 1} has a negative resolution or number of missing cells")
    if min(entry.get("scale", 1.0), entry.get("rest_scale", 1.0)) <= 0:
        raise ValueError(f"column {number + 1} has a scale of 0 or below")
    if entry.get("kind") not in KINDS:
        raise ValueError(f"column {number + 1} is of an unknown kind")
    levels, ordered = _levels(file, number) if has_levels else ((), None)
    if entry["kind"] == "survival" and entry.get("ends") and wrong_ends(entry["ends"]):
        raise ValueError(f"'ends' of column {number + 1} are {entry['ends']!r}")
    try:
        check_levels(entry.get("name", ""), entry["kind"], levels)
    except DataError as error:
        raise ValueError(error.message) from None
    lists = {name: tuple(entry.get(name, ())) for name in ("atoms", "ends")}
    return Column(**entry | {"levels": levels, "ordered": ordered} | lists)


def _all_floats(value: Any) -> bool:
    return isinstance(value, list) and all(_is("float", v) for v in value)


def _is(kind: str, value: Any) -> bool:
    allowed = ALLOWED.get(kind, ())
    if not isinstance(value, allowed) or (kind != "bool" and isinstance(value, bool)):
        return False
    return kind != "float" or math.isfinite(value)


def problems_of(columns: Sequence[Column], n_rows: int) -> list[str]:
    """List problems of columns taken together, or with n_rows rows, even if each is valid by itself."""
    names = Counter(column.name for column in columns)
    twice = [f"{n} columns are called '{name}'" for name, n in names.items() if n > 1]
    return twice + [
        f"column '{c.name}' has {c.n_missing:,} missing cells in {n_rows:,} rows"
        for c in columns
        if c.n_missing > n_rows
    ]


# --- where a table comes from -----------------------------------------------------------------------------------------


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _each(kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(kind, value.values()))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _absences(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, dict)
        and entry.keys() == {"column", "where", "levels", "rows", "present"}
        and _text(entry["column"]) and _text(entry["where"]) and _texts(entry["levels"]) and entry["levels"]
        and _is("int", entry["rows"]) and _is("int", entry["present"])
        for entry in value
    )  # fmt: skip


def _form(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str | bool) for item in value.values())


OF_SOURCE: dict[str, Callable[[Any], bool]] = {
    "names": _texts, "files": _texts, "folder": _text, "format": _text, "delimiter": _text,
    "header": lambda v: isinstance(v, bool), "encoding": _text, "sheet": _text, "missing": _each(_texts),
    "no": _each(_texts), "forms": _each(_form), "calendar": _each(_text), "absent": _absences, "vocabulary": _text,
    "weight": _text, "survival": _each(_texts), "censored": _each(_texts), "left_out": _each(_text), "asked": _texts,
}  # fmt: skip


def source_of(file: h5py.File) -> dict[str, Any]:
    """Read a table's record of its source, {} if there is none. Raises ValueError if a value has the wrong type."""
    source = json_value(text(file, "source")) if "source" in file else {}
    if not isinstance(source, dict):
        raise ValueError("what it was made from is not described")
    for name, fits in OF_SOURCE.items():
        if source.get(name) is not None and not fits(source[name]):
            raise ValueError(f"'{name}' of what it was made from is not of its kind")
    return source


def weights_of(file: h5py.File, n_rows: int, source: Mapping[str, Any]) -> str:
    """Describe a problem with the survey weights of a table; "" if there is none."""
    if (source.get("weight") is None) != ("weights" not in file):
        return "the weights of its rows are named or there, but not both"
    if "weights" not in file:
        return ""
    data = dataset(file, "weights")
    result = f"{data.shape} {data.dtype}"
    return "" if result == f"{(n_rows,)} float64" else f"dataset 'weights' is {result}, expected {(n_rows,)} float64"


# --- its datasets -----------------------------------------------------------------------------------------------------


def _levels(file: h5py.File, number: int) -> tuple[tuple[str, ...], bool | None]:
    """Levels of a column, and True if they are a scale; None in tables of versions that did not record it."""
    data = dataset(file, f"levels/{number}")
    if data.ndim != 1 or len(data) > MAX_LEVELS:
        raise ValueError(f"column {number + 1} has levels of shape {data.shape}")
    ordered = data.attrs.get("ordered")
    if ordered is not None and not isinstance(ordered, np.bool_):
        raise ValueError(f"'ordered' of column {number + 1} is {ordered!r}")
    return tuple(data.asstr()[:]), None if ordered is None else bool(ordered)


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a contiguous dataset that lies in the file: one that only claims a length would be read as zeros, for
    hours.

    Raises ValueError, KeyError.
    """
    data = file[name]
    if not isinstance(data, h5py.Dataset):
        raise ValueError(f"'{name}' is no dataset")
    if data.size and data.id.get_offset() is None:
        raise ValueError(f"the values of '{name}' are not in the file")
    return data


def text(file: h5py.File, name: str) -> bytes:
    """Text that is stored as a dataset. Raises ValueError, KeyError."""
    value = file[name][()] if isinstance(file[name], h5py.Dataset) else None
    if not isinstance(value, bytes):
        raise ValueError(f"'{name}' is no text")
    return value


def impossible(rows: Rows, columns: Sequence[Column], n_rows: int) -> str:
    """Describe the first cell that no import writes in some rows of a table of `n_rows`; "" if there is none."""
    for block in BLOCKS:
        cells = getattr(rows, block)
        if not cells.size:
            continue
        here = [c for c in columns if c.block == block]
        if block in CODES:
            blank = np.array([len(c.levels) for c in here], CODES[block])
            largest = cells.max(axis=0)
            if (largest > blank).any():
                return f"a code in '{block}' is larger than its column allows"
            missing = np.zeros(len(here), np.int64)
            gappy = np.flatnonzero(largest == blank)  # counting takes longer than reading
            missing[gappy] = (cells[:, gappy] == blank[gappy]).sum(axis=0)
        else:
            missing = np.isnan(cells).sum(axis=0)
            if wrong := _impossible_numbers(cells, block):
                return wrong
        if wrong := _miscounted(here, missing, len(rows), n_rows):
            return wrong
    return ""


def _impossible_numbers(cells: np.ndarray, block: str) -> str:
    if np.isinf(cells).any():
        return f"a number in '{block}' is infinite"
    if block == "tallies":
        seen = cells[~np.isnan(cells)]
        if ((seen < 0) | (seen != np.floor(seen)) | (seen >= MAX_COUNT)).any():
            return "a count is not a non-negative integer below 2^53"
    elif max(np.fmax.reduce(cells, axis=None), -np.fmin.reduce(cells, axis=None)) > MAX_REAL:
        return f"a number in '{block}' is larger than {MAX_REAL:g} in size, which an import takes as missing"
    return ""


def _miscounted(columns: Sequence[Column], missing: np.ndarray, n: int, n_rows: int) -> str:
    """Describe a column whose missing or present cells in n rows exceed the header's, or differ for all rows; "" if
    none."""
    for column, lacking in zip(columns, missing.tolist(), strict=True):
        if lacking > column.n_missing or n - lacking > n_rows - column.n_missing:
            return (
                f"column '{column.name}' lacks in {lacking:,} of {n:,} rows, and by the header in "
                f"{column.n_missing:,} of {n_rows:,}"
            )
    return ""
