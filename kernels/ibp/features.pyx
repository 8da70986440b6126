"""Sweeps over the rows of a shard: which features each row has, and what a collapsed shard's own features are.

Linear-Gaussian model x = z A + noise, in units of the noise (docs/math.md 7). A row of D columns with K features costs
O(K D) for its products with the loadings, once, and O(K) for every feature that changes.
"""

import numpy as np

from libc.stdint cimport int64_t, uint64_t

from mpibayes.kernels.common.machine cimport address, aligned
from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "ibp.h" nogil:
    int kernel_isa
    ctypedef struct rows_t:
        int64_t n, start, n_columns, width, words
        const float *x
        uint64_t *z
    ctypedef struct features_t:
        int64_t n, lanes, n_pairs
        const int64_t *slot
        const uint64_t *bit
        const int64_t *word
        const double *per_noise
        const double *loadings
        const double *by_row
        const double *gram
        const double *square
        const double *odds
        const uint64_t *anchor
        uint64_t frozen_below
        const double *steps
        const int64_t *first
        const int64_t *other
        const uint64_t *first_bit
        const uint64_t *other_bit
        const int64_t *first_word
        const int64_t *other_word
        const double *more
        const double *apart
    ctypedef struct tail_t:
        int64_t room, words, n_active
        uint64_t *z
        int64_t *active
        int64_t *owners
        double *spread
        double *mean
        double prior, others, births, no_birth
    ctypedef struct key_of_sweep:
        uint64_t seed, cycle, chain, sweep
    void sweep(const rows_t *, const features_t *, const key_of_sweep *, double *)
    int64_t sweep_tail(const rows_t *, const features_t *, tail_t *, const key_of_sweep *, int64_t, double *)
    void tail_sums(const rows_t *, const features_t *, const tail_t *, double *, double *)
    void tally(const rows_t *, const int64_t *, int64_t, int64_t *, double *, double *, double *)
    void fill_steps(double *)
    ctypedef struct philox_stream:
        pass
    philox_stream philox_open(uint64_t seed, uint64_t purpose, uint64_t sub, uint64_t cycle, uint64_t chain)
    uint64_t philox_word(philox_stream *stream, uint64_t row)
    enum:
        PURPOSE_PRIORITY
        MOST_BIRTHS
        TOGETHER


kernel_isa, most_births = ISA_NUMBER, MOST_BIRTHS
ALIKE = 0.3
cdef double steps[257]
fill_steps(steps)


def padded(n):
    """n rounded up to a multiple of 8."""
    return (n + 7) // 8 * 8


def alike(gram):
    """int64 (P, 2): pairs of features whose loadings have a cosine of at least ALIKE, the most alike first, twice as
    many as there are features at most. gram: float64 (K, K)."""
    length = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    likeness = gram / (length[:, None] * length)
    pairs = np.argwhere(np.triu(likeness >= ALIKE, 1))
    cosine = likeness[pairs[:, 0], pairs[:, 1]]
    return pairs[np.argsort(-cosine, kind="stable")[:2 * len(gram)]]


def aligned_copy(array, shape, dtype=np.float64):
    """`array` at the beginning of zeros of this shape, which begin where vectors can be read."""
    out = aligned(int(np.prod(shape)), dtype).reshape(shape)
    array = np.asarray(array)
    out[tuple([slice(0, n) for n in array.shape])] = array
    return out


