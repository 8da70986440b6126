"""Sweeps of a fixed set of rows with all clusters collapsed leave the posterior as it is; sets that depend on the state
do not.

A law is tested as in test_mixture_exact.py and test_outcome.py, with their false-alarm rates: each test rejects a right
program with probability LEVEL at most. Seeds are fixed; MPIBAYES_TEST_SEED overrides them.
"""

from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat import host, stray_rows
from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import crosscat, outcomes, production, test_outcome
from tests.exact.compare import seed
from tests.exact.enumerate import CASES, Posterior
from tests.exact.test_mixture_exact import CYCLES, LEVEL

# Shards and stray rows of each case: rows of one shard and of several, next to each other and apart.
CHOSEN = {
    "cat6": (3, [0, 3, 4]),
    "cat6py": (6, [1, 2, 5]),
    "miss6": (3, [0, 1, 2, 3, 4, 5]),
    "count5": (2, [0, 4]),
    "nix5": (3, [0, 2, 4]),
}

SAMPLER = outcomes.sampler


class VisitsAlone(Mixture):
    """The visits of stray rows without the sweeps of the shards."""

    def cycle(self):
        self.cycles += 1
        stray_rows.follow(self)
        return self._info(0.0, self._split_and_merge())


def verdict(comm, name, n_replicates, kind=Mixture, n=0):
    """n: number of stray rows of a program that chooses them."""
    n_shards, strays = CHOSEN[name]
    mixture = production.sampler(comm, CASES[name], n_shards, seed(301), kind=kind, stray_rows=n)
    mixture.strays = np.array(strays)
    return production.verdict(mixture, Posterior(CASES[name]), n_replicates, CYCLES, seed(302), LEVEL)


@pytest.mark.quick("cat6py")
@pytest.mark.parametrize("name", CHOSEN)
def test_posterior_law(name):
    result = verdict(serial(), name, 40)
    assert result.passed, f"{result} (seed {seed(301)})"


@pytest.mark.quick("cat6")
@pytest.mark.parametrize("name", ["cat6", "nix5"])
def test_posterior_law_of_the_visits_alone(name):
    """At the size at which wrong programs are rejected."""
    result = verdict(serial(), name, 120, VisitsAlone)
    assert result.passed, f"{result} (seed {seed(301)})"


def alone_now(chain, n):
    """Wrong: the rows that are alone in their clusters at present."""
    z = np.concatenate(chain.view.z)
    return np.flatnonzero(np.bincount(z)[z] == 1)


@pytest.mark.quick("alone_now")
@pytest.mark.parametrize("choose", [stray_rows.choose, alone_now])
def test_rows_chosen_anew_in_every_cycle_are_rejected(choose):
    with (
        mock.patch.object(stray_rows, "due", lambda cycle, fixed: True),
        mock.patch.object(stray_rows, "choose", choose),
    ):
        result = verdict(serial(), "cat6", 120, VisitsAlone, 2)
    assert not result.passed, str(result)


class VisitsBesideAnOutcome(Mixture):
    """The visits, and the draw of the coefficients, without the sweeps of the shards."""

    def cycle(self):
        self.cycles += 1
        stray_rows.follow(self)
        host.draw(self)


def with_stray_rows(comm, name, strays, *how, **settings):
    mixture = SAMPLER(comm, name, 3, *how, **settings)
    mixture.strays = np.array(strays)
    return mixture


def p_beside_an_outcome(name, cycles, strays, **settings):
    """p and t of all chains."""

    def sampler(comm, name, n_shards, *how, **more):
        return with_stray_rows(comm, name, strays, *how, **more, **settings)

    with mock.patch.object(outcomes, "sampler", sampler):
        return test_outcome.p_value(*test_outcome.means(serial(), name, 3, cycles))


@pytest.mark.thorough  # test_stray_joint.py has the joint law of these visits
def test_law_of_the_visits_alone_beside_an_outcome():
    """All rows are strays; enough cycles for partitions of a probability of a hundredth to be seen in most chains."""
    p, t = p_beside_an_outcome("t4", 200, range(4), kind=VisitsBesideAnOutcome)
    assert p >= LEVEL, f"p {p:.2g}, t {t:.1f} (seed {seed(21)})"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["t4", "glm4", "prof5py", "times4"])
