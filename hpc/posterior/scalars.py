"""Summaries of scalars over all chains after burn-in: moments, effective sample size, R-hat, and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from mpibayes.hpc import convergence
from mpibayes.hpc.convergence import bulk_ess

ENOUGH_ESS = 100.0
ENOUGH_R_HAT = 1.01
MOST_R_HAT = 100.0  # chains stuck in different places have no finite R-hat
ENOUGH_DRAWS = 10  # fewer kept draws make a poor summary


@dataclass(frozen=True)
class ScalarSummary:
    """Summary of one quantity over all chains after burn-in. ess and r_hat are NaN if undefined (`fixed`, few draws);
    r_hat is at most MOST_R_HAT."""

    mean: float
    sd: float
    low: float  # 5 %
    high: float  # 95 %
    ess: float
    r_hat: float
    fixed: bool
    n_draws: int


def summary_of(chains: Sequence[np.ndarray]) -> ScalarSummary:
    """Summarize one quantity; `chains` are the draws of each chain after burn-in, NaN where not computed.

    R-hat compares the chains, or the two halves of a single one. Chains of different lengths are cut to their last
    draws.
    """
    chains = [c[np.isfinite(c)] for c in chains]
    draws = np.concatenate(chains)
    if not len(draws):
        return ScalarSummary(*(np.nan,) * 6, fixed=False, n_draws=0)
    fixed = bool(np.all(draws == draws[0]))
    ess = r_hat = np.nan
    n = min(len(c) for c in chains)
    if not fixed and n >= 8:
        together = np.stack([c[len(c) - n :] for c in chains])
        halves = together if len(together) > 1 else together[:, n % 2 :].reshape(2, -1)
        ess, r_hat = bulk_ess(together), min(convergence.r_hat(halves), MOST_R_HAT)
    low, high = np.quantile(draws, (0.05, 0.95))
    sd = 0.0 if fixed else float(draws.std(ddof=1)) if len(draws) > 1 else np.nan
    ess = min(ess, len(draws))  # the estimate from few draws may exceed their number
    return ScalarSummary(float(draws.mean()), sd, float(low), float(high), ess, r_hat, fixed, len(draws))


def quiet_arviz() -> ModuleType:
    """Import ArviZ without the FutureWarning it prints on import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz


def mixing_warnings(
    scalars: Mapping[str, ScalarSummary], n_chains: int = 1, most_r_hat: float = ENOUGH_R_HAT
) -> list[str]:
    """Warnings about the mixing of named quantities: one line per kind of trouble."""
    moving = {name: s for name, s in scalars.items() if not s.fixed}
    unknown = [name for name, s in moving.items() if not np.isfinite(s.ess)]
    short = [f"{name} {s.ess:.0f}" for name, s in moving.items() if s.ess < ENOUGH_ESS]
    apart = [f"{name} {r_hat_in_words(s.r_hat)}" for name, s in moving.items() if s.r_hat > most_r_hat]
    warnings = []
    if unknown:
        warnings.append(f"too few draws after burn-in to judge {', '.join(unknown)}")
    if short:
        warnings.append(f"fewer than {ENOUGH_ESS:.0f} effective draws (ESS): {', '.join(short)}")
    if apart:
        still = any(s.r_hat >= MOST_R_HAT for s in moving.values())
        means = f" (> {MOST_R_HAT:.0f}: hardly changes within a chain, but differs between chains)" if still else ""
        warnings.append(f"R-hat above {most_r_hat}: {', '.join(apart)}{means}")
    if warnings:
        disagree = n_chains > 1 and apart  # then more cycles may not help: the report says what may
        why, then = (", or its chains disagree", " and chains.png") if disagree else ("", "; raise run.cycles")
        warnings.append(f"the figures are rough: the run is too short{why}. Look at trace.png{then}")
    return warnings


def r_hat_in_words(x: float, digits: int = 3) -> str:
    """Format R-hat: 1.003, or > 100; "-" if it is undefined."""
    return f"> {MOST_R_HAT:.0f}" if x >= MOST_R_HAT else f"{x:.{digits}f}" if np.isfinite(x) else "-"
