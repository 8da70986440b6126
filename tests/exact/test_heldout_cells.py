"""Scores of held-out cells have the exact posterior predictive density as their mean, on 1 to 4 ranks.

Replicates start at exact draws of the enumerated posterior given the other cells (tests/exact/ibp.py), so the mean over
a replicate's cycles of a cell's density, or of its mean, has a known expectation. Each test of a law rejects a right
program with probability at most LEVEL. MPIBAYES_TEST_SEED overrides the seeds. A program whose sampler sees the
withheld cells must be rejected.
"""

from unittest import mock

import numpy as np
import pytest
import scipy

from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.ibp import heldout_cells
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.heldout import law_everywhere
from mpibayes.hpc.ibp.heldout_cells import HeldOutCells
from mpibayes.hpc.ibp.state import Hyper, Settings
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.table import table_from_arrays
from tests.exact import program_ibp as program
from tests.exact.compare import seed
from tests.exact.ibp import FIXED, LEARNED, Law, case

LEVEL = 1e-4
WITHHELD = {(0, 1): -0.3, (2, 0): 2.3, (2, 1): 0.4}
SEEN = [(1.2, np.nan, 0.4), (0.9, 0.8, np.nan), (np.nan, np.nan, -0.2)]  # one cell is missing in addition
CASES = {"fixed": case(SEEN, 7, **FIXED), "learned": case(SEEN, 6, 24, **LEARNED)}
LAWS: dict[str, tuple[Law, np.ndarray, np.ndarray]] = {}


def exact(name):
    """The law given the other cells, and each withheld cell's predictive density and mean."""
    if name not in LAWS:
        law = Law(CASES[name])
        result = []
        for (row, column), value in WITHHELD.items():
            mean, sd = law._cell(row, column)
            each = scipy.stats.norm.pdf(value, mean, sd), mean
            result.append([float(law.p[:-1] @ (law.of_point * x).sum(axis=1)) for x in each])
        LAWS[name] = law, *np.array(result).T
    return LAWS[name]


class Few:
    """The part of `Data` that names the used rows of the table."""

    def numbers_of(self, start, stop):
        return np.arange(start, stop)


def these(data, cells, fraction, start, x):
    """Return the cells of WITHHELD in place of the drawn ones."""
    chosen = np.zeros(x.shape, bool)
    for row, column in WITHHELD:
        if start <= row < start + len(x):
            chosen[row - start, column] = True
    return chosen


def averages(comm, name, n_shards, n_replicates, cycles, default_seed, leak=False):
    """Each replicate's mean density and mean of the withheld cells, (replicates, 2, cells), and the last score."""
    law, _, _ = exact(name)
    columns, _ = table_from_arrays([(f"x{d}", "real", np.arange(3.0), None) for d in range(3)])
    held = HeldOutCells(comm, Few(), Cells(columns, False), 0.1)
    table = law.x.copy()
    for at, value in WITHHELD.items():
        table[at] = value

    def read(start, stop):
        hidden = held.hide(start, table[start:stop])
        return table[start:stop] if leak else hidden

    settings = {"moves": 0} | law.case.settings
    with mock.patch.object(heldout_cells, "mask", these):
        buffet = Buffet(comm, read, 3, 3, Settings(seed=seed(default_seed), shards=n_shards, **settings))
    held.count()
    starts = law.draw(np.random.Generator(np.random.Philox(seed(default_seed) + 1)), n_replicates)
    out = []
    for r, (features, hyper, filled) in enumerate(starts):
        buffet.place(features, hyper, filled, r * program.STRIDE)
        held.n_draws = 0
        for part in held.parts:
            part.log_sum[:], part.mean_sum[:] = -np.inf, 0.0
        for _ in range(cycles):
            buffet.cycle()
            scores = held.score(buffet, law_everywhere(buffet), average=True)
        mine = [np.array([np.exp(p.log_sum), p.mean_sum]).reshape(2, -1) / cycles for p in held.parts]
        everyone = [x for rank in comm.collect(mine) for x in rank]
        out.append(np.concatenate(everyone, axis=1))
    return np.array(out), scores


def p_value(found, name):
    """Two-sided t-tests of replicate means, Bonferroni."""
    _, density, mean = exact(name)
    p = scipy.stats.ttest_1samp(found, np.array([density, mean])).pvalue
    return min(1.0, float(p.min()) * p.size)


