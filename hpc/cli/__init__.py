"""The command `mpibayes`, a verb a file."""

from mpibayes.hpc.cli.command import CONTEXT, cli, main

__all__ = ["CONTEXT", "cli", "main"]
