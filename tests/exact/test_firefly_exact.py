"""Firefly Monte Carlo has the posterior of small regressions, known by quadrature, and the same bits on all ranks.

Every pair of z- and theta-update, bounds tuned, untuned and none, three likelihoods and two priors: replicates from
exact starts, and some long chains (tests/exact/regression_law.py). Every test of a law rejects a right program with
probability at most LEVEL; there are about 110, so a change of seeds raises a false alarm once in 90 times. Seeds are
fixed; MPIBAYES_TEST_SEED overrides them and every failure prints the seed. Wrong versions must be rejected by the same
test on fewer cycles; tests/exact/README.md has their measured power, from `python -m tests.exact.firefly_power`.

The law is tested on one rank, where cycles are cheap, for all cuts; on 2 to 4 ranks the chain must equal the one-rank
chain bit by bit, with bright rows gathered and with sums asked of the ranks, and one law is tested there on its own.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import production_firefly as production
from tests.exact import wrong_firefly as wrong
from tests.exact.compare import seed
from tests.exact.on_ranks import require_the_same
from tests.exact.regression_cases import CASES, INTERCEPTS, posterior

LEVEL = 1e-4
REPLICATES = 400, 40  # those of the wrong program that is hardest to detect
SWEEPS = {"explicit": {"z_update": "explicit", "q": 0.3}, "few": {"q": 0.1}, "many": {"q": 0.6}}
MOVES = ("hmc", "mala", "random-walk", "slice")
PAIRS = list(itertools.product(("untuned", "tuned"), MOVES, SWEEPS))
# Cuts rotate over the configurations, so that every number of shards meets every update and bound.
CONFIGURATIONS = [
    (name, bounds, move, sweep, 1 + (i + i // 4) % 4)
    for name in CASES
    for i, (bounds, move, sweep) in enumerate(PAIRS)
    if name == "logistic24" or sweep != "explicit"
]


# ---- the quadrature itself -------------------------------------------------------------------------------------------


def test_quadrature_of_logistic24():
    """The figures of tests/exact/numbers.md, to their printed digits."""
    law = posterior("logistic24")
    mean = law.mean(law.theta)
    centred = law.theta - mean
    covariance = law.mean(centred[:, :, None] * centred[:, None, :])
    assert np.allclose(law.mode, [1.32197, -0.07440], atol=1e-5)
    assert np.allclose(mean, [1.587820, -0.046412], atol=1e-6)
    assert np.allclose(covariance, [[0.495016, 0.057622], [0.057622, 0.237262]], atol=1e-6)
    assert np.isclose(law.mean(law.theta[:, 0] > 1.0), 0.79297, atol=2e-5)
    assert np.isclose(law.mean(law.bright()["number"]), 1.741505, atol=1e-6)
    assert np.isclose(law.mean(law.bright(law.mode)["number"]), 0.81400, atol=1e-5)


@pytest.mark.quick("logistic24", "student16")
@pytest.mark.parametrize("name", CASES)
def test_quadrature_against_draws(name):
    """Importance sampling with a Student t about the posterior's moments agrees with the grid."""
    law, g = posterior(name), np.random.Generator(np.random.Philox(seed(61)))
    p, mean = law.case.n_parameters, law.mean(law.theta)
    factor = np.linalg.cholesky(law.mean((law.theta - mean)[:, :, None] * (law.theta - mean)[:, None, :]))
    u = g.standard_normal((50_000, p)) / np.sqrt(g.chisquare(5, (50_000, 1)) / 5)
    theta = mean + 1.2 * u @ factor.T
    log_w = law.case.log_joint(theta) + 0.5 * (5 + p) * np.log1p((u**2).sum(axis=1) / 5)
    w = np.exp(log_w - log_w.max())
    values = np.column_stack([theta, theta**2, theta > law.case.thresholds])
    exact = law.mean(np.column_stack([law.theta, law.theta**2, law.theta > law.case.thresholds]))
    mine = w @ values / w.sum()
    error = np.sqrt((w**2) @ (values - mine) ** 2) / w.sum()
    assert (np.abs(mine - exact) < 5.0 * error).all(), f"{(mine - exact) / error} (seed {seed(61)})"


