"""The command `mpibayes`: its commands and options, and the exit code.

`run` and `query` use MPI. Each command imports what it needs when it is called, so that `mpibayes --help` is fast and
works on a login node without an MPI library.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from mpibayes import __version__
from mpibayes.errors import MpibayesError
from mpibayes.hpc.commands.query_verbs import VERBS
from mpibayes.hpc.parallel.launcher import launcher_rank, launcher_size
from mpibayes.hpc.run import signals
from mpibayes.text import counted, visible, visible_lines

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
KINDS = ("categorical", "boolean", "real", "count")
INTERNAL_ERROR, INTERRUPTED = 70, 130

EXIT_CODES = """
\b
Exit codes:
  0   done
  2   configuration or usage
  3   data: a table or input file cannot be used
  4   checkpoint: no generation of the run is usable
  5   numerical failure
  70  internal error (please report it; MPIBAYES_DEBUG=1 shows the traceback of any error)
  75  stopped early at a checkpoint: run the same command again to continue
  130 interrupted
"""


class ReaderLeft(Exception):
    """Standard output was closed by its reader."""


@contextlib.contextmanager
def reader_may_leave():
    """Raises ReaderLeft for a BrokenPipeError, of which click would make an exit with 1, and for rich's exit with 1."""
    try:
        yield
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        raise ReaderLeft from error


class Commands(click.Group):
    """A group that names the nearest command for one that does not exist."""

    def make_context(self, *args, **more):
        with reader_may_leave():  # it prints --help and --version
            return super().make_context(*args, **more)

    def invoke(self, ctx):
        with reader_may_leave():
            return super().invoke(ctx)

    def resolve_command(self, ctx, args):
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1, 0.5)
            hint = f"did you mean '{near[0]}'?" if near else f"commands are {', '.join(self.list_commands(ctx))}"
            raise click.UsageError(f"there is no command '{args[0]}'; {hint}", ctx) from error

    def list_commands(self, ctx):
        return list(self.commands)  # in the order of use, not alphabetical


class Duration(click.ParamType):
    """A length of time, such as 3h50m."""

    name = "time"

    def convert(self, value, param, ctx):
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def parse(self, text):
        from mpibayes.hpc.config.section import parse_duration

        return parse_duration(text)


@click.group(cls=Commands, context_settings=CONTEXT, epilog=EXIT_CODES)
@click.version_option(__version__, prog_name="mpibayes")
@click.pass_context
def cli(ctx):
    """Exact Bayesian mixtures and regressions of very large tables.

    \b
    Five steps from a file to an answer:
      mpibayes import people.csv people.h5            a typed table: categories, reals, counts, missing cells
      mpibayes check run.toml --ranks 8               is the configuration right; time and memory
      mpirun -n 8 mpibayes run run.toml -o runs/a     start, or continue: the same command every time
      mpibayes status runs/a                          how far it is, from any node
      mpibayes report runs/a                          tables and pictures of the posterior

    \b
    The shortest run.toml:
      [data]
      table = "people.h5"
    """
    if ctx.invoked_subcommand not in ("run", "query", "doctor") and launcher_rank() > 0:
        ctx.exit(0)  # only these work together; under a launcher one copy of the others is enough
    if ctx.invoked_subcommand != "run" and launcher_size() > 1:
        signals.act()


SET = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of CONFIG; VALUE is TOML, or plain text: run.seed=3, sampler.strategy=anneal, "
    "'anneal.schedule=[[2, 0.1], [10, 1.0]]'. Repeatable.",
)
TABLE = click.option(
    "--table", type=click.Path(path_type=Path), help="Where the run's table is now, if it has been moved."
)


