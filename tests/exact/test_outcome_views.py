"""An outcome in a cross-categorization has the exact posterior of views, of its place among them, of rows and of
coefficients; programs that treat its view wrongly are rejected by the same test at the same size.

Replicates start at exact draws of all of it, and means over their cycles are compared with the exact values of
`outcome_views` by t tests. A right program is rejected with probability LEVEL at most (Bonferroni over summaries).
Seeds are fixed; MPIBAYES_TEST_SEED overrides them.
"""

import contextlib
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat import host
from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.columns import split_merge
from mpibayes.hpc.outcome import branching
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import outcome_views
from tests.exact.compare import seed
from tests.exact.test_outcome import LEVEL, p_value
from tests.exact.view_transitions import cores

REPLICATES, CYCLES = 360, 3
FEWER = 180  # replicates of the law in `make test`: they reject the first wrong program


def means(comm, n_shards, replicates=range(REPLICATES), step=Mixture.cycle, cycles=CYCLES, paired=False, **settings):
    """Means of all summaries over the cycles of each replicate, (replicates, summaries), on root. paired: less what the
    start, an exact draw, has above expectation, which is most of it where rows do not move."""
    out = []
    with cores(2):
        mixture = outcome_views.sampler(comm, n_shards, seed(31), **settings)
        for r in replicates:
            outcome_views.put(mixture, r, np.random.default_rng([seed(31), r]))
            above = outcome_views.recorded(mixture) - outcome_views.exact() if paired else 0.0
            total = 0.0
            for _ in range(cycles):
                step(mixture)
                now = outcome_views.recorded(mixture)
                total = total if now is None else total + now
            out.append(total / cycles - above)
    return np.array(out)


def p_of_wrong(n_shards, replicates=REPLICATES, **settings):
    """p and t of the first replicates that suffice to reject a program; of all, if none do."""
    of = []
    for last in (replicates * part // 12 for part in range(3, 13)):
        of = [*of, *means(serial(), n_shards, range(len(of), last), **settings)]
        p, t = p_value(np.array(of), outcome_views.exact())
        if p < LEVEL:
            break
    return p, t


def alone(mixture):
    """The draw of the outcome's view, without anything else."""
    host.draw_view(mixture)
    mixture.cycles += 1


ALONE = {"replicates": 800, "step": alone, "cycles": 2, "paired": True}


@pytest.mark.thorough
def test_law_of_its_view():
    p, t = p_value(means(serial(), 2, **{**ALONE, "replicates": range(ALONE["replicates"])}), outcome_views.exact())
    assert p >= LEVEL, f"p {p:.2g}, t {t:.1f} (seed {seed(31)})"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "n_shards, replicates, settings",
    [
        (3, FEWER, {}),
        (1, REPLICATES, {}),
        (2, REPLICATES, {"column_powers": 1}),
    ],
)
def test_law(n_shards, replicates, settings):
    p, t = p_value(means(serial(), n_shards, range(replicates), **settings), outcome_views.exact())
    assert p >= LEVEL, f"{n_shards} shards, {settings}: p {p:.2g}, t {t:.1f} (seed {seed(31)})"


@pytest.mark.quick("settings1", ranks=(2, 3))
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("settings", [{}, {"column_powers": 1, "entry": 4}])
def test_ranks_change_no_bit(settings):
    """The chain on all ranks is that of one: views, the outcome's place, labels and coefficients."""
    with cores(2):
        here, alone = (outcome_views.sampler(comm, 3, seed(32), **settings) for comm in (world(), serial()))
        for _ in range(12):
            here.cycle()
            alone.cycle()
            now, same = outcome_views.recorded(here), outcome_views.recorded(alone)
            assert now is None or np.array_equal(now, same)
            assert here.host == alone.host and np.array_equal(here.outcome.theta, alone.outcome.theta)


# ---- wrong programs --------------------------------------------------------------------------------------------------


def inverted():
    """Wrong: the prior probability of a view enters the draw with the wrong sign."""
    right = host.log_prior
    return mock.patch.object(host, "log_prior", lambda chain: -right(chain))


def likelihood_alone():
    """Wrong: views are chosen by the likelihood of proposed coefficients, without their density."""
    right = branching.scored

    def scored(outcome, z, present, drawn, stream):
        theta, _ = right(outcome, z, present, drawn, stream)
        values = outcome.slopes(z, theta)[0]
        return theta, values

    return mock.patch.object(branching, "scored", scored)


def first_host():
    """Wrong: the first column of the outcome's view stays, and never another."""

    def stays(chain):
        chain.host = chain.view_of_unit.index(host.view_of(chain))

    return mock.patch.object(host, "draw_host", stays)


@contextlib.contextmanager
def merges_excluded():
    """Wrong: the outcome's view splits, but never merges."""
    right = split_merge.Move._merge

    def merge(self, log_u):
        result = right(self, log_u)
        if result is None:
            return None
        chosen = np.array(result[0])
        return None if self.host >= 0 and (chosen == self.fixed).sum() > (self.where == self.fixed).sum() else result

    with mock.patch.object(split_merge.Move, "_merge", merge):
        yield


@contextlib.contextmanager
def lost():
    """Wrong: when views are numbered anew, the outcome is in that with the old number, with fresh coefficients."""
    before, right, stream = {}, host.draw_host, np.random.default_rng(1)

    def remember(chain):
        right(chain)
        before[id(chain)] = host.view_of(chain)

    def wait(chain):
        number = min(before[id(chain)], len(chain.views) - 1)
        if number != host.view_of(chain):
            chain.host, law = chain.view_of_unit.index(number), chain.outcome.law
            chain.outcome.theta = law.mean + law.sd * stream.standard_normal((chain.views[number].n_labels, law.p))

    with mock.patch.object(host, "draw_host", remember), mock.patch.object(host, "wait", wait):
        yield


WRONG = {
    "lost": (lost, {}),
    "inverted": (inverted, ALONE),
    "likelihood alone": (likelihood_alone, ALONE),
    "the first column stays": (first_host, {}),
    "merges excluded": (merges_excluded, {"view_moves": 4}),
}


@pytest.mark.thorough
@pytest.mark.parametrize("which", WRONG)
def test_wrong_is_rejected(which):
    wrong, settings = WRONG[which]
    with wrong():
        p, t = p_of_wrong(2, **settings)
    assert p < LEVEL, f"{which}: p {p:.2g}, t {t:.1f}"
