"""`mpibayes query`: its verbs and options. What each does is imported when it is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

FILE = click.Path(path_type=Path)
GIVEN = click.option(
    "--given",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="What is known: 'age=40', 'age=40..50', 'job=clerk|nurse'; with --rows also names of columns. Repeatable.",
)
ROWS = click.option("--rows", type=FILE, metavar="FILE", help="Rows to ask about: CSV, Parquet or a typed table.")
OF = click.option(
    "--of", multiple=True, metavar="COLUMN[=VALUE]", help="What is asked for; with --rows names of columns, too."
)
COLUMNS = click.option("--columns", multiple=True, metavar="NAME,NAME", help="The columns that count.  [default: all]")
UNSEEN = click.option(
    "--unseen",
    type=click.Choice(["missing", "error"]),
    default="missing",
    show_default=True,
    help="A level of --rows that the run's table does not have.",
)


def shared(command: Callable) -> Callable:
    """The options of every verb."""
    for option in (
        click.option(
            "-o", "--out", type=FILE, metavar="FILE", help="Write the answer: .csv, .parquet, .json, or .png."
        ),
        click.option("--draws", type=click.IntRange(min=1), help="Draws to average over.  [default: 100]"),
        click.option("--burn-in", type=click.IntRange(min=0), help="Cycles to leave out.  [default: run.burn_in]"),
        click.option("--table", type=FILE, help="Where the run's table is now, if it has been moved."),
        click.option("--force", is_flag=True, help="Replace FILE of -o if it exists."),
    )[::-1]:
        command = option(command)
    return click.pass_obj(command)


def _ask(run_dir: Path, verb: Callable, **options) -> None:
    from mpibayes.hpc.commands.query import query

    query(run_dir, verb, **options)


@click.command(short_help="How probable values are, given others.")
@OF
@GIVEN
@ROWS
@UNSEEN
@shared
def logp(run_dir, of, given, **options):
    """How probable values are, given others: log p(of | given), of one described row, or of each row of a file.

    Of the rows of a file, all columns are asked for if --of names none; if it does, the others are given, unless
    --given says which.

    \b
    Examples:
      mpibayes query runs/a logp --of income=high --given age=40
      mpibayes query runs/a logp --rows new.csv -o scored.csv
      mpibayes query runs/a logp --rows new.csv --of income --given age,education
    """
    from mpibayes.hpc.query.logp import logp as verb

    _ask(run_dir, lambda asking, rows: verb(asking, of, given, rows), **options)


@click.command(short_help="The distribution of a column, given others.")
@click.argument("column")
@GIVEN
@ROWS
@UNSEEN
@shared
def conditional(run_dir, column, given, **options):
    """The distribution of COLUMN given others: a table and, as FILE.png, a picture; or a line for each row of a file.

    \b
    Examples:
      mpibayes query runs/a conditional income --given age=40
      mpibayes query runs/a conditional age --given income=high -o age.png
      mpibayes query runs/a conditional income --rows new.csv --given age,education -o income.csv
    """
    from mpibayes.hpc.query.conditional import conditional as verb

    picture = options["rows"] is None
    _ask(run_dir, lambda asking, rows: verb(asking, column, given, rows), picture=picture, **options)


@click.command(short_help="Draw rows, given values.")
@click.option("-n", "n", type=click.IntRange(1, 2**31 - 1), default=10, show_default=True, help="Rows.")
@GIVEN
@ROWS
@UNSEEN
@COLUMNS
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True)
@shared
def simulate(run_dir, n, given, columns, seed, **options):
    """Draw rows that have what is given; with --rows the missing cells of its rows, given the others.

    The same seed gives the same rows; fewer rows are the first of more.

    \b
    Examples:
      mpibayes query runs/a simulate -n 1000 --given income=high --given age=20..30 -o rows.csv
      mpibayes query runs/a simulate --rows new.csv --seed 7 -o completed.csv
    """
    from mpibayes.hpc.query.simulate import simulate as verb

    _ask(run_dir, lambda asking, rows: verb(asking, n, given, columns, seed, rows), **options)


@click.command(short_help="Missing cells, with how sure each is.")
@click.option("--rows", type=FILE, metavar="FILE", required=True, help="Rows with missing cells.")
@click.option(
    "--of", multiple=True, metavar="NAME,NAME", help="Columns whose missing cells are wanted.  [default: all]"
)
@UNSEEN
@shared
def impute(run_dir, of, **options):
    """The missing cells of a file's rows, each given the other cells of its row: a line a cell, with the most probable
    level and its probability, or the median and the interval from 10 to 90 %.

    \b
    Examples:
      mpibayes query runs/a impute --rows new.csv --of income -o income.csv
    """
    from mpibayes.hpc.query.conditional import impute as verb

    _ask(run_dir, lambda asking, rows: verb(asking, of, rows), **options)


VERBS = (logp, conditional, simulate, impute)
