"""A chain that starts from the clusters of some rows, with the other rows idle, has the posterior of all rows.

Replicates on six rows of two kinds, which the first three rows do not separate with certainty: these start at an exact
draw of their posterior, as after a run on them, and the remaining rows are added in one part or in three. Final
partitions of replicates are independent: Pearson's chi-square (level 1e-4 per test, 4 tests that must pass). The same
test rejects a chain that seats the new rows and leaves the old ones in their clusters, whose law is 0.15 away in total
variation.
"""

from dataclasses import replace

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.start.subsample import IDLE
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import production
from tests.exact.compare import chi_square, seed
from tests.exact.enumerate import Case, Posterior

LEVEL = 1e-4
NAMES = ("a", "b", "c", "d")
CASE = Case(
    "two kinds",
    tuple((name, "categorical", (0, 1, 0, 1, 0, 1), ("no", "yes")) for name in NAMES),
    {name: {"dirichlet": (1.0, 1.0)} for name in NAMES},
    1.0,
    0.0,
)
SETTLING = 4  # cycles a shard
REPLICATES = 150


class Frozen(Mixture):
    """Wrong: seats the new rows alone."""

    def _visits(self, i, shard, steps, target):
        idle = self.views[0].z[i] == IDLE
        return tuple(rows[idle] for rows in super()._visits(i, shard, steps, target))


def first_rows(n):
    """The case with its first n rows."""
    return replace(CASE, columns=tuple((name, kind, x[:n], levels) for name, kind, x, levels in CASE.columns))


def grown(comm, n_shards, sizes, n_replicates, settling=SETTLING, kind=Mixture, split_merge=1):
    """Labels of every replicate, on root: `sizes` rows added in sequence, the first of them from their posterior."""
    law, out = Posterior(first_rows(sizes[0])), []
    which = np.random.default_rng(seed(211)).choice(len(law.p), n_replicates, p=law.p / law.p.sum())
    for r in range(n_replicates):
        z = law.partitions[which[r]]
        for step, n in enumerate(sizes[1:]):
            key = seed(212) + 10 * r + step
            mixture = production.sampler(comm, first_rows(n), n_shards, key, kind=kind, split_merge=split_merge)
            mixture.start(np.concatenate([z, np.full(n - len(z), IDLE)]))
            assert mixture.growing
            while mixture.growing or mixture.cycles < settling * mixture.n_shards:
                mixture.cycle()
            z = mixture.view.labels()
        out.append(z)
    return np.array(out) if comm.rank == 0 else None


@pytest.mark.thorough
@pytest.mark.parametrize("n_shards, sizes", [(1, (3, 6)), (3, (3, 6)), (1, (3, 4, 5, 6)), ((1, 2, 3), (3, 6))])
def test_the_posterior_of_all_rows(n_shards, sizes):
    """In any number of parts, on shards of any size."""
    p = chi_square(Posterior(CASE).index(grown(serial(), n_shards, sizes, REPLICATES)), Posterior(CASE).p)
    assert p >= LEVEL, f"p = {p} (seed {seed(212)})"


@pytest.mark.quick
def test_old_rows_that_stay_are_rejected():
    frozen = grown(serial(), 1, (3, 6), REPLICATES, settling=0, kind=Frozen, split_merge=0)
    p = chi_square(Posterior(CASE).index(frozen), Posterior(CASE).p)
    assert p < LEVEL, f"p = {p}"


@pytest.mark.quick(ranks=(2, 3))
@pytest.mark.mpi(min_size=2)
def test_the_same_bits_on_ranks():
    result = grown(world(), 3, (4, 6), 4)
    if world().rank == 0:
        assert np.array_equal(result, grown(serial(), 3, (4, 6), 4))
