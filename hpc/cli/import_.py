"""`mpibayes import`: its options."""

from __future__ import annotations

import os
from functools import partial

import click

from mpibayes.hpc.cli.shared import PATH, force, on_terminal, standard_output

KINDS = ("categorical", "boolean", "real", "count")


@click.command("import", short_help="Turn CSV, Excel, SPSS, ... into a typed table, or triples into a sparse one.")
@click.argument("sources", nargs=-1, type=PATH)
@click.argument("table", type=PATH)
@click.option("--dry-run", is_flag=True, help="Show what each column would become, and why; write no table.")
@click.option("--schema", type=PATH, help="Take column kinds from this TOML file.")
@click.option("--write-schema", type=PATH, help="Write the resulting schema, to edit.")
@click.option(
    "--kind", "kinds", multiple=True, metavar="COLUMN=KIND", help=f"{', '.join(KINDS)} or ignored. Repeatable."
)
@click.option("--keep", multiple=True, metavar="COLUMN,...", help="Keep columns that would be left out. Repeatable.")
@click.option("--drop", multiple=True, metavar="COLUMN,...", help="Leave columns out. Repeatable.")
@click.option(
    "--ordered",
    multiple=True,
    metavar="COLUMN,...",
    help="Columns whose categories are ordered; none: no others. Repeatable.",
)
@click.option(
    "--unordered", multiple=True, metavar="COLUMN,...", help="Columns whose categories are only names. Repeatable."
)
@click.option(
    "--missing",
    multiple=True,
    metavar="TEXT",
    help="Text of a missing cell, in addition to ?, NA, NaN and empty; -999 covers -999.0. Repeatable.",
)
@click.option("--decimal", type=click.Choice([".", ","]), help="Decimal mark, as in 1,5; detected if not given.")
@click.option(
    "--thousands",
    type=click.Choice([",", ".", " ", "'"]),
    help="Thousands separator, as in 1,234,567; detected if not given.",
)
@click.option(
    "--dates",
    type=click.Choice(["day-first", "month-first"]),
    help="Order of dates such as 5/1/2024; detected if possible.",
)
@click.option(
    "--calendar",
    multiple=True,
    metavar="COLUMN,...",
    help="Add weekday, month and hour of its dates as columns. Repeatable.",
)
@click.option("--count", metavar="COLUMN", help="Number of cases of each row, such as Freq in a table of patterns.")
@click.option(
    "--weight", metavar="COLUMN", help="Survey weight of each row, kept beside the data for weighted answers."
)
@click.option(
    "--survival",
    multiple=True,
    metavar="TIME,EVENT",
    help="Two columns as one: how long each row was observed, and whether the event occurred (EVENT=VALUE: its text).",
)
@click.option("--delimiter", metavar="CHAR", help="Field separator; detected if not given. Write a tab as '\\t'.")
@click.option("--header/--no-header", default=None, help="Whether the first line has names; detected if not given.")
@click.option("--names", help="Column names separated by commas, or a file with one a line.")
@click.option("--encoding", help="Encoding of the text.  [default: utf-8]")
@click.option("--sheet", metavar="NAME", help="Sheet of an Excel workbook.  [default: the first]")
@click.option("--sparse", is_flag=True, help="SOURCES are counts or ratings of pairs: see above.")
@click.option("--vocabulary", metavar="FILE", help="Sparse: ids of the columns, one a line.")
@click.option("--row-ids", metavar="FILE", help="Sparse: ids of the rows, one a line.")
@click.option("--append", is_flag=True, help="Add the rows of SOURCES to an existing TABLE: see above.")
@force("Replace TABLE if it exists.")
@click.option("-v", "--verbose", is_flag=True, help="Print all columns of a wide table, and all warnings.")
@click.pass_context
def import_(
    ctx, sources, table, dry_run, kinds, names, delimiter, sparse, vocabulary, row_ids, append, verbose, **options
):  # fmt: skip
    """Turn a file of rows into a typed table, TABLE (with --dry-run, TABLE may be left out).

    SOURCES are one or several files with the same columns: CSV, Parquet, Feather (Arrow) or JSON lines; with the extra
    'formats' (pip install 'mpibayes[formats]') also Excel, SPSS, Stata and SAS. They may be compressed (gzip, xz,
    bzip2, zstd, or a zip archive of one file). They are read twice: to decide each column's kind from all its cells,
    and to write. Labels of codes become levels, in the order of the codes. Columns of few whole numbers, such as
    answers from 1 to 5, or of bands, such as 18-24, become ordered categories. Constant columns, identifiers, copies of
    other columns and columns that cannot be used are left out, and listed.

    \b
    Examples:
      mpibayes import people.csv --dry-run                                 shows the decisions, writes nothing
      mpibayes import people.csv.gz people.h5
      mpibayes import survey.sav survey.h5 --missing -99
      mpibayes import book.xlsx book.h5 --sheet "Wave 2"
      mpibayes import people.csv people.h5 --missing -9 --missing unknown --kind zip=categorical
      mpibayes import survey.csv survey.h5 --ordered q1,q2,q3 --unordered region
      mpibayes import patterns.csv patterns.h5 --count Freq                repeats each row as often as it counts
      mpibayes import survey.csv survey.h5 --weight pweight                answers are about the population
      mpibayes import pbc.csv pbc.h5 --survival time,status=2              time to event, the others censored
      mpibayes import visits.csv visits.h5 --dates day-first --calendar arrival
      mpibayes import people.csv people.h5 --write-schema schema.toml      writes the decisions, to edit
      mpibayes import people.csv people.h5 --schema schema.toml --force    applies them

    \b
    With --sparse, counts of words in documents, or users' ratings of items (model.family = "svi"):
      mpibayes import --sparse docword.kos.txt.gz kos.h5 --vocabulary vocab.kos.txt    UCI bag of words
      mpibayes import --sparse matrix.mtx m.h5            Matrix Market; or matrix.npz, of scipy.sparse
      mpibayes import --sparse ratings.dat r.h5 --names user,movie,rating,time    lines of 3 or 4 fields: CSV, tab, ::

    \b
    With --append, later rows of the same columns go into a file beside TABLE that becomes a part of it:
      mpibayes import june.csv people.h5 --append         new levels get the next codes, and are listed
      mpibayes import june.csv people.h5 --append --dry-run
    """
    if dry_run and not append:
        from mpibayes.io.table import SUFFIXES

        sources = sources if table.suffix.lower() in SUFFIXES else (*sources, table)  # --dry-run needs no table
    if not sources:
        raise click.UsageError(
            f"Missing argument 'TABLE': where {table} is to be written; or look at it with --dry-run"
        )
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    options["delimiter"] = "\t" if delimiter == "\\t" else delimiter
    if append:
        return _append(ctx, list(sources), table, dry_run, options)
    if sparse:
        return _import_sparse(ctx, list(sources), table, vocabulary, row_ids, names, options)
    if vocabulary is not None or row_ids is not None:
        raise click.UsageError(f"{'--vocabulary' if vocabulary is not None else '--row-ids'}: only with --sparse")
    from mpibayes.io.ingest import import_table, look_at
    from mpibayes.io.summary import print_summary

    console = standard_output()
    with _progress(console) as progress:
        summary = (look_at if dry_run else partial(import_table, out=table))(
            list(sources), kinds=dict(map(_column_and_kind, kinds)), names=_names(names), progress=progress, **options
        )
    print_summary(summary, console, verbose)


