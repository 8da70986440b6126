"""One cluster in plain Python: its statistics, and the predictive density of a row (docs/math.md 1.3 to 1.6)."""

from __future__ import annotations

from math import isnan, lgamma, log, log1p, pi

import numpy as np


def contexts_of(prior):
    """Number of contexts of each categorical column."""
    return getattr(prior, "contexts", np.ones(len(prior.offsets) - 1, np.int64))


def widths_of(blocks):
    """Number of columns of each block of full-covariance normals in rows or a prior."""
    return np.asarray(getattr(blocks, "widths", ()), dtype=np.int64)


SPELL_PARTS, SPELL_SHIFT = 8, 27


def spells_of(rows):
    """Cells of the survival columns of rows, (n, S)."""
    given = getattr(rows, "spells", None)
    return np.zeros((len(rows.codes8), 0)) if given is None else given


def spell_of(x):
    """Decode a survival cell: (part, True if the event came, ticks in the part); None if it is missing."""
    if isnan(x):
        return None
    part, ticks = divmod(int(abs(x)), 1 << SPELL_SHIFT)
    return part - 1, x > 0, float(ticks)


class Row:
    """One row: codes of the categorical columns in block order, real and count cells with NaN for missing, a vector per
    block, None if missing, and a spell per survival column."""

    def __init__(self, rows, i):
        self.codes = [int(v) for v in (*rows.codes8[i], *rows.codes16[i])]
        self.reals = rows.reals[i].tolist()
        self.tallies = rows.tallies[i].tolist()
        blocks = np.split(rows.vectors[i], np.cumsum(rows.widths)[:-1]) if len(widths_of(rows)) else []
        self.vectors = [None if np.isnan(x).any() else x for x in blocks]
        self.spells = [spell_of(x) for x in spells_of(rows)[i].tolist()]


def log_student(x, prior, n, mean, scatter):
    """Predictive t_nu(mu, sigma^2 (1 + 1/kappa)) of a normal column, prior = (mean, kappa, nu, variance)."""
    mean0, kappa0, nu0, variance0 = prior
    kappa, nu = kappa0 + n, nu0 + n
    location = mean0 + (mean - mean0) * (n / kappa)
    spread = nu0 * variance0 + scatter + n * kappa0 / kappa * (mean0 - mean) ** 2
    square = spread * (1 + 1 / kappa)
    y = min(((x - location) / square**0.5) ** 2, 1e300)
    return lgamma((nu + 1) / 2) - lgamma(nu / 2) - 0.5 * log(pi * square) - (nu + 1) / 2 * log1p(y)


def log_negative_binomial(x, prior, n, total):
    """Predictive of a count column, rate ~ Gamma(shape, rate)."""
    a, b = prior[0] + total, prior[1] + n
    return lgamma(a + x) - lgamma(a) - lgamma(x + 1) - a * log1p(1 / b) - x * log(b + 1)


def log_student_vector(x, prior, b, n, mean, scatter):
    """Predictive of block b, a multivariate t with nu_n - D + 1 degrees of freedom (docs/math.md 1.6); mean (D,),
    scatter (D, D). If its first column is given, that column's predictive is divided out."""
    width = len(x)
    first = int(prior.widths[:b].sum())
    mean0, spread = prior.vector_mean[first : first + width], prior.vector_spread[first : first + width]
    kappa0, nu0 = prior.wishart[b, :2]
    kappa, nu, off = kappa0 + n, nu0 + n, mean - mean0
    location = mean0 + off * n / kappa
    matrix = np.diag(spread) + scatter + n * kappa0 / kappa * np.outer(off, off)
    matrix *= (kappa + 1) / kappa
    y = (x - location) @ np.linalg.solve(matrix, x - location)
    if getattr(prior, "given", np.zeros(b + 1))[b]:
        first = (x[0] - location[0]) ** 2 / matrix[0, 0]
        return (
            lgamma((nu + 1) / 2)
            - lgamma((nu + 2 - width) / 2)
            - 0.5 * ((width - 1) * log(pi) + np.linalg.slogdet(matrix)[1] - log(matrix[0, 0]))
            - (nu + 1) / 2 * log1p(min(y, 1e300))
            + nu / 2 * log1p(min(first, 1e300))
        )
    return (
        lgamma((nu + 1) / 2)
        - lgamma((nu + 1 - width) / 2)
        - 0.5 * (width * log(pi) + np.linalg.slogdet(matrix)[1])
        - (nu + 1) / 2 * log1p(min(y, 1e300))
    )


def log_spell(spell, prior, s, events, exposure):
    """Predictive of survival column s: each hazard is Gamma(shape + events, rate + exposure) (docs/math.md 1.11)."""
    part, event, ticks = spell
    (shape, rate), width = prior.spell_gamma[s], prior.spell_width[SPELL_PARTS * s :]
    score = 0.0
    for p in range(part + 1):
        a, b = shape + events[p], rate + exposure[p]
        score -= a * log1p((ticks if p == part else width[p]) / b)
    return score + (log(a) - log(b + ticks) if event else 0.0)


