"""The pass of factors.pyx in plain NumPy, a user at a time and from the definition: no tables with things in odd
places. Moments of the items come in as they are."""

import numpy as np

KEPT = 1e-3


def packed(matrix):
    """Lower triangles, row by row."""
    i, j = np.tril_indices(matrix.shape[-1])
    return np.ascontiguousarray(matrix[..., i, j])


def unpacked(triangle):
    """Symmetric matrices from lower triangles."""
    d = int(np.sqrt(2 * triangle.shape[-1]))
    i, j = np.tril_indices(d)
    matrix = np.empty((*triangle.shape[:-1], d, d))
    matrix[..., i, j] = matrix[..., j, i] = triangle
    return matrix


def share(sure, noise):
    """The largest t <= 1 with sure + t noise >= KEPT sure."""
    root = np.linalg.inv(np.linalg.cholesky(sure))
    least = np.linalg.eigvalsh(root @ noise @ root.T)[0]
    return min(1.0, (1.0 - KEPT) / -least) if least < 0 else 1.0


def user(columns, r, mean, covariance, biased, prior, sharpness, *, numbers=None, effective=0.0, spread=0.0,
         average=0.0, guard=True, old=None, rate=1.0):  # fmt: skip
    """One user. columns: of its ratings; r: these less the center. mean (J, D), covariance (J, D, D): of the items'
    vectors (v, c), or v. prior: precision (D, D) and linear term (D,).

    Returns mean and covariance of its vector, natural parameters, its share of the noise, and of the user solved
    without noise and steps its part of the bound, its second and first moments, and the squares left of its ratings.
    """
    precisions, linears, squares = [], [], 0.0
    for j, value in zip(columns, r):
        m, s = mean[j], covariance[j]
        second = s + np.outer(m, m)
        if not biased:
            precisions.append(second)
            linears.append(value * m)
            squares += value**2
        else:  # x = (v, 1), c the last
            xx, xc = second.copy(), second[-1].copy()
            xx[-1, :-1] = xx[:-1, -1] = m[:-1]
            xx[-1, -1], xc[-1] = 1.0, m[-1]
            precisions.append(xx)
            linears.append(value * np.append(m[:-1], 1.0) - xc)
            squares += value**2 - 2.0 * value * m[-1] + second[-1, -1]
    n, d = len(columns), mean.shape[1]
    gram, linear = np.sum(precisions, axis=0) if n else np.zeros((d, d)), np.sum(linears, axis=0) if n else np.zeros(d)
    target, pull = prior[0] + sharpness * gram, prior[1] + sharpness * linear
    best = np.linalg.solve(target, pull)
    bound = 0.5 * (pull @ best - np.linalg.slogdet(target)[1] - sharpness * squares)
    second = np.linalg.inv(target) + np.outer(best, best)
    plain = bound, second, best, squares - 2.0 * best @ linear + (gram * second).sum()
    if old is not None:
        target, pull = (1.0 - rate) * old[0] + rate * target, (1.0 - rate) * old[1] + rate * pull
    used = 1.0
    if numbers is not None and n:
        if effective > 0:
            excess = n / effective - 1.0
            spread, average = np.sqrt(max(excess, 0.0)), numbers.mean()
        weights = rate * sharpness * spread * (numbers - average)
        more, turn = np.einsum("n,nij->ij", weights, precisions), weights @ np.array(linears)
        used = share(target, more) if guard else 1.0
        target, pull = target + used * more, pull + used * turn
    return np.linalg.solve(target, pull), np.linalg.inv(target), (target, pull), used, plain


def added(columns, r, mean, covariance, biased, sums):
    """Add the terms of a user with these moments to G (J, D, D), h (J, D) and ratings (J,) of the items."""
    gram, linear, count = sums
    second = covariance + np.outer(mean, mean)
    for j, value in zip(columns, r):
        if not biased:
            gram[j] += second
            linear[j] += value * mean
        else:
            zz, zb = second.copy(), second[-1].copy()
            zz[-1, :-1] = zz[:-1, -1] = mean[:-1]
            zz[-1, -1], zb[-1] = 1.0, mean[-1]
            gram[j] += zz
            linear[j] += value * np.append(mean[:-1], 1.0) - zb
        count[j] += 1
