"""The collapsed clusters of a shard: their statistics, derived values, and scratch for the loops."""

import numpy as np

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from posix.stdlib cimport posix_memalign

from mpibayes.kernels.common.machine cimport address, aligned, room
from mpibayes.kernels.mixture.layout cimport (
    ADD_BLOCK, BLOCK, OWN_FIELDS, POWERS, SPELL_PARTS, VECTOR_MOST, WITHOUT_FIELDS, tail_t, work_t,
)
from mpibayes.kernels.mixture.rows cimport pad16

from mpibayes.kernels.common.machine import ISA_NUMBER
from mpibayes.kernels.mixture.rows import widths_of


cdef extern from "mixture.h" nogil:
    int kernel_isa
    enum:
        N_COUNTS_KEPT
    void kernel_refresh(tail_t *, work_t *, int64_t, int64_t, const uint8_t *)


kernel_isa = ISA_NUMBER
BAD_BLOCK = "prior of a block: kappa and vector_spread must be positive, nu above its columns less one"


def contexts_of(prior, int64_t n_columns):
    """Contexts of each categorical column of a prior, int64 (C,); one by default."""
    given = getattr(prior, "contexts", None)
    if given is None:
        return np.ones(n_columns, np.int64)
    found = np.ascontiguousarray(given, dtype=np.int64)
    cdef const int64_t[::1] each = found
    cdef int64_t c, least = 1
    for c in range(each.shape[0]):
        least = min(least, each[c])
    if each.shape[0] != n_columns or least < 1:
        raise ValueError("prior.contexts: a column has one context or more")
    return found


def groups_of(offsets, contexts):
    """First level row of every context, and the end of the last one, int64 (contexts of all columns + 1,)."""
    cdef const int64_t[::1] each = contexts
    cdef int64_t c, most = 1
    for c in range(each.shape[0]):
        most = max(most, each[c])
    if most == 1:
        return offsets
    rows, over = np.divmod(np.diff(offsets), contexts)
    if over.any():
        raise ValueError("prior.contexts and prior.offsets do not fit together")
    return np.concatenate([[0], np.cumsum(np.repeat(rows, contexts))]).astype(np.int64)


def _check_numbers(numbers, int64_t first, str problem):
    """Raise ValueError unless all numbers (C, F) are finite, and positive from the first-th of a column on."""
    if not len(numbers):
        return
    cdef const double[:, ::1] each = numbers
    cdef int64_t c, f
    for c in range(each.shape[0]):
        for f in range(each.shape[1]):
            if not -INFINITY < each[c, f] < INFINITY or (f >= first and not each[c, f] > 0):
                raise ValueError(problem)


