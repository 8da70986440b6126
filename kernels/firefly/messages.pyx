"""Cycles on several ranks: bright rows of all on every rank, by one message of each (docs/math.md 4.3)."""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from mpibayes.kernels.common.machine cimport address, aligned
from mpibayes.kernels.firefly.lights cimport Lights
from mpibayes.kernels.firefly.rows cimport in_place
from mpibayes.kernels.firefly.target cimport Target

from mpibayes.kernels.firefly.moves import adapt, proposal_rate, start_tuning

cdef enum:
    QUERIES, CHECK, BYTES, HEADER  # a message begins with these, and the number of bright rows of each shard


cdef int64_t _padded(int64_t n) noexcept nogil:
    """Bytes that n bytes take, in multiples of 64."""
    return (n + 63) & ~<int64_t>63


cdef class Messages:
    """One message a rank: how many gaps its sweeps evaluated, and its bright rows, shard after shard.

    lights: of this rank's shards. dealt: number of shards of each rank, which are consecutive. `pack` fills `mine`,
    which an exchange puts on every rank into `everyones` (ranks, bytes); `complete` then says whether all rows had
    room. `counts` int64 (n_shards,), `n_bright` and `queries` are those of all ranks.
    """

    cdef readonly object mine, everyones, counts
    cdef readonly int64_t n_bright, queries
    cdef object dealt
    cdef list lights
    cdef int64_t room, wanted, width, n_bounds, n_own

    def __init__(self, lights, dealt, int64_t width, int64_t n_bounds):
        cdef Lights one
        for one in lights:
            if one.rows.model.width != width or one.rows.model.n_bounds != n_bounds:
                raise ValueError("the rows have another model")
        self.lights, self.dealt = list(lights), np.array(dealt, dtype=np.int64)
        self.width, self.n_bounds, self.n_own = width, n_bounds, len(self.lights)
        self.counts = np.zeros(self.dealt.sum(), dtype=np.int64)
        self.room, self.wanted = 0, 4096

    cdef int64_t _shard_bytes(self, int64_t n) noexcept nogil:
        return _padded(4 * n * self.width) + _padded(8 * n) + _padded(8 * n * self.n_bounds)

    cdef int64_t _head_bytes(self, int64_t n_shards) noexcept nogil:
        return _padded(8 * (HEADER + n_shards))

    def pack(self, theta, int64_t queries, int64_t most):
        """Fill `mine`; the rows stay out of it where they are more than `most`, or have no room."""
        cdef const double[::1] at = theta
        cdef Lights one
        cdef int64_t i, n = 0, n_bytes = self._head_bytes(self.n_own)
        cdef uint64_t check = 0
        for one in self.lights:
            n += one.c.now.n
            n_bytes += self._shard_bytes(one.c.now.n)
        if self.wanted != self.room:
            least = self._head_bytes(self.dealt.max())
            self.room = max(_padded(self.wanted), least)
            self.wanted = self.room
            self.mine = aligned(self.room, np.uint8)
            self.everyones = aligned(self.room * len(self.dealt), np.uint8).reshape(len(self.dealt), self.room)
        cdef uint8_t *to = <uint8_t *>address(self.mine)
        cdef int64_t *head = <int64_t *>to
        for i in range(at.shape[0]):
            check = 31 * check + (<const uint64_t *>&at[0])[i]
        head[QUERIES], head[CHECK], head[BYTES] = queries, <int64_t>check, n_bytes
        for i in range(self.n_own):
            one = self.lights[i]
            head[HEADER + i] = one.c.now.n
        if n > most or n_bytes > self.room:
            return
        to += self._head_bytes(self.n_own)
        for one in self.lights:
            n = one.c.now.n
            if n == 0:
                continue
            memcpy(to, one.c.now.x, 4 * n * self.width)
            to += _padded(4 * n * self.width)
            memcpy(to, one.c.now.y, 8 * n)
            to += _padded(8 * n)
            memcpy(to, one.c.now.bounds, 8 * n * self.n_bounds)
            to += _padded(8 * n * self.n_bounds)

    def complete(self, int64_t most):
        """Read what came; returns False where rows, of at most `most` in all, had no room: pack and exchange again."""
        cdef const uint8_t[:, ::1] received = self.everyones
        cdef const int64_t[::1] dealt = self.dealt
        cdef int64_t[::1] counts = self.counts
        cdef int64_t rank, i, shard = 0, longest = 0, check = 0
        cdef const int64_t *head
        self.n_bright = self.queries = 0
        for rank in range(dealt.shape[0]):
            head = <const int64_t *>&received[rank, 0]
            if rank and head[CHECK] != check:
                raise RuntimeError(f"rank {rank} has other coefficients than rank 0")
            check = head[CHECK]
            longest = max(longest, head[BYTES])
            self.queries += head[QUERIES]
            for i in range(dealt[rank]):
                counts[shard] = head[HEADER + i]
                self.n_bright += counts[shard]
                shard += 1
        if self.n_bright > most:
            return True
        if longest > self.room or 4 * longest < self.room:
            self.wanted = max(4096, longest + longest // 2)  # a multiple of 64 later
        return longest <= self.room

    def load(self, Target target):
        """Give all bright rows to the target, shard after shard. They stay in `everyones`: load before each step."""
        cdef const uint8_t[:, ::1] received = self.everyones
        cdef const int64_t[::1] dealt = self.dealt, counts = self.counts
        cdef int64_t rank, i, n, shard = 0, at = 0
        cdef const uint8_t *of
        if target.model.width != self.width or target.model.n_bounds != self.n_bounds:
            raise ValueError("the rows have another model than the target")
        target._reserve(counts.shape[0], self.n_bright)
        for rank in range(dealt.shape[0]):
            of = &received[rank, 0] + self._head_bytes(dealt[rank])
            for i in range(dealt[rank]):
                n = counts[shard]
                target.c.parts[shard].rows.n, target.c.parts[shard].start = n, at
                target.c.parts[shard].rows.x = <const float *>of
                of += _padded(4 * n * self.width)
                target.c.parts[shard].rows.y = <const double *>of
                of += _padded(8 * n)
                target.c.parts[shard].rows.bounds = <const double *>of
                of += _padded(8 * n * self.n_bounds)
                at += n
                shard += 1
        for i in range(at):
            target.c.gap_before[i] = float("nan")
        target.c.n_parts, target.c.n_rows, target.loaded = shard, at, [(self.everyones, 0)]

    def give_back(self, Target target, int64_t first):
        """Tell this rank's rows their gaps after a step of the target, which has loaded all. first: its first shard."""
        cdef Lights one
        cdef int64_t i, at
        for i in range(self.n_own):
            one, at = self.lights[i], target.c.parts[first + i].start
            if type(one) is not Lights:  # it may have a `set_gap` of its own
                one.set_gap(target.gap[at:at + one.c.now.n])
            elif one.c.now.n:
                memcpy(one.c.now.gap, target.c.gap_before + at, 8 * one.c.now.n)


def cycles_on_ranks(lights, Messages rows, int64_t first_shard, exchange, in_place_step, Target target, mover, theta,
                    tuning, double q_factor, bint explicit, int64_t n_steps, uint64_t seed, uint64_t first_cycle,
                    uint64_t chain, int64_t n_cycles, uint64_t adapting_until, int64_t n_rows, int64_t most, out):
    """Run `cycles` on several ranks: each sweeps its own shards, and all update theta alike.

    lights: of this rank, whose first shard is `first_shard`; rows: messages with them, None when the target has all
    rows. exchange(mine, everyones) is called once a cycle, again where rows had no room. If more than `most` rows are
    bright, in_place_step(step, cycle) updates theta instead; it returns (acceptance, evaluations). The others: as in
    `cycles`, with the same bits.
    """
    cdef double[::1] view = in_place("theta", theta, mover.n_parameters)
    cdef double[::1] knobs = in_place("tuning", tuning, len(start_tuning(1.0, 1.0)))
    cdef double[:, ::1] thetas = out["theta"]
    cdef double[::1] lp = out["lp"], acceptance = out["acceptance"], step_size = out["step_size"]
    cdef int64_t[::1] bright = out["bright"], queries_theta = out["queries_theta"], queries_z = out["queries_z"]
    cdef int64_t c, i, queries, looks, n_bright = n_rows
    cdef uint64_t cycle
    cdef double q, step
    cdef bint adapting
    for c in range(n_cycles):
        cycle, queries = first_cycle + c, 0
        adapting = cycle <= adapting_until
        step = knobs[0] if adapting else knobs[1]
        if rows is not None:
            q = proposal_rate(tuning, q_factor, n_rows)
            for i in range(rows.n_own):
                queries += lights[i].sweep(theta, q, explicit, seed, cycle, chain, first_shard + i)
            while True:
                rows.pack(theta, queries, most)
                exchange(rows.mine, rows.everyones)
                if rows.complete(most):
                    break
            n_bright, queries = rows.n_bright, rows.queries
        if rows is not None and n_bright <= most:
            rows.load(target)
            accept, looks = mover.step(target, theta, step, n_steps, seed, cycle, chain)
            rows.give_back(target, first_shard)
        else:
            accept, looks = in_place_step(step, cycle)
        if adapting:
            adapt(tuning, accept, n_bright, mover.goal)
        for i in range(view.shape[0]):
            thetas[c, i] = view[i]
        lp[c], acceptance[c], step_size[c] = target.c.log_density, accept, step
        bright[c], queries_theta[c], queries_z[c] = n_bright, looks * n_bright, queries
