"""The local step of latent Dirichlet allocation: topics of documents, and expected counts of words in topics.

Four kinds (docs/math.md 8.7): "vb", variational Bayes, by exp(digamma) in float32, relative error about 2e-6; "linear",
with gamma itself in its place; "cvb0", where a word's own share is left out of gamma; "gibbs", means over sweeps of
Gibbs' sampler of its words' topics, each document with a stream of its own. Sums over documents are of multiples of
`unit`, exact in any order, so that they do not depend on who adds up what.
"""

import numpy as np

from libc.math cimport floorf
from libc.stdint cimport int32_t, int64_t, uint64_t

from mpibayes.kernels.common.machine cimport aligned
from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "lda.h" nogil:
    int kernel_isa
    enum:
        WIDE
        TOGETHER
    ctypedef struct documents_t:
        int64_t K, P
        const int64_t *starts
        const int32_t *words
        const float *counts
        const float *weight
        const float *alpha
        int local, cold, most
        float tolerance
        double rounder[2]
        uint64_t seed, cycle, chain
        int64_t number
    ctypedef struct room_t:
        float *gamma
        float *theta
        float *found
        float *ratio
        float *share
        int32_t *topic
    int64_t lda_pass(const documents_t *, const int64_t *, int64_t, const double *, float *, double *, double *,
                     room_t *)
    void lda_weights(const double *, const float *, int64_t, int64_t, const int64_t *, int64_t, int, float *, room_t *)
    double lda_log(const int64_t *, const int32_t *, const float *, int64_t, int64_t, const double *, const double *,
                   int64_t)


kernel_isa = ISA_NUMBER
LOCAL = {"vb": 0, "linear": 1, "cvb0": 2, "gibbs": 3}
NUMBERED = 256  # how much coarser the unit of sums with numbers is


def padded(int64_t k):
    """Topics with padding."""
    return (k + WIDE - 1) // WIDE * WIDE


def table_of(n, k, dtype):
    """Zeros (n, padded topics), aligned."""
    return aligned(n * padded(k), dtype).reshape(n, padded(k))


cdef class Documents:
    """Documents as they lie in a sparse table; kept as they are. n: how many. v: words there may be. longest: most
    distinct words of one. most: most words. whole: whether all counts are whole numbers."""

    cdef readonly int64_t n, v, longest, most
    cdef readonly bint whole
    cdef object _held
    cdef const int64_t *_starts
    cdef const int32_t *_words
    cdef const float *_counts

    def __init__(self, const int64_t[::1] starts, const int32_t[::1] words, const float[::1] counts, int64_t v):
        """starts int64 (n + 1,), from 0; words int32, below v, and counts float32, 0 or more. Raises ValueError."""
        cdef int64_t n = starts.shape[0] - 1, i, j
        cdef double length
        if n < 0 or starts[0] != 0 or words.shape[0] != starts[n] or counts.shape[0] != starts[n]:
            raise ValueError("starts, words and counts disagree")
        self.n, self.v, self.longest, self.most, self.whole = n, v, 0, 0, True
        for i in range(n):
            if starts[i + 1] < starts[i]:
                raise ValueError("starts descend")
            self.longest = max(self.longest, starts[i + 1] - starts[i])
            length = 0.0
            for j in range(starts[i], starts[i + 1]):
                self.whole &= counts[j] == floorf(counts[j])
                length += counts[j]
            self.most = max(self.most, <int64_t>length)
        for i in range(starts[n]):
            if not 0 <= words[i] < v:
                raise ValueError(f"word {words[i]} of {v}")
        self._held = (np.asarray(starts), np.asarray(words), np.asarray(counts))
        self._starts = &starts[0]
        self._words, self._counts = NULL, NULL
        if starts[n]:
            self._words, self._counts = &words[0], &counts[0]


