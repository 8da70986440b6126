"""Queries are refused: see the reason."""

from __future__ import annotations

from mpibayes.errors import ConfigError
from mpibayes.hpc.ibp.draws import Posterior


def ask(run: Posterior, draws: int | None):
    """See `hpc.family.Queries`. Raises ConfigError."""
    raise ConfigError(
        f"{run.chains[0].home}: queries do not take features yet; `mpibayes predict` has the log densities of new rows "
        "and their missing cells"
    )
