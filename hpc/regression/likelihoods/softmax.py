"""Softmax regression: y a class number, log L = eta_y - log sum_k exp(eta_k); bounds (psi, g) of Böhning (1992)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.regression.likelihoods.classes import OfClasses, log_sum_exp, quoted, softmax
from mpibayes.kernels import firefly as kernels

LISTED = 6  # most classes in a line


class Softmax(OfClasses):
    """Softmax regression on two or more classes, each with its own coefficients."""

    name = title = "softmax"
    code = kernels.SOFTMAX
    needs_prior = (
        "softmax with a flat prior has no proper posterior: the same vector added to the coefficients of all classes "
        'changes nothing; set regression.prior = "gaussian"'
    )

    @staticmethod
    def n_classes_of(levels: Sequence[str]) -> int:
        return len(levels)

    def log_density(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        return _of_class(eta, y) - log_sum_exp(eta)

    def slope(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        return _one_hot(y, self.n_classes) - softmax(eta)

    def curvature(self, eta: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        """Weights of the second derivatives for pairs of different classes."""
        p = softmax(eta)
        return [-p[:, k] * p[:, j] for k, j in _pairs(self.n_classes)]

    @property
    def n_curvatures(self) -> int:
        return len(_pairs(self.n_classes))

    def join_curvatures(self, blocks: np.ndarray) -> np.ndarray:
        """Minus the second derivatives (P, P): the blocks of a class sum to zero."""
        k, d = self.n_classes, blocks.shape[1]
        whole = np.zeros((k, d, k, d))
        for (i, j), block in zip(_pairs(k), blocks):
            whole[i, :, j] = whole[j, :, i] = block
            whole[i, :, i] -= block
            whole[j, :, j] -= block
        return whole.reshape(k * d, k * d)

    @property
    def n_bounds(self) -> int:
        return 2 * self.n_classes

    def log_bound(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        psi, g = np.hsplit(bounds, 2)
        d = eta - psi
        flat = _of_class(psi, y) - log_sum_exp(psi)
        return flat + ((_one_hot(y, self.n_classes) - g) * d).sum(axis=1) - 0.5 * (d * _boehning(d)).sum(axis=1)

    def bound_terms(self, eta: np.ndarray, y: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        psi, g = np.hsplit(bounds, 2)
        return np.ones(len(y)), _one_hot(y, self.n_classes) - g - _boehning(eta - psi)

    @property
    def bound_matrix(self) -> np.ndarray:
        k = self.n_classes
        return 0.5 * (np.eye(k) - 1.0 / k)

    def probabilities(self, eta: np.ndarray) -> np.ndarray:
        return softmax(eta)

    def in_words(self, classes: Sequence[str]) -> str:
        few = ", ".join(map(quoted, classes[:LISTED])) + (", ..." if len(classes) > LISTED else "")
        return f"{len(classes)} classes, {few}"


def _pairs(n_classes: int) -> list[tuple[int, int]]:
    """Pairs of different classes (k, j), j < k, in the order of their blocks."""
    return [(k, j) for k in range(n_classes) for j in range(k)]


def _boehning(d: np.ndarray) -> np.ndarray:
    """Product A d with A = (I - 11'/K) / 2, for each row of d (n, K)."""
    return 0.5 * (d - d.mean(axis=1)[:, None])


def _one_hot(y: np.ndarray, n_classes: int) -> np.ndarray:
    return (y[:, None] == np.arange(n_classes)).astype(np.float64)


def _of_class(eta: np.ndarray, y: np.ndarray) -> np.ndarray:
    return eta[np.arange(len(y)), y.astype(np.int64)]
