"""A softmax outcome has the exact posterior of labels and coefficients, on one and on several shards; programs whose
probabilities of levels are wrong are rejected by the same test at the same size.

Tests, level and seeds are those of test_outcome.py: a right program is rejected with probability 1e-4 at most.
"""

import contextlib
from math import exp, log
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.outcome import outcome as program
from mpibayes.hpc.parallel.comm import world
from mpibayes.kernels.mixture import twin_response
from tests.exact import outcome_target, outcomes
from tests.exact.compare import seed
from tests.exact.test_outcome import LEVEL, in_python, means, p_of_wrong, p_value, require_law

NAME, CYCLES = "soft5", 60


def test_target():
    """The file has what the rules give, and fewer points."""
    outcomes.require_the_target(outcome_target.target(NAME, 31), NAME)


@pytest.mark.thorough
@pytest.mark.parametrize("n_shards", [1, 3])
def test_law(n_shards):
    require_law(NAME, n_shards, CYCLES)


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{"sweeps_per_cycle": 2, "n_fresh": 3}, {"split_merge": 1}])
def test_law_of_other_settings(settings):
    require_law(NAME, 2, CYCLES, **settings)


@pytest.mark.mpi(min_size=2)
@pytest.mark.thorough
def test_law_on_ranks():
    of, exact = means(world(), NAME, 3, CYCLES)
    if world().rank == 0:
        p, t = p_value(of, exact)
        assert p >= LEVEL, f"p {p:.2g}, t {t:.1f} (seed {seed(21)})"


@contextlib.contextmanager
def without_reference():
    """Wrong: the sum over levels is without the first."""

    def wrong(kind, y, eta, nu, scale):
        return (eta[int(y) - 1] if y else 0.0) - log(sum(map(exp, eta)))

    with (
        mock.patch.object(twin_response, "log_likelihood", wrong),
        mock.patch.object(program.kernels, "slopes", twin_response.slopes),
        in_python(),
    ):
        yield


def normaliser_of_one_cluster(self, i, theta):
    """Wrong: the sum over levels is that of the row's first cluster, whichever cluster is asked about."""
    y, eta = self.y[i], self.eta(i, theta)
    first = self.eta(i, [*self.theta, *self.slot.values(), theta][0])
    return 0.0 if np.isnan(y) else (eta[int(y) - 1] if y else 0.0) - log(1.0 + sum(map(exp, first)))


WRONG = {
    "reference level left out": without_reference,
    "normaliser of one cluster": lambda: in_python(score=normaliser_of_one_cluster),
    "coefficients without the rows of the reference level": outcomes.slopes_without_zeros,
}


@pytest.mark.thorough
@pytest.mark.parametrize("which", WRONG)
def test_wrong_is_rejected(which):
    with WRONG[which]():
        p, t = p_of_wrong(NAME, 1, CYCLES)
    assert p < LEVEL, f"{which}: p {p:.2g}, t {t:.1f}"


@pytest.mark.quick(ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
def test_ranks_change_no_bit():
    """The chain on all ranks is that of one, coefficients included."""
    outcomes.require_same_bits(NAME, seed(21))
