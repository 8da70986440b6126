"""One rank among many that are not there: what a rank computes when there are P of them, measured on one process.

Collectives answer at once, as if all ranks were like this one: sums are its own times their number, and what is
gathered has its own part in its place and halves elsewhere. So all work in the interpreter and in the kernels that
grows with the number of ranks and shards is done and can be timed; only messages and waiting are missing. The chain
that comes out means nothing. The rank's shards must not be collapsed meanwhile: `quiet_seed`.
"""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.parallel import collapse, shards
from mpibayes.hpc.parallel.comm import Serial

HALF = 0.5  # what the others say: of all parameters, weights and hyperparameters a value that can be worked with


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

    def broadcast(self, array):
        if self.rank:
            array[...] = HALF if array.dtype.kind == "f" else 0

    def share_rows(self, array, starts):
        array[: starts[self.rank]] = HALF
        array[starts[self.rank + 1] :] = HALF

    def gather_to_root(self, array, lengths):
        if self.rank:
            return None
        whole = np.full((sum(lengths), *array.shape[1:]), HALF, array.dtype)
        whole[: len(array)] = array
        return whole


def quiet_seed(crowd: Crowd, n_shards: int, cycles: range) -> int:
    """A seed with which no shard of the rank is the collapsed one in any of these cycles."""
    mine, seed = shards.of_rank(n_shards, crowd.size, crowd.rank), 1
    while any(collapse.owners("one", seed, cycle, 0, 1, n_shards)[0] in mine for cycle in cycles):
        seed += 1
    return seed
