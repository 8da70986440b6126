"""Some columns by themselves, wherever their cells are held: what a move asks them about partitions of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat import sync
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.io.rows import ARRAYS, Rows


@dataclass(frozen=True)
class Subject:
    """shards: this rank's, with the cells of these columns alone. hyper: theirs, but for concentration and discount.
    active: which rows of each shard are not idle, (n,) bool; n_active: how many on all ranks."""

    comm: Communicator
    components: Components
    hyper: Hyper
    shards: Sequence[Shard]
    active: Sequence[np.ndarray]
    n_active: int
    n_shards: int

    def log_likelihood(self, z: Sequence[np.ndarray], n_labels: int) -> float:
        """Log marginal likelihood of all cells given labels of each shard, on root; NaN elsewhere. Collective."""
        labelled = [(shard.rows, own) for shard, own in zip(self.shards, z)]
        found = sync.total_statistics(self.comm, self.components, labelled, n_labels, self.n_shards)
        if found is None:
            return np.nan
        marginals = self.components.log_marginal(self.hyper, found, self.components.everything)
        return sum(float(kind.sum()) for kind in marginals)

    def to_root(self, chosen: Sequence[np.ndarray]) -> Rows | None:
        """The rows at these places of each shard on root, in the order of shards; None elsewhere. Collective."""
        parts = [shard.rows.take(at) for shard, at in zip(self.shards, chosen)]
        lengths = self.comm.collect(sum(map(len, parts)))
        columns = [c for kind in self.components.kinds for c in kind.columns]
        arrays = {}
        for name, dtype in ARRAYS.items():
            blank = np.empty((0, sum(c.block == name for c in columns)), dtype)
            mine = np.concatenate([blank, *(getattr(part, name) for part in parts)])
            arrays[name] = self.comm.gather_to_root(np.ascontiguousarray(mine), lengths)
        widths = [len(kind.members(c)) for kind in self.components.kinds for c in range(len(kind))]
        widths = [w for w in widths if w > 1] if arrays["vectors"] is not None and arrays["vectors"].shape[1] else []
        return None if self.comm.rank else Rows(**arrays, widths=np.array(widths, np.int64))