OF_READING = {"sources", "table", "delimiter", "header", "encoding", "overwrite", "verbose"}
OF_APPEND = {*OF_READING, "append", "dry_run", "drop", "missing"}
OF_SPARSE = {*OF_READING, "sparse", "vocabulary", "row_ids", "names"}


def _append(ctx, sources, table, dry_run, options):
    from mpibayes.io.append import append_rows
    from mpibayes.terminal import Text

    _require_of_use(ctx, OF_APPEND, "--append: the table says what its columns are")
    console = standard_output()
    with _progress(console) as progress:
        reading = {name: options[name] for name in ("delimiter", "header", "encoding", "missing", "drop")}
        appended = append_rows(
            sources, table, again=options["overwrite"], dry_run=dry_run, progress=progress, **reading
        )
    for line in appended.lines():
        console.print(Text(line))


def _require_of_use(ctx, of_use: set[str], kind: str) -> None:
    """Raise UsageError that lists the options on the command line that have no use with this kind of import."""
    given = (
        p for p in ctx.command.params if ctx.get_parameter_source(p.name) is click.core.ParameterSource.COMMANDLINE
    )
    if idle := sorted(p.opts[0] for p in given if p.name not in of_use):
        raise click.UsageError(f"{', '.join(idle)}: no use with {kind}")


def _import_sparse(ctx, sources, table, vocabulary, row_ids, names, options):
    from mpibayes.io.sparse_import import import_sparse, print_sparse

    _require_of_use(ctx, OF_SPARSE, "--sparse")
    with _progress(standard_output()) as progress:
        summary = import_sparse(
            sources, table, vocabulary=vocabulary, row_ids=row_ids,
            names=None if names is None else [name.strip() for name in names.split(",")],
            **{name: options[name] for name in ("delimiter", "header", "encoding", "overwrite")},
            progress=progress and (lambda phase, rows, share: progress("reading entries", rows, share)),
        )  # fmt: skip
    print_sparse(summary)


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


def _progress(console):
    """Progress of the reading, on a terminal."""
    return on_terminal(
        console, "reading", lambda phase, rows, share: f"{phase}: {rows:,} rows, {share:.0%} of the input"
    )
