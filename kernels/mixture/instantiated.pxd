from libc.stdint cimport int64_t

from mpibayes.kernels.mixture.layout cimport instantiated_t


cdef class Instantiated:
    cdef instantiated_t c
    cdef readonly int64_t n, free, base, n_levels, n_reals, n_tallies, n_blocks, n_vector, n_pairs, n_spells
    cdef object buffer

    cdef int _sum_terms(self, double *out) except -1
