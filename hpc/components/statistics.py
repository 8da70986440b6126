"""Additive summaries of the rows of K clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, make_dataclass

import numpy as np

from mpibayes.hpc.components.component import Component
from mpibayes.hpc.components.kinds import KINDS


class Statistics(make_dataclass("Arrays", ["size", *(a.name for kind in KINDS for a in kind.statistics)])):
    """Sufficient statistics of K clusters for every column: the arrays that `kernels.accumulate` returns, in its order.

    size (K,) int64, rows; then those of each kind by their names (its `statistics`), (rows of its axis, K). Missing
    cells count in `levels`' missing rows alone.
    """

    def __len__(self) -> int:
        return len(self.size)

    def of(self, kind: Component | type[Component]) -> tuple[np.ndarray, ...]:
        """Those of one kind, as its methods take them."""
        return tuple(getattr(self, array.name) for array in kind.statistics)

    def take(self, clusters: np.ndarray) -> Statistics:
        """The statistics of some clusters, in the order given."""
        return Statistics(*(np.ascontiguousarray(getattr(self, f.name)[..., clusters]) for f in fields(self)))


def join(parts: Sequence[Statistics]) -> Statistics:
    """The clusters of all parts, one part after another."""
    return Statistics(*(np.concatenate([getattr(p, f.name) for p in parts], axis=-1) for f in fields(Statistics)))