class Cluster:
    """Statistics of one cluster, and its predictive; `n`, levels etc. as in the Statistics class."""

    def __init__(self, prior):
        self.prior = prior
        self.size = 0
        self.levels = np.zeros(prior.offsets[-1], dtype=np.int64)
        self.reals = [(0, 0.0, 0.0) for _ in prior.normal]  # n, mean, scatter
        self.tallies = [(0, 0.0) for _ in prior.gamma]  # n, sum
        self.vectors = [(0, np.zeros(d), np.zeros((d, d))) for d in widths_of(prior)]  # n, mean, scatter
        self.spells = [np.zeros((2, SPELL_PARTS)) for _ in getattr(prior, "spell_gamma", ())]  # events, exposure

    def add(self, row):
        self.size += 1
        for c, code in enumerate(row.codes):
            self.levels[self.prior.offsets[c] + code] += 1
        for r, x in enumerate(row.reals):
            if not isnan(x):
                n, mean, scatter = self.reals[r]
                after = mean + (x - mean) / (n + 1)
                self.reals[r] = n + 1, after, scatter + (x - mean) * (x - after)
        for q, x in enumerate(row.tallies):
            if not isnan(x):
                n, total = self.tallies[q]
                self.tallies[q] = n + 1, total + x
        for b, x in enumerate(row.vectors):
            if x is not None:
                n, mean, scatter = self.vectors[b]
                after = mean + (x - mean) / (n + 1)
                self.vectors[b] = n + 1, after, scatter + np.outer(x - mean, x - after)
        self._add_spells(row, 1)

    def _add_spells(self, row, sign):
        for s, spell in enumerate(row.spells):
            if spell is not None:
                part, event, ticks = spell
                first = SPELL_PARTS * s
                self.spells[s][0, part] += sign * event
                self.spells[s][1, :part] += sign * self.prior.spell_width[first : first + part]
                self.spells[s][1, part] += sign * ticks

    def remove(self, row):
        """Undo `add`; the scatter stays at or above 0 and the last cell leaves exact zeros."""
        self.size -= 1
        self._add_spells(row, -1)
        for c, code in enumerate(row.codes):
            self.levels[self.prior.offsets[c] + code] -= 1
        for r, x in enumerate(row.reals):
            if not isnan(x):
                n, mean, scatter = self.reals[r]
                if n == 1:
                    self.reals[r] = 0, 0.0, 0.0
                else:
                    before = mean - (x - mean) / (n - 1)
                    self.reals[r] = n - 1, before, max(0.0, scatter - (x - mean) * (x - before))
        for q, x in enumerate(row.tallies):
            if not isnan(x):
                n, total = self.tallies[q]
                self.tallies[q] = n - 1, total - x if n > 1 else 0.0
        for b, x in enumerate(row.vectors):
            if x is not None:
                n, mean, scatter = self.vectors[b]
                if n == 1:
                    self.vectors[b] = 0, 0.0 * mean, 0.0 * scatter
                else:
                    before = mean - (x - mean) / (n - 1)
                    self.vectors[b] = n - 1, before, scatter - np.outer(x - mean, x - before)

    def log_predictive(self, row):
        """Log f(row | rows of the cluster): the product over observed cells of the predictives of docs/math.md 1."""
        offsets, beta, contexts = self.prior.offsets, self.prior.dirichlet, contexts_of(self.prior)
        score = 0.0
        for c, code in enumerate(row.codes):
            if offsets[c] + code != offsets[c + 1] - 1:
                rows = (offsets[c + 1] - offsets[c]) // contexts[c]
                first = offsets[c] + code // rows * rows  # first level row of the parent's context
                n, total = self.levels[first : first + rows - 1], beta[first : first + rows - 1].sum()
                score += log(n[code % rows] + beta[offsets[c] + code]) - log(n.sum() + total)
        for r, x in enumerate(row.reals):
            if not isnan(x):
                score += log_student(x, self.prior.normal[r], *self.reals[r])
        for q, x in enumerate(row.tallies):
            if not isnan(x):
                score += log_negative_binomial(x, self.prior.gamma[q], *self.tallies[q])
        for b, x in enumerate(row.vectors):
            if x is not None:
                score += log_student_vector(x, self.prior, b, *self.vectors[b])
        for s, spell in enumerate(row.spells):
            if spell is not None:
                score += log_spell(spell, self.prior, s, *self.spells[s])
        return score


def square(pairs):
    """Symmetric matrix (D, D) from a packed lower triangle."""
    width = int((2 * len(pairs)) ** 0.5)
    out = np.zeros((width, width))
    out[np.tril_indices(width)] = pairs
    return out + np.tril(out, -1).T


def blocks_of(widths, s, k):
    """Return (mean, packed scatter) of each block in cluster k."""
    if not len(widths):
        return []
    columns, pairs = np.cumsum(widths)[:-1], np.cumsum(widths * (widths + 1) // 2)[:-1]
    return zip(np.split(s.vector_mean[:, k], columns), np.split(s.vector_scatter[:, k], pairs), strict=True)
