"""Queries are refused: see the reason."""

from __future__ import annotations

from mpibayes.errors import ConfigError
from mpibayes.hpc.regression.draws import Posterior


def ask(run: Posterior, draws: int | None):
    """See `hpc.family.Queries`. Raises ConfigError."""
    raise ConfigError(
        f"{run.chains[0].home}: a regression has no law of its predictors, only one of the response given all of them, "
        "which `mpibayes predict` has"
    )
