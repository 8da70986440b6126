"""Rows of a table as the kernels read them, checked."""

import numpy as np

from libc.math cimport floor

from mpibayes.kernels.mixture.layout cimport CHECKS, SPELL_PARTS, SPELL_SHIFT, VECTOR_MOST


def pairs_of(widths):
    """Entries of the packed triangle of each block of `widths` columns, int64 (B,)."""
    return widths * (widths + 1) // 2


def widths_of(blocks):
    """Widths of the blocks of rows or of a prior, int64 (B,); objects from before blocks existed have none."""
    widths = np.ascontiguousarray(getattr(blocks, "widths", ()), dtype=np.int64)
    if widths.ndim != 1 or widths.size and not 1 <= widths.min() <= widths.max() <= VECTOR_MOST:
        raise ValueError(f"widths: blocks have 1 to {VECTOR_MOST} columns")
    return widths


def spells_of(rows):
    """Survival columns of rows, float64 (n, S); rows without the attribute have none."""
    given = getattr(rows, "spells", None)
    return np.zeros((len(rows.codes8), 0)) if given is None else given


cdef class HeldRows:
    def __cinit__(self, rows, offsets):
        self.codes8, self.codes16, self.reals, self.tallies = rows.codes8, rows.codes16, rows.reals, rows.tallies
        self.offsets, self.widths = offsets, widths_of(rows)
        cdef int64_t n = self.codes8.shape[0], width, n_vector = 0
        self.vectors = rows.vectors if self.widths.shape[0] else np.zeros((n, 0))
        self.spells = spells_of(rows)
        if self.codes16.shape[0] != n or self.reals.shape[0] != n or self.tallies.shape[0] != n \
                or self.vectors.shape[0] != n or self.spells.shape[0] != n:
            raise ValueError("the blocks of rows have different numbers of rows")
        self.c.n = n
        self.c.n_codes8, self.c.n_codes16 = self.codes8.shape[1], self.codes16.shape[1]
        self.c.n_codes = self.c.n_codes8 + self.c.n_codes16
        self.c.n_reals, self.c.n_tallies = self.reals.shape[1], self.tallies.shape[1]
        if self.offsets.shape[0] != self.c.n_codes + 1:
            raise ValueError(f"{self.c.n_codes} categorical columns need {self.c.n_codes + 1} offsets, "
                             f"not {self.offsets.shape[0]}")
        self.c.offsets = &self.offsets[0]
        self._copy_offsets()
        self.c.codes8 = &self.codes8[0, 0] if n and self.c.n_codes8 else NULL
        self.c.codes16 = &self.codes16[0, 0] if n and self.c.n_codes16 else NULL
        self.c.reals = &self.reals[0, 0] if n and self.c.n_reals else NULL
        self.c.tallies = &self.tallies[0, 0] if n and self.c.n_tallies else NULL
        self.c.n_blocks, self.c.n_vector = self.widths.shape[0], self.vectors.shape[1]
        for width in self.widths:
            n_vector += width
            self.n_pairs += width * (width + 1) // 2
        if self.c.n_vector != n_vector:
            raise ValueError(f"widths are of {n_vector} columns, vectors has {self.c.n_vector}")
        self.c.widths = &self.widths[0] if self.c.n_blocks else NULL
        self.c.vectors = &self.vectors[0, 0] if n and self.c.n_vector else NULL
        self.c.n_spells = self.spells.shape[1]
        self.c.spells = &self.spells[0, 0] if n and self.c.n_spells else NULL
        if CHECKS:
            self.check()

    cdef int _copy_offsets(self) except -1:
        cdef int64_t c, middle = pad16(self.c.n_codes8)
        self.firsts = np.zeros(middle + pad16(self.c.n_codes16) + 1, np.int32)
        for c in range(self.c.n_codes):
            self.firsts[c if c < self.c.n_codes8 else middle + c - self.c.n_codes8] = <int32_t>self.offsets[c]
        self.c.first8, self.c.first16 = &self.firsts[0], &self.firsts[middle]
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
                x = abs(self.spells[i, c])
                if x == x and not (1 << SPELL_SHIFT <= x < <int64_t>(SPELL_PARTS + 1) << SPELL_SHIFT and x == floor(x)):
                    raise ValueError(f"row {i}, survival column {c}: {x} is not a part of the time axis and a time in it")
        return 0


def check_rows(rows, offsets):
    """Raise ValueError naming the first row with a code that is no level of its column, or a count that is not a whole
    number. The loops trust both: call it once for rows that come from outside."""
    HeldRows(rows, offsets).check()
