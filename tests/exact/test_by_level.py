"""Splits of a cluster by a column's levels, and the merges that undo them, leave the posterior invariant.

As in test_split_merge.py: transition matrices on tables of four rows, to rounding error; and rounds as they are drawn,
against the enumeration, where a right program is rejected with probability LEVEL at most.
"""

from unittest import mock

import numpy as np
import pytest
from scipy.special import betaln

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.moves import by_level as program
from mpibayes.hpc.crosscat.moves.ledger import Ledger
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.streams import generator
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels.mixture import updates
from tests.exact import production, transitions, wrong_moves
from tests.exact.compare import LOOKS, chi_square, seed
from tests.exact.enumerate import CASES
from tests.exact.test_split_merge import FOUR_ROWS, LEVEL, ROUNDING, alone

OFTEN = {"BY_LEVEL_SPLITS": (0.5, 0.5)}


def change(name, n_shards=1, cycle=1):
    """Total variation between the posterior and its image under one step."""
    moves = transitions.Moves(CASES[name], n_shards, FOUR_ROWS[name], cycle, seed(150))
    return moves.error(moves.matrix(transitions.by_level))


@pytest.mark.quick("miss6-2")
@pytest.mark.parametrize("name, n_shards", [("cat6", 1), ("cat6py", 2), ("cat6neg", 3), ("miss6", 2)])
def test_steps_keep_the_posterior(name, n_shards):
    assert change(name, n_shards) < ROUNDING
    assert change(name, n_shards, program.AFTER + 1) < ROUNDING
    with wrong_moves.constants(**OFTEN):
        assert change(name, n_shards) < ROUNDING


# ---- wrong programs --------------------------------------------------------------------------------------------------


def without_sides():
    """Wrong: the probability of the sides is left out of the acceptance."""
    right = program._log_proposals
    return mock.patch.object(program, "_log_proposals", lambda n, choice, sides, of: right(n, choice, 0.0, of))


def either_side():
    """Wrong: the choice of which of two clusters is side 0 is not counted."""
    right = program._log_proposals

    def wrong(n, choice, sides, splits):
        return right(n, choice, sides - np.log(2.0), splits)

    return mock.patch.object(program, "_log_proposals", wrong)


def one_spread():
    """Wrong: sides are scored as if dealt only with the first spread."""

    def log_sides(*of):
        with mock.patch.multiple(program, SPREAD=first, SHARES=updates.Shares(first)):
            return right(*of)

    first, right = program.SPREAD[:1], program._log_sides
    return mock.patch.object(program, "_log_sides", log_sides)


def choice_of_one_side():
    """Wrong: a merge is scored as if proposed only from the cluster chosen first."""

    def one_side(a, b):
        return a

    one_side.reduce = np.logaddexp.reduce
    return mock.patch.object(np, "logaddexp", one_side)


WRONG = [(without_sides, "cat6"), (either_side, "cat6neg"), (one_spread, "cat6py"), (choice_of_one_side, "miss6")]


@pytest.mark.quick("without_sides-cat6", "one_spread-cat6py")
@pytest.mark.parametrize("wrong, name", WRONG)
def test_wrong_steps_do_not_keep_the_posterior(wrong, name):
    with wrong():
        assert change(name) > 1e-4


# ---- draws -----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name, n_shards, n_replicates", [("cat6", 2, 60), ("cat6", 2, 240), ("cat6neg", 3, 60), ("miss6", 6, 60)]
)
def test_law_of_steps_alone(name, n_shards, n_replicates):
    with wrong_moves.one_kind_alone(program.by_level, **OFTEN):
        result = alone(serial(), name, n_shards, n_replicates, 151)
    assert result.passed, f"{result} (seed {seed(151)})"


@pytest.mark.thorough
@pytest.mark.parametrize("wrong, n_replicates", [(without_sides, 60), (one_spread, 240)])
def test_wrong_draws_are_rejected(wrong, n_replicates):
    with wrong_moves.one_kind_alone(program.by_level, **OFTEN), wrong():
        result = alone(serial(), "cat6", 2, n_replicates, 151, LOOKS)
    assert not result.passed, str(result)


def test_sides_are_dealt_as_given():
    """Numbers of rows of a level, and with a missing cell, that go to side 1, match their claimed probabilities."""
    rows, counts = 6, np.zeros((2, 7))
    codes = [np.repeat([0, -1], rows)]
    columns, cells = table_from_arrays([("a", "categorical", codes[0], ["x"])])
    chain = Mixture(
        serial(), columns, lambda a, b: cells.take(slice(a, b)), 2 * rows, production.Settings(seed=seed(152))
    )
    chain.start("one")
    ledger = Ledger(chain.view, 1)
    for step in range(3000):
        stream = generator(seed(152), 1, sub=step)
        (side,) = program._dealt(ledger, 0, 0, 0.5, step, stream)
        for level, part in enumerate((side[:rows], side[rows:])):
            counts[level, int(part.sum())] += 1
    n = np.arange(rows + 1)
    ways = -np.log(rows + 1) - betaln(n + 1, rows - n + 1)
    law = np.exp(ways + betaln(n + 0.5, rows - n + 0.5) - betaln(0.5, 0.5))
    for result in counts:
        draws = np.repeat(n, result.astype(int))
        assert chi_square(draws, law) >= LEVEL, seed(152)
