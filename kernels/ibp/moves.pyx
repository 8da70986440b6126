"""The rows' part of moves on features: patterns of a few features, sums over the rows that have them, and scores.

All functions take z, uint64 (n, W), whose bit s of a row says whether it has the feature of slot s, and most take x,
float32 (n, D), the cells. Sums run in row order, one row after the other, so that they are functions of the columns
alone (docs/math.md 7.5). Cost per row: some instructions a feature, and O(D) where a row's cells are used. No random
numbers. Plain twins are in kernels/ibp/twin_moves.py.
"""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint64_t

MOST = 8  # features of a pattern


cdef inline uint64_t mixed(uint64_t word) noexcept nogil:
    """The finalizer of SplitMix64 (Steele, Lea & Flood 2014): numbers of rows that look random."""
    word = (word + 0x9E3779B97F4A7C15ULL)
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL
    return word ^ (word >> 31)


cdef inline uint64_t has(const uint64_t *z, int64_t slot) noexcept nogil:
    return z[slot >> 6] >> (slot & 63) & 1


def prints(uint64_t[:, ::1] z, const int64_t[::1] slots, int64_t start):
    """int64 (K,): a number for each column, the sum over its owners of 32 scrambled bits of the row's number.

    start: number of the first row. Columns that differ have different sums but for about one pair in 2^32.
    """
    cdef int64_t i, k, K = slots.shape[0]
    out = np.zeros(K, np.int64)
    cdef int64_t[::1] total = out
    cdef int64_t word
    with nogil:
        for i in range(z.shape[0]):
            word = <int64_t>(mixed(<uint64_t>(start + i)) & 0xffffffffULL)
            for k in range(K):
                total[k] += word * <int64_t>has(&z[i, 0], slots[k])
    return out


def patterns(uint64_t[:, ::1] z, const int64_t[::1] slots):
    """uint8 (n,): bit j says whether the row has the feature of slots[j]."""
    cdef int64_t i, j, J = slots.shape[0]
    if J > MOST:
        raise ValueError(f"a pattern of {J} features; it has room for {MOST}")
    out = np.zeros(z.shape[0], np.uint8)
    cdef uint8_t[::1] pattern = out
    cdef uint64_t found
    with nogil:
        for i in range(z.shape[0]):
            found = 0
            for j in range(J):
                found |= has(&z[i, 0], slots[j]) << j
            pattern[i] = <uint8_t>found
    return out


def write(uint64_t[:, ::1] z, const int64_t[::1] slots, const uint8_t[::1] pattern):
    """Give every row the features of its pattern, bit j that of slots[j]; z is changed in place."""
    cdef int64_t i, j, s
    if pattern.shape[0] != z.shape[0]:
        raise ValueError(f"{pattern.shape[0]} patterns of {z.shape[0]} rows")
    with nogil:
        for i in range(z.shape[0]):
            for j in range(slots.shape[0]):
                s = slots[j]
                z[i, s >> 6] = z[i, s >> 6] & ~(<uint64_t>1 << (s & 63)) | (<uint64_t>(pattern[i] >> j & 1) << (s & 63))


def tally_patterns(
    uint64_t[:, ::1] z, const float[:, ::1] x, const uint8_t[::1] pattern, int64_t n_patterns, const int64_t[::1] slots
):
    """(sizes, counts, cells): int64 (P,), rows of each pattern; int64 (P, K), those that have the feature of each of
    `slots`; float64 (P, D), their cells summed. Rows of pattern 0 are counted in `sizes` alone."""
    cdef int64_t i, k, d, p, K = slots.shape[0], width = x.shape[1]
    sizes_, counts_ = np.zeros(n_patterns, np.int64), np.zeros((n_patterns, K), np.int64)
    cells_ = np.zeros((n_patterns, width))
    if pattern.shape[0] != z.shape[0] or np.max(pattern, initial=0) >= n_patterns:
        raise ValueError(f"{pattern.shape[0]} patterns of {z.shape[0]} rows, below {n_patterns}")
    cdef int64_t[::1] sizes = sizes_
    cdef int64_t[:, ::1] counts = counts_
    cdef double[:, ::1] cells = cells_
    with nogil:
        for i in range(z.shape[0]):
            p = pattern[i]
            sizes[p] += 1
            if p == 0:
                continue
            for k in range(K):
                counts[p, k] += has(&z[i, 0], slots[k])
            for d in range(width):
                cells[p, d] += <double>x[i, d]
    return sizes_, counts_, cells_


def tally(uint64_t[:, ::1] z, const float[:, ::1] x, const int64_t[::1] of, const int64_t[::1] slots):
    """(together, cells): int64 (J, K), rows that have the feature of of[j] and that of slots[k]; float64 (J, D),
    the cells of the owners of of[j] summed. Rows as Rows.tally has them, bit by bit."""
    cdef int64_t i, j, k, d, J = of.shape[0], K = slots.shape[0], width = x.shape[1]
    together_, cells_ = np.zeros((J, K), np.int64), np.zeros((J, width))
    cdef int64_t[:, ::1] together = together_
    cdef double[:, ::1] cells = cells_
    with nogil:
        for i in range(z.shape[0]):
            for j in range(J):
                if not has(&z[i, 0], of[j]):
                    continue
                for k in range(K):
                    together[j, k] += has(&z[i, 0], slots[k])
                for d in range(width):
                    cells[j, d] += <double>x[i, d]
    return together_, cells_


def scores(
    uint64_t[:, ::1] z, const float[:, ::1] x, const int64_t[::1] rows, const double[:, ::1] vectors,
    const int64_t[::1] slots, const double[:, ::1] offsets,
):
    """float64 (R, J): of each of `rows`, x . vectors[j] less offsets[j, k] for each feature slots[k] that it has.

    vectors: float64 (J, D). With offsets = vectors A' that is the residual's product.
    """
    cdef int64_t i, r, j, k, d, l, J = vectors.shape[0], K = slots.shape[0], width = x.shape[1]
    out_ = np.zeros((rows.shape[0], J))
    if vectors.shape[1] != width or offsets.shape[0] != J or offsets.shape[1] != K:
        raise ValueError(f"vectors {vectors.shape[0], vectors.shape[1]} of rows of {width} cells and {K} features")
    cdef double[:, ::1] out = out_
    cdef double total, part[8]
    with nogil:
        for r in range(rows.shape[0]):
            i = rows[r]
            for j in range(J):
                for l in range(8):
                    part[l] = 0.0
                for d in range(0, width - 7, 8):
                    for l in range(8):
                        part[l] += <double>x[i, d + l] * vectors[j, d + l]
                for l in range(width & 7):
                    d = (width & ~7) + l
                    part[l] += <double>x[i, d] * vectors[j, d]
                total = ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]))
                for k in range(K):
                    if has(&z[i, 0], slots[k]):
                        total -= offsets[j, k]
                out[r, j] = total
    return out_