cdef class Rows:
    """The rows of a shard and the features that they have.

    x: float32 (n, D), the cells; kept, not copied. z: uint64 (n, W), bit s of a row's words says whether it has the
    feature of slot s; changed in place. start: number of the first row.
    """

    cdef rows_t rows
    cdef readonly object x, z

    def __init__(self, x, z, int64_t start):
        for array, dtype in ((x, np.float32), (z, np.uint64)):
            if array.dtype != dtype or array.ndim != 2 or not array.flags.c_contiguous or len(array) != len(x):
                raise ValueError(f"C-contiguous {np.dtype(dtype).name} rows were expected")
        self.x, self.z = x, z
        self.rows.n, self.rows.start, self.rows.n_columns = len(x), start, x.shape[1]
        self.rows.width, self.rows.words = padded(x.shape[1]), z.shape[1]
        self.rows.x, self.rows.z = <const float *>address(x), <uint64_t *>address(z)

    def __len__(self):
        return self.rows.n

    def least_priorities(self, slots, seed, cycle, chain):
        """uint64 (K,): the least priority among the owners of each slot's feature; 2^64 - 1 where there is none."""
        cdef int64_t i, k, w, s
        cdef const int64_t[::1] slot = np.ascontiguousarray(slots, np.int64)
        least = np.full(slot.shape[0], 2**64 - 1, np.uint64)
        unseen = np.zeros(self.rows.words, np.uint64)  # bits of features of which no owner has come yet
        cdef uint64_t[::1] out = least, waiting = unseen
        cdef const uint64_t *z
        cdef uint64_t word, new, most = 0  # the greatest of `least` but for those
        cdef philox_stream stream = philox_open(seed, PURPOSE_PRIORITY, 0, cycle, chain)
        with nogil:
            for k in range(slot.shape[0]):
                waiting[slot[k] >> 6] |= <uint64_t>1 << (slot[k] & 63)
            for i in range(self.rows.n):
                word, new, z = philox_word(&stream, self.rows.start + i), 0, self.rows.z + i * self.rows.words
                for w in range(self.rows.words):
                    new |= z[w] & waiting[w]
                if word >= most and not new:
                    continue
                most = 0
                for k in range(slot.shape[0]):
                    s = slot[k]
                    if z[s >> 6] >> (s & 63) & 1:
                        waiting[s >> 6] &= ~(<uint64_t>1 << (s & 63))
                        out[k] = min(out[k], word)
                    if not waiting[s >> 6] >> (s & 63) & 1:
                        most = max(most, out[k])
        return least

    def tally(self, slots):
        """(owners, sums): int64 (K, K), rows that have two features; float64 (K + 1, D), the cells of the owners of each
        summed in row order, and then the squared cells of all rows."""
        slot = np.ascontiguousarray(slots, np.int64)
        cdef int64_t K = len(slot), D = self.rows.n_columns, width = self.rows.width
        sums, scratch = aligned((K + 1) * width, np.float64).reshape(K + 1, width), aligned(width + K + 1, np.float64)
        owners = np.zeros((K, K), np.int64)
        cdef const int64_t *slot_at = <const int64_t *>address(slot)
        cdef int64_t *owners_at = <int64_t *>address(owners)
        cdef double *cells_at = <double *>address(sums)
        cdef double *scratch_at = <double *>address(scratch)
        with nogil:
            tally(&self.rows, slot_at, K, owners_at, cells_at, cells_at + K * width, scratch_at)
        return owners, sums[:, :D]


