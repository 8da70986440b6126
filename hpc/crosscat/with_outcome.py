"""Construction of the outcome of a chain's rows from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.columns import Columns
from mpibayes.hpc.outcome.fireflies import Fireflies
from mpibayes.hpc.outcome.keys import STEPS
from mpibayes.hpc.outcome.keys import Outcome as Keys
from mpibayes.hpc.outcome.outcome import Outcome
from mpibayes.io.rows import Rows
from mpibayes.text import counted, enumerated

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture

ENTRY = 2  # labels depend on the outcome after 1 / ENTRY of burn-in, once the columns have formed clusters


def columns_of(config: Config, data: Data) -> Columns:
    """Return the columns of the outcome of a run that has one."""
    return Columns.of(config.of(Keys), data, config.heldout_fraction)


def add_outcome(mixture: Mixture, columns: Columns, config: Config) -> None:
    """Give a chain its outcome. Collective."""
    answers = columns.of_shards(mixture.comm, [(shard.start, shard.start + len(shard)) for shard in mixture.shards])
    _add(mixture, columns, answers, entry_of(config), frozen_of(config))


def add_to_sample(mixture: Mixture, columns: Columns, rows: Rows) -> None:
    """Give a chain of a sample its outcome, on which labels depend from the start. rows: the sample's cells of these
    columns."""
    cut = [slice(shard.start, shard.start + len(shard)) for shard in mixture.shards]
    _add(mixture, columns, [columns.answers(rows.take(of)) for of in cut], 0, 1)


def _add(mixture: Mixture, columns: Columns, answers: list[Answers], entry: int, frozen: int) -> None:
    comm, n_shards, keys = mixture.comm, mixture.n_shards, columns.keys
    law = columns.law(comm, answers, n_shards)
    of = mixture.shards, answers, n_shards, law, mixture.settings.seed, mixture.chain, entry
    mixture.outcome = Outcome(comm, *of, steps_of(keys))
    if keys.kernel == "firefly":
        mixture.outcome.fireflies = Fireflies(mixture.outcome, frozen)


def entry_of(config: Config) -> int:
    """Return the cycle after which labels depend on the outcome."""
    return config.burn_in // ENTRY


def frozen_of(config: Config) -> int:
    """Return the cycle after which coefficients are drawn by Firefly Monte Carlo, if they are."""
    return max(1, config.burn_in)


def steps_of(keys: Keys) -> int:
    """Return the number of updates of all coefficients in a cycle."""
    if keys.steps == "auto":
        return STEPS if keys.kernel == "firefly" else 1
    return keys.steps


def in_words(columns: Columns, config: Config) -> list[str]:
    """Describe the outcome at the start of a run, and warn of covariates that are not in the mixture."""
    lines = [f"outcome: {columns.in_words()}; labels follow it from cycle {entry_of(config) + 1:,} on"]
    if columns.keys.kernel == "firefly":
        steps = counted(steps_of(columns.keys), "update")
        lines[0] += f"; Firefly Monte Carlo from cycle {frozen_of(config) + 1:,} on, {steps} a cycle"
    if apart := [name for name in columns.keys.predictors if name in config.unused]:
        many = len(apart) > 1
        lines.append(
            f"warning: {enumerated(apart)} {'are no columns' if many else 'is no column'} of the mixture: where "
            f"{'their means differ' if many else 'its mean differs'} between clusters, coefficients take a part of the "
            "clusters' effect; leave out use = false"
        )
    return lines
