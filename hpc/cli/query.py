"""`mpibayes query`: its verbs and options, which make a question (hpc/query), and the output of the answer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpibayes.hpc.cli.group import Commands
from mpibayes.hpc.cli.shared import BURN_IN, PATH, TABLE, force, seed, unseen, weighted

if TYPE_CHECKING:
    from mpibayes.hpc.query.question import Question

GIVEN = click.option(
    "--given",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="What is known: 'age=40', 'age=40..50', 'job=clerk|nurse'; with --rows also names of columns. Repeatable.",
)
ROWS = click.option("--rows", type=PATH, metavar="FILE", help="Rows to ask about: CSV, Parquet, Excel, ... or a table.")
OF = click.option(
    "--of", multiple=True, metavar="COLUMN[=VALUE]", help="What is asked for; with --rows names of columns, too."
)
TOP = click.option(
    "--top", type=click.IntRange(min=1), default=20, show_default=True, help="Number of lines on the terminal."
)
COLUMNS = click.option("--columns", multiple=True, metavar="NAME,NAME", help="The columns to consider.  [default: all]")
UNSEEN = unseen("Levels of --rows that the run's table lacks.")
WEIGHTED = weighted(
    "Of the population, by the weights of the rows, or of the rows as they are.  [default: weighted if the table "
    "has weights and no --rows are named]"
)


def asks(made: Callable[..., Question]) -> Callable:
    """Wrap a verb: add the options common to all verbs, and ask the question made from the verb's own ones."""

    @functools.wraps(made)
    def command(run_dir: Path, out: Path | None, draws, burn_in, table, overwrite: bool, **options):
        _answered(made(**options), {"draws": draws, "burn_in": burn_in, "table": table}, run_dir, out, overwrite)

    for option in (
        click.option(
            "-o", "--out", type=PATH, metavar="FILE", help="Write the answer: .csv, .parquet, .json, or .png."
        ),
        click.option("--draws", type=click.IntRange(min=1), help="Draws to average over.  [default: 100]"),
        BURN_IN,
        TABLE,
        force("Replace FILE of -o if it exists."),
    )[::-1]:
        command = option(command)
    return click.pass_obj(command)


def _answered(question: Question, options: dict[str, Any], run_dir: Path, out: Path | None, overwrite: bool) -> None:
    """Ask on all ranks that a launcher started, print the answer and write it to `out`. Mistakes are raised on root
    alone."""
    from mpibayes.hpc.parallel.agreement import on_root
    from mpibayes.hpc.parallel.together import together
    from mpibayes.hpc.posterior.chains import files_of
    from mpibayes.hpc.query import answer as answers
    from mpibayes.hpc.query.asking import Asking
    from mpibayes.hpc.query.question import ask
    from mpibayes.hpc.report.advice import warn_beside_answer
    from mpibayes.hpc.report.drawing import require_extra
    from mpibayes.io.files import writing
    from mpibayes.io.target import ANSWER, check_target
    from mpibayes.terminal import Text, output

    def check_out() -> None:
        if out is None:
            return
        answers.check_name(out, question.pictured)
        check_target(out, overwrite, ANSWER, [*question.reads, *files_of([run_dir])])
        if out.suffix == ".png":
            require_extra("matplotlib")

    def work(comm) -> None:
        on_root(comm, check_out)
        asking = Asking(run_dir, **options, comm=comm)
        answer = ask(question, asking)

        def show() -> None:
            console = output()
            answers.show(answer, console)
            if out is not None:
                with writing(out):
                    answers.write(answer, out)
                console.print(Text(f"written to {out}"), soft_wrap=True)
            warn_beside_answer(asking.run)

        on_root(comm, show, share=False, what="write the answer")

    together(work)


@click.group(
    cls=Commands, short_help="Ask the posterior: conditional distributions, missing cells, odd cells, similar rows."
)
@click.argument("run_dir", type=PATH)
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


@query.command(short_help="Probability of values, given others.")
@OF
@GIVEN
@ROWS
@UNSEEN
@WEIGHTED
@asks
def logp(**options):
    """Probability of values given others: log p(of | given), of one described row, or of each row of a file.

    With rows from a file, all columns are asked for if --of names none; if it does, the others are given, unless
    --given names some.

    \b
    Examples:
      mpibayes query runs/a logp --of income=high --given age=40
      mpibayes query runs/a logp --rows new.csv -o scored.csv
      mpibayes query runs/a logp --rows new.csv --of income --given age,education
    """
    from mpibayes.hpc.query.logp import Logp

    return Logp(**options)