# ---- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.quick(every=5)
@pytest.mark.parametrize("name, bounds, move, sweep, n_shards", CONFIGURATIONS)
def test_law(name, bounds, move, sweep, n_shards):
    result = production.verdict(
        serial(),
        posterior(name),
        n_shards,
        seed(62),
        REPLICATES,
        LEVEL,
        bounds=bounds,
        theta_update=move,
        **SWEEPS[sweep],
    )
    assert result.passed, f"{result} (seed {seed(62)})"


@pytest.mark.quick(every=5)
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("name", CASES)
def test_law_of_regular_mcmc(name, move):
    result = production.verdict(
        serial(), posterior(name), 3, seed(63), REPLICATES, LEVEL, bounds="none", theta_update=move
    )
    assert result.passed, f"{result} (seed {seed(63)})"


@pytest.mark.quick("logistic24-tuned-hmc", "student16-untuned-hmc", "softmax12-tuned-random-walk")
@pytest.mark.parametrize("move", ["hmc", "random-walk"])
@pytest.mark.parametrize("bounds", ["untuned", "tuned"])
@pytest.mark.parametrize("name", CASES)
def test_law_with_steps_on_all_rows(name, bounds, move):
    """In every third cycle theta takes a step with z integrated out, and z is redrawn."""
    settings = {"bounds": bounds, "theta_update": move, "q": 0.3, "refresh": 3}
    result = production.verdict(serial(), posterior(name), 2, seed(72), REPLICATES, LEVEL, **settings)
    assert result.passed, f"{result} (seed {seed(72)})"


@pytest.mark.quick(every=5)
@pytest.mark.parametrize("bounds", ["untuned", "tuned", "none"])
@pytest.mark.parametrize("move", MOVES)
def test_law_with_a_flat_coefficient_in_plain_coordinates(bounds, move):
    settings = {"bounds": bounds, "theta_update": move, "q": 0.3, "whiten": False}
    result = production.verdict(serial(), posterior("flat24"), 2, seed(74), REPLICATES, LEVEL, **settings)
    assert result.passed, f"{result} (seed {seed(74)})"


OF_INTERCEPTS = [("rare24", "tuned", "hmc"), ("far16", "untuned", "mala"), ("rare12", "none", "hmc")]


@pytest.mark.parametrize("name, bounds, move", OF_INTERCEPTS)
def test_law_of_an_intercept_with_its_own_prior(name, bounds, move):
    settings = {"bounds": bounds, "theta_update": move, "q": 0.3}
    result = production.verdict(serial(), posterior(name), 2, seed(75), (150, 40), LEVEL, **settings)
    assert result.passed, f"{result} (seed {seed(75)})"


@pytest.mark.parametrize("name, bounds, move", OF_INTERCEPTS)
def test_an_intercept_with_the_prior_of_the_coefficients_is_rejected(name, bounds, move):
    settings = {"bounds": bounds, "theta_update": move, "q": 0.3, "misread": partial(replace, intercept_scale=None)}
    result = production.verdict(serial(), posterior(name), 2, seed(75), (150, 40), LEVEL, **settings)
    assert not result.passed, f"{result} (seed {seed(75)})"


@pytest.mark.parametrize("bounds", ["tuned", "none"])
@pytest.mark.parametrize("name", [*CASES, *INTERCEPTS])
def test_log_posterior(name, bounds):
    """The trace's log_posterior is the log posterior, with normalised densities."""
    case = (CASES | INTERCEPTS)[name]
    sampler = production.chain(serial(), case, 3, seed(73), bounds=bounds, posterior_every=7)
    sampler.start()
    reported = production.advance(sampler, 100)
    known = np.isfinite(reported["log_posterior"])
    assert known.sum() == (14 if bounds == "tuned" else 100)
    assert np.allclose(
        reported["log_posterior"][known], case.log_joint(reported["theta"][known]), rtol=1e-12, atol=1e-12
    )


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("bounds", ["untuned", "tuned"])
def test_law_of_one_long_chain(bounds, move):
    """From a draw of the prior, with q and step size as the program finds them: a chain that never moves fails here."""
    settings = {"bounds": bounds, "theta_update": move, "init": "prior"}
    result = production.verdict_of_long_chain(serial(), posterior("logistic24"), 4, seed(71), 60_000, LEVEL, **settings)
    assert result.passed, f"{result} (seed {seed(71)})"


