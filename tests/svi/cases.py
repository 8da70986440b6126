"""Tables, and a plain NumPy implementation of a mixture's step, row by row, with possible errors."""

import numpy as np

from mpibayes.hpc.svi.gaussian import Gaussian, Prior, State
from mpibayes.hpc.svi.step import Step

SURE = Step(1.0, 1.0)
# tests/exact/numbers.md: the bound after so many batch steps
GMM24 = {0: -129.343723, 1: -126.163574, 2: -125.494249, 5: -108.618118, 10: -90.743741, 20: -89.612499}


def gmm24():
    """(rows (24, 2), model, first state)."""
    g = np.arange(24)
    x = np.empty((24, 2))
    x[:, 0] = np.array([-3.0, 0.0, 3.0])[g % 3] + 0.1 * (g - 11.5) * (2 * (g % 2) - 1)
    x[:, 1] = np.where(g % 3 == 1, 2.0, -1.0) + 0.05 * ((7 * g) % 11 - 5)
    model = Gaussian(Prior(0.5, 10.0, 2.0, 1.0), 3, 2)
    share = np.full((3, 24), 0.1)
    share[g // 8, g] = 0.8
    return x, model, model.step(model.first(), packed(share, x), None, SURE)[0]


def packed(share, x, about=None):
    """Sums of rows and their moments, of each component, (K, 1 + D + T). share (K, n)."""
    i, j = np.tril_indices(x.shape[1])
    y = x[None] - (np.zeros((len(share), x.shape[1])) if about is None else about)[:, None]
    return np.concatenate(
        [
            share.sum(axis=1)[:, None],
            np.einsum("kn,knd->kd", share, y),
            np.einsum("kn,knp->kp", share, y[:, :, i] * y[:, :, j]),
        ],
        axis=1,
    )


def clouds(n, d, k, seed, apart=3.0):
    """Rows of k Gaussians of different shapes, standardised."""
    rng = np.random.default_rng(seed)
    z, roots = rng.integers(k, size=n), 0.4 * rng.normal(size=(k, d, d)) + np.eye(d)
    x = (apart * rng.normal(size=(k, d)))[z] + np.einsum("nij,nj->ni", roots[z], rng.normal(size=(n, d)))
    return np.ascontiguousarray((x - x.mean(axis=0)) / x.std(axis=0))


def looked(model, q, x, rows=None, numbers=None):
    """(rows' part of the bound, sums)."""
    sums = np.zeros((1 if numbers is None else 2, *model.form))
    return model.accumulate(q, x, rows, numbers, sums), sums


def bound(model, q, x):
    return looked(model, q, x)[0] + model.bound(q)


def plain_step(model, q, share, x, rate=1.0, scale=1.0, stale=False):
    """A step without noise from responsibilities (K, n), row by row. stale: q(Lambda) with the previous moments of
    q(mu), which is wrong."""
    p, (k, d) = model.prior, q.linear.shape
    new = {name: [] for name in ("alpha", "precision", "linear", "degrees", "scatter")}
    for j in range(k):
        sharp = q.degrees[j] * np.linalg.inv(q.scatter[j])
        n = scale * share[j].sum()
        precision = (1 - rate) * q.precision[j] + rate * (np.eye(d) / p.mean_variance + n * sharp)
        linear = (1 - rate) * q.linear[j] + rate * scale * sharp @ (share[j] @ x)
        at, blur = np.linalg.solve(precision, linear), np.linalg.inv(precision)
        if stale:
            at, blur = q.mean[j], q.covariance[j]
        target = p.scale * np.eye(d)
        for weight, row in zip(share[j], x):
            target = target + scale * weight * (np.outer(row - at, row - at) + blur)
        new["alpha"].append((1 - rate) * q.alpha[j] + rate * (p.alpha + n))
        new["precision"].append(precision)
        new["linear"].append(linear)
        new["degrees"].append((1 - rate) * q.degrees[j] + rate * (p.degrees + n))
        new["scatter"].append((1 - rate) * q.scatter[j] + rate * target)
    return State(**{name: np.array(arrays) for name, arrays in new.items()})


def responsibilities(model, q, x):
    """(K, n), from the definition."""
    constant, factor = model.densities(q)
    log = constant[:, None] - (np.einsum("kij,knj->kni", factor, x[None] - q.mean[:, None]) ** 2).sum(axis=2)
    share = np.exp(log - log.max(axis=0))
    return share / share.sum(axis=0)
