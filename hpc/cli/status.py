"""`mpibayes status`, with its options."""

from __future__ import annotations

import click

from mpibayes.hpc.cli.shared import PATH


@click.command(short_help="Show how far a run is, from any node.")
@click.argument("run_dir", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def status(run_dir, as_json):
    """Show how far a run is, from any node that sees its directory.

    \b
    Examples:
      mpibayes status runs/a
      mpibayes status runs/a --json
    """
    from mpibayes.hpc.run.status import show_status

    show_status(run_dir, as_json)
