"""Times to an event with proportional hazards have the exact posterior of labels, coefficients and baseline hazards;
programs without one of their rules are rejected by the same test at the same size.

Tests, level and seeds are those of test_outcome.py: a right program is rejected with probability 1e-4 at most.
"""

import contextlib
from unittest import mock

import numpy as np
import pytest
import scipy

from mpibayes.hpc.outcome.baseline import Baseline
from mpibayes.hpc.outcome.outcome import Outcome
from mpibayes.hpc.parallel.streams import Purpose, Stream
from tests.exact import outcome_target, outcomes
from tests.exact.compare import seed
from tests.exact.test_outcome import LEVEL, MORE, p_of_wrong, require_law

NAME, CYCLES = "times4", 100
BASELINE = Baseline(np.array([0.0, 3.0, 8.0]), 0.5, np.array([0.2, 0.05, 0.1]))


@pytest.mark.thorough
def test_target():
    """The file has what the rules give, and fewer points."""
    outcomes.require_the_target(outcome_target.target_of(NAME, 61), NAME)


@pytest.mark.thorough
@pytest.mark.parametrize("n_shards", [1, 3])
def test_law(n_shards):
    require_law(NAME, n_shards, CYCLES, **({"chains": range(MORE[NAME])} if n_shards == 1 else {}))


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{"sweeps_per_cycle": 2, "n_fresh": 3}, {"split_merge": 1}])
def test_law_of_other_settings(settings):
    require_law(NAME, 2, CYCLES, **settings)


@contextlib.contextmanager
def hazards_without_coefficients():
    """Wrong: hazards are drawn as if all rows had the baseline's."""
    sums = Baseline.sums
    with mock.patch.object(Baseline, "sums", lambda self, times, eta=None: sums(self, times)):
        yield


@contextlib.contextmanager
def labels_without_exposures():
    """Wrong: labels are drawn as if all rows had been observed equally long."""
    right = Outcome.offsets

    def wrong(self, a, log_h=None):
        return right(self, a, np.zeros(len(a.y)))

    with mock.patch.object(Outcome, "offsets", wrong):
        yield


@contextlib.contextmanager
def censored_left_out():
    """Wrong: hazards are drawn without the rows that are censored."""
    sums = Baseline.sums

    def wrong(self, times, eta=None):
        return sums(self, times[times >= 0], None if eta is None else eta[times >= 0])

    with mock.patch.object(Baseline, "sums", wrong):
        yield


@contextlib.contextmanager
def level_without_prior():
    """Wrong: the level moves from the hazards to the intercepts as if hazards had no prior."""
    with mock.patch.object(Baseline, "log_shift", lambda self, by: 0.0):
        yield


WRONG = [
    *((hazards_without_coefficients, n) for n in (1, 3)),
    *((level_without_prior, n) for n in (1, 3)),
    # on three shards four rows hardly change labels, and these two are not always rejected
    (censored_left_out, 1),
    (labels_without_exposures, 1),
]


@pytest.mark.thorough
@pytest.mark.parametrize("wrong, n_shards", WRONG)
def test_wrong_is_rejected(wrong, n_shards):
    with wrong():
        p, t = p_of_wrong(NAME, n_shards, CYCLES)
    assert p < LEVEL, f"p {p:.2g}, t {t:.1f}"


def test_densities():
    """Probabilities of ranges are integrals of the density and differences of survival; averages over eta are those."""
    eta, at = np.array([-0.5, 0.8]), np.array([0.4, 1.9, 3.5, 6.0])
    edges = np.linspace(0.0, 9.0, 9001)
    middle = 0.5 * (edges[1:] + edges[:-1])
    # a time at a cut belongs to the part before; within the parts densities are of the very time
    risk = np.exp(eta)[:, None]
    part = np.searchsorted([1.5, 4.0], middle)
    hazard = BASELINE.hazards[part] / BASELINE.tick
    survival = np.exp(-risk * BASELINE.cumulative(middle, whole=False))
    total = np.append(np.zeros((2, 1)), np.cumsum(risk * hazard * survival * 0.001, axis=1), axis=1)
    for low, high in ((0.4, 1.9), (0.0, 6.0), (3.5, 9.0)):
        exact = total[:, round(high * 1000)] - total[:, round(low * 1000)]
        found = BASELINE.log_between(eta, np.array(low), np.array(high), 1.0, 1.0)
        np.testing.assert_allclose(np.exp(found), exact, rtol=1e-3)
    rest = BASELINE.log_between(eta, np.array(6.0), np.array(np.inf), 1.0, 1.0)
    np.testing.assert_allclose(rest, BASELINE.log_density(eta, np.array([-6.0, -6.0]), 1.0, 1.0))
    np.testing.assert_allclose(np.exp(rest), 1.0 - total[:, 6000], rtol=1e-3)
    spread, x = np.array([0.7, 1.3, 0.2, 2.0]), np.random.default_rng(3).normal(size=400_000)
    for times in (at, -at):
        each = np.exp(BASELINE.log_density(0.3 + spread[:, None] * x, times[:, None], 1.0, 1.0)).mean(axis=1)
        averages = BASELINE.log_averages(times, np.full(4, 0.3), spread, 1.0, 1.0)
        np.testing.assert_allclose(np.exp(averages), each, rtol=0.02)
    beyond = BASELINE.expectation(eta)
    np.testing.assert_allclose(
        beyond[:, 1], np.exp(BASELINE.log_between(eta, np.array(4.0), np.array(np.inf), 1.0, 1.0))
    )
    narrow = BASELINE.average_expectations(eta, np.full(2, 1e-9))
    np.testing.assert_allclose(narrow, beyond)


