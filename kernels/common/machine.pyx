"""Properties of the machine: the instruction set of the kernels' loops, and memory aligned for vectors.

ISA: "baseline", "avx2" or "avx512", the widest that this processor has, or the value of MPIBAYES_ISA. ISA_NUMBER: the
same for `kernel_isa` (isa.h), of which each module has its own.
"""

import os

import numpy as np

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t


cdef extern from "isa.h" nogil:
    int widest_isa()


cdef str _chosen(names):
    widest = names[widest_isa()]
    asked = os.environ.get("MPIBAYES_ISA", "") or widest
    if asked not in names:
        raise ImportError(f"MPIBAYES_ISA={asked} is not one of {', '.join(names)}")
    if names.index(asked) > names.index(widest):
        raise ImportError(f"MPIBAYES_ISA={asked}: this processor or this build cannot run it; unset the variable")
    return asked


_NAMES = ("baseline", "avx2", "avx512")  # by number
ISA = _chosen(_NAMES)
ISA_NUMBER = _NAMES.index(ISA)
POISONED = "MPIBAYES_POISON" in os.environ  # in tests: floats that are read before they are written are NaN


cdef object _aligned(raw):
    cdef uint8_t[::1] view = raw
    cdef Py_ssize_t start = (-<Py_ssize_t><size_t>&view[0]) & 63
    return raw[start:start + len(raw) - 64]


cdef object aligned(Py_ssize_t n, dtype):
    """n zeros of a type, 64-byte aligned."""
    return _aligned(np.zeros(n * <Py_ssize_t>np.dtype(dtype).itemsize + 64, dtype=np.uint8)).view(dtype)


cdef object room(Py_ssize_t n_bytes):
    """n bytes of any values, 64-byte aligned."""
    raw = np.empty(n_bytes + 64, dtype=np.uint8)
    if POISONED:
        raw.fill(255)
    return _aligned(raw)


cdef void *address(array) except? NULL:
    """Where a contiguous array lies; NULL when it is empty."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    PyBuffer_Release(&view)
    return view.buf if view.len else NULL
