"""Population shares of clusters, estimated with survey weights, and their standard errors (docs/math.md 2.12)."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.crosscat.summaries.partitions import contingency, overlaps
from mpibayes.hpc.posterior.linearised import linearised_variance


class PopulationShares:
    """Weighted shares of the clusters of a partition, labels (N,) from 0, weights (N,), and their standard errors.

    share (K,). error: the standard error for these labels; once kept draws are added, the square root of the mean over
    draws of (variance of the draw's share + squared distance of the draw's share from `share`), where the draw's share
    is that of its cluster with the largest overlap.
    """

    def __init__(self, labels: np.ndarray, weights: np.ndarray):
        self._labels, self._weights, self._n_draws = labels, weights, 0
        in_cluster, squares = self._sums(labels)
        self.share = in_cluster / weights.sum()
        self._given, self._over_draws = linearised_variance(in_cluster, squares, weights), np.zeros(len(self.share))

    def _sums(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.bincount(labels, self._weights), np.bincount(labels, self._weights**2)

    def add(self, z: np.ndarray, together: np.ndarray | None = None) -> None:
        """Add a draw, labels (N,) from 0. together: `contingency` of the partition and the draw, if known."""
        together = contingency(self._labels, z) if together is None else together
        best = overlaps(together).argmax(axis=1)
        in_cluster, squares = (sums[best] for sums in self._sums(z))
        spread = (in_cluster / self._weights.sum() - self.share) ** 2
        self._over_draws += linearised_variance(in_cluster, squares, self._weights) + spread
        self._n_draws += 1

    @property
    def error(self) -> np.ndarray:
        """Standard errors of the shares, (K,)."""
        return np.sqrt(self._over_draws / self._n_draws if self._n_draws else self._given)
