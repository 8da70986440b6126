"""`mpibayes submit`, with its options."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from mpibayes.hpc.cli.shared import PATH, SET, Duration
from mpibayes.text import counted, visible


class TimeLimit(Duration):
    """A time limit as sbatch takes it, or in the form 3h50m."""

    def parse(self, text):
        from mpibayes.hpc.slurm.submit import limit

        return limit(text)


@click.command(short_help="Check a configuration and put it in SLURM's queue.")
@click.argument("config", type=PATH)
@click.option("-o", "--out", type=PATH, help="Run directory.  [default: runs/<name of CONFIG>]")
@SET
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--ntasks-per-node", type=click.IntRange(min=1), help="Ranks per node.  [default: one per shard]")
@click.option("--time", "time_s", type=TimeLimit(), default="4:00:00", show_default=True, help="Limit of one job.")
@click.option("--array", metavar="N", help='N chains with seeds 1 to N in OUT/seed-*, or as in sbatch: "1-10%3".')
@click.option("--chain", is_flag=True, help="One job after another, where jobs may not requeue themselves.")
@click.option("--partition", metavar="NAME")
@click.option("--account", metavar="NAME")
@click.option(
    "--mpi",
    type=click.Choice(["pmix", "pmi2", "mpirun"]),
    help="srun --mpi=..., or mpirun.  [default: pmi2 with the mpich wheel, else the site's default]",
)
@click.option("--setup", multiple=True, metavar="LINE", help="A line of the script: 'module load openmpi'. Repeatable.")
@click.option("--sbatch", multiple=True, metavar="OPTION", help="An option of sbatch: --sbatch=--qos=long. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Print the script; write and submit nothing.")
def submit(config, out, overrides, dry_run, **asked):
    """Check a configuration, write a batch script beside the run directory, and submit it with sbatch.

    The job writes a checkpoint before its time limit and puts itself back in the queue until the run is finished. The
    same command, or sbatch with the script, continues a run whose job was lost.

    \b
    Examples:
      mpibayes submit run.toml -o runs/a --nodes 4 --time 12:00:00 --setup "module load openmpi" --mpi pmix
      mpibayes submit run.toml -o runs/b --nodes 2 --ntasks-per-node 16 --sbatch=--mem-per-cpu=2G --dry-run
      mpibayes submit run.toml -o runs/c --array 4 --account physics
    """
    from mpibayes.hpc.run.examine import MIB
    from mpibayes.hpc.slurm.batch_script import Request, clock
    from mpibayes.hpc.slurm.queue import require_sbatch
    from mpibayes.hpc.slurm.submit import prepared, send

    request = Request(**asked)
    job = prepared(config, Path("runs") / config.stem if out is None else out, list(overrides), request)
    if job.warning:
        print(f"warning: {job.warning}", file=sys.stderr)
    if dry_run:
        print(job.text, end="")
        return
    require_sbatch(", or print the script with --dry-run")
    number, folder = send(job), job.folder
    ranks, nodes = counted(job.ranks, "rank"), counted(request.nodes, "node")
    print(f"job {number}: {ranks} on {nodes}, {clock(request.time_s)} a job")
    print(f"script:  {visible(job.script)}")
    print(f"log:     {visible(folder)}-{number}{'_N' if request.array else ''}.log")
    print(f"memory:  about {job.memory / MIB:.0f} MiB on the busiest rank; see mpibayes check")
    place = shlex.quote(str(folder))
    if request.array:
        print(f"status:  mpibayes status {place}/seed-N")
        print(f"report:  mpibayes report {place}/seed-* -o {place}/report")
    else:
        print(f"status:  mpibayes status {place}")
