"""Facts about the training rows that a synthetic table needs, from one pass over them: the missing cells of each row,
and the frequency of each level and each atom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.new_rows import BATCH
from mpibayes.io import recording
from mpibayes.io.absent import Absence
from mpibayes.io.rows import Column, Rows


def cells_of(rows: Rows, column: Column) -> np.ndarray:
    """Level codes or recorded numbers of a column, (n,)."""
    return getattr(rows, column.block)[:, column.index]


@dataclass(frozen=True)
class Training:
    """pattern (N,) int32: the set of missing cells of each training row; masks (P, C) bool: the sets, by `names`,
    without cells that the table never has (absences). counts: by column name, of each level, or of each atom."""

    names: Sequence[str]
    pattern: np.ndarray
    masks: np.ndarray
    counts: Mapping[str, np.ndarray]
    absences: Sequence[Absence]


def batches(asking: Asking) -> Iterator[Rows]:
    """Yield the training rows, some at a time."""
    numbers = asking.asked.training_numbers()
    return (asking.asked.recorded(numbers[i : i + BATCH]) for i in range(0, len(numbers), BATCH))


def look(asking: Asking) -> Training:
    """Collect the facts in one pass over all training rows."""
    columns, names = asking.columns, [c.name for c in asking.columns]
    by_name = {c.name: c for c in columns}
    stored = Absence.stored(asking.asked.like.source)
    absences = [a for a in stored if a.column in by_name and a.where in by_name]
    counts = {c.name: np.zeros(len(c.levels or c.atoms), np.int64) for c in columns}
    pattern, number = [], {}
    for rows in batches(asking):
        missing = np.stack([c.is_missing(cells_of(rows, c)) for c in columns], axis=1)
        for a in absences:
            missing[:, names.index(a.column)] &= ~a.met(by_name[a.where], cells_of(rows, by_name[a.where]))
        different, of = np.unique(np.packbits(missing, axis=1), axis=0, return_inverse=True)
        numbers = [number.setdefault(bits.tobytes(), len(number)) for bits in different]
        pattern.append(np.array(numbers, np.int32)[of.ravel()])
        for c in columns:
            counts[c.name] += _occurrences(c, cells_of(rows, c))
    packed = np.frombuffer(b"".join(number), np.uint8).reshape(len(number), -1)
    masks = np.unpackbits(packed, axis=1, count=len(columns)).astype(bool)
    return Training(names, np.concatenate(pattern), masks, counts, absences)


def _occurrences(column: Column, cells: np.ndarray) -> np.ndarray:
    """Number of cells with each level, or with each atom."""
    n = len(column.levels or column.atoms)
    if not n:
        return np.zeros(0, np.int64)
    codes = cells if column.levels else recording.which(column, cells)
    return np.bincount(codes.astype(np.intp), minlength=n)[:n]
