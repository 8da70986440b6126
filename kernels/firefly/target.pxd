from libc.stdint cimport int32_t, int64_t

from mpibayes.kernels.firefly.layout cimport block_t, model_t
from mpibayes.kernels.firefly.rows cimport Rows


cdef extern from "firefly.h" nogil:
    ctypedef double (*rows_function)(void *, const double *, double *) noexcept nogil

    ctypedef struct part_t:
        block_t rows
        int64_t start

    ctypedef struct target_t:
        const model_t *model
        int64_t n_parameters, n_parts, n_rows, n_evaluations
        int full
        const int32_t *prior
        const double *inverse
        double prior_constant, constant, log_density
        const double *centre
        const double *gram
        const double *mixing
        const double *slope
        part_t *parts
        double *gap
        double *gap_before
        rows_function remote
        void *owner
        double *scratch


cdef class Target:
    cdef target_t c
    cdef model_t model
    cdef object arrays, loaded, error
    cdef int failed
    cdef public object remote
    cdef readonly int64_t n_parameters
    cdef double *of_rows

    cdef int _reserve(self, int64_t n_parts, int64_t n_rows) except -1
    cdef int _fits(self, Rows rows) except -1
    cdef int _ready(self) except -1
    cdef int _raise(self) except -1