@cli.command("import", short_help="Turn CSV or Parquet into a typed table, or triples into a sparse one.")
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path))
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what each column would become, and why; write no table.")
@click.option("--schema", type=click.Path(path_type=Path), help="Column kinds from this TOML file, not inferred.")
@click.option("--write-schema", type=click.Path(path_type=Path), help="Write the resulting schema, to edit.")
@click.option(
    "--kind", "kinds", multiple=True, metavar="COLUMN=KIND", help=f"{', '.join(KINDS)} or ignored. Repeatable."
)
@click.option("--keep", multiple=True, metavar="COLUMN", help="Keep a column that would be left out.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Leave a column out.")
@click.option(
    "--missing",
    multiple=True,
    metavar="TEXT",
    help="Text of a missing cell, besides ?, NA, NaN and empty; -999 is -999.0, too. Repeatable.",
)
@click.option("--decimal", type=click.Choice([".", ","]), help="Of numbers such as 1,5; detected if not given.")
@click.option("--thousands", type=click.Choice([",", ".", " ", "'"]), help="As in 1,234,567; detected if not given.")
@click.option("--dates", type=click.Choice(["day-first", "month-first"]), help="5/1/2024; detected if possible.")
@click.option(
    "--calendar", multiple=True, metavar="COLUMN", help="Weekday, month and hour of its dates, as columns. Repeatable."
)
@click.option("--delimiter", metavar="CHAR", help="Field separator; detected if not given. Write a tab as '\\t'.")
@click.option("--header/--no-header", default=None, help="Whether the first line has names; detected if not given.")
@click.option("--names", help="Column names separated by commas, or a file with one a line.")
@click.option("--encoding", help="Of the text.  [default: utf-8]")
@click.option("--sparse", is_flag=True, help="SOURCES are counts or ratings of pairs: see below.")
@click.option("--vocabulary", metavar="FILE", help="Sparse: ids of the columns, one a line.")
@click.option("--row-ids", metavar="FILE", help="Sparse: ids of the rows, one a line.")
@click.option("--force", is_flag=True, help="Replace TABLE if it exists.")
@click.option("-v", "--verbose", is_flag=True, help="Print all columns of a wide table, and all warnings.")
@click.pass_context
def import_(
    ctx, sources, table, dry_run, schema, write_schema, kinds, keep, drop, missing, decimal, thousands, dates, calendar,
    delimiter, header, names, encoding, sparse, vocabulary, row_ids, force, verbose,
):  # fmt: skip
    """Turn CSV or Parquet into a typed table, TABLE, which --dry-run does not need.

    SOURCES are one or several files with the same columns, plain or compressed (gzip, xz, zstd). They are read twice:
    once to decide each column's kind from all its text, once to write. Constant columns, identifiers and what cannot
    be used are left out, and reported.

    \b
    Examples:
      mpibayes import people.csv --dry-run                                 a look: no table is written
      mpibayes import people.csv.gz people.h5
      mpibayes import people.csv people.h5 --missing -9 --missing unknown --kind zip=categorical
      mpibayes import visits.csv visits.h5 --dates day-first --calendar arrival
      mpibayes import people.csv people.h5 --write-schema schema.toml      look at it, edit it, and
      mpibayes import people.csv people.h5 --schema schema.toml --force    give it back

    \b
    With --sparse, counts of words in documents, or users' ratings of items (model.family = "svi"):
      mpibayes import --sparse docword.kos.txt.gz kos.h5 --vocabulary vocab.kos.txt    UCI bag of words
      mpibayes import --sparse matrix.mtx m.h5            Matrix Market; or matrix.npz, of scipy.sparse
      mpibayes import --sparse ratings.dat r.h5 --names user,movie,rating,time    lines of 3 or 4 fields: CSV, tab, ::
    """
    if dry_run:
        from mpibayes.io.table import SUFFIXES

        sources = sources if table.suffix.lower() in SUFFIXES else (*sources, table)  # it needs no table
    if not sources:
        raise click.UsageError(
            f"Missing argument 'TABLE': where {table} is to be written; or look at it with --dry-run"
        )
    if sparse:
        return _import_sparse(ctx, sources, table, vocabulary, row_ids, names, delimiter, header, encoding, force)
    if vocabulary is not None or row_ids is not None:
        raise click.UsageError(f"{'--vocabulary' if vocabulary is not None else '--row-ids'}: only with --sparse")
    from mpibayes.io.ingest import import_table, look_at
    from mpibayes.io.summary import print_summary

    console = _console()
    with _import_progress(console) as progress:
        summary = (look_at if dry_run else partial(import_table, out=table))(
            list(sources),
            schema=schema,
            write_schema=write_schema,
            delimiter="\t" if delimiter == "\\t" else delimiter,
            header=header,
            encoding=encoding,
            missing=list(missing),
            decimal=decimal,
            thousands=thousands,
            dates=dates,
            calendar=list(calendar),
            kinds=dict(_column_and_kind(item) for item in kinds),
            keep=list(keep),
            drop=list(drop),
            names=_names(names),
            overwrite=force,
            progress=progress,
        )
    print_summary(summary, console, verbose)


