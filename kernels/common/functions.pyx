"""Special functions of float64 arrays of any shape, or of numbers, with the bits of SciPy's functions of these names.

A start needs no others of SciPy's, and importing `scipy.special` takes longer than a cycle of a small table.
"""

import numpy as np

from libc.math cimport exp, log


cdef extern from "functions.h" nogil:
    double log_gamma_of(double x)


def gammaln(x):
    """log Gamma(x) for x >= 0; NaN below."""
    if isinstance(x, float):
        return log_gamma_of(x) if not x < 0.0 else np.nan
    a = np.ascontiguousarray(x, dtype=np.float64)
    out = np.empty_like(a)
    cdef const double[::1] flat = a.reshape(-1)
    cdef double[::1] into = out.reshape(-1)
    cdef Py_ssize_t i
    for i in range(flat.shape[0]):
        into[i] = log_gamma_of(flat[i]) if not flat[i] < 0.0 else float("nan")
    return out.reshape(np.shape(x))[()]


def expit(x):
    """1 / (1 + exp(-x))."""
    a = np.ascontiguousarray(x, dtype=np.float64)
    out = np.empty_like(a)
    cdef const double[::1] flat = a.reshape(-1)
    cdef double[::1] into = out.reshape(-1)
    cdef Py_ssize_t i
    for i in range(flat.shape[0]):
        into[i] = 1.0 / (1.0 + exp(-flat[i]))
    return out.reshape(np.shape(x))[()]


def xlogx(x):
    """x log(x), 0 at 0."""
    a = np.ascontiguousarray(x, dtype=np.float64)
    out = np.empty_like(a)
    cdef const double[::1] flat = a.reshape(-1)
    cdef double[::1] into = out.reshape(-1)
    cdef Py_ssize_t i
    for i in range(flat.shape[0]):
        into[i] = flat[i] * log(flat[i]) if flat[i] != 0.0 else 0.0
    return out.reshape(np.shape(x))[()]
