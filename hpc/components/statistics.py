"""Additive summaries of the rows of K clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import make_dataclass
from operator import attrgetter

import numpy as np

from mpibayes.hpc.components.component import Component
from mpibayes.hpc.components.kinds import KINDS

NAMES = {kind.name: tuple(array.name for array in kind.statistics) for kind in KINDS}
ARRAYS_OF = {name: attrgetter(*of) if len(of) > 1 else None for name, of in NAMES.items()}  # None: one array alone


class Statistics(make_dataclass("Arrays", ["size", *(a.name for kind in KINDS for a in kind.statistics)])):
    """Sufficient statistics of K clusters for every column: the arrays that `kernels.accumulate` returns, in its order.

    size (K,) int64: rows per cluster; then the arrays of each kind under their names (its `statistics`), (rows of the
    axis, K). Missing cells count in the missing rows of `levels` alone.
    """

    def __len__(self) -> int:
        return len(self.size)

    def of(self, kind: Component | type[Component]) -> tuple[np.ndarray, ...]:
        """Statistics of one kind, as its methods take them."""
        arrays_of = ARRAYS_OF[kind.name]
        return arrays_of(self) if arrays_of else (getattr(self, NAMES[kind.name][0]),)

    def take(self, clusters: Sequence[int]) -> Statistics:
        """Select the statistics of clusters, in the order given."""
        clusters = np.asarray(clusters, np.intp)
        k = len(clusters)
        arrays = vars(self).values()
        return Statistics(*[a.take(clusters, -1) if a.size else np.empty((*a.shape[:-1], k), a.dtype) for a in arrays])

    def between(self, first: int, last: int) -> Statistics:
        """Select the statistics of clusters first to last - 1, not copied."""
        return Statistics(*[a[..., first:last] for a in vars(self).values()])


def empty(like: Statistics, n_clusters: int) -> Statistics:
    """Statistics of empty clusters."""
    return Statistics(*(np.zeros((*array.shape[:-1], n_clusters), array.dtype) for array in vars(like).values()))


def join(parts: Sequence[Statistics]) -> Statistics:
    """Concatenate the clusters of all parts."""
    k = sum(map(len, parts))
    each = zip(*(vars(part).values() for part in parts))
    return Statistics(
        *[
            np.concatenate(a, -1) if a[0].ndim == 1 or len(a[0]) else np.empty((*a[0].shape[:-1], k), a[0].dtype)
            for a in each
        ]
    )