OF_SPARSE = {"sources", "table", "sparse", "vocabulary", "row_ids", "names", "delimiter", "header", "encoding", "force"}


def _import_sparse(ctx, sources, table, vocabulary, row_ids, names, delimiter, header, encoding, force):
    from mpibayes.io.sparse_import import import_sparse, print_sparse

    given = {name for name in ctx.params if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE}
    if idle := sorted(f"--{name.replace('_', '-')}" for name in given - OF_SPARSE - {"verbose"}):
        raise click.UsageError(f"{', '.join(idle)}: no use with --sparse")
    with _import_progress(_console()) as progress:
        summary = import_sparse(
            list(sources), table, vocabulary=vocabulary, row_ids=row_ids,
            names=None if names is None else [name.strip() for name in names.split(",")],
            delimiter="\t" if delimiter == "\\t" else delimiter, header=header, encoding=encoding, overwrite=force,
            progress=progress and (lambda phase, rows, share: progress("reading entries", rows, share)),
        )  # fmt: skip
    print_sparse(summary)


def _console():
    """Standard output."""
    from mpibayes.terminal import output

    return output()


def _column_and_kind(item: str) -> tuple[str, str]:
    column, equals, kind = item.rpartition("=")
    if not equals or not column:
        raise click.UsageError(f"--kind {item}: expected COLUMN=KIND, for example --kind zip=categorical")
    return column, kind


def _names(text: str | None) -> str | list[str] | None:
    """A file of names, or the names themselves."""
    if text is None or (os.path.exists(text) and not os.path.isdir(text)):  # it may be a pipe: <(...)
        return text
    return [name.strip() for name in text.split(",")]


@contextlib.contextmanager
def _import_progress(console):
    """On a terminal, a line with the progress of the import; else nothing."""
    if not console.is_terminal:
        yield None
        return
    with console.status("reading") as live:
        yield lambda phase, rows, share: live.update(f"{phase}: {rows:,} rows, {share:.0%} of the input")


@cli.command(short_help="Run the sampler: start it, continue it or extend it.")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Run directory.  [default: runs/<name of CONFIG>]")
@SET
@click.option("--max-time", type=Duration(), help="Stop at a checkpoint before this is over: 3h50m, 90m, 1-02:00:00.")
@click.option("--until-settled", is_flag=True, help="End once the chains agree, after run.cycles at the latest.")
@click.option("--fresh", is_flag=True, help="Start over; an existing run directory is renamed, never deleted.")
def run(config, out, overrides, max_time, until_settled, fresh):
    """Run the sampler, alone or under mpirun: start it, continue it, or extend it.

    CONFIG is a TOML file, or data as it is: CSV, Parquet or a table. Then the table and a TOML file to edit are made
    beside the run directory.

    The same command makes the first start and every later one. A run that is finished says so; a larger run.cycles
    extends it; a configuration that would change the statistics is refused, with the differences. SIGUSR1, SIGTERM and
    Ctrl-C lead to a checkpoint and exit code 75. Results are the same, bit for bit, on any number of ranks.

    \b
    How a chain starts, in CONFIG or with --set; whatever it is, the cycles that count are exact:
      sampler.strategy = "auto"         all rows in one cluster, which split and merge moves take apart; the default
                         "anneal"       few rows, and more as anneal.schedule says, while rows come and go
                         "sequential+gibbs", "prior+gibbs"    all rows, seated one by one, or drawn from the prior
      sampler.split_merge = 0           no such moves: the last three are then the published strategies alone
      anneal.schedule = "linear"        in anneal.passes = 10 passes' work; or "geometric", "constant", "sequential",
                                        [[2, 0.1], [10, 1.0]] (a tenth of the rows after 2 passes, all after 10),
                                        or "seconds" with anneal.seconds = "10m" (the clock decides: no two runs alike)
      anneal.strata = "clusters"        or a categorical column: rows of rare kinds come in early
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
      mpibayes run run.toml                                     one process, no MPI needed
      mpirun -n 8 mpibayes run run.toml -o runs/a --max-time 3h50m
      mpirun -n 8 mpibayes run run.toml -o runs/a --set run.chains=4 --set run.cycles=20000 --until-settled
      mpirun -n 8 mpibayes run run.toml -o runs/b --set run.seed=3 --set run.cycles=5000
      mpirun -n 8 mpibayes run run.toml -o runs/c --set sampler.strategy=anneal --set anneal.strata=protocol
      mpirun -n 8 mpibayes run income.toml -o runs/d --set regression.prior_scale=heldout --set data.heldout=0.1
    """
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

            end_job(INTERNAL_ERROR)
        return INTERNAL_ERROR

    return start(config, out, [*overrides, *(["run.until=settled"] if until_settled else [])], max_time, fresh)


