"""`mpibayes doctor`, with its options."""

from __future__ import annotations

import click

from mpibayes.hpc.cli.shared import PATH


@click.command(short_help="Examine the machine, the launcher and a directory.")
@click.argument("directory", default=".", metavar="[DIR]", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Duration of the message test."
)
def doctor(directory, as_json, seconds):
    """Examine what a run needs: one line per check, with ok, warning or problem, and what to do.

    It checks versions, kernels, HDF5, the MPI library and whether it fits the launcher, ranks and threads against
    cores, the time left to the batch job, the speed of messages between ranks, and DIR (the current directory, or where
    a run is to write): can all ranks write, flush, rename and lock there, and see the files? Start it as you start the
    run. Every check has a time limit.

    \b
    Exit code, of the worst finding:
      0  no problem, or only warnings
      2  a problem of the set-up: launcher and MPI library do not match, versions differ, a check did not end
      4  DIR cannot hold a run: it cannot be written, or not all ranks see it

    \b
    Examples:
      mpibayes doctor                        on a login node; needs no MPI
      mpirun -n 8 mpibayes doctor runs
      srun --mpi=pmix mpibayes doctor /scratch/me/runs --json
    """
    from mpibayes.hpc.doctor.doctor import doctor as examine

    return examine(directory, as_json, seconds)
