"""Mixing of a regression's chains: measures and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.posterior.scalars import ENOUGH_ESS, ENOUGH_R_HAT, ScalarSummary, r_hat_in_words, summary_of
from mpibayes.hpc.regression.keys import Firefly
from mpibayes.hpc.regression.report.coefficients import Summary
from mpibayes.hpc.regression.scalars import SCALARS
from mpibayes.hpc.scalar import named
from mpibayes.text import counted, percent

APART = 1.1  # R-hat beyond which chains of one posterior disagree
# Mean acceptance outside of which an update wastes work; slice sampling always accepts.
ACCEPTANCE = {"hmc": (0.4, 0.98), "mala": (0.3, 0.9), "random-walk": (0.08, 0.6)}
BRIGHT = 0.3  # share of bright rows beyond which skipping the others hardly pays
NAMED = 3  # most coefficients named in a warning


@dataclass(frozen=True)
class ChainSummary:
    """Summary of one chain after burn-in; cycles and seconds cover the whole chain. queries: likelihood evaluations per
    cycle, for theta and for z."""

    name: str
    cycles: int
    burn_in: int
    kept_cycles: int
    seconds: float
    kept_seconds: float
    scalars: dict[str, ScalarSummary]
    queries_theta: float
    queries_z: float

    @property
    def queries(self) -> float:
        return self.queries_theta + self.queries_z


def summarise_chain(chain: Chain) -> ChainSummary:
    """Summarise a chain whose trace was read."""
    thin = chain.config.output.thin  # a line of the trace has the queries of this many cycles
    cycles, later = int(chain.trace["cycle"][-1]), chain.later()
    seconds = chain.seconds
    before = seconds[chain.trace["cycle"] <= chain.burn_in]
    return ChainSummary(
        chain.name, cycles, chain.burn_in, cycles - chain.burn_in, float(seconds[-1]),
        float(seconds[-1] - (before[-1] if len(before) else 0.0)),
        {s.name: summary for s in SCALARS if s.label and (summary := summary_of([later[s.name]])).n_draws},
        float(later["queries_theta"].mean()) / thin, float(later["queries_z"].mean()) / thin,
    )  # fmt: skip


@dataclass(frozen=True)
class Efficiency:
    """Least and median bulk ESS of the coefficients over all chains, and their cost after burn-in."""

    least: float
    median: float
    cycles: int
    seconds: float
    queries: float

    def per(self, cost: float) -> tuple[float, float]:
        return (self.least / cost, self.median / cost) if cost > 0 else (np.nan, np.nan)


def contradicted(n_chains: int, r_hat: np.ndarray) -> bool:
    """True if the R-hat of any coefficient shows that chains disagree; NaN where there is none."""
    return n_chains > 1 and bool(np.isfinite(r_hat).any()) and float(np.nanmax(r_hat)) > APART


def efficiency(summaries: Sequence[ChainSummary], theta: Summary) -> Efficiency:
    known = theta.ess_bulk[np.isfinite(theta.ess_bulk)]
    least, median = (float(known.min()), float(np.median(known))) if len(known) else (np.nan, np.nan)
    return Efficiency(
        least, median, sum(c.kept_cycles for c in summaries), sum(c.kept_seconds for c in summaries),
        sum(c.kept_cycles * c.queries for c in summaries),
    )  # fmt: skip


def warnings(
    chains: Sequence[Chain],
    summaries: Sequence[ChainSummary],
    theta: Summary,
    names: Sequence[str],
    scalars: dict[str, ScalarSummary],
    n_rows: int,
) -> list[str]:
    """Warnings about mixing. theta: summary of all coefficients as sampled, (P,); names: theirs. scalars: of all chains
    together."""
    lines = _mixing(theta, names, scalars, summaries)
    firefly = chains[0].config.of(Firefly)
    low, high = ACCEPTANCE.get(firefly.theta_update, (0.0, np.inf))
    for c in summaries:
        rate = c.scalars["acceptance_rate"].mean if "acceptance_rate" in c.scalars else np.nan
        where = f"{c.name}: " if len(summaries) > 1 else ""
        if rate < low:
            lines.append(
                f"{where}{firefly.theta_update} accepts {percent(rate)} of its proposals: its steps are too "
                "long. A longer burn-in adapts them better (run.burn_in), or set firefly.step_size"
            )
        elif rate > high:
            lines.append(
                f"{where}{firefly.theta_update} accepts {percent(rate)} of its proposals: its steps are shorter"
                " than they need be. Raise run.burn_in, in which they are adapted, or firefly.step_size"
            )
    for name, c in ((f"{c.name}: " if len(summaries) > 1 else "", c) for c in summaries):
        if firefly.bounds != "none" and "n_bright" in c.scalars and c.scalars["n_bright"].mean > BRIGHT * n_rows:
            share = percent(c.scalars["n_bright"].mean / n_rows)
            tuned = 'firefly.bounds = "tuned" leaves fewer, ' if firefly.bounds == "untuned" else ""
            lines.append(
                f"{name}{share} of the rows are bright on average, so little is saved by leaving the others dark: "
                f'{tuned}firefly.bounds = "none" may be faster'
            )
    return lines


def _mixing(
    theta: Summary, names: Sequence[str], scalars: dict[str, ScalarSummary], summaries: Sequence[ChainSummary]
) -> list[str]:
    lines, several = [], len(summaries) > 1
    if not np.isfinite(theta.ess_bulk).any():
        lines.append("too few draws after burn-in to judge the coefficients")
    stuck = np.flatnonzero(theta.sd == 0)
    if len(stuck):
        lines.append(f"{_coefficients(len(stuck))} never moved: {_some(stuck, names)}")
    for kind, ess in (("bulk", theta.ess_bulk), ("tail", theta.ess_tail)):
        short = np.flatnonzero(ess < ENOUGH_ESS)
        if len(short):
            worst = short[np.argsort(ess[short], kind="stable")]
            values = _some(worst, names, [f"{ess[j]:.0f}" for j in worst])
            lines.append(
                f"fewer than {ENOUGH_ESS:.0f} effective draws (ESS, {kind}) of {_coefficients(len(short))}: {values}"
            )
    apart = np.flatnonzero(theta.r_hat > ENOUGH_R_HAT)
    if len(apart):
        worst = apart[np.argsort(-theta.r_hat[apart], kind="stable")]
        values = _some(worst, names, [r_hat_in_words(theta.r_hat[j], 2) for j in worst])
        lines.append(f"R-hat above {ENOUGH_R_HAT} of {_coefficients(len(apart))}: {values}")
    level = scalars.get("lp")  # known in every cycle, unlike log_posterior
    if level is not None and not len(apart) and level.r_hat > ENOUGH_R_HAT:
        lines.append(f"R-hat of {named(SCALARS)['lp'].label} is {r_hat_in_words(level.r_hat, 2)}")
    if several and len(apart) and np.nanmax(theta.r_hat) > APART:
        key = "log_posterior" if all("log_posterior" in c.scalars for c in summaries) else "lp"
        best = max(summaries, key=lambda c: c.scalars[key].mean)
        lines.append(
            "the chains disagree: averages over them mean little. Either they are too short, or the posterior has "
            f"several modes; the highest log posterior is that of {best.name}"
        )
    if lines:
        lines.append("the figures are rough: the run is too short. Look at trace.png and mixing.png; raise run.cycles")
    return lines


def _coefficients(n: int) -> str:
    return counted(n, "coefficient")


def _some(places: np.ndarray, names: Sequence[str], values: Sequence[str] | None = None) -> str:
    words = [names[j] + (f" ({values[i]})" if values else "") for i, j in enumerate(places[:NAMED])]
    return ", ".join(words) + (", ..." if len(places) > NAMED else "")
