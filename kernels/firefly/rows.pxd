from mpibayes.kernels.firefly.layout cimport block_t, model_t

from libc.stdint cimport int64_t


cdef checked(name, array, dtype, shape)
cdef double[::1] in_place(name, array, int64_t n)
cdef model_t checked_model(likelihood, n_predictors, n_classes, nu, scale) except *


cdef class Rows:
    cdef model_t model
    cdef block_t block
    cdef readonly object x, y
    cdef object all_bounds, work, padded_theta
    cdef double *scratch
    cdef double *padded
    cdef readonly int64_t n, n_predictors, n_classes, n_parameters, n_bounds
    cdef readonly int likelihood
    cdef readonly double nu, scale

    cdef int _pad(self, theta) except -1
