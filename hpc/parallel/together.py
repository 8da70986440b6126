"""A command that all ranks of a launcher work on together."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

from mpibayes.errors import MpibayesError
from mpibayes.hpc.parallel.comm import Communicator, end_job, names, world

T = TypeVar("T")


def together(work: Callable[[Communicator], T]) -> T | None:
    """work(comm), alone or on every rank. Raises its MpibayesError on root alone; other ranks then return None."""
    comm = None
    try:
        comm = world()
        return work(comm)
    except MpibayesError as error:
        if comm is None or comm.size == 1:
            raise
        # others may not know: do not leave them waiting, nor speak where root does
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
