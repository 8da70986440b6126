"""Steps that move rows of one pattern between two clusters, on a table of patterns (docs/split_merge.md, "Share").

A step costs about a microsecond, so a round has thousands. It leaves the law of the table invariant. Its twin in plain
Python is `twin_shares`.
"""

import numpy as np

from libc.math cimport log
from libc.stdint cimport int64_t


cdef extern from "functions.h" nogil:
    double log_gamma_of(double x)


cdef int64_t _below(double u, int64_t n) noexcept nogil:
    """A whole number below n."""
    cdef int64_t i = <int64_t>(u * n)
    return i if i < n else n - 1


cdef double _log_choice(int64_t one, int64_t two, int64_t rows, int64_t n_clusters) noexcept nogil:
    """Log probability, up to a constant, that these two clusters are chosen by a pattern that has `rows` rows."""
    cdef double alone = 1.0 / (n_clusters - 1), by_one = alone, by_two = alone
    if rows > one:
        by_one = 0.5 * alone + 0.5 * two / (rows - one)
    if rows > two:
        by_two = 0.5 * alone + 0.5 * one / (rows - two)
    return log(one * by_one + two * by_two)


def shares(
    int64_t[:, ::1] counts, const int64_t[:, ::1] level, const double[::1] pseudo, const double[::1] total,
    double discount, const int64_t[::1] first_row, const double[:, ::1] words,
):
    """Make a step for each row of `words` (n, 6), uniform on [0, 1); return the number of steps that moved rows.

    counts (P, K): rows of each pattern in each cluster, changed in place; level (P, C): place of each cell among all
    levels; pseudo (L,): pseudo-counts, 0 for missing cells; total (C,): their sums; first_row (P,): of the next
    pattern. K is at least 2, and no cluster is empty.
    """
    cdef int64_t n_patterns = counts.shape[0], K = counts.shape[1], C = level.shape[1], n = first_row[n_patterns - 1]
    cdef int64_t step, at, low, high, p, j, k, c, l, left, held, reach, moved, bits, rows, accepted = 0
    cdef double ratio
    cdef int64_t[:, ::1] levels = np.zeros((pseudo.shape[0], K), dtype=np.int64)  # rows of a cluster with a level
    cdef int64_t[:, ::1] seen = np.zeros((C, K), dtype=np.int64)  # and with a cell in a column
    cdef int64_t[::1] sizes = np.zeros(K, dtype=np.int64)
    for p in range(n_patterns):
        for k in range(K):
            if counts[p, k]:
                sizes[k] += counts[p, k]
                for c in range(C):
                    levels[level[p, c], k] += counts[p, k]
                    if pseudo[level[p, c]] > 0.0:
                        seen[c, k] += counts[p, k]
    for step in range(words.shape[0]):
        at = _below(words[step, 0], n)
        low, high = 0, n_patterns - 1
        while low < high:  # the first pattern whose next one begins after the row
            p = (low + high) // 2
            if first_row[p] > at:
                high = p
            else:
                low = p + 1
        p = low
        rows = first_row[p] - (first_row[p - 1] if p else 0)
        left, j = at - (first_row[p] - rows), 0
        while left >= counts[p, j]:
            left -= counts[p, j]
            j += 1
        k = -1
        if words[step, 1] < 0.5 and rows > counts[p, j]:
            left, k = _below(words[step, 2], rows - counts[p, j]), 0
            while k == j or left >= counts[p, k]:
                if k != j:
                    left -= counts[p, k]
                k += 1
        else:
            k = _below(words[step, 2], K - 1)
            k += k >= j
        held, bits = counts[p, j] + counts[p, k], 0
        while held >> bits:
            bits += 1
        reach = <int64_t>1 << _below(words[step, 3], bits)
        moved = _below(words[step, 4], 2 * reach + 1) - reach
        if moved == 0 or counts[p, j] + moved < 0 or counts[p, k] - moved < 0:
            continue
        if sizes[j] + moved <= 0 or sizes[k] - moved <= 0:
            continue
        ratio = _log_choice(counts[p, j] + moved, counts[p, k] - moved, rows, K)
        ratio -= _log_choice(counts[p, j], counts[p, k], rows, K)
        ratio += log_gamma_of(counts[p, j] + 1.0) - log_gamma_of(counts[p, j] + moved + 1.0)
        ratio += log_gamma_of(counts[p, k] + 1.0) - log_gamma_of(counts[p, k] - moved + 1.0)
        ratio += log_gamma_of(sizes[j] + moved - discount) - log_gamma_of(sizes[j] - discount)
        ratio += log_gamma_of(sizes[k] - moved - discount) - log_gamma_of(sizes[k] - discount)
        for c in range(C):
            l = level[p, c]
            if pseudo[l] > 0.0:
                ratio += log_gamma_of(pseudo[l] + levels[l, j] + moved) - log_gamma_of(pseudo[l] + levels[l, j])
                ratio += log_gamma_of(pseudo[l] + levels[l, k] - moved) - log_gamma_of(pseudo[l] + levels[l, k])
                ratio += log_gamma_of(total[c] + seen[c, j]) - log_gamma_of(total[c] + seen[c, j] + moved)
                ratio += log_gamma_of(total[c] + seen[c, k]) - log_gamma_of(total[c] + seen[c, k] - moved)
        if log(words[step, 5]) < ratio:
            accepted += 1
            counts[p, j] += moved
            counts[p, k] -= moved
            sizes[j] += moved
            sizes[k] -= moved
            for c in range(C):
                l = level[p, c]
                levels[l, j] += moved
                levels[l, k] -= moved
                if pseudo[l] > 0.0:
                    seen[c, j] += moved
                    seen[c, k] -= moved
    return accepted
