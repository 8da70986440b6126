"""Cholesky factor and inverse whose bits do not depend on the number of BLAS threads.

A library's factorisation splits its sums by the number of threads available, which differs between one rank and four on
the same machine; the chain must not. `einsum` without `optimize` uses its own loops: 3 to 5 multiply-adds a nanosecond,
half a second for 1,000 coefficients, paid a dozen times a run.
"""

from __future__ import annotations

import numpy as np

BLOCK = 32
ROUNDING = 1e-13  # a pivot this small, relative to its diagonal entry, is rounding


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Product a b' of C-contiguous a (m, k) and b (n, k), (m, n)."""
    return np.einsum("ik,jk->ij", a, b)


def cholesky(a: np.ndarray) -> np.ndarray | None:
    """Lower factor L of a symmetric matrix (p, p), a = L L'; None if it is not positive definite."""
    p = len(a)
    factor = np.tril(a)
    least = ROUNDING * np.maximum(np.diagonal(a), 0.0)
    for start in range(0, p, BLOCK):
        stop = min(start + BLOCK, p)
        if start:
            factor[start:, start:stop] -= product(factor[start:, :start], factor[start:stop, :start])
        for j in range(start, stop):
            column = factor[j:, j]
            if j > start:
                column -= np.einsum("ik,k->i", factor[j:, start:j], factor[j, start:j])
            if not column[0] > least[j]:  # also if it is NaN
                return None
            column /= np.sqrt(column[0])
        factor[start:stop, start:stop] = np.tril(factor[start:stop, start:stop])
    return factor


def inverse_factor(factor: np.ndarray) -> np.ndarray:
    """Inverse of a lower triangular matrix (p, p)."""
    p = len(factor)
    inverse = np.zeros((p, p))
    for start in range(0, p, BLOCK):
        stop = min(start + BLOCK, p)
        right = np.zeros((stop - start, stop))
        right[:, start:] = np.eye(stop - start)
        if start:
            right[:, :start] = -np.einsum("ik,kj->ij", factor[start:stop, :start], inverse[:start, :start])
        for i in range(start, stop):
            row = right[i - start]
            if i > start:
                row -= np.einsum("k,kj->j", factor[i, start:i], inverse[start:i, :stop])
            inverse[i, :stop] = row / factor[i, i]
    return inverse


def inverse(a: np.ndarray) -> np.ndarray | None:
    """Inverse of a symmetric positive definite matrix (p, p), exactly symmetric; None if it is not definite."""
    factor = cholesky(a)
    if factor is None:
        return None
    columns = np.ascontiguousarray(inverse_factor(factor).T)
    return product(columns, columns)


def solve(factor: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Solve L L' x = b, given L (p, p) and b (p,)."""
    x = np.array(b, np.float64)
    p = len(x)
    for j in range(p):
        x[j] /= factor[j, j]
        x[j + 1 :] -= x[j] * factor[j + 1 :, j]
    for j in range(p - 1, -1, -1):
        x[j] /= factor[j, j]
        x[:j] -= x[j] * factor[j, :j]
    return x
