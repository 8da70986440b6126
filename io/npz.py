"""Sparse matrices written by `scipy.sparse.save_npz`, a chunk of entries at a time."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mpibayes.errors import DataError
from mpibayes.io.files import first_line
from mpibayes.io.packing import UNREADABLE
from mpibayes.io.sparse import MAX_COUNT
from mpibayes.io.triples import Chunk, Triples, require_shape, wrong_value
from mpibayes.text import counted

CHUNK = 1 << 20  # entries read at a time
DAMAGED = (ValueError, KeyError, OverflowError, RuntimeError, NotImplementedError, *UNREADABLE)
ARRAYS = {"csr": ("indices", "data"), "coo": ("row", "col", "data")}


def look_npz(path: Path) -> Triples:
    """Look at a matrix, whose entries are read later. Raises DataError."""
    try:
        with zipfile.ZipFile(path) as archive:
            if not {"format.npy", "shape.npy", "data.npy"} <= set(archive.namelist()):
                raise DataError(f"{path}: no sparse matrix as scipy.sparse.save_npz writes it")
            kind = bytes(_array(archive, "format", 1).tobytes()).rstrip(b"\0").decode()
            n, v = (int(x) for x in _array(archive, "shape", 2))
            if kind not in ARRAYS:
                raise DataError(f"{path}: a matrix in the form {kind!r}; expected csr or coo (`.tocsr()` in SciPy)")
            require_shape(path, n, v)
            n_entries = _require_alike(path, archive, ARRAYS[kind])
            if kind == "csr":
                _require_starts(path, _array(archive, "indptr", n + 1), n, n_entries)
    except DAMAGED as error:
        raise DataError(f"{path}: cannot be read: {first_line(error)}") from error
    return Triples(path, f"SciPy npz ({kind})", ("row", "column", "value"), lambda: _chunks(path, kind, n, v), (n, v))


def _header(file) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    return shape, kind


def _array(archive: zipfile.ZipFile, name: str, most: int) -> np.ndarray:
    """A whole array of at most `most` elements. Raises ValueError."""
    with archive.open(f"{name}.npy") as file:
        shape, _ = _header(file)
    if len(shape) > 1 or int(np.prod(shape)) > most:
        raise ValueError(f"{name} has the shape {shape}; expected at most {counted(most, 'element')}")
    with archive.open(f"{name}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _require_alike(path: Path, archive: zipfile.ZipFile, names: tuple[str, ...]) -> int:
    """Number of entries. Raises DataError if the arrays have different lengths, or hold no real numbers."""
    lengths = {}
    for name in names:
        with archive.open(f"{name}.npy") as file:
            shape, kind = _header(file)
        expected = "biuf" if name == "data" else "iu"
        if len(shape) != 1 or kind.kind not in expected:
            words = "real numbers" if name == "data" else "integers"
            raise DataError(f"{path}: its {name} are {kind} of shape {shape}; expected {words} along one axis")
        lengths[name] = int(shape[0])
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"{path}: damaged: {', '.join(f'{n:,} {name}' for name, n in lengths.items())}; expected as many"
        )
    return lengths["data"]


def _require_starts(path: Path, starts: np.ndarray, n: int, n_entries: int) -> None:
    """Raise DataError if `indptr` does not divide the entries into rows."""
    if starts.dtype.kind not in "iu" or starts.shape != (n + 1,):
        raise DataError(
            f"{path}: damaged: indptr is {starts.dtype} of shape {starts.shape}; expected {n + 1:,} integers"
        )
    starts = starts.astype(np.int64)
    if starts[0] != 0 or starts[-1] != n_entries or (np.diff(starts) < 0).any():
        raise DataError(
            f"{path}: damaged: indptr does not ascend from 0 to its {counted(n_entries, 'entry', 'entries')}"
        )


def _stream(archive: zipfile.ZipFile, name: str) -> Iterator[np.ndarray]:
    """Yield a one-dimensional array, a chunk at a time."""
    with archive.open(f"{name}.npy") as file:
        shape, kind = _header(file)
        left = int(shape[0])
        while left:
            n = min(left, CHUNK)
            yield np.frombuffer(file.read(n * kind.itemsize), kind, n)
            left -= n


def _chunks(path: Path, kind: str, n: int, v: int) -> Iterator[Chunk]:
    try:
        with zipfile.ZipFile(path) as archive:
            starts = _array(archive, "indptr", n + 1).astype(np.int64) if kind == "csr" else None
            at = 0
            for parts in zip(*(_stream(archive, name) for name in ARRAYS[kind]), strict=True):
                *ids, values = parts
                if starts is not None:
                    rows = np.searchsorted(starts, np.arange(at, at + len(values)), side="right") - 1
                    columns = ids[0].astype(np.int64)
                else:
                    rows, columns = (x.astype(np.int64) for x in ids)
                values = values.astype(np.float64)
                outside = (rows < 0) | (rows >= n) | (columns < 0) | (columns >= v)
                bad = np.flatnonzero(~(np.abs(values) < MAX_COUNT) | outside)
                if len(bad):
                    i = bad[0]
                    what = wrong_value(values[i]) or f"row {rows[i]}, column {columns[i]} of {n:,} by {v:,}"
                    raise DataError(f"{path}: entry {at + i + 1:,}: {what}")
                at += len(values)
                yield Chunk(rows, columns, values)
    except DAMAGED as error:
        raise DataError(f"{path}: cannot be read: {first_line(error)}") from error
