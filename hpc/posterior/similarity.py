"""Similarity of two partitions of the same rows."""

from __future__ import annotations

import numpy as np


def similarity(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Adjusted Rand index (Hubert & Arabie 1985) and variation of information, in nats, of two partitions of rows.

    The index is 1 for equal partitions and 0 on average for independent ones with the same cluster sizes.
    """
    a, b = a.astype(np.int64), b.astype(np.int64)
    _, together = np.unique(a * (b.max() + 1) + b, return_counts=True)
    return _similarity(np.unique(a, return_counts=True)[1], np.unique(b, return_counts=True)[1], together)


def similarity_of(together: np.ndarray) -> tuple[float, float]:
    """Similarity of two partitions from their `contingency`."""
    counts = together.sum(axis=1), together.sum(axis=0), together.ravel()
    return _similarity(*(c[c > 0] for c in counts))


def _similarity(of_a: np.ndarray, of_b: np.ndarray, of_both: np.ndarray) -> tuple[float, float]:
    """Similarity from the sizes of each partition's clusters and of their intersections, all positive."""
    n, counts = of_both.sum(), [c.astype(np.float64) for c in (of_a, of_b, of_both)]
    pairs_a, pairs_b, pairs = (float((c * (c - 1)).sum()) / 2.0 for c in counts)
    expected, most = pairs_a * pairs_b / max(n * (n - 1) / 2.0, 1.0), (pairs_a + pairs_b) / 2.0
    entropy_a, entropy_b, joint = (float(np.log(n) - (c * np.log(c)).sum() / n) for c in counts)
    ari = 1.0 if most == expected else (pairs - expected) / (most - expected)  # both one cluster, or all singletons
    return ari, max(2.0 * joint - entropy_a - entropy_b, 0.0)
