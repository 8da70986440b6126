from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

from mpibayes.kernels.mixture.layout cimport rows_t


cdef class HeldRows:
    """Holds the arrays of a Rows object while C reads them."""

    cdef rows_t c
    cdef const uint8_t[:, ::1] codes8
    cdef const uint16_t[:, ::1] codes16
    cdef const double[:, ::1] reals
    cdef const double[:, ::1] tallies
    cdef const double[:, ::1] vectors
    cdef const double[:, ::1] spells
    cdef const int64_t[::1] offsets, widths
    cdef int32_t[::1] firsts
    cdef int64_t n_pairs  # entries of the packed triangles of all blocks

    cdef int _copy_offsets(self) except -1
    cdef int check(self) except -1


cdef inline int64_t pad16(int64_t n) noexcept nogil:
    return (n + 15) & ~<int64_t>15
