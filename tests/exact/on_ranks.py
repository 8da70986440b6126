"""Results of all ranks of mpirun, beside those of one process."""

from collections.abc import Callable
from typing import Any

from mpibayes.hpc.parallel.comm import Communicator, serial, world


def require_the_same(made: Callable[[Communicator], Any], *case) -> None:
    """Fail unless made(comm), which root holds, is the same on all ranks and on one. Collective."""
    comm = world()
    together = made(comm)
    alone = made(serial()) if comm.rank == 0 else None
    assert comm.share(together) == comm.share(alone), case
