"""Rows seated one after another, on root: each draws its features given the rows before it alone (docs/math.md 7.9)."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.state import Hyper
from mpibayes.hpc.parallel.streams import Purpose, generator

SEATING = 4  # stream of Purpose.FIRST_FEATURES
MOST_NEW = 4  # features that one row may bring
SWEEPS = 2  # a row makes over the features that there are


def seat(cells: np.ndarray, hyper: Hyper, seed: int, chain: int) -> tuple[np.ndarray, np.ndarray]:
    """(loadings (K, D), weights (K,)) of the features of these rows, float64 (n, D); NaN counts as 0.

    The law of a row: features with m owners among the i - 1 rows before by odds m : i - 1 + c - m, kappa new ones by
    Poisson(alpha c / (i - 1 + c)), cells by the loadings' posterior given those rows.
    """
    stream = generator(seed, Purpose.FIRST_FEATURES, 0, SEATING, chain)
    x = np.nan_to_num(cells) / hyper.noise_sd
    n, d = x.shape
    ratio = update.prior_variance(hyper)
    owned, spread, mean = np.zeros(0), np.zeros((0, 0)), np.zeros((0, d))
    new = np.arange(MOST_NEW + 1)
    for i in range(n):
        has = np.zeros(len(owned))
        logits = np.log(owned) - np.log(np.maximum(i + hyper.c - owned, 1e-12))
        for _ in range(SWEEPS):
            for k in stream.permutation(len(owned)):
                each = np.zeros(2)
                for value in (0, 1):
                    has[k] = value
                    variance, left = 1.0 + has @ spread @ has, x[i] - has @ mean
                    each[value] = -0.5 * d * np.log(variance) - 0.5 * (left @ left) / variance
                has[k] = stream.random() < 1.0 / (1.0 + np.exp(np.clip(each[0] - each[1] - logits[k], -700.0, 700.0)))
        variance, left = 1.0 + has @ spread @ has + new * ratio, x[i] - has @ mean
        log_p = new * np.log(hyper.alpha * hyper.c / (i + hyper.c)) - gammaln(new + 1.0)
        log_p = log_p - 0.5 * d * np.log(variance) - 0.5 * (left @ left) / variance
        p = np.exp(log_p - log_p.max())
        born = int(stream.choice(len(new), p=p / p.sum()))
        if born:
            k = len(owned)
            wide = ratio * np.eye(k + born)
            wide[:k, :k] = spread
            spread, mean = wide, np.vstack([mean, np.zeros((born, d))])
            has, owned = np.append(has, np.ones(born)), np.append(owned, np.zeros(born))
        reach = spread @ has
        gain = reach / (1.0 + has @ reach)
        mean = mean + np.outer(gain, x[i] - has @ mean)
        spread = spread - np.outer(gain, reach)
        owned = owned + has
    return mean * hyper.noise_sd, owned / n
