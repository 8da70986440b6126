"""Settling of chains: one criterion, for the run that continues until it has settled and for the report.

It examines the second half of the chains' traces, without burn-in and growth:

* *clusters* (as a family names them, `Scalar.judged`) have settled if each of their quantities has a rank-normalised
  split R-hat of at most MOST_R_HAT and a bulk ESS of at least LEAST_ESS over all chains;
* *scores* of held-out rows have settled if the chains' means differ by at most APART nats per row, and the mean of the
  last quarter of the trace exceeds that of the quarter before by at most RISE, or two standard errors.

Both must hold at two consecutive checks, the second on a trace longer by a fourth, and for several chains: a single
stuck chain looks settled. Checks are after 100, 125, 157, ... cycles: they depend only on the traces, so that a run
that was stopped and continued ends in the same cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.convergence import bulk_ess, effective, r_hat
from mpibayes.hpc.scalar import ACTIVE_ROWS, SCORES, Scalar

MOST_R_HAT, LEAST_ESS = 1.05, 100.0
APART, RISE = 0.05, 0.01  # nats per held-out row
FIRST = 100  # cycles at the first check
BURN_IN = 100  # cycles always left out by a run until settled; it judges, and shows, the second half of the rest
SMALL = 250_000  # cells of the training rows (rows x columns): run.until = "auto" judges a table up to this size

TOO_FEW = "too few draws to judge"
ONE_CHAIN = "one chain alone cannot show it"
Trace = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Judgement:
    """Judgement of the traces up to a cycle. problems: by quantity judged, the reasons against it; () if it has
    settled. after: by quantity that has settled, the cycles at the first check since which it has. rise: of the scores
    in the draws judged, in nats per row, if it exceeds its noise."""

    cycle: int
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)
    rise: float = 0.0

    @property
    def settled(self) -> bool:
        """True if every quantity judged has settled."""
        return bool(self.problems) and not any(self.problems.values())

    @property
    def known(self) -> bool:
        """True if there were enough draws to judge anything."""
        return any(why != (TOO_FEW,) for why in self.problems.values())

    def has(self, what: str) -> bool:
        """True if this quantity was judged and has settled."""
        return what in self.after

    @property
    def level(self) -> bool:
        """True if the scores of a single chain rise by at most APART nats per row: they can be used as they are."""
        return ONE_CHAIN in self.problems.get(SCORES, ()) and self.rise <= APART

    def __str__(self) -> str:
        parts = [f"{what} settled after {n:,} cycles" for what, n in self.after.items()]
        parts += [f"{what} have not settled: {', '.join(why)}" for what, why in self.problems.items() if why]
        return "; ".join(parts)

    @property
    def meaning(self) -> str:
        """State what can be trusted if one part has settled and another has not; else ""."""
        clusters = next((what for what in self.problems if what != SCORES), "")
        if self.has(SCORES) and self.problems[clusters]:
            return f"Predictions can be trusted, single {clusters} cannot."
        if self.has(clusters) and self.problems.get(SCORES):
            return f"The {clusters} can be trusted, predictions not yet."
        return ""


def next_check(cycle: int) -> int:
    """Cycle of the first check after a cycle."""
    return next(check for check in _checks() if check > cycle)


def is_check(cycle: int) -> bool:
    """True if a run until settled is judged after this cycle."""
    return cycle == next_check(cycle - 1)


def judge(traces: Sequence[Trace], scalars: Sequence[Scalar], n_rows: int, cycle: int, burn_in: int = 0) -> Judgement:
    """Judge chains by their traces up to a cycle. n_rows: training rows, all of which must be active.

    Quantities absent from the traces, such as scores without held-out rows, are not judged.
    """
    checks = [check for check in _checks(cycle) if 5 * check <= 4 * cycle]
    now = _problems(traces, scalars, n_rows, cycle, burn_in)
    problems, after = dict(now), {}
    settled = {what for what, why in now.items() if not why}  # quantities that have settled at every check so far
    later = cycle
    for i, check in enumerate(reversed(checks)):
        if not settled:
            break
        only = [s for s in scalars if s.judged in settled]
        before = _problems(traces, only, n_rows, check, burn_in)
        for what in sorted(settled):
            if before.get(what) == ():
                after[what] = later
                continue
            settled.remove(what)
            if i == 0:
                problems[what] = ("they passed the last check, but not the one before",)
        later = check
    problems |= {what: (TOO_FEW,) for what in settled if what not in after}
    scores = [_second_half(traces, s.name, n_rows, cycle, burn_in) for s in scalars if s.judged == SCORES]
    rise = max((_rise(x) for x in scores if x is not None and x.shape[1] >= 8), default=0.0)
    return Judgement(cycle, problems, {what: after[what] for what in problems if what in after}, rise)


def _checks(last: int | None = None) -> Iterator[int]:
    """Yield the cycles of all checks, up to the last."""
    check = FIRST
    while last is None or check <= last:
        yield check
        check = -(-5 * check // 4)


def _problems(
    traces: Sequence[Trace], scalars: Sequence[Scalar], n_rows: int, cycle: int, burn_in: int
) -> dict[str, tuple[str, ...]]:
    problems: dict[str, tuple[str, ...]] = {}
    for what in dict.fromkeys(s.judged for s in scalars if s.judged):
        draws = {
            s.title.lower(): _second_half(traces, s.name, n_rows, cycle, burn_in) for s in scalars if s.judged == what
        }
        there = {title: x for title, x in draws.items() if x is not None}
        if not there:
            continue
        x = next(iter(there.values()))
        if x.size < LEAST_ESS or x.shape[1] < 8:
            problems[what] = (TOO_FEW,)
        elif what == SCORES:
            problems[what] = tuple(line for x in there.values() for line in _unlike(x))
        else:
            problems[what] = tuple(_unmixed(there))
        if len(traces) == 1 and problems[what] != (TOO_FEW,):
            problems[what] += (ONE_CHAIN,)
    return problems


def _second_half(traces: Sequence[Trace], name: str, n_rows: int, cycle: int, burn_in: int) -> np.ndarray | None:
    """Draws of a quantity, (chains, draws), the last of each chain; None if it was never computed."""
    if not all(name in t and np.isfinite(t[name]).any() for t in traces):
        return None
    start, chains = max(cycle // 2, burn_in), []
    for t in traces:
        keep = (t["cycle"] > start) & (t["cycle"] <= cycle) & np.isfinite(t[name])
        if ACTIVE_ROWS in t:
            keep &= t[ACTIVE_ROWS] >= n_rows
        chains.append(t[name][keep])
    n = min(map(len, chains))
    return np.stack([x[len(x) - n :] for x in chains])


def _unmixed(draws: Mapping[str, np.ndarray]) -> list[str]:
    """Describe the worst R-hat, if one is too large, else the worst ESS, if one is too small."""
    worst, title = max((r_hat(x), title) for title, x in draws.items())
    if worst > MOST_R_HAT:
        return [_apart(title, draws[title], worst)]
    worst, title = min((bulk_ess(x), title) for title, x in draws.items())
    return [f"{worst:.0f} effective draws of the {title}"] if worst < LEAST_ESS else []


def _apart(title: str, x: np.ndarray, worst: float) -> str:
    """Describe an R-hat that is too large; if it is extreme because chains hardly move, describe their values."""
    if worst < 100.0:
        return f"R-hat {worst:.3f} of the {title}"
    if len(x) > 1 and not np.ptp(x, axis=1).any():
        values = [f"{value:,g}" for value in dict.fromkeys(x[:, 0].tolist())]
        named = f"{', '.join(values[:-1])} or {values[-1]}" if len(values) <= 4 else f"{values[0]}, {values[1]}, ..."
        return f"the {title} never changes within a chain, but is {named} in different chains"
    if len(x) == 1:
        return f"the {title} has jumped, and hardly changes otherwise"
    return f"the {title} hardly changes within a chain, but differs between chains"


def _unlike(x: np.ndarray) -> list[str]:
    problems, means = [], x.mean(axis=1)
    if (apart := float(np.ptp(means))) > APART:
        problems.append(f"chains differ by {apart:.3f} nats a row")
    if (rise := _rise(x)) > RISE:
        problems.append(f"still rising by {rise:.3f} nats a row")
    return problems


def _rise(x: np.ndarray) -> float:
    """Return how much scores rise between the halves of the draws, (chains, draws); 0.0 if that may be noise."""
    halves = np.array_split(x, 2, axis=1)
    noise = 2.0 * np.sqrt(sum(half.var(axis=1).mean() / effective(half) for half in halves))
    rise = float(halves[1].mean() - halves[0].mean())
    return rise if rise > noise else 0.0
