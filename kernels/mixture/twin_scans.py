"""The kernels of scans.pyx in plain Python and NumPy: slow, and their specification.

Same arguments, same random numbers. Counts are equal, except that a row whose uniform falls within about 1e-5 of the
boundary between two sides may take the other one, since logarithms differ in the last bit.
"""

from __future__ import annotations

import numpy as np

WORDS = 16
UNIT = 2.0**-20
MISSING = -(2**31)


class Counts:
    def __init__(self, cells, sums):
        self.cells, self.sums = cells, sums


class Packed:
    def __init__(self, parts, n_groups, offsets, centre, scale):
        self.n_groups, self.offsets = n_groups, np.asarray(offsets)
        rows = [(r, int(i), int(g), int(row)) for r, at, group, ids in parts for i, g, row in zip(at, group, ids)]
        self.group, self.ids = np.array([g for _, _, g, _ in rows], int), [row for *_, row in rows]
        self.codes = [[*r.codes8[i].tolist(), *r.codes16[i].tolist()] for r, i, _, _ in rows]
        self.levels = [[int(offsets[c]) + code for c, code in enumerate(codes)] for codes in self.codes]
        self.reals = [[whole(x, *unit) for x, *unit in zip(r.reals[i], centre[g], scale[g])] for r, i, g, _ in rows]
        self.tallies = [r.tallies[i].tolist() for r, i, _, _ in rows]

    def set(self, side, fixed):
        self.side, self.fixed = np.array(side, bool), np.array(fixed, bool)

    def sides(self):
        return self.side.astype(np.uint8)

    def count(self, chosen, out):
        n_levels, n_real = self.offsets[-1], len(self.reals[0]) if self.reals else 0
        for i in np.flatnonzero(chosen):
            cells, sums = out.cells[self.group[i]], out.sums[self.group[i]]
            cells[0] += 1
            cells[[1 + level for level in self.levels[i]]] += 1
            for c, y in enumerate(self.reals[i]):
                if y != MISSING:
                    cells[1 + n_levels + c] += 1
                    sums[c] += y
                    sums[n_real + c] += y * y
            for c, x in enumerate(self.tallies[i]):
                if x == x:
                    cells[1 + n_levels + n_real + c] += 1
                    sums[2 * n_real + c] += int(x)

    def draw(self, seed, purpose, sub, cycle, chain):
        """Random numbers of 16 scans, 16 bits each, from the block (row id, sub, cycle, chain)."""
        self.words = []
        for row in self.ids:
            counter = row + (sub << 64) + (cycle << 128) + (chain << 192)
            stream = np.random.Philox(key=seed + (purpose << 64), counter=(counter - 1) % 2**256)
            self.words.append([(int(w) >> (16 * j)) & 0xFFFF for w in stream.random_raw(4) for j in range(4)])

    def scan(self, scan, beta, shrink, tilt, whole, one, zero, out):
        for i, g in enumerate(self.group):
            if self.fixed[i]:
                continue
            rest = zero if zero is not None else Counts(whole.cells - one.cells, whole.sums - one.sums)
            prior = tilt[g] if tilt is not None else np.log(one.cells[g, 0] / rest.cells[g, 0])
            x = np.float32(prior)
            for term in self._terms(i, beta, shrink[g], *((s.cells[g], s.sums[g]) for s in (whole, one, rest))):
                x += np.float32(term)
            e = np.exp(-abs(float(x)))
            self.side[i] = (self.words[i][scan] + 0.5) / 65536.0 * (1.0 + e) < (e if x < 0 else 1.0)
        self.count(self.side, out)

    def _terms(self, i, beta, shrink, whole, one, zero):
        """Terms of a row's cells in the log odds of side 1."""
        n_levels, n_real = self.offsets[-1], len(self.reals[i])
        for c, level in enumerate(self.levels[i]):
            first, missing = self.offsets[c], self.offsets[c + 1] - 1
            observed = [s[0][0] - s[0][1 + missing] for s in (whole, one, zero)]
            mean = shrink * (beta[level] + whole[0][1 + level]) / (beta[first:missing].sum() + observed[0])
            part = [(mean + s[0][1 + level]) / (shrink + n) for s, n in zip((one, zero), observed[1:])]
            yield np.log(part[0] / part[1]) if level != missing else 0.0
        for c, y in enumerate(self.reals[i]):
            n, mean, scatter = moments(whole, 1 + n_levels + c, c, n_real + c)
            width, result = scatter / max(n, 1) + 1e-9, []
            for side in (one, zero):
                n_s, part, scatter = moments(side, 1 + n_levels + c, c, n_real + c)
                share, step = shrink / (shrink + n_s), part - mean if n_s else 0.0
                variance = share * (width + (1.0 - share) * step**2) + max(scatter, 0.0) / (shrink + n_s)
                result.append((mean + (1.0 - share) * step, 0.5 / max(variance, 1e-6 * width)))
            (at_one, half_one), (at_zero, half_zero) = result
            level = 0.5 * np.log(half_one / half_zero)
            d = (y * UNIT - at_one) ** 2 * half_one - (y * UNIT - at_zero) ** 2 * half_zero
            yield level - d if y != MISSING else 0.0
        for c, x in enumerate(self.tallies[i]):
            cell, at = 1 + n_levels + n_real + c, 2 * n_real + c
            prior = shrink * (whole[1][at] + 0.5) / (whole[0][cell] + 1.0)
            rate = [(s[1][at] + prior) / (shrink + s[0][cell]) for s in (one, zero)]
            yield x * np.log(rate[0] / rate[1]) - (rate[0] - rate[1]) if x == x else 0.0


def whole(x, centre, scale):
    """Convert a real cell to units of UNIT standard deviations."""
    if np.isnan(x):
        return MISSING
    y = min(max((x - centre) * scale / UNIT, -(2.0**24)), 2.0**24)
    return int(y + 0.5 if y > 0 else y - 0.5)


def moments(counts, cell, at_sum, at_square):
    """Moments (n, mean, sum of squares about it) of a real column."""
    n = int(counts[0][cell])
    mean = int(counts[1][at_sum]) * UNIT / max(n, 1)
    return n, mean, int(counts[1][at_square]) * UNIT**2 - mean * mean * n