@query.command(short_help="The distribution of a column, given others.")
@click.argument("column")
@GIVEN
@ROWS
@UNSEEN
@WEIGHTED
@asks
def conditional(**options):
    """The distribution of COLUMN given others: a table and, as FILE.png, a picture; or a line for each row of a file.

    \b
    Examples:
      mpibayes query runs/a conditional income --given age=40
      mpibayes query runs/a conditional age --given income=high -o age.png
      mpibayes query runs/a conditional income --rows new.csv --given age,education -o income.csv
    """
    from mpibayes.hpc.query.conditional import Conditional

    return Conditional(**options)


@query.command(short_help="Draw rows, given values.")
@click.option("-n", "n", type=click.IntRange(1, 2**31 - 1), default=10, show_default=True, help="Rows.")
@GIVEN
@ROWS
@UNSEEN
@COLUMNS
@seed()
@WEIGHTED
@asks
def simulate(**options):
    """Draw rows given values; or, with --rows, the missing cells of its rows given the others.

    The same seed gives the same rows; a shorter table is the beginning of a longer one.

    \b
    Examples:
      mpibayes query runs/a simulate -n 1000 --given income=high --given age=20..30 -o rows.csv
      mpibayes query runs/a simulate --rows new.csv --seed 7 -o completed.csv
    """
    from mpibayes.hpc.query.simulate import Simulate

    return Simulate(**options)


@query.command(short_help="Missing cells, each with its uncertainty.")
@click.option("--rows", type=PATH, metavar="FILE", required=True, help="Rows with missing cells.")
@click.option(
    "--of", multiple=True, metavar="NAME,NAME", help="Columns whose missing cells are predicted.  [default: all]"
)
@UNSEEN
@asks
def impute(**options):
    """The missing cells of a file's rows, each given the other cells of its row: a line a cell, with the most probable
    level and its probability, or the median and the interval from 10 to 90 %.

    An average over draws is a prediction. To analyse a table with gaps, draw copies of it: mpibayes complete.

    \b
    Examples:
      mpibayes query runs/a impute --rows new.csv --of income -o income.csv
    """
    from mpibayes.hpc.query.conditional import Impute

    return Impute(**options)


@query.command(short_help="Odd cells and rows, of the table or of a file.")
@ROWS
@UNSEEN
@COLUMNS
@click.option("--by", type=click.Choice(["cells", "rows"]), default="cells", show_default=True)
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="Number of the oddest to show.")
@click.option(
    "--most", type=click.IntRange(min=1), default=20_000, show_default=True, help="Number of training rows to score."
)
@asks
def surprisal(**options):
    """The most surprising cells given the rest of their row, or the most surprising rows, in nats: of the training
    table, each row scored without itself, or of a file.

    \b
    Examples:
      mpibayes query runs/a surprisal --top 50 -o odd.csv
      mpibayes query runs/a surprisal --rows new.csv --by rows
    """
    from mpibayes.hpc.query.surprisal import Surprisal

    return Surprisal(**options)


@query.command(short_help="Novelty of new rows.")
@click.option("--rows", type=PATH, metavar="FILE", required=True, help="The new rows.")
@UNSEEN
@COLUMNS
@TOP
@asks
def novelty(**options):
    """Novelty of the rows of a file compared to the training rows, the most novel first: the share of training rows
    that are less surprising, and the probability of a new cluster.

    \b
    Examples:
      mpibayes query runs/a novelty --rows new.csv -o novelty.csv
    """
    from mpibayes.hpc.query.surprisal import Novelty

    return Novelty(**options)


@query.command(short_help="Rows that share clusters with a row.")
@click.option("--row", type=click.IntRange(min=1), help="Number of the row in the table, from 1.")
@click.option(
    "--like", multiple=True, metavar="COLUMN=VALUE", help="A condition on a described row instead. Repeatable."
)
@click.option(
    "--to", type=click.IntRange(min=1), multiple=True, help="A row to compare with, instead of the nearest ones."
)
@COLUMNS
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Number of the nearest to show.")
@asks
def similarity(**options):
    """The training rows that most probably share a cluster with a row of the table, or with a described one.

    \b
    Examples:
      mpibayes query runs/a similarity --row 17
      mpibayes query runs/a similarity --like age=40 --like income=high --columns job,education
    """
    from mpibayes.hpc.query.similarity import Similarity

    return Similarity(**options)