@cli.command(short_help="Check a configuration; predict memory, time and disk.")
@click.argument("config", type=click.Path(path_type=Path))
@SET
@click.option("--ranks", type=click.IntRange(min=1), default=1, show_default=True, help="Ranks to plan for.")
def check(config, overrides, ranks):
    """Check a configuration and its table; predict memory, time and disk. Needs no MPI.

    It also says how the chain starts, until which cycle an annealed one adds rows, from which cycle draws count, and
    the seconds a cycle and efficiency at several numbers of ranks.

    \b
    Examples:
      mpibayes check run.toml --ranks 16 --set run.cycles=5000
      mpibayes check run.toml --set sampler.strategy=anneal --set anneal.passes=20
    """
    from mpibayes.hpc.commands.check import check as look

    look(config, list(overrides), ranks)


class TimeLimit(Duration):
    """A time limit as sbatch takes it, or such as 3h50m."""

    def parse(self, text):
        from mpibayes.hpc.commands.submit import limit

        return limit(text)


@cli.command(short_help="Check a configuration and put it in SLURM's queue.")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Run directory.  [default: runs/<name of CONFIG>]")
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
    from mpibayes.hpc.commands.batch_script import Job
    from mpibayes.hpc.commands.submit import submit as send

    send(config, Path("runs") / config.stem if out is None else out, list(overrides), Job(**asked), dry_run)


@cli.command(short_help="Examine the machine, the launcher and a directory.")
@click.argument("directory", default=".", metavar="[DIR]", type=click.Path(path_type=Path))
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
    from mpibayes.hpc.commands.doctor.doctor import doctor as examine

    return examine(directory, as_json, seconds)


@cli.command(short_help="Show how far a run is, from any node.")
@click.argument("run_dir", type=click.Path(path_type=Path))
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


@cli.command(short_help="Summarise the posterior in tables and pictures.")
@click.argument("run_dirs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Folder of the report.  [default: RUN_DIR/report]")
@click.option("--burn-in", type=click.IntRange(min=0), help="Cycles to leave out.  [default: run.burn_in]")
@click.option("--full", is_flag=True, help="Print the whole text of report.txt.")
@TABLE
def report(run_dirs, out, burn_in, full, table):
    """Summarise the posterior: of a mixture its clusters and what characterises them, of a regression its coefficients
    and odds ratios; held-out score, traces, R-hat and effective draws of both.

    The terminal has the verdict; report.html is to be looked at, report.txt has all in words. Several run directories
    are taken as chains of one posterior.

    \b
    Examples:
      mpibayes report runs/a
      mpibayes report runs/a runs/b -o both --burn-in 500
    """
    from mpibayes.hpc.commands.report import report as write

    write(list(run_dirs), out=out, burn_in=burn_in, table=table, console=_console(), full=full)


