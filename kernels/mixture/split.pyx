"""Kernels of the split and merge moves: the rows that seed a split, and the side of every other row.

hpc/crosscat/moves/launched.py and alike.py have the algorithms. Cost per row: four instructions per categorical cell
and about 15 for its side, in vectors; one random number. Nothing here depends on the number of clusters.
"""

import numpy as np

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from mpibayes.kernels.mixture.rows cimport HeldRows
from mpibayes.kernels.mixture.runs cimport in_runs, same_cells

from mpibayes.kernels.common.machine import ISA_NUMBER
from mpibayes.kernels.mixture.rows import spells_of


cdef extern from "split.h" nogil:
    ctypedef struct philox_stream:
        pass
    philox_stream philox_open(uint64_t seed, uint64_t purpose, uint64_t sub, uint64_t cycle, uint64_t chain)
    uint64_t philox_word(philox_stream *stream, uint64_t row)
    double philox_uniform(uint64_t word)
    void philox_block(const uint64_t *counter, uint64_t seed, uint64_t purpose, uint64_t *out)
    float sum_codes16(const float *table, const int64_t *offset, const uint16_t *code, int64_t n)
    void sum_rows8(const float *table, const int64_t *offset, const uint8_t *codes, int64_t n_codes, const int32_t *row,
                   int64_t n, double *x)
    void take_sides(const double *x, const double *u, uint64_t *one, double *log_p, int64_t n)
    ctypedef struct sides_t:
        double scale, bound
        double log_p[2]
    sides_t sides_of(double x)
    enum:
        AT_ONCE
    int kernel_isa


kernel_isa = ISA_NUMBER


cdef extern from "spell_cell.h" nogil:
    ctypedef struct spell_t:
        int64_t part, event
        double time
    spell_t spell_of(double x)
    enum:
        SPELL_PARTS


cdef extern from "vector_odds.h" nogil:
    double vector_odds(const double *odds, const double *x, const int64_t *widths, int64_t n_blocks)


def words(const int64_t[::1] ids, seed, purpose, sub, cycle, chain):
    """Random word of each row id in one stream, uint64 (n,)."""
    cdef philox_stream stream = philox_open(seed, purpose, sub, cycle, chain)
    cdef int64_t i
    out = np.empty(ids.shape[0], dtype=np.uint64)
    cdef uint64_t[::1] view = out
    with nogil:
        for i in range(ids.shape[0]):
            view[i] = philox_word(&stream, ids[i])
    return out


cdef uint64_t _word(uint64_t *counter, uint64_t seed, uint64_t purpose, uint64_t place) noexcept nogil:
    """Word `place` of a stream of NumPy's Philox, which adds one to its counter before its first block."""
    cdef uint64_t out[4]
    counter[0] = 1 + (place >> 2)
    philox_block(counter, seed, purpose, out)
    return out[place & 3]


def begin_steps(const int64_t[::1] subs, uint32_t n, seed, purpose, cycle, chain):
    """The first draws of NumPy's generator in the streams with these `sub`, (N,): a uniform number in [0, 1), an
    integer below n > 0, and another uniform number."""
    cdef uint64_t counter[4]
    cdef uint64_t key = seed, use = purpose, number, place
    cdef uint32_t half, refused = (<uint32_t>-n) % n
    cdef int64_t i
    arrays = np.empty(subs.shape[0]), np.empty(subs.shape[0], np.int64), np.empty(subs.shape[0])
    cdef double[::1] first = arrays[0], last = arrays[2]
    cdef int64_t[::1] integer = arrays[1]
    counter[2], counter[3] = cycle, chain
    with nogil:
        for i in range(subs.shape[0]):
            counter[1] = subs[i]
            first[i] = philox_uniform(_word(counter, key, use, 0))
            integer[i], place = 0, 1
            if n > 1:  # Lemire's method: NumPy takes both halves of a word before the next one
                place = 2
                while True:
                    number = _word(counter, key, use, place >> 1)
                    half = <uint32_t>(number >> 32 if place & 1 else number)
                    place += 1
                    if <uint32_t>(<uint64_t>half * n) >= refused:
                        break
                integer[i] = <int64_t>((<uint64_t>half * n) >> 32)
                place = (place + 1) >> 1
            last[i] = philox_uniform(_word(counter, key, use, place))
    return arrays


