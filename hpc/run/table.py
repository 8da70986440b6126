"""The table of a run, of the kind that its model is about, and the rows that it works on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mpibayes.errors import ConfigError
from mpibayes.hpc import registry
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.data.sparse import SparseData
from mpibayes.io.table import Table
from mpibayes.io.tables import AnyTable, is_sparse, open_table


def opened(config: Config, path: Path | None = None) -> AnyTable:
    """The table at `path`, by default that of the configuration. ConfigError where it is a sparse one and the model is
    about typed columns, or the other way round; DataError where there is no table. Its real columns are as the model
    takes them."""
    path = config.table if path is None else path
    there, wanted = is_sparse(path), config.model.sparse
    if there != wanted:
        kinds = {
            True: "a sparse table, of counts or ratings (mpibayes import --sparse)",
            False: "a typed table, of columns (mpibayes import)",
        }
        family = config.kind.replace(" ", " with likelihood ")
        raise ConfigError(
            f"{path}: {kinds[there]}, but the model, {family}, is about {kinds[wanted]}: name such a table, or choose "
            "another model (model.family, model.likelihood)"
        )
    table = open_table(path, wanted)
    if not config.model.plain:
        return table
    columns = tuple(replace(column, resolution=0.0, atoms=(), log=False) for column in table.columns)
    return Table(table.path, table.n_rows, columns, table.fingerprint, table.source)


def data_of(config: Config, table: AnyTable) -> Data | SparseData:
    """The rows of the table that a run works on."""
    if config.model.sparse:
        return SparseData(table, config.heldout_fraction)
    return Data(table, config.unused, config.heldout_fraction, config.joint, config.model.latent)


def with_family(config: Config, table: AnyTable, data: Data | SparseData) -> tuple[Config, str]:
    """Return the configuration with the family that "auto" means for this table, and a sentence about the choice."""
    choice = registry.choice_for(config.model.family)
    if choice is None:
        return config, ""
    size = table.n_rows, len(data.stored)
    family = choice.family_for(config, *size)
    return config.changed("model", family=family), choice.in_words(family, *size)
