"""Which columns tell clusters apart: chosen one by one, each by what it adds to those before it.

How alike a column is in two clusters is the Bhattacharyya coefficient of its distributions there, 1 for equal ones and
0 for those without a common value. Within a cluster columns are independent, so that for several columns it is their
product: how far the pair can still be mistaken for one another. The next column is the one that leaves the least of it,
summed over the pairs. What columns share within clusters, as near twins do, is not counted twice: the coefficient is
raised to the share of the column's entropy that no chosen one explains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

ENOUGH = 0.01  # of what could be mistaken at first: columns that take away less are ordered by their divergence
SAME_STORY = 0.75  # a column of whose entropy within clusters a chosen one explains more is a twin, and left out

Shared = Callable[[str, str], float]  # share of the first column's entropy within clusters that the second explains


def likeness(p: np.ndarray, n: np.ndarray, everywhere: np.ndarray) -> np.ndarray:
    """Bhattacharyya coefficients (K, K) of distributions p (V, K) of n (K,) cells each; everywhere: that of all rows.

    Less what chance alone takes from them in small clusters, about (values - 1) (1 / n_k + 1 / n_l) / 8.
    """
    root = np.sqrt(p)
    seen = everywhere[everywhere > 0]
    values = np.exp(-(seen * np.log(seen)).sum())  # effective number of values
    rare = 1.0 / np.maximum(n, 1.0)
    chance = (values - 1.0) * (rare[:, None] + rare) / 8.0
    return np.clip(root.T @ root + chance, 1e-12, 1.0)


def choose(names: Sequence[str], alike: np.ndarray, divergence: np.ndarray, shared: Shared, most: int) -> list[int]:
    """At most so many of C columns, in order: numbers. alike (C, P): their coefficients for P pairs of clusters;
    divergence (C,): the order, less what is shared, of those that take little away."""
    chosen: list[int] = []
    own = np.ones(len(names))  # share of each column's entropy that no chosen one explains
    logs = np.log(alike)
    left = np.ones(alike.shape[1])
    while len(chosen) < min(most, len(names)):
        rest = np.array([i for i in range(len(names)) if i not in chosen])
        taken = left.sum() - (left * np.exp(own[rest, None] * logs[rest])).sum(axis=1)
        new = own[rest] > 1.0 - SAME_STORY
        if not new.any():
            break
        more = len(left) > 0 and taken[new].max() > ENOUGH * len(left)
        value = np.where(new, taken if more else own[rest] * divergence[rest], -1.0)
        best = int(rest[np.argmax(value)])
        left = left * np.exp(own[best] * logs[best])
        chosen.append(best)
        for i in rest[rest != best]:
            own[i] = min(own[i], 1.0 - shared(names[i], names[best]))
    return chosen


def nothing_shared(a: str, b: str) -> float:
    return 0.0


def shared_within(codes: Mapping[str, np.ndarray], z: np.ndarray) -> Shared:
    """I(a; b | z) / H(a | z), from integer codes and clusters z of the same rows, less what chance alone gives, which
    is measured with b's rows moved around within clusters. Where a has one value in each cluster: 1 if b says which,
    else 0."""
    known: dict[frozenset[str], tuple[float, float]] = {}
    order = np.argsort(z, kind="stable")
    z = np.unique(z[order], return_inverse=True)[1].astype(np.int64)
    compact = {name: np.unique(x[order], return_inverse=True)[1].astype(np.int64) for name, x in codes.items()}
    ends = np.searchsorted(z, np.arange(z.max(initial=-1) + 2))
    moved = np.concatenate([np.roll(np.arange(i, j), (j - i) // 2) for i, j in pairwise(ends)] or [order])
    of_z = _entropy(z)
    within = {name: _entropy(_joint(x, z)) - of_z for name, x in compact.items()}

    def together(a: str, b: str) -> tuple[float, float]:
        """I(a; b | z), and what chance gives."""
        pair = frozenset((a, b))
        if pair not in known:
            apart = within[a] + within[b] + of_z
            x, y = (compact[name] for name in sorted(pair))
            known[pair] = tuple(apart - _entropy(_joint(_joint(x, v), z)) for v in (y, y[moved]))
        return known[pair]

    def shared(a: str, b: str) -> float:
        if a not in compact or b not in compact:
            return 0.0
        if within[a] <= 1e-9:
            return float(_entropy(_joint(compact[a], compact[b])) - _entropy(compact[b]) <= 1e-9)
        both, chance = together(a, b)
        left = within[a] - chance
        return float(np.clip((both - chance) / left, 0.0, 1.0)) if left > 1e-9 else 0.0

    return shared


def _joint(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One code for both."""
    both = a * (b.max(initial=0) + 1) + b
    return both if both.max(initial=0) < 1 << 20 else np.unique(both, return_inverse=True)[1].astype(np.int64)


def _entropy(codes: np.ndarray) -> float:
    counts = np.bincount(codes)
    counts = counts[counts > 0]
    n = counts.sum()
    return float(np.log(n) - (counts * np.log(counts)).sum() / n)
