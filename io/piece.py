"""One file of a typed table: its checked header, and its rows. A table has one or several (`io/parts.py`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mpibayes.errors import DataError
from mpibayes.io.documents import json_value
from mpibayes.io.opened import open_sealed
from mpibayes.io.rows import BLOCKS, Column, Rows, block_widths, place_columns
from mpibayes.io.seal import Seal
from mpibayes.io.table_header import column_of, dataset, impossible, problems_of, source_of, text, weights_of

FORMAT = "mpibayes-table"
VERSION = 2


@dataclass(frozen=True)
class Piece:
    """A sealed file of rows. follows: fingerprint of the table that its rows continue; "" for a first file."""

    path: Path
    n_rows: int
    columns: tuple[Column, ...]
    fingerprint: str
    source: Mapping[str, Any]
    follows: str = ""

    @classmethod
    def open(cls, path: Path) -> Piece:
        """Read and check the header. Raises DataError if `path` is not a complete file of this version."""
        with open_sealed(path) as file:
            return _read_header(path, file)

    def read(self, start: int, stop: int) -> Rows:
        """Rows start..stop-1 of the file. Raises DataError if it cannot be read, or has changed."""
        rows = Rows.empty(self.columns, stop - start)
        with open_sealed(self.path) as file:
            if file.attrs.get("fingerprint") != self.fingerprint:
                raise DataError(f"{self.path}: the table was replaced while it was in use")
            for block in BLOCKS:
                if getattr(rows, block).size:
                    Seal.of(self.path).verify(*extent(file[block], start, stop))
            read_rows(file, rows, start)
        if wrong := impossible(rows, self.columns, self.n_rows):
            raise DataError(f"{self.path}: damaged table: {wrong}")
        return rows

    def weights(self) -> np.ndarray:
        """Survey weights of its rows, (n_rows,) float64, if the file has weights. Raises DataError."""
        with open_sealed(self.path) as file:
            Seal.of(self.path).verify(*extent(file["weights"], 0, self.n_rows))
            weights = file["weights"][:]
        if not (np.isfinite(weights).all() and weights.min() >= 0.0):
            raise DataError(f"{self.path}: damaged table: a weight is not a number from 0 on")
        return weights


def read_rows(file: h5py.File, rows: Rows, start: int) -> None:
    """Fill `rows` with the file's rows from row `start` on."""
    for block in BLOCKS:
        target = getattr(rows, block)
        if target.size:
            file[block].read_direct(target, np.s_[start : start + len(rows)])


def extent(data: h5py.Dataset, start: int, stop: int) -> tuple[int, int]:
    """Place of rows start..stop-1 of a contiguous dataset in the file."""
    offset, width = data.id.get_offset(), math.prod(data.shape[1:]) * data.dtype.itemsize
    return (0, 0) if offset is None else (offset + start * width, offset + stop * width)


def _read_header(path: Path, file: h5py.File) -> Piece:
    if file.attrs.get("format") == "mpibayes-sparse":
        raise DataError(
            f"{path}: a sparse table, of counts or ratings; expected a typed table, as 'mpibayes import' makes it "
            "without --sparse"
        )
    if file.attrs.get("format") != FORMAT:
        raise DataError(f"{path}: an HDF5 file, but no mpibayes table; make one with 'mpibayes import'")
    version = int(file.attrs["version"])
    if version != VERSION:
        raise DataError(
            f"{path}: table version {version}; this program reads version {VERSION}: import the source again"
        )
    n_rows = int(file.attrs["n_rows"])
    if n_rows < 1:
        raise DataError(f"{path}: the table has no rows")
    entries = json_value(text(file, "columns"))
    if not isinstance(entries, list):
        raise ValueError("the list of its columns is none")
    columns = [column_of(file, number, entry) for number, entry in enumerate(entries)]
    problems = problems_of(columns, n_rows)
    for block, width in block_widths(columns).items():
        data = dataset(file, block) if block in file else None
        stored = (data.shape, data.dtype) if data is not None else ((n_rows, 0), np.dtype(BLOCKS[block]))
        if stored != ((n_rows, width), np.dtype(BLOCKS[block])):
            expected = f"{(n_rows, width)} {np.dtype(BLOCKS[block])}"
            problems.append(f"dataset '{block}' is {stored[0]} {stored[1]}, expected {expected}")
    if not columns:
        problems.append("no columns")
    source = source_of(file)
    problems += filter(None, [weights_of(file, n_rows, source)])
    if place_columns((c.name, c.kind, c.levels) for c in columns) != tuple(
        Column(c.name, c.kind, c.block, c.index, c.levels) for c in columns
    ):
        problems.append("the column list and the blocks disagree")
    if problems:
        raise DataError(f"{path}: the table is inconsistent; import the source again", problems)
    follows = str(file.attrs.get("follows", ""))
    return Piece(path, n_rows, tuple(columns), str(file.attrs["fingerprint"]), source, follows)
