"""Traits of groups given links (docs/links.md): of two linked columns, the one that characterises a group less is left
out of its traits if it adds almost nothing to the other.

A group's divergence from all rows in columns a and b jointly is a Kullback-Leibler divergence D(a, b) >= D(a) >= 0. For
a pair with D(a) >= D(b), D(a, b) - D(a) is the divergence of b from all rows given a, averaged over the group's values
of a (the chain rule). A link is the same in all clusters: if that is near 0, b merely follows from a.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpibayes.hpc.crosscat.report.traits import MIN_DIVERGENCE


class BesideLinks:
    """Linked columns. pairs: their names. codes: integer codes (n,) of the columns in every `step`-th training row."""

    def __init__(self, pairs: Sequence[tuple[str, str]] = (), codes: Mapping[str, np.ndarray] | None = None, step=1):
        codes = {name: _compact(x) for name, x in (codes or {}).items() if any(name in pair for pair in pairs)}
        self._codes, self._step = codes, step
        self._both = {
            (a, b): _compact(codes[a] * (codes[b].max() + 1) + codes[b]) for a, b in pairs if {a, b} <= set(codes)
        }

    def repeated(self, names: Sequence[str], labels: np.ndarray, n: int) -> np.ndarray:
        """Return the mask of columns that follow from another in each of n groups, bool (C, n). labels (N,): groups of
        the training rows, from 0."""
        result, z = np.zeros((len(names), n), bool), labels[:: self._step]
        place = {name: i for i, name in enumerate(names)}
        for (a, b), both in self._both.items():
            of_a, of_b = (_divergences(self._codes[name], z, n) for name in (a, b))
            follows = _divergences(both, z, n) - np.maximum(of_a, of_b) < MIN_DIVERGENCE
            for name, less in ((a, of_a < of_b), (b, of_a >= of_b)):
                if name in place:
                    result[place[name]] |= follows & less
        return result


def _compact(codes: np.ndarray) -> np.ndarray:
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _divergences(codes: np.ndarray, z: np.ndarray, n: int) -> np.ndarray:
    """Return the divergence of codes in each of n groups from all rows, nats (n,), less about its bias by chance."""
    v = int(codes.max(initial=0)) + 1
    counts = np.bincount(z * v + codes, minlength=n * v).reshape(n, v)
    rows, share = np.maximum(counts.sum(axis=1), 1), counts.sum(axis=0) / max(len(codes), 1)
    p = counts / rows[:, None]
    ratio = np.divide(p, share, out=np.ones_like(p), where=p > 0)
    width = np.exp(-(share * np.log(np.where(share > 0, share, 1.0))).sum())  # effective number of values
    return np.maximum((p * np.log(ratio)).sum(axis=1) - (width - 1.0) / (2.0 * rows), 0.0)
