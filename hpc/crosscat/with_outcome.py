"""The outcome of a chain's rows, made from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.outcome.columns import Columns
from mpibayes.hpc.outcome.keys import Outcome as Keys
from mpibayes.hpc.outcome.outcome import Outcome
from mpibayes.text import enumerated

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture

ENTRY = 2  # labels follow the outcome after this part of burn-in, once there are clusters of the columns


def columns_of(config: Config, data: Data) -> Columns:
    """The columns of the outcome of a run that has one."""
    return Columns.of(config.of(Keys), data, config.heldout_fraction)


def add_outcome(mixture: Mixture, columns: Columns, config: Config) -> None:
    """Give a chain its outcome. Collective."""
    comm, n_shards = mixture.comm, mixture.n_shards
    answers = columns.of_shards(comm, [(shard.start, shard.start + len(shard)) for shard in mixture.shards])
    law, entry = columns.law(comm, answers, n_shards), entry_of(config)
    of = mixture.shards, answers, n_shards, law, mixture.settings.seed, mixture.chain, entry
    mixture.outcome = Outcome(comm, *of)


def entry_of(config: Config) -> int:
    """The cycle after which labels follow the outcome."""
    return config.burn_in // ENTRY


def in_words(columns: Columns, config: Config) -> list[str]:
    """Describe the outcome at the start of a run, and warn of covariates that labels do not know."""
    lines = [f"outcome: {columns.in_words()}; labels follow it from cycle {entry_of(config) + 1:,} on"]
    if apart := [name for name in columns.keys.predictors if name in config.unused]:
        many = len(apart) > 1
        lines.append(
            f"warning: {enumerated(apart)} {'are no columns' if many else 'is no column'} of the mixture: where "
            f"{'their means differ' if many else 'its mean differs'} between clusters, coefficients take a part of the "
            "clusters' effect; leave out use = false"
        )
    return lines
