"""Special functions of float64 arrays of any shape, or of numbers, with the bits of SciPy's functions of these names.

A start needs no others of SciPy's, and importing `scipy.special` takes longer than a cycle of a small table.
"""

import numpy as np

from libc.math cimport NAN, exp, log

from mpibayes.kernels.common.machine cimport address


cdef extern from "functions.h" nogil:
    double log_gamma_of(double x)


cdef double _log_gamma(double x) noexcept nogil:
    return NAN if x < 0.0 else log_gamma_of(x)


cdef double _expit(double x) noexcept nogil:
    return 1.0 / (1.0 + exp(-x))


cdef double _xlogx(double x) noexcept nogil:
    return x * log(x) if x != 0.0 else 0.0


cdef object _each(x, double (*of)(double) noexcept nogil):
    if isinstance(x, float):
        return of(x)
    a = np.asarray(x, dtype=np.float64, order="C")
    out = np.empty(a.shape)
    cdef const double *value = <const double *>address(a)
    cdef double *result = <double *>address(out)
    cdef Py_ssize_t i, n = a.size
    with nogil:
        for i in range(n):
            result[i] = of(value[i])
    return out if a.ndim else out[()]


def gammaln(x):
    """log Gamma(x) for x >= 0; NaN below."""
    return _each(x, _log_gamma)


def expit(x):
    """1 / (1 + exp(-x))."""
    return _each(x, _expit)


def xlogx(x):
    """x log(x), 0 at 0."""
    return _each(x, _xlogx)