def first_row(const int32_t[::1] z, int32_t one, int32_t two):
    """Place of the first row of two clusters, -1 if there is none."""
    cdef int64_t i
    with nogil:
        for i in range(z.shape[0]):
            if z[i] == one or z[i] == two:
                break
        else:
            i = -1
    return i


def recall(const int32_t[::1] z, row0, int32_t one, int32_t two, row, int32_t cluster, const double[::1] shares,
           double bias, recalled, dealt, seed, sub, cycle, chain):
    """Return (member, side, batch): places of the rows of clusters `one` and `two`, int64 (m,); their sides, bool; and
    their batches, int16.

    A row is in the first batch whose share, ascending to 1, is above its uniform of the stream with purpose `recalled`,
    but for the global id `row`, which is in the first and has side 0. Sides: 1 outside `cluster` or, with a bias that
    is not negative, if a uniform of the stream `dealt` is below the bias.
    """
    cdef philox_stream keep = philox_open(seed, recalled, sub, cycle, chain)
    cdef philox_stream deal = philox_open(seed, dealt, sub, cycle, chain)
    cdef uint64_t start = row0, head = row
    cdef int64_t i, m = 0
    cdef int16_t b, last = <int16_t>(shares.shape[0] - 1)
    cdef double u
    for i in range(z.shape[0]):
        m += z[i] == one or z[i] == two
    arrays = np.empty(m, np.int64), np.empty(m, bool), np.empty(m, np.int16)
    cdef int64_t[::1] member = arrays[0]
    cdef uint8_t[::1] side = arrays[1].view(np.uint8)
    cdef int16_t[::1] batch = arrays[2]
    m = 0
    with nogil:
        for i in range(z.shape[0]):
            if z[i] != one and z[i] != two:
                continue
            side[m] = z[i] != cluster if bias < 0 else philox_uniform(philox_word(&deal, start + i)) < bias
            b, u = last, philox_uniform(philox_word(&keep, start + i))
            if start + i == head:
                b, side[m] = 0, 0
            while b > 0 and u < shares[b - 1]:
                b -= 1
            member[m], batch[m] = i, b
            m += 1
    return arrays


def chosen(const int32_t[::1] z, const double[::1] share, row0, seed, purpose, sub, cycle, chain):
    """Return the places of the rows whose uniform is below the share of their cluster, int64 (m,); idle rows are
    skipped."""
    cdef philox_stream stream = philox_open(seed, purpose, sub, cycle, chain)
    cdef uint64_t start = row0
    cdef int64_t i, m = 0
    cdef double of
    out = np.empty(z.shape[0], np.int64)
    cdef int64_t[::1] place = out
    with nogil:
        for i in range(z.shape[0]):
            of = share[z[i]] if z[i] >= 0 else 0.0
            if of > 0.0 and philox_uniform(philox_word(&stream, start + i)) < of:
                place[m] = i
                m += 1
    return out[:m]


def two_least(const int32_t[::1] z, row0, int64_t n_clusters, seed, purpose, sub, cycle, chain):
    """Two least words among the rows of each cluster here, and those rows' global ids, uint64 (n_clusters, 4).

    2^64 - 1 stands for an absent word. Negative labels are skipped.
    """
    cdef philox_stream stream = philox_open(seed, purpose, sub, cycle, chain)
    cdef uint64_t start = row0, word
    cdef int64_t i
    cdef int32_t k
    out = np.full((n_clusters, 4), 2**64 - 1, dtype=np.uint64)
    cdef uint64_t[:, ::1] least = out
    with nogil:
        for i in range(z.shape[0]):
            k = z[i]
            if k < 0:
                continue
            word = philox_word(&stream, start + i)
            if word < least[k, 0]:
                least[k, 1], least[k, 3] = least[k, 0], least[k, 2]
                least[k, 0], least[k, 2] = word, start + i
            elif word < least[k, 1]:
                least[k, 1], least[k, 3] = word, start + i
    return out