def test_law_beside_an_outcome(name):
    p, t = p_beside_an_outcome(name, 200, [0, 2, 3])
    assert p >= LEVEL, f"{name}: p {p:.2g}, t {t:.1f} (seed {seed(21)})"


@pytest.mark.thorough
def test_forgotten_coefficients_of_a_row_alone_are_rejected():
    with test_outcome.in_python(candidates=test_outcome.fresh_alone):
        p, t = p_beside_an_outcome("t4", 60, range(4), kind=VisitsBesideAnOutcome)
    assert p < LEVEL, f"p {p:.2g}, t {t:.1f}"


# ---- the choice, and ranks -------------------------------------------------------------------------------------------


def test_they_are_chosen_twice_and_stay():
    mixture = production.sampler(serial(), CASES["miss6"], 3, 303, stray_rows=2, stray_rows_fixed=6)
    mixture.start("one")
    chosen = []
    for _ in range(12):
        mixture.cycle()
        chosen.append(mixture.strays.tolist())
    assert [len(of) for of in chosen] == [0] * 2 + [2] * 10
    assert chosen[2] == chosen[4] and all(of == chosen[5] for of in chosen[5:])
    assert all(of == sorted(of) for of in chosen)


def test_rows_of_small_clusters_come_first():
    mixture = production.sampler(serial(), CASES["cat6"], 3, 304)
    with mock.patch.object(stray_rows, "SMALL", 1):
        for labels in ([0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 2, 0]):
            production.place(mixture, np.array(labels), 0)
            alone = np.flatnonzero(np.bincount(labels)[labels] == 1)
            assert stray_rows.choose(mixture, len(alone)).tolist() == alone.tolist()


def test_the_most_probable_of_all_shards_are_chosen():
    mixture = production.sampler(serial(), CASES["cat6"], 3, 306)
    production.place(mixture, np.array([0, 0, 0, 0, 1, 1]), 0)
    with mock.patch.object(stray_rows, "SMALL", 0):
        p = np.concatenate(list(stray_rows._alone(mixture.view)))
        for n in range(1, 7):
            best = np.lexsort((np.arange(6), -p))[:n]
            assert stray_rows.choose(mixture, n).tolist() == sorted(best.tolist())


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_same_bits_on_every_number_of_ranks():
    """With given stray rows, and with rows that the chain chooses; a rank may have none of them."""
    comm, generator = world(), np.random.Generator(np.random.Philox(seed(305)))
    for name, (n_shards, strays) in CHOSEN.items():
        starts = Posterior(CASES[name]).draw(generator, 2)
        for settings in ({}, {"stray_rows": 2, "stray_rows_fixed": 3}):
            bits = []
            for where in (comm, serial()):
                mixture = production.sampler(where, CASES[name], n_shards, seed(306), **settings)
                mixture.strays = np.array(strays[:0] if settings else strays)
                bits.append(production.digest(mixture, starts, 6) if where is comm or comm.rank == 0 else None)
            together, alone = comm.share(bits)
            assert together == alone, (name, settings)


@pytest.mark.quick("t4")
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", ["t4", "glm4"])
def test_same_bits_beside_an_outcome(name):
    here, alone = (with_stray_rows(comm, name, [0, 2, 3], 308) for comm in (world(), serial()))
    for _ in range(12):
        here.cycle()
        alone.cycle()
        z = here.view.labels()
        assert world().rank or np.array_equal(z, alone.view.labels())
        assert np.array_equal(here.outcome.theta, alone.outcome.theta)


@pytest.mark.quick(ranks=(2, 3))
@pytest.mark.mpi(min_size=2)
def test_same_bits_with_views():
    def bits(comm):
        mixture = crosscat.sampler(comm, "block", 3, 307, split_merge=1, stray_rows=3, stray_rows_fixed=4)
        mixture.start("one")
        result = []
        for _ in range(8):
            mixture.cycle()
            result.append((crosscat.state(mixture, crosscat.CASES["block"].units), mixture.strays.tolist()))
        return result

    result = bits(world())
    assert world().rank or result == bits(serial())
