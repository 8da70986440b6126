"""Assignment of a configuration's chains to ranks; for `run`, and for `check` and `submit`, which predict it."""

from __future__ import annotations

from dataclasses import dataclass

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.sparse import AnyData, SparseData
from mpibayes.hpc.parallel.schedule import Schedule, decided, fewest
from mpibayes.hpc.parallel.shards import count
from mpibayes.hpc.registry import family_of
from mpibayes.text import counted

CELL_BYTES, ENTRY_BYTES = 8, 16  # upper bounds per cell and per entry of a sparse table, as the samplers hold them
RANK_BYTES = 100 << 20  # a process without rows


@dataclass(frozen=True)
class Work:
    """Work to distribute: chains, the shards of the table, and bytes of its rows in memory. groups: run.groups.
    cycle_s: seconds of a chain's cycle on one core, to an order of magnitude. shared: True if several ranks speed up a
    cycle."""

    n_chains: int
    n_shards: int
    row_bytes: int
    groups: int | str
    cycle_s: float
    shared: bool = True

    def schedule(self, n_ranks: int) -> Schedule:
        """Assignment of the chains to `n_ranks` ranks."""
        return decided(n_ranks, self.n_chains, self.n_shards, self.row_bytes, self.groups)

    def ranks(self, most: int) -> int:
        """Number of ranks that shorten the run, `most` at most."""
        return fewest(most, self.n_chains, self.n_shards if self.shared else 1, self.row_bytes, self.groups)

    def bytes(self, n_ranks: int) -> int:
        """Approximate memory of `n_ranks` ranks: the program, the rows, and a chain's state of the same size."""
        return n_ranks * RANK_BYTES + 2 * self.row_bytes * len(self.schedule(n_ranks).sizes)


def work_of(config: Config, data: AnyData) -> Work:
    """Work of a run. config: with its family decided."""
    run, family = config.run, family_of(config.kind)
    n_shards = count(run.shards, data.n_rows, family.default_shards)
    n_cells, n_bytes = data.n_rows * len(data.columns), CELL_BYTES
    if isinstance(data, SparseData):
        n_cells, n_bytes = data.table.n_entries, ENTRY_BYTES
    cycle_s = family.cycle_s(n_cells)
    return Work(run.chains, n_shards, n_bytes * n_cells, run.groups, cycle_s, family.shares_cycles)


def idle_in_words(schedule: Schedule, n_shards: int) -> str:
    """Describe ranks without a shard; "" if there are none."""
    idle, ranks = schedule.idle(n_shards), sum(schedule.sizes)
    if not idle:
        return ""
    chains = f" and {schedule.n_chains} chains" if schedule.n_chains > 1 else ""
    has = "ranks have" if idle > 1 else "rank has"
    return f"{ranks} ranks, but {counted(n_shards, 'shard')}{chains}: {idle} {has} nothing to do (run.shards)"