cdef class Work:
    def __cinit__(self, int64_t base, int64_t capacity, int64_t n_levels, int64_t n_codes, int64_t n_reals,
                  int64_t n_tallies, int64_t n_blocks=0):
        cdef int64_t lanes = BLOCK * (base + capacity)
        cdef int64_t n_logs = pad16(max(n_levels + n_codes, 3 * n_codes) + 16), n_own = pad16(max(n_reals, n_tallies))
        cdef int64_t reals = pad16(n_reals), tallies = pad16(n_tallies), codes = pad16(n_codes) + 16
        cdef int64_t doubles = lanes + lanes // 2 + pad16(lanes // 16) + BLOCK + n_logs + (2 + 3 * BLOCK) * reals \
            + (3 + 2 * BLOCK) * tallies + OWN_FIELDS * n_own
        # two locations and two packed triangles of the widest possible block of columns
        cdef int64_t n_scratch = 2 * VECTOR_MOST + VECTOR_MOST * (VECTOR_MOST + 1) if n_blocks else 0
        doubles += n_scratch
        cdef int64_t words = lanes + BLOCK * codes + reals + tallies + BLOCK * pad16(n_blocks)
        if posix_memalign(&self.memory, 64, 8 * doubles + 4 * words + 64) != 0:
            raise MemoryError(f"no memory for the scores of {base + capacity} clusters")
        self.c.scores = <double *>self.memory
        self.c.part = self.c.scores + lanes
        self.c.sums = self.c.part + lanes // 2
        self.c.first = self.c.sums + pad16(lanes // 16)
        self.c.logs = self.c.first + BLOCK
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
# items of a slot stand together, or blocks of columns, their columns, their pairs of columns, or parts of survival
# columns; the first thirteen are the statistics, in the order of the Statistics class and of `accumulate`; the last one,
# which is the largest, is derived before it is read, and starts with any values
_FIELDS = (
    ("size", "i8", 0), ("levels", "i4", 1), ("real_n", "i8", 3), ("real_mean", "f8", 3), ("real_scatter", "f8", 3),
    ("tally_n", "i8", 4), ("tally_sum", "f8", 4),
    ("vector_n", "i8", 6), ("vector_mean", "f8", 7), ("vector_scatter", "f8", 8),
    ("spell_events", "i8", 9), ("spell_ended", "i8", 9), ("spell_time", "f8", 9),
    ("log_size", "f8", 0), ("log_size_without", "f8", 0), ("norm", "f8", 0), ("total_without", "f8", 0),
    ("reference_size", "i8", 0), ("reference", "f8", 2),
    ("t_location", "f8", 3), ("t_scale", "f8", 3), ("t_half", "f8", 3), ("t_constant", "f8", 3),
    ("t_total", "f8", 0), ("without", "f8", 5),
    ("nb_shape", "f8", 4), ("nb_rate", "f8", 4), ("nb_zero", "f8", 4), ("nb_log_p", "f8", 4), ("nb_log_q", "f8", 4),
    ("nb_remainder", "f8", 4), ("nb_log_p_without", "f8", 4), ("nb_base", "f8", 4),
    ("uneven", "i8", 0),
    ("v_location", "f8", 7), ("v_factor", "f8", 8), ("v_half", "f8", 6), ("v_constant", "f8", 6), ("v_without", "f8", 6),
    ("spell_exposure", "f8", 9), ("spell_shape", "f8", 9), ("spell_rate", "f8", 9), ("spell_log_shape", "f8", 9),
    ("spell_log_rate", "f8", 9), ("spell_before", "f8", 9), ("table", "f4", 1),
)
_STATISTICS = tuple(name for name, _, _ in _FIELDS[:13])
_DTYPES = tuple(np.dtype(dtype) for _, dtype, _ in _FIELDS)
_PLACE = {name: i for i, (name, _, _) in enumerate(_FIELDS)}
cdef int64_t _item[N_FIELDS]
cdef int64_t _bytes[N_FIELDS]
for _i in range(N_FIELDS):
    _item[_i], _bytes[_i] = _FIELDS[_i][2], _DTYPES[_i].itemsize


cdef class Tail:
    """The collapsed clusters of one shard: a Pitman-Yor(concentration, discount) mixture of total log weight
    log_weight.

    `prior` has offsets, dirichlet, normal, gamma; with blocks widths, wishart, vector_mean, vector_spread, and `given`
    if the first column of any is given; with survival columns spell_gamma and spell_width (hpc/components/product.py);
    with linked columns `met`, 0 for level rows that no row of the table has (`Categorical.met`), or None.
    Statistics are the attributes size, levels, real_n, real_mean, real_scatter, tally_n, tally_sum, vector_n,
    vector_mean, vector_scatter, spell_events, spell_ended, spell_time: views of `capacity` slots (a multiple of 16,
    doubled when full), to be read only between sweeps and changed only through `load`. n_slots: one more than the
    highest slot ever used. statistics: loaded at once, of fewer clusters than `capacity`. A Tail is changed by `sweep`;
    it must not be used by two threads at once.
    """

    def __init__(self, prior, double concentration, double discount, double log_weight, capacity=16, statistics=None):
        offsets = np.ascontiguousarray(prior.offsets, dtype=np.int64)
        dirichlet = np.array(prior.dirichlet, dtype=np.float64)
        self.normal_array = np.ascontiguousarray(prior.normal, dtype=np.float64)
        self.gamma_array = np.ascontiguousarray(prior.gamma, dtype=np.float64)
        self.items[0], self.items[1], self.items[2] = 1, len(dirichlet), len(offsets) - 1
        self.items[3], self.items[4] = len(self.normal_array), len(self.gamma_array)
        padded = (self.items[3] + 7) // 8 * 8
        self.items[5] = WITHOUT_FIELDS * padded
        self._hold_blocks(prior)
        self._hold_spells(prior)
        if self.normal_array.size != 4 * self.items[3] or self.gamma_array.size != 2 * self.items[4]:
            raise ValueError("prior.normal: a column has four numbers; prior.gamma: it has two")
        if len(offsets) < 1 or offsets[len(offsets) - 1] != len(dirichlet):
            raise ValueError(f"prior.dirichlet has {len(dirichlet)} level rows, which is not where prior.offsets end")
        if not (0 <= discount < 1 and concentration > -1e308):
            raise ValueError(f"concentration {concentration} and discount {discount}: 0 <= discount < 1 is needed")
        self.contexts_array = contexts_of(prior, len(offsets) - 1)
        if self.items[2]:
            self._sum_levels(groups_of(offsets, self.contexts_array), dirichlet)
        _check_numbers(self.normal_array, 1, "prior.normal: kappa, nu and variance must be positive and finite")
        _check_numbers(self.gamma_array, 0, "prior.gamma: shape and rate must be positive and finite")
        self._hold_plain(padded)
        self._sort_by_nu(self.normal_array)
        self.offsets_array, self.dirichlet_array = offsets, dirichlet
        self.c.concentration, self.c.discount, self.c.log_weight = concentration, discount, log_weight
        self._allocate(max(16, pad16(capacity)))
        vacant = 0 if statistics is None else len(statistics.size)
        if vacant >= self.c.capacity:
            raise ValueError(f"a tail of {self.c.capacity} slots has none left beside {vacant} clusters")
        if statistics is None:
            self._refresh(0, self.c.capacity)
        else:
            self._load(statistics, getattr(prior, "met", None), True)
        self._copy_prior(vacant, getattr(prior, "met", None) if statistics is not None else None)
        self.c.prior_table = &self.prior_table[0] if self.items[1] else NULL
        self._sum_prior()
        self.count_scores_kept = np.full(self.items[4] * N_COUNTS_KEPT, np.nan) if self.items[4] else None
        self.c.count_scores = &self.count_scores_kept[0] if self.items[4] else NULL

    cdef int _copy_prior(self, int64_t vacant, const uint8_t[::1] met) except -1:
        """Copy the table of a vacant slot, in the level rows that are met."""
        cdef int64_t l, n = self.items[1], capacity = self.c.capacity
        cdef float[::1] table = np.zeros(n, np.float32)
        cdef bint every = met is None
        for l in range(n):
            if every or met[l]:
                table[l] = self.c.table[l * capacity + vacant]
        self.prior_table = table
        return 0

    def _hold_blocks(self, prior):
        """Store the prior of the blocks; ValueError if it is invalid."""
        widths = self.widths_array = widths_of(prior)
        if not len(widths):
            self.given_array, self.wishart_array = np.zeros(0, np.int64), np.zeros((0, 2))
            self.vector_mean_array = self.vector_spread_array = np.zeros(0)
            self.items[6] = self.items[7] = self.items[8] = 0
            return
        arrays = prior.wishart[:, :2], prior.vector_mean, prior.vector_spread
        arrays = [np.ascontiguousarray(a, dtype=np.float64) for a in arrays]
        self.wishart_array, self.vector_mean_array, self.vector_spread_array = arrays
        self.given_array = np.array(getattr(prior, "given", np.zeros(len(widths))), np.int64)
        cdef const int64_t[::1] width = widths, given = self.given_array
        cdef const double[:, ::1] wishart = arrays[0]
        cdef const double[::1] mean = arrays[1], spread = arrays[2]
        cdef int64_t b, d, n = 0, n_pairs = 0
        for b in range(width.shape[0]):
            n += width[b]
            n_pairs += width[b] * (width[b] + 1) // 2
        if wishart.shape[0] != width.shape[0] or mean.shape[0] != n or spread.shape[0] != n:
            raise ValueError("prior.wishart, vector_mean and vector_spread do not fit prior.widths")
        if given.shape[0] != width.shape[0]:
            raise ValueError("prior.given: there is one number for each block")
        for b in range(width.shape[0]):
            if not 0 <= given[b] <= (width[b] > 1):
                raise ValueError("prior.given: one column of a block is given at most, and never its only one")
            if not (0 < wishart[b, 0] < INFINITY and width[b] - given[b] - 1 < wishart[b, 1] < INFINITY):
                raise ValueError(BAD_BLOCK)
        for d in range(n):
            if not (-INFINITY < mean[d] < INFINITY and 0 < spread[d] < INFINITY):
                raise ValueError(BAD_BLOCK)
        self.items[6], self.items[7], self.items[8] = width.shape[0], n, n_pairs

    def _hold_spells(self, prior):
        """Store the prior of the survival columns; ValueError if it is invalid."""
        gamma, width = (np.ascontiguousarray(getattr(prior, name, ()), dtype=np.float64)
                        for name in ("spell_gamma", "spell_width"))
        self.spell_gamma_array, self.spell_width_array = gamma.reshape(-1, 2), width.ravel()
        if len(self.spell_width_array) != SPELL_PARTS * len(self.spell_gamma_array):
            raise ValueError(f"prior.spell_width: a survival column has {SPELL_PARTS} parts")
        _check_numbers(self.spell_gamma_array, 0, "prior.spell_gamma: shape and rate must be positive and finite")
        self.items[9] = len(self.spell_width_array)

    @staticmethod
    def _sum_levels(offsets, dirichlet):
        """Put each column's total pseudo-count into its missing row, where tail.h reads it. offsets: of columns, or of
        their contexts."""
        cdef const int64_t[::1] first = offsets
        cdef double[::1] beta = dirichlet
        cdef int64_t c, l
        for c in range(first.shape[0] - 1):
            if first[c] < 0 or first[c + 1] - first[c] < 2:
                raise ValueError("prior.dirichlet: a categorical column has no level")
            beta[first[c + 1] - 1] = 0.0
            for l in range(first[c], first[c + 1] - 1):
                if not 1e-30 <= beta[l] < INFINITY:
                    raise ValueError("prior.dirichlet: pseudo-counts must be finite and at least 1e-30")
        dirichlet[offsets[1:] - 1] = np.add.reduceat(dirichlet, offsets[:len(offsets) - 1])

    def _hold_plain(self, int64_t padded):
        """Lay out the part of the prior of real columns that slots without missing cells need; see layout.h."""
        self.plain = aligned(24 * padded, np.uint8)
        cdef double *plain = <double *>address(self.plain)
        cdef const double *normal = <const double *>address(self.normal_array)
        cdef int64_t r
        for r in range(padded):
            plain[padded + r] = 1.0
        for r in range(self.items[3]):
            plain[r] = normal[4 * r]
            plain[padded + r] = normal[4 * r + 2] * normal[4 * r + 3]
            (<int64_t *>plain)[2 * padded + r] = -1

    cdef int _sum_prior(self) except -1:
        """Sum the prior's column of the table, as scores.h would, for rows without missing cells, if one sum serves all
        rows."""
        cdef int64_t c, C = self.items[2], l
        cdef float total = 0
        self.c.prior_sums, self.c.missing = NULL, NULL
        if C == 0:
            return 0
        self.missing = aligned(pad16(C), np.int32)
        for c in range(pad16(C)):
            self.missing[c] = <int32_t>(self.c.offsets[c + 1] - 1) if c < C else -1
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

    cdef int _sort_by_nu(self, numbers) except -1:
        """Choose how the Student t densities of the real columns are computed (scores.h)."""
        self.c.one_nu, self.c.by_power = False, NULL
        if not self.items[3]:
            return 0
        cdef const double[:, ::1] normal = numbers
        cdef int64_t r, p, n = normal.shape[0], found = 0
        cdef double power
        self.c.one_nu = True
        for r in range(n):
            self.c.one_nu = self.c.one_nu and normal[r, 2] == normal[0, 2]
        self.by_power, self.power_ends = np.empty(n, np.int32), np.empty(POWERS, np.int64)
        for p in range(POWERS):  # columns by power, the greatest first, and in order within one
            power = <double>(<int64_t>1 << (POWERS - 1 - p))
            for r in range(n):
                if normal[r, 2] == power:
                    self.by_power[found] = <int32_t>r
                    found += 1
            self.power_ends[p] = found
        if found == n:  # all of them are powers
            self.c.by_power, self.c.power_ends = &self.by_power[0], &self.power_ends[0]
        return 0

    cdef int _allocate(self, int64_t capacity) except -1:
        cdef int64_t total = 0, i
        for i in range(N_FIELDS):
            self.starts[i] = total
            total += capacity * self.items[_item[i]] * _bytes[i]
        self.buffer = room(total)
        memset(address(self.buffer), 0, self.starts[<int>_PLACE["table"]])
        self.c.capacity = capacity
        self.c.n_levels, self.c.n_codes = self.items[1], self.items[2]
        self.c.n_reals, self.c.n_tallies = self.items[3], self.items[4]
        self.c.offsets = <const int64_t *>address(self.offsets_array)
        self.c.contexts = <const int64_t *>address(self.contexts_array)
        self.c.n_linked = 0
        for i in range(self.c.n_codes):
            self.c.n_linked += self.c.contexts[i] > 1
        self.c.dirichlet = <const double *>address(self.dirichlet_array)
        self.c.normal = <const double *>address(self.normal_array)
        self.c.gamma = <const double *>address(self.gamma_array)
        cdef char *at = <char *>address(self.buffer)
        self.c.size = <int64_t *>(at + self.starts[<int>_PLACE["size"]])
        self.c.levels = <int32_t *>(at + self.starts[<int>_PLACE["levels"]])
        self.c.real_n = <int64_t *>(at + self.starts[<int>_PLACE["real_n"]])
        self.c.real_mean = <double *>(at + self.starts[<int>_PLACE["real_mean"]])
        self.c.real_scatter = <double *>(at + self.starts[<int>_PLACE["real_scatter"]])
        self.c.tally_n = <int64_t *>(at + self.starts[<int>_PLACE["tally_n"]])
        self.c.tally_sum = <double *>(at + self.starts[<int>_PLACE["tally_sum"]])
        self.c.log_size = <double *>(at + self.starts[<int>_PLACE["log_size"]])
        self.c.log_size_without = <double *>(at + self.starts[<int>_PLACE["log_size_without"]])
        self.c.norm = <double *>(at + self.starts[<int>_PLACE["norm"]])
        self.c.total_without = <double *>(at + self.starts[<int>_PLACE["total_without"]])
        self.c.reference_size = <int64_t *>(at + self.starts[<int>_PLACE["reference_size"]])
        self.c.reference = <double *>(at + self.starts[<int>_PLACE["reference"]])
        self.c.table = <float *>(at + self.starts[<int>_PLACE["table"]])
        self.c.t_location = <double *>(at + self.starts[<int>_PLACE["t_location"]])
        self.c.t_scale = <double *>(at + self.starts[<int>_PLACE["t_scale"]])
        self.c.t_half = <double *>(at + self.starts[<int>_PLACE["t_half"]])
        self.c.t_constant = <double *>(at + self.starts[<int>_PLACE["t_constant"]])
        self.c.t_total = <double *>(at + self.starts[<int>_PLACE["t_total"]])
        self.c.without = <double *>(at + self.starts[<int>_PLACE["without"]])
        self.c.plain = <double *>address(self.plain)
        self.c.nb_shape = <double *>(at + self.starts[<int>_PLACE["nb_shape"]])
        self.c.nb_rate = <double *>(at + self.starts[<int>_PLACE["nb_rate"]])
        self.c.nb_zero = <double *>(at + self.starts[<int>_PLACE["nb_zero"]])
        self.c.nb_log_p = <double *>(at + self.starts[<int>_PLACE["nb_log_p"]])
        self.c.nb_log_q = <double *>(at + self.starts[<int>_PLACE["nb_log_q"]])
        self.c.nb_remainder = <double *>(at + self.starts[<int>_PLACE["nb_remainder"]])
        self.c.nb_base = <double *>(at + self.starts[<int>_PLACE["nb_base"]])
        self.c.uneven = <int64_t *>(at + self.starts[<int>_PLACE["uneven"]])
        self.c.nb_log_p_without = <double *>(at + self.starts[<int>_PLACE["nb_log_p_without"]])
        self._point_at_blocks(at)
        self._point_at_spells(at)
        return 0

    cdef int _point_at_blocks(self, char *at) except -1:
        self.c.n_blocks = self.items[6]
        if self.c.n_blocks:
            self.c.widths, self.c.given = <const int64_t *>address(self.widths_array), \
                <const int64_t *>address(self.given_array)
            self.c.wishart = <const double *>address(self.wishart_array)
            self.c.v_mean, self.c.v_spread = <const double *>address(self.vector_mean_array), \
                <const double *>address(self.vector_spread_array)
        self.c.vector_n = <int64_t *>(at + self.starts[<int>_PLACE["vector_n"]])
        self.c.vector_mean = <double *>(at + self.starts[<int>_PLACE["vector_mean"]])
        self.c.vector_scatter = <double *>(at + self.starts[<int>_PLACE["vector_scatter"]])
        self.c.v_location = <double *>(at + self.starts[<int>_PLACE["v_location"]])
        self.c.v_factor = <double *>(at + self.starts[<int>_PLACE["v_factor"]])
        self.c.v_half = <double *>(at + self.starts[<int>_PLACE["v_half"]])
        self.c.v_constant = <double *>(at + self.starts[<int>_PLACE["v_constant"]])
        self.c.v_without = <double *>(at + self.starts[<int>_PLACE["v_without"]])
        return 0

    cdef int _point_at_spells(self, char *at) except -1:
        self.c.n_spells = self.items[9] // SPELL_PARTS
        self.c.spell_gamma = <const double *>address(self.spell_gamma_array)
        self.c.spell_width = <const double *>address(self.spell_width_array)
        self.c.spell_events = <int64_t *>(at + self.starts[<int>_PLACE["spell_events"]])
        self.c.spell_ended = <int64_t *>(at + self.starts[<int>_PLACE["spell_ended"]])
        self.c.spell_time = <double *>(at + self.starts[<int>_PLACE["spell_time"]])
        self.c.spell_exposure = <double *>(at + self.starts[<int>_PLACE["spell_exposure"]])
        self.c.spell_shape = <double *>(at + self.starts[<int>_PLACE["spell_shape"]])
        self.c.spell_rate = <double *>(at + self.starts[<int>_PLACE["spell_rate"]])
        self.c.spell_log_shape = <double *>(at + self.starts[<int>_PLACE["spell_log_shape"]])
        self.c.spell_log_rate = <double *>(at + self.starts[<int>_PLACE["spell_log_rate"]])
        self.c.spell_before = <double *>(at + self.starts[<int>_PLACE["spell_before"]])
        return 0

    cdef int _refresh(self, int64_t start, int64_t stop) except -1:
        cdef Work work = Work(0, 16, self.c.n_levels, self.c.n_codes, self.c.n_reals, self.c.n_tallies, self.c.n_blocks)
        with nogil:
            kernel_refresh(&self.c, &work.c, start, stop, NULL)
        return 0

    def _field(self, name):
        cdef int64_t i = _PLACE[name], n_rows = self.items[_item[i]], capacity = self.c.capacity, kind = _item[i]
        flat = self.buffer[self.starts[i]:self.starts[i] + n_rows * capacity * _bytes[i]].view(_DTYPES[i])
        if kind == 5:
            return flat.reshape(capacity, n_rows).T
        return flat if kind == 0 else flat.reshape(n_rows, capacity)

    cdef int _grow(self) except -1:
        """Double the slots; current contents stay in place, and derived values keep their bits."""
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
        self._load(statistics, None, False)

    def _load(self, statistics, const uint8_t[::1] met, bint new):
        """Do the work of `load`. met: see `prior.met`. new: nothing has been written into the slots."""
        cdef int64_t n = len(statistics.size)
        if met is not None and met.shape[0] != self.items[1]:
            raise ValueError("prior.met: there is one value for each level row")
        if n > self.c.capacity:
            self._allocate(pad16(n))
        elif not new:
            memset(address(self.buffer), 0, len(self.buffer))
        self.c.n_uneven = 0
        cdef int64_t i, row, n_rows, stride
        cdef char *to
        cdef const char *of
        for i in range(13 if self.c.n_spells else 10 if self.c.n_blocks else 7):
            given = getattr(statistics, _FIELDS[i][0])
            if i == 1 and met is not None:
                self._load_levels(given, met)
                continue
            if not given.size:
                continue
            given, n_rows = np.ascontiguousarray(given, _DTYPES[i]), self.items[_item[i]]
            if given.size != n_rows * n:
                raise ValueError(f"{_FIELDS[i][0]}: {given.shape} is not the form of {n} clusters of these columns")
            to, of, stride = <char *>address(self.buffer) + self.starts[i], <const char *>address(given), _bytes[i]
            for row in range(n_rows if n else 0):
                memcpy(to + row * stride * self.c.capacity, of + row * stride * n, stride * n)
        self.c.n_slots = n
        while self.c.n_slots > 0 and self.c.size[self.c.n_slots - 1] == 0:
            self.c.n_slots -= 1
        cdef const uint8_t *of_rows = &met[0] if met is not None and met.shape[0] else NULL
        cdef Work work = Work(0, 16, self.c.n_levels, self.c.n_codes, self.c.n_reals, self.c.n_tallies, self.c.n_blocks)
        with nogil:
            kernel_refresh(&self.c, &work.c, 0, self.c.capacity, of_rows)

    cdef int _load_levels(self, const int32_t[:, ::1] given, const uint8_t[::1] met) except -1:
        """Copy the counts of level rows that are met; those of the others are 0, in slots that are new."""
        cdef int64_t l, k, n = given.shape[1], capacity = self.c.capacity
        if given.shape[0] != met.shape[0]:
            raise ValueError("prior.met and the counts do not fit together")
        for l in range(given.shape[0] if n else 0):
            if met[l]:
                for k in range(n):
                    self.c.levels[l * capacity + k] = given[l, k]
        return 0

    @property
    def count_scores(self):
        """Copy of layout.h's count_scores as far as computed, float64 (Q, 1024); NaN elsewhere."""
        return np.array(self.count_scores_kept if self.items[4] else ()).reshape(self.items[4], N_COUNTS_KEPT)

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
        """Number of rows seated in the tail."""
        return self.c.n_rows

    @property
    def n_occupied(self):
        """Number of slots that hold rows."""
        return self.c.n_occupied

    def __getattr__(self, name):
        if name in _STATISTICS:
            return self._field(name)
        raise AttributeError(name)
