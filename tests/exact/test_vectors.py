"""The program has the exact posterior where columns are modelled jointly: blocks of real columns, full covariances.

As tests/exact/test_mixture_exact.py (whose docstring has the method), each test of a law with a false-alarm rate of at
most LEVEL; about 15 of them. Wrong versions of the component must be rejected by the same tests.
"""

import contextlib

import numpy as np
import pytest

from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import production, transitions, wrong_cycles, wrong_moves, wrong_vectors
from tests.exact.compare import LOOKS, seed
from tests.exact.enumerate import VECTOR_CASES, Posterior, column_values, with_spread
from tests.exact.on_ranks import require_the_same

LEVEL = 1e-4
CYCLES = 12
CONFIGURATIONS = [
    ("niw5", 1, "one"), ("niw5", 2, "one"), ("niw5", 3, "all"), ("niw5", 5, "one"), ("niwmiss6", 1, "one"),
    ("niwmiss6", 3, "one"), ("niwmiss6", 6, "one"),
]  # fmt: skip
JOINT = production.Joint(
    VECTOR_CASES["niw5"],
    concentration=[0.2, 5.0],
    discount=[0.0, 0.6],
    columns={"g": {"kappa": [0.05, 0.8], "nu": [1.5, 6.0], "variance": [0.05, 0.6], "mean": (0.3, 0.9)}},
)


def verdict(comm, name, n_shards, opening, n_replicates, default_seed, looks=1, **settings):
    case = VECTOR_CASES[name]
    posterior = Posterior(case)
    mixture = production.sampler(comm, case, n_shards, seed(default_seed), opening, **settings)
    return production.verdict(mixture, posterior, n_replicates, CYCLES, seed(default_seed) + 1, LEVEL, looks)


@pytest.mark.thorough
@pytest.mark.parametrize("name, n_shards, opening", CONFIGURATIONS)
def test_posterior_law(name, n_shards, opening):
    result = verdict(serial(), name, n_shards, opening, 50, 61)
    assert result.passed, f"{result} (seed {seed(61)})"


@pytest.mark.thorough
def test_posterior_law_with_moves():
    result = verdict(serial(), "niw5", 2, "one", 40, 62, split_merge=1)
    assert result.passed, f"{result} (seed {seed(62)})"


@pytest.mark.thorough
@pytest.mark.parametrize("n_shards", [1, 3])
def test_joint_law_with_hyperparameters(n_shards):
    mixture = JOINT.sampler(serial(), n_shards, seed(63))
    result = JOINT.judge(JOINT.history(mixture, 100, CYCLES, seed(64)), LEVEL)
    assert all(v.passed for v in result), f"{[str(v) for v in result]} (seed {seed(63)})"


# ---- wrong versions of the component ---------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "wrong, n_shards, n_replicates",
    [(wrong_vectors.scatter_about_the_prior, 5, 400), (wrong_vectors.columns_apart, 5, 400),
     (wrong_cycles.no_anchors, 2, 300)],
)  # fmt: skip
def test_wrong_programs_are_rejected(wrong, n_shards, n_replicates):
    """And the right one passes at the same size. With five shards of one row every cluster of two rows or more is
    instantiated; collapsed ones are right. Subtler slips of the draw take tests/laws/test_vectors.py."""
    with wrong():
        result = verdict(serial(), "niw5", n_shards, "one", n_replicates, 61, LOOKS)
    assert not result.passed, str(result)
    result = verdict(serial(), "niw5", n_shards, "one", result.size, 61)
    assert result.passed, f"{result} (seed {seed(61)})"


# ---- moves, to rounding ----------------------------------------------------------------------------------------------


@pytest.mark.quick("niw5-guided", "niwmiss6-informed")
@pytest.mark.parametrize("move", [transitions.guided, transitions.informed])
@pytest.mark.parametrize("name", ["niw5", "niwmiss6"])
def test_moves_keep_the_posterior(name, move):
    case, idle = VECTOR_CASES[name], {"niw5": (4,), "niwmiss6": (3, 5)}[name]
    priors = {c[0]: with_spread(column_values(c), case.priors[c[0]]) for c in case.columns if c[1] == "vector"}
    case = case.with_(priors={**case.priors, **priors})  # of the whole table, idle rows too
    with contextlib.ExitStack() as stack:
        stack.enter_context(wrong_moves.constants(INFORMED_SPLITS=0.5))
        moves = transitions.Moves(case, 2, idle, 1, seed(65))
        assert moves.error(moves.matrix(move)) < 1e-9


# ---- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.quick(ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
def test_same_bits_on_every_number_of_ranks():
    """Labels and hyperparameters after every cycle, with moves, equal those of one process."""
    generator = np.random.Generator(np.random.Philox(seed(66)))
    for name, n_shards, opening in CONFIGURATIONS[::2]:
        case = VECTOR_CASES[name]
        starts = Posterior(case).draw(generator, 2)

        def digest(where, case=case, n_shards=n_shards, opening=opening, starts=starts):
            mixture = production.sampler(where, case, n_shards, seed(67), opening, split_merge=1)
            return production.digest(mixture, starts, 4)

        require_the_same(digest, name, n_shards, opening, seed(67))


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
def test_posterior_law_on_ranks():
    comm = world()
    result = comm.share(verdict(comm, "niwmiss6", 3, "one", 50, 68))
    assert result.passed, f"{result} (seed {seed(68)})"
