"""Predictors that are linear combinations of others, found from the pooled matrix of products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.regression.mode.linear_algebra import cholesky

# Squared distance from the span of the others, relative to a predictor's own square. Predictors are float32, so an
# exact combination is off by some 1e-7, squared 1e-14; 1e-10 treats correlations beyond 0.99999999995 as exact.
TOLERANCE = 1e-10
SHOWN = 5


def combinations(gram: np.ndarray, names: Sequence[str] | None = None) -> list[str]:
    """Return a line for each predictor that is a linear combination of those before it; [] if none is.

    gram (D, D): sum of x x' over all rows. Cholesky factorisation in the order given, skipping columns whose pivot
    vanishes (as R's lm does), so that the later of two equal columns is named.
    """
    d = len(gram)
    names = names or [f"predictor {j + 1}" for j in range(d)]
    size = np.sqrt(np.diagonal(gram))
    size = np.where(size > 0, size, 1.0)
    rest = gram / np.outer(size, size)  # in the end what the accepted columns do not explain
    quick = cholesky(rest)
    if quick is not None and (np.diagonal(quick) ** 2 > TOLERANCE).all():
        return []
    diagonal = np.diagonal(rest).copy()
    factor = np.zeros((d, d))
    taken: list[int] = []
    lines = []
    for j in range(d):
        pivot = rest[j, j]
        if not pivot > TOLERANCE * diagonal[j] or diagonal[j] == 0.0:
            lines.append(_line(j, taken, factor, size, names))
            continue
        factor[:, j] = rest[:, j] / np.sqrt(pivot)
        rest[j:, j:] -= np.outer(factor[j:, j], factor[j:, j])
        taken.append(j)
    return lines


def _line(j: int, taken: list[int], factor: np.ndarray, size: np.ndarray, names: Sequence[str]) -> str:
    """Describe column j as a combination of accepted columns: solve L' c = l_j by back substitution."""
    lower, weight = factor[np.ix_(taken, taken)], factor[j, taken].copy()
    for i in reversed(range(len(taken))):
        weight[i] /= lower[i, i]
        weight[:i] -= weight[i] * lower[i, :i]
    weight *= size[j] / size[taken]
    parts = [(w, names[k]) for w, k in zip(weight, taken) if abs(w) * size[k] > 1e-4 * size[j]]
    if not parts:
        return f"'{names[j]}' is zero in every row"
    largest = sorted(parts, key=lambda part: -abs(part[0]))[:SHOWN]
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return f"'{names[j]}' is a combination of " + ", ".join(f"{w:.4g} '{name}'" for w, name in largest) + more