@query.command(short_help="Which columns depend on each other.")
@COLUMNS
@TOP
@WEIGHTED
@asks
def dependence(**options):
    """Dependence between columns: the mutual information of each pair, in nats, and the share of the draws in which the
    two are in one view.

    \b
    Examples:
      mpibayes query runs/a dependence -o dependence.csv
      mpibayes query runs/a dependence --columns income,age,education -o dependence.png
    """
    from mpibayes.hpc.query.dependence import Dependence

    return Dependence(**options)


@query.command(short_help="Pairs of columns that depend on each other less in the run than in the table.")
@COLUMNS
@TOP
@asks
def pairs(**options):
    """Pairs of columns that depend on each other more in the table than in simulated rows, the weakest first. They
    come out weaker in filled-in cells, synthetic rows and answers: link them or put them in a block, or continue a run
    that has not settled.

    \b
    Examples:
      mpibayes query runs/a pairs
      mpibayes query runs/a pairs --columns income,age,education -o pairs.csv
    """
    from mpibayes.hpc.synthetic.pairs import Pairs

    return Pairs(**options)


@query.command(short_help="Best predictors of a column.")
@click.argument("column")
@COLUMNS
@TOP
@click.option(
    "--set", "size", type=click.IntRange(min=2), help="Find a set of at most this many columns, instead of single ones."
)
@WEIGHTED
@asks
def predictors(**options):
    """The best predictors of COLUMN, each by itself: mutual information, and its share of the column's entropy; or,
    with --set, the best set of them, found one after the other.

    \b
    Examples:
      mpibayes query runs/a predictors income
      mpibayes query runs/a predictors income --set 4
    """
    from mpibayes.hpc.query.predictors import Predictors

    return Predictors(**options)


@query.command(short_help="Where two groups of rows, or two runs, differ most.")
@click.option("--group", multiple=True, metavar="COLUMN=VALUE", help="A condition on one group of rows. Repeatable.")
@click.option("--against", multiple=True, metavar="COLUMN=VALUE", help="A condition on the other group. Repeatable.")
@click.option("--rows", metavar="ROWS", help="Or rows of a file, or of the table by their numbers: 1,5,7-20 or @FILE,")
@click.option("--against-rows", metavar="ROWS", help="and others.  [default: all others of the table]")
@click.option(
    "--cluster-group", type=click.IntRange(min=1), help="Or a group of clusters of the report, with all others:"
)
@click.option(
    "--groups", type=click.IntRange(min=2), help="its number, among this many groups.  [default: those shown first]"
)
@click.option("--view", type=click.IntRange(min=1), help="The view with these groups.  [default: 1]")
@click.option("--run", "other", type=PATH, metavar="DIR", help="Or another run, on a table with the same columns.")
@UNSEEN
@COLUMNS
@TOP
@WEIGHTED
@asks
def compare(group, against, rows, against_rows, cluster_group, groups, view, other, **options):
    """Where two groups of rows differ most: columns by the divergence of their distributions, in nats, where most of it
    is, and the clusters that hold it. The groups are described, or are the rows of two files, or rows of the table by
    their numbers from 1, or two runs; or a group of clusters is compared with all other rows. A file of numbers is
    named with @.

    \b
    Examples:
      mpibayes query runs/a compare --group sex=Female --against sex=Male
      mpibayes query runs/a compare --group age=..30 --against age=60.. -o ages.png
      mpibayes query runs/a compare --rows north.csv --against-rows south.csv
      mpibayes query runs/a compare --rows 1,5,7-20
      mpibayes query runs/a compare --rows @mine.txt --against-rows @theirs.txt
      mpibayes query runs/a compare --cluster-group 3 --groups 8
      mpibayes query runs/a compare --run runs/b
    """
    from mpibayes.hpc.query.compare import Compare

    ways = [bool(group or against), bool(rows or against_rows), other is not None, cluster_group is not None]
    if sum(ways) != 1:
        raise click.UsageError(
            "say what is compared, in one way: --group and --against, or --rows and --against-rows, or "
            "--cluster-group, or --run"
        )
    if cluster_group is None and (groups or view):
        raise click.UsageError("--groups and --view are for --cluster-group: name the group")
    if ways[1] and not rows:
        raise click.UsageError("name the first group of rows, too: --rows")
    return Compare(group, against, against_rows, cluster_group, groups, view or 1, other, rows=rows, **options)
