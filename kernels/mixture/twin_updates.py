"""The kernels of updates.pyx in plain Python: slow, and their specification."""

from __future__ import annotations

from itertools import count, product
from math import cos, exp, lgamma, log, log1p, pi, sqrt

import numpy as np


def block(i, attempt, seed, purpose, sub, cycle, chain):
    """Four uniforms in (0, 1] for an id's attempt."""
    key, counter = np.array([seed, purpose], np.uint64), [i, sub + (attempt << 32), cycle, chain]
    # NumPy adds one to the counter before its first block
    whole = sum(int(c) << 64 * n for n, c in enumerate(counter)) - 1
    words = np.random.Philox(key=key, counter=whole % 2**256).random_raw(4)
    return [1.0 - (int(w) >> 12) * 2.0**-52 for w in words]


def normal(u, v):
    """Standard normal by Box & Muller (1958)."""
    return sqrt(-2.0 * log(u)) * cos(2.0 * pi * abs(v - 0.5))


def log_gamma_draw(shape, i, key):
    """Log of a gamma draw by Marsaglia & Tsang (2000); G(a) = G(a + 1) U^(1/a) for shapes below 1."""
    d = shape + (shape < 1.0) - 1.0 / 3.0
    for attempt in range(1000):
        a, b, c, e = block(i, attempt, **key)
        x = normal(a, b)
        v = 1.0 + x / (3.0 * sqrt(d))
        if v > 0 and log(c) < 0.5 * x * x + d * (1.0 - v**3 + 3.0 * log(v)):
            return log(d) + 3.0 * log(v) + (log(e) / shape if shape < 1.0 else 0.0)
    raise ArithmeticError("no attempt was accepted")


def log_gammas(shape, ids, **key):
    """See updates.log_gammas."""
    return np.array([log_gamma_draw(a, int(i), key) for a, i in zip(shape, ids, strict=True)])


def normals(ids, **key):
    """See updates.normals."""
    return np.array([normal(*block(int(i), 0, **key)[:2]) for i in ids])


def draw_levels(levels, beta, offsets, first, last, met=None, **key):
    """See updates.draw_levels."""
    out = np.zeros((offsets[last] - offsets[first], levels.shape[1]), np.float32)
    for c, k in product(range(first, last), range(levels.shape[1])):
        missing = offsets[c + 1] - 1
        rows = range(offsets[c], missing)
        shape = {row: beta[row] + levels[row, k] for row in rows if met is None or met[row]}
        rest = sum(beta[row] for row in rows if row not in shape)
        if shape:
            shape |= {missing: rest} if rest else {}
            drawn = {row: log_gamma_draw(a, (row << 32) | k, key) for row, a in shape.items()}
            most = max(drawn.values())
            total = most + log(sum(exp(g - most) for g in drawn.values()))
            for row in rows:
                out[row - offsets[first], k] = drawn[row] - total if met is None or met[row] else 0.0
    return out


def draw_tables(levels, beta, **key):
    """See updates.draw_tables."""
    return np.array([tables_of_row(row, a, level, key) for level, (row, a) in enumerate(zip(levels.tolist(), beta))])


def tables_of_row(counts, a, level, key):
    """Number of tables in the restaurants of one level, summed over clusters."""
    units = (u for attempt in count() for u in block(level, attempt, **key))
    opened = 0
    for n in counts if a > 0 else ():
        opened, i = opened + (n > 0), 1
        while i < n and i < 8.0 + 4.0 * a:
            opened, i = opened + (next(units) * (a + i) <= a), i + 1
        while i < n:
            gap = log(next(units)) / -log1p(a / i)
            if not gap < n - i:
                break
            opened, i = opened + (next(units) * (a + i + int(gap)) <= a + i), i + int(gap) + 1
    return opened


def log_marginal(counts, beta):
    """Dirichlet-multinomial log marginal likelihood of one column's cells in one cluster (docs/math.md 1.3)."""
    score = lgamma(sum(beta)) - lgamma(sum(beta) + sum(counts))
    return score + sum(lgamma(b + n) - lgamma(b) for b, n in zip(beta, counts, strict=True))


def log_marginals(levels, beta, offsets, first, last):
    """See updates.log_marginals."""
    cells = np.zeros((last - first, levels.shape[1]))
    for c in range(first, last):
        rows = slice(offsets[c], offsets[c + 1] - 1)
        cells[c - first] = [log_marginal(column, beta[rows]) for column in levels[rows].T.tolist()]
    return cells.sum(axis=1), cells.sum(axis=0)


