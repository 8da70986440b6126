"""Partitions of rows and their similarity; labels count from 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def posterior_of_count(draws: np.ndarray) -> dict[int, float]:
    """Return {value: share of the draws}, values ascending; for the number of clusters."""
    values, times = np.unique(np.asarray(draws).astype(np.int64), return_counts=True)
    return {int(v): float(t / len(draws)) for v, t in zip(values, times, strict=True)}


def contingency(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Count the rows in cluster i of partition `a` and j of `b`, (K_a, K_b) int64; labels (N,) from 0."""
    k_a, k_b = int(a.max()) + 1, int(b.max()) + 1
    return np.bincount(a * np.int64(k_b) + b, minlength=k_a * k_b).reshape(k_a, k_b)


def variations(partitions: np.ndarray) -> np.ndarray:
    """Return the variation of information between partitions, nats, (D, D); partitions (D, M) labels from 0.

    VI(a, b) = 2 H(a, b) - H(a) - H(b), H the entropy of the shares of the M rows (Meilă 2007).
    """
    n_draws, n_rows = partitions.shape
    n = np.arange(n_rows + 1, dtype=np.float64)
    n_log_n = n * np.log(np.maximum(n, 1.0))

    def entropy(counts):
        return np.log(n_rows) - n_log_n[counts].sum() / n_rows

    partitions = np.stack([np.unique(z, return_inverse=True)[1] for z in partitions]).astype(np.int64)
    single = np.array([entropy(np.bincount(z)) for z in partitions])
    distance = np.zeros((n_draws, n_draws))
    for i in range(n_draws):
        for j in range(i):
            joint = entropy(np.bincount(partitions[i] * (partitions[j].max() + 1) + partitions[j]))
            distance[i, j] = distance[j, i] = max(2.0 * joint - single[i] - single[j], 0.0)
    return distance


def overlaps(together: np.ndarray) -> np.ndarray:
    """Return the overlap (Jaccard: rows in both / rows in either) of each cluster of one partition with each of
    another, (K_a, K_b). together: `contingency` of the two.
    """
    either = together.sum(axis=1)[:, None] + together.sum(axis=0) - together
    return together / np.maximum(either, 1)


def jaccard(together: np.ndarray) -> np.ndarray:
    """Return the largest overlap of each cluster of the first partition with one of the second, (K_a,)."""
    return overlaps(together).max(axis=1)


def by_size(labels: np.ndarray) -> np.ndarray:
    """Renumber the clusters of a partition from the largest (0) to the smallest; ties by first row."""
    size = np.bincount(labels)
    first = np.full(len(size), len(labels))
    np.minimum.at(first, labels, np.arange(len(labels)))
    order = np.lexsort((first, -size))
    number = np.empty(len(size), np.int64)
    number[order] = np.arange(len(size))
    return number[labels]


def ordered_sizes(sizes: Sequence[np.ndarray], most: int) -> np.ndarray:
    """Return the cluster sizes of each draw, largest first, padded with 0, (D, most)."""
    table = np.zeros((len(sizes), most), np.int64)
    for row, size in zip(table, sizes, strict=True):
        largest = np.sort(size)[::-1][:most]
        row[: len(largest)] = largest
    return table


def nearest(subset: np.ndarray, distances: np.ndarray, eligible: np.ndarray | None = None) -> int:
    """Return the draw in `eligible` (default: `subset`) with the least mean distance to `subset`; first on a tie."""
    eligible = subset if eligible is None else eligible
    return int(eligible[np.argmin(np.round(distances[np.ix_(eligible, subset)].mean(axis=1), 12))])


def typical(counts: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the draws that have low to high clusters, ascending; if there are none, the nearest ones."""
    beyond = np.maximum(np.maximum(low - counts, counts - high), 0.0)
    return np.flatnonzero(beyond == beyond.min())
