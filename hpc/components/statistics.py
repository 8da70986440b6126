"""Additive summaries of the rows of K clusters, and how those of several shards become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from mpibayes.hpc.components import multinormal as vector

VECTORS = ("vector_n", "vector_mean", "vector_scatter")


@dataclass
class Statistics:
    """Sufficient statistics of K clusters for every column. Missing cells count in `levels`' missing rows alone."""

    size: np.ndarray  # (K,) int64, rows
    levels: np.ndarray  # (L, K) int32, categorical cells by level row
    real_n: np.ndarray  # (R, K) int64, observed cells of real columns
    real_mean: np.ndarray  # (R, K) float64
    real_scatter: np.ndarray  # (R, K) float64, sum of squares about the mean
    tally_n: np.ndarray  # (Q, K) int64, observed cells of count columns
    tally_sum: np.ndarray  # (Q, K) float64, exact below 2^53
    vector_n: np.ndarray  # (B, K) int64, rows in which a block of columns is there
    vector_mean: np.ndarray  # (columns of all blocks, K) float64
    vector_scatter: np.ndarray  # (their pairs of columns, K) float64, sums of products about the means

    def __len__(self) -> int:
        return len(self.size)

    def take(self, clusters: np.ndarray) -> Statistics:
        """The statistics of some clusters, in the order given."""
        return Statistics(*(np.ascontiguousarray(getattr(self, f.name)[..., clusters]) for f in fields(self)))


def zeros(n_clusters: int, n_level_rows: int, n_real: int, n_count: int, widths=()) -> Statistics:
    """widths: columns of each block."""
    k, widths = n_clusters, np.asarray(widths, np.int64)
    return Statistics(
        np.zeros(k, np.int64),
        np.zeros((n_level_rows, k), np.int32),
        np.zeros((n_real, k), np.int64),
        np.zeros((n_real, k)),
        np.zeros((n_real, k)),
        np.zeros((n_count, k), np.int64),
        np.zeros((n_count, k)),
        np.zeros((len(widths), k), np.int64),
        np.zeros((widths.sum(), k)),
        np.zeros((vector.n_pairs(widths).sum(), k)),
    )


def union(a: Statistics, b: Statistics, widths=()) -> Statistics:
    """Statistics of clusters of `a` joined with those of `b`, pair by pair; one of them may have a single cluster.
    widths: columns of each block."""

    def both(x, y):
        return np.stack(np.broadcast_arrays(x, y))

    n, mean, scatter = (both(getattr(a, f), getattr(b, f)) for f in ("real_n", "real_mean", "real_scatter"))
    n, mean, scatter = merge_moments(n.astype(np.float64), mean, scatter)
    vectors = merge_vectors(*(both(getattr(a, f), getattr(b, f)) for f in VECTORS), widths)
    return Statistics(
        a.size + b.size, a.levels + b.levels, n.astype(np.int64), mean, scatter,
        a.tally_n + b.tally_n, a.tally_sum + b.tally_sum, *vectors,
    )  # fmt: skip


def join(parts: Sequence[Statistics]) -> Statistics:
    """The clusters of all parts, one part after another."""
    return Statistics(*(np.concatenate([getattr(p, f.name) for p in parts], axis=-1) for f in fields(Statistics)))


def merge_moments(n: np.ndarray, mean: np.ndarray, scatter: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Moments of the union of shards from the shards' moments.

    Arguments are (S, ...) arrays; the sum runs over the first axis in its order (Chan, Golub & LeVeque 1983), so
    that the result does not depend on which rank held which shard.
    """
    n, mean, scatter = n.copy(), mean.copy(), scatter.copy()
    total_n, total_mean, total_scatter = n[0], mean[0], scatter[0]
    for n_s, mean_s, scatter_s in zip(n[1:], mean[1:], scatter[1:]):
        both = total_n + n_s
        share = n_s / np.maximum(both, 1)
        step = np.where(n_s > 0, mean_s - total_mean, 0.0)
        total_scatter += scatter_s + step * step * (total_n * share)
        total_mean += step * share
        total_n = both
    return total_n, total_mean, total_scatter


def merge_vectors(n: np.ndarray, mean: np.ndarray, scatter: np.ndarray, widths: np.ndarray):
    """As `merge_moments`, of blocks of `widths` columns: n (S, B, ...), mean (S, columns, ...), scatter (S, pairs,
    ...)."""
    widths = np.asarray(widths, np.int64)
    of_column = np.repeat(np.arange(len(widths)), widths)
    of_pair = np.repeat(np.arange(len(widths)), vector.n_pairs(widths))
    i, j = _pairs(widths)
    total_n, total_mean, total_scatter = n[0].copy(), mean[0].copy(), scatter[0].copy()
    for n_s, mean_s, scatter_s in zip(n[1:], mean[1:], scatter[1:]):
        both = total_n + n_s
        share = n_s / np.maximum(both, 1)
        step = np.where((n_s > 0)[of_column], mean_s - total_mean, 0.0)
        total_scatter += scatter_s + step[i] * step[j] * (total_n * share)[of_pair]
        total_mean += step * share[of_column]
        total_n = both
    return total_n, total_mean, total_scatter


def _pairs(widths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two columns of every pair, counted through all blocks."""
    first, i, j = 0, [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for width in widths:
        rows, columns = np.tril_indices(width)
        i.append(first + rows)
        j.append(first + columns)
        first += width
    return np.concatenate(i), np.concatenate(j)
