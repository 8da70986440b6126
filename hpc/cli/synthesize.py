"""`mpibayes synthesize`, with its options."""

from __future__ import annotations

import click

from mpibayes.hpc.cli.shared import BURN_IN, PATH, TABLE, force, seed, source, weighted


@click.command(short_help="Write synthetic tables, and measure their utility and risk.")
@click.argument("run_dir", type=PATH)
@click.option(
    "--rows",
    type=click.IntRange(1, 2**31 - 1),
    help="Rows of each table.  [default: as many as the run was trained on]",
)
@click.option(
    "--copies",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Number of tables, each from its own kept draw.",
)
@click.option("-o", "--out", type=PATH, required=True, metavar="DIR", help="Folder of the tables.")
@click.option(
    "--missing",
    type=click.Choice(["as-in-data", "none"]),
    default="as-in-data",
    show_default=True,
    help="Missing cells: in the patterns of training rows of the same cluster, or none.",
)
@click.option(
    "--rare",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Merge levels of fewer than N training rows into one, 'other', and drop rarer atoms of numeric columns."
    "  [default: keep all]",
)
@click.option("--judge", is_flag=True, help="Measure utility and risk beside held-out rows: judge.json and judge.csv.")
@click.option(
    "--target",
    metavar="COLUMN",
    help="Column that --judge predicts, and tries to disclose.  [default: the last with levels]",
)
@click.option(
    "--key",
    multiple=True,
    metavar="COLUMN,...",
    help="Columns that an intruder may know about a person, to learn the target; repeatable, for --judge.",
)
@click.option("--to", "form", type=click.Choice(["csv", "parquet"]), help="Format.  [default: that of the source]")
@seed("Seed of the rows.")
@source("Where the file from which the table was imported is now, for its format.")
@weighted(
    "Draw rows of the population, by the survey weights, or rows like those of the table.  [default: "
    "weighted if the table has weights]"
)
@BURN_IN
@TABLE
@force("Replace tables that exist.")
def synthesize(judge, target, key, **options):
    """Write synthetic tables: rows drawn from the posterior of a mixture or a cross-categorization, in the format of
    the file from which the run's table was imported, with the modelled columns alone.

    Each table comes from its own kept draw. Analyse each as if its rows were data, and pool the results
    (mpibayes.pool(..., n=training rows, k=rows of a table, synthetic=True)) to get the right standard errors.

    Rows are drawn, not copied; but a level or value that a single row has reveals that row: --rare 10 merges rare ones.
    mpirun shares the tables among ranks; the bits do not depend on their number, and a shorter table is the beginning
    of a longer one.

    \b
    Examples:
      mpibayes synthesize runs/a -o synthetic                       synthetic/synthetic-1.csv ... synthetic-5.csv
      mpibayes synthesize runs/a --copies 1 --rows 100000 --rare 10 -o synthetic
      mpibayes synthesize runs/a --judge --target income --key age,sex -o synthetic
    """
    if (target or key) and not judge:
        raise click.UsageError("--target and --key are for --judge: name it, too")
    from mpibayes.hpc.results.synthesize import synthesize as write

    write(judge=judge, target=target, key=key, **options)
