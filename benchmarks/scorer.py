"""One scorer for every program: from the labels of the training rows alone, nothing of what a program believes.

The held-out score is the mean log density of held-out rows under a mixture with weights n_k / (N + 1), and 1 / (N + 1)
for a cluster without rows, of the clusters' predictives under one weak prior: Dirichlet(1/2) for a categorical column,
normal-inverse-Wishart around the column's mean for reals.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

PRIOR_ROWS, PRIOR_SPREAD = 0.01, 0.1  # of reals: weight of the prior mean, prior variance as a share of the column's


def adjusted_rand(a: np.ndarray, b: np.ndarray) -> float:
    """Agreement of two partitions: 1 for the same, 0 expected of independent ones."""
    a, b = (np.unique(z, return_inverse=True)[1] for z in (a, b))
    both = np.bincount(a * (b.max() + 1) + b)
    pairs = [float((n * (n - 1.0) / 2).sum()) for n in (both, np.bincount(a), np.bincount(b))]
    expected = pairs[1] * pairs[2] / (len(a) * (len(a) - 1) / 2)
    most = (pairs[1] + pairs[2]) / 2
    return 1.0 if most == expected else (pairs[0] - expected) / (most - expected)


def _with_new(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels from 0 on, sizes of the clusters and of a new one, log weights."""
    _, z = np.unique(labels, return_inverse=True)
    size = np.append(np.bincount(z), 0)
    return z, size, np.log(np.append(size[:-1], 1) / (len(z) + 1))


def heldout_codes(x: np.ndarray, held: np.ndarray, levels: tuple[int, ...], labels: np.ndarray) -> float:
    """Score of categorical rows: x (N, C), held (H, C), labels (N,)."""
    z, size, log_weight = _with_new(labels)
    log_p = np.tile(log_weight, (len(held), 1))
    for column, new, v in zip(x.T, held.T, levels, strict=True):
        counts = np.bincount(z * v + column, minlength=len(size) * v).reshape(-1, v)
        law = np.log((counts + 0.5) / (size[:, None] + 0.5 * v))
        log_p += law.T[new]
    return float(np.logaddexp.reduce(log_p, axis=1).mean())


def heldout_reals(x: np.ndarray, held: np.ndarray, labels: np.ndarray) -> float:
    """Score of real rows, clusters with full covariances: multivariate Student t predictives; x (N, D), held (H, D)."""
    z, size, log_weight = _with_new(labels)
    d, center, scatter = x.shape[1], x.mean(axis=0), np.diag(PRIOR_SPREAD * x.var(axis=0))
    log_p = np.empty((len(held), len(size)))
    for k, n in enumerate(size):
        rows = x[z == k]
        mean = rows.mean(axis=0) if n else center
        kappa, nu = PRIOR_ROWS + n, d + 2.0 + n
        spread = scatter + (rows - mean).T @ (rows - mean)
        spread += n * PRIOR_ROWS / kappa * np.outer(mean - center, mean - center)
        location, df = (PRIOR_ROWS * center + n * mean) / kappa, nu - d + 1
        root = np.linalg.cholesky(spread * (kappa + 1) / (kappa * df))
        square = (np.linalg.solve(root, (held - location).T) ** 2).sum(axis=0)
        log_p[:, k] = (
            gammaln((df + d) / 2) - gammaln(df / 2) - 0.5 * d * np.log(df * np.pi) - np.log(np.diag(root)).sum()
            - 0.5 * (df + d) * np.log1p(square / df)
        )  # fmt: skip
    return float(np.logaddexp.reduce(log_p + log_weight, axis=1).mean())
