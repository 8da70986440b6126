"""Columns that change views have the exact posterior: of their partition, and of each view's rows.

As in test_mixture_exact: replicates start at exact draws. Every test of a law rejects a right program with probability
at most LEVEL.
"""

import contextlib
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.columns import proposal, sides
from mpibayes.hpc.crosscat.columns import scan as program
from mpibayes.hpc.crosscat.columns.bodies import Bodies
from mpibayes.hpc.crosscat.columns.round import regroup
from mpibayes.hpc.crosscat.columns.split_merge import Move
from mpibayes.hpc.crosscat.moves.ledger import Tally
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import crosscat
from tests.exact.compare import LOOKS, seed
from tests.exact.crosscat import CASES
from tests.exact.enumerate import log_eppf

LEVEL = 1e-4
CYCLES = 6
REPLICATES = 80
VIEW_MOVES = 25  # a cycle of MovesAlone


class MovesAlone(Mixture):
    """Only splits and merges of views; the law of the views is fixed as in CC4X3."""

    def cycle(self):
        self.cycles += 1
        for number in range(VIEW_MOVES):
            result = Move(self, number).run()
            if result is not None:
                regroup(self, *result)
        return self._info(0.0, Tally())


def verdict(comm, name, n_shards, n_replicates, default_seed, cycles=CYCLES, **settings):
    return crosscat.verdict(comm, name, n_shards, n_replicates, default_seed, cycles, LEVEL, **settings)


def test_enumeration_has_the_published_figures():
    """docs/math.md 6.1."""
    exact = CASES["cc4x3"].posterior
    assert len(exact.p) == 4065
    assert exact.log_evidence == pytest.approx(-9.609204, abs=1e-6)
    names, table = exact.summaries()
    result = dict(zip(names, table @ exact.p))
    figures = {
        "columns 000": 0.353104,
        "columns 001": 0.229448,
        "columns 010": 0.134708,
        "columns 011": 0.134708,
        "columns 012": 0.148031,
        "rows 0, 1 together for column 0": 0.507254,
        "rows 0, 1 together for column 2": 0.387546,
        "rows 0, 2 together for column 0": 0.245436,
        "rows 0, 2 together for column 2": 0.368302,
    }
    assert {name: result[name] for name in figures} == pytest.approx(figures, abs=2e-6)


@pytest.mark.quick("sharp-2")
@pytest.mark.parametrize("name, n_shards", [("cc4x3", 3), ("mixed", 1), ("sharp", 2)])
def test_law_of_columns_and_rows(name, n_shards):
    result = verdict(serial(), name, n_shards, REPLICATES, 121)
    assert result.passed, f"{result} (seed {seed(121)})"


# ---- wrong programs --------------------------------------------------------------------------------------------------


def not_retired():
    """Wrong: a view that loses its last column disappears, instead of replacing an auxiliary one."""

    def _retire(self, view):
        self.stream.integers(program.AUXILIARY)

    return mock.patch.object(program.Seating, "_retire", _retire)


def not_shared():
    """Wrong: every auxiliary view has the full weight of a new one."""
    right = program.Seating._log_new
    return mock.patch.object(program.Seating, "_log_new", lambda *a: right(*a) + np.log(program.AUXILIARY))


def auxiliary_of_one_cluster():
    """Wrong: auxiliary views put all rows together."""
    right = program.auxiliaries

    def wrong(*args):
        return [program.Rowwise([np.zeros_like(z) for z in of.z], 1, of.process) for of in right(*args)]

    return mock.patch.object(program, "auxiliaries", wrong)


@pytest.mark.quick("not_retired")
@pytest.mark.parametrize("wrong", [not_retired, not_shared, auxiliary_of_one_cluster])
def test_wrong_programs_are_rejected(wrong):
    with wrong():
        result = verdict(serial(), "sharp", 2, REPLICATES, 121, view_moves=0, looks=LOOKS)
    assert not result.passed, str(result)


# ---- views that split and merge --------------------------------------------------------------------------------------


def cores(rows):
    """Proposals whose core has so many rows on average; the other rows come in batches, or late."""
    return mock.patch.object(proposal, "CORE", rows)


def verdict_on_moves(n_replicates, wrong=contextlib.nullcontext, core=2, name="sharp", default_seed=124):
    looks = 1 if wrong is contextlib.nullcontext else LOOKS
    with cores(core), mock.patch.object(sides, "ROWS", core), wrong():
        return verdict(serial(), name, 2, n_replicates, default_seed, 2, kind=MovesAlone, looks=looks)


@pytest.mark.thorough
@pytest.mark.parametrize("core", [2, 4, 100])
def test_law_of_moves_of_views(core):
    """At the size at which a program without q is rejected."""
    result = verdict_on_moves(40, core=core)
    assert result.passed, f"{result} (seed {seed(124)})"


def without_q():
    """Wrong: partitions are accepted as if all were equally likely to be proposed."""
    right = proposal.Proposal.go_on
    return mock.patch.object(proposal.Proposal, "go_on", lambda *a: replace(right(*a), log_q=0.0))


@pytest.mark.thorough
@pytest.mark.parametrize("core", [2, 100])
def test_moves_of_views_without_q_are_rejected(core):
    result = verdict_on_moves(40, without_q, core)
    assert not result.passed, str(result)


def without_sides():
    """Wrong: sides are accepted as if all were equally likely to be proposed."""
    return mock.patch.object(sides, "log_q", lambda *_: 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [contextlib.nullcontext, without_sides])
def test_moves_of_views_of_more_columns(wrong):
    result = verdict_on_moves(50, wrong, name="four")
    assert result.passed == (wrong is contextlib.nullcontext), f"{result} (seed {seed(124)})"


@pytest.mark.parametrize("n_a, n_b, others", [(1, 1, 0), (2, 1, 0), (1, 3, 2), (4, 2, 1)])
def test_how_often_a_split_and_its_merge_are_chosen(n_a, n_b, others):
    """Choose the view and two of its units in order; or, for two views, the role of A, and a unit of each."""
    whole, cut = np.array([n_a + n_b, *[3] * others]), np.array([n_a, *[3] * others, n_b])
    n, n_labels, of_others = n_a + n_b, 5, 7  # clusters
    ways = (n - 1) * n_labels + 2 * of_others * others
    split = (n - 1) * n_labels / ways / (n * (n - 1))
    merge = n_a**2 / (n_a**2 + n_b**2) / (n_a * n_b)
    bodies = mock.Mock(process=(0.7, 0.3), _n_columns=np.ones(whole.sum(), int), _n_links=None)
    move = mock.Mock(_log_law=partial(Bodies.log_prior, bodies))
    of_units = (np.repeat(np.arange(len(sizes)), sizes) for sizes in (whole, cut))
    result = Move._log_choices(move, *of_units, n_a, n_b, ways, n_labels)
    assert result == pytest.approx(log_eppf(cut, 0.7, 0.3) - log_eppf(whole, 0.7, 0.3) + np.log(merge / split))


# ---- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.quick(ranks=(2, 3))
@pytest.mark.mpi(min_size=2)
def test_same_bits_on_ranks():
    crosscat.require_the_same_bits("mixed", 122, split_merge=1)  # and two moves of views a cycle


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
def test_law_of_columns_on_ranks():
    result = verdict(world(), "sharp", 3, 15, 123)
    assert result is None or result.passed, f"{result} (seed {seed(123)})"
