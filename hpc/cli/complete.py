"""`mpibayes complete`, with its options."""

from __future__ import annotations

import click

from mpibayes.hpc.cli.shared import BURN_IN, PATH, TABLE, force, seed, unseen


@click.command(short_help="Copies of a table with its missing cells drawn (multiple imputation).")
@click.argument("run_dir", type=PATH)
@click.argument("source", required=False, type=PATH, metavar="[FILE]")
@click.option(
    "--copies", type=click.IntRange(min=1), default=20, show_default=True, help="Copies, each of its own kept draw."
)
@click.option("-o", "--out", type=PATH, required=True, metavar="DIR", help="Folder of the copies; with --long a file.")
@click.option(
    "--long",
    is_flag=True,
    help="One file: the rows as they are (.imp = 0) and all copies, as R's mice::as.mids reads it.",
)
@click.option("--to", "form", type=click.Choice(["csv", "parquet"]), help="Format.  [default: that of FILE]")
@seed("Of the drawn cells.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=PATH,
    help="Where the file is now that the table was imported from.  [default: beside the table, in the folder above, or "
    "here]",
)
@unseen("A level that the run's table does not have: it stays, and nothing is concluded from it; or an error.")
@BURN_IN
@TABLE
@force("Replace copies that exist.")
def complete(**options):
    """Write copies of the run's table, or of FILE, whose missing cells are drawn from the posterior: multiple
    imputation (mixtures and cross-categorizations).

    Each copy is of its own kept draw, and the cells of a row are drawn together. Analyse each copy as if it had been
    complete, and pool the results by Rubin's rules (mpibayes.pool, or pool() of R's mice): the differences between
    copies are how uncertain the missing cells are. To know the best value of a cell, use predict --complete instead.

    Copies are in the format of FILE, by default of the file that the table was imported from, and have its other
    columns as they are. mpirun shares the copies among ranks; they have the same bits on any number.

    \b
    Examples:
      mpibayes complete runs/a -o copies                            copies/copy-1.csv ... copy-20.csv
      mpibayes complete runs/a --copies 50 --long -o long.csv       one file, for mice::as.mids
      mpibayes complete runs/a new.parquet -o copies                other rows, with the table's columns
    """
    from mpibayes.hpc.results.complete import complete as write

    write(**options)
