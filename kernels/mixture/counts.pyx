"""Changes of the clusters' counts due to rows that changed cluster.

All are integers, or sums of integers that a double holds exactly: counts updated this way many times equal those of a
full pass over all rows, to the last bit. Moments of real columns do not, and are not handled here. Cost: a comparison
per row, and O(columns) for each row that changed, or for each cluster that a run of equal rows joined or left; no
random numbers.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

from mpibayes.kernels.mixture.rows cimport HeldRows
from mpibayes.kernels.mixture.runs cimport add_times, in_runs, same_counted


ctypedef fused code_t:
    uint8_t
    uint16_t

cdef enum:
    PIECE = 4096  # rows whose groups stay in the fastest cache


def add_codes(const code_t[:, ::1] codes, const int64_t[::1] columns, const int32_t[::1] groups,
              const int64_t[::1] first, int32_t[:, ::1] levels):
    """Add the cells of columns, by code and group, to `levels` (L, K). codes (C, n): the cells of a column lie side by
    side. columns (D,): which to count. groups (n,): 0..K-1, negative for rows to skip. first (D,): the row of `levels`
    of each column's code 0."""
    cdef int64_t n = groups.shape[0], n_groups = levels.shape[1], start = 0, stop, i, c
    cdef int32_t *of
    cdef const code_t *code
    if codes.shape[1] != n or first.shape[0] != columns.shape[0] or (n and np.max(groups) >= n_groups):
        raise ValueError("codes, groups and levels do not fit together")
    if not n or not levels.shape[0]:
        return
    with nogil:
        while start < n:
            stop = min(start + PIECE, n)
            for c in range(columns.shape[0]):
                of, code = &levels[first[c], 0], &codes[columns[c], 0]
                for i in range(start, stop):
                    if groups[i] >= 0:
                        of[code[i] * n_groups + groups[i]] += 1
            start = stop


def recount(rows, const int32_t[::1] before, const int32_t[::1] after, int64_t n_clusters, offsets, into=None):
    """Return (size, levels, tally_n, tally_sum): the changes to the counts of clusters 0..n_clusters-1.

    before, after: int32 (n,), the old and the new cluster of every row; labels that are no cluster are skipped. rows as
    in mixture.accumulate, offsets int64 (columns + 1,). Returns int64 (K,), int32 (L, K), int64 (Q, K), float64 (Q, K):
    the counts by `after` minus those by `before`. into: such arrays, to which the changes are added, and which are
    returned. Raises ValueError if the arguments do not fit together.
    """
    cdef const uint8_t[:, ::1] codes8 = rows.codes8
    cdef const uint16_t[:, ::1] codes16 = rows.codes16
    cdef const double[:, ::1] tallies = rows.tallies
    cdef const int64_t[::1] offset = offsets
    cdef int64_t n = before.shape[0], c8 = codes8.shape[1], c16 = codes16.shape[1], n_count = tallies.shape[1]
    cdef int64_t i = 0, j, c, k, m, old, new, at, like = -1
    cdef int32_t *table = NULL
    cdef double x
    if len(rows) != n or after.shape[0] != n or offset.shape[0] != c8 + c16 + 1:
        raise ValueError("rows, labels and offsets do not fit together")
    out = into if into is not None else (
        np.zeros(n_clusters, np.int64), np.zeros((offset[c8 + c16], n_clusters), np.int32),
        np.zeros((n_count, n_clusters), np.int64), np.zeros((n_count, n_clusters)),
    )
    cdef int64_t[::1] size = out[0]
    cdef int32_t[:, ::1] levels = out[1]
    cdef int64_t[:, ::1] tally_n = out[2]
    cdef double[:, ::1] tally_sum = out[3]
    if size.shape[0] != n_clusters or levels.shape[0] != offset[c8 + c16] or levels.shape[1] != n_clusters \
            or tally_n.shape[0] != n_count or tally_n.shape[1] != n_clusters or tally_sum.shape[0] != n_count \
            or tally_sum.shape[1] != n_clusters:
        raise ValueError("the arrays to add to have other forms")
    if levels.shape[0] and n_clusters:
        table = &levels[0, 0]
    cdef HeldRows held = HeldRows(rows, offsets)
    cdef bint runs = in_runs(&held.c, False)
    cdef int64_t[::1] change = np.zeros(n_clusters if runs else 0, np.int64), met = np.empty_like(change)
    cdef uint8_t[::1] is_met = np.zeros(n_clusters if runs else 0, np.uint8)
    with nogil:
        m = 0
        while runs and i <= n:
            if i < n and before[i] == after[i]:
                i += 1
                continue
            if i == n or (like >= 0 and not same_counted(&held.c, like, i)):
                for j in range(m):
                    add_times(&held.c, like, met[j], change[met[j]], size, levels, tally_n, tally_sum)
                    change[met[j]], is_met[met[j]] = 0, 0
                like, m = -1, 0
            if i < n:
                like = i if like < 0 else like
                for j in range(2):
                    k = after[i] if j else before[i]
                    if 0 <= k < n_clusters:
                        if not is_met[k]:
                            is_met[k] = 1
                            met[m] = k
                            m += 1
                        change[k] += 2 * j - 1
            i += 1
        for i in range(i, n):
            if before[i] == after[i]:
                continue
            old, new = before[i], after[i]
            if old >= n_clusters:
                old = -1
            if new >= n_clusters:
                new = -1
            if old >= 0:
                size[old] -= 1
            if new >= 0:
                size[new] += 1
            for c in range(c8 + c16):  # both counts of a level are often in one cache line
                at = (offset[c] + (codes8[i, c] if c < c8 else codes16[i, c - c8])) * n_clusters
                if old >= 0:
                    table[at + old] -= 1
                if new >= 0:
                    table[at + new] += 1
            for c in range(n_count):
                x = tallies[i, c]
                if x == x:
                    if old >= 0:
                        tally_n[c, old] -= 1
                        tally_sum[c, old] -= x
                    if new >= 0:
                        tally_n[c, new] += 1
                        tally_sum[c, new] += x
    return out
