"""The kernels of features.pyx in plain Python, a row at a time, everything afresh: slow, and their specification.

Same arguments, same random words, same features. V and the means are inverted anew for every row, and scores are
differences of Gaussian log densities, so a flip whose uniform falls within about 1e-9 of its boundary may differ.
Equations: docs/math.md 7.1, step 6. The rules of a step are methods of Tail, so that tests can break one at a time.
"""

from __future__ import annotations

from math import exp, log, pi

import numpy as np

PRIORITY, FLIP, TAIL = 1, 43, 44  # purposes of random words
LEADING = 1 << 15  # where a row's blocks of leading bytes begin
ALIKE = 0.3
NOBODY = 2**64 - 1
MOST_BORN = 1024


def block(first, seed, purpose, sub, cycle, chain):
    """The four words of one Philox block, as Python's integers."""
    counter = first + (sub << 64) + (cycle << 128) + (chain << 192)
    # NumPy adds one to the counter before its first block
    return np.random.Philox(key=seed + (purpose << 64), counter=(counter - 1) % 2**256).random_raw(4).tolist()


def priority(row, seed, cycle, chain):
    return block(row >> 2, seed, PRIORITY, 0, cycle, chain)[row & 3]


def uniform(word):
    """In [0, 1)."""
    return (word >> 11) * 2.0**-53


def logit(word):
    """log u / (1 - u) of u in (0, 1), of 52 bits."""
    u = (word >> 12) * 2.0**-52 + 2.0**-53
    return log(u / (1.0 - u))


def threshold(row, n, seed, sweep, cycle, chain):
    """log u / (1 - u) of a row's decision number n: u has a byte of one block, and 53 bits of another below it."""
    byte = block((row << 16) + LEADING + (n >> 5), seed, FLIP, sweep, cycle, chain)[n >> 3 & 3] >> 8 * (n & 7) & 255
    word = block((row << 16) + (n >> 2), seed, FLIP, sweep, cycle, chain)[n & 3]
    v = (word >> 12) * 2.0**-52 + 2.0**-53
    return log((byte + v) / (255 - byte + (1.0 - v)))


class Words:
    """A row's own words, one after another."""

    def __init__(self, row, seed, cycle, chain, sweep):
        self.at, self.key, self.left = row << 16, (seed, TAIL, sweep, cycle, chain), []

    def next(self):
        if not self.left:
            self.left = block(self.at, *self.key)
            self.at += 1
        return self.left.pop(0)

    def below(self, n):
        """A whole number from 0 to n - 1: the upper half of word times n."""
        return self.next() * n >> 64


def log_normal(error, variance, n_columns):
    """Log density of `error`, n_columns independent normals of this variance."""
    return -0.5 * n_columns * log(2.0 * pi * variance) - 0.5 * float(error @ error) / variance


