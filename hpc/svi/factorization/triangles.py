"""Symmetric matrices as lower triangles, row by row, as the kernels store them."""

from __future__ import annotations

import numpy as np


def packed(matrix: np.ndarray) -> np.ndarray:
    """Pack matrices (..., D, D) into triangles (..., T), T = D (D + 1) / 2."""
    i, j = np.tril_indices(matrix.shape[-1])
    return np.ascontiguousarray(matrix[..., i, j])


def unpacked(triangle: np.ndarray) -> np.ndarray:
    """Unpack triangles (..., T) into matrices (..., D, D)."""
    d = int(np.sqrt(2 * triangle.shape[-1]))
    i, j = np.tril_indices(d)
    matrix = np.empty((*triangle.shape[:-1], d, d))
    matrix[..., i, j] = matrix[..., j, i] = triangle
    return matrix


def in_both_halves(d: int) -> np.ndarray:
    """Weights (T,): 2 off the diagonal and 1 on it, so that tr(A B) is the weighted sum of the triangles' products."""
    i, j = np.tril_indices(d)
    return np.where(i == j, 1.0, 2.0)
