"""Ratings, items and factorizations for tests; and a plain NumPy implementation of the bound from its definition."""

from dataclasses import replace

import numpy as np

from mpibayes.hpc.svi.factorization.model import Factorization, Fixed, natural_of
from mpibayes.hpc.svi.factorization.ratings import Ratings
from mpibayes.hpc.svi.step import Step
from mpibayes.kernels.svi import factors, factors_twin

SURE, AS_PAPER = Step(1.0, 1.0), Fixed(0.5, 1.0)
triangle, square = factors_twin.packed, factors_twin.unpacked


def items_of(rng, n, d):
    """Means and covariances of n items."""
    root = 0.3 * rng.normal(size=(n, d, d))
    return rng.normal(size=(n, d)), root @ root.swapaxes(1, 2) + 0.1 * np.eye(d)


def prior_of(rng, d):
    """A precision and a linear term."""
    root = 0.5 * rng.normal(size=(d, d))
    precision = root @ root.T + 0.5 * np.eye(d)
    return precision, precision @ rng.normal(size=d)


def table_of(kernel, mean, covariance, biased):
    """Table of the kernel, from its description."""
    n, d = mean.shape
    once, times = factors.widths(d, biased)[0]
    table, t = factors.rows(n, once + times), d * (d + 1) // 2
    second = covariance + mean[:, :, None] * mean[:, None, :]
    xx, x = second.copy(), mean.copy()
    if biased:
        xx[:, -1, :-1] = xx[:, :-1, -1] = mean[:, :-1]
        table[:, t : t + d] = np.concatenate([second[:, -1, :-1], mean[:, -1:]], axis=1)
    table[:, :t] = triangle(xx)
    table[:, once : once + d] = x
    return table


def made(users, items, rank, biased, seed, share=0.3, sd=0.5):
    """Ratings from a factorization: (Ratings, rank)."""
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(users, rank)), rng.normal(size=(items, rank))
    y = u @ v.T + sd * rng.normal(size=(users, items)) + 3.0
    if biased:
        y += rng.normal(size=(users, 1)) + 0.7 * rng.normal(size=items)
    there = rng.random((users, items)) < share
    there[:, -1] = False  # an item and a user without ratings
    there[1] = False
    starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
    return Ratings(starts, np.nonzero(there)[1].astype(np.int32), y[there].astype(np.float32))


def model_of(x, items, rank, biased, learn, center=3.0, fixed=AS_PAPER, kind=Factorization):
    return kind(rank, biased, items, fixed, learn, center, np.bincount(x.columns, minlength=items) > 0)


def first_of(model, seed=0):
    return model.seeded(np.random.default_rng(seed).normal(size=(model.n_items, model.rank)))


def looked(model, q, x, users=None, numbers=None):
    """(users' part of the bound, sums)."""
    sums = np.zeros((1 if numbers is None else 2, *model.form))
    return model.accumulate(q, x, users, numbers, sums), sums


def bound(model, q, x):
    return looked(model, q, x)[0] + model.bound(q)


def stepped(model, q, x, step=SURE):
    return model.step(q, looked(model, q, x)[1][0], None, step)[0]


def plain_users(q, x, mean, covariance, biased):
    """Mean and covariance of each user, solved from items with these moments, and the squared residuals of the
    ratings."""
    part, result = np.linalg.inv(q.user_covariance), []
    for i in range(len(x)):
        subset = slice(x.starts[i], x.starts[i + 1])
        r = x.values[subset].astype(float) - q.center[0]
        m, s, _, _, (*_, left) = factors_twin.user(
            x.columns[subset], r, mean, covariance, biased, (part, part @ q.user_mean), 1.0 / q.variance[0]
        )
        result.append((m, s, left))
    return tuple(np.array(of) for of in zip(*result))


def plain_moments(q):
    """Moments of the items."""
    d = len(q.user_mean)
    precision, linear = square(q.natural[:, : d * (d + 1) // 2]), q.natural[:, d * (d + 1) // 2 :]
    return np.linalg.solve(precision, linear[:, :, None])[:, :, 0], np.linalg.inv(precision)


def plain_bound(q, x, biased, users=None):
    """E log p(y, a, g) - E log q, from the definitions. users: moments, by default optimal."""
    mean, covariance = plain_moments(q)
    u, su = plain_users(q, x, mean, covariance, biased)[:2] if users is None else users
    d = mean.shape[1] - biased
    total = 0.0
    for i in range(len(x)):
        for k in range(x.starts[i], x.starts[i + 1]):
            j, y = x.columns[k], float(x.values[k])
            a, g = u[i], mean[j]
            e = y - q.center[0] - a[:d] @ g[:d]
            z, w = a[:d], g[:d]
            if biased:
                e -= a[d] + g[d]
                z, w = np.append(z, 1.0), np.append(w, 1.0)
            spread = w @ su[i] @ w + z @ covariance[j] @ z + (su[i][:d, :d] * covariance[j][:d, :d]).sum()
            total -= 0.5 * (np.log(2 * np.pi * q.variance[0]) + (e**2 + spread) / q.variance[0])
    for means, spreads, at, prior in (
        (u, su, q.user_mean, q.user_covariance), (mean, covariance, q.item_mean, q.item_covariance)
    ):  # fmt: skip
        inverse = np.linalg.inv(prior)
        for m, s in zip(means, spreads):
            apart = m - at
            total -= 0.5 * (np.trace(inverse @ s) + apart @ inverse @ apart - len(m))
            total -= 0.5 * (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(s)[1])
    return total


def plain_step(q, x, biased, learn, stale=None):
    """A batch step, user by user and item by item. stale: earlier moments of users, which is wrong."""
    u, su, left = plain_users(q, x, *plain_moments(q), biased) if stale is None else stale
    known = np.diff(x.starts) > 0
    if learn:
        user_mean = u[known].mean(axis=0)
        second = (su[known] + u[known][:, :, None] * u[known][:, None, :]).mean(axis=0)
        q = replace(
            q, variance=np.array([left.sum() / len(x.columns)]), user_mean=user_mean,
            user_covariance=second - np.outer(user_mean, user_mean),
        )  # fmt: skip
    items, d = len(q.natural), u.shape[1]
    sums = [np.zeros((items, d, d)), np.zeros((items, d)), np.zeros(items)]
    for i in range(len(x)):
        subset = slice(x.starts[i], x.starts[i + 1])
        r = x.values[subset].astype(float) - q.center[0]
        factors_twin.added(x.columns[subset], r, u[i], su[i], biased, sums)
    part = np.linalg.inv(q.item_covariance)
    precision, linear = part + sums[0] / q.variance[0], part @ q.item_mean + sums[1] / q.variance[0]
    q = replace(q, natural=np.concatenate([triangle(precision), linear], axis=1))
    if learn:
        rated, (g, sg) = sums[2] > 0, plain_moments(q)
        item_mean = g[rated].mean(axis=0)
        second = (sg[rated] + g[rated][:, :, None] * g[rated][:, None, :]).mean(axis=0)
        item_covariance, natural = second - np.outer(item_mean, item_mean), q.natural.copy()
        natural[~rated] = natural_of(item_mean, item_covariance)
        q = replace(q, natural=natural, item_mean=item_mean, item_covariance=item_covariance)
    return q, (u, su, left)
