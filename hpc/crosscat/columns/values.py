"""Groups of rows with equal values in two random columns: starting points for sweeps that look for clusters.

Rows seated one by one open few clusters, and a single column seldom shows any.
"""

from __future__ import annotations

import numpy as np

from mpibayes.io.rows import Rows

BINS = 8  # quantile bins of a numeric column
N_COLUMNS = 2  # columns that define the groups
MOST = 16  # most labels


def compact(names: np.ndarray) -> np.ndarray:
    """Renumber names (n,), non-negative integers, as int32 labels 0, 1, ... without gaps, in the order of the names."""
    taken = np.bincount(names) > 0
    return (np.cumsum(taken) - 1).astype(np.int32)[names]


def by_value(rows: Rows, stream: np.random.Generator) -> np.ndarray:
    """Label rows by their values in N_COLUMNS random columns; return int32 (n,) below MOST. Missing is a value."""
    numbers = np.concatenate([rows.reals, rows.tallies, rows.vectors, rows.spells], axis=1)
    codes = [rows.codes8, rows.codes16]
    n_codes, n_numbers = sum(of.shape[1] for of in codes), numbers.shape[1]
    chosen = stream.permutation(n_codes + n_numbers)[:N_COLUMNS]
    numbers = numbers[:, chosen[chosen >= n_codes] - n_codes]
    rank = numbers.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    bins = np.where(np.isnan(numbers), BINS, rank * BINS // max(len(rows), 1))
    values = np.concatenate([np.concatenate(codes, axis=1)[:, chosen[chosen < n_codes]], bins], axis=1)
    names = np.zeros(len(rows), np.int64)
    for column in values.T:  # ten times as fast as `np.unique` of whole rows
        found, place = np.unique(column, return_inverse=True)
        names = names * len(found) + place
    return (np.unique(names, return_inverse=True)[1] % MOST).astype(np.int32)
