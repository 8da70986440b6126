"""Kernels of the partially collapsed mixture sampler: one shard's sweep, its statistics, predictive densities.

`sweep` leaves invariant the posterior of a shard's labels given the instantiated clusters (docs/math.md 2.1 step 6,
2.3); with no instantiated cluster it is Neal (2000), Algorithm 3. The loops are in C headers beside this file: sweep.h
reads like the algorithm, cells.h has the cells of rows, scores.h the inner loops, tail.h the collapsed clusters, draw.h
the draw, moments.h sums for `accumulate`. kernels/mixture/twin.py is the same in plain Python and serves as the
specification.

Labels within a sweep: 0..K1-1 instantiated clusters, base + t tail slot t with base = K1 rounded up to 16, -1 not
seated but to be when the sweep meets the row, -2 and below idle: not in the subsample, no kernel looks at the row.
"""

import os

import numpy as np

from libc.math cimport floor
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.stdlib cimport posix_memalign


cdef extern from "mixture.h" nogil:
    ctypedef struct philox_stream:
        pass
    philox_stream philox_open(uint64_t seed, uint64_t purpose, uint64_t sweep, uint64_t cycle, uint64_t chain)
    uint64_t philox_word(philox_stream *stream, uint64_t row)
    enum:
        PURPOSE_PRIORITY
        STATUS_DONE, STATUS_GROW, STATUS_NOT_A_NUMBER, STATUS_NO_CANDIDATE, STATUS_BAD_LABEL
        ISA_BASELINE, ISA_AVX2, ISA_AVX512

    ctypedef struct rows_t:
        int64_t n, n_codes8, n_codes16, n_codes, n_reals, n_tallies
        const uint8_t *codes8
        const uint16_t *codes16
        const double *reals
        const double *tallies
        const int64_t *offsets
        int64_t n_blocks, n_vector
        const int64_t *widths
        const double *vectors

    ctypedef struct instantiated_t:
        int64_t n, base, free
        const uint64_t *anchors
        const double *log_weight
        const double *start
        const float *table
        const double *location
        const double *half_precision
        const double *constant
        const double *log_rate
        const double *rate
        const double *vector_location
        const double *vector_factor
        const double *vector_constant

    ctypedef struct tail_t:
        int64_t capacity, n_slots, n_rows, n_occupied, vacant, n_levels, n_codes, n_reals, n_tallies
        double concentration, discount, log_weight
        const int64_t *offsets
        const double *dirichlet
        const double *normal
        const double *gamma
        int64_t one_nu
        const int32_t *by_power
        const int64_t *power_ends
        int64_t *size
        int32_t *levels
        int64_t *real_n
        int64_t *tally_n
        double *real_mean
        double *real_scatter
        double *tally_sum
        double *log_size
        double *log_size_without
        double *norm
        double *total_without
        int64_t *reference_size
        double *reference
        float *table
        const float *prior_table
        const double *prior_sums
        double *count_scores
        const int32_t *missing
        double *t_location
        double *t_scale
        double *t_half
        double *t_constant
        double *t_total
        double *without
        double *plain
        double *nb_shape
        double *nb_rate
        double *nb_zero
        double *nb_log_p
        double *nb_log_q
        double *nb_remainder
        double *nb_base
        double *nb_log_p_without
        int64_t n_uneven
        int64_t *uneven
        int64_t n_blocks
        const int64_t *widths
        const double *wishart
        const double *v_mean
        const double *v_spread
        int64_t *vector_n
        double *vector_mean
        double *vector_scatter
        double *v_location
        double *v_factor
        double *v_half
        double *v_constant
        double *v_without

    ctypedef struct block_t:
        int32_t *level
        int64_t level_stride
        int64_t *reals_seen
        int64_t *tallies_seen
        double *reals_kept
        double *tallies_kept
        int32_t *vectors_seen

    ctypedef struct work_t:
        block_t block
        double *scores
        double *part
        double *sums
        float *weights
        double *logs
        double *own
        double *real_x
        double *tally_x
        double *x_kept
        double *crossed
        double *tally_log_factorial
        double *tally_saddle
        int32_t *real_c
        int32_t *tally_c
        double *vector_scratch

    ctypedef struct outcome_t:
        int64_t row, moved
        int status

    enum:
        OWN_FIELDS
        VECTOR_MOST
        POWERS
        N_COUNTS_KEPT
        WITHOUT_FIELDS
        ADD_BLOCK
        BLOCK
    void keep_counts()
    int kernel_isa
    int widest_isa()
    bint CHECKS "MPIBAYES_CHECKING"
    outcome_t kernel_sweep(const rows_t *, int32_t *, int64_t, const instantiated_t *, tail_t *, work_t *, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t, int)
    outcome_t kernel_visit(const rows_t *, int32_t *, const int32_t *, const int32_t *, int64_t, int64_t,
                           const instantiated_t *, tail_t *, work_t *, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                           int)
    outcome_t kernel_predictive(const rows_t *, tail_t *, work_t *, double *, double *)
    void kernel_add_cells(const rows_t *, const int32_t *, int64_t, double *, int64_t *)
    void kernel_add_squares(const rows_t *, const int32_t *, int64_t, const double *, double *)
    void kernel_refresh(tail_t *, work_t *, int64_t, int64_t)


cdef str _choose_isa():
    """Set the instruction set of the loops from MPIBAYES_ISA, or the widest this processor has; its name."""
    global kernel_isa
    names = {"baseline": ISA_BASELINE, "avx2": ISA_AVX2, "avx512": ISA_AVX512}
    asked = os.environ.get("MPIBAYES_ISA", "")
    kernel_isa = widest_isa()
    if asked:
        if asked not in names:
            raise ImportError(f"MPIBAYES_ISA={asked} is not one of {', '.join(names)}")
        if names[asked] > kernel_isa:
            raise ImportError(f"MPIBAYES_ISA={asked}: this processor or this build cannot run it; unset the variable")
        kernel_isa = names[asked]
    return next(name for name, value in names.items() if value == kernel_isa)


ISA = _choose_isa()
keep_counts()
UNANCHORED = 2**64 - 1  # `anchors` of a cluster without rows here


cdef inline int64_t _pad16(int64_t n) noexcept nogil:
    return (n + 15) & ~<int64_t>15


