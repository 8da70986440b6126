"""`mpibayes report`, with its options."""

from __future__ import annotations

import click

from mpibayes.hpc.cli.shared import BURN_IN, PATH, TABLE, standard_output, weighted


@click.command(short_help="Summarise the posterior in tables and pictures.")
@click.argument("run_dirs", nargs=-1, required=True, type=PATH)
@click.option("-o", "--out", type=PATH, help="Folder of the report.  [default: RUN_DIR/report; RUN_DIR/against-NAME]")
@BURN_IN
@click.option("--full", is_flag=True, help="Print the whole text of report.txt.")
@click.option("--compare", is_flag=True, help="Compare the runs, even if they are of one model.")
@weighted("Clusters: shares of the population, too, by the weights of the rows.  [default: if the table has weights]")
@TABLE
def report(**options):
    """Summarise the posterior: a mixture's clusters and what characterises them, a regression's coefficients and odds
    ratios, with held-out scores, traces, R-hat and effective draws.

    The terminal shows the verdict; report.html is a page for a browser, report.txt has everything as text. Several run
    directories of one model count as chains of one posterior. Runs of different models (another family, other priors
    or columns) on the same table are compared: which one predicts held-out rows better, with the standard error, paired
    by row, and what each finds that the other does not.

    \b
    Examples:
      mpibayes report runs/a
      mpibayes report runs/a runs/b -o both --burn-in 500      chains of one model
      mpibayes report runs/mixture runs/crosscat               which predicts better?
      mpibayes report runs/seed-1 runs/seed-2 --compare        two runs of one model
    """
    from mpibayes.hpc.results.report import report as write

    write(console=standard_output(), **options)
