from libc.stdint cimport int64_t

from mpibayes.kernels.firefly.layout cimport lights_t
from mpibayes.kernels.firefly.rows cimport Rows


cdef class Lights:
    cdef lights_t c
    cdef readonly Rows rows
    cdef readonly int64_t version  # changes with the list
    cdef double *padded
    cdef object padded_theta

    cdef int _pad(self, theta) except -1
    cdef int _merged(self, int done) except -1
