"""Splits and merges of clusters with an outcome (docs/math.md 2.16): coefficients of the proposed clusters, and the
outcome's factor in the acceptance ratio.

A move that the columns accept is judged again, by the outcome alone. Coefficients of a cluster C are proposed from a
normal g_C near its posterior given beta, a function of the rows of C and never of present coefficients. With
W_C(theta) = prod_C L(theta) N(theta) / g_C(theta), a split has the factor W_A W_B / W_C, a merge the inverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpibayes.hpc.outcome.metric import PRIOR_ROWS, gram_of, kronecker, smoothed
from mpibayes.hpc.outcome.outcome import Outcome

ROUNDS, LONGEST = 4, 2.0  # Newton steps towards the posterior mode, and the longest step


class Branches(NamedTuple):
    """Proposals for G groups, on every rank. log_factor (G,): log factor of a split; halves (G, 2, p), whole (G, p):
    coefficients, present ones for clusters that exist, proposed ones for the rest."""

    log_factor: np.ndarray
    halves: np.ndarray
    whole: np.ndarray


def branches(
    outcome: Outcome, z: Sequence[np.ndarray], present: np.ndarray, is_split: np.ndarray, stream: np.random.Generator
) -> Branches:
    """Propose coefficients for G groups of rows, each of two halves. Collective.

    z: for each of this rank's shards int32 (n,), 2 g + side, or -1. present (G, 2, p): coefficients of existing halves,
    or of the existing whole twice. is_split (G,): True if the group is one cluster, to be split.
    """
    n, p = len(is_split), outcome.law.p
    wholes = [np.where(labels >= 0, labels >> 1, -1).astype(np.int32) for labels in z]
    halves = scored(outcome, z, present.reshape(2 * n, p), np.repeat(is_split, 2), stream)
    whole = scored(outcome, wholes, present[:, 0], ~is_split, stream)
    factor = halves[1].reshape(n, 2).sum(axis=1) - whole[1]
    return Branches(factor, halves[0].reshape(n, 2, p), whole[0])


def scored(
    outcome: Outcome, z: Sequence[np.ndarray], present: np.ndarray, drawn: np.ndarray, stream: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients (K, p) of the clusters z, drawn from g_C where `drawn`, else `present`, and log W (K,), on
    every rank."""
    law, root, (k, p) = outcome.law, outcome.comm.rank == 0, present.shape
    sums = outcome.squares(z, k)
    exposures = None if law.baseline is None else outcome.exposures(z, k)
    theta, message = np.array(present), np.zeros((k, p + 1))
    if root:
        width, c = law.width, law.n_eta
        gram = gram_of(sums, width + len(outcome.beta) // c)
        known = np.maximum(gram[:, 0, 0], 1.0)
        mean = smoothed(sums, gram, law.likelihood.mean_at(law.centre[::width]))
        weight = law.likelihood.curvature(mean, law.nu, law.scale).reshape(k, c, c)
        precision = kronecker(weight, gram[:, :width, :width]) + np.diag(law.sd**-2.0)
        middle = np.tile(law.mean, (k, 1))
        middle[:, ::width] = [law.likelihood.centre(m) for m in mean.tolist()]
        if exposures is not None:
            middle[:, 0] -= np.log((exposures + PRIOR_ROWS) / (known + PRIOR_ROWS))
        for e in range(c):
            middle[:, e * width] -= gram[:, 0, width:] @ law.shared(outcome.beta, e) / known
        message[:, :p] = middle
    for _ in range(ROUNDS):
        outcome.comm.broadcast(message)
        middle = np.ascontiguousarray(message[:, :p])
        _, slope, _ = outcome.slopes(z, middle)
        if root:
            step = np.linalg.solve(precision, (slope - (middle - law.mean) / law.sd**2)[:, :, None])[:, :, 0]
            message[:, :p] = middle + np.clip(step, -LONGEST, LONGEST)
    if root:
        middle, factor = message[:, :p].copy(), np.linalg.cholesky(precision)
        away = np.linalg.solve(factor.transpose(0, 2, 1), stream.standard_normal((k, p))[:, :, None])[:, :, 0]
        message[:, :p] = np.where(drawn[:, None], middle + away, present)
    outcome.comm.broadcast(message)
    theta = np.ascontiguousarray(message[:, :p])
    values, _, _ = outcome.slopes(z, theta)
    if root:
        off = (factor.transpose(0, 2, 1) @ (theta - middle)[:, :, None])[:, :, 0]
        log_g = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1) - 0.5 * (off * off).sum(axis=1)
        log_prior = (-0.5 * ((theta - law.mean) / law.sd) ** 2 - np.log(law.sd)).sum(axis=1)
        message[:, p] = values + log_prior - log_g
    outcome.comm.broadcast(message)
    return theta, message[:, p].copy()
