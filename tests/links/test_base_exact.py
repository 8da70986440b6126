"""Partitions, forests and bases of linked columns have their exact joint law, on any number of shards and ranks.

Replicates start at exact draws (tests/exact/compare.py); chains whose rows stay are judged by batch means, against
integrals over bases by quadrature. Every test of a law rejects a right program with probability at most LEVEL; there
are seven.
"""

from functools import cache
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.columns import proposal, sides
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact.compare import LOOKS, seed
from tests.links import program, program_base, program_views
from tests.links.states import judged_in_parts, require_the_same_on_ranks

LEVEL = 1e-4
FAR = 5.5  # standard errors of 20 batches, of 18 means: beyond it with a probability below LEVEL * 10
LAWS = {
    "rows4": ([[0, 0, 1], [0, 0, 0], [1, 1, 1], [1, 1, 2]], [2, 2, 3], (0.5,), 1.0, 0.0),
    # cells of parents are missing, and pseudo-counts are learned
    "gaps4": ([[0, 0, 1], [0, -1, 0], [1, 1, -1], [1, 1, 0]], [2, 2, 2], (0.2, 1.0), 0.7, 0.25),
}


@cache
def law_of(name: str) -> program_base.BasedPosterior:
    return program_base.BasedPosterior(*LAWS[name])


def judged(comm, name: str, n_shards: int, n_replicates: int, looks: int = 1):
    law = law_of(name)
    mixture = program.sampler(comm, law, n_shards, seed(71), link_base="learned")
    replicates = program_base.replicates(mixture, law, n_replicates, 6, seed(72))
    return judged_in_parts(replicates, lambda records: program_base.verdict(records, law, LEVEL), n_replicates, looks)


def far(beta: float, n: int, refresh: bool) -> float:
    """The largest distance of a chain's means from those of the law, in standard errors."""
    row = np.arange(30)
    a = row % 2
    b, c = np.where(row % 5 == 0, a, 1 - a), np.where((row % 7 == 3) ^ (row == 4), 1 - a, a)
    law = program_base.GivenRows(np.column_stack([a, b, c]), row // 10, beta)
    batches = law.seen(seed(73), n, refresh).reshape(20, -1, *law.expected.shape).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(20)
    other = np.broadcast_to(~np.eye(3, dtype=bool), law.expected.shape)
    return float(np.abs((batches.mean(axis=0) - law.expected)[other] / np.maximum(error[other], 0.003)).max())


def test_sums_over_tables_are_integrals_over_bases():
    counts = np.array([[2, 1], [1, 0]])
    by_tables, mean = program_base.by_concentration([counts], 0.7)
    by_quadrature, moments = program_base.by_quadrature(counts, 0.7)
    np.testing.assert_allclose(by_tables, by_quadrature, atol=1e-7)
    np.testing.assert_allclose(mean, moments[0], atol=1e-7)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "n_shards"), [("rows4", 1), ("rows4", 3), ("gaps4", 2)])
def test_joint_law_of_rows_links_and_bases(name, n_shards):
    result = judged(serial(), name, n_shards, 60)
    assert result.passed, f"{result} (seed {seed(71)})"


@pytest.mark.thorough
def test_joint_law_in_views():
    """Trees go over to other views with their bases; views, and rows within them, split and merge."""
    law = program_base.BasedViews([([0, 0, 1], 2), ([0, 0, 1], 2), ([1, 0, 1], 2)], (0.3,), (1.0, 0.3))
    with (
        mock.patch.object(proposal, "CORE", 2), mock.patch.object(sides, "ROWS", 2),
        mock.patch.object(program_views, "put", program_base.put_in_views),
    ):  # fmt: skip
        more = {"link_base": "learned", "view_moves": 2, "split_merge": 2, "column_powers": 1}
        result = program_views.verdict(serial(), law, 2, 80, seed(76), 4, LEVEL, **more)
    assert result.passed, f"{result} (seed {seed(76)})"


@pytest.mark.thorough
def test_weights_without_their_second_factor_are_rejected():
    with program_base.without_the_second_factor():
        result = judged(serial(), "rows4", 1, 80, LOOKS)
    assert not result.passed, str(result)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("beta", "n", "refresh", "wrong"),
    [(0.15, 400, True, program_base.counts_for_tables), (3.0, 1600, False, program_base.bases_of_the_parent_before)],
)
def test_law_of_links_and_bases_given_the_rows(beta, n, refresh, wrong):
    assert far(beta, n, refresh) < FAR, seed(73)
    with wrong():
        assert far(beta, n, refresh) > FAR, seed(73)


def history(comm, name: str):
    mixture = program.sampler(comm, law_of(name), 3, seed(74), link_base="learned", split_merge=1)
    return program_base.replicates(mixture, law_of(name), 2, 6, seed(75))


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_same_bases_on_every_number_of_ranks():
    require_the_same_on_ranks(history, [(name,) for name in LAWS])


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
def test_joint_law_on_ranks():
    comm = world()
    result = judged(comm, "rows4", 4, 60)
    assert comm.share(result is None or result.passed), f"{result} (seed {seed(71)})"
