"""`mpibayes simulate`: its kinds of tables and their options."""

from __future__ import annotations

import click

from mpibayes.hpc.cli.group import Commands
from mpibayes.hpc.cli.shared import PATH, on_terminal, standard_output
from mpibayes.text import counted, visible


class LevelRange(click.ParamType):
    """A number of levels, such as 5, or a range of them, such as 2-18."""

    name = "levels"

    def convert(self, value, param, ctx):
        from mpibayes.hpc.synthetic.truth import parse_levels

        try:
            return value if isinstance(value, tuple) else parse_levels(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _a_number(ctx, param, value: float) -> float:
    """Reject NaN, which click's ranges let through."""
    if value != value:
        raise click.BadParameter("nan is not a number.", ctx, param)
    return value


def _simulated(command):
    """Add the arguments common to all kinds of simulated tables."""
    for option in (
        click.argument("table", type=PATH),
        click.option("--clusters", type=click.IntRange(1, 65_536), default=20, show_default=True),
        click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True),
        click.option(
            "--separation",
            type=click.FloatRange(0.01, 100),
            default=1.0,
            show_default=True,
            callback=_a_number,
            help="How far apart clusters are; 0.3 is hard for 68 columns of few levels.",
        ),
        click.option(
            "--missing",
            type=click.FloatRange(0, 1, max_open=True),
            default=0.0,
            callback=_a_number,
            help="Share of the cells.",
        ),
        click.option(
            "--labels",
            type=PATH,
            help="Write the rows' clusters: .npy, else text as export --to labels has it.",
        ),
        click.option("--force", is_flag=True, help="Replace TABLE, and the file of labels, if they exist."),
    )[::-1]:
        command = option(command)
    return command


@click.group(cls=Commands, short_help="Draw a table from a known mixture.")
def simulate():
    """Draw a typed table from a known mixture, to measure speed, and to see whether the truth is found.

    The same seed gives the same rows; with more --rows the first ones stay the same. The score of the true
    distribution is printed: no model can do better on rows of this table.

    \b
    Examples:
      mpibayes simulate census1990 census.h5
      mpibayes simulate mixture mixed.h5 --rows 1000000 --real 10 --count 2 --missing 0.05
    """


@simulate.command(short_help="A table with the columns of the 1990 US census extract.")
@_simulated
@click.option("--rows", type=click.IntRange(1, 2**31 - 1), default=2_458_285, show_default=True)
def census1990(rows, **asked):
    """Draw a table with the 68 categorical columns of the 1990 US census extract: their names and numbers of levels (2
    to 18), not its people.

    \b
    Examples:
      mpibayes simulate census1990 census.h5
      mpibayes simulate census1990 small.h5 --rows 100000 --seed 2 --labels small.npy
    """
    from mpibayes.hpc.synthetic.truth import census

    _simulate(census(), 0, 0, rows, **asked)


@simulate.command(short_help="A table of any size.")
@_simulated
@click.option("--rows", type=click.IntRange(1, 2**31 - 1), default=100_000, show_default=True)
@click.option("--categorical", type=click.IntRange(0, 4096), default=20, show_default=True, help="Columns.")
@click.option("--levels", type=LevelRange(), default="2-18", show_default=True, help="Levels a column, or their range.")
@click.option("--real", type=click.IntRange(0, 4096), default=0, show_default=True, help="Columns.")
@click.option("--count", type=click.IntRange(0, 4096), default=0, show_default=True, help="Columns.")
def mixture(rows, categorical, levels, real, count, seed, **asked):
    """Draw a table of any size with categorical, real and count columns.

    A categorical column has its own level probabilities in each cluster, Dirichlet(1/separation, ...); a real one
    Normal(mean, 1) with mean ~ Normal(0, separation^2); a count one Poisson with a log-normal rate about 5.

    \b
    Examples:
      mpibayes simulate mixture mixed.h5 --rows 1000000 --real 10 --count 2 --missing 0.05
      mpibayes simulate mixture wide.h5 --categorical 500 --levels 5 --clusters 100
      mpibayes simulate mixture names.h5 --categorical 2 --levels 65535 --rows 200000 --labels truth.txt
    """
    from mpibayes.hpc.synthetic.truth import categorical_columns

    if categorical + real + count == 0:
        raise click.UsageError("a table needs a column: --categorical, --real or --count")
    _simulate(categorical_columns(categorical, *levels, seed), real, count, rows, seed=seed, **asked)


def _simulate(categorical, real, count, rows, table, clusters, seed, separation, missing, labels, force):
    from mpibayes.hpc.synthetic.truth import Shape, Truth
    from mpibayes.hpc.synthetic.truth import simulate as draw

    truth = Truth(Shape(categorical, real, count, clusters, missing, separation), seed)
    with on_terminal(standard_output(), "drawing", lambda done: f"{done:,} of {rows:,} rows") as progress:
        drawn = draw(table, truth, rows, labels=labels, overwrite=force, progress=progress)
    kinds = ((len(categorical), "categorical"), (real, "real"), (count, "count"))
    lines = [("table", f"{table}: {counted(rows, 'row')}, fingerprint {drawn.table.fingerprint[:12]}")]
    lines += [("columns", ", ".join(f"{n} {kind}" for n, kind in kinds if n))]
    if categorical:
        widths = [v for _, v in categorical]
        lines += [("levels", f"from {min(widths)} to {max(widths)}, {sum(widths):,} in all")]
    lines += [("clusters", f"{clusters}, of which {drawn.used_clusters} with rows; separation {separation:g}")]
    lines += [("missing", f"{missing:.1%} of the cells")] if missing else []
    lines += [("labels", f"{labels}: the rows' clusters")] if labels is not None else []
    best = f"{drawn.score:.4f} nats a row (standard error {drawn.score_error:.4f}, {counted(drawn.scored_rows, 'row')})"
    lines += [("best score", f"{best}: no model can do better on average")]
    for title, text in lines:
        print(f"{title + ':':<16}{visible(text)}")
