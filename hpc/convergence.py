"""Rank-normalised split R-hat and bulk effective sample size (Vehtari et al. 2021), as in ArviZ.

They are implemented here for runs that judge themselves: ArviZ is only a dependency of reports, and takes seconds to
load.
"""

from __future__ import annotations

import numpy as np


def r_hat(chains: np.ndarray) -> float:
    """Rank-normalised split R-hat of draws (chains, draws): the larger of bulk and tail. 1 if all draws are equal,
    infinite if each half is constant at a different value. Needs at least 4 draws per chain."""
    halves = _split(chains)
    if np.all(halves == halves[0, 0]):
        return 1.0
    folded = np.abs(halves - np.median(halves))
    return max(_r_hat(_normal_scores(halves)), _r_hat(_normal_scores(folded)))


def bulk_ess(chains: np.ndarray) -> float:
    """Effective sample size of the bulk of draws (chains, draws). Their number if all are equal."""
    return effective(_normal_scores(_split(chains)))


def effective(chains: np.ndarray) -> float:
    """Effective sample size for the mean of draws (chains, draws), by Geyer's initial monotone sequence."""
    n_chains, n = chains.shape
    covariance = _autocovariance(chains)
    within = covariance[:, 0].mean() * n / (n - 1)
    total = within * (n - 1) / n
    if n_chains > 1:
        total += chains.mean(axis=1).var(ddof=1)
    if total <= 0:
        return float(chains.size)
    rho = 1.0 - (within - covariance.mean(axis=0)) / total
    rho[0] = 1.0
    pairs = rho[: (n - 1) // 2 * 2].reshape(-1, 2).sum(axis=1)
    (negative,) = np.nonzero(pairs < 0)
    m = int(negative[0]) if len(negative) else len(pairs) - 1  # pairs in the sum
    even = max(rho[2 * m], 0.0) if m else 0.0  # the first correlation beyond them improves the estimate
    tau = -1.0 + 2.0 * np.minimum.accumulate(pairs[:m]).sum() + even
    return float(chains.size / max(tau, 1.0 / np.log10(chains.size)))


def _split(chains: np.ndarray) -> np.ndarray:
    """Halves of every chain as separate chains; the middle one of an odd number of draws is dropped."""
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, -half:]])


def _normal_scores(chains: np.ndarray) -> np.ndarray:
    """Normal quantiles of the ranks among all draws, equal draws sharing their mean rank."""
    from scipy.special import ndtri

    _, place, counts = np.unique(chains, return_inverse=True, return_counts=True)
    rank = np.cumsum(counts) - (counts - 1) / 2.0
    scores: np.ndarray = ndtri((rank[place].reshape(chains.shape) - 0.375) / (chains.size + 0.25))
    return scores


def _r_hat(chains: np.ndarray) -> float:
    n = chains.shape[1]
    within, between = chains.var(axis=1, ddof=1).mean(), chains.mean(axis=1).var(ddof=1)
    if within == 0:
        return np.inf if between > 0 else 1.0
    return float(np.sqrt((n - 1) / n + between / within))


def _autocovariance(chains: np.ndarray) -> np.ndarray:
    """Autocovariance (chains, lags), divided by the number of draws."""
    n = chains.shape[1]
    size = 1 << (2 * n - 1).bit_length()
    transformed = np.fft.rfft(chains - chains.mean(axis=1, keepdims=True), size, axis=1)
    covariance: np.ndarray = np.fft.irfft(np.abs(transformed) ** 2, size, axis=1)[:, :n] / n
    return covariance
