"""The parts of a long question, dealt to the ranks: each part is worked out whole by one of them, and all have the
results in the order of the parts. What a part is does not depend on the ranks, so that answers have the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mpibayes.hpc.parallel.comm import Communicator, agree

T = TypeVar("T")


def dealt(comm: Communicator, n_parts: int, work: Callable[[int], T]) -> list[T]:
    """work(i), picklable, of the parts 0..n_parts-1, on every rank. Collective; `work` holds no collective. Where it
    fails on some rank all raise the same error."""
    if comm.size == 1:
        return [work(i) for i in range(n_parts)]
    mine = agree(comm, lambda: [work(i) for i in range(comm.rank, n_parts, comm.size)], "answer its share")
    of_ranks = comm.collect(mine)
    return [of_ranks[i % comm.size][i // comm.size] for i in range(n_parts)]