cdef class Features:
    """The instantiated features of a cycle, in the order in which rows are asked about them.

    slots: int64 (K,). loadings: float64 (K, D), A. weights: float64 (K,), mu. noise: float64 (D,), standard deviations.
    """

    cdef features_t features
    cdef readonly object slots, noise
    cdef object held  # the arrays that `features` points into
    cdef readonly object pairs  # int64 (P, 2), places of features that rows may take one for the other

    def __init__(self, slots, loadings, weights, noise):
        cdef int64_t K = np.shape(loadings)[0], D = np.shape(loadings)[1]
        cdef int64_t width = padded(D), lanes = padded(K)
        self.slots, self.noise = np.ascontiguousarray(slots, np.int64), np.asarray(noise, np.float64)
        scaled = np.asarray(loadings) / self.noise
        gram = np.einsum("kd,ld->kl", scaled, scaled)  # in a fixed order, as no product of a library
        self.pairs = alike(gram)
        odds = np.full(lanes, -np.inf)
        odds[:K] = np.log(weights) - np.log1p(-np.asarray(weights, np.float64))
        both = aligned_copy(scaled.T, (D + lanes, lanes))
        both[D:D + K, :K] = gram
        n, (first, other) = padded(len(self.pairs)), self.pairs.T
        square, bit = np.diag(gram), np.uint64(1) << (self.slots & 63).astype(np.uint64)
        word = self.slots >> 6
        self.held = held = {
            "bit": aligned_copy(bit, (lanes,), np.uint64), "word": aligned_copy(word, (lanes,), np.int64),
            "per_noise": aligned_copy(1.0 / self.noise, (width,)), "loadings": both,
            "by_row": aligned_copy(scaled, (K, width)), "square": aligned_copy(square, (lanes,)),
            "odds": aligned_copy(odds, (lanes,)),
            "first": aligned_copy(first, (n,), np.int64), "other": aligned_copy(other, (n,), np.int64),
            "first_bit": aligned_copy(bit[first], (n,), np.uint64),
            "other_bit": aligned_copy(bit[other], (n,), np.uint64),
            "first_word": aligned_copy(word[first], (n,), np.int64),
            "other_word": aligned_copy(word[other], (n,), np.int64),
            "more": aligned_copy(odds[other] - odds[first], (n,)),
            "apart": aligned_copy(0.5 * (square[first] - 2.0 * gram[first, other] + square[other]), (n,)),
        }
        f = &self.features
        f.n, f.lanes, f.n_pairs, f.steps = K, lanes, n, steps
        f.slot = <const int64_t *>address(self.slots)
        f.bit, f.word = <const uint64_t *>address(held["bit"]), <const int64_t *>address(held["word"])
        f.per_noise, f.loadings = <const double *>address(held["per_noise"]), <const double *>address(both)
        f.gram = f.loadings + D * lanes
        f.by_row, f.square = <const double *>address(held["by_row"]), <const double *>address(held["square"])
        f.odds = <const double *>address(held["odds"])
        f.first, f.other = <const int64_t *>address(held["first"]), <const int64_t *>address(held["other"])
        f.first_bit = <const uint64_t *>address(held["first_bit"])
        f.other_bit = <const uint64_t *>address(held["other_bit"])
        f.first_word = <const int64_t *>address(held["first_word"])
        f.other_word = <const int64_t *>address(held["other_word"])
        f.more, f.apart = <const double *>address(held["more"]), <const double *>address(held["apart"])

    def sweep(self, Rows rows, anchors, seed, cycle, chain, int64_t sweep_number, Tail tail=None):
        """One sweep over the rows. anchors: uint64 (K,), the priority up to which rows of this shard keep a feature as it
        is; 0 for none. tail: of a collapsed shard."""
        cdef features_t f = self.features
        cdef key_of_sweep key
        anchor = np.ascontiguousarray(anchors, np.uint64)
        if len(anchor) != f.n:
            raise ValueError(f"{len(anchor)} anchors of {f.n} features")
        f.anchor, f.frozen_below = <const uint64_t *>address(anchor), int(anchor.max(initial=0))
        key.seed, key.cycle, key.chain, key.sweep = seed, cycle, chain, sweep_number
        if rows.rows.n_columns != len(self.noise):
            raise ValueError(f"loadings on {len(self.noise)} columns, and {rows.rows.n_columns} in the rows")
        cdef int64_t at = 0, of_rows = TOGETHER * (rows.rows.n_columns + 2 * f.lanes)
        cdef double *work
        if tail is None:
            scratch = aligned(of_rows, np.float64)
            work = <double *>address(scratch)
            with nogil:
                sweep(&rows.rows, &f, &key, work)
            return
        while at < rows.rows.n:
            scratch = aligned(3 * rows.rows.width + 2 * f.lanes + 8 * tail.tail.room + of_rows, np.float64)
            work = <double *>address(scratch)
            with nogil:
                at = sweep_tail(&rows.rows, &f, &tail.tail, &key, at, work)
            if at < rows.rows.n:
                tail.grow()


