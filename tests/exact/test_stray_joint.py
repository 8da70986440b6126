"""Visits of stray rows beside an outcome leave the joint law of labels, coefficients and outcomes as it is.

Geweke (2004), with independent replicates: labels are drawn from their exact law given the columns, coefficients from
their prior and outcomes from the likelihood; then the program runs a few steps on these data. Whatever the outcomes,
the labels and coefficients then have the law that they had before, so the change of every summary has mean 0. There is
no burn-in, and no summary is of a rare event: those that change in fewer than FEWEST replicates are left out.

A right program is rejected with probability LEVEL at most in each test (normal tails, Bonferroni over summaries, which
are bounded). Seeds are fixed; MPIBAYES_TEST_SEED overrides them.
"""

from unittest import mock

import numpy as np
import pytest
import scipy

from mpibayes.hpc.crosscat import stray_rows
from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.outcome.outcome import Outcome
from mpibayes.hpc.parallel.comm import serial
from mpibayes.kernels.mixture import response
from tests.exact import outcomes, production
from tests.exact.compare import seed
from tests.exact.enumerate import Posterior
from tests.exact.test_stray_rows import alone_now

LEVEL, REPLICATES, STEPS, FEWEST = 1e-4, 3000, 2, 150


class VisitsAlone(Mixture):
    """The visits without sweeps, and without the draw of the coefficients."""

    def cycle(self):
        self.cycles += 1
        stray_rows.follow(self)


def simulated(of, eta, generator):
    """Outcomes of rows with these linear predictors, of a logistic or Student's t regression."""
    if of["family"] == "logistic":
        return np.where(generator.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta)), 1.0, -1.0)
    return eta + of["s"] * generator.standard_t(of["nu"], len(eta))


def summaries(z, theta, beta, eta, y):
    """Bounded functions of labels, coefficients and outcomes: of clusters, pairs of rows, rows, and rows alone."""
    alone, eta, y = (np.bincount(z)[z] == 1).astype(float), np.tanh(eta), np.tanh(y)
    i, j = np.triu_indices(len(z), 1)
    together, b = (z[i] == z[j]).astype(float), np.tanh(beta)
    of_rows = eta, eta**2, eta * y, alone, alone * y, alone * eta, alone * eta**2, alone * eta * y
    clusters = (z.max() == np.arange(len(z))).astype(float), [np.tanh(theta).sum(), np.tanh(theta**2).sum()]
    return np.concatenate([*clusters, together, together * y[i] * y[j], *of_rows, b, b**2, b[0] * y])


def p_value(name, kind=VisitsAlone, strays=range(4), **settings):
    """Smallest p over summaries, times their number, and its t."""
    of, generator = outcomes.TARGETS[name]["case"], np.random.Generator(np.random.Philox(seed(311)))
    mixture, whole = outcomes.sampler(serial(), name, 3, seed(312), kind=kind, **settings), outcomes.answers_of(of)
    mixture.strays = np.array(strays, np.int64)
    outcome, law = mixture.outcome, mixture.outcome.law
    numbers, changes = np.concatenate([law.mean, law.sd, [law.scale]]), []
    for r, z in enumerate(Posterior(outcomes.case_of(name)).draw(generator, REPLICATES)):
        theta = law.mean + law.sd * generator.standard_normal((z.max() + 1, law.p))
        outcome.restore(theta, law.covariate_sd * generator.standard_normal(len(law.covariate_sd)), numbers)
        eta = outcome.now.eta_of(whole, z)
        y = simulated(of, eta, generator)
        for shard, answers in zip(mixture.shards, outcome.answers):
            answers.y[:] = y[shard.start : shard.start + len(shard)]
        mixture.view.strays = None  # which has the outcomes before
        before = summaries(z, outcome.theta, outcome.beta, eta, y)
        production.place(mixture, z, r * production.STRIDE)
        for _ in range(STEPS):
            mixture.cycle()
        z = mixture.view.labels().astype(np.int64)
        after = summaries(z, outcome.theta, outcome.beta, outcome.now.eta_of(whole, z), y)
        changes.append(after - before)
    of_each = np.array(changes)
    of_each = of_each[:, np.count_nonzero(of_each, axis=0) >= FEWEST]
    t = of_each.mean(axis=0) / of_each.std(axis=0, ddof=1) * np.sqrt(REPLICATES)
    worst = float(t[np.argmax(np.abs(t))])
    return 2.0 * float(scipy.stats.norm.sf(abs(worst))) * len(t), worst


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["t4", "glm4"])
def test_joint_law_of_the_visits_alone(name):
    p, t = p_value(name)
    assert p >= LEVEL, f"p {p:.2g}, t {t:.1f} (seed {seed(311)})"


@pytest.mark.thorough
def test_joint_law_of_cycles():
    p, t = p_value("t4", Mixture, [0, 2, 3])
    assert p >= LEVEL, f"p {p:.2g}, t {t:.1f} (seed {seed(311)})"


class FirstCandidate:
    """Wrong: an opened cluster has its first candidate's coefficients, not those chosen by the likelihood."""

    def __init__(self, response):
        self.response = response

    def __len__(self):
        return len(self.response)

    def renew(self, fresh, pick):
        self.response.renew(fresh, np.zeros_like(pick))


RENEW, OFFSETS = Outcome.renew, response.offsets


def first_candidates(self, of, *how):
    RENEW(self, FirstCandidate(of), *how)


def no_offsets(w, beta, *more):
    """Wrong: labels are drawn without the covariates."""
    return OFFSETS(w, 0.0 * beta, *more)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("where", "what", "wrong"),
    [(Outcome, "renew", first_candidates), (response, "offsets", no_offsets)],
    ids=["renew", "offsets"],
)
def test_wrong_visits_are_rejected(where, what, wrong):
    with mock.patch.object(where, what, wrong):
        p, t = p_value("t4")
    assert p < LEVEL, f"p {p:.2g}, t {t:.1f}"


@pytest.mark.thorough
def test_rows_chosen_anew_in_every_cycle_are_rejected():
    with (
        mock.patch.object(stray_rows, "due", lambda cycle, fixed: True),
        mock.patch.object(stray_rows, "choose", alone_now),
    ):
        p, t = p_value("t4", stray_rows=2)
    assert p < LEVEL, f"p {p:.2g}, t {t:.1f}"
