"""Partitions and forests have their exact joint posterior where columns may lean on a number, by its bins: a real
column, and one with an atom, on any number of shards and ranks.

As tests/links/test_links_exact.py: a right program is rejected with probability at most LEVEL by each of five tests.
"""

import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from mpibayes.hpc.parallel.comm import serial
from tests.exact.compare import LOOKS, seed
from tests.links import program
from tests.links.enumerate import LinkedPosterior, Number
from tests.links.states import judged_in_parts, require_the_same_on_ranks

LEVEL, CYCLES = 1e-4, 6
NORMAL = (0.0, 0.5, 2.0, 0.5)
X = np.array([-1.2, 0.3, 1.4, -0.8, 0.9])
LAWS = {
    "real": (
        [[0, 1], [0, 0], [1, -1], [0, 1], [1, 0]], [2, 2], (0.2, 1.0), 1.0, 0.0, Number(X, (-0.5, 1.0), NORMAL),
    ),
    # which atom it is, is column 0
    "atom": (
        [[1, 0], [0, 1], [1, 1], [1, 0], [0, 1]], [2, 2], (0.3,), 0.7, 0.25,
        Number(np.where([True, False, True, True, False], X, np.nan), (0.0,), NORMAL, 0),
    ),
}  # fmt: skip


@cache
def law_of(name: str) -> LinkedPosterior:
    return LinkedPosterior(*LAWS[name])


def judged(comm, name: str, n_shards: int, n_replicates: int, looks: int = 1, **settings):
    law = law_of(name)
    mixture = program.sampler(comm, law, n_shards, seed(71), **settings)
    replicates = program.replicates(mixture, law, n_replicates, CYCLES, seed(72))
    return judged_in_parts(replicates, lambda records: program.verdict(records, law, LEVEL), n_replicates, looks)


def test_forests_are_those_without_circles():
    """One of nine pairs of parents is a circle; with the number below the first column, five are."""
    assert {name: len(law_of(name).forests) for name in LAWS} == {"real": 8, "atom": 4}


@pytest.mark.parametrize(
    ("name", "n_shards"),
    [
        ("real", 1),
        *(pytest.param(*of, marks=pytest.mark.thorough) for of in (("atom", 3), ("real", 3), ("atom", 1))),
    ],
)
def test_joint_law_of_rows_and_links(name, n_shards):
    result = judged(serial(), name, n_shards, 80, split_merge=3 * (n_shards % 2))
    assert result.passed, f"{result} (seed {seed(71)})"


@pytest.mark.parametrize(
    "wrong",
    [
        program.codes_of_the_parent_before,
        pytest.param(program.evidence_of_all_clusters, marks=pytest.mark.thorough),
    ],
)
def test_wrong_programs_are_rejected(wrong):
    with wrong():
        result = judged(serial(), "real", 1, 150, LOOKS)
    assert not result.passed, str(result)


def test_a_number_that_is_apart_from_its_atoms_makes_circles():
    with program.numbers_apart_from_their_atoms(), pytest.raises(KeyError):
        judged(serial(), "atom", 1, 50)


@pytest.mark.thorough
def test_no_table_is_read_before_it_is_written():
    """The first law again, with NaN in fresh memory; cycle 3 fails if rows of missing cells stay as they are."""
    law = f"{__file__}::{test_joint_law_of_rows_and_links.__name__}[real-1]"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", law]
    done = subprocess.run(
        command, env=os.environ | {"MPIBAYES_POISON": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout


def history(comm, name: str, n_shards: int):
    mixture = program.sampler(comm, law_of(name), n_shards, seed(73), split_merge=1)
    return program.replicates(mixture, law_of(name), 2, 6, seed(74))


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_same_states_on_every_number_of_ranks():
    require_the_same_on_ranks(history, [(name, 3) for name in LAWS])
