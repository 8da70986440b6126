"""Partitions of the columns, and in each view of the rows and forests of links, have their exact joint posterior, on
any number of shards and ranks.

Replicates start at exact draws (tests/exact/compare.py). Every test of a law rejects a right program with probability
at most LEVEL; there are twelve. Wrong programs are rejected at the number of replicates given.
"""

from unittest import mock

import pytest

from mpibayes.hpc.crosscat.columns import proposal, sides
from mpibayes.hpc.links import moves
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact.compare import LOOKS, seed
from tests.exact.on_ranks import require_the_same
from tests.links import program_views as program
from tests.links.enumerate_views import BOTH, LINE, ViewsPosterior

LEVEL = 1e-4
CYCLES = 4
LAWS = {
    # 430 states; links are strong
    "three": ViewsPosterior([([0, 0, 1], 2), ([0, 0, 1], 2), ([1, 0, 1], 2)], (0.3,), (1.0, 0.3)),
    # 774 states on two rows: large subtrees move
    "four": ViewsPosterior([([0, 0], 2), ([0, 1], 2), ([0, 1], 2), ([1, 1], 2)], (0.3,), (1.0, 0.3)),
    # 235 states: numbers, which are in no forest; cells of the second column are missing; pseudo-counts are learned
    "mixed": ViewsPosterior(
        [([0, 0, 1], 2), ([0, -1, 1], 2), ([1.2, -0.4, 1.1], None)], (0.2, 1.0), (0.7, 0.3), (0.8, 0.2),
        lambda child, parent: parent != 1,
    ),
    # 265 states: two numbers that may lean on each other in lines, of variances that are learned, beside a category
    "lines": ViewsPosterior(
        [([-1.1, 0.2, 1.3], LINE), ([-0.9, 0.3, 1.2], LINE), ([0, 0, 1], 2)], (0.3,), (0.7, 0.3), (0.8, 0.2),
        lambda child, parent: 2 not in (child, parent), variances=(0.02, 0.6),
    ),
    # 340 states: two numbers that may lean on a category, or on each other in a line
    "children": ViewsPosterior(
        [([0, 0, 1], 2), ([-1.1, -0.9, 1.3], BOTH), ([0.8, 1.2, -1.2], BOTH)], (0.3,), (0.7, 0.3), (0.8, 0.2),
        variances=(0.02, 0.6),
    ),
}  # fmt: skip


def judged(comm, law, n_shards, n_replicates, looks=1, cycles=CYCLES, **settings):
    return program.verdict(comm, law, n_shards, n_replicates, seed(71), cycles, LEVEL, looks, **settings)


MORE = [("children", 3), ("lines", 2), ("three", 3), ("children", 1)]


@pytest.mark.parametrize(
    "name, n_shards",
    [
        ("mixed", 1),
        *(pytest.param(*of, marks=pytest.mark.thorough) for of in MORE),
    ],
)
def test_law_of_views_rows_and_links(name, n_shards):
    result = judged(serial(), LAWS[name], n_shards, 200 if name == "three" else 40)
    assert result.passed, f"{result} (seed {seed(71)})"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["three", "lines", "children"])
def test_law_with_all_moves(name):
    """Rows and views split and merge, rows follow columns, and some scans do not cut."""
    with (
        mock.patch.object(proposal, "CORE", 2),
        mock.patch.object(sides, "ROWS", 2),
        mock.patch.object(moves, "cuts", lambda every, cycle: cycle % 2 == 0),
    ):
        result = judged(serial(), LAWS[name], 2, 40, view_moves=3, split_merge=2, column_powers=1)
    assert result.passed, f"{result} (seed {seed(71)})"


@pytest.mark.thorough
def test_law_with_named_links():
    links = {"c1": "c0", "c3": "c1"}
    law = ViewsPosterior(
        [([0, 0, 1], 2), ([0, 1, 1], 2), ([1, 0, 1], 2), ([1, 1, 0], 2)], (0.3,), (0.7, 0.3), named={1: 0, 3: 1}
    )
    result = judged(serial(), law, 2, 100, links=links, view_moves=2, column_powers=1)
    assert result.passed, f"{result} (seed {seed(71)})"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "wrong, name, n_replicates, cycles",
    [
        (program.a_share_for_a_parent, "three", 400, CYCLES),
        (program.a_share_for_a_parent, "lines", 400, CYCLES),
        # errors that grow with the cycles since the exact start
        (program.numbers_by_the_first_partition, "lines", 80, 24),
        (program.numbers_by_the_first_partition, "children", 80, 24),
        (program.weight_of_a_single_column, "four", 80, 24),
    ],
)
def test_wrong_programs_are_rejected(wrong, name, n_replicates, cycles):
    """Rejected within so many replicates, where the right program passes."""
    with wrong():
        result = judged(serial(), LAWS[name], 1, n_replicates, LOOKS, cycles)
    assert not result.passed, str(result)
    result = judged(serial(), LAWS[name], 1, result.size, cycles=cycles)
    assert result.passed, f"{result} (seed {seed(71)})"


def bits(comm, name: str, n_shards: int):
    mixture = program.sampler(comm, LAWS[name], n_shards, seed(73), view_moves=1, split_merge=1)
    return program.history(mixture, LAWS[name], 0, range(0, 200, 67), 3, seed(74))


@pytest.mark.quick("3", ranks=2)
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("n_shards", [1, 3])
def test_same_states_on_every_number_of_ranks(n_shards):
    for name in ("three", "mixed", "lines", "children"):
        require_the_same(lambda where, name=name: bits(where, name, n_shards), name, n_shards, seed(73))


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
def test_law_on_ranks():
    comm = world()
    result = judged(comm, LAWS["mixed"], 3, 40)
    assert comm.share(result is None or result.passed), f"{result} (seed {seed(71)})"
