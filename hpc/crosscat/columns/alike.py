"""Choice of the two views to merge: views with similar partitions of the rows are proposed more often.

The choice depends on the state, so its probability enters the acceptance: among the views before a merge, or among the
views after a split (docs/math.md 2.10).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ROWS = 2_000  # expected number of rows on which partitions are compared
FLOOR = 0.001  # weight of a pair of independent views; that of identical ones is about 1


def log_probabilities(labels: Sequence[np.ndarray]) -> np.ndarray:
    """Return the log probability of each pair of views, (V, V), symmetric; pairs i < j sum to 1. labels: of each view,
    for a subset of the rows (n,).

    The weight of a pair is FLOOR plus its mutual information, corrected for chance, divided by its joint entropy.
    """
    codes = [np.unique(z, return_inverse=True)[1] for z in labels]
    starts = np.cumsum([0, *(code.max(initial=0) + 1 for code in codes)])
    n = len(labels[0])
    member = np.zeros((n, starts[-1]), np.float32)
    for start, code in zip(starts, codes):
        member[np.arange(n), start + code] = 1.0
    counts = (member.T @ member).astype(np.float64)  # integers, exact in float32 below 2^24
    summed = np.add.reduceat(counts * np.log(np.maximum(counts, 1.0)), starts[:-1], axis=0)
    both = np.log(max(n, 1)) - np.add.reduceat(summed, starts[:-1], axis=1) / max(n, 1)  # entropies
    part = np.diag(both)
    sizes = np.diff(starts) - 1.0
    chance = np.outer(sizes, sizes) / (2.0 * max(n, 1))
    shared = np.divide(part[:, None] + part - both - chance, both, out=np.ones_like(both), where=both > 1e-9)
    weight = FLOOR + np.clip(shared, 0.0, 1.0)
    return np.log(weight) - np.log(np.triu(weight, 1).sum())


def draw(log_p: np.ndarray, u: float) -> tuple[int, int]:
    """Draw a pair i < j with the uniform number u."""
    i, j = np.triu_indices(len(log_p), 1)
    below = np.cumsum(np.exp(log_p[i, j]))
    at = min(int(np.searchsorted(below, u * below[-1], side="right")), len(i) - 1)
    return int(i[at]), int(j[at])
