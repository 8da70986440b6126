"""Cost of a chain before it starts: bright rows, likelihood evaluations per cycle, and whether Firefly pays."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.regression.cost import Cost, cost
from mpibayes.hpc.regression.design import Design
from mpibayes.hpc.regression.firefly import Firefly
from mpibayes.hpc.regression.firefly_settings import PROPOSED
from mpibayes.hpc.regression.mode.choice import Choice
from mpibayes.hpc.regression.prior import Prior
from mpibayes.text import counted

FAR = 3.0  # standard deviations of an intercept's prior
EVALUATIONS = {"mala": 2.0, "random-walk": 2.0, "slice": 10.0}  # per update of theta; hmc: leapfrog_steps + 1


def looked_at(firefly: Firefly) -> float:
    """Expected number of likelihood evaluations in a cycle."""
    s, n, bright = firefly.settings, firefly.problem.n_rows, firefly.predicted
    looks = EVALUATIONS.get(s.theta_update, s.leapfrog_steps + 1.0)
    if not firefly.firefly:
        return looks * n
    return looks * bright + (min(PROPOSED * bright, n) if s.q == "auto" else float(s.q) * n)


def expected_cost(firefly: Firefly) -> Cost:
    """Expected seconds per effective draw of hmc, by Firefly and on all rows."""
    p, m = firefly.problem, firefly.problem.likelihood
    steps = firefly.settings.leapfrog_steps
    return cost(p.n_rows, firefly.predicted, m.n_predictors, m.n_classes, steps, PROPOSED, p.n_shards)


def _far_intercepts(prior: Prior, mode: np.ndarray, standardise: bool) -> list[str]:
    """Return a warning if an intercept lies so far out in its prior that the prior pulls it."""
    with_prior = prior.intercepts & ~prior.flat
    far = float(np.max(np.abs(mode[with_prior]) / prior.scale[with_prior], initial=0.0))
    if far <= FAR:
        return []
    or_else = "" if standardise else ", or standardise = true"
    return [
        f"warning: the intercept's mode is {far:.3g} standard deviations of its prior from 0, which pulls it there: "
        f"set a larger regression.intercept_scale{or_else}"
    ]


def in_words(design: Design, firefly: Firefly, choice: Choice) -> list[str]:
    """Describe the start of a chain, for its log; on root."""
    s, p = firefly.settings, firefly.problem
    classes = f" of {len(design.classes)} classes" if design.n_classes > 1 else ""
    lines = [
        f"{design.likelihood.name} regression{classes} of {design.response}: "
        f"{counted(p.n_parameters, 'coefficient')}, {p.prior.in_words()}, {counted(p.n_rows, 'row')}",
        *choice.words,
        f"posterior mode: found in {counted(choice.fit.iterations, 'iteration')}, log posterior "
        f"{choice.fit.log_posterior:.8g}",
        *_far_intercepts(p.prior, choice.fit.theta, design.standardise),
    ]
    every = looked_at(firefly)
    if not firefly.firefly:
        return [*lines, f"no bounds: a cycle evaluates about {every:,.0f} likelihoods, all rows in every step"]
    tuned = s.bounds == "tuned"
    where = "touch at the mode" if tuned else "do not touch at the mode"
    all_rows = EVALUATIONS.get(s.theta_update, s.leapfrog_steps + 1.0) * p.n_rows
    lines.append(
        f"bounds {where}: about {firefly.predicted:,.3g} of {p.n_rows:,} rows will be bright; a cycle evaluates about "
        f"{every:,.3g} likelihoods, and without bounds at {all_rows:,.0f}"
    )
    expected = expected_cost(firefly)
    if expected.advises_full and tuned:
        lines.append(
            f"warning: expect {expected.speed_up:.2g} times the effective draws a second of hmc on all rows, which is "
            'the simpler sampler: set firefly.bounds = "none"'
        )
    elif expected.advises_full:
        lines.append(
            f"warning: expect {expected.speed_up:.2g} times the effective draws a second of hmc on all rows; set "
            'firefly.bounds = "tuned"'
        )
    elif s.theta_update == "hmc" and s.whiten:
        lines.append(f"expect about {expected.speed_up:.2g} times the effective draws a second of hmc on all rows")
    return lines
