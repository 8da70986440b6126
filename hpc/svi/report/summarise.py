"""All that the report of variational inference shows: computed from the traces and the kept states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.svi import keys
from mpibayes.hpc.svi.draws import Kept, Posterior
from mpibayes.hpc.svi.exports import assigned
from mpibayes.hpc.svi.predictive import Law

RISING = 1e-6  # relative gain of the bound over the last tenth of a chain's cycles above which it is not at its end
LITTLE = 1e-3  # relative gain of a held-out measure that is none
OFTEN = 0.01  # share of the parts of steps that the guard held back


@dataclass(frozen=True)
class ComponentLine:
    """A component of the best state, numbered from 1, the heaviest first. rows: of which it is the most probable one.
    sure: how probable it is for these, on average. mean, sd (D,), correlation (D, D): of its density, in the table's
    units; sd is NaN where it has none."""

    number: int
    weight: float
    rows: int
    sure: float
    mean: np.ndarray
    sd: np.ndarray
    correlation: np.ndarray


@dataclass(frozen=True)
class ChainSummary:
    """A chain and its last kept state. still_after: the cycle after which the bound gained nothing; None where it went
    on. gain: relative, over the last tenth of its cycles. guarded: share of the parts that noise was held back in."""

    name: str
    cycles: int
    seconds: float
    kept: int
    bound: float
    in_use: int
    still_after: int | None
    gain: float
    guarded: float
    heldout: float


@dataclass
class RunSummary:
    """All that a report shows. labels: of each training row its most probable component, from 0, int64 (N,)."""

    run: Posterior
    best: Kept
    law: Law
    chains: list[ChainSummary]
    components: list[ComponentLine]
    labels: np.ndarray
    warnings: list[str] = field(default_factory=list)

    @property
    def best_chain(self) -> ChainSummary:
        return next(c for c in self.chains if c.name == self.run.chains[self.best.chain].name)


def summarise(run: Posterior) -> RunSummary:
    """Everything the report shows."""
    run.read_traces()
    run.require_draws()
    last = run.last()
    best = max(last, key=lambda kept: kept.bound)
    law = best.law()
    labels, probability = assigned(run, law)
    rows = np.bincount(labels, minlength=len(law.weight))
    sure = np.bincount(labels, probability, minlength=len(law.weight)) / np.maximum(rows, 1)
    components = [_component(run, law, k, int(rows[k]), float(sure[k])) for k in range(len(law.weight))]
    found = RunSummary(run, best, law, [_chain(run, kept) for kept in last], components, labels)
    found.warnings = step_warnings(found.best_chain, len(last), run.config.of(keys.Step))
    return found


def _component(run: Posterior, law: Law, k: int, rows: int, sure: float) -> ComponentLine:
    nu, cells = law.degrees[k], run.cells
    covariance = law.scale[k] * (nu / (nu - 2.0) if nu > 2.0 else np.nan) * np.outer(cells.scale, cells.scale)
    scale = np.sqrt(np.diag(law.scale[k]))
    mean = law.mean[k] * cells.scale + cells.center
    correlation = law.scale[k] / np.outer(scale, scale)
    return ComponentLine(k + 1, float(law.weight[k]), rows, sure, mean, np.sqrt(np.diag(covariance)), correlation)


def course(t: Mapping[str, np.ndarray]) -> tuple[int | None, float]:
    """Of a chain's trace the cycle after which the bound gained nothing, None where it went on; and its relative gain
    over the last tenth of the cycles."""
    known = np.isfinite(t["bound"])
    cycle, bound = t["cycle"][known], t["bound"][known]
    moved = np.flatnonzero(np.diff(bound)) if len(bound) > 1 else np.zeros(0, np.int64)
    last_move = int(cycle[moved[-1] + 1]) if len(moved) else int(cycle[0]) if len(cycle) else 0
    still = last_move if len(cycle) and last_move < cycle[-1] else None
    early = bound[cycle <= 0.9 * cycle[-1]] if len(cycle) else bound
    gain = float((bound[-1] - early[-1]) / max(1.0, abs(bound[-1]))) if len(early) else np.nan
    return still, gain


def _chain(run: Posterior, kept: Kept) -> ChainSummary:
    chain: Chain = run.chains[kept.chain]
    t = chain.trace
    still, gain = course(t)
    parts = 3 * run.model.n_components
    scores = t["heldout_lpd"][np.isfinite(t["heldout_lpd"])]
    return ChainSummary(
        chain.name, int(t["cycle"][-1]), float(chain.seconds[-1]), kept.cycle, kept.bound,
        int((run.model.weight(kept.q) >= 1.0).sum()), still, gain, float(t["guarded"].mean() / parts),
        float(scores[-1]) if len(scores) else np.nan,
    )  # fmt: skip


def step_warnings(best: Any, n_chains: int, step: keys.Step, better: float = np.nan) -> list[str]:
    """What to say of the best chain and of how it was found, whatever the likelihood. better: by which part of itself
    the measure of held-out rows improved in the last tenth of the cycles, NaN: there is none."""
    found = []
    if best.gain > RISING:
        advice, last = "raise run.cycles", "in the last tenth of its cycles"
        if better <= LITTLE:
            advice = "held-out rows gained nothing by then, so that more cycles (run.cycles) are for the bound alone"
        found.append(f"the bound of the best chain still rose, by {best.gain:.1g} of it {last}: {advice}")
    if n_chains == 1:
        found.append(
            "one chain: others may end with a higher bound; set run.chains = 10 or so, and the best one is taken"
        )
    if step.noise == "svi+" and best.guarded > OFTEN:
        found.append(
            f"the guard held noise back in {best.guarded:.0%} of the parts of all steps: that noise is smaller than "
            "was asked for, and its mean is no longer 0; raise step.effective, or lower step.rate"
        )
    return found