def _odds_length(widths):
    """Length of the odds of blocks of these widths in one group."""
    return int((1 + 2 * widths + widths * (widths + 1)).sum())


def sides(rows, const int32_t[::1] z, const int64_t[::1] ids, const int32_t[::1] group, const int8_t[::1] given,
          const int64_t[:, ::1] seeds, odds, offsets, seed, purpose, sub, cycle, chain):
    """Return (label, log_q): the side of every row of a group, and the log probability of the sides in each group.

    z (n,): clusters, negative ones are skipped; ids (n,): global row ids; group (K,): of each cluster, or -1; given
    (K,): -1 if rows draw their side, else the side that all rows of the cluster take. seeds (G, 2): the rows that are
    fixed to side 0 and 1, and do not enter log_q. odds: log odds of side 1, see hpc/crosscat/moves/odds.py. label int32
    (n,): 2 * group + side, or -1. log_q float64 (G,), summed in row order.
    """
    cdef const uint8_t[:, ::1] codes8 = rows.codes8
    cdef const uint16_t[:, ::1] codes16 = rows.codes16
    cdef const double[:, ::1] reals = rows.reals
    cdef const double[:, ::1] tallies = rows.tallies
    cdef const int64_t[::1] offset = offsets
    cdef const double[::1] prior = odds.prior
    cdef const double[::1] weight = odds.weight
    cdef const float[:, ::1] table = odds.table
    cdef const double[:, :, ::1] real = odds.real
    cdef const double[:, :, ::1] count = odds.count
    cdef const int64_t[::1] widths = np.ascontiguousarray(getattr(rows, "widths", ()), dtype=np.int64)
    cdef const double[:, ::1] spells = spells_of(rows)
    cdef int64_t n_spells = spells.shape[1]
    cdef const double[:, :, ::1] spell = odds.spell if n_spells else np.zeros((len(odds.prior), 0, 3 * SPELL_PARTS))
    cdef bint blocks = widths.shape[0] > 0
    cdef bint others = blocks or codes16.shape[1] + reals.shape[1] + tallies.shape[1] + n_spells > 0
    cdef const double[:, ::1] vectors = rows.vectors if blocks else np.zeros((len(z), 0))
    cdef const double[:, ::1] vector = odds.vector if blocks else np.zeros((len(odds.prior), 0))
    cdef int64_t n = z.shape[0], n_groups = prior.shape[0], i, j, c, g, m, at
    cdef spell_t cell
    cdef int64_t c8 = codes8.shape[1], c16 = codes16.shape[1], n_real = reals.shape[1], n_count = tallies.shape[1]
    cdef int32_t side
    cdef double x, d, total
    cdef philox_stream stream = philox_open(seed, purpose, sub, cycle, chain)
    if len(rows) != n or ids.shape[0] != n or group.shape[0] != given.shape[0] or seeds.shape[0] != n_groups \
            or weight.shape[0] != n_groups or table.shape[0] != n_groups or real.shape[0] != n_groups or count.shape[0] != n_groups \
            or spells.shape[0] != n or spell.shape[0] != n_groups or spell.shape[1] != n_spells \
            or spell.shape[2] != 3 * SPELL_PARTS \
            or vectors.shape[0] != n or vectors.shape[1] != np.sum(widths) \
            or vector.shape[0] != n_groups or vector.shape[1] != _odds_length(np.asarray(widths)) \
            or offset[c8 + c16] != table.shape[1] or real.shape[1] != n_real or count.shape[1] != n_count:
        raise ValueError("rows, labels, groups and odds do not fit together")
    label_array, log_q_array = np.full(n, -1, dtype=np.int32), np.zeros(n_groups)
    cdef int32_t[::1] label = label_array
    cdef double[::1] log_q = log_q_array
    # rows group by group, in row order, so that the group's table stays in cache
    cdef int64_t[::1] end = np.zeros(n_groups + 1, np.int64)
    cdef int32_t[::1] order = np.empty(n, np.int32)
    cdef double[::1] uniform = np.empty(n)
    cdef double x_block[AT_ONCE]
    cdef double u_block[AT_ONCE]
    cdef double p_block[AT_ONCE]
    cdef uint64_t one_block[AT_ONCE]
    cdef int32_t row_block[AT_ONCE]
    cdef int32_t all_block[AT_ONCE]
    cdef int32_t like_block[AT_ONCE]  # the first of equal rows in the block
    cdef sides_t both_sides[AT_ONCE]
    cdef HeldRows held = HeldRows(rows, offsets)
    cdef bint runs = in_runs(&held.c, True)
    cdef int64_t m_all
    cdef sides_t of
    with nogil:
        for i in range(n):
            if z[i] >= 0 and group[z[i]] >= 0:
                end[group[z[i]] + 1] += 1
        for g in range(n_groups):
            end[g + 1] += end[g]
        for i in range(n):
            if z[i] >= 0 and group[z[i]] >= 0:
                g = group[z[i]]
                order[end[g]] = <int32_t>i
                end[g] += 1  # becomes the group's end, row by row, from its start
                if given[z[i]] < 0:
                    uniform[i] = philox_uniform(philox_word(&stream, ids[i]))
                else:
                    uniform[i] = -1.0 if given[z[i]] else 4.0
        at = 0
        for g in range(n_groups):
            while at < end[g]:
                m = m_all = 0
                while m_all < AT_ONCE and at < end[g]:
                    i = order[at]
                    at += 1
                    if ids[i] == seeds[g, 0] or ids[i] == seeds[g, 1]:
                        label[i] = <int32_t>(2 * g + (ids[i] == seeds[g, 1]))
                        continue
                    if not runs or m == 0 or not same_cells(&held.c, row_block[m - 1], i):
                        x_block[m], row_block[m] = prior[g], <int32_t>i
                        m += 1
                    u_block[m_all], like_block[m_all], all_block[m_all] = uniform[i], <int32_t>(m - 1), <int32_t>i
                    m_all += 1
                if c8:
                    sum_rows8(&table[g, 0], &offset[0], &codes8[0, 0], c8, row_block, m, x_block)
                for j in range(m if others else 0):
                    i, total = row_block[j], x_block[j]
                    if c16:
                        total += sum_codes16(&table[g, 0], &offset[c8], &codes16[i, 0], c16)
                    for c in range(n_real):
                        x = reals[i, c]
                        if x == x:
                            d = x - real[g, c, 1]
                            total += real[g, c, 0] - real[g, c, 2] * d * d
                            d = x - real[g, c, 3]
                            total += real[g, c, 4] * d * d
                    for c in range(n_count):
                        x = tallies[i, c]
                        if x == x:
                            total += x * count[g, c, 0] - count[g, c, 1]
                    if blocks:
                        total += vector_odds(&vector[g, 0], &vectors[i, 0], &widths[0], widths.shape[0])
                    for c in range(n_spells):
                        x = spells[i, c]
                        if x == x:
                            cell = spell_of(x)
                            total += spell[g, c, 2 * cell.part + cell.event] \
                                - spell[g, c, 2 * SPELL_PARTS + cell.part] * cell.time
                    x_block[j] = total
                for j in range(m if weight[g] != 1.0 else 0):
                    x_block[j] = prior[g] + weight[g] * (x_block[j] - prior[g])
                if m == m_all:
                    take_sides(x_block, u_block, one_block, p_block, m)
                else:
                    for j in range(m):
                        both_sides[j] = sides_of(x_block[j])
                    for j in range(m_all):
                        of = both_sides[like_block[j]]
                        one_block[j] = u_block[j] * of.scale < of.bound
                        p_block[j] = of.log_p[one_block[j]]
                for j in range(m_all):
                    i = all_block[j]
                    side = given[z[i]]
                    label[i] = <int32_t>(2 * g + (side if side >= 0 else <int32_t>one_block[j]))
                    log_q[g] += p_block[j]
    return label_array, log_q_array