cdef object _aligned_bytes(int64_t n):
    """n zero bytes, 64-byte aligned."""
    raw = np.zeros(n + 64, dtype=np.uint8)
    cdef uint8_t[::1] view = raw
    cdef int64_t start = (-<int64_t><size_t>&view[0]) & 63
    return raw[start:start + n]


cdef void *_address(object array) except? NULL:
    """Address of a one-dimensional uint8 array; NULL when it is empty."""
    cdef uint8_t[::1] view = array
    return <void *>&view[0] if view.shape[0] else NULL


def pairs_of(widths):
    """int64 (B,): entries of the packed triangle of each block of `widths` columns."""
    return widths * (widths + 1) // 2


def _widths_of(blocks):
    """int64 (B,) of rows or of a prior; those made before there were blocks have none."""
    widths = np.ascontiguousarray(getattr(blocks, "widths", ()), dtype=np.int64)
    if widths.ndim != 1 or ((widths < 1) | (widths > VECTOR_MOST)).any():
        raise ValueError(f"widths: blocks have 1 to {VECTOR_MOST} columns")
    return widths


# ---- arguments
# ---------------------------------------------------------------------------------------------------------

cdef class _Rows:
    """Holds the arrays of a Rows object while C reads them."""

    cdef rows_t c
    cdef const uint8_t[:, ::1] codes8
    cdef const uint16_t[:, ::1] codes16
    cdef const double[:, ::1] reals
    cdef const double[:, ::1] tallies
    cdef const double[:, ::1] vectors
    cdef const int64_t[::1] offsets, widths

    def __cinit__(self, rows, offsets):
        self.codes8, self.codes16, self.reals, self.tallies = rows.codes8, rows.codes16, rows.reals, rows.tallies
        self.offsets, self.widths = offsets, _widths_of(rows)
        cdef int64_t n = self.codes8.shape[0]
        self.vectors = rows.vectors if self.widths.shape[0] else np.zeros((n, 0))
        if self.codes16.shape[0] != n or self.reals.shape[0] != n or self.tallies.shape[0] != n \
                or self.vectors.shape[0] != n:
            raise ValueError("the blocks of rows have different numbers of rows")
        self.c.n = n
        self.c.n_codes8, self.c.n_codes16 = self.codes8.shape[1], self.codes16.shape[1]
        self.c.n_codes = self.c.n_codes8 + self.c.n_codes16
        self.c.n_reals, self.c.n_tallies = self.reals.shape[1], self.tallies.shape[1]
        if self.offsets.shape[0] != self.c.n_codes + 1:
            raise ValueError(f"{self.c.n_codes} categorical columns need {self.c.n_codes + 1} offsets, "
                             f"not {self.offsets.shape[0]}")
        self.c.offsets = &self.offsets[0]
        self.c.codes8 = &self.codes8[0, 0] if n and self.c.n_codes8 else NULL
        self.c.codes16 = &self.codes16[0, 0] if n and self.c.n_codes16 else NULL
        self.c.reals = &self.reals[0, 0] if n and self.c.n_reals else NULL
        self.c.tallies = &self.tallies[0, 0] if n and self.c.n_tallies else NULL
        self.c.n_blocks, self.c.n_vector = self.widths.shape[0], self.vectors.shape[1]
        if self.c.n_vector != np.sum(self.widths):
            raise ValueError(f"widths are of {np.sum(self.widths)} columns, vectors has {self.c.n_vector}")
        self.c.widths = &self.widths[0] if self.c.n_blocks else NULL
        self.c.vectors = &self.vectors[0, 0] if n and self.c.n_vector else NULL
        if CHECKS:
            self.check()

    cdef int check(self) except -1:
        """Raise ValueError for a code beyond its column's missing code, or a count that is none; the loops trust both."""
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
        return 0


def check_rows(rows, offsets):
    """Raise ValueError naming the first row with a code that is no level of its column, or a count that is not a whole
    number. The loops trust them: call it once for rows that come from outside."""
    _Rows(rows, offsets).check()


cdef class Instantiated:
    """Clusters whose weights and parameters were drawn, as `sweep` wants them; arguments are copied, aligned.

    n: K1 clusters. free: how many of the first every row may enter. anchors: uint64 (K1 - free,), ascending.
    log_weight: float64 (K1,). The rest is padded by the caller to base = K1 rounded up to 16 clusters, and None stands
    for no such columns: table float32 (L, base), log theta (0 in missing rows); location, half_precision, constant
    float64 (R, base): score = constant - half_precision (x - location)^2; log_rate, rate float64 (Q, base):
    score = x log_rate - rate; vector_location (sum of D, base), vector_factor (sum of D (D + 1) / 2, base) and
    vector_constant (B, base) of the blocks, see vectors.h. What the padding holds does not matter, as long as it is
    finite.
    """

    cdef instantiated_t c
    cdef readonly int64_t n, free, base, n_levels, n_reals, n_tallies, n_blocks, n_vector, n_pairs
    cdef object buffer, starts

    def __init__(self, n=0, free=None, anchors=None, log_weight=None, table=None, location=None, half_precision=None,
                 constant=None, log_rate=None, rate=None, vector_location=None, vector_factor=None,
                 vector_constant=None):
        self.n = n
        self.base = _pad16(n)
        self.free = n if free is None else free
        if not 0 <= self.free <= self.n:
            raise ValueError(f"free = {self.free} is not between 0 and the {self.n} instantiated clusters")
        self.n_levels = 0 if table is None else len(table)
        self.n_reals = 0 if location is None else len(location)
        self.n_tallies = 0 if log_rate is None else len(log_rate)
        self.n_vector = 0 if vector_location is None else len(vector_location)
        self.n_pairs = 0 if vector_factor is None else len(vector_factor)
        self.n_blocks = 0 if vector_constant is None else len(vector_constant)
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
        ]
        cdef int64_t doubles = 3 + 3 * self.n_reals + 2 * self.n_tallies + self.n_vector + self.n_pairs + self.n_blocks
        cdef int64_t total = 8 * self.base * doubles + 4 * self.base * self.n_levels
        cdef int64_t at = 0
        self.buffer = _aligned_bytes(total)
        self.starts = starts = {}
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
                if n_rows and self.base:
                    self.buffer[at:stop].view(dtype)[:] = self._checked(name, given, (n_rows, self.base)).ravel()
            starts[name] = at
            at = stop
        cdef char *start = <char *>_address(self.buffer)
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
        self._sum_terms(<double *>(start + at))

    cdef int _sum_terms(self, double *out) except -1:
        """What no cell changes, summed over columns in their order."""
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

    def _view(self, name, dtype, shape):
        start = self.starts[name]
        n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        view = self.buffer[start:start + n_bytes].view(dtype).reshape(shape)
        view.flags.writeable = False
        return view

    @property
    def log_weight(self):
        return self._view("log_weight", np.float64, (self.n,))

    @property
    def anchors(self):
        return self._view("anchors", np.uint64, (self.n - self.free,))

    @property
    def table(self):
        return self._view("table", np.float32, (self.n_levels, self.base))

    @property
    def location(self):
        return self._view("location", np.float64, (self.n_reals, self.base))

    @property
    def half_precision(self):
        return self._view("half_precision", np.float64, (self.n_reals, self.base))

    @property
    def constant(self):
        return self._view("constant", np.float64, (self.n_reals, self.base))

    @property
    def log_rate(self):
        return self._view("log_rate", np.float64, (self.n_tallies, self.base))

    @property
    def rate(self):
        return self._view("rate", np.float64, (self.n_tallies, self.base))

    @property
    def vector_location(self):
        return self._view("vector_location", np.float64, (self.n_vector, self.base))

    @property
    def vector_factor(self):
        return self._view("vector_factor", np.float64, (self.n_pairs, self.base))

    @property
    def vector_constant(self):
        return self._view("vector_constant", np.float64, (self.n_blocks, self.base))


