"""A trial of ranks: does an mpirun of this machine start ranks that find each other, and with which MPI library?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

LIMIT_S = 20.0
# Root prints the number of ranks and the MPI library; root alone, so that no launcher mixes the output of several
# ranks.
PROBE = """from mpi4py.MPI import COMM_WORLD, Get_library_version
if COMM_WORLD.rank == 0:
    print(f"{COMM_WORLD.size} {Get_library_version().split()[0]}")"""


def meeting(program: str, n_ranks: int) -> str | None:
    """Return the MPI library of ranks started by `program`, an mpirun; None if they do not start or do not find each
    other."""
    command = [program, "-n", str(n_ranks), sys.executable, "-P", "-c", PROBE]
    quiet = subprocess.DEVNULL
    try:
        with subprocess.Popen(
            command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, text=True, start_new_session=True
        ) as process:
            try:
                size, _, name = process.communicate(timeout=LIMIT_S)[0].strip().partition(" ")
            except BaseException:  # a launcher that waits for ever, or Ctrl-C
                os.killpg(process.pid, signal.SIGKILL)
                raise
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return name if process.returncode == 0 and size == str(n_ranks) else None
