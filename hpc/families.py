"""Which kind of model a configuration is about."""

from __future__ import annotations

from mpibayes.hpc.config import Config
from mpibayes.hpc.sampler import Family


def family_of(config: Config) -> type[Family]:
    """The class that knows what belongs to `model.family`; only that one's modules are loaded."""
    if config.model.family == "mixture":
        from mpibayes.hpc.mixture_run import MixtureFamily

        return MixtureFamily
    from mpibayes.hpc.regression_run import RegressionFamily

    return RegressionFamily
