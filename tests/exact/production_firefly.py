"""The program's Firefly Monte Carlo on small regressions, compared with their posterior."""

from __future__ import annotations

import hashlib

import numpy as np

from mpibayes.hpc.regression import firefly as program
from mpibayes.hpc.regression.firefly_settings import Settings
from mpibayes.hpc.regression.problem import Problem
from tests.exact.quadrature import Case, Posterior
from tests.exact.regression_law import judge

BURN_IN = 500
BATCHES = 32  # of a long chain
PLACED = 1 << 40  # added to the chain's number if a test draws z
XI = {"logistic": 1.5, "softmax": 1.5, "student-t": 1.0}  # where untuned bounds touch; softmax: at equal probabilities


def problem(comm, case: Case, n_shards: int) -> Problem:
    """The program's form of a case."""
    y = 2.0 * case.y - 1.0 if case.likelihood == "logistic" else np.asarray(case.y, float)
    return Problem(
        comm, case.likelihood, lambda start, stop: (case.x[start:stop].astype(np.float32), y[start:stop]),
        case.n_rows, n_shards, n_classes=case.n_classes,
        prior=case.prior, prior_scale=np.array(case.prior_scale), intercept_scale=case.intercept_scale,
        nu=case.nu, scale=case.scale,
    )  # fmt: skip


class InPython(program.Firefly):
    """A chain that normally runs on several ranks, on one: a cycle at a time, each step a call that a test can
    replace."""

    def _run(self, n, out):
        self._run_together(n, out)


def chain(comm, case: Case, n_shards: int, seed: int, in_python=False, number: int = 0, **settings) -> program.Firefly:
    """Return a sampler that has not started."""
    given = Settings(seed=seed, **({"burn_in": BURN_IN, "xi": XI[case.likelihood]} | settings))
    return (InPython if in_python else program.Firefly)(comm, problem(comm, case, n_shards), given, chain=number)


def advance(sampler, n_cycles: int):
    """Run cycles and return the trace, with theta (n, P); None off root."""
    reported = sampler.advance(n_cycles)
    return None if reported is None else reported | {"theta": reported["theta"].reshape(n_cycles, -1)}


def place(sampler, theta) -> None:
    """Put a started chain at theta, with an exact draw of z given theta."""
    sampler.theta[:] = theta
    for shard, lights in sampler._lights:
        lights.draw(theta, sampler.settings.seed, sampler.cycles, sampler.chain + PLACED, shard)


def history(sampler, starts, n_cycles: int):
    """Concatenated traces of n_cycles from each of these theta; streams differ, since the cycle number increases.

    Includes n_bright_before, the number of bright rows at the start of each cycle.
    """
    reported = []
    for theta in starts:
        place(sampler, theta)
        first = sampler._count()
        reported.append(advance(sampler, n_cycles))
        if reported[-1] is not None:
            reported[-1]["n_bright_before"] = np.append(first, reported[-1]["n_bright"][:-1])
    return (
        None
        if reported[-1] is None
        else {name: np.concatenate([one[name] for one in reported]) for name in reported[-1]}
    )


def verdict(
    comm, posterior: Posterior, n_shards: int, seed: int, n: tuple[int, int], level: float, misread=lambda case: case,
    **settings,
):  # fmt: skip
    """Compare n = (replicates, cycles) from exact starts, after one adaptive burn-in, with the quadrature.

    misread: the regression given to the program in place of the case. Returns a Verdict on root, None elsewhere.
    """
    sampler = chain(comm, misread(posterior.case), n_shards, seed, **settings)
    sampler.start()
    sampler.advance(sampler.settings.burn_in)
    starts = posterior.draw(n[0], np.random.Generator(np.random.Philox(seed)))
    return judged(posterior, sampler, history(sampler, starts, n[1]), n[0], level)


def verdict_of_long_chain(
    comm, posterior: Posterior, n_shards: int, seed: int, n_cycles: int, level: float, **settings
):
    """Verdict on one chain from the program's own start."""
    sampler = chain(comm, posterior.case, n_shards, seed, **settings)
    sampler.start()
    sampler.advance(sampler.settings.burn_in)
    return judged(posterior, sampler, advance(sampler, n_cycles), BATCHES, level)


def judged(posterior: Posterior, sampler, draws, batches: int, level: float):
    s = sampler.settings
    q = None if s.q == "auto" else s.q
    return None if draws is None else judge(posterior, draws, batches, s.bounds, sampler.mode, s.xi, q, level)


def digest(comm, case: Case, n_shards: int, seed: int, cycles: int, burn_in: int = 8, **settings) -> str | None:
    """sha256 of a chain's trace from its first cycle on, on root."""
    sampler = chain(comm, case, n_shards, seed, burn_in=burn_in, **settings)
    sampler.start()
    reported = sampler.advance(cycles)
    if reported is None:
        return None
    total = hashlib.sha256()
    for name in sorted(reported):
        total.update(name.encode() + np.ascontiguousarray(reported[name]).tobytes())
    return total.hexdigest()
