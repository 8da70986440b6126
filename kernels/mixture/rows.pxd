from libc.stdint cimport int64_t

from mpibayes.kernels.mixture.layout cimport rows_t


cdef class HeldRows:
    """Holds the arrays of a Rows object while C reads them."""

    cdef rows_t c
    cdef object held, firsts
    cdef const int64_t[::1] offsets
    cdef int64_t n_pairs  # entries of the packed triangles of all blocks

    cdef int _copy_offsets(self) except -1
    cdef int check(self) except -1


cdef inline int64_t pad16(int64_t n) noexcept nogil:
    return (n + 15) & ~<int64_t>15
