"""`mpibayes run`, with its options."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
import sys

import click

from mpibayes.errors import EXIT_INTERNAL
from mpibayes.hpc.cli.shared import PATH, SET, Duration
from mpibayes.hpc.parallel.launcher import launcher_rank, launcher_size
from mpibayes.text import visible


@click.command(short_help="Run the sampler: start it, continue it or extend it.")
@click.argument("config", type=PATH)
@click.option("-o", "--out", type=PATH, help="Run directory.  [default: runs/<name of CONFIG>]")
@SET
@click.option("--max-time", type=Duration(), help="Stop at a checkpoint before this time: 3h50m, 90m, 1-02:00:00.")
@click.option("--until-settled", is_flag=True, help="End once the chains have settled, after run.cycles at the latest.")
@click.option("--fresh", is_flag=True, help="Start over; an existing run directory is renamed, never deleted.")
@click.option("--grow", is_flag=True, help="Take in rows that were appended to the table.")
@click.option("--ranks", type=click.IntRange(min=1), help="Number of ranks to start, by mpirun.  [default: run.ranks]")
def run(config, out, overrides, max_time, until_settled, fresh, grow, ranks):
    """Run the sampler: start, continue or extend a run.

    CONFIG is a table of data (CSV, Parquet, Excel, SPSS, ...; whatever `mpibayes import` reads), or a TOML file. For
    data, a typed table and a TOML file to edit are written beside the run directory.

    \b
    Examples:
      mpibayes run people.csv                                   imports it; two chains, default settings
      mpibayes run run.toml -o runs/a --max-time 3h50m          stops at a checkpoint before then
      mpibayes run run.toml --ranks 8                           the same as mpirun -n 8 mpibayes run run.toml
      mpirun -n 8 mpibayes run run.toml -o runs/a --set run.chains=4 --set run.cycles=20000 --until-settled
      mpibayes run run.toml -o runs/a --grow                    adds the rows appended to the table
      mpibayes run income.toml -o runs/d --set regression.prior_scale=heldout --set data.heldout=0.1

    The same command starts and continues a run. A finished run says so; a larger run.cycles extends it. If a setting
    that affects the posterior has changed, the run is refused, and the changes are listed. Ctrl-C, SIGTERM and
    SIGUSR1 write a checkpoint and end with exit code 75.

    The run starts ranks itself, one for each chain and shard but no more than there are cores; --ranks, run.ranks and
    the variable MPIBAYES_RANKS override that. Results are the same, bit for bit, on any number of ranks.

    \b
    How a chain starts, in CONFIG or with --set; the draws that count are exact in each case:
      sampler.strategy = "auto"         all rows in random clusters, most of which soon empty; the default
                         "anneal"       a few rows, then more and more, as anneal.schedule says
                         "sequential+gibbs", "prior+gibbs"    all rows, added one by one or drawn from the prior
      sampler.split_merge = 0           no split and merge moves: the last three are then the published strategies
      anneal.schedule = "linear"        in anneal.passes = 10 passes' work; or "geometric", "constant", "sequential",
                                        [[2, 0.1], [10, 1.0]] (a tenth of the rows after 2 passes, all after 10),
                                        or "seconds" with anneal.seconds = "10m" (by the clock: not reproducible)
      run.chains = 4                    each from its own start: other random clusters, searches, samples

    \b
    A regression of one column on others, by Firefly Monte Carlo, needs the first three keys:
      model.family = "regression"
      model.likelihood = "logistic"     two classes; or "softmax", "student-t" (outliers)
      regression.response = "income"    the column; regression.predictors = ["age", "job"], all others by default
      firefly.bounds = "tuned"          evaluates few rows; "none": all rows in every step
    """
    overrides = [*overrides, *(["run.until=settled"] if until_settled else []), *(["run.grow=true"] if grow else [])]
    if ranks is not None:
        from mpibayes.hpc.run.become import become_mpirun, words_of

        become_mpirun(ranks, words_of(config, out, overrides, max_time, fresh), f"--ranks {ranks}")
        overrides.append("run.ranks=1")
    if launcher_size() == 1:  # until the run watches signals; several processes note them meanwhile
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # until all modules are loaded
    try:
        from mpibayes.hpc.run.loop import main as start
    except Exception as error:  # a node with a broken installation; the other ranks may be waiting for this one
        if launcher_size() == 1:
            raise
        place = f"rank {launcher_rank()} ({socket.gethostname()})"
        words = f"mpibayes: error: {place}: the program cannot be loaded: {error}"
        print(visible(words), file=sys.stderr, flush=True)
        with contextlib.suppress(Exception):
            from mpibayes.hpc.parallel.comm import end_job

            end_job(EXIT_INTERNAL)
        return EXIT_INTERNAL

    try:
        return start(config, out, overrides, max_time, fresh)
    finally:
        gc.enable()
