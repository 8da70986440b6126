"""Risk of synthetic rows: how much they reveal about single training rows, compared with held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpibayes.io.rows import Column

AT_ONCE = 128  # rows whose distances to all others are held at a time
PRIME = np.uint64(0x9E3779B97F4A7C15)


def fingerprints(columns: Sequence[Column], cells: Mapping[str, np.ndarray]) -> np.ndarray:
    """Fingerprint of all cells of each row, uint64 (n,): equal for equal rows, different for others except by
    chance."""
    total = np.zeros(len(cells[columns[0].name]), np.uint64)
    for c in columns:
        x = cells[c.name].astype(np.float64) + 0.0  # no -0
        bits = np.where(np.isnan(x), np.uint64(1), x.view(np.uint64))
        total = _mixed((total ^ bits) * PRIME)
    return total


def _mixed(x: np.ndarray) -> np.ndarray:
    x = x ^ (x >> np.uint64(32))
    x = x * np.uint64(0xD6E8FEB86659FD93)
    return x ^ (x >> np.uint64(29))


def uniques(rows: np.ndarray) -> np.ndarray:
    """Fingerprints of a single row, ascending."""
    different, times = np.unique(rows, return_counts=True)
    return different[times == 1]


class Places:
    """Rows as points: a level is a separate place, a number its rank among training rows, from 0 to 1. The distance of
    two rows is the sum over columns: 1 for different levels, the difference of ranks, 1 if one of them is missing."""

    def __init__(self, columns: Sequence[Column], training: Mapping[str, np.ndarray]):
        self._levels = [c.name for c in columns if c.levels]
        self._ranked = {c.name: np.sort(training[c.name][~np.isnan(training[c.name])]) for c in columns if not c.levels}

    def __call__(self, cells: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return (level codes (n, A) int32, ranks (n, B) float32, NaN: missing)."""
        n = len(next(iter(cells.values())))
        codes = [cells[name].astype(np.int32) for name in self._levels]
        ranks = [self._rank(cells[name], of) for name, of in self._ranked.items()]
        return _columns(codes, n, np.int32), _columns(ranks, n, np.float32)

    @staticmethod
    def _rank(x: np.ndarray, of: np.ndarray) -> np.ndarray:
        middle = np.searchsorted(of, x, "left") + np.searchsorted(of, x, "right")
        return np.where(np.isnan(x), np.nan, middle / max(2 * len(of), 1))


def _columns(arrays: Sequence[np.ndarray], n: int, dtype: type) -> np.ndarray:
    return np.stack(arrays, axis=1).astype(dtype) if arrays else np.zeros((n, 0), dtype)


def closest(rows: tuple[np.ndarray, np.ndarray], others: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Distance of each row to the closest of `others`, (n,); both in the form of `Places`."""
    result = [_closest([a[i : i + AT_ONCE] for a in rows], others) for i in range(0, len(rows[0]), AT_ONCE)]
    return np.concatenate(result)


def _closest(rows: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> np.ndarray:
    distance = np.zeros((len(rows[0]), len(others[0])), np.float32)
    for a, b in zip(rows[0].T, others[0].T):
        distance += a[:, None] != b
    for a, b in zip(rows[1].T, others[1].T):
        apart = np.abs(a[:, None] - b)
        lacks = np.isnan(a)[:, None] != np.isnan(b)
        distance += np.where(lacks, 1.0, np.nan_to_num(apart))
    return distance.min(axis=1)


def disclosed(key_of: np.ndarray, synthetic: np.ndarray, key: Sequence[int], target: int) -> float:
    """Share of the rows `key_of` whose target follows from a synthetic table: all its rows with the same bins of the
    key columns have the same bin of the target, and it is theirs."""
    bins = np.concatenate([synthetic, key_of])
    _, group = np.unique(bins[:, list(key)], axis=0, return_inverse=True)
    group = group.ravel()
    of, rows, t = group[: len(synthetic)], group[len(synthetic) :], synthetic[:, target]
    n = int(group.max()) + 1
    low, high = np.full(n, np.iinfo(np.int32).max), np.full(n, -1)
    np.minimum.at(low, of, t)
    np.maximum.at(high, of, t)
    return float(((low[rows] == high[rows]) & (low[rows] == key_of[:, target])).mean())
