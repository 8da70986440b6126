"""Queries: this family answers none yet (`hpc.family.Queries`)."""

from __future__ import annotations

from typing import Any, NoReturn

from mpibayes.errors import ConfigError


def ask(run: Any, draws: int | None) -> NoReturn:
    """See `hpc.family.Queries`."""
    raise ConfigError(
        f"{run.chains[0].home}: a regression answers no queries yet, mixtures and cross-categorizations do; "
        "`mpibayes predict` gives the outcome of new rows"
    )
