"""Summary behind the report of a regression: computed from the traces, and from the rows."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from mpibayes.errors import DataError, NumericalError
from mpibayes.hpc.posterior.scalars import ScalarSummary, summary_of
from mpibayes.hpc.regression.draws import Posterior
from mpibayes.hpc.regression.law import Average
from mpibayes.hpc.regression.report import mixing
from mpibayes.hpc.regression.report.coefficients import Summary, centred, in_original_units, summarise
from mpibayes.hpc.regression.report.importance_check import ImportanceCheck, affordable, importance_check
from mpibayes.hpc.regression.report.mixing import ChainSummary, Efficiency
from mpibayes.hpc.regression.report.scoring import Scores, score
from mpibayes.hpc.regression.scalars import SCALARS

SCORED = 200  # most draws that score held-out rows


@dataclass
class RunSummary:
    """Everything that a report shows. theta: summary of the coefficients as sampled, (K, D) flattened. shown: the one
    they are judged by, the same except for softmax, where the mean over classes is subtracted. original: this in the
    table's units, None if that is the same."""

    run: Posterior
    n_rows: int
    chains: list[ChainSummary]
    scalars: dict[str, ScalarSummary]
    theta: Summary
    shown: Summary
    original: Summary | None
    efficiency: Efficiency
    scores: Scores | None = None
    importance: ImportanceCheck | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of the coefficients, (K, D) flattened."""
        design = self.run.design
        if design.n_classes == 1:
            return design.names
        return [f"{label}: {name}" for label in design.classes for name in design.names]

    @property
    def odds(self) -> bool:
        """True if the exponential of a coefficient is an odds ratio."""
        return self.run.design.likelihood.odds


def summarise_run(run: Posterior) -> RunSummary:
    """Compute everything that the report shows, from the traces and a pass or two over the rows."""
    run.read_traces()
    run.require_draws()
    draws, design = run.coefficients(), run.design
    theta = summarise([d.reshape(len(d), -1) for d in draws], judged=design.n_classes == 1)
    shown, original = theta, None
    if design.n_classes > 1:
        shown = summarise([centred(d).reshape(len(d), -1) for d in draws])
    if design.standardised_response or (design.standardise and any(t.numeric for t in design.terms)):
        plain = [in_original_units(centred(d), design).reshape(len(d), -1) for d in draws]
        original = summarise(plain, judged=False)
    later = [c.later() for c in run.chains]
    scalars = {s.name: summary_of([t[s.name] for t in later]) for s in SCALARS if s.label}
    chains = [mixing.summarise_chain(c) for c in run.chains]
    posterior = RunSummary(
        run, run.n_rows, chains, {k: s for k, s in scalars.items() if s.n_draws}, theta, shown, original,
        mixing.efficiency(chains, shown),
    )  # fmt: skip
    _look_at_rows(posterior)
    posterior.warnings[:0] = mixing.warnings(
        run.chains, chains, shown, posterior.names, posterior.scalars, posterior.n_rows
    )
    adapting = [c for c in run.chains if c.burn_in < min(c.config.burn_in, c.trace["cycle"][-1])]
    if adapting:
        posterior.warnings.append(
            f"--burn-in leaves draws in that were made while step sizes were adapted, up to cycle "
            f"{max(c.config.burn_in for c in adapting):,}: they are not exact draws of the posterior"
        )
    _score(posterior)
    return posterior


def _look_at_rows(p: RunSummary) -> None:
    """Count the training rows, and check the chains by importance sampling if that is affordable."""
    run, design = p.run, p.run.design
    n_draws = affordable(run.n_rows, design.width)
    incomplete = any(c.n_missing for c in (design.response_column, *(t.column for t in design.terms)))
    if not n_draws and not incomplete:
        return
    blocks = []
    p.n_rows = 0
    for built in run.blocks():
        p.n_rows += len(built.x)
        if n_draws:
            blocks.append((built.x, built.y))
    if not blocks or not np.isfinite(p.shown.ess_bulk).all():
        return
    try:
        p.importance = importance_check(blocks, run.likelihood, run.prior, p.shown, n_draws)
    except NumericalError as error:
        p.warnings.append(f"no check by Laplace importance sampling: {error}")
    if p.importance is not None and p.importance.trusted and not p.importance.agrees:
        o = p.importance
        what, at, gap = max(("mean", o.mean_at, o.mean_gap), ("sd", o.sd_at, o.sd_gap), key=lambda w: w[2])
        p.warnings.append(
            f"Laplace importance sampling finds another posterior: the {what} of {p.names[at]} differs by {gap:.1f} "
            f"standard errors (sound chains exceed {o.by_chance:.1f} once in 1,000 reports). The chain is too short, "
            "or something is wrong"
        )


def _score(p: RunSummary) -> None:
    run = p.run
    config = run.chains[0].config
    if config.heldout_path is not None and not os.path.exists(config.heldout_path):
        p.warnings.append(f"{config.heldout_path}: the held-out rows are gone, so nothing is scored")
        return
    average = Average.of(run.draws(SCORED))
    mean = p.theta.mean.reshape(run.design.n_classes, -1)
    try:
        p.scores = score(run.heldout_blocks(), average, mean, run.design)
    except DataError as error:
        p.warnings.append(f"the held-out rows cannot be scored: {error}")
