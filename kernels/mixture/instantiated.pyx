"""Clusters with a drawn weight and drawn parameters, as the sweep reads them."""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint64_t

from mpibayes.kernels.common.machine cimport address, aligned
from mpibayes.kernels.mixture.layout cimport SPELL_PARTS
from mpibayes.kernels.mixture.rows cimport pad16


ctypedef fused number_t:
    float
    double


cdef int _take(const number_t[:, :] given, const int64_t[::1] order, number_t[:, ::1] out,
               const uint8_t[::1] met) except -1:
    """Take the columns `order` of an array, in the rows that are met, into an array of zeros."""
    cdef int64_t r, k, n = order.shape[0]
    cdef bint every = met is None
    cdef const char *row
    cdef number_t *to
    for k in range(n):
        if not 0 <= order[k] < given.shape[1]:
            raise ValueError(f"there is no cluster {order[k]}")
    if not every and met.shape[0] != given.shape[0]:
        raise ValueError("met: there is one value for each row")
    cdef int64_t[::1] step = np.asarray(order) * given.strides[1]
    with nogil:
        for r in range(given.shape[0]):
            if not every and not met[r]:
                continue
            row, to = <const char *>&given[r, 0], &out[r, 0]
            for k in range(n):
                to[k] = (<const number_t *>(row + step[k]))[0]
    return 0