cdef class _Work:
    """Scratch of one call, freed with it."""

    cdef work_t c
    cdef void *memory

    def __cinit__(self, int64_t base, int64_t capacity, int64_t n_levels, int64_t n_codes, int64_t n_reals,
                  int64_t n_tallies, int64_t n_blocks=0):
        cdef int64_t lanes = BLOCK * (base + capacity)
        cdef int64_t n_logs = _pad16(max(n_levels + n_codes, 3 * n_codes) + 16), n_own = _pad16(max(n_reals, n_tallies))
        cdef int64_t reals = _pad16(n_reals), tallies = _pad16(n_tallies), codes = _pad16(n_codes)
        cdef int64_t doubles = lanes + lanes // 2 + _pad16(lanes // 16) + n_logs + (2 + 3 * BLOCK) * reals \
            + (3 + 2 * BLOCK) * tallies + OWN_FIELDS * n_own
        # two locations and two packed triangles of the widest block of columns there can be
        cdef int64_t n_scratch = 2 * VECTOR_MOST + VECTOR_MOST * (VECTOR_MOST + 1) if n_blocks else 0
        doubles += n_scratch
        cdef int64_t words = lanes + BLOCK * codes + reals + tallies + BLOCK * _pad16(n_blocks)
        if posix_memalign(&self.memory, 64, 8 * doubles + 4 * words + 64) != 0:
            raise MemoryError(f"no memory for the scores of {base + capacity} clusters")
        self.c.scores = <double *>self.memory
        self.c.part = self.c.scores + lanes
        self.c.sums = self.c.part + lanes // 2
        self.c.logs = self.c.sums + _pad16(lanes // 16)
        self.c.real_x = self.c.logs + n_logs
        self.c.x_kept = self.c.real_x + reals
        self.c.crossed = self.c.x_kept + reals
        self.c.tally_x = self.c.crossed + BLOCK * reals
        self.c.tally_log_factorial = self.c.tally_x + tallies
        self.c.tally_saddle = self.c.tally_log_factorial + tallies
        self.c.own = self.c.tally_saddle + tallies
        self.c.block.reals_kept = self.c.own + OWN_FIELDS * n_own
        self.c.block.tallies_kept = self.c.block.reals_kept + BLOCK * reals
        self.c.block.reals_seen = <int64_t *>(self.c.block.tallies_kept + BLOCK * tallies)
        self.c.block.tallies_seen = self.c.block.reals_seen + BLOCK * reals
        self.c.vector_scratch = <double *>(self.c.block.tallies_seen + BLOCK * tallies)
        self.c.weights = <float *>(self.c.vector_scratch + n_scratch)
        self.c.block.level = <int32_t *>(self.c.weights + lanes)
        self.c.block.level_stride = codes
        memset(self.c.block.level, 0, BLOCK * codes * sizeof(int32_t))
        self.c.real_c = self.c.block.level + BLOCK * codes
        self.c.tally_c = self.c.real_c + reals
        self.c.block.vectors_seen = self.c.tally_c + tallies

    def __dealloc__(self):
        free(self.memory)


# name, dtype, and which number of items a slot has: 1, L, C, R, Q, or all that own_reals wants of the slot, and then the
# items of a slot stand together, or blocks of columns, their columns, their pairs of columns; the first ten are the
# statistics, in the order of the Statistics class and of `accumulate`
_FIELDS = (
    ("size", "i8", 0), ("levels", "i4", 1), ("real_n", "i8", 3), ("real_mean", "f8", 3), ("real_scatter", "f8", 3),
    ("tally_n", "i8", 4), ("tally_sum", "f8", 4),
    ("vector_n", "i8", 6), ("vector_mean", "f8", 7), ("vector_scatter", "f8", 8),
    ("log_size", "f8", 0), ("log_size_without", "f8", 0), ("norm", "f8", 0), ("total_without", "f8", 0),
    ("reference_size", "i8", 0), ("reference", "f8", 2), ("table", "f4", 1),
    ("t_location", "f8", 3), ("t_scale", "f8", 3), ("t_half", "f8", 3), ("t_constant", "f8", 3),
    ("t_total", "f8", 0), ("without", "f8", 5),
    ("nb_shape", "f8", 4), ("nb_rate", "f8", 4), ("nb_zero", "f8", 4), ("nb_log_p", "f8", 4), ("nb_log_q", "f8", 4),
    ("nb_remainder", "f8", 4), ("nb_log_p_without", "f8", 4), ("nb_base", "f8", 4),
    ("uneven", "i8", 0),
    ("v_location", "f8", 7), ("v_factor", "f8", 8), ("v_half", "f8", 6), ("v_constant", "f8", 6), ("v_without", "f8", 6),
)


cdef class Tail:
    """The collapsed clusters of one shard: a Pitman-Yor(concentration, discount) mixture of total log weight
    log_weight.

    `prior` has offsets, dirichlet, normal, gamma, and widths, wishart, vector_mean, vector_spread where there are blocks
    (hpc/components/product.py). Statistics are the attributes size, levels, real_n, real_mean, real_scatter, tally_n,
    tally_sum, vector_n, vector_mean, vector_scatter: views of `capacity` slots (a multiple of 16, doubled when
    full), to be read only between sweeps and changed only through `load`. n_slots: one more than the highest slot ever
    used. A Tail is changed by `sweep`; it must not be used by two threads at once.
    """

    cdef tail_t c
    cdef object buffer, starts, offsets_array, dirichlet_array, normal_array, gamma_array, plain
    cdef object widths_array, wishart_array, vector_mean_array, vector_spread_array
    cdef int64_t items[9]
    cdef int32_t[::1] by_power
    cdef const float[::1] prior_table
    cdef double[::1] prior_sums, count_scores_kept
    cdef int32_t[::1] missing
    cdef int64_t[::1] power_ends

    def __init__(self, prior, double concentration, double discount, double log_weight, capacity=16):
        offsets = np.ascontiguousarray(prior.offsets, dtype=np.int64)
        dirichlet = np.array(prior.dirichlet, dtype=np.float64)
        self.normal_array = np.ascontiguousarray(prior.normal, dtype=np.float64)
        self.gamma_array = np.ascontiguousarray(prior.gamma, dtype=np.float64)
        self.items[0], self.items[1], self.items[2] = 1, len(dirichlet), len(offsets) - 1
        self.items[3], self.items[4] = len(self.normal_array), len(self.gamma_array)
        padded = (self.items[3] + 7) // 8 * 8
        self.items[5] = WITHOUT_FIELDS * padded
        self._hold_blocks(prior)
        if len(offsets) < 1 or offsets[len(offsets) - 1] != len(dirichlet):
            raise ValueError(f"prior.dirichlet has {len(dirichlet)} level rows, which is not where prior.offsets end")
        if not (0 <= discount < 1 and concentration > -1e308):
            raise ValueError(f"concentration {concentration} and discount {discount}: 0 <= discount < 1 is needed")
        if self.items[2]:
            self._sum_levels(offsets, dirichlet)
        if self.items[3] and not (np.isfinite(self.normal_array).all() and (self.normal_array[:, 1:] > 0).all()):
            raise ValueError("prior.normal: kappa, nu and variance must be positive and finite")
        if self.items[4] and not (np.isfinite(self.gamma_array).all() and (self.gamma_array > 0).all()):
            raise ValueError("prior.gamma: shape and rate must be positive and finite")
        self.plain = _aligned_bytes(24 * padded)
        plain = self.plain.view(np.float64).reshape(3, padded)
        plain[1] = 1.0
        plain[2].view(np.int64)[:self.items[3]] = -1
        plain[0, :self.items[3]] = self.normal_array[:, 0] if self.items[3] else 0.0
        plain[1, :self.items[3]] = self.normal_array[:, 2] * self.normal_array[:, 3] if self.items[3] else 0.0
        self._sort_by_nu(self.normal_array[:, 2] if self.items[3] else np.zeros(0))
        self.offsets_array, self.dirichlet_array = offsets, dirichlet
        self.c.concentration, self.c.discount, self.c.log_weight = concentration, discount, log_weight
        self._allocate(max(16, _pad16(capacity)))
        self._refresh(0, self.c.capacity)
        self.prior_table = self._field("table")[:, 0].copy()
        self.c.prior_table = &self.prior_table[0] if self.items[1] else NULL
        self._sum_prior()
        self.count_scores_kept = np.full(self.items[4] * N_COUNTS_KEPT, np.nan)
        self.c.count_scores = &self.count_scores_kept[0] if self.items[4] else NULL

    def _hold_blocks(self, prior):
        """Take the prior of the blocks; ValueError where it is none."""
        widths = self.widths_array = _widths_of(prior)
        n = int(widths.sum())
        blank = np.zeros((0, 2)), np.zeros(0), np.zeros(0)
        given = (prior.wishart[:, :2], prior.vector_mean, prior.vector_spread) if n else blank
        arrays = [np.ascontiguousarray(a, dtype=np.float64) for a in given]
        if [a.shape for a in arrays] != [(len(widths), 2), (n,), (n,)]:
            raise ValueError("prior.wishart, vector_mean and vector_spread do not fit prior.widths")
        wishart, mean, spread = arrays
        if not (np.isfinite(wishart).all() and (wishart[:, 0] > 0).all() and (wishart[:, 1] > widths - 1).all()
                and np.isfinite(mean).all() and np.isfinite(spread).all() and (spread > 0).all()):
            raise ValueError("prior of a block: kappa and vector_spread must be positive, nu above its columns less one")
        self.wishart_array, self.vector_mean_array, self.vector_spread_array = arrays
        self.items[6], self.items[7], self.items[8] = len(widths), n, int(pairs_of(widths).sum())

    @staticmethod
    def _sum_levels(offsets, dirichlet):
        """Put each column's total pseudo-count into its missing row, which is where tail.h looks for it."""
        missing = offsets[1:] - 1
        dirichlet[missing] = 0.0
        observed = np.ones(len(dirichlet), dtype=bool)
        observed[missing] = False
        if not (dirichlet[observed] >= 1e-30).all() or not np.isfinite(dirichlet).all():
            raise ValueError("prior.dirichlet: pseudo-counts must be finite and at least 1e-30")
        dirichlet[missing] = np.add.reduceat(dirichlet, offsets[:len(offsets) - 1])
        if not (dirichlet[missing] > 0).all():
            raise ValueError("prior.dirichlet: a categorical column has no level")

    cdef int _sum_prior(self) except -1:
        """Add up the prior's column of the table, as scores.h would, for rows without missing cells, where that can be
        done once for all."""
        cdef int64_t c, C = self.items[2], l
        cdef float total = 0
        self.c.prior_sums, self.c.missing = NULL, NULL
        if C == 0:
            return 0
        missing = _aligned_bytes(4 * _pad16(C)).view(np.int32)
        missing[:C] = self.offsets_array[1:] - 1
        missing[C:] = -1
        self.missing = missing
        self.c.missing = &self.missing[0]
        self.prior_sums = np.zeros((C + ADD_BLOCK - 1) // ADD_BLOCK)
        for c in range(C):
            for l in range(self.c.offsets[c] + 1, self.missing[c]):
                if self.prior_table[l] != self.prior_table[l - 1]:
                    return 0
            total = (total if c % ADD_BLOCK else 0) + self.prior_table[self.c.offsets[c]]
            self.prior_sums[c // ADD_BLOCK] = total
        self.c.prior_sums = &self.prior_sums[0]
        return 0

    cdef int _sort_by_nu(self, nu) except -1:
        """Say which way the Student t densities of the real columns go (scores.h)."""
        powers = 2.0 ** np.arange(POWERS - 1, -1, -1)
        self.c.one_nu, self.c.by_power = len(np.unique(nu)) == 1, NULL
        if len(nu) and np.isin(nu, powers).all():
            self.by_power = np.argsort(-nu, kind="stable").astype(np.int32)
            self.power_ends = (nu[:, None] >= powers).sum(axis=0)
            self.c.by_power, self.c.power_ends = &self.by_power[0], &self.power_ends[0]
        return 0

    cdef int _allocate(self, int64_t capacity) except -1:
        cdef int64_t total = 0
        starts = {}
        for name, dtype, kind in _FIELDS:
            starts[name] = total
            total += capacity * self.items[<int>kind] * (4 if dtype[1] == "4" else 8)
        self.buffer, self.starts = _aligned_bytes(total), starts
        self.c.capacity = capacity
        self.c.n_levels, self.c.n_codes = self.items[1], self.items[2]
        self.c.n_reals, self.c.n_tallies = self.items[3], self.items[4]
        cdef const int64_t[::1] offsets = self.offsets_array
        cdef const double[::1] dirichlet = self.dirichlet_array
        cdef const double[:, ::1] normal = self.normal_array.reshape(self.items[3], 4)
        cdef const double[:, ::1] gamma = self.gamma_array.reshape(self.items[4], 2)
        self.c.offsets = &offsets[0]
        self.c.dirichlet = &dirichlet[0] if dirichlet.shape[0] else NULL
        self.c.normal = &normal[0, 0] if normal.shape[0] else NULL
        self.c.gamma = &gamma[0, 0] if gamma.shape[0] else NULL
        cdef char *at = <char *>_address(self.buffer)
        self.c.size = <int64_t *>(at + <int64_t>starts["size"])
        self.c.levels = <int32_t *>(at + <int64_t>starts["levels"])
        self.c.real_n = <int64_t *>(at + <int64_t>starts["real_n"])
        self.c.real_mean = <double *>(at + <int64_t>starts["real_mean"])
        self.c.real_scatter = <double *>(at + <int64_t>starts["real_scatter"])
        self.c.tally_n = <int64_t *>(at + <int64_t>starts["tally_n"])
        self.c.tally_sum = <double *>(at + <int64_t>starts["tally_sum"])
        self.c.log_size = <double *>(at + <int64_t>starts["log_size"])
        self.c.log_size_without = <double *>(at + <int64_t>starts["log_size_without"])
        self.c.norm = <double *>(at + <int64_t>starts["norm"])
        self.c.total_without = <double *>(at + <int64_t>starts["total_without"])
        self.c.reference_size = <int64_t *>(at + <int64_t>starts["reference_size"])
        self.c.reference = <double *>(at + <int64_t>starts["reference"])
        self.c.table = <float *>(at + <int64_t>starts["table"])
        self.c.t_location = <double *>(at + <int64_t>starts["t_location"])
        self.c.t_scale = <double *>(at + <int64_t>starts["t_scale"])
        self.c.t_half = <double *>(at + <int64_t>starts["t_half"])
        self.c.t_constant = <double *>(at + <int64_t>starts["t_constant"])
        self.c.t_total = <double *>(at + <int64_t>starts["t_total"])
        self.c.without = <double *>(at + <int64_t>starts["without"])
        self.c.plain = <double *>_address(self.plain)
        self.c.nb_shape = <double *>(at + <int64_t>starts["nb_shape"])
        self.c.nb_rate = <double *>(at + <int64_t>starts["nb_rate"])
        self.c.nb_zero = <double *>(at + <int64_t>starts["nb_zero"])
        self.c.nb_log_p = <double *>(at + <int64_t>starts["nb_log_p"])
        self.c.nb_log_q = <double *>(at + <int64_t>starts["nb_log_q"])
        self.c.nb_remainder = <double *>(at + <int64_t>starts["nb_remainder"])
        self.c.nb_base = <double *>(at + <int64_t>starts["nb_base"])
        self.c.uneven = <int64_t *>(at + <int64_t>starts["uneven"])
        self.c.nb_log_p_without = <double *>(at + <int64_t>starts["nb_log_p_without"])
        self._point_at_blocks(at)
        return 0

    cdef int _point_at_blocks(self, char *at) except -1:
        cdef const int64_t[::1] widths = self.widths_array
        cdef const double[:, ::1] wishart = self.wishart_array
        cdef const double[::1] mean = self.vector_mean_array, spread = self.vector_spread_array
        starts = self.starts
        self.c.n_blocks = self.items[6]
        if self.c.n_blocks:
            self.c.widths, self.c.wishart = &widths[0], &wishart[0, 0]
            self.c.v_mean, self.c.v_spread = &mean[0], &spread[0]
        self.c.vector_n = <int64_t *>(at + <int64_t>starts["vector_n"])
        self.c.vector_mean = <double *>(at + <int64_t>starts["vector_mean"])
        self.c.vector_scatter = <double *>(at + <int64_t>starts["vector_scatter"])
        self.c.v_location = <double *>(at + <int64_t>starts["v_location"])
        self.c.v_factor = <double *>(at + <int64_t>starts["v_factor"])
        self.c.v_half = <double *>(at + <int64_t>starts["v_half"])
        self.c.v_constant = <double *>(at + <int64_t>starts["v_constant"])
        self.c.v_without = <double *>(at + <int64_t>starts["v_without"])
        return 0

    cdef int _refresh(self, int64_t start, int64_t stop) except -1:
        cdef _Work work = _Work(0, 16, self.c.n_levels, self.c.n_codes, self.c.n_reals, self.c.n_tallies, self.c.n_blocks)
        with nogil:
            kernel_refresh(&self.c, &work.c, start, stop)
        return 0

    def _field(self, name):
        dtype, kind = next((d, k) for n, d, k in _FIELDS if n == name)
        cdef int64_t start = self.starts[name], n_rows = self.items[<int>kind], capacity = self.c.capacity
        flat = self.buffer[start:start + n_rows * capacity * (4 if dtype[1] == "4" else 8)].view(dtype)
        if kind == 5:
            return flat.reshape(capacity, n_rows).T
        return flat if kind == 0 else flat.reshape(n_rows, capacity)

    cdef int _grow(self) except -1:
        """Twice the slots; what is there stays where it is, and derived values keep their bits."""
        cdef int64_t old = self.c.capacity, n_slots = self.c.n_slots
        before = {name: self._field(name) for name, _, _ in _FIELDS}
        self._allocate(2 * old)
        for name, array in before.items():
            self._field(name)[..., :old] = array
        self._refresh(old, 2 * old)
        self.c.n_slots = n_slots
        return 0

    def load(self, statistics):
        """Make the clusters of `statistics` slots 0..K-1 and every other slot vacant. Clusters without rows are
        vacant."""
        cdef int64_t n = len(statistics.size)
        self._allocate(max(self.c.capacity, _pad16(n)))
        self.c.n_uneven = 0
        cdef int64_t[::1] size = self._field("size")
        for name, _, _ in _FIELDS[:10 if self.c.n_blocks else 7]:
            given = getattr(statistics, name)
            if given.size:
                self._field(name)[..., :n] = given
        self.c.n_slots = n
        while self.c.n_slots > 0 and size[self.c.n_slots - 1] == 0:
            self.c.n_slots -= 1
        self._refresh(0, self.c.capacity)

    @property
    def count_scores(self):
        """float64 (Q, 1024): what is known so far of layout.h's count_scores, a copy; NaN elsewhere."""
        return np.array(self.count_scores_kept).reshape(self.items[4], N_COUNTS_KEPT)

    @property
    def concentration(self):
        return self.c.concentration

    @property
    def discount(self):
        return self.c.discount

    @property
    def log_weight(self):
        return self.c.log_weight

    @property
    def capacity(self):
        return self.c.capacity

    @property
    def n_slots(self):
        return self.c.n_slots

    @property
    def n_rows(self):
        """Rows seated in the tail."""
        return self.c.n_rows

    @property
    def n_occupied(self):
        """Slots that hold rows."""
        return self.c.n_occupied

    @property
    def size(self):
        return self._field("size")

    @property
    def levels(self):
        return self._field("levels")

    @property
    def real_n(self):
        return self._field("real_n")

    @property
    def real_mean(self):
        return self._field("real_mean")

    @property
    def real_scatter(self):
        return self._field("real_scatter")

    @property
    def tally_n(self):
        return self._field("tally_n")

    @property
    def tally_sum(self):
        return self._field("tally_sum")

    @property
    def vector_n(self):
        return self._field("vector_n")

    @property
    def vector_mean(self):
        return self._field("vector_mean")

    @property
    def vector_scatter(self):
        return self._field("vector_scatter")


cdef int _match(_Rows rows, Tail tail) except -1:
    if rows.c.n_codes != tail.c.n_codes or rows.c.n_reals != tail.c.n_reals or rows.c.n_tallies != tail.c.n_tallies \
            or rows.c.offsets[rows.c.n_codes] != tail.c.n_levels \
            or not np.array_equal(rows.widths, tail.widths_array):
        raise ValueError("rows and tail have different columns")
    return 0


cdef int _raise(outcome_t done, int64_t row0) except -1:
    row = row0 + done.row
    if done.status == STATUS_NOT_A_NUMBER:
        raise FloatingPointError(f"row {row}: its score under some cluster is not a number; look for infinite cells and for "
                         "parameters that are not finite")
    if done.status == STATUS_NO_CANDIDATE:
        raise FloatingPointError(f"row {row}: it has probability 0 under every cluster it may enter")
    if done.status == STATUS_BAD_LABEL:
        raise ValueError(f"row {row}: its label is not negative, no instantiated cluster, and no occupied tail slot")
    return 0


# ---- kernels
# -----------------------------------------------------------------------------------------------------------

_NOTHING = Instantiated()


cdef int _check_steps(const int32_t[::1] steps, int64_t n_steps, int64_t n, name) except -1:
    """Raise ValueError unless there are n_steps steps, each of a row below n or -1."""
    cdef int64_t s
    if steps.shape[0] != n_steps:
        raise ValueError("remove and assign have different numbers of steps")
    for s in range(n_steps):
        if not -1 <= steps[s] < n:
            raise ValueError(f"{name}[{s}] = {steps[s]} is not one of the {n} rows, nor -1")
    return 0


def sweep(rows, int32_t[::1] z, row0, seed, cycle, sweep, chain, Instantiated instantiated, Tail tail, prior,
          priority_free=False, remove=None, assign=None):
    """One Gibbs step for every row of a shard in order; the number of rows that changed cluster.

    z: int32 (n,), labels as in the module's docstring, changed in place; row0: global id of the first row. instantiated
    or tail may be None. priority_free: every row may enter every instantiated cluster and no row is an anchor, as on
    the collapsed shard. A row alone in its tail slot that opens a new cluster counts as unmoved. Raises, naming
    the row, FloatingPointError when a score is NaN or no candidate has a positive probability, and ValueError when a label
    is out of range; rows before it have been moved then.

    With remove and assign, int32 (steps,) local row numbers or -1 for nobody, the steps of these lists are made
    instead: row remove[s] is taken out, label -2, and row assign[s] seated by the conditional of a Gibbs step; the same
    row twice is a Gibbs step of it. An anchor is never taken out, and its whole step is skipped; a row that is idle
    already needs no taking out; one that is seated already is not seated again. Where there is neither a tail nor an
    instantiated cluster, the row to be seated stays idle. Rows seated count as moved, rows taken out do not. For
    example remove = [-1, 3, 5], assign = [4, 3, 6] seats row 4, makes a Gibbs step of row 3, and exchanges 5 for 6.
    """
    cdef Instantiated held = _NOTHING if instantiated is None else instantiated
    cdef _Rows r = _Rows(rows, prior.offsets)
    cdef uint64_t u_row0 = row0, u_seed = seed, u_cycle = cycle, u_sweep = sweep, u_chain = chain
    cdef int anchored = not priority_free
    cdef bint listed = remove is not None
    cdef const int32_t[::1] leaving, coming
    cdef int64_t moved = 0, n_steps = 0
    cdef outcome_t done
    cdef tail_t *t = NULL
    cdef _Work work
    if z.shape[0] != r.c.n:
        raise ValueError(f"{z.shape[0]} labels for {r.c.n} rows")
    if listed != (assign is not None):
        raise ValueError("remove and assign go together")
    if listed:
        leaving, coming = remove, assign
        n_steps = coming.shape[0]
        _check_steps(leaving, n_steps, r.c.n, "remove")
        _check_steps(coming, n_steps, r.c.n, "assign")
    if held.n and (held.n_levels != r.c.offsets[r.c.n_codes] or held.n_reals != r.c.n_reals
                   or held.n_tallies != r.c.n_tallies or held.n_blocks != r.c.n_blocks or held.n_vector != r.c.n_vector
                   or held.n_pairs != pairs_of(np.asarray(r.widths)).sum()):
        raise ValueError("rows and instantiated clusters have different columns")
    if tail is not None:
        _match(r, tail)
        t = &tail.c
    if r.c.n == 0 or (listed and n_steps == 0):
        return 0
    done.row = 0
    while True:
        work = _Work(held.base, tail.c.capacity if tail is not None else 0, r.c.offsets[r.c.n_codes], r.c.n_codes,
                     r.c.n_reals, r.c.n_tallies, r.c.n_blocks)
        with nogil:
            if listed:
                done = kernel_visit(&r.c, &z[0], &leaving[0], &coming[0], done.row, n_steps, &held.c, t, &work.c,
                                    u_row0, u_seed, u_cycle, u_sweep, u_chain, anchored)
            else:
                done = kernel_sweep(&r.c, &z[0], done.row, &held.c, t, &work.c, u_row0, u_seed, u_cycle, u_sweep,
                                    u_chain, anchored)
        moved += done.moved
        if done.status == STATUS_GROW:
            tail._grow()
            continue
        if done.status != STATUS_DONE:
            _raise(done, u_row0)
        return moved


cdef object _predictive(rows, Tail tail, bint by_cluster):
    cdef _Rows r = _Rows(rows, tail.offsets_array)
    _match(r, tail)
    if tail.c.vacant >= tail.c.capacity:
        tail._grow()
    cdef _Work work = _Work(0, tail.c.capacity, tail.c.n_levels, r.c.n_codes, r.c.n_reals, r.c.n_tallies, r.c.n_blocks)
    out = np.empty((r.c.n, tail.c.n_slots + 1 if by_cluster else 1))
    if r.c.n == 0:
        return out
    cdef double[:, ::1] view = out
    cdef double *terms = &view[0, 0] if by_cluster else NULL
    cdef double *totals = NULL if by_cluster else &view[0, 0]
    cdef outcome_t done
    with nogil:
        done = kernel_predictive(&r.c, &tail.c, &work.c, terms, totals)
    _raise(done, 0)
    return out


def log_predictive(rows, Tail tail):
    """log of the predictive density of each row given the tail's clusters, float64 (n,); rows are in no cluster.

    log sum over occupied slots and the new cluster of w (size - d) / (M + c) f(x | slot) and w (c + J d) / (M + c)
    f_H(x), w = exp(log_weight); docs/math.md 2.6 when the tail holds every cluster. Counts include their 1 /
    x!.
    """
    return _predictive(rows, tail, False)[:, 0]


def log_predictive_clusters(rows, Tail tail):
    """The terms of `log_predictive`, float64 (n, n_slots + 1); the last column is the new cluster, vacant slots
    -inf."""
    return _predictive(rows, tail, True)


def priorities(row0, int64_t n, seed, cycle, chain):
    """uint64 (n,): the priorities of rows row0 .. row0 + n - 1 in a cycle."""
    cdef philox_stream stream = philox_open(seed, PURPOSE_PRIORITY, 0, cycle, chain)
    cdef uint64_t start = row0
    cdef int64_t i
    out = np.empty(n, dtype=np.uint64)
    cdef uint64_t[::1] view = out
    for i in range(n):
        view[i] = philox_word(&stream, start + i)
    return out


def anchors(const int32_t[::1] z, row0, seed, cycle, chain, owned, int64_t n_clusters):
    """uint64 (n_clusters,): the least priority among the rows of each cluster here, 2^64 - 1 where there is none.

    z: int32 (n,), clusters 0..n_clusters-1, negative labels are skipped; owned: bool (n_clusters,), clusters to skip
    (their anchor lies on other shards). The caller takes the minimum over shards.
    """
    cdef philox_stream stream = philox_open(seed, PURPOSE_PRIORITY, 0, cycle, chain)
    cdef uint64_t start = row0, word
    cdef int64_t i, bad = -1
    cdef int32_t k
    out = np.full(n_clusters, UNANCHORED, dtype=np.uint64)
    cdef uint64_t[::1] least = out
    cdef const uint8_t[::1] skip = np.ascontiguousarray(owned, dtype=bool).view(np.uint8)
    if skip.shape[0] != n_clusters:
        raise ValueError(f"owned has {skip.shape[0]} entries for {n_clusters} clusters")
    with nogil:
        for i in range(z.shape[0]):
            k = z[i]
            if k >= n_clusters:
                bad = i
                break
            if k >= 0 and not skip[k]:
                word = philox_word(&stream, start + i)
                if word < least[k]:
                    least[k] = word
    if bad >= 0:
        raise ValueError(f"row {start + bad}: label {z[bad]} is not below the number of clusters, {n_clusters}")
    return out


def accumulate(rows, const int32_t[::1] z, int64_t n_clusters, offsets, relabel=None):
    """Statistics of the clusters 0..n_clusters-1 among these rows.

    z: int32 (n,); relabel: int32, maps a label to a cluster or to -1, skip; without it labels are clusters. Negative
    labels are skipped. Returns size int64 (K,), levels int32 (L, K), real_n int64 (R, K), real_mean and real_scatter
    float64 (R, K), tally_n int64 (Q, K), tally_sum float64 (Q, K), and of the blocks vector_n int64 (B, K), vector_mean
    float64 (their columns, K), vector_scatter float64 (their pairs of columns, K). Means first, then squares about them,
    each summed in row order: the result is a function of rows and labels only.
    """
    cdef _Rows r = _Rows(rows, offsets)
    cdef rows_t *p = &r.c
    cdef int64_t n = p.n, C8 = p.n_codes8, C16 = p.n_codes16, R = p.n_reals, Q = p.n_tallies, i, c, k, bad = -1
    cdef double x
    if z.shape[0] != n:
        raise ValueError(f"{z.shape[0]} labels for {n} rows")
    cdef bint mapped = relabel is not None
    cdef const int32_t[::1] target = relabel if mapped else np.zeros(0, dtype=np.int32)
    cdef int64_t n_labels = target.shape[0] if mapped else n_clusters
    out = (
        np.zeros(n_clusters, np.int64), np.zeros((p.offsets[p.n_codes], n_clusters), np.int32),
        np.zeros((R, n_clusters), np.int64), np.zeros((R, n_clusters)), np.zeros((R, n_clusters)),
        np.zeros((Q, n_clusters), np.int64), np.zeros((Q, n_clusters)),
        np.zeros((p.n_blocks, n_clusters), np.int64), np.zeros((p.n_vector, n_clusters)),
        np.zeros((pairs_of(np.asarray(r.widths)).sum(), n_clusters)),
    )
    cdef int64_t[::1] size = out[0]
    cdef int32_t[:, ::1] levels = out[1]
    cdef int64_t[:, ::1] tally_n = out[5]
    cdef double[:, ::1] tally_sum = out[6]
    clusters = np.full(n, -1, dtype=np.int32)
    cdef int32_t[::1] cluster = clusters
    with nogil:
        for i in range(n):
            k = z[i]
            if k < 0:
                continue
            if k >= n_labels or (mapped and target[k] >= n_clusters):
                bad = i
                break
            if mapped:
                k = target[k]
                if k < 0:
                    continue
            cluster[i] = <int32_t>k
            size[k] += 1
            for c in range(C8):
                levels[p.offsets[c] + p.codes8[i * C8 + c], k] += 1
            for c in range(C16):
                levels[p.offsets[C8 + c] + p.codes16[i * C16 + c], k] += 1
            for c in range(Q):
                x = p.tallies[i * Q + c]
                if x == x:
                    tally_n[c, k] += 1
                    tally_sum[c, k] += x
    if bad >= 0:
        raise ValueError(f"row {bad} of the slice: label {z[bad]} maps to no cluster below {n_clusters}")
    if R and n and n_clusters:
        _moments(r, cluster, n_clusters, out[2], out[3], out[4])
    if p.n_blocks and n and n_clusters:
        _accumulate_blocks(r, cluster, n_clusters, out[7], out[8], out[9])
    return out


cdef int _moments(_Rows r, const int32_t[::1] cluster, int64_t n_clusters, real_n, real_mean, real_scatter) except -1:
    """Fill the last three, (R, K), with numbers, means and sums of squares about the means of the real cells."""
    cdef int64_t R = r.c.n_reals, pad = (R + 7) & ~<int64_t>7, n_bytes = 8 * pad * n_clusters
    buffers = _aligned_bytes(n_bytes), _aligned_bytes(n_bytes), _aligned_bytes(n_bytes)
    cdef void *count = _address(buffers[0])
    cdef void *mean = _address(buffers[1])
    cdef void *scatter = _address(buffers[2])
    shape = n_clusters, pad
    n, means, scatters = (b.view(t).reshape(shape) for b, t in zip(buffers, ("i8", "f8", "f8")))
    with nogil:
        kernel_add_cells(&r.c, &cluster[0], pad, <double *>mean, <int64_t *>count)
    means /= np.maximum(n, 1)
    with nogil:
        kernel_add_squares(&r.c, &cluster[0], pad, <const double *>mean, <double *>scatter)
    for out, found in ((real_n, n), (real_mean, means), (real_scatter, scatters)):
        out[...] = found[:, :R].T
    return 0


cdef int _accumulate_blocks(_Rows r, const int32_t[::1] cluster, int64_t n_clusters, int64_t[:, ::1] n,
                            double[:, ::1] mean, double[:, ::1] scatter) except -1:
    """The part of blocks of columns in `accumulate`.

    One cluster's numbers lie side by side while rows are added, [cluster][entry].
    """
    cdef int64_t n_vector = r.c.n_vector, n_pairs = scatter.shape[0], i, b, d, e, k, width, column, pair
    total_array, square_array = np.zeros((n_clusters, n_vector)), np.zeros((n_clusters, n_pairs))
    cdef double[:, ::1] total = total_array, square = square_array
    cdef const double *x
    cdef double *row
    cdef double off[VECTOR_MOST]
    cdef bint again
    cdef double a
    with nogil:
        for again in range(2):
            for i in range(r.c.n):
                k = cluster[i]
                if k < 0:
                    continue
                x = r.c.vectors + i * n_vector
                column = pair = 0
                for b in range(r.c.n_blocks):
                    width = r.c.widths[b]
                    a = 0.0
                    for d in range(width):
                        if x[column + d] != x[column + d]:
                            a = 1.0
                    if a == 0.0 and not again:
                        n[b, k] += 1
                        for d in range(width):
                            total[k, column + d] += x[column + d]
                    elif a == 0.0:
                        row = &square[k, pair]
                        for d in range(width):
                            off[d] = x[column + d] - total[k, column + d]
                        for d in range(width):
                            a = off[d]
                            for e in range(d + 1):
                                row[e] += a * off[e]
                            row += d + 1
                    column += width
                    pair += width * (width + 1) // 2
            if not again:
                column = 0
                for b in range(r.c.n_blocks):
                    for d in range(r.c.widths[b]):
                        for k in range(n_clusters):
                            if n[b, k]:
                                total[k, column] /= n[b, k]
                        column += 1
    np.asarray(mean)[:] = total_array.T
    np.asarray(scatter)[:] = square_array.T
    return 0
