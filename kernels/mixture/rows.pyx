"""Rows of a table as the kernels read them, checked."""

import numpy as np

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport floor
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

from mpibayes.kernels.common.machine cimport address
from mpibayes.kernels.mixture.layout cimport CHECKS, SPELL_PARTS, SPELL_SHIFT, VECTOR_MOST


def widths_of(blocks):
    """Widths of the blocks of rows or of a prior, int64 (B,); objects from before blocks existed have none."""
    widths = np.ascontiguousarray(getattr(blocks, "widths", ()), dtype=np.int64)
    cdef const int64_t[::1] each = widths
    cdef int64_t b
    for b in range(each.shape[0]):
        if not 1 <= each[b] <= VECTOR_MOST:
            raise ValueError(f"widths: blocks have 1 to {VECTOR_MOST} columns")
    return widths


def spells_of(rows):
    """Survival columns of rows, float64 (n, S); rows without the attribute have none."""
    given = getattr(rows, "spells", None)
    return np.zeros((len(rows.codes8), 0)) if given is None else given


cdef const void *_cells(array, char kind, int64_t *n, int64_t *width) except? NULL:
    """Where the cells of an array lie, whose type NumPy names `kind`: n rows, or any number if that is -1; NULL if there
    are none."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    cdef bint sound = view.ndim == 2 and view.format[0] == kind and view.format[1] == 0
    if sound:
        sound, width[0] = n[0] < 0 or view.shape[0] == n[0], view.shape[1]
        n[0] = view.shape[0]
    cdef const void *start = view.buf if view.len else NULL
    PyBuffer_Release(&view)
    if not sound:
        raise ValueError("the blocks of rows have different numbers of rows, or the wrong types")
    return start


cdef class HeldRows:
    def __cinit__(self, rows, offsets):
        cdef int64_t n = -1, width, n_vector = 0, b
        cdef const int64_t[::1] widths = widths_of(rows)
        spells = getattr(rows, "spells", None)
        self.offsets = offsets
        self.held = rows.codes8, rows.codes16, rows.reals, rows.tallies, rows.vectors if len(widths) else None, spells, \
            widths
        self.c.codes8 = <const uint8_t *>_cells(self.held[0], b"B", &n, &self.c.n_codes8)
        self.c.codes16 = <const uint16_t *>_cells(self.held[1], b"H", &n, &self.c.n_codes16)
        self.c.reals = <const double *>_cells(self.held[2], b"d", &n, &self.c.n_reals)
        self.c.tallies = <const double *>_cells(self.held[3], b"d", &n, &self.c.n_tallies)
        if widths.shape[0]:
            self.c.vectors = <const double *>_cells(self.held[4], b"d", &n, &self.c.n_vector)
            self.c.widths = &widths[0]
        if spells is not None:
            self.c.spells = <const double *>_cells(spells, b"d", &n, &self.c.n_spells)
        self.c.n, self.c.n_blocks = n, widths.shape[0]
        self.c.n_codes = self.c.n_codes8 + self.c.n_codes16
        for b in range(self.c.n_blocks):
            width = widths[b]
            n_vector += width
            self.n_pairs += width * (width + 1) // 2
        if self.c.n_vector != n_vector:
            raise ValueError(f"widths are of {n_vector} columns, vectors has {self.c.n_vector}")
        if offsets is None:  # no level is read
            return
        if self.offsets.shape[0] != self.c.n_codes + 1:
            raise ValueError(f"{self.c.n_codes} categorical columns need {self.c.n_codes + 1} offsets, "
                             f"not {self.offsets.shape[0]}")
        self.c.offsets = &self.offsets[0]
        self._copy_offsets()
        if CHECKS:
            self.check()

    cdef int _copy_offsets(self) except -1:
        cdef int64_t c, middle = pad16(self.c.n_codes8)
        self.firsts = np.zeros(middle + pad16(self.c.n_codes16) + 1, np.int32)
        cdef int32_t *first = <int32_t *>address(self.firsts)
        for c in range(self.c.n_codes):
            first[c if c < self.c.n_codes8 else middle + c - self.c.n_codes8] = <int32_t>self.offsets[c]
        self.c.first8, self.c.first16 = first, first + middle
        return 0

    cdef int check(self) except -1:
        """Raise ValueError for a code beyond its column's missing code, or an invalid count; the loops trust both."""
        cdef int64_t i, c, code
        cdef double x
        for i in range(self.c.n):
            for c in range(self.c.n_codes):
                code = self.c.codes8[i * self.c.n_codes8 + c] if c < self.c.n_codes8 \
                    else self.c.codes16[i * self.c.n_codes16 + c - self.c.n_codes8]
                if code >= self.c.offsets[c + 1] - self.c.offsets[c]:
                    raise ValueError(f"row {i}, categorical column {c}: code {code} is not one of its "
                                     f"{self.c.offsets[c + 1] - self.c.offsets[c] - 1} levels or missing")
            for c in range(self.c.n_tallies):
                x = self.c.tallies[i * self.c.n_tallies + c]
                if x < 0 or (x == x and x != floor(x)):
                    raise ValueError(f"row {i}, count column {c}: {x} is not a whole number, 0 or above")
            for c in range(self.c.n_spells):
                x = abs(self.c.spells[i * self.c.n_spells + c])
                if x == x and not (1 << SPELL_SHIFT <= x < <int64_t>(SPELL_PARTS + 1) << SPELL_SHIFT and x == floor(x)):
                    raise ValueError(f"row {i}, survival column {c}: {x} is not a part of the time axis and a time in it")
        return 0


def check_rows(rows, offsets):
    """Raise ValueError naming the first row with a code that is no level of its column, or a count that is not a whole
    number. The loops trust both: call it once for rows that come from outside."""
    HeldRows(rows, offsets).check()
