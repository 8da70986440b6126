from mpibayes.kernels.mixture.layout cimport survivors_t


cdef class Survivors:
    cdef survivors_t c
    cdef readonly object start, count, position, score

    cdef int grow(self, room) except -1
