"""A command that all ranks of a launcher work on together, and parts of its work dealt to ranks."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

from mpibayes.errors import MpibayesError
from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.parallel.comm import Communicator, end_job, names, world

T = TypeVar("T")


def together(work: Callable[[Communicator], T]) -> T | None:
    """Return work(comm), alone or on every rank. Raises its MpibayesError on root alone; other ranks return None."""
    comm = None
    try:
        comm = world()
        return work(comm)
    except MpibayesError as error:
        if comm is None or comm.size == 1:
            raise
        # other ranks may not know of the error: do not leave them waiting, and print nothing if root does
        if not comm.wait_for_all(60.0 if error.shared else 5.0):
            print(f"mpibayes: error: {names(comm, [comm.rank])}: {error}", file=sys.stderr, flush=True)
            comm.abort(error.exit_code)
        if comm.rank == 0:
            raise
        return None
    except Exception:
        if comm is not None and comm.size > 1:
            traceback.print_exc()
            end_job(70)
        raise


def dealt(comm: Communicator, n_parts: int, work: Callable[[int], T]) -> list[T]:
    """Return work(i), picklable, for parts 0..n_parts-1 in order, on every rank. Each part is computed by one rank, so
    that results do not depend on the ranks. Collective; `work` holds no collective. If it fails on any rank, all raise
    the same error."""
    if comm.size == 1:
        return [work(i) for i in range(n_parts)]
    mine = agree(comm, lambda: [work(i) for i in range(comm.rank, n_parts, comm.size)], "answer its share")
    of_ranks = comm.collect(mine)
    return [of_ranks[i % comm.size][i // comm.size] for i in range(n_parts)]
