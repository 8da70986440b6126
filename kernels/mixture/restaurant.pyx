"""Draws of the Pitman-Yor process: partitions of rows regardless of their cells (docs/math.md 1.1).

Cost per row: two random words and O(1), whatever the number of clusters.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint64_t


cdef extern from "philox.h" nogil:
    ctypedef struct philox_stream:
        pass
    philox_stream philox_open(uint64_t seed, uint64_t purpose, uint64_t sub, uint64_t cycle, uint64_t chain)
    uint64_t philox_word(philox_stream *stream, uint64_t row)
    double philox_uniform(uint64_t word)


def restaurant(int64_t n, double concentration, double discount, seed, purpose, sub, cycle, chain):
    """Draw labels of n rows from PY(concentration, discount), int32 (n,), numbered by first appearance.

    Row i, counted from 0, opens a cluster with probability (concentration + K discount) / (i + concentration).
    Otherwise it proposes the cluster of an earlier row j, drawn uniformly, and joins it with probability 1 - discount /
    n_j, n_j the rows of that cluster, or else proposes again: cluster k is thus joined in proportion to n_k - discount.
    """
    cdef philox_stream opens = philox_open(seed, purpose, sub, cycle, chain)
    cdef philox_stream joins = philox_open(seed, purpose, sub, cycle, chain)
    cdef int64_t i, k, n_clusters = 0, capacity = 64
    cdef uint64_t attempt
    cdef double place
    out, sizes = np.empty(n, dtype=np.int32), np.zeros(capacity, dtype=np.int64)
    cdef int32_t[::1] z = out
    cdef int64_t[::1] size = sizes
    for i in range(n):
        if i == 0 or philox_uniform(philox_word(&opens, i)) * (i + concentration) < concentration + n_clusters * discount:
            k = n_clusters
            n_clusters += 1
            if n_clusters > capacity:
                capacity *= 2
                sizes = np.concatenate([sizes, np.zeros(capacity - n_clusters + 1, dtype=np.int64)])
                size = sizes
        else:
            attempt = 1
            while True:  # attempts are blocks of 2^32 words, in which row i has the i-th
                place = philox_uniform(philox_word(&joins, (attempt << 32) + i)) * i
                k = z[<int64_t>place]
                if (place - <int64_t>place) * size[k] >= discount:
                    break
                attempt += 1
        z[i] = <int32_t>k
        size[k] += 1
    return out
