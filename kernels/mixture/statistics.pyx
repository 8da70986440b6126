"""Statistics of the clusters of rows, and the anchors of clusters (docs/math.md 2.1, step 6).

moments.h has the sums of real columns. kernels/mixture/twin.py is the same in plain Python.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mpibayes.kernels.common.machine cimport address, aligned
from mpibayes.kernels.mixture.layout cimport SPELL_PARTS, VECTOR_MOST, rows_t, spell_of, spell_t
from mpibayes.kernels.mixture.rows cimport HeldRows
from mpibayes.kernels.mixture.runs cimport add_times, in_runs, same_counted

from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "mixture.h" nogil:
    int kernel_isa
    ctypedef struct philox_stream:
        pass
    philox_stream philox_open(uint64_t seed, uint64_t purpose, uint64_t sweep, uint64_t cycle, uint64_t chain)
    uint64_t philox_word(philox_stream *stream, uint64_t row)
    enum:
        PURPOSE_PRIORITY
    void kernel_add_cells(const rows_t *, const int32_t *, int64_t, double *, int64_t *)
    void kernel_add_squares(const rows_t *, const int32_t *, int64_t, const double *, double *)


cdef extern from "fetch.h" nogil:
    enum:
        AHEAD
    void fetch_row(const uint8_t *codes, int64_t n_codes)


cdef enum:
    BATCH = 256  # rows located before they are counted


kernel_isa = ISA_NUMBER
UNANCHORED = 2**64 - 1  # `anchors` of a cluster without rows here


def priorities(row0, int64_t n, seed, cycle, chain):
    """Priorities of rows row0 .. row0 + n - 1 in a cycle, uint64 (n,)."""
    cdef philox_stream stream = philox_open(seed, PURPOSE_PRIORITY, 0, cycle, chain)
    cdef uint64_t start = row0
    cdef int64_t i
    out = np.empty(n, dtype=np.uint64)
    cdef uint64_t[::1] view = out
    for i in range(n):
        view[i] = philox_word(&stream, start + i)
    return out


def anchors(const int32_t[::1] z, row0, seed, cycle, chain, owned, int64_t n_clusters):
    """Least priority among the rows of each cluster here, uint64 (n_clusters,), 2^64 - 1 if there are none.

    z: int32 (n,), clusters 0..n_clusters-1, negative labels are skipped; owned: bool (n_clusters,), clusters to skip
    (their anchor lies on other shards). The caller takes the minimum over shards.
    """
    cdef philox_stream stream = philox_open(seed, PURPOSE_PRIORITY, 0, cycle, chain)
    cdef uint64_t start = row0, word
    cdef int64_t i, bad = -1
    cdef int32_t k
    out = np.full(n_clusters, UNANCHORED, dtype=np.uint64)
    cdef uint64_t[::1] least = out
    cdef const uint8_t[::1] skip = np.ascontiguousarray(owned, dtype=bool).view(np.uint8)
    if skip.shape[0] != n_clusters:
        raise ValueError(f"owned has {skip.shape[0]} entries for {n_clusters} clusters")
    with nogil:
        for i in range(z.shape[0]):
            k = z[i]
            if k >= n_clusters:
                bad = i
                break
            if k >= 0 and not skip[k]:
                word = philox_word(&stream, start + i)
                if word < least[k]:
                    least[k] = word
    if bad >= 0:
        raise ValueError(f"row {start + bad}: label {z[bad]} is not below the number of clusters, {n_clusters}")
    return out


def accumulate(rows, const int32_t[::1] z, int64_t n_clusters, offsets, relabel=None):
    """Statistics of the clusters 0..n_clusters-1 among these rows.

    z: int32 (n,); relabel: int32, maps a label to a cluster, or to -1 to skip it; without it labels are clusters.
    Negative labels are skipped. Returns size int64 (K,), levels int32 (L, K), real_n int64 (R, K), real_mean and
    real_scatter float64 (R, K), tally_n int64 (Q, K), tally_sum float64 (Q, K), and for blocks vector_n int64 (B, K),
    vector_mean float64 (their columns, K), vector_scatter float64 (their pairs of columns, K), and for survival columns
    spell_events, spell_ended int64 (S SPELL_PARTS, K), spell_time float64, see spells.h. Means first, then squares
    about them, each summed in row order: the result is a function of rows and labels only.
    """
    cdef HeldRows r = HeldRows(rows, offsets)
    cdef rows_t *p = &r.c
    cdef int64_t n = p.n, C8 = p.n_codes8, C16 = p.n_codes16, R = p.n_reals, Q = p.n_tallies, i = 0, j, m, row, c, k, bad = -1
    cdef int64_t found[BATCH]
    cdef double x
    if z.shape[0] != n:
        raise ValueError(f"{z.shape[0]} labels for {n} rows")
    cdef bint mapped = relabel is not None
    cdef const int32_t[::1] target = relabel
    cdef int64_t n_labels = target.shape[0] if mapped else n_clusters
    out = (
        np.zeros(n_clusters, np.int64), np.zeros((p.offsets[p.n_codes], n_clusters), np.int32),
        np.zeros((R, n_clusters), np.int64), np.zeros((R, n_clusters)), np.zeros((R, n_clusters)),
        np.zeros((Q, n_clusters), np.int64), np.zeros((Q, n_clusters)),
        np.zeros((p.n_blocks, n_clusters), np.int64), np.zeros((p.n_vector, n_clusters)),
        np.zeros((r.n_pairs, n_clusters)),
        *(np.zeros((p.n_spells * SPELL_PARTS, n_clusters), t) for t in (np.int64, np.int64, np.float64)),
    )
    cdef int64_t[::1] size = out[0]
    cdef int32_t[:, ::1] levels = out[1]
    cdef int64_t[:, ::1] tally_n = out[5]
    cdef double[:, ::1] tally_sum = out[6]
    cdef int32_t[::1] cluster = np.full(n, -1, np.int32)
    cdef bint runs = in_runs(p, False)
    cdef int64_t[::1] times, found_in
    cdef int64_t like = -1
    if runs:
        times, found_in = np.zeros(n_clusters, np.int64), np.empty(n_clusters, np.int64)
    with nogil:
        m = 0
        while runs and i <= n and bad < 0:  # equal rows: their number in each cluster first, and their cells once
            k = -1
            if i < n:
                k = z[i]
                if k >= n_labels or (mapped and k >= 0 and target[k] >= n_clusters):
                    bad = i
                    break
                if mapped and k >= 0:
                    k = target[k]
            if i == n or (k >= 0 and like >= 0 and not same_counted(p, like, i)):
                for j in range(m):
                    add_times(p, like, found_in[j], times[found_in[j]], size, levels, tally_n, tally_sum)
                    times[found_in[j]] = 0
                like, m = -1, 0
            if k >= 0:
                cluster[i], like = <int32_t>k, i if like < 0 else like
                if times[k] == 0:
                    found_in[m] = k
                    m += 1
                times[k] += 1
            i += 1
        while i < n and bad < 0:
            m = 0
            while i < n and m < BATCH:  # rows of a cluster may be far apart: locate them first, and prefetch
                k = z[i]
                if k >= n_labels or (mapped and k >= 0 and target[k] >= n_clusters):
                    bad = i
                    break
                if mapped and k >= 0:
                    k = target[k]
                if k >= 0:
                    cluster[i] = <int32_t>k
                    found[m] = i
                    m += 1
                i += 1
            for j in range(m):
                if C8 and j + AHEAD < m:
                    fetch_row(p.codes8 + found[j + AHEAD] * C8, C8)
                row = found[j]
                k = cluster[row]
                size[k] += 1
                for c in range(C8):
                    levels[p.offsets[c] + p.codes8[row * C8 + c], k] += 1
                for c in range(C16):
                    levels[p.offsets[C8 + c] + p.codes16[row * C16 + c], k] += 1
                for c in range(Q):
                    x = p.tallies[row * Q + c]
                    if x == x:
                        tally_n[c, k] += 1
                        tally_sum[c, k] += x
    if bad >= 0:
        raise ValueError(f"row {bad} of the slice: label {z[bad]} maps to no cluster below {n_clusters}")
    if R and n and n_clusters:
        _moments(r, &cluster[0], n_clusters, <int64_t *>address(out[2]), <double *>address(out[3]),
                 <double *>address(out[4]))
    if p.n_blocks and n and n_clusters:
        _accumulate_blocks(r, cluster, n_clusters, out[7], out[8], out[9])
    if p.n_spells and n and n_clusters:
        _accumulate_spells(r, cluster, out[10], out[11], out[12])
    return out


def moments(rows, const int32_t[::1] z, int64_t n_clusters):
    """The statistics that `accumulate` returns of reals, blocks and survival columns alone."""
    cdef HeldRows r = HeldRows(rows, None)
    cdef int64_t n = r.c.n, R = r.c.n_reals, i
    if z.shape[0] != n:
        raise ValueError(f"{z.shape[0]} labels for {n} rows")
    for i in range(n):
        if z[i] >= n_clusters:
            raise ValueError(f"row {i} of the slice: label {z[i]} maps to no cluster below {n_clusters}")
    out = (
        np.zeros((R, n_clusters), np.int64), np.zeros((R, n_clusters)), np.zeros((R, n_clusters)),
        np.zeros((r.c.n_blocks, n_clusters), np.int64), np.zeros((r.c.n_vector, n_clusters)),
        np.zeros((r.n_pairs, n_clusters)),
        *(np.zeros((r.c.n_spells * SPELL_PARTS, n_clusters), t) for t in (np.int64, np.int64, np.float64)),
    )
    if R and n and n_clusters:
        _moments(r, &z[0], n_clusters, <int64_t *>address(out[0]), <double *>address(out[1]), <double *>address(out[2]))
    if r.c.n_blocks and n and n_clusters:
        _accumulate_blocks(r, z, n_clusters, out[3], out[4], out[5])
    if r.c.n_spells and n and n_clusters:
        _accumulate_spells(r, z, out[6], out[7], out[8])
    return out


cdef int _accumulate_spells(HeldRows r, const int32_t[::1] cluster, int64_t[:, ::1] events, int64_t[:, ::1] ended,
                            double[:, ::1] time) except -1:
    """Accumulate survival columns: integers, so that the order of sums does not matter."""
    cdef int64_t i, s, k, part
    cdef double x
    cdef spell_t cell
    with nogil:
        for i in range(r.c.n):
            k = cluster[i]
            for s in range(r.c.n_spells if k >= 0 else 0):
                x = r.c.spells[i * r.c.n_spells + s]
                if x == x:
                    cell = spell_of(x)
                    part = s * SPELL_PARTS + cell.part
                    ended[part, k] += 1
                    events[part, k] += cell.event
                    time[part, k] += cell.time
    return 0


cdef int _moments(HeldRows r, const int32_t *cluster, int64_t n_clusters, int64_t *real_n, double *real_mean,
                  double *real_scatter) except -1:
    """Fill the last three, (R, K), with counts, means and sums of squares about the means of the real cells."""
    cdef int64_t R = r.c.n_reals, pad = (R + 7) & ~<int64_t>7, c, k
    held = aligned(3 * pad * n_clusters, np.float64)  # [which][cluster][column]
    cdef double *mean = <double *>address(held)
    cdef double *scatter = mean + pad * n_clusters
    cdef int64_t *count = <int64_t *>(scatter + pad * n_clusters)
    with nogil:
        kernel_add_cells(&r.c, cluster, pad, mean, count)
        for k in range(pad * n_clusters):
            mean[k] /= <double>max(count[k], 1)
        kernel_add_squares(&r.c, cluster, pad, mean, scatter)
        for c in range(R):
            for k in range(n_clusters):
                real_n[c * n_clusters + k] = count[k * pad + c]
                real_mean[c * n_clusters + k] = mean[k * pad + c]
                real_scatter[c * n_clusters + k] = scatter[k * pad + c]
    return 0


cdef int _accumulate_blocks(HeldRows r, const int32_t[::1] cluster, int64_t n_clusters, int64_t[:, ::1] n,
                            double[:, ::1] mean, double[:, ::1] scatter) except -1:
    """Accumulate blocks of columns.

    One cluster's numbers are adjacent while rows are added, [cluster][entry].
    """
    cdef int64_t n_vector = r.c.n_vector, n_pairs = scatter.shape[0], i, b, d, e, k, width, column, pair
    cdef double[:, ::1] total = np.zeros((n_clusters, n_vector)), square = np.zeros((n_clusters, n_pairs))
    cdef const double *x
    cdef double *row
    cdef double off[VECTOR_MOST]
    cdef bint again
    cdef double a, u, v
    with nogil:
        for again in range(2):
            for i in range(r.c.n):
                k = cluster[i]
                if k < 0:
                    continue
                x = r.c.vectors + i * n_vector
                column = pair = 0
                for b in range(r.c.n_blocks):
                    width = r.c.widths[b]
                    if width == 2:  # a line, in most tables
                        u, v = x[column], x[column + 1]
                        if u == u and v == v and not again:
                            n[b, k] += 1
                            total[k, column] += u
                            total[k, column + 1] += v
                        elif u == u and v == v:
                            row = &square[k, pair]
                            u -= total[k, column]
                            v -= total[k, column + 1]
                            row[0] += u * u
                            row[1] += v * u
                            row[2] += v * v
                        column += 2
                        pair += 3
                        continue
                    a = 0.0
                    for d in range(width):
                        if x[column + d] != x[column + d]:
                            a = 1.0
                    if a == 0.0 and not again:
                        n[b, k] += 1
                        for d in range(width):
                            total[k, column + d] += x[column + d]
                    elif a == 0.0:
                        row = &square[k, pair]
                        for d in range(width):
                            off[d] = x[column + d] - total[k, column + d]
                        for d in range(width):
                            a = off[d]
                            for e in range(d + 1):
                                row[e] += a * off[e]
                            row += d + 1
                    column += width
                    pair += width * (width + 1) // 2
            if not again:
                column = 0
                for b in range(r.c.n_blocks):
                    for d in range(r.c.widths[b]):
                        for k in range(n_clusters):
                            if n[b, k]:
                                total[k, column] /= n[b, k]
                        column += 1
        for k in range(n_clusters):
            for i in range(n_vector):
                mean[i, k] = total[k, i]
            for i in range(n_pairs):
                scatter[i, k] = square[k, i]
    return 0
