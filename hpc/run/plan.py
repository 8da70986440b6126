"""Assignment of a configuration's chains to ranks; for `run`, and for `check` and `submit`, which predict it."""

from __future__ import annotations

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.data.sparse import SparseData
from mpibayes.hpc.parallel.schedule import Schedule, decided
from mpibayes.hpc.parallel.shards import count
from mpibayes.hpc.registry import family_of
from mpibayes.text import counted

CELL_BYTES, ENTRY_BYTES = 8, 16  # at most, of a cell and of an entry of a sparse table, as the samplers hold them


def schedule_of(config: Config, data: Data | SparseData, n_ranks: int) -> Schedule:
    """The schedule of so many ranks. config: with its family decided."""
    run = config.run
    n_shards = count(run.shards, data.n_rows, family_of(config.kind).default_shards)
    cells, n_bytes = data.n_rows * len(data.columns), CELL_BYTES
    if isinstance(data, SparseData):
        cells, n_bytes = data.table.n_entries, ENTRY_BYTES
    return decided(n_ranks, run.chains, n_shards, n_bytes * cells, run.groups)


def idle_in_words(schedule: Schedule, n_shards: int) -> str:
    """Say that some ranks have no shard; "" where all have."""
    idle, ranks = schedule.idle(n_shards), sum(schedule.sizes)
    if not idle:
        return ""
    chains = f" and {schedule.n_chains} chains" if schedule.n_chains > 1 else ""
    has = "ranks have" if idle > 1 else "rank has"
    return f"{ranks} ranks, but {counted(n_shards, 'shard')}{chains}: {idle} {has} nothing to do (run.shards)"
