"""`mpibayes check`: validate the configuration and predict the run's memory per rank, seconds per cycle and disk use.

Time is measured on a few cycles of the sampler itself; memory is a model whose constants were measured. Checks for one
kind of model are in its family's `check.py`.
"""

from __future__ import annotations

import click

from mpibayes.hpc.cli.shared import PATH, SET
from mpibayes.text import visible


@click.command(short_help="Check a configuration; predict memory, time and disk.")
@click.argument("config", type=PATH)
@SET
@click.option("--ranks", type=click.IntRange(min=1), help="Ranks to plan for.  [default: those that `run` starts]")
def check(config, overrides, ranks):
    """Check a configuration and its table; predict memory, time and disk. Needs no MPI.

    Without --ranks the prediction is for the ranks that `mpibayes run` would start on this machine. If CONFIG is a
    run's config.resolved.toml, shards are those of the run, after appends to its table.

    The output also describes how a chain starts, when annealing ends, the first cycle whose draws count, and the time
    per cycle and efficiency for several numbers of ranks.

    \b
    Examples:
      mpibayes check run.toml --ranks 16 --set run.cycles=5000
      mpibayes check run.toml --set sampler.strategy=anneal --set anneal.passes=20
    """
    from mpibayes.hpc.registry import check_of
    from mpibayes.hpc.run.examine import examine

    examined = examine(config, overrides)
    lines = [("warning", note) for note in examined.config.notes]
    if ranks is None:
        from mpibayes.hpc.run.ranks import choose

        ranks, note = choose(examined.config, examined.data)
        started = note if ranks == 1 else f"{ranks} ranks, which `mpibayes run` starts itself here (run.ranks)"
        lines += [("started as", started.removeprefix("note: "))] if started else []
    for title, text in [*lines, *check_of(examined.config.kind).findings(examined, ranks)]:
        print(f"{title + ':' if title else '':<16}{visible(text)}")
