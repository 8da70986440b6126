"""Summaries of chains in the reports of all likelihoods: the best chain, each chain's course, and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.svi import keys

RISING = 1e-6  # relative gain of the bound over the last tenth of a chain's cycles above which it has not converged
LITTLE = 1e-3  # relative gain of a held-out measure that counts as none
OFTEN = 0.01  # share of the parts of steps held back by the guard that is worth a warning


@dataclass(frozen=True)
class ChainSummary:
    """A chain and its last kept state, of cycle `kept`. still_after: cycle after which the bound stopped rising; None
    if it still rises. gain: relative, over the last tenth of its cycles. guarded: share of the parts of a step in which
    the guard held noise back. Likelihoods extend it."""

    name: str
    cycles: int
    seconds: float
    kept: int
    bound: float
    still_after: int | None
    gain: float
    guarded: float


class OfChains:
    """Base of a summary with a `run`, a line for each of its `chains`, and the `best` of their last kept states."""

    run: Any
    best: Any
    chains: list[Any]

    @property
    def best_chain(self) -> Any:
        return next(c for c in self.chains if c.name == self.run.chains[self.best.chain].name)


def last_and_best(run: Any) -> tuple[list[Any], Any]:
    """Return the last kept state of each chain, and the one with the highest bound. Raises ConfigError if there are
    none."""
    run.read_traces()
    run.require_draws()
    last = run.last()
    return last, max(last, key=lambda kept: kept.bound)


def line(chain: Chain, kept: Any, parts: int) -> dict[str, Any]:
    """Fields of a `ChainSummary`. parts: number of parts of a step."""
    t = chain.trace
    still, gain = _course(t)
    return {
        "name": chain.name, "cycles": int(t["cycle"][-1]), "seconds": float(chain.seconds[-1]), "kept": kept.cycle,
        "bound": kept.bound, "still_after": still, "gain": gain, "guarded": float(t["guarded"].mean() / parts),
    }  # fmt: skip


def _course(t: Mapping[str, np.ndarray]) -> tuple[int | None, float]:
    """Return the cycle after which the bound of a chain's trace stopped rising, None if it still rises; and its
    relative gain over the last tenth of the cycles."""
    known = np.isfinite(t["bound"])
    cycle, bound = t["cycle"][known], t["bound"][known]
    moved = np.flatnonzero(np.diff(bound)) if len(bound) > 1 else np.zeros(0, np.int64)
    last_move = int(cycle[moved[-1] + 1]) if len(moved) else int(cycle[0]) if len(cycle) else 0
    still = last_move if len(cycle) and last_move < cycle[-1] else None
    early = bound[cycle <= 0.9 * cycle[-1]] if len(cycle) else bound
    gain = float((bound[-1] - early[-1]) / max(1.0, abs(bound[-1]))) if len(early) else np.nan
    return still, gain


def last_score(chain: Chain, name: str) -> float:
    """Last value of a held-out measure; NaN if it has none."""
    scores = chain.trace[name][np.isfinite(chain.trace[name])]
    return float(scores[-1]) if len(scores) else np.nan


def step_warnings(best: Any, n_chains: int, step: keys.Step, better: float = np.nan) -> list[str]:
    """Warnings about the best chain and the search for it, for any likelihood. better: relative improvement of the
    held-out measure in the last tenth of the cycles; NaN without held-out rows."""
    warnings = []
    if best.gain > RISING:
        advice, last = "raise run.cycles", "in the last tenth of its cycles"
        if better <= LITTLE:
            advice = "held-out rows gained nothing by then, so that more cycles (run.cycles) are for the bound alone"
        warnings.append(f"the bound of the best chain still rose, by {best.gain:.1g} of it {last}: {advice}")
    if n_chains == 1:
        warnings.append(
            "one chain: others may end with a higher bound; set run.chains = 10 or so, and the best one is taken"
        )
    if step.noise == "svi+" and best.guarded > OFTEN:
        warnings.append(
            f"the guard held noise back in {best.guarded:.0%} of the parts of all steps: that noise is smaller than "
            "was asked for, and its mean is no longer 0; raise step.effective, or lower step.rate"
        )
    return warnings
