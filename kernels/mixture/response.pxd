from libc.stdint cimport int64_t

from mpibayes.kernels.mixture.layout cimport response_t


cdef class Response:
    cdef response_t c
    cdef const double[::1] y, offset, odds, pick
    cdef const float[:, ::1] u
    cdef const double[:, :, ::1] fresh
    cdef double[::1] mean
    cdef object buffer
    cdef int64_t room

    cdef int make_room(self, int64_t capacity) except -1
