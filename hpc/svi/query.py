"""Queries are refused: see the reason."""

from __future__ import annotations

from typing import Any

from mpibayes.errors import ConfigError


def ask(run: Any, draws: int | None):
    """See `hpc.family.Queries`. Raises ConfigError."""
    raise ConfigError(
        f"{run.chains[0].home}: queries are answered from draws of a posterior, and this approximation has "
        "none; `mpibayes predict` has the log densities of new rows, their components and missing cells"
    )
