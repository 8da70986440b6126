"""The command `mpibayes`, one verb per file."""

from mpibayes.hpc.cli.command import CONTEXT, cli, main

__all__ = ["CONTEXT", "cli", "main"]