def test_short_times_count_as_a_small_part_of_the_first():
    """Without any exposure a cluster of events at 0 would have no most probable hazard."""
    baseline, short = Baseline(np.array([0.0, 1280.0]), 0.5, np.array([0.2, 0.05])), 5.0
    for sign in (1.0, -1.0):
        times = sign * np.array([0.5, 2.0, short])
        assert (
            np.ptp(baseline.cumulative(times)) == 0.0 and np.ptp(baseline.log_density(np.ones(3), times, 1, 1)) == 0.0
        )
    assert baseline.cumulative(np.array([-5e-324])) == pytest.approx(10 * 0.2)
    assert baseline.exposed(baseline.sums(np.array([0.0, short, short + 1.0])))[1][0] == 10 + 10 + 12


@pytest.mark.parametrize("end", [3.0, 0.0])
def test_a_short_first_part_has_some_exposure(end):
    baseline = Baseline(np.array([0.0, end, 1280.0]), 0.5, np.array([0.2, 0.1, 0.05]))
    assert baseline.cumulative(np.array([0.0]))[0] > 1e-4
    assert baseline.exposed(baseline.sums(np.zeros(3)))[1].sum() == 3 * max(end, 1.0) / 128


def test_drawn_times_have_their_law():
    """By the shares beyond each end, within 4.5 standard errors: fails with probability 1e-5."""
    n, ids = 40_000, np.arange(40_000)
    times = BASELINE.drawn(np.full(n, 0.4), 1.0, 1.0, Stream(seed(24), Purpose.OUTCOME_CELLS, 0, 0, 0), ids)
    for share, p in zip((times[:, None] > BASELINE.ends).mean(axis=0), BASELINE.expectation(np.array([0.4]))[0]):
        assert abs(share - p) < 4.5 * np.sqrt(p * (1.0 - p) / n)


@pytest.mark.quick(ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
def test_ranks_change_no_bit():
    """The chain on all ranks is that of one, coefficients and hazards included."""
    outcomes.require_same_bits(NAME, seed(21))


def test_draws_between_bounds():
    """Draws of a time between bounds have its law there, also where a free draw hardly ever lies; a free draw that is
    moved to the nearer bound does not. A right program is rejected with probability 1e-4."""
    n, eta = 20_000, 0.8
    stream, ids = Stream(5, Purpose.OUTCOME_CELLS, 0), np.arange(n)
    for low, high in ((-np.inf, np.inf), (1.0, 5.0), (30.0, np.inf)):
        bounds = np.full(n, low), np.full(n, high)
        drawn = BASELINE.drawn_between(np.full(n, eta), *bounds, stream, ids)
        assert np.all((drawn >= low) & (drawn <= high))

        def below(x, low=low, high=high):
            ends = (max(low, 0.0), np.minimum(np.maximum(x, 1e-9), high)), (low, high)
            part, whole = (
                BASELINE.log_between(np.full(np.shape(of[1]), eta), *map(np.array, of), 1.0, 1.0) for of in ends
            )
            return np.exp(part - whole)

        assert scipy.stats.kstest(drawn, below).pvalue > 1e-4
        if np.isfinite(low):
            free = BASELINE.drawn(np.full(n, eta), 1.0, 1.0, stream, ids)
            assert scipy.stats.kstest(np.clip(free, *bounds), below).pvalue < 1e-4
