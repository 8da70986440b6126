"""Commands on a finished run, with their options: report, export and predict."""

from __future__ import annotations

import click

from mpibayes.hpc.cli.shared import PATH, TABLE, standard_output
from mpibayes.text import visible


@click.command(short_help="Summarise the posterior in tables and pictures.")
@click.argument("run_dirs", nargs=-1, required=True, type=PATH)
@click.option("-o", "--out", type=PATH, help="Folder of the report.  [default: RUN_DIR/report; RUN_DIR/against-NAME]")
@click.option("--burn-in", type=click.IntRange(min=0), help="Cycles to leave out.  [default: run.burn_in]")
@click.option("--full", is_flag=True, help="Print the whole text of report.txt.")
@click.option("--compare", is_flag=True, help="Compare the runs, even if they are of one model.")
@click.option(
    "--weighted/--unweighted",
    default=None,
    help="Clusters: shares of the population, too, by the weights of the rows.  [default: if the table has weights]",
)
@TABLE
def report(run_dirs, out, burn_in, full, compare, weighted, table):
    """Summarise the posterior: of a mixture its clusters and what characterises them, of a regression its coefficients
    and odds ratios; held-out score, traces, R-hat and effective draws of both.

    The terminal has the verdict; report.html is to be looked at, report.txt has all in words. Several run directories
    of one model are taken as chains of one posterior. Those of other models (another family, other priors or columns)
    on the same table are compared: which predicts held-out rows better, with its error, paired by row, and what each
    says that the other does not.

    \b
    Examples:
      mpibayes report runs/a
      mpibayes report runs/a runs/b -o both --burn-in 500      chains of one model
      mpibayes report runs/mixture runs/crosscat               which predicts better?
      mpibayes report runs/seed-1 runs/seed-2 --compare        the same of two runs of one model
    """
    from mpibayes.hpc.results.report import report as write

    write(
        list(run_dirs), out=out, burn_in=burn_in, table=table, console=standard_output(), full=full, compare=compare,
        weighted=weighted,
    )  # fmt: skip


@click.command(short_help="Write clusters, features or draws for other programs.")
@click.argument("run_dirs", nargs=-1, required=True, type=PATH)
@click.option(
    "--to",
    type=click.Choice(["clusters", "features", "factors", "topics", "arviz", "labels", "links", "csv", "crate"]),
    required=True,
    help="The form, see above.",
)
@click.option(
    "-o",
    "--out",
    help="The file; - is standard output.  [default: standard output; trace.h5 for arviz, crate.zip for crate]",
)
@click.option("--burn-in", type=click.IntRange(min=0), help="Cycles of burn-in.  [default: run.burn_in; csv: 0]")
@click.option("--timings/--no-timings", default=True, help="Keep the columns of csv that are times.  [default: keep]")
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="COLUMN",
    help="clusters: name the rows by a column of the table, or of the file it was imported from; may be repeated.",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=PATH,
    help="clusters: where that file is now.  [default: beside the table, in the folder above, or here]",
)
@click.option(
    "--groups",
    type=click.IntRange(min=2),
    help="clusters: a column with the group of each row, of so many groups of clusters, as the report has them.",
)
@click.option(
    "--weighted/--unweighted",
    default=None,
    help="clusters: a column with the weight of each row, and shares of the population.  [default: if the table has "
    "weights]",
)
@TABLE
@click.option("--force", is_flag=True, help="Replace OUT even if it is no earlier export of this form.")
def export(run_dirs, to, out, burn_in, timings, ids, sources, groups, weighted, table, force):
    """Write clusters, features or draws for other programs. Burn-in is left out; arviz has it in groups of its own.

    \b
    Forms:
      clusters  CSV, one line a row of the table: its cluster in the report and the probability of that; mixtures only
      arviz     one HDF5 file that ArviZ and xarray open (posterior, sample_stats, kept_draws, and their warm-up)
      labels    text, one kept draw a line: the cluster of each training row, in table order; mixtures only. Of
                crosscat first the view of each column, then after " | " each the clusters in view 0, 1, ...
      links     text, one kept draw a line: for each column, in table order, the number of its parent from 0, -1 for
                none; runs with model.links only
      features  text, one kept draw a line: a string of 0 and 1 a feature, of the rows that have it; ibp only
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

    done = write(
        list(run_dirs), to, out=out, burn_in=burn_in, timings=timings, table=table, overwrite=force, ids=ids,
        sources=sources, groups=groups, weighted=weighted,
    )  # fmt: skip
    for note in done.notes:
        click.echo(f"mpibayes: note: {visible(note)}", err=True)
    for path in done.paths:
        click.echo(visible(path), err=True)


@click.command(short_help="Score new rows: clusters, missing cells, or the response.")
@click.argument("run_dir", type=PATH)
@click.argument("source", required=False, type=PATH)
@click.option("-o", "--out", type=PATH, help="A .csv, .csv.gz or .parquet file: a line a row.")
@click.option(
    "--complete",
    type=PATH,
    metavar="FILE",
    help="Write SOURCE in its own format with its gaps filled, and the cluster of each row beside it.",
)
@click.option("--groups", type=click.IntRange(min=2), help="Mixtures: the group of each row, of so many in the report.")
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
    run_dir, source, out, complete, groups, probabilities, impute, unseen, draws, top, users, burn_in, table, force
):  # fmt: skip
    """Predict new rows, averaged over draws: of a mixture the log predictive density, the cluster and missing cells; of
    a regression class probabilities, or mean, sd and quantiles of the response.

    SOURCE is a typed table, or a file that can be imported, with the table's columns, of a regression with its
    predictors at least; it is streamed. Columns that it lacks are missing cells. --complete fills in the most probable
    level, or the mean as the column was recorded (in its steps, an atom where that is more probable); of a regression,
    the response. These are predictions; to analyse a table with gaps, draw copies of it: mpibayes complete.

    \b
    Examples:
      mpibayes predict runs/a new.csv -o scored.csv
      mpibayes predict runs/a new.csv --complete filled.csv
      mpibayes predict runs/a new.csv -o scored.csv --groups 8
      mpibayes predict runs/a new.parquet -o scored.parquet --impute --unseen error
      mpibayes predict runs/news new.h5 -o topics.csv                    topics of new documents
      mpibayes predict runs/films pairs.csv -o ratings.csv               ratings of (user, item) pairs
      mpibayes predict runs/films --top 10 --user 17 -o for_17.csv       what a user would rate highest
    """
    from mpibayes.hpc.results.predict import predict as score

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
        groups=groups,
        top=top,
        users=users,
        overwrite=force,
    )


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
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True, help="Of the drawn cells.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=PATH,
    help="Where the file is now that the table was imported from.  [default: beside the table, in the folder above, or "
    "here]",
)
@click.option(
    "--unseen",
    type=click.Choice(["missing", "error"]),
    default="missing",
    show_default=True,
    help="A level that the run's table does not have: it stays, and nothing is concluded from it; or an error.",
)
@click.option("--burn-in", type=click.IntRange(min=0), help="Cycles to leave out.  [default: run.burn_in]")
@TABLE
@click.option("--force", is_flag=True, help="Replace copies that exist.")
def complete(run_dir, source, copies, out, long, form, seed, sources, unseen, burn_in, table, force):
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

    write(
        run_dir, source, out, copies=copies, long=long, form=form, seed=seed, unseen=unseen, burn_in=burn_in,
        table=table, sources=sources, overwrite=force,
    )  # fmt: skip
