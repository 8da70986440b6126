"""`mpibayes predict`, with its options."""

from __future__ import annotations

import click

from mpibayes.hpc.cli.shared import BURN_IN, PATH, TABLE, force, unseen


@click.command(short_help="Score new rows: clusters, missing cells, or the response.")
@click.argument("run_dir", type=PATH)
@click.argument("source", required=False, type=PATH)
@click.option("-o", "--out", type=PATH, help="A .csv, .csv.gz or .parquet file, one line per row.")
@click.option(
    "--complete",
    type=PATH,
    metavar="FILE",
    help="Write SOURCE in its own format with its gaps filled, and the cluster of each row beside it.",
)
@click.option(
    "--groups",
    type=click.IntRange(min=2),
    help="Mixtures: the group of each row, of this number of the report's groups.",
)
@click.option("--probabilities", is_flag=True, help="Mixtures: add the probability of each cluster.")
@click.option("--impute", is_flag=True, help="Mixtures: fill in missing cells, with their uncertainty.")
@unseen("A level that the run's table does not have: a missing cell, which is counted, or an error.")
@click.option("--draws", type=click.IntRange(min=1), help="Draws to average over.  [default: 50; regressions: 200]")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    help="Ratings: number of items to recommend to each user of SOURCE, to --user, or to all.",
)
@click.option("--user", "users", multiple=True, metavar="ID", help="Ratings: a user to recommend to; may be repeated.")
@BURN_IN
@TABLE
@force("Replace OUT if it exists.")
def predict(**options):
    """Predict new rows, averaging over draws. A mixture gives log density, cluster and missing cells; a regression
    gives class probabilities, or mean, sd and quantiles of the response.

    SOURCE is a typed table, or a file that can be imported, with the table's columns (for a regression, at least its
    predictors); it is streamed. Columns that it lacks count as missing cells. --complete fills each gap with the
    most probable level, or with the mean in the steps of the column (an atom where that is more probable); a regression
    fills in the response. These are predictions; to analyse a table with gaps, draw copies of it: mpibayes complete.

    \b
    Examples:
      mpibayes predict runs/a new.csv -o scored.csv
      mpibayes predict runs/a new.csv --complete filled.csv
      mpibayes predict runs/a new.csv -o scored.csv --groups 8
      mpibayes predict runs/a new.parquet -o scored.parquet --impute --unseen error
      mpibayes predict runs/news new.h5 -o topics.csv                    topics of new documents
      mpibayes predict runs/films pairs.csv -o ratings.csv               ratings of (user, item) pairs
      mpibayes predict runs/films --top 10 --user 17 -o for_17.csv       the items that a user would rate highest
    """
    from mpibayes.hpc.results.predict import predict as score

    score(**options)
