"""Clusters of a population, from the survey weights of the training rows (docs/math.md 2.12).

The posterior is that of the unweighted rows: nothing here changes the draws. Given the labels of a draw, clusters are
weighted by the sum of their rows' weights instead of the number of rows.
"""

from __future__ import annotations

import numpy as np


def mean_weights(labels: np.ndarray, weights: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return the mean weight of the rows of each cluster, (K,). labels (N,); size (K,): all positive."""
    return np.bincount(labels, weights, len(size)) / size


def log_cluster_weights(
    size: np.ndarray, concentration: float, discount: float, mean_weight: np.ndarray | None = None
) -> np.ndarray:
    """Return the log weights of K clusters of `size` (K,) and of a new one, (K + 1,), under the Pitman-Yor process.

    mean_weight (K,): of each cluster's rows; the clusters then divide their total weight in proportion to
    (size - discount) mean_weight, and a new one keeps its weight. Equal mean weights change nothing, to the bit.
    """
    seated = size - discount
    if mean_weight is not None:
        seated = seated * (mean_weight * (seated.sum() / (seated * mean_weight).sum()))
    with np.errstate(divide="ignore"):
        log = np.log(np.append(seated, concentration + len(size) * discount))
    return log - np.log(size.sum() + concentration)
