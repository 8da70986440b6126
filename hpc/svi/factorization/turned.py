"""Factors in a unique rotation, for display (docs/math.md 8.9).

u'v is invariant under opposite linear maps of u and v. The one chosen gives users' factors unit covariance and makes
items' factors independent, the strongest first: then a factor's standard deviation among items is its effect on
ratings. With biases, factors are centered at their prior means, and the biases absorb the shift.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.svi.factorization.model import State


@dataclass(frozen=True)
class Turned:
    """Linear maps of factors. of_users, of_items (d, d): multiply u and v minus user_mean and item_mean (d,). center:
    mu plus the means of the biases. strength (d,): standard deviation of a factor's part of a rating. user_bias,
    item_bias: those of the biases, 0 without."""

    of_users: np.ndarray
    of_items: np.ndarray
    user_mean: np.ndarray
    item_mean: np.ndarray
    shift: np.ndarray
    center: float
    strength: np.ndarray
    user_bias: float
    item_bias: float
    biased: bool

    @classmethod
    def of(cls, q: State, biased: bool) -> Turned:
        d = len(q.user_mean) - biased
        root = np.linalg.cholesky(q.user_covariance[:d, :d])
        size, axis = np.linalg.eigh(root.T @ q.item_covariance[:d, :d] @ root)
        order = np.argsort(-size, kind="stable")
        axis = axis[:, order]
        axis = axis * np.where(axis[np.abs(axis).argmax(axis=0), np.arange(d)] < 0, -1.0, 1.0)
        of_users, of_items = axis.T @ np.linalg.inv(root), axis.T @ root.T
        strength = np.sqrt(np.maximum(size[order], 0.0))
        if not biased:
            none = np.zeros(d)
            return cls(of_users, of_items, none, none, np.zeros(2), float(q.center[0]), strength, 0.0, 0.0, False)
        m, n = q.user_mean[:d], q.item_mean[:d]
        shift = np.array([q.user_mean[d], q.item_mean[d] + m @ n])  # means of the two biases
        wide_u, wide_v = np.append(n, 1.0), np.append(m, 1.0)
        sds = [float(np.sqrt(w @ s @ w)) for w, s in ((wide_u, q.user_covariance), (wide_v, q.item_covariance))]
        return cls(of_users, of_items, m, n, shift, float(q.center[0] + shift.sum()), strength, *sds, True)

    def users(self, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Biases (n,) and factors (n, d) of users with these means (n, D)."""
        d = len(self.strength)
        u = mean[:, :d] - self.user_mean
        bias = mean[:, d] + u @ self.item_mean - self.shift[0] if self.biased else np.zeros(len(mean))
        return bias, u @ self.of_users.T

    def items(self, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Biases and turned factors of items."""
        d = len(self.strength)
        v = mean[:, :d] - self.item_mean
        bias = mean[:, d] + mean[:, :d] @ self.user_mean - self.shift[1] if self.biased else np.zeros(len(mean))
        return bias, v @ self.of_items.T
