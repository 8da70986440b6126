"""Lists of rows that a shard removes from its subsample and adds to it, step by step, for `mixture.sweep`.

Subsample annealing (Obermeyer, Glidden & Jonas 2014, section 2; docs/math.md 3.1): assigning idle rows alone grows the
subsample, pairs of remove and assign churn it. A function of labels and random words alone, so nothing is kept between
cycles. Cost per step: O(1), two random words.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint64_t


cdef extern from "philox.h" nogil:
    ctypedef struct philox_stream:
        pass
    philox_stream philox_open(uint64_t seed, uint64_t purpose, uint64_t sub, uint64_t cycle, uint64_t chain)
    uint64_t philox_word(philox_stream *stream, uint64_t row)
    int64_t philox_below(uint64_t word, int64_t n)
    enum:
        PURPOSE_SUBSAMPLE


def visits(const int32_t[::1] z, int64_t n_grow, int64_t n_churn, seed, cycle, sweep, chain, shard):
    """Return (remove, assign), each int32 (n_grow + n_churn,): the steps of one sweep over a shard.

    z: int32 (n,), labels: -2 and below idle, all others active. n_churn steps remove an active row, drawn uniformly,
    and assign a row drawn uniformly from the idle ones and the row just removed; n_grow steps, evenly spread among them
    and the first of all, assign an idle row, drawn uniformly, and remove none (remove = -1). Without idle rows a
    churning step names one row twice. Raises ValueError if there are too few idle rows, or no row to remove.

    For example z = [0, -2, 4] with n_grow = 1 and n_churn = 2 gives remove = [-1, i, j], assign = [1, i, j].
    """
    cdef int64_t n = z.shape[0], steps = n_grow + n_churn, n_active = 0, n_idle = 0, credit = 0, s, i, at, row
    if n_grow < 0 or n_churn < 0:
        raise ValueError(f"{n_grow} growing and {n_churn} churning steps")

    # active[0..n_active) and idle[0..n_idle), each in any order
    cdef int32_t[::1] active = np.empty(n, dtype=np.int32), idle = np.empty(n, dtype=np.int32)
    for i in range(n):
        if z[i] < -1:
            idle[n_idle] = <int32_t>i
            n_idle += 1
        else:
            active[n_active] = <int32_t>i
            n_active += 1
    if n_grow > n_idle:
        raise ValueError(f"{n_grow} rows should come into the subsample, but {n_idle} are idle")
    if n_churn and n_active + n_grow == 0:
        raise ValueError("no row is in the subsample, so none can be taken out")

    cdef philox_stream words = philox_open(seed, PURPOSE_SUBSAMPLE, shard + (sweep << 32), cycle, chain)
    out = np.empty(steps, dtype=np.int32), np.empty(steps, dtype=np.int32)
    cdef int32_t[::1] remove = out[0], assign = out[1]
    with nogil:
        for s in range(steps):
            credit -= n_grow  # a growing step when the growth owed, s n_grow / steps, has just passed a whole number
            if credit < 0:
                credit += steps
                n_idle -= 1
                at = philox_below(philox_word(&words, 2 * s + 1), n_idle + 1)
                row = idle[at]
                idle[at] = idle[n_idle]
                active[n_active] = <int32_t>row
                n_active += 1
                remove[s] = -1
            else:
                i = philox_below(philox_word(&words, 2 * s), n_active)
                row = active[i]
                remove[s] = <int32_t>row
                at = philox_below(philox_word(&words, 2 * s + 1), n_idle + 1)  # the last one is the row itself
                if at < n_idle:
                    active[i] = idle[at]
                    idle[at] = <int32_t>row
                    row = active[i]
            assign[s] = <int32_t>row
    return out