def log_marginals_of_unions(levels, beta, offsets, clusters):
    """See updates.log_marginals_of_unions."""
    unions = [levels + levels[:, [k]] for k in clusters]
    return np.array([log_marginals(union, beta, offsets, 0, len(offsets) - 1)[1] for union in unions])


def normal_marginal(hyper, n, mean, scatter):
    """Log marginal likelihood of a normal column's cells in one cluster (docs/math.md 1.5)."""
    m0, kappa0, nu0, variance0 = hyper
    kappa, nu = kappa0 + n, nu0 + n
    spread = nu0 * variance0 + scatter + n * kappa0 / kappa * (m0 - mean) ** 2
    of_nu = lgamma(0.5 * nu) - lgamma(0.5 * nu0) - 0.5 * n * log(pi) + 0.5 * log(kappa0 / kappa)
    return of_nu + 0.5 * nu0 * log(nu0 * variance0) - 0.5 * nu * log(spread)


def poisson_marginal(hyper, n, total):
    """Log marginal likelihood of a count column's cells in one cluster, without the 1 / x! (docs/math.md 1.4)."""
    a, b = hyper
    return a * log(b) - lgamma(a) + lgamma(a + total) - (a + total) * log(b + n)


def number_marginals(statistics, hyper, first, last):
    """See updates.number_marginals."""
    marginal, cells = (normal_marginal if len(statistics) == 3 else poisson_marginal), np.zeros(statistics[0].shape)
    for c, k in np.ndindex(*cells.shape):
        cells[c, k] = marginal(hyper[c].tolist(), *(float(array[c, k]) for array in statistics))
    return cells[first:last].sum(axis=1), cells[first:last].sum(axis=0)


def line_marginals(points, square, middle, mean, n, u, x, uu, ux, xx):
    """See updates.line_marginals."""
    by_parent, by_cluster = np.zeros((len(points), len(square))), np.zeros(len(n))
    for (g, (kappa0, nu0, variance)), p, k in product(enumerate(points), range(len(square)), range(len(n))):
        kappa, nu, weight = kappa0 + n[k], nu0 + n[k], n[k] * kappa0 / (kappa0 + n[k])
        of_u, of_x = (u[p, k] - middle[p], x[k] - mean) if n[k] else (0.0, 0.0)
        first = kappa0**2 * square[p] + uu[p, k] + weight * of_u**2
        cross, least = ux[p, k] + weight * of_u * of_x, nu0 * variance
        rest = max(least + xx[k] + weight * of_x**2 - cross**2 / first, least)
        score = lgamma(nu / 2) - lgamma(nu0 / 2) - n[k] / 2 * log(pi) + log(kappa0 / kappa) / 2
        score += (log(kappa0**2 * square[p] / first) + nu0 * log(least) - nu * log(rest)) / 2
        by_parent[g, p] += score
        by_cluster[k] += score
    return by_parent, by_cluster


def draw_numbers(statistics, hyper, first, last, grids, u):
    """See updates.draw_numbers."""
    for c in range(first, last):
        for f, grid in enumerate(grids):
            scores, points = [], grid.points[c, : grid.length[c]]
            for point in points:
                hyper[c, f] = point
                scores.append(number_marginals(statistics, hyper, c, c + 1)[0][0])
            below = np.cumsum(np.exp(np.array(scores) - max(scores)))
            hyper[c, f] = points[np.searchsorted(below, u[c - first, f] * below[-1], side="right")]


def log_sums_of_shares(levels, offsets, labels, spreads):
    """See updates.Shares."""
    score = np.zeros((len(labels), len(spreads), len(offsets) - 1, levels.shape[1]))
    for b, s, c, k in np.ndindex(*score.shape):
        spread = spreads[s]
        for row in levels[offsets[c] : offsets[c + 1]].tolist():
            one, two, alone = row[k] + spread, row[labels[b]] + spread, 2.0 * lgamma(spread) - lgamma(2.0 * spread)
            score[b, s, c, k] += lgamma(one) + lgamma(two) - lgamma(one + two) - alone
    return np.logaddexp.reduce(score.reshape(len(labels), -1, levels.shape[1]), axis=1)


def log_product(a, b):
    """See updates.log_product."""
    return np.logaddexp.reduce(a[:, :, None] + b, axis=1)


def grid_scores(levels, offsets, columns, grid, base=None):
    """See updates.grid_scores; grid: the points."""
    base = np.ones(len(levels)) if base is None else base
    return np.array([[log_marginals(levels, a * base, offsets, c, c + 1)[0][0] for a in grid] for c in columns])