@pytest.mark.long
@pytest.mark.parametrize("n_shards", [1, 2, 3, 4])
@pytest.mark.parametrize("bounds, move, sweep", PAIRS)
@pytest.mark.parametrize("name", CASES)
def test_law_of_every_cut(name, bounds, move, sweep, n_shards):
    settings = {"bounds": bounds, "theta_update": move, **SWEEPS[sweep]}
    result = production.verdict(serial(), posterior(name), n_shards, seed(69), (400, 500), LEVEL, **settings)
    assert result.passed, f"{result} (seed {seed(69)})"


@pytest.mark.long
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("bounds, move, sweep", PAIRS)
def test_law_of_every_pair_on_ranks(bounds, move, sweep):
    """On 4 shards, which ranks share as two each, one each, or 2, 1 and 1."""
    comm, settings = world(), {"bounds": bounds, "theta_update": move, **SWEEPS[sweep]}
    result = comm.share(production.verdict(comm, posterior("logistic24"), 4, seed(70), (200, 100), LEVEL, **settings))
    assert result.passed, f"{result} (seed {seed(70)})"


# ---- wrong programs --------------------------------------------------------------------------------------------------


@pytest.mark.quick(
    "misprinted acceptance",
    "stale gaps, explicit",
    "z kept in a step on all rows",
    "bounds raised by 0.05, softmax",
    "hmc without acceptance",
    "mala without its reverse",
)
@pytest.mark.parametrize("name", wrong.PROGRAMS)
def test_wrong_programs_are_rejected(name):
    result = wrong.PROGRAMS[name].verdict(seed(64), LEVEL)
    assert not result.passed, str(result)


@pytest.mark.quick("plain sweep", "plain hmc")
@pytest.mark.parametrize("name", wrong.RIGHT)
def test_right_parts_pass_where_wrong_ones_are_rejected(name):
    """The plain z- and theta-updates, of which the wrong ones are variations, in equally long chains."""
    result = wrong.RIGHT[name].verdict(seed(64), LEVEL)
    assert result.passed, f"{result} (seed {seed(64)})"


def test_adaptation_ends_with_burn_in():
    """Only a fixed kernel has the posterior as its law: step size and q are those of the end of burn-in."""
    sampler = production.chain(serial(), CASES["logistic24"], 2, seed(65), burn_in=300, q="auto")
    sampler.start()
    during, after = sampler.advance(300), None
    tuning = sampler.tuning.copy()
    after = sampler.advance(1000)
    assert len(set(during["step_size"])) > 100
    assert len(set(after["step_size"])) == 1
    assert np.array_equal(sampler.tuning, tuning)


# ---- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.quick("some, rows gathered", "some, sums asked where two are bright", ranks=(2, 3))
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    "gather_limit, configurations",
    [(100_000, CONFIGURATIONS[::3]), (1, CONFIGURATIONS[::5]), (100_000, CONFIGURATIONS)],
    ids=["some, rows gathered", "some, sums asked where two are bright", "all, rows gathered"],
)
def test_same_bits_on_every_number_of_ranks(gather_limit, configurations):
    """Every trace, from the first cycle on."""
    for name, bounds, move, sweep, n_shards in configurations:
        settings = dict(bounds=bounds, theta_update=move, gather_limit=gather_limit, refresh=5, **SWEEPS[sweep])
        of = {"posterior_every": 6, **settings}
        require_the_same(
            lambda where, name=name, n=n_shards, of=of: production.digest(where, CASES[name], n, seed(66), 16, **of),
            *(name, bounds, move, sweep, n_shards, seed(66)),
        )


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("move", MOVES)
def test_same_bits_of_regular_mcmc(move):
    of = {"bounds": "none", "theta_update": move}
    for name, case in CASES.items():
        require_the_same(lambda where, case=case: production.digest(where, case, 4, seed(67), 16, **of), name, move)


def law_on_ranks(program=contextlib.nullcontext):
    """Verdict on a short chain on all ranks: more ranks than cores make a cycle slow."""
    comm, settings = world(), {"bounds": "untuned", "q": 0.9, "burn_in": 30}
    with program():
        result = production.verdict(comm, posterior("logistic24"), 4, seed(68), (50, 10), LEVEL, **settings)
    return comm.share(result)


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_law_on_ranks():
    """The law on real ranks, without other checks."""
    result = law_on_ranks()
    assert result.passed, f"{result} (seed {seed(68)})"


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_wrong_program_on_ranks_is_rejected():
    result = law_on_ranks(wrong.PROGRAMS["misprinted acceptance"].in_place)
    assert not result.passed, str(result)
