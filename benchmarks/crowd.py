"""One rank among many that are not there: what a rank computes when there are P of them, measured on one process.

Collectives answer at once, as if all ranks were like this one: sums are its own times their number, and what is
gathered has its own part in its place and zeros elsewhere. So all work in the interpreter and in the kernels that grows
with the number of ranks and shards is done and can be timed; only messages and waiting are missing. The chain that
comes out means nothing. The rank's shards must not be collapsed meanwhile: `quiet_seed`.
"""

from __future__ import annotations

import numpy as np

from mpibayes.hpc import schedule, shards
from mpibayes.hpc.comm import Serial


class Crowd(Serial):
    """The communicator of rank `rank` among `size`."""

    def __init__(self, size: int, rank: int):
        super().__init__()
        self.size, self.rank = size, rank
        self.hosts *= size

    def collect(self, value):
        return [value]

    def sum_everywhere(self, array):
        array *= self.size

    def send(self, array, to):
        return lambda: None

    def receive(self, array, source):
        array[...] = 0
        return array

    def gather_everywhere(self, array, lengths):
        whole = np.zeros((sum(lengths), *array.shape[1:]), array.dtype)
        start = sum(lengths[: self.rank])
        whole[start : start + len(array)] = array
        return whole

    def gather_to_root(self, array, lengths):
        return self.gather_everywhere(array, lengths) if self.rank == 0 else None


def quiet_seed(crowd: Crowd, n_shards: int, cycles: range) -> int:
    """A seed with which no shard of the rank is the collapsed one in any of these cycles."""
    mine, seed = shards.of_rank(n_shards, crowd.size, crowd.rank), 1
    while any(schedule.collapsed_shard(seed, cycle, 0, n_shards) in mine for cycle in cycles):
        seed += 1
    return seed
