"""The kernels of gibbs.pyx, statistics.pyx and tail.pyx in plain Python, float64, row by row: their specification.

Same arguments, same random numbers, same labels. Differences allowed: the kernels keep categorical scores in float32,
so a draw within about 1e-5 of the boundary between two candidates may differ. They also process rows in blocks, which
changes nothing: a row's step sees the state left by the steps before it. Equations: docs/math.md 2.1, step 6, and 2.3
(candidates, anchors); twin_cluster.py has the predictives.
"""

from __future__ import annotations

from copy import copy
from math import inf, isnan, lgamma, log

import numpy as np

from mpibayes.kernels.mixture.twin_cluster import (
    SPELL_PARTS,
    Cluster,
    Row,
    blocks_of,
    spell_of,
    spells_of,
    square,
    widths_of,
)  # fmt: skip

PRIORITY, ASSIGN, VISIT = 1, 2, 11  # purposes of random words
UNANCHORED = 2**64 - 1


def words(row0, n, seed, purpose, sweep, cycle, chain):
    """Random words of rows row0..row0+n-1, uint64 (n,): word `row & 3` of Philox block (row >> 2, sweep, cycle,
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


class Tail:
    """A list of slots, each a Cluster; a Cluster of size 0 is a vacant slot."""

    def __init__(self, prior, concentration, discount, log_weight, capacity=16, statistics=None):
        self.prior, self.concentration, self.discount, self.log_weight = prior, concentration, discount, log_weight
        self.slots = []
        if statistics is not None:
            self.load(statistics)

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
            for s in range(len(slot.spells)):
                rows = slice(SPELL_PARTS * s, SPELL_PARTS * (s + 1))
                events, ended, time = (
                    a[rows, k] for a in (statistics.spell_events, statistics.spell_ended, statistics.spell_time)
                )
                beyond = np.cumsum(ended[::-1])[::-1] - ended
                slot.spells[s] = np.stack([events, time + beyond * self.prior.spell_width[rows]]).astype(float)
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
        """Lowest slot without rows; one beyond the list if all have rows."""
        return next((t for t, slot in enumerate(self.slots) if not slot.size), len(self.slots))

    def log_weights(self, row):
        """Return (candidates, new): log weight of the row, which is in no cluster, for each slot and for a new
        cluster."""
        c, d = self.concentration, self.discount
        rows, occupied = self.n_rows, self.n_occupied
        new = Cluster(self.prior).log_predictive(row)
        if rows == 0:  # c cancels, and may be <= 0
            return [-inf] * len(self.slots), self.log_weight + new
        shift = self.log_weight - log(rows + c)
        known = [shift + log(s.size - d) + s.log_predictive(row) if s.size else -inf for s in self.slots]
        return known, shift + log(c + occupied * d) + new if c + occupied * d > 0 else -inf


class Instantiated:
    """Plain holder of the arguments; see mixture.Instantiated. All rows of the table are kept, whatever is met."""

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
        spell_start=None,
        spell_hazard=None,
        order=None,
        met=None,
    ):
        if order is not None:
            given = table, location, half_precision, constant, log_rate, rate
            given += vector_location, vector_factor, vector_constant, spell_start, spell_hazard
            table, location, half_precision, constant, log_rate, rate, *more = (
                a if a is None else a[:, order] for a in given
            )
            vector_location, vector_factor, vector_constant, spell_start, spell_hazard = more
        self.n, self.free, self.base = n, n if free is None else free, (n + 15) // 16 * 16
        self.anchors = [] if anchors is None else [int(a) for a in anchors]
        self.log_weight, self.table = log_weight, table
        self.location, self.half_precision, self.constant = location, half_precision, constant
        self.log_rate, self.rate = log_rate, rate
        self.vector_location, self.vector_factor = vector_location, vector_factor
        self.vector_constant = vector_constant
        self.spell_start, self.spell_hazard = spell_start, spell_hazard

    def all_free(self):
        """Return the same clusters, of which every row may enter any."""
        result = copy(self)
        result.free, result.anchors = self.n, []
        return result

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
        for s, spell in enumerate(row.spells):
            if spell is not None:
                part, event, ticks = SPELL_PARTS * s + spell[0], spell[1], spell[2]
                score += self.spell_start[2 * part + event, k] - self.spell_hazard[part, k] * ticks
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
    survivors=None,
    response=None,
):
    """See mixture.sweep. survivors: ignored, since they change no label. response: from twin_response."""
    g = Instantiated() if instantiated is None else instantiated
    n = len(z)
    pi_n = priorities(row0, n, seed, cycle, chain)

    def is_anchor(i):
        return not priority_free and g.free <= z[i] < g.n and int(pi_n[i]) == g.anchors[z[i] - g.free]

    def take_out(i):
        """Remove row i from its tail cluster; True if it was alone there. Its label stays."""
        if tail is None or z[i] < g.base or z[i] < g.n:
            return False
        slot = tail.slots[z[i] - g.base]
        slot.remove(Row(rows, i))
        return slot.size == 0

    def gibbs_step(i, uniform):
        """Draw the cluster of row i; True if it moved. It may have had no cluster before."""
        if is_anchor(i):
            return False
        row, old, allowed = Row(rows, i), int(z[i]), g.n
        if not priority_free:
            allowed = g.free + sum(a < int(pi_n[i]) for a in g.anchors)
            if allowed == 0 and tail is None:
                allowed = g.n
        empty = tail is not None and all(slot.size == 0 for slot in tail.slots)
        alone = take_out(i)
        own = old - g.base if alone else None
        scores = [g.log_weight_of(k, row, prior) for k in range(allowed)]
        if response is not None:
            scores = [score + response.score(i, response.theta[k]) for k, score in enumerate(scores)]
        labels = list(range(allowed))
        if tail is not None:
            known, new = tail.log_weights(row)
            if response is not None:
                new += response.score_of_new(i, own)
                occupied = (t for t, slot in enumerate(tail.slots) if slot.size)
                for t in occupied:
                    known[t] += response.score(i, response.slot[t])
            vacant = tail.vacant()
            if vacant == len(known):
                known.append(-inf)
            known[vacant] = new
            slots = [g.base + t for t in range(len(known))]
            if empty:  # the new cluster precedes all others
                scores, labels = [new, *scores], [g.base + vacant, *labels]
            else:
                scores, labels = scores + known, labels + slots
        z[i] = chosen = labels[draw(scores, uniform)]
        if tail is None or chosen < g.base or chosen < g.n:
            return chosen != old
        if chosen - g.base == len(tail.slots):
            tail.slots.append(Cluster(prior))
        opened = tail.slots[chosen - g.base].size == 0
        if opened and response is not None:
            response.open(i, own, chosen - g.base)
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


def take(terms, u, given=None):
    """See mixture.take."""
    chosen, log_q = np.empty(len(terms), np.int32), 0.0
    for i, row in enumerate(terms):
        weight = np.exp(row - row.max())
        below = weight.cumsum()
        chosen[i] = given[i] if given is not None else min((below <= u[i] * below[-1]).sum(), len(row) - 1)
        log_q += row[chosen[i]] - row.max() - np.log(below[-1])
    return chosen, log_q


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
        part = z == k
        for c in range(codes.shape[1]):
            np.add.at(levels[:, k], offsets[c] + codes[part, c], 1)
        for r in range(R):
            x = rows.reals[part, r]
            x = x[~np.isnan(x)]
            real_n[r, k] = len(x)
            if len(x):
                real_mean[r, k] = x.mean()
                real_scatter[r, k] = ((x - real_mean[r, k]) ** 2).sum()
        for q in range(Q):
            x = rows.tallies[part, q]
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
    spells = spells_of(rows)
    shape = (SPELL_PARTS * spells.shape[1], n_clusters)
    events, ended, time = (np.zeros(shape, t) for t in (np.int64, np.int64, np.float64))
    for i, k in enumerate(z):
        for s, spell in enumerate(map(spell_of, spells[i].tolist()) if k >= 0 else ()):
            if spell is not None:
                part = SPELL_PARTS * s + spell[0]
                ended[part, k] += 1
                events[part, k] += spell[1]
                time[part, k] += spell[2]
    return size, levels, real_n, real_mean, real_scatter, tally_n, tally_sum, *moments, events, ended, time
