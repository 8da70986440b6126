"""A mixture with an outcome has the exact posterior of labels and coefficients; programs without one of its rules are
rejected by the same test at the same size.

A test compares means over independent chains with the exact values of `outcomes.TARGETS` by t tests: numbers of
clusters, pairs of rows together, and first and second moments of beta and of every row's linear predictor. A right
program is rejected with probability LEVEL at most (Bonferroni over summaries). Seeds are fixed; MPIBAYES_TEST_SEED
overrides them.
"""

import contextlib
from unittest import mock

import numpy as np
import pytest
import scipy

from mpibayes.hpc.outcome import branching
from mpibayes.hpc.outcome import outcome as program
from mpibayes.hpc.parallel.comm import serial
from mpibayes.kernels.mixture import response, twin_response
from tests.exact import outcomes, wrong_cycles
from tests.exact.compare import seed
from tests.exact.enumerate import Posterior

LEVEL, CHAINS, SETTLING = 1e-4, 16, 15
MORE = {"count5": 24, "times4": 24}  # chains that reject all wrong programs of these targets; CHAINS do of the others


def means(comm, name, n_shards, cycles, n_fresh=2, chains=range(CHAINS), **settings):
    """Means of all summaries in each chain, (chains, summaries), and their exact values, on root."""
    parts, p, _, exact = outcomes.summaries(name)
    whole, posterior = outcomes.answers_of(outcomes.TARGETS[name]["case"]), Posterior(outcomes.case_of(name))
    _, table = posterior.summaries()
    of_parts = table[:, [posterior.index([int(c) for c in part]) for part in parts]] @ p
    out = []
    for chain in chains:
        mixture = outcomes.sampler(comm, name, n_shards, seed(21), chain, n_fresh, **settings)
        for _ in range(SETTLING):
            mixture.cycle()
        total = 0.0
        for _ in range(cycles):
            mixture.cycle()
            z = mixture.view.labels()
            if comm.rank == 0:
                now = outcomes.recorded(mixture, z.astype(np.int64), whole)
                total = total + np.concatenate([table[:, int(posterior.index(z))], now])
        out.append(total / cycles)
    return np.array(out), np.concatenate([of_parts, exact])


def p_value(of, exact):
    """Smallest p over summaries, times their number, and its t."""
    spread = of.std(axis=0, ddof=1)
    used = spread > 1e-12
    t = (of.mean(axis=0) - exact)[used] / spread[used] * np.sqrt(len(of))
    p = 2.0 * scipy.stats.t.sf(np.abs(t), len(of) - 1) * used.sum()
    worst = int(np.argmin(p))
    return float(p[worst]), float(t[worst])


def require_law(name, n_shards, cycles, **settings):
    """Fail if the summaries of chains are not those of the posterior."""
    p, t = p_value(*means(serial(), name, n_shards, cycles, **settings))
    assert p >= LEVEL, f"{settings}: p {p:.2g}, t {t:.1f} (seed {seed(21)})"


def p_of_wrong(name, n_shards, cycles, **settings):
    """p and t of the first chains that suffice to reject a program; of all, if none do."""
    of, n = [], MORE.get(name, CHAINS)
    for last in (n // 2, n):
        more, exact = means(serial(), name, n_shards, cycles, chains=range(len(of), last), **settings)
        of = [*of, *more]
        p, t = p_value(np.array(of), exact)
        if p < LEVEL:
            break
    return p, t


def test_law():
    p, t = p_value(*means(serial(), "t4", 3, 60))
    assert p >= LEVEL, f"p {p:.2g}, t {t:.1f} (seed {seed(21)})"


@pytest.mark.thorough
@pytest.mark.parametrize("name, n_shards", [("miss5", 2), ("surv4", 3)])
def test_law_of_two_sweeps_a_cycle(name, n_shards):
    p, t = p_value(*means(serial(), name, n_shards, 60, sweeps_per_cycle=2))
    assert p >= LEVEL, f"{name}, {n_shards} shards: p {p:.2g}, t {t:.1f} (seed {seed(21)})"


# Targets take turns with one and three shards, and with one and three fresh coefficients.
IN_TURN = [(name, *((1, 1), (3, 3), (1, 3), (3, 1))[i % 4]) for i, name in enumerate(outcomes.TARGETS)]


@pytest.mark.thorough
@pytest.mark.parametrize("name, n_shards, n_fresh", IN_TURN)
def test_law_of_every_target(name, n_shards, n_fresh):
    """At the size at which wrong programs are rejected."""
    cycles, chains = 100 if name in ("norm4", "times4") else 60, range(MORE.get(name, CHAINS))
    p, t = p_value(*means(serial(), name, n_shards, cycles, n_fresh, chains))
    assert p >= LEVEL, f"{name}, {n_shards} shards: p {p:.2g}, t {t:.1f} (seed {seed(21)})"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["t4", "glm4", "prof5py"])
