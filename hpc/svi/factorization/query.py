"""Queries are refused: see the reason."""

from __future__ import annotations

from typing import Any

from mpibayes.errors import ConfigError


def ask(run: Any, draws: int | None):
    """See `hpc.family.Queries`. Raises ConfigError."""
    raise ConfigError(
        f"{run.chains[0].home}: queries are about columns of rows, and a factorization has users and items; "
        "`mpibayes predict` has the ratings of pairs, and recommendations"
    )