@cli.command(short_help="Write clusters, features or draws for other programs.")
@click.argument("run_dirs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--to",
    type=click.Choice(["clusters", "features", "factors", "topics", "arviz", "labels", "csv"]),
    required=True,
    help="The form, see above.",
)
@click.option("-o", "--out", help="The file; - is standard output.  [default: standard output; trace.h5 for arviz]")
@click.option("--burn-in", type=click.IntRange(min=0), help="Cycles of burn-in.  [default: run.burn_in; csv: 0]")
@click.option("--timings/--no-timings", default=True, help="Keep the columns of csv that are times.  [default: keep]")
@TABLE
def export(run_dirs, to, out, burn_in, timings, table):
    """Write clusters, features or draws for other programs. Burn-in is left out; arviz has it in groups of its own.

    \b
    Forms:
      clusters  CSV, one line a training row: its cluster in the report and the probability of that; mixtures only
      arviz     one HDF5 file that ArviZ and xarray open (posterior, sample_stats, kept_draws, and their warm-up)
      labels    text, one kept draw a line: the cluster of each training row, in table order; mixtures only
      features  text, one kept draw a line: a string of 0 and 1 a feature, of the rows that have it; ibp only
      topics    CSV, one line a topic and word: the topic's share, the word's probability in it; topics only
      factors   CSV, one line a user and an item: its bias and its factors; ratings only
      csv       CSV, one line a cycle: each scalar of the trace in a column; coefficients as theta[age]

    \b
    Examples:
      mpibayes export runs/a --to clusters -o clusters.csv
      mpibayes export runs/a --to labels -o labels.txt --burn-in 0
      mpibayes export runs/a --to csv --no-timings | head
      mpibayes export runs/a runs/b --to arviz -o both.h5
    """
    from mpibayes.hpc.commands.export import export as write

    done = write(list(run_dirs), to, out=out, burn_in=burn_in, timings=timings, table=table)
    for note in done.notes:
        click.echo(f"mpibayes: note: {visible(note)}", err=True)
    for path in done.paths:
        click.echo(visible(path), err=True)


@cli.command(short_help="Score new rows: clusters, missing cells, or the response.")
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.argument("source", required=False, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="A .csv, .csv.gz or .parquet file: a line a row.")
@click.option(
    "--complete",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write SOURCE in its own format with its gaps filled, and the cluster of each row beside it.",
)
@click.option("--probabilities", is_flag=True, help="Mixtures: a column for each cluster's probability.")
@click.option("--impute", is_flag=True, help="Mixtures: fill in missing cells, with their uncertainty.")
@click.option(
    "--unseen",
    type=click.Choice(["missing", "error"]),
    default="missing",
    show_default=True,
    help="A level that the run's table does not have: a missing cell, which is counted, or an error.",
)
@click.option("--draws", type=click.IntRange(min=1), help="Draws to average over.  [default: 50; regressions: 200]")
@click.option(
    "--top", type=click.IntRange(min=1), help="Ratings: so many items for each user of SOURCE, or --user, or all."
)
@click.option("--user", "users", multiple=True, metavar="ID", help="Ratings: a user to recommend to; may be repeated.")
@click.option("--burn-in", type=click.IntRange(min=0), help="Cycles to leave out.  [default: run.burn_in]")
@TABLE
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def predict(
    run_dir, source, out, complete, probabilities, impute, unseen, draws, top, users, burn_in, table, force
):  # fmt: skip
    """Predict new rows, averaged over draws: of a mixture the log predictive density, the cluster and missing cells; of
    a regression class probabilities, or mean, sd and quantiles of the response.

    SOURCE is a typed table, CSV or Parquet with the table's columns, of a regression with its predictors at least; it
    is streamed. Columns that it lacks are missing cells. --complete fills in the most probable level, or the mean as
    the column was recorded (in its steps, an atom where that is more probable); of a regression, the response.

    \b
    Examples:
      mpibayes predict runs/a new.csv -o scored.csv
      mpibayes predict runs/a new.csv --complete filled.csv
      mpibayes predict runs/a new.parquet -o scored.parquet --impute --unseen error
      mpibayes predict runs/news new.h5 -o topics.csv                    topics of new documents
      mpibayes predict runs/films pairs.csv -o ratings.csv               ratings of (user, item) pairs
      mpibayes predict runs/films --top 10 --user 17 -o for_17.csv       what a user would rate highest
    """
    from mpibayes.hpc.commands.predict import predict as score

    score(
        run_dir,
        source,
        out,
        complete=complete,
        unseen=unseen,
        draws=draws,
        burn_in=burn_in,
        table=table,
        probabilities=probabilities,
        impute=impute,
        top=top,
        users=users,
        overwrite=force,
    )


