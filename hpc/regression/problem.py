"""A regression's rows over shards and ranks, with its likelihood and its prior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mpibayes.errors import DataError
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.regression.likelihoods import LIKELIHOODS
from mpibayes.hpc.regression.prior import Prior
from mpibayes.kernels import firefly as kernels


class Problem:
    """Target of a chain: training rows, likelihood and prior. Collective.

    x_of(start, stop): (x float32 (n, D) or padded with zeros to a multiple of 8, y float64 (n,)) of training rows
    start..stop-1, or fewer if some are left out; called for the shards of this rank alone. y: as encoded by the
    likelihood, one of `LIKELIHOODS`. prior_scale: a number, or one per coefficient (K D,). intercept_scale: standard
    deviation of the Gaussian prior of the first predictor, an intercept; None: it is an ordinary predictor. `rows`:
    (shard number, kernels' Rows) of this rank, in order. `sizes`: rows of every shard, (n_shards,) int64.
    """

    def __init__(
        self,
        comm: Communicator,
        likelihood: str,
        x_of: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
        n_rows: int,
        given: shards.Setting,
        *,
        n_predictors: int | None = None,
        n_classes: int = 1,
        prior: str = "gaussian",
        prior_scale: float | np.ndarray = 2.5,
        intercept_scale: float | None = None,
        nu: float = 4.0,
        scale: float = 1.0,
    ):
        self.comm = comm
        cut = shards.starts(given, n_rows).tolist()
        self.n_shards = len(cut) - 1
        mine = shards.of_rank(self.n_shards, comm.size, comm.rank)
        blocks = agree(comm, lambda: {i: x_of(cut[i], cut[i + 1]) for i in mine}, "read its rows of the table")
        self.sizes = np.zeros(self.n_shards, np.int64)
        for i, (x, _) in blocks.items():
            self.sizes[i] = len(x)
        comm.sum_everywhere(self.sizes)
        self.n_rows = int(self.sizes.sum())
        if not self.n_rows:
            raise DataError("no row is left to train on: every one has a missing cell")
        d = n_predictors or comm.share(blocks[0][0].shape[1] if comm.rank == 0 else None)  # root has shard 0
        self.likelihood = LIKELIHOODS[likelihood](d, n_classes, nu, scale)
        self.prior = Prior.of(prior, prior_scale, self.n_parameters)
        if intercept_scale is not None:
            self.prior = self.prior.with_intercepts(np.arange(self.n_parameters) % d == 0, intercept_scale)
        self._blocks = blocks
        self.rows = self._kernel_rows()

    def _kernel_rows(self) -> list[tuple[int, kernels.Rows]]:
        return [(i, self.likelihood.rows(x, y)) for i, (x, y) in self._blocks.items()]

    def rescaled(self, prior: Prior, scale: float) -> None:
        """Replace the prior, and the scale of the t distribution."""
        self.prior = prior
        if scale != self.likelihood.scale:
            self.likelihood = replace(self.likelihood, scale=scale)
            self.rows = self._kernel_rows()

    @property
    def n_parameters(self) -> int:
        return self.likelihood.n_parameters
