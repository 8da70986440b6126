"""Which kind of model a configuration is about."""

from __future__ import annotations

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.family import Family


def family_of(config: Config) -> type[Family]:
    """The class that knows what belongs to `model.family`; only that one's modules are loaded."""
    if config.model.family == "mixture":
        from mpibayes.hpc.crosscat.family import MixtureFamily

        return MixtureFamily
    from mpibayes.hpc.regression.family import RegressionFamily

    return RegressionFamily