@cli.group(cls=Commands, short_help="Ask the posterior: conditionals, missing cells, odd cells, what belongs together.")
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.pass_context
def query(ctx, run_dir):
    """Ask the posterior of RUN_DIR: a mixture, a cross-categorization, features or a regression.

    Answers are averages over kept draws, with their Monte Carlo errors. Probabilities are those of values as they were
    recorded. A condition is COLUMN=VALUE, a range COLUMN=LOW..HIGH (either end may be left out), or one of several
    levels, COLUMN=A|B.

    \b
    Examples:
      mpibayes query runs/a logp --of income=high --given age=40..50 --given sex=F
      mpibayes query runs/a conditional income --given age=40 -o income.png
      mpibayes query runs/a simulate -n 1000 --given income=high --seed 1 -o rows.csv
    """
    ctx.obj = run_dir


for verb in VERBS:
    query.add_command(verb)


class LevelRange(click.ParamType):
    """A number of levels, such as 5, or a range of them, such as 2-18."""

    name = "levels"

    def convert(self, value, param, ctx):
        from mpibayes.hpc.commands.simulate import parse_levels

        try:
            return value if isinstance(value, tuple) else parse_levels(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _a_number(ctx, param, value: float) -> float:
    """A range lets NaN through."""
    if value != value:
        raise click.BadParameter("nan is not a number.", ctx, param)
    return value


def _simulated(command):
    """The arguments that every kind of simulated table has."""
    for option in (
        click.argument("table", type=click.Path(path_type=Path)),
        click.option("--clusters", type=click.IntRange(1, 65_536), default=20, show_default=True),
        click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True),
        click.option(
            "--separation",
            type=click.FloatRange(0.01, 100),
            default=1.0,
            show_default=True,
            callback=_a_number,
            help="How far apart clusters are; 0.3 is hard for 68 columns of few levels.",
        ),
        click.option(
            "--missing",
            type=click.FloatRange(0, 1, max_open=True),
            default=0.0,
            callback=_a_number,
            help="Share of the cells.",
        ),
        click.option(
            "--labels",
            type=click.Path(path_type=Path),
            help="Write the rows' clusters: .npy, else text as export --to labels has it.",
        ),
        click.option("--force", is_flag=True, help="Replace TABLE, and the file of labels, if they exist."),
    )[::-1]:
        command = option(command)
    return command


@cli.group(cls=Commands, short_help="Draw a table from a known mixture.")
def simulate():
    """Draw a typed table from a known mixture, to test speed, and whether the truth is found.

    The same seed gives the same rows; more --rows leave the first ones as they are. The truth's own score of a row is
    printed: no model can do better on rows of this table.

    \b
    Examples:
      mpibayes simulate census1990 census.h5
      mpibayes simulate mixture mixed.h5 --rows 1000000 --real 10 --count 2 --missing 0.05
    """


@simulate.command(short_help="A table with the columns of the 1990 US census extract.")
@_simulated
@click.option("--rows", type=click.IntRange(1, 2**31 - 1), default=2_458_285, show_default=True)
def census1990(rows, **asked):
    """Draw a table with the 68 categorical columns of the 1990 US census extract: their names and numbers of levels (2
    to 18), not its people.

    \b
    Examples:
      mpibayes simulate census1990 census.h5
      mpibayes simulate census1990 small.h5 --rows 100000 --seed 2 --labels small.npy
    """
    from mpibayes.hpc.commands.simulate import census

    _simulate(census(), 0, 0, rows, **asked)


