"""Moves on features leave the posterior of the features invariant, given the hyperparameters.

Replicates start at exact draws of the enumerated posterior (tests/exact/feature_lists.py) and make some rounds of moves
alone: then every state is an exact draw again.  Each test rejects a right program with probability at most LEVEL.
Wrong twins leave out one factor of a ratio.  MPIBAYES_TEST_SEED overrides the seeds.
"""

import contextlib
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.moves import birth, fold, launch, round, split
from mpibayes.hpc.ibp.moves.birth import birth_or_death
from mpibayes.hpc.ibp.moves.fold import fold_or_unfold
from mpibayes.hpc.ibp.moves.split import split_or_merge
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import program_ibp as program
from tests.exact.compare import LOOKS, seed
from tests.exact.feature_lists import IBP3, IBP4, Law, Moved, judge_moves

LEVEL = 1e-4
REPLICATES, WRONG_AT_MOST = 120, 200  # wrong moves are rejected at 50 to 100
LAWS = {
    "ibp3": lambda: Law(IBP3, 0.8, 1.0, 0.5, 1.0),
    "c": lambda: Law(IBP3, 1.2, 2.5, 0.7, 1.0, most=9),
    "prior": lambda: Law(IBP3, 0.8, 1.0, 0.5, 1.0, likelihood=False),
    "ibp4": lambda: Law(IBP4, 0.6, 0.7, 0.6, 0.8, most=4),
    "own noise": lambda: Law(IBP3 * [1.0, 3.0], 0.8, 1.0, [0.35, 1.5], 1.6),
}
EACH = {"births": (birth_or_death,), "splits": (split_or_merge,), "folds": (fold_or_unfold,)}
ALL = {**EACH, "all": (birth_or_death, split_or_merge, fold_or_unfold)}


@contextlib.contextmanager
def tiny(rows=2):
    """Launches see only some of the rows, and unfolds are as frequent as folds."""
    with contextlib.ExitStack() as stack:
        for module, name, value in [(launch, "ROWS", rows), (launch, "OWNERS", rows), (fold, "UNFOLDS", 0.4)]:
            stack.enter_context(mock.patch.object(module, name, value))
        yield


TABLES = [("ibp3", 1), ("ibp3", 2), ("c", 3), ("prior", 2), ("ibp4", 3), ("own noise", 2)]


@pytest.mark.quick("ibp3-2-births", "ibp3-1-folds")
@pytest.mark.parametrize(
    "name, n_shards, kinds", [(*of, kinds) for of in TABLES[:3] for kinds in EACH] + [(*of, "all") for of in TABLES]
)
def test_moves_keep_the_posterior(name, n_shards, kinds):
    """Each kind of move by itself, and on every table all three in turn."""
    with tiny():
        verdict, accepted = judge_moves(LAWS[name](), ALL[kinds], n_shards, REPLICATES, 10, seed(61), LEVEL)
    assert verdict.passed, f"{verdict}; seed {seed(61)}"
    forward = {"births": "births", "splits": "splits", "folds": "folds", "all": "folds"}[kinds]
    assert accepted[forward] > 20, accepted


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["own noise", "missing, learned"])
def test_cycles_with_moves_keep_the_posterior(name):
    """Hyperparameters, missing cells, sweeps and a round of moves in every cycle, one after another."""
    with tiny():
        result = program.verdict(serial(), name, 2, "one", 1, 80, 6, seed(64), LEVEL, moves=1)
    assert result.passed, f"{result} (seed {seed(64)})"


@pytest.mark.long
@pytest.mark.parametrize("kinds", ALL)
def test_moves_keep_the_posterior_of_independent_chains(kinds):
    with tiny():
        verdict, _ = judge_moves(LAWS["ibp3"](), ALL[kinds], 2, 10_000, 10, seed(62), LEVEL)
    assert verdict.passed, f"{verdict}; seed {seed(62)}"


def without_q_of_birth(ledger, logits, dealt):
    return 0.0


def without_q_of_fold(to, sizes):
    return 0.0


def uniform_pairs(means):
    pairs = np.stack(np.triu_indices(len(means), 1), axis=1)
    return pairs, np.zeros(len(pairs))


def uniform_maps(to, s):
    return 0.0


def first_noise(hyper):
    return np.full(len(hyper.noise_sd), hyper.noise_sd[0] ** 2), hyper.feature_sd**2


WRONG = {
    "q of a birth": ("ibp3", EACH["births"], birth, "log_dealt", without_q_of_birth),
    "q of a fold": ("ibp3", EACH["folds"], fold, "log_dealt", without_q_of_fold),
    "prior of a map": ("ibp3", EACH["folds"], fold, "log_prior_of_map", uniform_maps),
    "probability of a pair": ("ibp3", EACH["splits"], split, "law_of_pairs", uniform_pairs),
    "noise of the first column": ("own noise", ALL["all"], update, "_scales", first_noise),
}


@pytest.mark.quick("q of a birth")
@pytest.mark.parametrize("what", WRONG)
def test_wrong_moves_are_rejected(what):
    law, kinds, module, name, wrong = WRONG[what]
    with tiny(), mock.patch.object(module, name, wrong):
        verdict, _ = judge_moves(LAWS[law](), kinds, 2, WRONG_AT_MOST, 10, seed(63), LEVEL, LOOKS)
    assert not verdict.passed, f"{verdict}; seed {seed(63)}"


def run(comm, n_shards, steps):
    moved = Moved(LAWS["ibp4"](), n_shards, 7, comm)
    moved.begin(1, (3, 5, 9, 14))
    seen = []
    for _ in range(steps):
        ledger = moved.step(round.ROUND)
        features = moved.chain.features()
        seen.append((ledger.accepted, None if features is None else features.tobytes(), ledger.columns.slots.tobytes()))
    return seen


@pytest.mark.quick("4", ranks=(2, 3))
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("n_shards", [3, 4])
def test_moves_have_the_same_bits_on_any_number_of_ranks(n_shards):
    comm = world()
    with tiny():
        together, alone = run(comm, n_shards, 60), run(serial(), n_shards, 60)
    assert sum(sum(accepted.values()) for accepted, _, _ in alone) > 20
    if comm.rank == 0:
        assert together == alone
    else:
        assert [(a, slots) for a, _, slots in together] == [(a, slots) for a, _, slots in alone]
