"""An annealed start is not a draw, but later states are: the full-data phase before draws count is long enough.

Replicates on cat6, each annealed from one row on with separate streams, so that final partitions are independent and
Pearson's chi-square applies (level 1e-4 per test, 3 tests that must pass). Without split and merge moves, which would
help. With no full-data phase the same test rejects: rows off the collapsed shard open no cluster while the subsample
grows, so there are too few (docs/math.md 3.3, whose total variation this reproduces). At this size it rejects phases of
0 and 2 cycles per shard, not of 5: the margin of the default of 20 is not measured.
"""

import numpy as np
import pytest

from mpibayes.hpc.crosscat.start import strategy
from mpibayes.hpc.crosscat.start.subsample import Annealing, planned_cycles
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import production
from tests.exact.compare import chi_square, seed
from tests.exact.enumerate import CASES, Posterior

LEVEL = 1e-4
ANNEALING = Annealing("linear", passes=4.0, start_rows=1)
REPLICATES = 200  # at which a chain that has not settled is rejected, with p = 2e-8


def final_partitions(comm, n_shards: int, settling: int, n_replicates: int) -> np.ndarray | None:
    """Labels of every replicate after growth and `settling` more cycles, on root."""
    case, out = CASES["cat6"], []
    cycles = planned_cycles(ANNEALING, case.n_rows) - 1 + settling
    for r in range(n_replicates):
        mixture = production.sampler(comm, case, n_shards, seed(71) + 1000 * r, annealing=ANNEALING, split_merge=0)
        mixture.start("one")
        # a row that meets no cluster it may enter waits, and the settling begins when none does
        while mixture.growing or mixture.cycles < cycles:
            mixture.cycle()
        out.append(mixture.view.labels())
    return np.array(out) if comm.rank == 0 else None


@pytest.mark.thorough
@pytest.mark.parametrize("n_shards, n_replicates", [(1, 100), (2, REPLICATES)])
def test_settled_after_the_default_number_of_cycles(n_shards, n_replicates):
    posterior = Posterior(CASES["cat6"])
    result = final_partitions(serial(), n_shards, strategy.SETTLING_CYCLES * n_shards, n_replicates)
    p = chi_square(posterior.index(result), posterior.p)
    assert p >= LEVEL, f"p = {p} (seed {seed(71)})"


@pytest.mark.thorough
def test_not_settled_when_growth_ends():
    posterior = Posterior(CASES["cat6"])
    p = chi_square(posterior.index(final_partitions(serial(), 2, 0, REPLICATES)), posterior.p)
    assert p < LEVEL, f"p = {p}"


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_settled_on_ranks():
    """The same bits as on one rank, whose law is tested above."""
    comm = world()
    result = final_partitions(comm, 3, strategy.SETTLING_CYCLES * 3, 3)
    alone = final_partitions(serial(), 3, strategy.SETTLING_CYCLES * 3, 3) if comm.rank == 0 else None
    assert comm.share(bool((result == alone).all()) if comm.rank == 0 else None)