class Rows:
    def __init__(self, x, z, start):
        self.x, self.z, self.start, self.n_columns = x, z, start, x.shape[1]

    def __len__(self):
        return len(self.x)

    def has(self, slots):
        """bool (n, K): which rows have the features of these slots."""
        z = self.z
        columns = [(z[:, s // 64] >> np.uint64(s % 64) & np.uint64(1)).astype(bool) for s in slots]
        return np.array(columns, bool).reshape(len(slots), len(z)).T

    def least_priorities(self, slots, seed, cycle, chain):
        part = [priority(self.start + i, seed, cycle, chain) for i in range(len(self))]
        least = [min((part[i] for i in np.flatnonzero(column)), default=NOBODY) for column in self.has(slots).T]
        return np.array(least, np.uint64)

    def tally(self, slots):
        has, x = self.has(slots).astype(np.int64), self.x.astype(np.float64)
        return has.T @ has, np.vstack([has.T @ x, (x * x).sum(axis=0)])


class Features:
    def __init__(self, slots, loadings, weights, noise):
        self.slots, self.noise = [int(s) for s in slots], np.asarray(noise, np.float64)
        self.loadings = np.asarray(loadings, np.float64) / self.noise
        self.weights = np.asarray(weights, np.float64)
        length = [max(float(a @ a), 1e-300) ** 0.5 for a in self.loadings]
        pairs = [(j, k) for j in range(len(length)) for k in range(j + 1, len(length))]
        cosine = {(j, k): float(self.loadings[j] @ self.loadings[k]) / (length[j] * length[k]) for j, k in pairs}
        most = sorted(pairs, key=lambda pair: -cosine[pair])[: 2 * len(length)]
        self.pairs = [pair for pair in most if cosine[pair] >= ALIKE]

    def scaled(self, rows):
        """(n, D): the cells in units of the noise."""
        return rows.x.astype(np.float64) / self.noise

    def sweep(self, rows, anchors, seed, cycle, chain, sweep_number, tail=None):
        x, z = self.scaled(rows), rows.has(self.slots)
        for i in range(len(rows)):
            row = rows.start + i
            key = (seed, cycle, chain)
            if tail is not None:
                tail.enter(x - z @ self.loadings, i, Words(row, *key, sweep_number))
            self.flip(x[i], z[i], row, [int(a) for a in anchors], key, sweep_number, tail)
            if tail is not None:
                tail.leave(x[i] - z[i] @ self.loadings, i)
        for k, s in enumerate(self.slots):
            bit = np.uint64(1) << np.uint64(s % 64)
            rows.z[:, s // 64] = np.where(z[:, k], rows.z[:, s // 64] | bit, rows.z[:, s // 64] & ~bit)

    def flip(self, x, z, row, anchors, key, sweep, tail):
        """One row's instantiated features, in order; z (K,) is changed."""
        mean, variance = (np.zeros(len(x)), 1.0) if tail is None else tail.given_the_others()
        part = priority(row, *key)
        for k in range(len(self.slots)):
            if part <= anchors[k]:
                continue
            scores = []
            for value in (False, True):
                z[k] = value
                scores.append(log_normal(x - z @ self.loadings - mean, variance, len(x)))
            log_odds = log(self.weights[k]) - np.log1p(-self.weights[k])
            z[k] = threshold(row, k, key[0], sweep, *key[1:]) < log_odds + scores[1] - scores[0]
        for p, (j, k) in enumerate(self.pairs):
            if z[j] == z[k] or self.has_to_stay(part, anchors[j], anchors[k]):
                continue
            exchanged = z.copy()
            exchanged[[j, k]] = z[[k, j]]
            odds = [self.log_score(x - mean, own_z, variance) for own_z in (z, exchanged)]
            number = (len(z) + 7) // 8 * 8 + p
            if threshold(row, number, key[0], sweep, *key[1:]) < odds[1] - odds[0]:
                z[:] = exchanged

    def has_to_stay(self, own, *anchors):
        """True if a row of this priority keeps features with these anchors."""
        return own <= max(anchors)

    def log_score(self, x, z, variance):
        """Log probability of a row's features and cells given weights and loadings."""
        log_weights = np.where(z, np.log(self.weights), np.log1p(-self.weights)).sum()
        return float(log_weights) + log_normal(x - z @ self.loadings, variance, len(x))


class Tail:
    """columns: {place: bool (n,)}, in the order of the kernel's list of active places."""

    def __init__(self, rows, features, owned, n_rows, births, prior, concentration):
        self.n, self.others = len(rows), n_rows - 1 + concentration
        self.births, self.prior, self.n_columns = births, prior, rows.n_columns
        self.columns = {p: column.copy() for p, column in enumerate(np.asarray(owned, bool).T)}

    @property
    def places(self):
        return np.array(list(self.columns), np.int64)

    def owned(self):
        return np.array(list(self.columns.values()), bool).reshape(len(self.columns), self.n).T

    def refresh(self, rows, features):
        """Do nothing: V and the means are always fresh."""

    # --- the rules ---

    def owners(self, k):
        """Number of other rows that have the k-th shared feature."""
        return int(self.columns[self.shared[k]].sum())

    def log_odds(self, m):
        """Log odds that a row has a feature that m other rows have."""
        return log(m / (self.others - m))

    def order(self, n):
        """Order in which a row is asked about n features; one word of its own each."""
        return self.words.below(n)

    def given_the_others(self):
        """Mean (D,) and variance of a cell that the row's present tail features make, and the noise."""
        z = self.z.astype(np.float64)
        return z @ self.means, 1.0 + float(z @ self.spread @ z) + self.n_alone * self.prior

    def after(self, born):
        """Number of features that the row alone would have."""
        return born

    # --- a row ---

    def enter(self, residual, i, words):
        """Take row i out; residual (n, D): all rows less their instantiated features."""
        self.words = words
        self.born, u, term = 0, uniform(words.next()), exp(-self.births)
        below = term
        while u >= below and self.born < MOST_BORN:
            self.born += 1
            term *= self.births / self.born
            below += term
        held = {p: bool(column[i]) for p, column in self.columns.items()}
        for column in self.columns.values():
            column[i] = False
        self.shared = [p for p, column in self.columns.items() if column.any()]
        self.n_alone = len(self.columns) - len(self.shared)
        self.columns = {p: self.columns[p] for p in self.shared}
        self.z = np.array([held[p] for p in self.shared], bool)
        z = self.owned().astype(np.float64)
        others = np.arange(self.n) != i
        precision = z[others].T @ z[others] + np.eye(len(self.shared)) / self.prior
        self.spread = np.linalg.inv(precision)
        self.means = self.spread @ (z[others].T @ residual[others])

    def leave(self, residual, i):
        """Flip the row's tail features, given its residual (D,), and put it back."""
        order = list(range(len(self.shared)))
        for a in range(len(order)):
            at = a + self.order(len(order) - a)
            order[a], order[at] = order[at], order[a]
            k, sign = order[a], -1.0 if self.z[order[a]] else 1.0
            now = self.score(residual)
            self.z[k] = not self.z[k]
            gain = self.score(residual) - now + sign * self.log_odds(self.owners(k))
            if logit(self.words.next()) >= gain:
                self.z[k] = not self.z[k]
        if self.after(self.born) != self.n_alone:
            now, alone, coin = self.score(residual), self.n_alone, uniform(self.words.next())
            self.n_alone = self.after(self.born)
            gain = self.score(residual) - now
            if gain < 0 and coin >= exp(gain):
                self.n_alone = alone
        for k, p in enumerate(self.shared):
            self.columns[p][i] = self.z[k]
        for p in [p for p in range(len(self.columns) + self.n_alone) if p not in self.columns][: self.n_alone]:
            self.columns[p] = np.arange(self.n) == i

    def score(self, residual):
        mean, variance = self.given_the_others()
        return log_normal(residual - mean, variance, self.n_columns)
