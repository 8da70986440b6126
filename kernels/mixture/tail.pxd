from libc.stdint cimport int32_t, int64_t, uint8_t

from mpibayes.kernels.mixture.layout cimport tail_t, work_t


cdef enum:
    N_FIELDS = 46


cdef class Work:
    """Scratch of one call, freed with it."""

    cdef work_t c
    cdef void *memory


cdef class Tail:
    cdef tail_t c
    cdef object buffer, offsets_array, contexts_array, dirichlet_array, normal_array, gamma_array, plain
    cdef object widths_array, given_array, wishart_array, vector_mean_array, vector_spread_array
    cdef object spell_gamma_array, spell_width_array
    cdef int64_t items[10]
    cdef int64_t starts[N_FIELDS]  # bytes before each field of the buffer
    cdef int32_t[::1] by_power
    cdef const float[::1] prior_table
    cdef double[::1] prior_sums, count_scores_kept
    cdef int32_t[::1] missing
    cdef int64_t[::1] power_ends

    cdef int _copy_prior(self, int64_t vacant, const uint8_t[::1] met) except -1
    cdef int _load_levels(self, const int32_t[:, ::1] given, const uint8_t[::1] met) except -1
    cdef int _sum_prior(self) except -1
    cdef int _sort_by_nu(self, nu) except -1
    cdef int _allocate(self, int64_t capacity) except -1
    cdef int _point_at_blocks(self, char *at) except -1
    cdef int _point_at_spells(self, char *at) except -1
    cdef int _refresh(self, int64_t start, int64_t stop) except -1
    cdef int _grow(self) except -1