@pytest.mark.quick("learned-2")
@pytest.mark.parametrize("name, n_shards", [("fixed", 1), ("fixed", 3), ("learned", 2), ("learned", 3)])
def test_score_is_the_predictive_density(name, n_shards):
    result, scores = averages(serial(), name, n_shards, 150, 8, 261)
    p = p_value(result, name)
    assert p >= LEVEL, f"p = {p:.2g} (seed {seed(261)})"
    assert scores[1] == pytest.approx(np.log(result[-1, 0]).mean())
    scale = [np.arange(3.0).std()] * 3
    errors = (result[-1, 1] - list(WITHHELD.values())) / scale
    assert scores[2] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-6)


def test_cells_that_the_sampler_sees_are_rejected():
    result, _ = averages(serial(), "fixed", 3, 60, 6, 261, leak=True)
    assert p_value(result, "fixed") < LEVEL


@pytest.mark.quick(ranks=(2, 3))
@pytest.mark.mpi(min_size=2)
def test_same_scores_on_every_number_of_ranks():
    comm = world()
    together, scores = averages(comm, "learned", 3, 4, 6, 262)
    alone, expected = averages(serial(), "learned", 3, 4, 6, 262)
    assert np.array_equal(together, alone)
    assert comm.rank != 0 or scores == expected


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
def test_score_is_the_predictive_density_on_ranks():
    comm = world()
    result, _ = averages(comm, "fixed", 3, 80, 6, 263)
    p = p_value(result, "fixed")
    assert p >= LEVEL, f"p = {p:.2g} (seed {seed(263)})"


@pytest.mark.quick
@pytest.mark.parametrize("noise", ["shared", "column"])
def test_a_cell_given_all_others(noise):
    """Against the joint normal law of its column; rows with a feature of their own, with several and with none."""
    g = np.random.default_rng(4)
    z = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1]], bool)
    x = g.standard_normal((5, 2))
    columns, _ = table_from_arrays([(name, "real", np.arange(5.0), None) for name in "ab"])
    held = HeldOutCells(serial(), Few(), Cells(columns, False), 0.1)
    everything = mock.patch.object(
        heldout_cells, "mask", lambda data, cells, fraction, start, x: np.ones(x.shape, bool)
    )
    with everything:
        buffet = Buffet(serial(), lambda a, b: held.hide(a, x[a:b]), 5, 2, Settings(shards=2, noise=noise))
    sd = np.array([0.4, 0.4 if noise == "shared" else 1.1])
    buffet.place(z, Hyper(1.0, 1.0, sd, 1.3, noise), x)
    law = law_everywhere(buffet)
    x = x.astype(np.float32).astype(float)
    for shard, part in zip(buffet.shards, held.parts):
        mean, spread = heldout_cells.predicted(buffet, law, shard, part)
        for i, (at, d) in enumerate(zip(part.at, part.column)):
            n = int(buffet.starts[shard.index] + part.rows[at])
            feature = 1.3 * (sd[d] if noise == "column" else 1.0)
            cover = sd[d] ** 2 * np.eye(5) + feature**2 * (z @ z.T.astype(float))
            rest = np.arange(5) != n
            gain = cover[n, rest] @ np.linalg.inv(cover[np.ix_(rest, rest)])
            assert mean[i] == pytest.approx(gain @ x[rest, d])
            assert spread[i] == pytest.approx(np.sqrt(cover[n, n] - gain @ cover[rest, n]))


@pytest.mark.quick
def test_which_cells_are_withheld():
    """Regardless of seed, ranks, held-out rows, and unused columns."""
    from mpibayes.hpc.data.rows import heldout_cells as drawn

    numbers = np.arange(4000)
    whole = drawn(["a", "b", "c"], numbers, 0.1)
    assert np.array_equal(drawn(["c", "a"], numbers[1::7].copy(), 0.1), whole[1::7][:, [2, 0]])
    assert np.all(np.abs(whole.mean(axis=0) - 0.1) < 4.0 * np.sqrt(0.09 / 4000))
    assert abs((whole[:, 0] & whole[:, 1]).mean() - 0.01) < 4.0 * np.sqrt(0.01 / 4000)
    assert not np.any(drawn(["a", "b", "c"], numbers, 0.05) & ~whole)
