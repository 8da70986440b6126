"""Drawing a column's view by powers preserves the posterior (hpc/crosscat/columns/powers.py): as a matrix, with paths
whose sweeps are enumerated, and by draws of the whole program; and its own sweep is reversible at every power.

Matrices have no false alarms; a test of draws rejects a right program with probability at most LEVEL.
"""

import contextlib
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
import scipy

from mpibayes.hpc.components.kinds import KINDS
from mpibayes.hpc.crosscat.columns import powers
from mpibayes.hpc.crosscat.columns.bodies import Bodies
from mpibayes.hpc.crosscat.columns.scan import Rowwise
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import crosscat
from tests.exact import view_transitions as views
from tests.exact.compare import LOOKS, chi_square, seed
from tests.exact.paths import Enumerated, Laws

LEVEL = 1e-4
ROUNDING = 1e-12
PLAIN = 1e-4  # smallest error of a wrong program
THOROUGH = pytest.mark.thorough


# ---- as a matrix -----------------------------------------------------------------------------------------------------


class AtTheEnd(Enumerated):
    """Wrong: work is computed from the rows after a step."""

    def run(self, leaving):
        steps = np.linspace(0.0, 1.0, self.levels + 1)
        steps, work = steps[::-1] if leaving else steps, 0.0
        for level, (before, power) in enumerate(pairwise(steps), 1):
            if level < self.levels:
                self._sweep(self.at, power, level)
            work += self._log_marginal(self.at, power) - self._log_marginal(self.at, before)
        return -work if leaving else work


def taped(levels, kind, directions):
    """Put all decisions of a draw, with so many levels, on the last of the tapes."""
    once = []

    @contextlib.contextmanager
    def enter(of: views.Views):
        tapes, laws = [], once[0] if once else Laws(of, directions)
        once.append(laws)

        def path(chain, start, names, body, lane, outcome):
            return kind(laws, tapes[-1], start, names, body, levels)

        def draw_on_grid(log_weight, stream):
            weight = np.exp(log_weight - log_weight.max())
            return tapes[-1].choose(weight / weight.sum())

        # paths that `Laws` makes, on lane 0, are the program's
        right = powers.Path
        with (
            mock.patch.object(powers, "generator", lambda **_: views.Stream(tapes[-1])),
            mock.patch.object(
                powers, "auxiliaries", lambda *_: [laws.rowwise(tapes[-1].choose(np.exp(laws.log_prior)))]
            ),
            mock.patch.object(powers, "draw_on_grid", draw_on_grid),
            mock.patch.object(powers, "Path", lambda *given: (path if given[4] else right)(*given)),
        ):
            yield tapes

    return enter


def change(name, levels, kind=Enumerated, directions=(1, -1)):
    """Total variation between the posterior and its image under a draw."""
    of = views.Views(name)
    return of.error(of.matrix(powers.draw, taped(levels, kind, directions)))


@pytest.mark.quick("three-2")
@pytest.mark.parametrize("name, levels", [("least", 1), ("least", 4), ("three", 2), ("two", 2)])
def test_draws_keep_the_posterior(name, levels):
    assert change(name, levels) < ROUNDING


def test_work_at_the_end_of_a_step_is_rejected():
    assert change("two", 2, AtTheEnd) > PLAIN


def test_scans_that_all_go_forward_are_rejected():
    assert change("two", 2, directions=(1,)) > 1e-6


def test_views_without_their_prior_are_rejected():
    with mock.patch.object(Bodies, "log_prior", lambda *_: 0.0):
        assert change("three", 2) > PLAIN


# ---- the program's own sweep -----------------------------------------------------------------------------------------


def p_of_sweeps(n_draws=4000, power=0.4):
    """p-values: rows at a power keep their law in a sweep, and the reverse path is equally probable. From exact draws
    of four rows, cut into three shards, with columns of three kinds at the power; and the flow."""
    of, generator = views.Views("mixed", 3), np.random.default_rng(seed(151))
    laws, names = Laws(of), ("a", "x", "n")
    of.chain.start("one")
    paths = []
    for z in laws.partitions:
        start = Rowwise(of.labels(z), int(z.max()) + 1, laws.process)
        paths.append(powers.Path(of.chain, start, set(names), names, powers.LANES))
    statistics = [path._statistics() for path in paths]
    log_p = laws.log_prior + [path._log_marginal(s, power) for path, s in zip(paths, statistics)]
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    before, after, rest = generator.choice(len(p), n_draws, p=p), [], [(path.z, path.counts) for path in paths]
    for of.chain.cycles, number in enumerate(before.tolist(), 1):
        path = paths[number]
        path._sweep(statistics[number], power, 1)
        after.append(laws.number(path.z))
        path.z, path.counts = rest[number]
    flow = np.zeros((len(p), len(p)))
    np.add.at(flow, (before, after), 1.0)
    there, back = flow[np.triu_indices(len(p), 1)], flow.T[np.triu_indices(len(p), 1)]
    enough = there + back >= 10
    statistic = ((there - back) ** 2 / np.maximum(there + back, 1.0))[enough].sum()
    return chi_square(np.array(after), p), float(scipy.stats.chi2.sf(statistic, enough.sum())), flow


@pytest.mark.thorough
def test_sweeps_are_reversible_at_a_power():
    *p, flow = p_of_sweeps()
    assert min(p) >= LEVEL / 2
    assert np.trace(flow) < 0.9 * flow.sum()


@pytest.mark.thorough
def test_sweeps_that_ignore_the_power_are_rejected():
    def in_full(right):
        return lambda self, hyper, s, column, power, stream: right(self, hyper, s, column, 1.0, stream)

    with contextlib.ExitStack() as changed:
        for kind in KINDS:
            changed.enter_context(mock.patch.object(kind, "draw_at", in_full(kind.draw_at)))
        *p, _ = p_of_sweeps()
    assert min(p) < LEVEL


# ---- draws of the whole program --------------------------------------------------------------------------------------

ALONE = {"column_moves": 0, "column_powers": 1}


@pytest.mark.quick("sharp-2")
@pytest.mark.parametrize("name, n_shards", [("sharp", 2), ("block", 1), pytest.param("cc4x3", 3, marks=THOROUGH)])
def test_law_of_columns_and_rows(name, n_shards):
    with mock.patch.object(powers, "LEVELS", 4):
        result = crosscat.verdict(serial(), name, n_shards, 50, 152, 5, LEVEL, **ALONE)
    assert result.passed, f"{result} (seed {seed(152)})"


@pytest.mark.thorough
def test_paths_that_ignore_their_work_are_rejected():
    with mock.patch.object(powers.Path, "run", lambda *_, **__: 0.0):
        result = crosscat.verdict(serial(), "sharp", 2, 80, 152, 5, LEVEL, looks=LOOKS, **ALONE)
    assert not result.passed, str(result)


@pytest.mark.quick(ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
def test_same_bits_on_ranks():
    crosscat.require_the_same_bits("mixed", 153, **ALONE)


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
def test_law_on_ranks():
    with mock.patch.object(powers, "LEVELS", 4):
        result = crosscat.verdict(world(), "sharp", 3, 15, 154, 5, LEVEL, **ALONE)
    assert result is None or result.passed, f"{result} (seed {seed(154)})"
