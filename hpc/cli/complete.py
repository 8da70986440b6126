"""`mpibayes complete`, with its options."""

from __future__ import annotations

import click

from mpibayes.hpc.cli.shared import BURN_IN, PATH, TABLE, force, seed, source, unseen


@click.command(short_help="Write copies of a table with drawn missing cells (multiple imputation).")
@click.argument("run_dir", type=PATH)
@click.argument("source", required=False, type=PATH, metavar="[FILE]")
@click.option(
    "--copies",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Number of copies, each from its own kept draw.",
)
@click.option("-o", "--out", type=PATH, required=True, metavar="DIR", help="Folder of the copies; with --long a file.")
@click.option(
    "--long",
    is_flag=True,
    help="One file: the rows as they are (.imp = 0) and all copies, as R's mice::as.mids reads it.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Fit the drawn levels to the observed cells of rows with about as many gaps.",
)
@click.option("--to", "form", type=click.Choice(["csv", "parquet"]), help="Format.  [default: that of FILE]")
@seed("Seed of the drawn cells.")
@source("Current location of the file that the table was imported from.")
@unseen("Levels that the run's table lacks: they stay, and count as missing; or an error.")
@BURN_IN
@TABLE
@force("Replace copies that exist.")
def complete(**options):
    """Write copies of the run's table, or of FILE, whose missing cells are drawn from the posterior: multiple
    imputation (mixtures and cross-categorizations).

    Each copy comes from its own kept draw, and the cells of a row are drawn together. Analyse each copy as if it were
    complete, and pool the results by Rubin's rules (mpibayes.pool, or pool() of R's mice): the differences between
    copies measure the uncertainty of the missing cells. For the best guess of each cell use predict --complete.

    Copies have the format of FILE, by default that of the file from which the table was imported, with its other
    columns unchanged. mpirun shares the copies among ranks; the bits do not depend on their number.

    \b
    Examples:
      mpibayes complete runs/a -o copies                            copies/copy-1.csv ... copy-20.csv
      mpibayes complete runs/a --copies 50 --long -o long.csv       one file, for mice::as.mids
      mpibayes complete runs/a new.parquet -o copies                other rows, with the table's columns
    """
    from mpibayes.hpc.results.complete import complete as write

    write(**options)
