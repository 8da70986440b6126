"""A Poisson outcome has the exact posterior of labels and coefficients, with a covariate that is far off in one row;
programs whose rates are wrong are rejected by the same test at the same size.

Tests, level and seeds are those of test_outcome.py: a right program is rejected with probability 1e-4 at most.
"""

import contextlib
from math import exp, isnan
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.outcome import outcome as program
from mpibayes.hpc.outcome.metric import information
from mpibayes.hpc.parallel.comm import serial
from tests.exact import outcome_target, outcomes
from tests.exact.compare import seed
from tests.exact.test_outcome import LEVEL, in_python, p_of_wrong, require_law

NAME, CYCLES = "count5", 60


def test_target():
    """The file has what the rules give, and fewer points."""
    outcomes.require_the_target(outcome_target.target(NAME, 121), NAME)


@pytest.mark.thorough
def test_law():
    require_law(NAME, 3, CYCLES)


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{"sweeps_per_cycle": 2, "n_fresh": 3}, {"split_merge": 1}])
def test_law_of_other_settings(settings):
    require_law(NAME, 2, CYCLES, **settings)


def test_the_metric_weighs_rows_by_their_counts():
    """Information is the sum of v v' times 0.9 of a row's count and 0.1 of its cluster's mean, towards that of all."""
    mixture = outcomes.sampler(serial(), NAME, 2, seed(21))
    of, every = mixture.outcome, np.array([0, 0, 1, 1, 0], np.int32)
    z = [every[s.start : s.start + len(s)] for s in mixture.shards]
    of.theta = np.zeros((2, 1))
    found = information(of.law, of.squares(z, 2), of._squares(z, of._by_outcome, 2, 1))
    whole, known, exact = outcomes.answers_of(outcomes.TARGETS[NAME]["case"]), [0, 1, 3, 4], np.zeros((2, 2, 2))
    labels, y = every[known], whole.y[known]
    for k, count, v in zip(labels, y, np.column_stack([np.ones(4), whole.w[known, 0]])):
        mean = (y[labels == k].sum() + 2.0 * y.mean()) / ((labels == k).sum() + 2.0)
        exact[k] += (0.9 * count + 0.1 * mean) * np.outer(v, v)
    np.testing.assert_allclose(found, exact, rtol=1e-6)


def without_rate(self, i, theta):
    """Wrong: y eta without the rate, as if the rate were the same in all clusters."""
    return 0.0 if isnan(self.y[i]) else self.y[i] * self.eta(i, theta)[0] - exp(self.offset[i][0])


@contextlib.contextmanager
def steps_by_value():
    """Wrong: a trajectory's step size depends on where it starts, which its acceptance does not know."""
    right = program.Outcome.trajectory

    def wrong(self, look, metric, stream):
        far = abs(float(self.beta[0])) > 0.5
        with mock.patch.object(program, "LONG", 0.7 if far else 0.1), mock.patch.object(program, "SHORT", 0.05):
            return right(self, look, metric, stream)

    with mock.patch.object(program.Outcome, "trajectory", wrong):
        yield


WRONG = {
    "rates without the cluster": lambda: in_python(score=without_rate),
    "coefficients without the rows that count 0": outcomes.slopes_without_zeros,
    "steps that depend on the coefficients": steps_by_value,
}


@pytest.mark.thorough
@pytest.mark.parametrize("which", WRONG)
def test_wrong_is_rejected(which):
    with WRONG[which]():
        p, t = p_of_wrong(NAME, 1, CYCLES)
    assert p < LEVEL, f"{which}: p {p:.2g}, t {t:.1f}"


@pytest.mark.quick(ranks=(2, 3))
@pytest.mark.mpi(min_size=2)
def test_ranks_change_no_bit():
    """The chain on all ranks is that of one, coefficients included."""
    outcomes.require_same_bits(NAME, seed(21))
