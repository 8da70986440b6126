"""Classes of a table's rows by their expected number of missing cells: a regression of this number on the complete
columns, cut at quantiles. Rows of one class lack cells about equally often, so if cells are missing at random given
these columns, missing cells and present ones of a class have the same law."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.io.rows import Column, Rows

MOST_CLASSES = 8
LEAST_ROWS = 100  # of a class, approximately
MOST_VALUES = 32  # of a column that are not pooled: its most frequent levels, or bins of a number
RARE = 20  # least rows of a level that is not pooled
AT_ONCE = 8  # columns whose cells are held at once


@dataclass(frozen=True)
class GapClasses:
    """of (n,): class of each row of the table, below n. gaps: names of the columns that lack cells."""

    of: np.ndarray
    n: int
    gaps: frozenset[str]


def gap_classes(columns: Sequence[Column], parts: Callable[[], Iterator[Rows]]) -> GapClasses:
    """Divide the rows of a table into classes. parts(): yields its rows with these columns, some at a time."""
    columns = [c for c in columns if c.kind != "survival"]
    missing = np.concatenate([_missing(columns, rows) for rows in parts()])
    complete = [c for c, n in zip(columns, np.count_nonzero(missing, axis=0)) if not n]
    gaps = frozenset(c.name for c in columns).difference(c.name for c in complete)
    codes = [
        _codes(column, x)
        for i in range(0, len(complete), AT_ONCE)
        for column, x in _cells(complete[i : i + AT_ONCE], parts)
    ]
    expected = _fitted([(code, n) for code, n in codes if n > 1], missing.sum(axis=1))
    n = min(MOST_CLASSES, max(1, len(missing) // LEAST_ROWS))
    cuts = np.quantile(expected, np.arange(1, n) / n)
    used, of = np.unique(np.searchsorted(cuts, expected, side="right"), return_inverse=True)
    return GapClasses(of, len(used), gaps)


def _missing(columns: Sequence[Column], rows: Rows) -> np.ndarray:
    return np.column_stack([c.is_missing(getattr(rows, c.block)[:, c.index]) for c in columns])


def _cells(columns: Sequence[Column], parts: Callable[[], Iterator[Rows]]) -> list[tuple[Column, np.ndarray]]:
    """Columns and their cells (n,)."""
    every = [[getattr(rows, c.block)[:, c.index].copy() for c in columns] for rows in parts()]
    return [(column, np.concatenate(of)) for column, of in zip(columns, zip(*every))]


def _codes(column: Column, x: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the value of each row, (n,) uint8, and the number of values; 0 stands for all values that are pooled."""
    values, of, count = np.unique(x, return_inverse=True, return_counts=True)
    if not column.levels and len(values) > MOST_VALUES:
        cuts = np.unique(np.quantile(x, np.arange(1, MOST_VALUES // 2) * 2 / MOST_VALUES))
        return np.searchsorted(cuts, x, side="right").astype(np.uint8), len(cuts) + 1
    chosen = np.argsort(-count, kind="stable")[1:MOST_VALUES]
    chosen = chosen[count[chosen] >= RARE]
    code = np.zeros(len(values), np.uint8)
    code[chosen] = np.arange(1, 1 + len(chosen))
    return code[of], 1 + len(chosen)


def _fitted(codes: Sequence[tuple[np.ndarray, int]], y: np.ndarray) -> np.ndarray:
    """Return the fit of a least-squares regression of y (n,) on an intercept and the values other than 0, rounded so
    that rows of equal values are equal. Sums are of whole numbers, exact in any order."""
    first = np.cumsum([1, *(n - 1 for _, n in codes)])
    width = int(first[-1])
    xx, xy = np.zeros((width, width)), np.zeros(width)
    xx[0, 0], xy[0] = len(y), y.sum()
    for i, (code, n) in enumerate(codes):
        here = slice(first[i], first[i + 1])
        xx[0, here] = xx[here, 0] = np.bincount(code, minlength=n)[1:]
        xy[here] = np.bincount(code, weights=y, minlength=n)[1:]
        for j, (other, m) in enumerate(codes[: i + 1]):
            there = slice(first[j], first[j + 1])
            both = np.bincount(code.astype(np.intp) * m + other, minlength=n * m).reshape(n, m)[1:, 1:]
            xx[here, there], xx[there, here] = both, both.T
    b = np.linalg.lstsq(xx, xy, rcond=None)[0]
    fit = np.full(len(y), b[0])
    for i, (code, _) in enumerate(codes):
        fit += np.append(0.0, b[first[i] : first[i + 1]])[code]
    return np.round(fit, 9)
