"""Held-out log predictive density, for each draw and averaged over draws (docs/math.md 7.10)."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.data.rows import HeldOutRows
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.features import Features
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import Communicator


class HeldOut:
    """Scores of the held-out rows. `log_sums[i]` (rows of block i,): log of the sum of p(x) over averaged draws."""

    def __init__(self, comm: Communicator, rows: HeldOutRows, cells: Cells):
        self.comm, self.n_rows = comm, rows.n_rows
        self.x = {i: cells.of(block) for i, block in sorted(rows.blocks.items())}
        self._log_scale = {i: np.where(np.isnan(x), 0.0, cells.log_scale).sum(axis=1) for i, x in self.x.items()}
        self.n_draws = 0
        self.log_sums = {i: np.full(len(block), -np.inf) for i, block in rows.blocks.items()}

    def score(self, law: Features, n_shards: int, average: bool) -> tuple[float, float]:
        """Mean log density per held-out row under the current draw, and under the average of the draws so far.

        Collective; valid on root. law: of the draw (`law_everywhere`). average: True if it joins the average.
        """
        self.n_draws += average
        sums = np.zeros((len(self.x), 2))
        for row, (i, x) in enumerate(self.x.items()):
            log_density = law.log_density(x)[0] - self._log_scale[i]
            if average:
                self.log_sums[i] = np.logaddexp(self.log_sums[i], log_density)
            sums[row] = log_density.sum(), self.log_sums[i].sum()
        everyone = by_shard(self.comm, sums, n_shards)
        if self.comm.rank != 0:
            return np.nan, np.nan
        now, averaged = (sum(everyone[:, j].tolist()) / self.n_rows for j in (0, 1))
        return now, averaged - np.log(self.n_draws) if self.n_draws else np.nan


def by_shard(comm: Communicator, sums: np.ndarray, n_shards: int) -> np.ndarray | None:
    """Gather the rows of `sums` of all shards, (n_shards, ...), on root. sums: those of this rank. Collective."""
    return comm.gather_to_root(sums, [len(shards.of_rank(n_shards, comm.size, rank)) for rank in range(comm.size)])


def law_everywhere(buffet: Buffet) -> Features:
    """Predictive distribution of a new row given the chain's state: computed on root, known to all ranks.
    Collective."""
    comm, owned = buffet.comm, buffet.totals.owned
    there = np.flatnonzero(owned > 0)
    k, d = len(there), buffet.n_columns
    message = np.zeros(k * d + k * k + k + d + 2)
    if comm.rank == 0:
        t = buffet.totals
        message[:] = Features.of(t.together[np.ix_(there, there)], t.cells[there], buffet.n_rows, buffet.hyper).packed()
    comm.broadcast(message)
    return Features.unpacked(message, k, d)
