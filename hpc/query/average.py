"""Averages over kept draws, which follow each other in chains, with the error due to their small number.

Given B, draw d counts in proportion to p_d(B), and the answer is sum_d w_d r_d, the weights summing to 1. Its error is
that of a ratio of means: residuals w_d (r_d - average) are summed over consecutive batches of about the square root of
a chain's draws, whose sums are nearly independent (batch means, which account for autocorrelation). With several
chains, chains serve as batches too, and the larger error counts: chains that have not converged disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEW = 5.0  # effective draws below which an answer depends on single draws


@dataclass(frozen=True)
class Averages:
    """chain_of (D,): the chain of each draw; draws of a chain are consecutive."""

    chain_of: np.ndarray

    @property
    def n_draws(self) -> int:
        return len(self.chain_of)

    @property
    def chains(self) -> np.ndarray:
        """First draw of each chain."""
        return np.flatnonzero(np.diff(self.chain_of, prepend=-1))

    @property
    def batches(self) -> np.ndarray:
        """First draw of each batch."""
        starts, ends = self.chains, [*self.chains[1:], self.n_draws]
        edges = []
        for start, end in zip(starts, ends):
            n = end - start
            cut = np.linspace(start, end, max(1, round(n**0.5)) + 1)[:-1]
            edges += np.ceil(cut).astype(int).tolist()
        return np.unique(edges)

    def error(self, residual: np.ndarray) -> np.ndarray:
        """Standard errors, (...), of averages with residuals w_d (r_d - average), (D, ...); NaN for a single draw."""
        sums = [np.add.reduceat(residual, starts, axis=0) for starts in (self.batches, self.chains)]
        return self.error_of_sums(*sums)

    @staticmethod
    def error_of_sums(*sums: np.ndarray) -> np.ndarray:
        """Jackknife standard error from residuals summed over batches and over chains, (b, ...) each: the larger of the
        two."""
        if len(sums[0]) < 2:
            return np.full(sums[0].shape[1:], np.nan)
        each = [len(s) / (len(s) - 1) * (s**2).sum(axis=0) for s in sums if len(s) > 1]
        error: np.ndarray = np.sqrt(np.max(each, axis=0))
        return error


def weights(log_p: np.ndarray) -> np.ndarray:
    """Weights of the draws, (D, n), from the log probabilities of the known values under each."""
    top = log_p.max(axis=0)
    w = np.exp(log_p - np.where(np.isfinite(top), top, 0.0))
    total = w.sum(axis=0)
    shares: np.ndarray = np.where(total > 0.0, w / np.where(total > 0.0, total, 1.0), 1.0 / len(log_p))
    return shares


def effective(w: np.ndarray) -> np.ndarray:
    """Effective number of draws, (n,), with weights (D, n) that sum to 1."""
    n: np.ndarray = 1.0 / (w**2).sum(axis=0)
    return n


def log_average(log_r: np.ndarray, w: np.ndarray, averages: Averages) -> tuple[np.ndarray, np.ndarray]:
    """Log of sum_d w_d r_d and its error, (n,) each, from log r (D, n) and weights (D, n) that sum to 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log(w) + log_r
        top = log.max(axis=0)
        base = np.where(np.isfinite(top), top, 0.0)
        average = base + np.log(np.exp(log - base).sum(axis=0))
        ratio = np.exp(log - np.where(np.isfinite(average), average, 0.0)) - w
    return average, averages.error(ratio)


def in_blocks(n: int, step: int) -> Sequence[slice]:
    """Split rows 0..n-1 into blocks of `step` rows."""
    return [slice(i, min(i + step, n)) for i in range(0, n, max(1, step))]
