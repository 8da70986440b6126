"""Columns that distinguish clusters, chosen greedily by what each adds to those before it.

Likeness of a column in two clusters is the Bhattacharyya coefficient of its distributions there: 1 if equal, 0 without
a common value. Within a cluster columns are independent, so for several columns it is the product: how far the two
clusters can still be confused. The next column is the one that leaves the least of it, summed over the pairs.
Information that columns share within clusters, as near twins do, is not counted twice: the coefficient is raised to the
share of the column's entropy that no chosen column explains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

ENOUGH = 0.01  # share of the initial confusion: columns that remove less are ordered by their divergence
SAME_STORY = 0.75  # a column is a twin, and left out, if a chosen one explains more of its entropy within clusters

# Shares that the second column explains of the first's entropy within clusters, and of its information about clusters.
Shared = Callable[[str, str], tuple[float, float]]


def likeness(p: np.ndarray, n: np.ndarray, everywhere: np.ndarray) -> np.ndarray:
    """Return Bhattacharyya coefficients (K, K) of distributions p (V, K) of n (K,) cells each. everywhere: distribution
    in all rows.

    Corrected for their bias in small clusters, about -(values - 1) (1 / n_k + 1 / n_l) / 8.
    """
    root = np.sqrt(p)
    seen = everywhere[everywhere > 0]
    values = np.exp(-(seen * np.log(seen)).sum())  # effective number of values
    rare = 1.0 / np.maximum(n, 1.0)
    chance = (values - 1.0) * (rare[:, None] + rare) / 8.0
    return np.clip(root.T @ root + chance, 1e-12, 1.0)


def choose(names: Sequence[str], alike: np.ndarray, divergence: np.ndarray, shared: Shared, most: int) -> list[int]:
    """Choose at most `most` of C columns; return their indices, in order. alike (C, P): coefficients for P pairs of
    clusters; divergence (C,): orders columns that add little, multiplied by their share of new information."""
    chosen: list[int] = []
    untaken, new = np.ones(
        (2, len(names))
    )  # unexplained shares of entropy within clusters, and of information about clusters
    logs = np.log(alike)
    left = np.ones(alike.shape[1])
    while len(chosen) < min(most, len(names)):
        rest = np.array([i for i in range(len(names)) if i not in chosen])
        taken = left.sum() - (left * np.exp(untaken[rest, None] * logs[rest])).sum(axis=1)
        no_twin = untaken[rest] > 1.0 - SAME_STORY
        if not no_twin.any():
            break
        more = len(left) > 0 and taken[no_twin].max() > ENOUGH * len(left)
        value = np.where(no_twin, taken if more else new[rest] * divergence[rest], -1.0)
        best = int(rest[np.argmax(value)])
        left = left * np.exp(untaken[best] * logs[best])
        chosen.append(best)
        for i in rest[rest != best]:
            within, shared_part = shared(names[i], names[best])
            untaken[i], new[i] = min(untaken[i], 1.0 - within), min(new[i], 1.0 - shared_part)
    return chosen


def nothing_shared(a: str, b: str) -> tuple[float, float]:
    return 0.0, 0.0


def shared_of(codes: Mapping[str, np.ndarray], z: np.ndarray) -> Shared:
    """Return a function of columns a and b: I(a; b | z) / H(a | z), and 1 - I(a; z | b) / I(a; z). From integer codes
    and clusters z of the same rows.

    I(a; b | z) is corrected for chance, which is measured with b's rows permuted within clusters. Where a has one value
    in each cluster the first share is 1 if b determines it, else 0.
    """
    known: dict[frozenset[str], tuple[float, float, float]] = {}
    order = np.argsort(z, kind="stable")
    z = np.unique(z[order], return_inverse=True)[1].astype(np.int64)
    compact = {name: np.unique(x[order], return_inverse=True)[1].astype(np.int64) for name, x in codes.items()}
    ends = np.searchsorted(z, np.arange(z.max(initial=-1) + 2))
    moved = np.concatenate([np.roll(np.arange(i, j), (j - i) // 2) for i, j in pairwise(ends)] or [order])
    of_z = _entropy(z)
    within = {name: _entropy(_joint(x, z)) - of_z for name, x in compact.items()}
    over_all = {name: _entropy(x) for name, x in compact.items()}

    def together(a: str, b: str) -> tuple[float, float, float]:
        """Return I(a; b | z), its value by chance, and I(a; b)."""
        pair = frozenset((a, b))
        if pair not in known:
            apart = within[a] + within[b] + of_z
            x, y = (compact[name] for name in sorted(pair))
            both, chance = (apart - _entropy(_joint(_joint(x, v), z)) for v in (y, y[moved]))
            known[pair] = both, chance, over_all[a] + over_all[b] - _entropy(_joint(x, y))
        return known[pair]

    def shared(a: str, b: str) -> tuple[float, float]:
        if a not in compact or b not in compact or over_all[a] <= 1e-9:
            return 0.0, 0.0
        both, chance, in_all = together(a, b)
        repeated = _share(in_all - (both - chance), over_all[a] - within[a])
        if within[a] <= 1e-9:
            return float(in_all >= over_all[a] - 1e-9), repeated
        return _share(both - chance, within[a] - chance), repeated

    return shared


def _share(part: float, whole: float) -> float:
    return float(np.clip(part / whole, 0.0, 1.0)) if whole > 1e-9 else 0.0


def _joint(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Combine two codes into one."""
    both = a * (b.max(initial=0) + 1) + b
    return both if both.max(initial=0) < 1 << 20 else np.unique(both, return_inverse=True)[1].astype(np.int64)


def _entropy(codes: np.ndarray) -> float:
    counts = np.bincount(codes)
    counts = counts[counts > 0]
    n = counts.sum()
    return float(np.log(n) - (counts * np.log(counts)).sum() / n)