cdef class Tail:
    """The features that a collapsed shard has to itself; their loadings and weights are integrated out.

    owned: bool (n, K), which rows have them. n_rows: of all shards. births: mean number of new features that a row
    proposes. prior: variance of a loading over the noise's. concentration: c.
    """

    cdef tail_t tail
    cdef object z, active, owners, spread, mean
    cdef int64_t n, width

    def __init__(self, Rows rows, Features features, owned, int64_t n_rows, double births, double prior,
                 double concentration):
        if not births <= MOST_BIRTHS:
            raise ValueError(f"a row would propose {births:g} new features on average; at most {MOST_BIRTHS} are allowed: "
                             "fix or bound the mass `alpha`")
        n, K = np.shape(owned)
        self.n, self.width = n, rows.rows.width
        self._room(64 * (K // 64 + 1))
        self.tail.prior, self.tail.others = prior, n_rows - 1 + concentration
        self.tail.births, self.tail.no_birth = births, np.exp(-births)
        self.tail.n_active = K
        self.active[:K] = np.arange(K)
        self.owners[:K] = np.sum(owned, axis=0)
        for k in range(K):
            self.z[:, k >> 6] |= np.asarray(owned)[:, k].astype(np.uint64) << np.uint64(k & 63)
        self.refresh(rows, features)

    cdef int _room(self, int64_t room) except -1:
        """Make room for so many features; those that there are stay in their places."""
        cdef int64_t old = self.tail.room
        held = (self.z, self.active, self.owners, self.spread, self.mean)
        self.z = np.zeros((self.n, room // 64), np.uint64)
        self.active, self.owners = np.zeros(room, np.int64), np.zeros(room, np.int64)
        self.spread, self.mean = aligned_copy([[]], (room, room)), aligned_copy([[]], (room, self.width))
        if old:
            self.z[:, :old // 64], self.active[:old], self.owners[:old] = held[0], held[1], held[2]
            self.spread[:old, :old], self.mean[:old] = held[3], held[4]
        t = &self.tail
        t.room, t.words = room, room // 64
        t.z, t.active = <uint64_t *>address(self.z), <int64_t *>address(self.active)
        t.owners = <int64_t *>address(self.owners)
        t.spread, t.mean = <double *>address(self.spread), <double *>address(self.mean)
        return 0

    def grow(self):
        self._room(2 * self.tail.room)

    @property
    def places(self):
        """int64 (K,): the places of the features that there are."""
        return self.active[:self.tail.n_active].copy()

    def owned(self):
        """bool (n, K): which rows have the features of `places`."""
        bits = [(self.z[:, p >> 6] >> np.uint64(p & 63) & np.uint64(1)).astype(bool) for p in self.places.tolist()]
        return np.array(bits, bool).reshape(len(bits), self.n).T

    def state(self):
        """(V, means) of the features of `places`, float64 (K, K) and (K, width), as they are: copies."""
        at = self.places
        return self.spread[np.ix_(at, at)], self.mean[at]

    def refresh(self, Rows rows, Features features):
        """V and the means afresh, from all rows: what a sweep's updates have rounded off is forgotten."""
        at = self.places
        if len(at) == 0:
            return
        sums, scratch = aligned_copy([[]], (self.tail.room, self.width)), aligned(self.width, np.float64)
        tail_sums(&rows.rows, &features.features, &self.tail, <double *>address(sums), <double *>address(scratch))
        z = self.owned().astype(np.float64)
        spread = np.linalg.inv(z.T @ z + np.eye(len(at)) / self.tail.prior)
        spread = 0.5 * (spread + spread.T)
        self.spread[np.ix_(at, at)] = spread
        self.mean[at] = np.einsum("ab,bd->ad", spread, sums[at])  # in a fixed order, as no product of a library
