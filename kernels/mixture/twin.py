"""The kernels of mixture.pyx and visits.pyx in plain Python, float64, one row at a time: slow, and their specification.

Same arguments, same random numbers, same labels. Differences allowed: the kernels keep categorical scores in float32,
so a draw that falls within about 1e-5 of the boundary between two candidates may differ. They also take rows in blocks,
which changes nothing: a row's step sees what the steps before it left. Equations: docs/math.md 1.3 to
1.6 (predictives), 2.1, step 6, and 2.3 (candidates, anchors).
"""

from __future__ import annotations

from math import inf, isnan, lgamma, log, log1p, pi

import numpy as np

PRIORITY, ASSIGN, VISIT, SUBSAMPLE = 1, 2, 11, 15
UNANCHORED = 2**64 - 1


def words(row0, n, seed, purpose, sweep, cycle, chain):
    """uint64 (n,): the random word of rows row0..row0+n-1: word `row & 3` of Philox block (row >> 2, sweep, cycle,
    chain)."""
    out = np.empty(n, dtype=np.uint64)
    for block in range(row0 >> 2, (row0 + n + 3) >> 2):
        counter = block + (sweep << 64) + (cycle << 128) + (chain << 192)
        # NumPy adds one to the counter before its first block
        stream = np.random.Philox(key=seed + (purpose << 64), counter=(counter - 1) % 2**256)
        four = stream.random_raw(4)
        for j in range(4):
            if 0 <= 4 * block + j - row0 < n:
                out[4 * block + j - row0] = four[j]
    return out


def priorities(row0, n, seed, cycle, chain):
    return words(row0, n, seed, PRIORITY, 0, cycle, chain)


def widths_of(blocks):
    """Columns of each block of full-covariance normals in rows or a prior."""
    return np.asarray(getattr(blocks, "widths", ()), dtype=np.int64)