cdef class Instantiated:
    """Clusters whose weights and parameters were drawn, laid out for `sweep`; arguments are copied, aligned.

    n: K1 clusters. free: number of leading clusters that every row may enter. anchors: uint64 (K1 - free,), ascending.
    log_weight: float64 (K1,). The caller pads the others to base = K1 rounded up to 16 clusters; None stands for no
    such columns: table float32 (L, base), log theta (0 in missing rows); location, half_precision, constant float64 (R,
    base): score = constant - half_precision (x - location)^2; log_rate, rate float64 (Q, base): score = x log_rate -
    rate; vector_location (sum of D, base), vector_factor (sum of D (D + 1) / 2, base) and vector_constant (B, base) of
    the blocks, see vectors.h; spell_start (S 2 SPELL_PARTS, base) and spell_hazard (S SPELL_PARTS, base) of survival
    columns, see spells.h. The padding may hold any finite values. order: int64 (K1,); the others have any number of
    clusters instead, of which these are taken, and padded with 0. met: uint8 (L,), 0 for rows of the table that are not
    read, and stay 0; only with `order`.
    """

    def __init__(self, n=0, free=None, anchors=None, log_weight=None, table=None, location=None, half_precision=None,
                 constant=None, log_rate=None, rate=None, vector_location=None, vector_factor=None,
                 vector_constant=None, spell_start=None, spell_hazard=None, order=None, met=None):
        self.n = n
        self.base = pad16(n)
        self.free = n if free is None else free
        if not 0 <= self.free <= self.n:
            raise ValueError(f"free = {self.free} is not between 0 and the {self.n} instantiated clusters")
        self.n_levels = 0 if table is None else len(table)
        self.n_reals = 0 if location is None else len(location)
        self.n_tallies = 0 if log_rate is None else len(log_rate)
        self.n_vector = 0 if vector_location is None else len(vector_location)
        self.n_pairs = 0 if vector_factor is None else len(vector_factor)
        self.n_blocks = 0 if vector_constant is None else len(vector_constant)
        self.n_spells = 0 if spell_hazard is None else len(spell_hazard) // SPELL_PARTS
        parts = [
            ("log_weight", log_weight, np.float64, 0), ("anchors", anchors, np.uint64, 0),
            ("table", table, np.float32, self.n_levels),
            ("location", location, np.float64, self.n_reals),
            ("half_precision", half_precision, np.float64, self.n_reals),
            ("constant", constant, np.float64, self.n_reals),
            ("log_rate", log_rate, np.float64, self.n_tallies), ("rate", rate, np.float64, self.n_tallies),
            ("vector_location", vector_location, np.float64, self.n_vector),
            ("vector_factor", vector_factor, np.float64, self.n_pairs),
            ("vector_constant", vector_constant, np.float64, self.n_blocks),
            ("spell_start", spell_start, np.float64, 2 * SPELL_PARTS * self.n_spells),
            ("spell_hazard", spell_hazard, np.float64, SPELL_PARTS * self.n_spells),
        ]
        cdef int64_t doubles = 3 + 3 * self.n_reals + 2 * self.n_tallies + self.n_vector + self.n_pairs + self.n_blocks \
            + 3 * SPELL_PARTS * self.n_spells
        cdef int64_t total = 8 * self.base * doubles + 4 * self.base * self.n_levels
        cdef int64_t at = 0
        self.buffer = aligned(total, np.uint8)
        starts = {}
        for name, given, dtype, n_rows in parts:
            if name == "log_weight":
                stop = at + 8 * self.base
                padded = self.buffer[at:stop].view(dtype)
                padded[:n] = self._checked(name, given, (n,))
                padded[n:] = -np.inf
            elif name == "anchors":
                stop = at + 8 * self.base
                array = self._checked(name, given, (n - self.free,))
                if not np.all(array[1:] >= array[:len(array) - 1]):
                    raise ValueError("anchors are not in ascending order")
                self.buffer[at:stop].view(dtype)[:n - self.free] = array
            else:
                stop = at + self.base * n_rows * np.dtype(dtype).itemsize
                if n_rows and self.base and order is not None:
                    if given.dtype != dtype or given.ndim != 2 or len(given) != n_rows:
                        raise ValueError(f"{name}: {given.dtype} {given.shape}, expected {dtype} with {n_rows} rows")
                    if dtype is np.float32:
                        _take[float](given, order, self.buffer[at:stop].view(dtype).reshape(n_rows, self.base), met)
                    else:
                        _take[double](given, order, self.buffer[at:stop].view(dtype).reshape(n_rows, self.base), None)
                elif n_rows and self.base:
                    self.buffer[at:stop].view(dtype)[:] = self._checked(name, given, (n_rows, self.base)).ravel()
            starts[name] = at
            at = stop
        cdef char *start = <char *>address(self.buffer)
        self.c.n, self.c.base, self.c.free = self.n, self.base, self.free
        self.c.log_weight = <const double *>(start + <int64_t>starts["log_weight"])
        self.c.anchors = <const uint64_t *>(start + <int64_t>starts["anchors"])
        self.c.table = <const float *>(start + <int64_t>starts["table"])
        self.c.location = <const double *>(start + <int64_t>starts["location"])
        self.c.half_precision = <const double *>(start + <int64_t>starts["half_precision"])
        self.c.constant = <const double *>(start + <int64_t>starts["constant"])
        self.c.log_rate = <const double *>(start + <int64_t>starts["log_rate"])
        self.c.rate = <const double *>(start + <int64_t>starts["rate"])
        self.c.vector_location = <const double *>(start + <int64_t>starts["vector_location"])
        self.c.vector_factor = <const double *>(start + <int64_t>starts["vector_factor"])
        self.c.vector_constant = <const double *>(start + <int64_t>starts["vector_constant"])
        self.c.spell_start = <const double *>(start + <int64_t>starts["spell_start"])
        self.c.spell_hazard = <const double *>(start + <int64_t>starts["spell_hazard"])
        self._sum_terms(<double *>(start + at))

    def all_free(self):
        """Return the same clusters, of which every row may enter any; they share memory."""
        cdef Instantiated out = Instantiated.__new__(Instantiated)
        out.c, out.buffer = self.c, self.buffer
        out.n, out.base, out.n_levels, out.n_reals, out.n_tallies = self.n, self.base, self.n_levels, self.n_reals, \
            self.n_tallies
        out.n_vector, out.n_pairs, out.n_blocks, out.n_spells = self.n_vector, self.n_pairs, self.n_blocks, self.n_spells
        out.free = out.c.free = self.n
        return out

    cdef int _sum_terms(self, double *out) except -1:
        """Sum over columns, in their order, of the terms that do not depend on cells."""
        cdef int64_t k, r
        self.c.start = out
        for k in range(self.base):
            out[k] = self.c.log_weight[k]
        for r in range(self.n_reals):
            for k in range(self.base):
                out[k] += self.c.constant[r * self.base + k]
        for r in range(self.n_tallies):
            for k in range(self.base):
                out[k] -= self.c.rate[r * self.base + k]
        return 0

    @staticmethod
    def _checked(name, given, shape):
        if given is None:
            if 0 in shape:
                return np.zeros(shape)
            raise ValueError(f"{name} is missing: an array of shape {shape} was expected")
        array = np.asarray(given)
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, expected {shape} (clusters padded to a multiple of 16)")
        return array
