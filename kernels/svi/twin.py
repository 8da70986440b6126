"""The pass of gaussian.pyx in plain NumPy, with the same arguments."""

import numpy as np

LEAST = 1e-12  # responsibilities below it, over the row's greatest, are 0


def accumulate(x, rows, numbers, mean, factor, constant, sums):
    """See `gaussian.Pass`. The bits differ."""
    if rows is not None:
        x = x[rows]
    d = x.shape[1]
    i, j = np.tril_indices(d)
    y = x[None] - mean[:, None]
    log = constant[:, None] - (np.einsum("kij,knj->kni", factor, y) ** 2).sum(axis=2)
    most = log.max(axis=0)
    share = np.where(log - most > np.log(LEAST), np.exp(log - most), 0.0)
    total = share.sum(axis=0)
    share /= total
    each = np.concatenate([np.ones((*y.shape[:2], 1)), y, y[:, :, i] * y[:, :, j]], axis=2)
    sums[0] += np.einsum("kn,knp->kp", share, each)
    if numbers is not None:
        sums[1] += np.einsum("kn,n,knp->kp", share, numbers, each)
    return float((most + np.log(total)).sum())
