"""Small regression problems for the Firefly tests: rows of each model, their bounds' quadratic, targets and lights."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mpibayes.kernels import firefly
from mpibayes.kernels.firefly import LOGISTIC, SOFTMAX, STUDENT

NAMES = {LOGISTIC: "logistic", SOFTMAX: "softmax", STUDENT: "student"}
NU, SCALE = 4.0, 0.7
MIXED = "mixed"


@dataclass
class Problem:
    """Arrays only, so that kernels and twin are built from the same."""

    likelihood: int
    n_predictors: int
    n_classes: int
    x: np.ndarray  # float32 (n, W)
    y: np.ndarray
    theta0: np.ndarray  # where the bounds touch
    prior: int | str = firefly.GAUSSIAN  # of each coefficient; MIXED: of the kinds in turn

    def shards(self, kernels, n_shards, untuned=False):
        """Rows of each shard, the first ones longer; tuned at theta0, or untuned."""
        cut = np.linspace(0, len(self.x), n_shards + 1).astype(int)
        out = []
        for first, last in pairwise(cut):
            rows = kernels.Rows(
                self.likelihood, np.ascontiguousarray(self.x[first:last]), self.y[first:last], self.n_predictors,
                self.n_classes, NU, SCALE,
            )  # fmt: skip
            rows.untune(1.5) if untuned else rows.tune(self.theta0)
            out.append(rows)
        return out

    def quadratic(self, shards):
        """(S, A, G, c0) of the sum of log B about theta0."""
        d, n_k = self.n_predictors, self.n_classes
        s, g, c0 = np.zeros((d, d)), np.zeros((n_k, d)), 0.0
        for rows in shards:
            eta, bounds = rows.linear(self.theta0), rows.bounds
            if self.likelihood == LOGISTIC:
                s0, a = eta[:, 0], bounds[:, 0]
                s += rows.gram(-2 * a)
                g += rows.combine((2 * a * s0 + rows.y / 2)[:, None])
            elif self.likelihood == SOFTMAX:
                log_g, p = bounds[:, :n_k], bounds[:, n_k:]
                d0 = eta - log_g
                part = np.arange(n_k) == rows.y[:, None]
                s += rows.gram(np.ones(rows.n))
                g += rows.combine(part - p - (d0 - d0.mean(axis=1, keepdims=True)) / 2)
            else:
                w = (NU + 1) / (NU * SCALE**2 + bounds[:, 0])
                s += rows.gram(w)
                g += rows.combine(w[:, None] * (rows.y[:, None] - eta))
            c0 += rows.log_likelihood(self.theta0) - rows.gaps(self.theta0).sum()
        mixing = (np.eye(n_k) - 1 / n_k) / 2 if self.likelihood == SOFTMAX else np.eye(1)
        return s, mixing, g, c0

    def target(self, kernels, shards):
        scale = np.full(self.n_predictors * self.n_classes, 2.5)
        scale[-1] = np.inf
        return kernels.Target(
            self.likelihood, self.n_predictors, self.n_classes, NU, SCALE, self.theta0, *self.quadratic(shards),
            np.arange(len(scale), dtype=np.int32) % 3 if self.prior == MIXED else self.prior, scale,
        )  # fmt: skip


def random_problem(likelihood, n=200, n_predictors=5, n_classes=3, seed=1, prior=firefly.GAUSSIAN):
    rng = np.random.default_rng([seed, likelihood])
    n_k = n_classes if likelihood == SOFTMAX else 1
    x = np.zeros((n, (n_predictors + 7) // 8 * 8), np.float32)
    x[:, :n_predictors] = rng.normal(size=(n, n_predictors))
    x[:, n_predictors - 1] = 1
    theta = rng.normal(size=(n_k, n_predictors)) / np.sqrt(n_predictors)
    eta = x[:, :n_predictors].astype(float) @ theta.T
    if likelihood == LOGISTIC:
        y = np.where(rng.random(n) < 1 / (1 + np.exp(-eta[:, 0])), 1.0, -1.0)
    elif likelihood == SOFTMAX:
        y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1).astype(float)
    else:
        y = eta[:, 0] + SCALE * rng.standard_t(NU, n)
    return Problem(likelihood, n_predictors, n_k, x, y, theta.ravel(), prior)


def record(n, n_parameters):
    """Arrays that `cycles` writes."""
    kinds = {"lp": float, "acceptance": float, "step_size": float}
    kinds |= {"bright": np.int64, "queries_theta": np.int64, "queries_z": np.int64}
    return {"theta": np.empty((n, n_parameters)), **{name: np.empty(n, dtype) for name, dtype in kinds.items()}}
