"""Moves of groups of columns preserve the posterior (hpc/crosscat/columns/groups.py): as a matrix, with paths whose
batches and sweeps are enumerated, and by draws of the whole program.

Matrices have no false alarms; a test of draws rejects a right program with probability at most LEVEL.
"""

import contextlib
from unittest import mock

import pytest

from mpibayes.hpc.crosscat.columns import buildup, groups, powers
from mpibayes.hpc.crosscat.columns.bodies import Bodies
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.parallel.streams import Purpose
from tests.exact import crosscat
from tests.exact import view_transitions as views
from tests.exact.compare import LOOKS, seed
from tests.exact.paths import Enumerated, EnumeratedBuildup, Laws

LEVEL = 1e-4
ROUNDING = 1e-12
PLAIN = 1e-6  # smallest error of a wrong program
THOROUGH = pytest.mark.thorough


# ---- as a matrix -----------------------------------------------------------------------------------------------------


def taped(levels, directions, built):
    """Put all decisions of a move, with so many steps of a path, on the last of the tapes."""
    once = []

    @contextlib.contextmanager
    def enter(of: views.Views):
        if not once:
            once.append((Laws(of, directions), {}))
        (laws, known), tapes, right, right_path = once[0], [], groups.generator, powers.Path

        def generator(purpose, **key):
            return views.Stream(tapes[-1]) if purpose == Purpose.GROUPS else right(purpose=purpose, **key)

        def path(chain, start, names, body, lane, outcome, n_levels):
            return Enumerated(laws, tapes[-1], start, names, body, n_levels)

        def buildup_of(*given):
            return built(tapes[-1], known, *given, directions=directions)

        with (
            mock.patch.object(groups, "generator", generator),
            mock.patch.object(groups, "Path", path),
            mock.patch.object(groups, "Buildup", buildup_of),
            mock.patch.object(groups, "STEPS", (levels,)),
            mock.patch.object(groups, "OFTEN", (1.0,)),
            mock.patch.object(groups, "NEAR", (2,)),
            mock.patch.object(powers, "Path", right_path),
        ):
            yield tapes

    return enter


def change(name, levels=1, core=1, growth=1.0, cycle=7, directions=(1, -1), built=EnumeratedBuildup):
    """Total variation between the posterior and its image under a move."""
    with mock.patch.object(buildup, "CORE", core), mock.patch.object(buildup, "GROWTH", growth):
        of = views.Views(name, 1, cycle, seed(161))
        return of.error(of.matrix(lambda chain: groups.Group(chain).run(), taped(levels, directions, built)))


@pytest.mark.quick("least-1-1-1")
@pytest.mark.parametrize(
    "name, levels, core, cycle",
    [("least", 1, 1, 1), ("least", 3, 2, 2), ("two", 1, 1, 7), pytest.param("two", 2, 2, 4, marks=THOROUGH),
     ("three", 1, 1, 5)],
)  # fmt: skip
def test_moves_keep_the_posterior(name, levels, core, cycle):
    assert change(name, levels, core, cycle=cycle) < ROUNDING


class AfterTheSweep(EnumeratedBuildup):
    """Wrong: the law before a batch is that of the rows before they were swept."""

    def up(self):
        log_w, statistics = 0.0, None
        for level in range(self.last + 1):
            log_w -= self._log_target(statistics)
            if statistics is not None:
                statistics = self._swept(statistics, level - 1)
            log_w -= self._seat(statistics, level, follow=False)
            statistics = self._statistics(level)
            log_w += self._log_target(statistics)
        return log_w


def test_weights_of_rows_before_their_sweep_are_rejected():
    assert change("two", built=AfterTheSweep) > PLAIN


def test_choices_without_their_probability_are_rejected():
    with mock.patch.object(groups.Near, "log_q", lambda *_: 0.0):
        assert change("three", cycle=5) > PLAIN


def test_views_without_their_prior_are_rejected():
    with mock.patch.object(Bodies, "log_prior", lambda *_: 0.0):
        assert change("two") > PLAIN


def test_scans_that_all_go_forward_are_rejected():
    assert change("two", levels=2, core=2, cycle=4, directions=(1,)) > PLAIN


def test_batches_without_their_probability_are_rejected():
    def seat(self, statistics, level, follow):
        right(self, statistics, level, follow)
        return 0.0

    right = EnumeratedBuildup._seat
    with mock.patch.object(EnumeratedBuildup, "_seat", seat):
        assert change("two") > PLAIN


# ---- draws of the whole program --------------------------------------------------------------------------------------

CYCLES = 20  # of each replicate
ALONE = {"column_moves": 0, "view_moves": 0, "group_moves": 1}


@contextlib.contextmanager
def small(core=1, growth=1.0):
    """Batches and paths of a few rows and steps."""
    chances = {"STEPS": (2, 4, 6), "NOWHERE": 0.1, "NEAR": (1,), "NEW": 0.8}
    with mock.patch.multiple(buildup, CORE=core, GROWTH=growth), mock.patch.multiple(groups, **chances):
        yield


@pytest.mark.quick("sharp-2")
@pytest.mark.parametrize("name, n_shards", [("sharp", 2), ("block", 1), pytest.param("cc4x3", 3, marks=THOROUGH)])
def test_law_of_columns_and_rows(name, n_shards):
    with small():
        result = crosscat.verdict(serial(), name, n_shards, 60, 162, CYCLES, LEVEL, **ALONE)
    assert result.passed, f"{result} (seed {seed(162)})"


@pytest.mark.thorough
def test_moves_without_half_of_their_weights_are_rejected():
    def half(name):
        right = getattr(buildup.Buildup, name)
        return mock.patch.object(buildup.Buildup, name, lambda self, *of: 0.5 * right(self, *of))

    with small(), half("up"), half("down"):
        result = crosscat.verdict(serial(), "sharp", 2, 60, 162, CYCLES, LEVEL, looks=LOOKS, **ALONE)
    assert not result.passed, str(result)


@pytest.mark.quick(ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
def test_same_bits_on_ranks():
    with small():
        crosscat.require_the_same_bits("mixed", 163, 2 * CYCLES, **ALONE)


@pytest.mark.mpi(min_size=2)
def test_law_on_ranks():
    with small():
        result = crosscat.verdict(world(), "sharp", 3, 15, 164, CYCLES, LEVEL, **ALONE)
    assert result is None or result.passed, f"{result} (seed {seed(164)})"
