"""Multivariate normals of the clusters, with the interface of a multivariate t."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.components.predictive import Predictive

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass
class Normals(Predictive):
    """Multivariate normals: matrices are covariances, and degrees of freedom are infinite."""

    def log_density(self, x: np.ndarray, seen: np.ndarray) -> np.ndarray:
        norm, log_determinant, _ = self._norm(x, seen)
        return -0.5 * (norm + log_determinant + len(seen) * LOG_2PI)

    def conditional(self, x: np.ndarray, seen: np.ndarray, lacking: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        each = [self.single(x, seen, int(m)) for m in lacking]
        return np.stack([of[0] for of in each], axis=2), np.stack([of[1] ** 2 for of in each], axis=2)

    def single(self, x: np.ndarray, seen: np.ndarray, member: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        form = len(x), len(self.nu)
        variance = self.matrix[:, member, member]
        if not len(seen):
            return np.broadcast_to(self.location[:, member], form), np.broadcast_to(np.sqrt(variance), form), self.nu
        _, mean, cross, slope = self._given(x, seen, np.array([member]))
        rest = np.maximum(variance - (cross * slope).sum(axis=1)[:, 0], 0.0)
        return mean[:, :, 0], np.broadcast_to(np.sqrt(rest), form), self.nu

    def together(self, x: np.ndarray, seen: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean (n, K, len(members)) and covariance (K, len(members), len(members)) of columns given the
        cells x of the columns `seen`."""
        matrix = self.matrix[:, members[:, None], members]
        if not len(seen):
            return np.broadcast_to(self.location[:, members], (len(x), *self.location[:, members].shape)), matrix
        _, mean, cross, slope = self._given(x, seen, members)
        return mean, matrix - cross.swapaxes(1, 2) @ slope
