"""Columns from any views whose likelihood under partitions of the rows a move needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.columns.cells import Gather
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.io.rows import ARRAYS, Rows


@dataclass(frozen=True)
class Labelled:
    """Pairs (cells, labels), one for each of this rank's shards. at: places of the rows to use; None: all rows."""

    cells: Gather
    z: Sequence[np.ndarray]
    at: Sequence[np.ndarray] | None = None

    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]:
        for i, z in enumerate(self.z):
            at = None if self.at is None else self.at[i]
            yield self.cells(i, at), z if at is None else z[at]


@dataclass(frozen=True)
class Subject:
    """Columns of a move. hyper: hyperparameters of the columns, without concentration and discount. shards: of this
    rank, without cells. labels: of any view, negative for idle rows. n_active: number of active rows on all ranks."""

    comm: Communicator
    components: Components
    hyper: Hyper
    cells: Gather
    shards: Sequence[Shard]
    labels: Sequence[np.ndarray]
    n_active: int
    n_shards: int

    def active(self, i: int) -> np.ndarray:
        """Return a mask of the active rows of this rank's i-th shard, (n,) bool."""
        return self.labels[i] >= 0

    def labelled(self, z: Sequence[np.ndarray]) -> Labelled:
        """Return the pairs (cells, labels) of each shard; cells are gathered during iteration."""
        return Labelled(self.cells, z)

    def log_likelihood(self, z: Sequence[np.ndarray], n_labels: int) -> float:
        """Return the log marginal likelihood of all cells given labels of each shard, on root; NaN elsewhere.
        Collective."""
        result = sync.total_statistics(self.comm, self.components, self.labelled(z), n_labels, self.n_shards)
        if result is None:
            return np.nan
        marginals = self.components.log_marginal(self.hyper, result, self.components.everything)
        return sum(float(kind.sum()) for kind in marginals)

    def to_root(self, chosen: Sequence[np.ndarray], root: int = 0) -> Rows | None:
        """Gather the rows at these places of each shard on one rank, in shard order; None elsewhere. Collective."""
        parts = [self.cells(i, at) for i, at in enumerate(chosen)]
        lengths = self.comm.collect(sum(map(len, parts)))
        arrays = {}
        for name, dtype in ARRAYS.items():
            arrays[name] = np.empty((sum(lengths), self.cells.n_cells[name]), dtype)
            if self.cells.n_cells[name]:
                mine = np.concatenate([arrays[name][:0], *(getattr(part, name) for part in parts)])
                arrays[name] = self.comm.gather_to_root(np.ascontiguousarray(mine), lengths, root)
        if self.comm.rank != root:
            return None
        return Rows(**arrays, widths=self.cells.widths)
