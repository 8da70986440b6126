"""Partitions and forests have their exact joint posterior where real columns may lean on each other in lines, on any
number of shards and ranks.

As tests/links/test_links_exact.py: a right program is rejected with probability at most LEVEL by each of its tests.
"""

from functools import cache

import numpy as np
import pytest

from mpibayes.hpc.parallel.comm import serial
from tests.exact.compare import LOOKS, seed
from tests.links import lines
from tests.links.states import judged_in_parts, require_the_same_on_ranks

LEVEL, CYCLES = 1e-4, 6
X = np.array([[-1.2, -0.9, 0.4], [0.3, 0.5, -0.6], [1.4, 1.1, 0.1], [-0.5, 0.4, 0.7]])
HOLE = np.array([[-1.2, -0.9, -1.0], [0.9, 1.2, 1.0], [1.3, np.nan, 1.5], [-0.8, -1.2, -0.6]])
LAWS = {
    "fixed": (X, 0.5, 3.0, [0.1], [0.3], 1.0, 0.0),
    "learned": (X, 0.4, 2.0, [-0.3, 0.5], [0.05, 0.8], 0.7, 0.25),
    "missing": (HOLE, 0.3, 3.0, 0.1, 0.02, 0.5, [0.2, 0.1, -0.2, -0.1]),
}


@cache
def law_of(name: str) -> lines.LinePosterior:
    return (lines.HolePosterior if name == "missing" else lines.LinePosterior)(*LAWS[name])


def judged(comm, name: str, n_shards: int, n_replicates: int, looks: int = 1, **settings):
    law = law_of(name)
    mixture = lines.sampler(comm, law, n_shards, seed(81), **settings)
    replicates = lines.replicates(mixture, law, n_replicates, CYCLES, seed(82))
    return judged_in_parts(replicates, lambda records: lines.verdict(records, law, LEVEL), n_replicates, looks)


@pytest.mark.quick("learned-1-1")
@pytest.mark.parametrize(
    ("name", "n_shards", "every"),
    [
        ("learned", 1, 1),
        ("missing", 2, 2),  # cells that no link needs are no part of the state between two draws of links
        *((*of, 1) for of in (("fixed", 1), ("fixed", 3), ("learned", 2), ("missing", 3))),
    ],
)
def test_joint_law_of_rows_and_links(name, n_shards, every):
    result = judged(serial(), name, n_shards, 60, split_merge=3 * (n_shards % 2), link_moves=every)
    assert result.passed, f"{result} (seed {seed(81)})"


@pytest.mark.quick("parents_scored_twice-fixed-60", "sums_for_averages-learned-60")
@pytest.mark.parametrize(
    ("wrong", "name", "size"),
    [
        (lines.parents_scored_twice, "fixed", 60),
        (lines.slopes_without_a_prior, "fixed", 60),
        (lines.sums_for_averages, "learned", 60),
        (lines.cells_by_the_parent_alone, "missing", 80),
        (lines.labels_by_other_columns_alone, "missing", 80),
        (lines.needed_cells_forgotten, "missing", 800),
    ],
)
def test_wrong_programs_are_rejected(wrong, name, size):
    with wrong():
        result = judged(serial(), name, 1, size, LOOKS)
    assert not result.passed, str(result)


def history(comm, name: str):
    law = law_of(name)
    return lines.replicates(lines.sampler(comm, law, 3, seed(83), split_merge=1), law, 2, 6, seed(84))


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_same_states_on_every_number_of_ranks():
    require_the_same_on_ranks(history, [(name,) for name in LAWS])