def test_law_with_splits_and_merges(name):
    p, t = p_value(*means(serial(), name, 2, 60, split_merge=1))
    assert p >= LEVEL, f"{name}: p {p:.2g}, t {t:.1f} (seed {seed(21)})"


def without_outcome(of):
    """Wrong: moves are accepted by the columns only."""
    return of._replace(log_factor=np.zeros_like(of.log_factor))


def off_by_a_nat(of):
    """Wrong: proposal densities of moves are off by a nat."""
    return of._replace(log_factor=of.log_factor + 1.0)


@pytest.mark.thorough
@pytest.mark.parametrize("change", [without_outcome, off_by_a_nat])
def test_wrong_moves_are_rejected(change):
    right = branching.branches
    with mock.patch.object(branching, "branches", lambda *of: change(right(*of))):
        p, t = p_of_wrong("t4", 2, 60, split_merge=1)
    assert p < LEVEL, f"p {p:.2g}, t {t:.1f}"


@contextlib.contextmanager
def in_python(**wrong):
    """Run sweeps by the kernels' twin, with some of its functions replaced."""
    with contextlib.ExitStack() as stack:
        for name, function in wrong.items():
            stack.enter_context(mock.patch.object(twin_response.Response, name, function))
        stack.enter_context(mock.patch.object(response, "Response", twin_response.Response))
        stack.enter_context(wrong_cycles.plain_kernels())
        yield


def fresh_alone(self, i, alone):
    """Wrong: a row that is alone in its cluster forgets its coefficients."""
    return [np.array(theta) for theta in self.fresh[i]]


def undivided(self, i, alone):
    """Wrong: each candidate for a new cluster has the full weight."""
    scores = [self.score(i, theta) for theta in self.candidates(i, alone)]
    return max(scores) + np.log(sum(np.exp(np.array(scores) - max(scores))))


@contextlib.contextmanager
def anchors_forgotten():
    """Wrong: coefficients are drawn without the outcomes of the rows with the least priorities in their clusters."""
    slopes = response.slopes

    def wrong(kind, z, *rest):
        z = z.copy()
        z[np.unique(z, return_index=True)[1]] = -1
        return slopes(kind, z, *rest)

    with mock.patch.object(program.kernels, "slopes", wrong):
        yield


@contextlib.contextmanager
def without_offset():
    """Wrong: labels are drawn without the covariates."""
    offsets = response.offsets
    with mock.patch.object(program.kernels, "offsets", lambda w, beta, *more: offsets(w, 0.0 * beta, *more)):
        yield


FIRST = "not divided by their number"
WRONG = {
    "anchor rows forgotten": (anchors_forgotten, "t4", 3, 60),
    "own coefficients forgotten": (lambda: in_python(candidates=fresh_alone), "t4", 1, 60),
    "not divided by their number": (lambda: in_python(score_of_new=undivided), "t4", 1, 60),
    "offset left out": (without_offset, "norm4", 1, 100),
}


@pytest.mark.parametrize("which", [*(pytest.param(w, marks=pytest.mark.thorough) for w in WRONG if w != FIRST), FIRST])
def test_wrong_is_rejected(which):
    wrong, name, n_shards, cycles = WRONG[which]
    with wrong():
        p, t = p_of_wrong(name, n_shards, cycles)
    assert p < LEVEL, f"{which}: p {p:.2g}, t {t:.1f}"


@pytest.mark.quick(ranks=(2, 3))
@pytest.mark.mpi(min_size=2)
def test_ranks_change_no_bit():
    """The chain on all ranks is that of one, coefficients included."""
    outcomes.require_same_bits("miss5", seed(21))
