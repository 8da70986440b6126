"""Noise of stochastic variational inference, of a size independent of the batch's (docs/math.md 8.2).

Each row n of a batch S counts w_n times, where the w_n sum to |S| and, given S, the mean of w_n t_n has the covariance
(1 / M - 1 / |S|) Cov(t) about the batch's: the additional variance of a batch of M rows. M is the effective batch size.
The rows' random numbers are keyed by the iteration and the row.

Paisley, Fazelnia & Barr, "Stochastic variational inference with tuneable stochastic annealing".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.streams import Stream

KINDS = ("none", "svi+", "positive")


@dataclass(frozen=True)
class Noise:
    """Kind of noise: "svi+" has Gaussian w_n = 1 + e_n - mean(e), possibly negative; "positive" |S| Dirichlet(k, ...,
    k)."""

    kind: str

    def at_work(self, n_batch: int, effective: float) -> bool:
        """True if noise is added: the batch is larger than the effective one."""
        return self.kind != "none" and effective < n_batch

    def numbers(
        self, comm: Communicator, rows: list[np.ndarray], n_batch: int, effective: float, stream: Stream
    ) -> list[np.ndarray]:
        """Random number of each row of this rank's shards, float64. rows: row ids, by shard.

        For "svi+" they are e_n, for "positive" Gamma(k) draws up to a common factor. Collective.
        """
        excess = n_batch / effective - 1.0
        if self.kind == "svi+":
            return [np.sqrt(excess) * stream.normals(ids) for ids in rows]
        shape = (n_batch / excess - 1.0) / n_batch
        logs = [stream.log_gammas(np.full(len(ids), shape), ids) for ids in rows]
        largest = max(comm.collect(max((float(log.max()) for log in logs if len(log)), default=-np.inf)))
        return [np.exp(log - largest) for log in logs]

    def deviation(self, total: np.ndarray, weighted: np.ndarray, numbers: float, n_batch: int) -> np.ndarray:
        """Noise to add to `total`, the batch's sum of t_n. weighted, numbers: sums of t_n times the rows' random
        numbers, and of these numbers."""
        if self.kind == "svi+":
            return weighted - numbers / n_batch * total
        return n_batch / numbers * weighted - total
