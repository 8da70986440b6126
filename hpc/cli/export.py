"""`mpibayes export`, with its options."""

from __future__ import annotations

import click

from mpibayes.hpc.cli.shared import PATH, TABLE, force, source, weighted
from mpibayes.text import visible


@click.command(short_help="Write clusters, features or draws for other programs.")
@click.argument("run_dirs", nargs=-1, required=True, type=PATH)
@click.option(
    "--to",
    type=click.Choice(
        ["clusters", "features", "factors", "topics", "arviz", "labels", "links", "outcome", "csv", "crate"]
    ),
    required=True,
    help="Export format: see above.",
)
@click.option(
    "-o",
    "--out",
    help="The file; - is standard output.  [default: standard output; trace.h5 for arviz, crate.zip for crate]",
)
@click.option("--burn-in", type=click.IntRange(min=0), help="Cycles of burn-in.  [default: run.burn_in; csv: 0]")
@click.option("--timings/--no-timings", default=True, help="Keep csv's columns of times.  [default: keep]")
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="COLUMN",
    help="clusters: name the rows by a column of the table, or of the file it was imported from; may be repeated.",
)
@source("clusters: current location of that file.")
@click.option(
    "--groups",
    type=click.IntRange(min=2),
    help="clusters: add the group of each row, of this number of the report's groups of clusters.",
)
@weighted("clusters: add the weight of each row, and shares of the population.  [default: if the table has weights]")
@TABLE
@force("Replace OUT even if it is no earlier export in this format.")
def export(**options):
    """Write clusters, features or draws for other programs, without burn-in (arviz has it in separate groups).

    \b
    Forms:
      clusters  CSV, one line a row of the table: its cluster in the report, with its probability; mixtures only
      arviz     one HDF5 file that ArviZ and xarray open (posterior, sample_stats, kept_draws, and their warm-up)
      labels    text, one kept draw a line: the cluster of each training row, in table order; mixtures only. For
                crosscat, first the view of each column, then after each " | " the clusters in view 0, 1, ...
      links     text, one kept draw a line: for each column, in table order, the number of its parent from 0, -1 for
                none, 2,5 for two parents; runs with model.links only
      outcome   text, one kept draw a line: labels, global coefficients, and the linear predictor of each training row
                (a number's mean), separated by " | "; runs with outcome.column only
      features  text, one kept draw a line: for each feature a string of 0 and 1, which rows have it; ibp only
      topics    CSV, one line a topic and word: the topic's share, the word's probability in it; topics only
      factors   CSV, one line a user and an item: its bias and its factors; ratings only
      csv       CSV, one line a cycle: each scalar of the trace in a column; coefficients as theta[age]
      crate     ZIP, an RO-Crate to archive: configuration, provenance with the table's hash, and RUN_DIR/report

    \b
    Examples:
      mpibayes export runs/a --to clusters -o clusters.csv
      mpibayes export runs/a --to clusters --id name -o clusters.csv
      mpibayes export runs/a --to clusters --groups 8 -o groups.csv
      mpibayes export runs/a --to labels -o labels.txt --burn-in 0
      mpibayes export runs/a --to csv --no-timings | head
      mpibayes export runs/a runs/b --to arviz -o both.h5
      mpibayes export runs/a --to crate -o run-a.zip
    """
    from mpibayes.hpc.results.export import export as write

    done = write(**options)
    for note in done.notes:
        click.echo(f"mpibayes: note: {visible(note)}", err=True)
    for path in done.paths:
        click.echo(visible(path), err=True)