cdef class Room:
    """Room for local steps with K topics, and the words' weights in them (V, padded), float32."""

    cdef readonly object weight
    cdef object _held
    cdef room_t _room
    cdef int64_t _k, _p, _v, _longest, _most

    def __init__(self, int64_t k, int64_t v, int64_t longest, bint shares=True, int64_t most=0):
        """longest: most distinct words of a document. shares: room for "cvb0", too: 4 bytes a topic and word of that.
        most: most words of a document, 4 bytes each, room for "gibbs"; 0 for none."""
        if k < 1 or v < 1:
            raise ValueError(f"{k} topics of {v} words: expected 1 or more of each")
        self._k, self._p, self._v, self._longest, self._most = k, padded(k), v, longest, most
        self.weight = table_of(v, k, np.float32)
        cdef int64_t n = (longest // WIDE + 1) * WIDE
        cdef float[::1] held = aligned(3 * self._p + n + (n * self._p if shares else 0), np.float32)
        cdef int32_t[::1] topic = np.zeros(max(1, most), np.int32)
        self._held = held, topic
        self._room.gamma, self._room.theta, self._room.found = &held[0], &held[self._p], &held[2 * self._p]
        self._room.ratio = &held[3 * self._p]
        self._room.share = &held[3 * self._p + n] if shares else NULL
        self._room.topic = &topic[0]

    def weigh(self, const double[:, ::1] lam, const float[::1] scale, const int64_t[::1] words, bint linear):
        """The weights of some words (None: all): exp(digamma(lam)) times scale up to a factor a word, or, linear, lam
        times scale. lam: float64 (V, K). scale: float32 (padded,), a number a topic."""
        if lam.shape[0] != self._v or lam.shape[1] != self._k or scale.shape[0] != self._p:
            raise ValueError(f"expected {self._v} words and {self._k} topics")
        cdef int64_t n = self._v if words is None else words.shape[0], i
        if n == 0:
            return
        if words is not None:
            for i in range(n):
                if not 0 <= words[i] < self._v:
                    raise ValueError(f"word {words[i]} of {self._v}")
        cdef float[:, ::1] weight = self.weight
        cdef const int64_t *which = NULL if words is None else &words[0]
        cdef room_t *room = &self._room
        with nogil:
            lda_weights(&lam[0, 0], &scale[0], self._k, self._p, which, n, linear, &weight[0, 0], room)

    def __call__(
        self, Documents documents, const int64_t[::1] rows, const double[::1] numbers, const float[::1] alpha, str local,
        bint cold, int most, float tolerance, float[:, ::1] gamma, double[:, ::1] sums, double[:, ::1] numbered,
        double unit, key=None,
    ):
        """Local steps of some documents under the weights; iterations in all.

        rows: int64, which, None for all. numbers: float64, one for each of these, or None. alpha: float32 (K,). local:
        a key of LOCAL. cold: gamma starts from alpha + length / K, else from what it is. A local step ends where the
        summed change of gamma is at most tolerance (length + 1), or after `most` iterations. gamma: float32 (D, K),
        written. sums (V, padded): added to, expected counts in multiples of `unit`; None where not wanted. numbered:
        the same times the documents' numbers, in multiples of NUMBERED units. key: of "gibbs", which makes `most`
        sweeps: (seed, cycle, chain, number of the first document), whole numbers. Raises ValueError.
        """
        cdef int64_t d = documents.n, n = d if rows is None else rows.shape[0], i, done
        if documents.v != self._v or documents.longest > self._longest or (
            local in ("cvb0", "gibbs") and self._room.share == NULL
        ):
            raise ValueError(f"room for documents of {self._longest} of {self._v} words")
        if local == "gibbs" and (key is None or documents.most > self._most or not documents.whole or most < 1):
            raise ValueError(f"gibbs: expected a key, whole counts, a sweep or more, and at most {self._most} words")
        if gamma.shape[0] != d or gamma.shape[1] != self._k or alpha.shape[0] != self._k:
            raise ValueError(f"expected gamma of {d} documents and {self._k} topics")
        if sums is not None and (sums.shape[0] != self._v or sums.shape[1] != self._p):
            raise ValueError(f"sums: expected ({self._v}, {self._p})")
        if numbered is not None and (numbered.shape[0] != self._v or numbered.shape[1] != self._p):
            raise ValueError(f"numbered: expected ({self._v}, {self._p})")
        if numbers is not None and (numbers.shape[0] != n or sums is None or numbered is None):
            raise ValueError(f"expected a number for each of {n} documents, and room for both sums")
        if n == 0:
            return 0
        if rows is not None:
            for i in range(n):
                if not 0 <= rows[i] < d:
                    raise ValueError(f"document {rows[i]} of {d}")
        cdef float[::1] prior = aligned(self._p, np.float32)
        for i in range(self._k):
            prior[i] = alpha[i]
        cdef float[:, ::1] weight = self.weight
        cdef documents_t job
        job.K, job.P, job.weight, job.alpha = self._k, self._p, &weight[0, 0], &prior[0]
        job.starts, job.words, job.counts = documents._starts, documents._words, documents._counts
        job.local, job.cold, job.most, job.tolerance = LOCAL[local], cold, most, tolerance
        job.rounder[0], job.rounder[1] = 6755399441055744.0 * unit, 6755399441055744.0 * NUMBERED * unit
        if key is not None:
            job.seed, job.cycle, job.chain, job.number = key
        cdef const int64_t *which = NULL if rows is None else &rows[0]
        cdef const double *each = NULL if numbers is None else &numbers[0]
        cdef double *plain = NULL if sums is None else &sums[0, 0]
        cdef double *other = NULL if numbers is None else &numbered[0, 0]
        cdef room_t *room = &self._room
        with nogil:
            done = lda_pass(&job, which, n, each, &gamma[0, 0], plain, other, room)
        return done


def log_probability(Documents documents, const double[:, ::1] theta, const double[:, ::1] beta):
    """Sum over entries of count * log sum_k theta_dk beta_wk. theta: float64 (D, padded), beta (V, padded), as
    `table_of` makes them. Raises ValueError."""
    cdef int64_t d = documents.n
    if theta.shape[0] != d or theta.shape[1] != beta.shape[1] or theta.shape[1] % WIDE:
        raise ValueError("theta and beta do not fit")
    if beta.shape[0] != documents.v:
        raise ValueError(f"beta: expected {documents.v} words")
    if d == 0 or documents._words == NULL:
        return 0.0
    cdef double total
    with nogil:
        total = lda_log(documents._starts, documents._words, documents._counts, 0, d, &theta[0, 0], &beta[0, 0],
                        theta.shape[1])
    return total