class Row:
    """One row: codes of the categorical columns in block order, real and count cells with NaN for missing, and a vector
    for each block, None where it is missing."""

    def __init__(self, rows, i):
        self.codes = [int(v) for v in (*rows.codes8[i], *rows.codes16[i])]
        self.reals = rows.reals[i].tolist()
        self.tallies = rows.tallies[i].tolist()
        blocks = np.split(rows.vectors[i], np.cumsum(rows.widths)[:-1]) if len(widths_of(rows)) else []
        self.vectors = [None if np.isnan(x).any() else x for x in blocks]


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
    scatter (D, D)."""
    width = len(x)
    first = int(prior.widths[:b].sum())
    mean0, spread = prior.vector_mean[first : first + width], prior.vector_spread[first : first + width]
    kappa0, nu0 = prior.wishart[b, :2]
    kappa, nu, off = kappa0 + n, nu0 + n, mean - mean0
    location = mean0 + off * n / kappa
    matrix = np.diag(spread) + scatter + n * kappa0 / kappa * np.outer(off, off)
    matrix *= (kappa + 1) / kappa
    y = (x - location) @ np.linalg.solve(matrix, x - location)
    return (
        lgamma((nu + 1) / 2)
        - lgamma((nu + 1 - width) / 2)
        - 0.5 * (width * log(pi) + np.linalg.slogdet(matrix)[1])
        - (nu + 1) / 2 * log1p(min(y, 1e300))
    )


class Cluster:
    """Statistics of one cluster, and its predictive; `n` levels etc. as in the Statistics class."""

    def __init__(self, prior):
        self.prior = prior
        self.size = 0
        self.levels = np.zeros(prior.offsets[-1], dtype=np.int64)
        self.reals = [(0, 0.0, 0.0) for _ in prior.normal]  # n, mean, scatter
        self.tallies = [(0, 0.0) for _ in prior.gamma]  # n, sum
        self.vectors = [(0, np.zeros(d), np.zeros((d, d))) for d in widths_of(prior)]  # n, mean, scatter

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

    def remove(self, row):
        """Undoes `add`; the scatter stays at or above 0 and the last cell leaves exact zeros."""
        self.size -= 1
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
        """log f(row | rows of the cluster): the product over observed cells of the predictives of docs/math.md 1."""
        offsets, beta = self.prior.offsets, self.prior.dirichlet
        score = 0.0
        for c, code in enumerate(row.codes):
            first, missing = offsets[c], offsets[c + 1] - 1
            if first + code != missing:
                n, total = self.levels[first:missing], beta[first:missing].sum()
                score += log(n[code] + beta[first + code]) - log(n.sum() + total)
        for r, x in enumerate(row.reals):
            if not isnan(x):
                score += log_student(x, self.prior.normal[r], *self.reals[r])
        for q, x in enumerate(row.tallies):
            if not isnan(x):
                score += log_negative_binomial(x, self.prior.gamma[q], *self.tallies[q])
        for b, x in enumerate(row.vectors):
            if x is not None:
                score += log_student_vector(x, self.prior, b, *self.vectors[b])
        return score


def square(pairs):
    """The symmetric matrix (D, D) of a packed lower triangle."""
    width = int((2 * len(pairs)) ** 0.5)
    out = np.zeros((width, width))
    out[np.tril_indices(width)] = pairs
    return out + np.tril(out, -1).T


def blocks_of(widths, s, k):
    """(mean, packed scatter) of each block in cluster k."""
    if not len(widths):
        return []
    columns, pairs = np.cumsum(widths)[:-1], np.cumsum(widths * (widths + 1) // 2)[:-1]
    return zip(np.split(s.vector_mean[:, k], columns), np.split(s.vector_scatter[:, k], pairs), strict=True)


class Tail:
    """A list of slots, each a Cluster; a Cluster of size 0 is a vacant slot."""

    def __init__(self, prior, concentration, discount, log_weight, capacity=16):
        self.prior, self.concentration, self.discount, self.log_weight = prior, concentration, discount, log_weight
        self.slots = []

    def load(self, statistics):
        self.slots = []
        for k in range(len(statistics.size)):
            slot = Cluster(self.prior)
            slot.size = int(statistics.size[k])
            slot.levels = statistics.levels[:, k].astype(np.int64)
            slot.reals = [
                (int(statistics.real_n[r, k]), float(statistics.real_mean[r, k]), float(statistics.real_scatter[r, k]))
                for r in range(len(self.prior.normal))
            ]
            slot.tallies = [
                (int(statistics.tally_n[q, k]), float(statistics.tally_sum[q, k])) for q in range(len(self.prior.gamma))
            ]
            widths = widths_of(self.prior)
            for b, (mean, pairs) in enumerate(blocks_of(widths, statistics, k)):
                slot.vectors[b] = int(statistics.vector_n[b, k]), mean, square(pairs)
            self.slots.append(slot)
        while self.slots and not self.slots[-1].size:
            self.slots.pop()

    @property
    def n_slots(self):
        return len(self.slots)

    @property
    def n_rows(self):
        return sum(slot.size for slot in self.slots)

    @property
    def n_occupied(self):
        return sum(slot.size > 0 for slot in self.slots)

    def vacant(self):
        """The lowest slot without rows; one beyond the list when all have some."""
        return next((t for t, slot in enumerate(self.slots) if not slot.size), len(self.slots))

    def log_weights(self, row):
        """(candidates, new): log weight of the row, which is in no cluster, for each slot and for a new cluster."""
        c, d = self.concentration, self.discount
        rows, occupied = self.n_rows, self.n_occupied
        new = Cluster(self.prior).log_predictive(row)
        if rows == 0:  # c cancels, and may be <= 0
            return [-inf] * len(self.slots), self.log_weight + new
        shift = self.log_weight - log(rows + c)
        known = [shift + log(s.size - d) + s.log_predictive(row) if s.size else -inf for s in self.slots]
        return known, shift + log(c + occupied * d) + new if c + occupied * d > 0 else -inf


class Instantiated:
    """Plain holder; see mixture.Instantiated."""

    def __init__(
        self,
        n=0,
        free=None,
        anchors=None,
        log_weight=None,
        table=None,
        location=None,
        half_precision=None,
        constant=None,
        log_rate=None,
        rate=None,
        vector_location=None,
        vector_factor=None,
        vector_constant=None,
    ):
        self.n, self.free, self.base = n, n if free is None else free, (n + 15) // 16 * 16
        self.anchors = [] if anchors is None else [int(a) for a in anchors]
        self.log_weight, self.table = log_weight, table
        self.location, self.half_precision, self.constant = location, half_precision, constant
        self.log_rate, self.rate = log_rate, rate
        self.vector_location, self.vector_factor = vector_location, vector_factor
        self.vector_constant = vector_constant

    def log_weight_of(self, k, row, prior):
        score = float(self.log_weight[k])
        for c, code in enumerate(row.codes):
            score += float(self.table[prior.offsets[c] + code, k])
        for r, x in enumerate(row.reals):
            if not isnan(x):
                score += self.constant[r, k] - self.half_precision[r, k] * (x - self.location[r, k]) ** 2
        for q, x in enumerate(row.tallies):
            if not isnan(x):
                score += x * self.log_rate[q, k] - self.rate[q, k] - lgamma(x + 1)
        column = pair = 0
        for b, width in enumerate(widths_of(prior)):
            n_pairs = width * (width + 1) // 2
            if row.vectors[b] is not None:
                factor = np.zeros((width, width))
                factor[np.tril_indices(width)] = self.vector_factor[pair : pair + n_pairs, k]
                y = factor @ (row.vectors[b] - self.vector_location[column : column + width, k])
                score += self.vector_constant[b, k] - 0.5 * float(y @ y)
            column, pair = column + width, pair + n_pairs
        return score


def draw(scores, u):
    """First k whose cumulative weight exceeds u times the total, weights exp(scores) in any scale."""
    scores = np.asarray(scores, dtype=np.float64)
    if np.isnan(scores).any():
        raise FloatingPointError("a score is not a number")
    if not len(scores) or not -inf < scores.max() < inf:
        raise FloatingPointError("no candidate has a positive probability")
    weights = np.exp(scores - scores.max())
    cumulative = np.cumsum(weights)
    above = np.flatnonzero(cumulative > u * cumulative[-1])
    return int(above[0]) if len(above) else int(np.flatnonzero(weights)[-1])


def sweep(
    rows,
    z,
    row0,
    seed,
    cycle,
    sweep,
    chain,
    instantiated,
    tail,
    prior,
    priority_free=False,
    remove=None,
    assign=None,
):
    """See mixture.sweep."""
    g = Instantiated() if instantiated is None else instantiated
    n = len(z)
    pi_n = priorities(row0, n, seed, cycle, chain)

    def is_anchor(i):
        return not priority_free and g.free <= z[i] < g.n and int(pi_n[i]) == g.anchors[z[i] - g.free]

    def take_out(i):
        """Whether row i was alone in a tail cluster; its label stays."""
        if tail is None or z[i] < g.base or z[i] < g.n:
            return False
        slot = tail.slots[z[i] - g.base]
        slot.remove(Row(rows, i))
        return slot.size == 0

    def gibbs_step(i, uniform):
        """Whether row i moved; it may have been in no cluster before."""
        if is_anchor(i):
            return False
        row, old, allowed = Row(rows, i), int(z[i]), g.n
        if not priority_free:
            allowed = g.free + sum(a < int(pi_n[i]) for a in g.anchors)
            if allowed == 0 and tail is None:
                allowed = g.n
        empty = tail is not None and all(slot.size == 0 for slot in tail.slots)
        alone = take_out(i)
        scores = [g.log_weight_of(k, row, prior) for k in range(allowed)]
        labels = list(range(allowed))
        if tail is not None:
            known, new = tail.log_weights(row)
            vacant = tail.vacant()
            if vacant == len(known):
                known.append(-inf)
            known[vacant] = new
            slots = [g.base + t for t in range(len(known))]
            if empty:  # the new cluster stands before all others
                scores, labels = [new, *scores], [g.base + vacant, *labels]
            else:
                scores, labels = scores + known, labels + slots
        z[i] = chosen = labels[draw(scores, uniform)]
        if tail is None or chosen < g.base or chosen < g.n:
            return chosen != old
        if chosen - g.base == len(tail.slots):
            tail.slots.append(Cluster(prior))
        opened = tail.slots[chosen - g.base].size == 0
        tail.slots[chosen - g.base].add(row)
        return chosen != old and not (alone and opened)

    if remove is None:
        word = words(row0, n, seed, ASSIGN, sweep, cycle, chain)
        return sum(gibbs_step(i, (int(word[i]) >> 11) * 2.0**-53) for i in range(n) if z[i] >= -1)

    moved = 0
    for s, (i, j) in enumerate(zip(remove, assign, strict=True)):
        if s % n == 0:
            word = words(row0, n, seed, VISIT, sweep + (s // n << 32), cycle, chain)
        if i >= 0 and i != j and z[i] >= -1:
            if is_anchor(i):
                continue
            take_out(i)
            z[i] = -2
        if j < 0 or (z[j] >= 0 and i != j):
            continue
        if z[j] < 0:
            z[j] = -2
            if tail is None and g.n == 0:
                continue
        moved += gibbs_step(j, (int(word[s % n]) >> 11) * 2.0**-53)
    return moved


def visits(z, n_grow, n_churn, seed, cycle, sweep, chain, shard, strata=None, grow=None):
    """See visits.visits."""
    n, steps = len(z), n_grow + n_churn
    strata = np.zeros(n, dtype=np.int32) if strata is None else strata
    grow = [n_grow] if grow is None else list(grow)
    word = [int(v) for v in words(0, 2 * steps, seed, SUBSAMPLE, shard + (sweep << 32), cycle, chain)]
    active = [i for i in range(n) if z[i] >= -1]
    idle = [[i for i in range(n) if z[i] < -1 and strata[i] == h] for h in range(len(grow))]
    due = [h for h, times in enumerate(grow) for _ in range(times)]
    remove, assign = [], []
    for s in range(steps):
        first, second = word[2 * s], word[2 * s + 1]
        if -(-(s + 1) * n_grow // steps) > -(-s * n_grow // steps):
            at = first * len(due) >> 64
            due[at], due[-1] = due[-1], due[at]
            pool = idle[due.pop()]
            at = second * len(pool) >> 64
            pool[at], pool[-1] = pool[-1], pool[at]
            row = pool.pop()
            active.append(row)
            remove.append(-1)
        else:
            at = first * len(active) >> 64
            remove.append(row := active[at])
            pool = idle[strata[row]]
            other = second * (len(pool) + 1) >> 64
            if other < len(pool):
                row, pool[other] = pool[other], row
            active[at] = row
        assign.append(row)
    return np.array(remove, dtype=np.int32), np.array(assign, dtype=np.int32)


def log_predictive_clusters(rows, tail):
    """See mixture.log_predictive_clusters."""
    out = np.empty((len(rows.reals), tail.n_slots + 1))
    for i in range(len(out)):
        known, new = tail.log_weights(Row(rows, i))
        out[i] = [*known, new]
    return out


def log_predictive(rows, tail):
    """See mixture.log_predictive."""
    terms = log_predictive_clusters(rows, tail)
    return np.logaddexp.reduce(terms, axis=1)


def anchors(z, row0, seed, cycle, chain, owned, n_clusters):
    """See mixture.anchors."""
    least = [UNANCHORED] * n_clusters
    for k, priority in zip(z, priorities(row0, len(z), seed, cycle, chain), strict=True):
        if k >= 0 and not owned[k]:
            least[k] = min(least[k], int(priority))
    return np.array(least, dtype=np.uint64)


def accumulate(rows, z, n_clusters, offsets, relabel=None):
    """See mixture.accumulate."""
    z = np.asarray(z, dtype=np.int64)
    if relabel is not None:
        z = np.append(np.asarray(relabel, dtype=np.int64), -1)[np.where(z >= 0, z, -1)]
    codes = np.concatenate([rows.codes8, rows.codes16], axis=1).astype(np.int64)
    R, Q = rows.reals.shape[1], rows.tallies.shape[1]
    size = np.bincount(z[z >= 0], minlength=n_clusters)
    levels = np.zeros((offsets[-1], n_clusters), dtype=np.int32)
    real_n, real_mean, real_scatter = np.zeros((R, n_clusters), np.int64), *np.zeros((2, R, n_clusters))
    tally_n, tally_sum = np.zeros((Q, n_clusters), np.int64), np.zeros((Q, n_clusters))
    for k in range(n_clusters):
        own = z == k
        for c in range(codes.shape[1]):
            np.add.at(levels[:, k], offsets[c] + codes[own, c], 1)
        for r in range(R):
            x = rows.reals[own, r]
            x = x[~np.isnan(x)]
            real_n[r, k] = len(x)
            if len(x):
                real_mean[r, k] = x.mean()
                real_scatter[r, k] = ((x - real_mean[r, k]) ** 2).sum()
        for q in range(Q):
            x = rows.tallies[own, q]
            tally_n[q, k], tally_sum[q, k] = (~np.isnan(x)).sum(), np.nansum(x)
    widths = widths_of(rows)
    vector_n = np.zeros((len(widths), n_clusters), np.int64)
    vector_mean = np.zeros((widths.sum(), n_clusters))
    vector_scatter = np.zeros((int((widths * (widths + 1) // 2).sum()), n_clusters))
    column = pair = 0
    for b, width in enumerate(widths):
        n_pairs = width * (width + 1) // 2
        for k in range(n_clusters):
            x = rows.vectors[z == k, column : column + width]
            x = x[~np.isnan(x).any(axis=1)]
            vector_n[b, k] = len(x)
            if len(x):
                mean = vector_mean[column : column + width, k] = x.mean(axis=0)
                scatter = (x - mean).T @ (x - mean)
                vector_scatter[pair : pair + n_pairs, k] = scatter[np.tril_indices(width)]
        column, pair = column + width, pair + n_pairs
    moments = vector_n, vector_mean, vector_scatter
    return size, levels, real_n, real_mean, real_scatter, tally_n, tally_sum, *moments