@simulate.command(short_help="A table of any size.")
@_simulated
@click.option("--rows", type=click.IntRange(1, 2**31 - 1), default=100_000, show_default=True)
@click.option("--categorical", type=click.IntRange(0, 4096), default=20, show_default=True, help="Columns.")
@click.option("--levels", type=LevelRange(), default="2-18", show_default=True, help="Levels a column, or their range.")
@click.option("--real", type=click.IntRange(0, 4096), default=0, show_default=True, help="Columns.")
@click.option("--count", type=click.IntRange(0, 4096), default=0, show_default=True, help="Columns.")
def mixture(rows, categorical, levels, real, count, seed, **asked):
    """Draw a table of any size with categorical, real and count columns.

    A categorical column has its own level probabilities in each cluster, Dirichlet(1/separation, ...); a real one
    Normal(mean, 1) with mean ~ Normal(0, separation^2); a count one Poisson with a log-normal rate about 5.

    \b
    Examples:
      mpibayes simulate mixture mixed.h5 --rows 1000000 --real 10 --count 2 --missing 0.05
      mpibayes simulate mixture wide.h5 --categorical 500 --levels 5 --clusters 100
      mpibayes simulate mixture names.h5 --categorical 2 --levels 65535 --rows 200000 --labels truth.txt
    """
    from mpibayes.hpc.commands.simulate import categorical_columns

    if categorical + real + count == 0:
        raise click.UsageError("a table needs a column: --categorical, --real or --count")
    _simulate(categorical_columns(categorical, *levels, seed), real, count, rows, seed=seed, **asked)


def _simulate(categorical, real, count, rows, table, clusters, seed, separation, missing, labels, force):
    from mpibayes.hpc.commands.simulate import Shape, Truth
    from mpibayes.hpc.commands.simulate import simulate as draw

    truth = Truth(Shape(categorical, real, count, clusters, missing, separation), seed)
    console = _console()
    with _simulate_progress(console, rows) as progress:
        drawn = draw(table, truth, rows, labels=labels, overwrite=force, progress=progress)
    kinds = ((len(categorical), "categorical"), (real, "real"), (count, "count"))
    lines = [("table", f"{table}: {counted(rows, 'row')}, fingerprint {drawn.table.fingerprint[:12]}")]
    lines += [("columns", ", ".join(f"{n} {kind}" for n, kind in kinds if n))]
    if categorical:
        widths = [v for _, v in categorical]
        lines += [("levels", f"from {min(widths)} to {max(widths)}, {sum(widths):,} in all")]
    lines += [("clusters", f"{clusters}, of which {drawn.used_clusters} with rows; separation {separation:g}")]
    lines += [("missing", f"{missing:.1%} of the cells")] if missing else []
    lines += [("labels", f"{labels}: the rows' clusters")] if labels is not None else []
    best = f"{drawn.score:.4f} nats a row (standard error {drawn.score_error:.4f}, {counted(drawn.scored_rows, 'row')})"
    lines += [("best score", f"{best}: no model can do better on average")]
    for title, text in lines:
        print(f"{title + ':':<16}{visible(text)}")


@contextlib.contextmanager
def _simulate_progress(console, rows):
    """On a terminal, a line with the number of rows written; else nothing."""
    if not console.is_terminal:
        yield None
        return
    with console.status("drawing") as live:
        yield lambda done: live.update(f"{done:,} of {rows:,} rows")


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point; returns the exit code. Users' mistakes are one message, without a traceback."""
    return _guarded(lambda: cli.main(args=argv, prog_name="mpibayes", standalone_mode=False))


def _guarded(command: Callable[[], int | None]) -> int:
    try:
        code = command()
        sys.stdout.flush()
        return int(code) if isinstance(code, int) else 0
    except click.ClickException as error:
        # Every rank sees the same mistake in the command line; root reports it.
        if launcher_rank() > 0:
            return 0
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"\n  try: {error.ctx.command_path} --help"
        print(f"mpibayes: error: {visible_lines(error.format_message())}{hint}", file=sys.stderr)
        return 2
    except MpibayesError as error:
        if os.environ.get("MPIBAYES_DEBUG"):
            traceback.print_exc()
        print(f"mpibayes: error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        if launcher_rank() == 0:
            print("mpibayes: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (BrokenPipeError, ReaderLeft):
        # `mpibayes report ... | head`: the reader has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # or Python complains when it ends
        return 0
    except Exception as error:
        print(visible_lines(traceback.format_exc()), file=sys.stderr)
        print(visible(f"mpibayes: internal error: {type(error).__name__}: {error}"), file=sys.stderr)
        print("  This is a fault of mpibayes, not yours. Please report it with the lines above.", file=sys.stderr)
        return INTERNAL_ERROR
