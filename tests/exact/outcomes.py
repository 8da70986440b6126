"""Tiny tables with an outcome: exact posteriors by quadrature over coefficients and enumeration of partitions.

`CASES` have their exact targets in `outcome_targets.json` beside this file: the probability of every partition in
restricted-growth form, and moments of beta and of the linear predictor eta of each row.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.outcome import outcome as program
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.baseline import Baseline
from mpibayes.hpc.outcome.fireflies import Fireflies
from mpibayes.hpc.outcome.law import Law
from mpibayes.hpc.outcome.likelihoods import LIKELIHOODS
from mpibayes.hpc.outcome.outcome import Outcome
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.kernels.mixture import response
from tests.exact import production
from tests.exact.enumerate import Case

TARGETS = json.loads((Path(__file__).parent / "outcome_targets.json").read_text(encoding="utf-8"))
NAMES = {name: name for name in ("logistic", "normal", "poisson", "softmax", "survival")} | {"t": "student-t"}


def case_of(name: str) -> Case:
    """Columns of a target's table, with their priors."""
    of = TARGETS[name]["case"]
    levels = [f"l{i}" for i in range(len(of["dir"]))]
    columns, priors = [("x", "categorical", tuple(of["x"]), levels)], {"x": {"dirichlet": tuple(of["dir"])}}
    if "surv" in of:
        columns.append(("t", "survival", tuple(t if event else -t for t, event in of["surv"]), None))
        priors["t"] = {"shape": of["gam"][0], "rate": of["gam"][1], "cuts": tuple(of["cuts"])}
    return Case(name, tuple(columns), priors, of["alpha"], of["d"])


def law_of(of: dict, n_fresh: int = 2) -> Law:
    """Law of a target's coefficients, with all its parameters."""
    mean, sd, wide = (np.array(of[key], np.float64) for key in ("mean", "sd", "sd_b"))
    nu, scale = of.get("nu", 4.0), of.get("s", 1.0)
    n_eta = of.get("levels", 2) - 1
    law = Law(LIKELIHOODS[NAMES[of["family"]]], mean, sd, wide, mean, nu, scale, n_fresh=n_fresh, n_eta=n_eta)
    if of["family"] != "survival":
        return law
    starts = np.array([0.0, *of["ends"]])
    hazards = np.full(len(starts), of["shape"] / of["rate"])
    return replace(law, baseline=Baseline(starts, 1.0, hazards, of["shape"], of["rate"]))


def answers_of(of: dict) -> Answers:
    """Outcomes of a target's rows."""
    y = np.array([np.nan if v is None else v for v in of["y"]], np.float64)
    if of["family"] == "logistic":
        y = 2.0 * y - 1.0
    times = None
    if of["family"] == "survival":
        y, times = np.where(np.isnan(y), np.nan, y >= 0.0), y
    u = np.array(of["u"], np.float64)[:, 1:].astype(np.float32)
    return Answers(y, np.ascontiguousarray(u), np.array(of["w"], np.float32), times)


def sampler(
    comm, name: str, n_shards: int, seed: int, chain: int = 0, n_fresh: int = 2, firefly: int = 0,
    reach: float = 1.5, **settings,
) -> Mixture:  # fmt: skip
    """The program's mixture of a target, with its outcome, started; only sweeps, unless `split_merge` is set.

    firefly: updates a cycle by Firefly Monte Carlo, with points of mean `reach` that do not depend on the chain; 0: by
    HMC on all rows.
    """
    of, whole = TARGETS[name]["case"], answers_of(TARGETS[name]["case"])
    mixture = production.sampler(comm, case_of(name), n_shards, seed, **settings)
    mixture.chain = chain
    mixture.view.lane = chain
    parts = [whole.take(np.arange(s.start, s.start + len(s))) for s in mixture.shards]
    law = law_of(of, n_fresh)
    mixture.outcome = Outcome(comm, mixture.shards, parts, mixture.n_shards, law, seed, chain, steps=max(1, firefly))
    if firefly:
        mixture.outcome.fireflies = Fireflies(mixture.outcome, 0)
        points = np.random.default_rng(len(whole.y)).exponential(reach, len(whole.y))
        mixture.outcome.fireflies.put([points[s.start : s.start + len(s)] for s in mixture.shards])
    mixture.start("prior")
    return mixture


def summaries(name: str) -> tuple[list[str], np.ndarray, list[str], np.ndarray]:
    """Names and exact values of partition probabilities, and of moments."""
    target = TARGETS[name]
    moments = {key: value for key, value in target.items() if key.startswith("E ") and "~" not in key}
    return list(target["p"]), np.array(list(target["p"].values())), list(moments), np.array(list(moments.values()))


def recorded(mixture: Mixture, z: np.ndarray, whole: Answers) -> np.ndarray:
    """b and b^2 of every global coefficient, eta and eta^2 of every row, of a softmax of each level but the first, and
    log hazards and their squares, as `summaries` orders them."""
    eta, baseline = mixture.outcome.now.eta_of(whole, z), mixture.outcome.law.baseline
    log_h = [] if baseline is None else np.log(baseline.hazards)
    pairs = [(x, x * x) for x in (*mixture.outcome.beta, *eta.ravel(), *log_h)]
    return np.array([x for pair in pairs for x in pair])


def require_same_bits(name: str, number: int) -> None:
    """Require that the chain on all ranks is that of one. number: its seed."""
    here, alone = (sampler(comm, name, 3, number, split_merge=1) for comm in (world(), serial()))
    for _ in range(12):
        here.cycle()
        alone.cycle()
        z = here.view.labels()
        if here.comm.rank == 0:
            assert np.array_equal(z, alone.view.labels())
        assert np.array_equal(here.outcome.theta, alone.outcome.theta)
        assert np.array_equal(here.outcome.beta, alone.outcome.beta)
        assert np.array_equal(here.outcome.law.numbers, alone.outcome.law.numbers)


def require_the_target(made, name):
    """The file has what the rules give, and fewer points."""
    moments = [{k: v for k, v in of.items() if k.startswith("E ")} for of in (TARGETS[name], made)]
    for one, two in (moments, (TARGETS[name]["p"], made["p"])):
        assert one == pytest.approx(two, abs=1e-9)


@contextlib.contextmanager
def slopes_without_zeros():
    """Wrong: coefficients are drawn without the rows whose outcome is 0, of a softmax those of the reference level."""
    slopes = response.slopes

    def wrong(kind, z, y, *rest):
        return slopes(kind, z, np.where(y == 0.0, np.nan, y), *rest)

    with mock.patch.object(program.kernels, "slopes", wrong):
        yield
