"""`mpibayes run`, and the verbs beside it: check, submit, doctor and status. Their options."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from pathlib import Path

import click

from mpibayes.errors import EXIT_INTERNAL
from mpibayes.hpc.cli.shared import PATH, SET, Duration
from mpibayes.hpc.parallel.launcher import launcher_rank, launcher_size
from mpibayes.text import visible


@click.command(short_help="Run the sampler: start it, continue it or extend it.")
@click.argument("config", type=PATH)
@click.option("-o", "--out", type=PATH, help="Run directory.  [default: runs/<name of CONFIG>]")
@SET
@click.option("--max-time", type=Duration(), help="Stop at a checkpoint before this is over: 3h50m, 90m, 1-02:00:00.")
@click.option("--until-settled", is_flag=True, help="End once the chains agree, after run.cycles at the latest.")
@click.option("--fresh", is_flag=True, help="Start over; an existing run directory is renamed, never deleted.")
@click.option("--ranks", type=click.IntRange(min=1), help="Start so many ranks, by mpirun.  [default: run.ranks]")
def run(config, out, overrides, max_time, until_settled, fresh, ranks):
    """Run the sampler on this machine, or under mpirun: start it, continue it, or extend it.

    CONFIG is a TOML file, or data as it is: a table, or whatever `mpibayes import` reads (CSV, Parquet, Excel, SPSS,
    ...). Then the table and a TOML file to edit are made beside the run directory.

    The same command makes the first start and every later one. A run that is finished says so; a larger run.cycles
    extends it; a configuration that would change the statistics is refused, with the differences. SIGUSR1, SIGTERM and
    Ctrl-C lead to a checkpoint and exit code 75. Results are the same, bit for bit, on any number of ranks. On several
    ranks chains run side by side (run.groups). Without mpirun or srun the run starts ranks itself: one for each chain
    and shard, as far as there are cores; run.ranks, --ranks and the variable MPIBAYES_RANKS say otherwise.

    \b
    How a chain starts, in CONFIG or with --set; whatever it is, the cycles that count are exact:
      sampler.strategy = "auto"         all rows in one cluster, which split and merge moves take apart; the default
                         "anneal"       few rows, and more as anneal.schedule says, while rows come and go
                         "sequential+gibbs", "prior+gibbs"    all rows, seated one by one, or drawn from the prior
      sampler.split_merge = 0           no such moves: the last three are then the published strategies alone
      anneal.schedule = "linear"        in anneal.passes = 10 passes' work; or "geometric", "constant", "sequential",
                                        [[2, 0.1], [10, 1.0]] (a tenth of the rows after 2 passes, all after 10),
                                        or "seconds" with anneal.seconds = "10m" (the clock decides: no two runs alike)
      run.chains = 4                    overdispersed starts: one cluster, and random numbers of random clusters

    \b
    A regression of one column on others instead of a mixture, by Firefly Monte Carlo; it needs these three keys:
      model.family = "regression"
      model.likelihood = "logistic"     two classes; or "softmax", "student-t" (outliers)
      regression.response = "income"    the column; regression.predictors = ["age", "job"], all others by default
      firefly.bounds = "tuned"          few rows are looked at; "none": all of them in every step

    \b
    Examples:
      mpibayes run people.csv                                   import it, two chains, default settings
      mpibayes run run.toml --ranks 1                           one process
      mpibayes run run.toml --ranks 8                           the same as mpirun -n 8 mpibayes run run.toml
      mpirun -n 8 mpibayes run run.toml -o runs/a --max-time 3h50m
      mpirun -n 8 mpibayes run run.toml -o runs/a --set run.chains=4 --set run.cycles=20000 --until-settled
      mpirun -n 8 mpibayes run run.toml -o runs/b --set run.seed=3 --set run.cycles=5000
      mpirun -n 8 mpibayes run run.toml -o runs/c --set sampler.strategy=anneal --set anneal.passes=20
      mpirun -n 8 mpibayes run income.toml -o runs/d --set regression.prior_scale=heldout --set data.heldout=0.1
    """
    overrides = [*overrides, *(["run.until=settled"] if until_settled else [])]
    if ranks is not None:
        from mpibayes.hpc.run.become import become_mpirun, words_of

        become_mpirun(ranks, words_of(config, out, overrides, max_time, fresh), f"--ranks {ranks}")
        overrides.append("run.ranks=1")
    if launcher_size() == 1:  # until the run watches signals; several processes note them meanwhile
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from mpibayes.hpc.run.loop import main as start
    except Exception as error:  # a node with half an installation; the other ranks may be waiting for this one
        if launcher_size() == 1:
            raise
        place = f"rank {launcher_rank()} ({socket.gethostname()})"
        words = f"mpibayes: error: {place}: the program cannot be loaded: {error}"
        print(visible(words), file=sys.stderr, flush=True)
        with contextlib.suppress(Exception):
            from mpibayes.hpc.parallel.comm import end_job

            end_job(EXIT_INTERNAL)
        return EXIT_INTERNAL

    return start(config, out, overrides, max_time, fresh)


@click.command(short_help="Check a configuration; predict memory, time and disk.")
@click.argument("config", type=PATH)
@SET
@click.option("--ranks", type=click.IntRange(min=1), help="Ranks to plan for.  [default: those that `run` starts]")
def check(config, overrides, ranks):
    """Check a configuration and its table; predict memory, time and disk. Needs no MPI.

    Without --ranks it supposes those that `mpibayes run` starts itself on this machine, and says how many.

    It also says how the chain starts, until which cycle an annealed one adds rows, from which cycle draws count, and
    the seconds a cycle and efficiency at several numbers of ranks.

    \b
    Examples:
      mpibayes check run.toml --ranks 16 --set run.cycles=5000
      mpibayes check run.toml --set sampler.strategy=anneal --set anneal.passes=20
    """
    from mpibayes.hpc.cli.check import check as look

    look(config, list(overrides), ranks)


class TimeLimit(Duration):
    """A time limit as sbatch takes it, or such as 3h50m."""

    def parse(self, text):
        from mpibayes.hpc.slurm.submit import limit

        return limit(text)


@click.command(short_help="Check a configuration and put it in SLURM's queue.")
@click.argument("config", type=PATH)
@click.option("-o", "--out", type=PATH, help="Run directory.  [default: runs/<name of CONFIG>]")
@SET
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--ntasks-per-node", type=click.IntRange(min=1), help="Ranks on a node.  [default: a rank a shard]")
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
    from mpibayes.hpc.slurm.batch_script import Request
    from mpibayes.hpc.slurm.submit import submit as send

    send(config, Path("runs") / config.stem if out is None else out, list(overrides), Request(**asked), dry_run)


@click.command(short_help="Examine the machine, the launcher and a directory.")
@click.argument("directory", default=".", metavar="[DIR]", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Length of the test of messages."
)
def doctor(directory, as_json, seconds):
    """Examine what a run needs: one line a check, with ok, warning or problem, and what to do.

    Versions, kernels, HDF5, the MPI library and whether it fits the launcher, ranks and threads against cores, the
    batch job and its end, DIR (the current one, or where a run is to write): written, flushed, renamed, locked, seen by
    all ranks; and how long messages between ranks take. Start it as you start the run. Every check has a time limit.

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


@click.command(short_help="Show how far a run is, from any node.")
@click.argument("run_dir", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def status(run_dir, as_json):
    """Show how far a run is, from any node that sees its directory.

    \b
    Examples:
      mpibayes status runs/a
      mpibayes status runs/a --json
    """
    from mpibayes.hpc.run.status import show_status

    show_status(run_dir, as_json)
