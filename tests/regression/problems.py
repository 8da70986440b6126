"""Regressions simulated for the tests, dealt to ranks in shards; the three likelihoods side by side."""

from __future__ import annotations

import os

import numpy as np

from mpibayes.hpc.parallel import shards
from mpibayes.hpc.regression.likelihoods import Likelihood, Logistic, Softmax, StudentT
from mpibayes.kernels.firefly import Rows

LIKELIHOODS = {
    "logistic": Logistic(5),
    "softmax": Softmax(4, n_classes=3),
    "student-t": StudentT(6, nu=4.0, scale=0.5),
}


def seed(default: int) -> int:
    return int(os.environ.get("MPIBAYES_TEST_SEED", default))


def simulate(likelihood: Likelihood, n: int, default_seed: int = 7, size: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """x (n, W) float32 with an intercept, y (n,) float64."""
    rng = np.random.default_rng(seed(default_seed))
    d, k = likelihood.n_predictors, likelihood.n_classes
    x = np.zeros((n, -(-d // 8) * 8), np.float32)
    x[:, :d] = rng.normal(size=(n, d))
    x[:, 0] = 1.0
    eta = x[:, :d] @ (size * rng.normal(size=(d, k)))
    if isinstance(likelihood, Logistic):
        return x, np.where(rng.logistic(size=n) < eta[:, 0], 1.0, -1.0)
    if isinstance(likelihood, Softmax):
        return x, np.argmax(eta + rng.gumbel(size=eta.shape), axis=1).astype(np.float64)
    return x, eta[:, 0] + likelihood.scale * rng.standard_t(likelihood.nu, size=n)


def rows_of(likelihood: Likelihood, x: np.ndarray, y: np.ndarray) -> Rows:
    return likelihood.rows(np.ascontiguousarray(x), y.copy())


def dealt(comm, likelihood: Likelihood, x: np.ndarray, y: np.ndarray, n_shards: int = 5) -> list[tuple[int, Rows]]:
    """This rank's shards."""
    cut = shards.bounds(len(y), n_shards)
    mine = shards.of_rank(n_shards, comm.size, comm.rank)
    return [(i, rows_of(likelihood, x[cut[i] : cut[i + 1]], y[cut[i] : cut[i + 1]])) for i in mine]
