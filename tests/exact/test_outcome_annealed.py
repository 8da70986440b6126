"""Idle rows have no part in an outcome: an update of all coefficients is that on the table without these rows, to the
bit, and programs that count them are not; an annealed chain has the exact posterior once all rows are active.

Tests of the posterior, level and seeds are those of test_outcome.py: a right program is rejected with probability 1e-4
at most.
"""

import contextlib
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.start.subsample import IDLE, Annealing
from mpibayes.hpc.outcome import outcome as program
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.baseline import Baseline
from mpibayes.hpc.outcome.fireflies import Fireflies
from mpibayes.hpc.outcome.law import Law
from mpibayes.hpc.outcome.likelihoods import LIKELIHOODS
from mpibayes.hpc.outcome.outcome import Outcome
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.kernels.mixture import response
from tests.exact import outcomes
from tests.exact.compare import seed
from tests.exact.test_outcome import LEVEL, means, p_value

N, ACTIVE, K = 90, 60, 3
ANNEALING = Annealing("linear", passes=2.0, start_rows=1)


def outcome_of(name, answers, firefly):
    """An outcome of one shard, that learns whatever can be learned."""
    has_scale = LIKELIHOODS[name].has_scale
    of = {"learns_mean": True, "learns_sd": True, "learns_scale": has_scale}
    if name == "survival":
        of["baseline"] = Baseline(np.array([0.0, 1.0]), 0.01, np.array([0.01, 0.02]), 1.0, 50.0)
    law = Law(LIKELIHOODS[name], np.zeros(2), np.ones(2), np.array([2.0]), np.zeros(2), **of)
    outcome = Outcome(serial(), [Shard(0, 0, None)], [answers], 1, law, seed(23), 0, steps=2)
    if firefly:
        outcome.fireflies = Fireflies(outcome, 0)
        outcome.fireflies.put([np.random.default_rng(5).exponential(1.0, N)[: len(answers.y)]])
    return outcome


def after(name, z, answers, firefly):
    """The outcome after a start and three updates given labels z."""
    outcome = outcome_of(name, answers, firefly)
    outcome.start([z], K)
    for cycle in range(3):
        outcome.count([z], int((z < 0).sum()))
        outcome.draw([z], cycle)
    return outcome


def both(name, firefly=False):
    """Outcomes of a table whose last rows are idle, and of the table without them. Rows are last as draws of brightness
    follow the order of rows."""
    g = np.random.default_rng(4)
    y = g.poisson(2.0, N).astype(float) if name == "poisson" else g.normal(size=N)
    y = np.where(y > 0, 1.0, -1.0) if name == "logistic" else y
    y[::7] = np.nan
    times = y if name == "survival" else None
    y = np.where(np.isnan(y), np.nan, y >= 0.0) if name == "survival" else y
    whole = Answers(y, *(g.normal(size=(N, 1)).astype(np.float32) for _ in range(2)), times)
    z = g.integers(K, size=N).astype(np.int32)
    z[ACTIVE:] = IDLE
    without = whole.take(np.arange(ACTIVE))
    return after(name, z, whole, firefly), after(name, z[:ACTIVE].copy(), without, firefly)


def alike(one, two):
    states = ([*of.state().values(), np.array(of.log_joint())] for of in (one, two))
    return all(np.array_equal(a, b) for a, b in zip(*states))


KINDS = [
    ("normal", False), ("student-t", True), ("logistic", False), ("logistic", True), ("poisson", False),
    ("survival", False),
]  # fmt: skip


@pytest.mark.parametrize("name, firefly", KINDS)
def test_idle_rows_have_no_part(name, firefly):
    assert alike(*both(name, firefly))


@contextlib.contextmanager
def in_the_first_cluster(kernel):
    """Wrong: a sum over rows counts idle rows in the first cluster."""
    right = getattr(response, kernel)
    place = 1 if kernel == "slopes" else 0

    def wrong(*of):
        return right(*of[:place], np.maximum(of[place], 0), *of[place + 1 :])

    with mock.patch.object(program.kernels, kernel, wrong):
        yield


@contextlib.contextmanager
def counted():
    """Wrong: idle rows count in the number of outcomes."""
    with mock.patch.object(Outcome, "count", lambda *of: None):
        yield


WRONG = {
    **{f"{kernel} of a {name}": ((name, False), lambda kernel=kernel: in_the_first_cluster(kernel))
       for kernel in ("slopes", "squares") for name in ("normal", "logistic")},
    "bounds of fireflies": (("logistic", True), lambda: in_the_first_cluster("bound_sums")),
    **{f"number of a {name}": ((name, False), counted) for name in ("normal", "poisson")},
    "exposures": (("survival", False), lambda: in_the_first_cluster("slopes")),
}  # fmt: skip


@pytest.mark.parametrize("which", WRONG)
def test_wrong_is_rejected(which):
    of, wrong = WRONG[which]
    with wrong():
        assert not alike(*both(*of))


def test_all_rows_count_once_they_are_active():
    z, answers = np.zeros(N, np.int32), Answers(np.arange(N) % 3.0, np.zeros((N, 1), np.float32), np.ones((N, 1), "f4"))
    outcome = outcome_of("poisson", answers, False)
    first = outcome.n, outcome._log_base
    outcome.count([np.where(np.arange(N) < ACTIVE, z, IDLE)], N - ACTIVE)
    assert outcome.n == ACTIVE and outcome._log_base != first[1]
    outcome.count([z], 0)
    assert (outcome.n, outcome._log_base) == first


@pytest.mark.parametrize("firefly", [0, pytest.param(2, marks=pytest.mark.thorough)])
def test_law_after_growth(firefly):
    of = {"annealing": ANNEALING, "split_merge": 4, "firefly": firefly}
    p, t = p_value(*means(serial(), "t4", 3, 30, **of))
    assert p >= LEVEL, f"p {p:.2g}, t {t:.1f} (seed {seed(21)})"


@pytest.mark.quick(ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
def test_ranks_change_no_bit():
    """The chain on all ranks is that of one, while it grows and after."""
    of = {"split_merge": 1, "annealing": Annealing("linear", passes=4.0, start_rows=1)}
    here, alone = (outcomes.sampler(comm, "miss5", 3, seed(21), **of) for comm in (world(), serial()))
    growing = 0
    for _ in range(16):
        here.cycle()
        alone.cycle()
        growing += here.growing
        assert here.growing == alone.growing
        for one, two in zip(here.outcome.state().values(), alone.outcome.state().values()):
            assert np.array_equal(one, two)
        if here.comm.rank == 0:
            assert here.outcome.log_joint() == alone.outcome.log_joint()
    assert growing > 2
