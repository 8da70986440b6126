"""Rows that equal their neighbours, and their counts at once."""

from libc.stdint cimport int32_t, int64_t

from mpibayes.kernels.mixture.layout cimport rows_t


cdef extern from "alike.h" nogil:
    int in_runs(const rows_t *rows, int all)
    int same_cells(const rows_t *rows, int64_t a, int64_t b)
    int same_counted(const rows_t *rows, int64_t a, int64_t b)


cdef inline void add_times(const rows_t *p, int64_t row, int64_t k, int64_t times, int64_t[::1] size,
                           int32_t[:, ::1] levels, int64_t[:, ::1] tally_n, double[:, ::1] tally_sum) noexcept nogil:
    """Add the levels and counts of a row to cluster k so many times, which may be negative."""
    cdef int64_t c
    cdef double x
    size[k] += times
    for c in range(p.n_codes8):
        levels[p.offsets[c] + p.codes8[row * p.n_codes8 + c], k] += <int32_t>times
    for c in range(p.n_codes16):
        levels[p.offsets[p.n_codes8 + c] + p.codes16[row * p.n_codes16 + c], k] += <int32_t>times
    for c in range(p.n_tallies):
        x = p.tallies[row * p.n_tallies + c]
        if x == x:
            tally_n[c, k] += times
            tally_sum[c, k] += x * times
