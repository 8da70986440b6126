"""Checks before a run starts, and the memory of each of its processes; for `run`, `check` and `submit`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpibayes.hpc.config.against_table import check_table
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.load import load
from mpibayes.hpc.config.resolved import continued
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.data.sparse import AnyData
from mpibayes.hpc.family import Family
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.schedule import Schedule
from mpibayes.hpc.parallel.shards import Setting, count
from mpibayes.hpc.registry import family_of, scalars_of
from mpibayes.hpc.run import grown, rounds
from mpibayes.hpc.run.identity import PROVENANCE, RESOLVED
from mpibayes.hpc.run.plan import idle_in_words, work_of
from mpibayes.hpc.run.table import data_of, opened, weights_in_words, with_family, with_links
from mpibayes.io.rows import KINDS
from mpibayes.io.table import Table
from mpibayes.io.tables import AnyTable
from mpibayes.text import counted, span

MIB = 1 << 20

# Resident memory measured on Linux x86-64, Python 3.11, numpy 2.4: the program before it reads any row.
PROCESS_BYTES = 74 * MIB
MPI_BYTES = 15 * MIB  # the MPI library and its shared buffers (mpich 5 wheel, 1 to 4 ranks)
WORK_BYTES = 3 * MIB  # library pages first touched by a cycle, small temporaries


@dataclass
class Examined:
    """A configuration and its table, after every check that needs no run."""

    config: Config  # "auto" replaced by the first start's choice
    data: AnyData
    n_heldout: int
    family: Family
    sizes: tuple[int, ...] | None = None  # of the shards of a run that has grown

    @property
    def table(self) -> AnyTable:
        return self.data.table

    @property
    def shards(self) -> Setting:
        """Number of shards, or their sizes in a run that has grown."""
        return self.sizes or self.config.run.shards

    def schedule(self, ranks: int) -> Schedule:
        """Groups of `ranks` ranks, and the chains that each would run."""
        return work_of(self.config, self.data).schedule(ranks)


def examine(config_path: str | Path, overrides: Sequence[str] = ()) -> Examined:
    """Run every check that needs no run directory. Raises ConfigError or DataError."""
    config = load(config_path, overrides)
    table = opened(config)
    check_table(config, table)
    data = data_of(config, table)
    data.check_blocks()
    config, _ = with_family(config, data)
    config, data = with_links(serial(), config, data)
    kind = family_of(config.kind)
    config = rounds.decided(config, scalars_of(config.kind), data)
    family = kind(serial(), config, data)
    family.read_files([], fresh=True)
    sizes = _recorded_sizes(config, data)
    n_heldout = table.n_rows - data.n_rows if family.heldout_file is None else len(family.heldout_file)
    config = continued(config, family.decided(config, data.n_rows))
    return Examined(config, data, n_heldout, family, sizes)


def _recorded_sizes(config: Config, data: AnyData) -> tuple[int, ...] | None:
    """Return the sizes of the shards of the run whose resolved configuration this is, if it has grown or is about to;
    None otherwise."""
    folder = config.path.parent
    if config.path.name != RESOLVED or not (folder / PROVENANCE).is_file():
        return None
    growth = grown.planned(folder, config, data.table, fresh=False)
    return grown.with_shards(growth, folder, config, data).shards


def about_table(config: Config, table: Table, data: Data, n_heldout: int) -> Iterator[tuple[str, str]]:
    """Describe the configuration and the table, whatever the model; (title, text) pairs."""
    yield "configuration", f"{config.path}: valid"
    parts = f" in {len(table.pieces)} parts" if len(table.pieces) > 1 else ""
    yield "table", f"{table.path}: {counted(table.n_rows, 'row')}{parts}, fingerprint {table.fingerprint[:12]}"
    kinds = [(kind, sum(c.kind == kind and not c.part_of for c in data.columns)) for kind in KINDS]
    unused = f"; {len(config.unused)} left out" if config.unused else ""
    yield "columns", ", ".join(f"{n} {kind}" for kind, n in kinds if n) + unused
    for name, columns in data.carve.blocks.items():
        yield "", f"modelled jointly, {name}: {', '.join(columns)}"
    missing = sum(c.n_missing for c in data.columns) / (table.n_rows * len(data.columns))
    yield "missing", f"{missing:.1%} of the cells"
    if weights := weights_in_words(table):
        yield "weights", weights
    held = f"{n_heldout:,} held out and scored" if config.data.heldout is not None else "none held out"
    yield "rows", f"{data.n_rows:,} trained on, {held}"


def shards_in_words(examined: Examined) -> str:
    """Describe the number of shards and their length."""
    n = count(examined.config.run.shards, examined.data.n_rows)
    if examined.sizes is None:
        return f"{n} of about {examined.data.n_rows // n:,} rows"
    return f"{len(examined.sizes)} of {span(examined.sizes)} rows, as appends have made them"


def about_ranks(schedule: Schedule, n_shards: int) -> Iterator[tuple[str, str]]:
    """Describe the assignment of chains to ranks, and warn of idle ranks; (title, text) pairs."""
    if words := schedule.in_words():
        yield "chains", words
    if idle := idle_in_words(schedule, n_shards):
        yield "", f"warning: {idle}"


def with_mpi(parts: Mapping[str, int], ranks: int, each: int) -> dict[str, int]:
    """Bytes of a rank by part; `ranks` in the job, `each` to a chain: the MPI library is loaded even for 1."""
    return {**parts, "process": parts["process"] + (MPI_BYTES if ranks > 1 and each == 1 else 0)}
