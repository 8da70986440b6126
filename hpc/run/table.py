"""The table of a run, of the kind that its model needs, and the rows that it works on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from mpibayes.errors import ConfigError
from mpibayes.hpc import registry
from mpibayes.hpc.config.against_table import some
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.bins import fit_bins
from mpibayes.hpc.data.children import child_columns
from mpibayes.hpc.data.lines import line_columns
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.data.shapes import fit_shapes
from mpibayes.hpc.data.sparse import AnyData, SparseData
from mpibayes.hpc.parallel.agreement import on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.run.progress import say
from mpibayes.io.rows import Column
from mpibayes.io.sparse import SparseTable
from mpibayes.io.table import Table
from mpibayes.io.tables import AnyTable, is_sparse, open_table


def opened(config: Config, path: Path | None = None, fingerprint: str = "") -> AnyTable:
    """Open the table at `path`, by default the configuration's, with real columns as the model needs them. Raises
    ConfigError if it is sparse and the model needs typed columns, or the reverse; DataError if there is no table.
    fingerprint: the table's when the run started; rows appended since are left out."""
    path = config.table if path is None else path
    there, requested = is_sparse(path), config.model.sparse
    if there != requested:
        kinds = {
            True: "a sparse table, of counts or ratings (mpibayes import --sparse)",
            False: "a typed table, of columns (mpibayes import)",
        }
        family = config.kind.replace(" ", " with likelihood ")
        raise ConfigError(
            f"{path}: {kinds[there]}, but the model, {family}, is about {kinds[requested]}: name such a table, or "
            "choose another model (model.family, model.likelihood)"
        )
    table = open_table(path, requested)
    if not isinstance(table, Table):
        return table
    return as_modelled(config, table.before_growth(fingerprint) or table)


def as_modelled(config: Config, table: Table) -> Table:
    """Return the table with numeric columns as the model needs them: plain or in coordinates; in bins that other
    columns depend on, on lines, or below columns with levels."""
    plain, shaped, binned, lined = config.model.plain, config.model.shaped, config.model.binned, config.model.lined
    born, seconds = config.model.born, config.model.seconds
    if not any((plain, shaped, binned, lined, born, seconds)):
        return table

    def of(column: Column) -> Column:
        column = replace(column, cuts=binned.get(column.name, ()), line=column.name in lined, child=column.name in born)
        column = replace(column, second=seconds.get(column.name, ""))
        if plain:
            return replace(column, resolution=0.0, atoms=(), log=False)
        return replace(column, shape=shaped.get(column.name))

    return table.having(tuple(map(of, table.columns)))


def weights_in_words(table: AnyTable) -> str:
    """Line about survey weights; "" for a table without."""
    if table.weight is None:
        return ""
    return f"'{table.weight}' does not count in the fit, which is of the rows as they are"


def with_shapes(comm: Communicator, config: Config, data: AnyData) -> tuple[Config, AnyData]:
    """Return configuration and rows with the coordinates of real columns, the columns that may depend on each other by
    lines or on columns with levels, and the bins of numbers that may be parents: an earlier start's, or fitted to the
    training rows by a first one. Root fits, so that they do not depend on the number of ranks. Collective."""
    if not isinstance(data, Data):
        return config, data
    if config.model.fits_shapes:
        views, given = config.model.has_views, {n for n, c in config.columns.items() if c.given}
        shapes = on_root(comm, lambda: fit_shapes(data, views, given), what="fit the shapes of its real columns")
        if shapes and comm.rank == 0:
            say(f"shapes: {some(list(shapes))} (model.shapes)")
        config = config.changed("model", shapes={name: tuple(shape) for name, shape in shapes.items()} or "none")
    fits_lines = config.model.fits_lines or config.model.links_by_default
    config, linked = with_links(comm, config, data)
    if fits_lines and config.model.lined and comm.rank == 0:
        say(f"links: {some(list(config.model.lined))} may depend on each other linearly (model.links, model.lines)")
    return config, linked


def with_links(comm: Communicator, config: Config, data: AnyData) -> tuple[Config, AnyData]:
    """Return what `with_shapes` does, without fitting coordinates. Collective."""
    if not isinstance(data, Data):
        return config, data
    decided = config.model.links_by_default
    if decided and any(of.taken for of in config.sections.values()):
        decided = "none"  # columns beside an outcome are not linked
    if decided:
        config = config.changed("model", links=decided)
    if config.model.fits_lines:
        lines = line_columns(data, config.model.parents, config.model.binned) or "none"
        config = config.changed("model", lines=lines, **({"links": "none"} if decided and lines == "none" else {}))
        if config.model.lined:
            data = _data_as_modelled(config, data.table)
    if config.model.fits_children:
        born = child_columns(data, config.model.parents, config.model.binned)
        config = config.changed("model", children=born or "none")
        if config.model.born:
            data = _data_as_modelled(config, data.table)
    if config.model.fits_bins:
        cuts = on_root(comm, partial(fit_bins, data, config.model.parents), what="cut its numbers into bins")
        config = config.changed("model", bins=cuts or "none")
    if any((config.model.shaped, config.model.binned, config.model.lined, config.model.born)):
        data = _data_as_modelled(config, data.table)
    return config, data


def data_of(config: Config, table: AnyTable) -> AnyData:
    """Rows of the table that a run works on."""
    return SparseData(table, config.heldout_fraction) if isinstance(table, SparseTable) else _typed(config, table)


def _typed(config: Config, table: Table) -> Data:
    return Data(table, config.unused, config.heldout_fraction, config.joint, config.model.latent)


def _data_as_modelled(config: Config, table: Table) -> Data:
    return _typed(config, as_modelled(config, table))


def with_family(config: Config, data: AnyData) -> tuple[Config, str]:
    """Return the configuration with the family chosen for "auto" on this table, and a sentence about the choice."""
    choice = registry.choice_for(config.model.family)
    if choice is None:
        return config, ""
    size = data.table.n_rows, len(data.stored)
    family = choice.family_for(config, *size)
    return config.changed("model", family=family), choice.in_words(family, *size)
