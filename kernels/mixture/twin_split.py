"""The kernels of split.pyx in plain Python, one row at a time: slow, and their specification.

Same arguments, same random numbers, same sides. A row whose uniform falls within about 1e-15 of the boundary between
two sides may differ; log_q agrees to rounding.
"""

from __future__ import annotations

from math import exp, isnan, log1p

import numpy as np

from mpibayes.kernels.mixture.twin_cluster import SPELL_PARTS, spell_of, spells_of

NOBODY = 2**64 - 1


def word(row, seed, purpose, sub, cycle, chain):
    """Random word of one row: word `row & 3` of Philox block (row >> 2, sub, cycle, chain)."""
    counter = (row >> 2) + (sub << 64) + (cycle << 128) + (chain << 192)
    # NumPy adds one to the counter before its first block
    stream = np.random.Philox(key=seed + (purpose << 64), counter=(counter - 1) % 2**256)
    return int(stream.random_raw(4)[row & 3])


def words(ids, seed, purpose, sub, cycle, chain):
    return np.array([word(int(i), seed, purpose, sub, cycle, chain) for i in ids], dtype=np.uint64)


def begin_steps(subs, n, seed, purpose, cycle, chain):
    drawn = []
    for sub in subs:
        counter = np.array([0, sub, cycle, chain], np.uint64)
        stream = np.random.Generator(np.random.Philox(key=seed + (purpose << 64), counter=counter))
        drawn.append((stream.random(), stream.integers(n), stream.random()))
    return tuple(np.array(part, dtype) for part, dtype in zip(zip(*drawn), (float, np.int64, float)))


def first_row(z, one, two):
    return next((i for i, k in enumerate(z) if k in (one, two)), -1)


def recall(z, row0, one, two, row, cluster, shares, bias, recalled, dealt, seed, sub, cycle, chain):
    def uniform(i, purpose):
        return (word(row0 + i, seed, purpose, sub, cycle, chain) >> 11) * 2.0**-53

    member = [i for i, k in enumerate(z) if k in (one, two)]
    side = [row0 + i != row and (z[i] != cluster if bias < 0 else uniform(i, dealt) < bias) for i in member]
    batch = [0 if row0 + i == row else int(np.searchsorted(shares, uniform(i, recalled), "right")) for i in member]
    return np.array(member, np.int64), np.array(side, bool), np.array(batch, np.int16)


def two_least(z, row0, n_clusters, seed, purpose, sub, cycle, chain):
    ids = row0 + np.arange(len(z))
    drawn = words(ids, seed, purpose, sub, cycle, chain).tolist()
    out = np.full((n_clusters, 4), NOBODY, dtype=np.uint64)
    for k in range(n_clusters):
        least = sorted((drawn[i], int(ids[i])) for i in np.flatnonzero(np.asarray(z) == k))[:2]
        for place, (w, row) in enumerate(least):
            out[k, place], out[k, 2 + place] = w, row
    return out


def log_odds(rows, i, g, odds, offsets):
    """Log odds that row i of group g takes side 1. Look-ups are summed in float32: four sums, and one of codes16."""
    sums, n = np.zeros(5, np.float32), rows.codes8.shape[1]
    for c, code in enumerate((*rows.codes8[i].tolist(), *rows.codes16[i].tolist())):
        sums[c % 4 if c < n else 4] += odds.table[g, offsets[c] + code]
    total = float(odds.prior[g])
    total += float((sums[0] + sums[1]) + (sums[2] + sums[3]))
    total += float(sums[4])
    for x, (level, centre1, half1, centre0, half0) in zip(rows.reals[i].tolist(), odds.real[g].tolist(), strict=True):
        if not isnan(x):
            total += level - half1 * (x - centre1) ** 2 + half0 * (x - centre0) ** 2
    for x, (log_ratio, difference) in zip(rows.tallies[i].tolist(), odds.count[g].tolist(), strict=True):
        if not isnan(x):
            total += x * log_ratio - difference
    first = at = 0
    for width in np.asarray(getattr(rows, "widths", ()), dtype=int).tolist():
        x, n_pairs = rows.vectors[i, first : first + width], width * (width + 1) // 2
        numbers = odds.vector[g, at : at + 1 + 2 * (width + n_pairs)]
        if not np.isnan(x).any():
            norms = []
            for start in (1, 1 + width + n_pairs):
                factor = np.zeros((width, width))
                factor[np.tril_indices(width)] = numbers[start + width : start + width + n_pairs]
                y = factor @ (x - numbers[start : start + width])
                norms.append(float(y @ y))
            total += float(numbers[0]) - 0.5 * norms[0] + 0.5 * norms[1]
        first, at = first + width, at + len(numbers)
    for s, spell in enumerate(map(spell_of, spells_of(rows)[i].tolist())):
        if spell is not None:
            part, event, ticks = spell
            total += odds.spell[g, s, 2 * part + event] - odds.spell[g, s, 2 * SPELL_PARTS + part] * ticks
    prior, weight = float(odds.prior[g]), float(odds.weight[g])
    return total if weight == 1.0 else prior + weight * (total - prior)


def log_logistic(x):
    """log of 1 / (1 + exp(-x))"""
    return min(x, 0.0) - log1p(exp(-abs(x)))


def falls_to(x, u):
    """True if a uniform selects the side with log odds x: u < 1 / (1 + exp(-x))."""
    e = exp(-abs(x))
    return u * (1.0 + e) < (e if x < 0 else 1.0)


def sides(rows, z, ids, group, given, seeds, odds, offsets, seed, purpose, sub, cycle, chain):
    label, log_q = np.full(len(z), -1, dtype=np.int32), np.zeros(len(seeds))
    for i, k in enumerate(np.asarray(z).tolist()):
        if k < 0 or group[k] < 0:
            continue
        g, row = int(group[k]), int(ids[i])
        if row in seeds[g]:
            label[i] = 2 * g + (row == seeds[g, 1])
            continue
        x, side = log_odds(rows, i, g, odds, offsets), int(given[k])
        if side < 0:
            side = int(falls_to(x, (word(row, seed, purpose, sub, cycle, chain) >> 11) * 2.0**-53))
        label[i] = 2 * g + side
        log_q[g] += log_logistic(x if side else -x)
    return label, log_q
