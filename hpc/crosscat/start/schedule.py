"""Schedules of subsample annealing: how many rows are active in each cycle of the growth phase.

Obermeyer, Glidden & Jonas 2014, section 2. A cycle is one pass: it makes as many assignments as rows are active at its
end; some of these add a row, and the others replace an active row by another (docs/math.md 3.1). With u the assignments
spent so far, in passes over all rows, a schedule is a curve beta(u) that reaches 1 at u = `passes`. The next cycle, of
fraction f and cost f, ends on the curve:

    f = beta(u + f),        then u <- u + f.

For the linear schedule, beta(u) = u / T, n grows by n / T in a cycle of n assignments: f' = f T / (T - 1), geometric in
cycles and linear in assignments, about T (1 + log(N / start)) cycles in all, the first T of them at the initial size.

Pure functions; kernels/mixture/visits.pyx chooses the active rows and the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log

import numpy as np

SCHEDULES = ("linear", "geometric", "constant", "sequential")
COST_TOLERANCE = 1e-3  # relative
BISECTIONS = 40  # most bisections of the curve's time scale


def plan(
    schedule: str | Sequence[tuple[float, float]], n_rows: int, start_rows: int, passes: float = 1.0
) -> np.ndarray:
    """Return the active fraction of the rows in each cycle of the growth phase, float64, non-decreasing; only the last
    one is 1.

    The last entry is the first cycle over all rows. The cycles make passes * n_rows assignments in total, including
    every row's first; the fractions' sum is `passes`. schedule, one of
      linear      active rows in proportion to the assignments spent (the schedule analysed in the paper)
      geometric   active rows grow by a constant factor per assignment, so most cycles are short
      constant    all rows from the first cycle on: plain Gibbs, from the given labels
      sequential  all rows in the first cycle, which seats them one after the other in random order
      [(passes, fraction), ...]   fraction reached after this many passes' worth of assignments, linear in between
    constant and sequential have a single entry, 1. With knots, `passes` is taken from the last one. start_rows is the
    least number of active rows; growth waits until the curve has reached it. Raises ValueError for a schedule that does
    not rise to 1 or has fewer than 1 pass.

    For example plan("linear", 1000, 250, 2) is [0.25, 0.25, 0.5, 1].
    """
    if isinstance(schedule, str):
        if schedule not in SCHEDULES:
            raise ValueError(f"schedule {schedule!r} is not one of {', '.join(SCHEDULES)}, nor a list of knots")
        if schedule in ("constant", "sequential"):
            return np.ones(1)
    if n_rows < 1 or start_rows < 1:
        raise ValueError(f"a plan for {n_rows} rows from {start_rows} on: both must be at least 1")
    start = min(1.0, start_rows / n_rows)
    knots_u, knots_f = _knots(schedule, start, passes)
    if start == 1.0:
        return np.ones(1)

    # The cycle that reaches 1 ends somewhat beyond the curve's end. Rescale the curve's time, keeping the number of
    # cycles, until the cost is as requested.
    fractions = _follow(knots_u, knots_f, start)
    total = knots_u[-1]
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        if sum(fractions) < total * (1 + COST_TOLERANCE):
            break
        scale = (low + high) / 2
        tried = _follow([u / scale for u in knots_u], knots_f, start, len(fractions))
        if sum(tried) > total:
            high, fractions = scale, tried
        else:
            low = scale
    return np.array(fractions)


def _knots(schedule, start: float, passes: float) -> tuple[list[float], list[float]]:
    """Return u and beta(u) at the knots of a piecewise linear curve, from u = 0 to beta = 1."""
    if schedule == "linear":
        schedule = [(passes, 1.0)]
    elif schedule == "geometric":
        n = max(1, round(50 * log(1 / start)))  # steps of 2 %: the curve is right to 5e-5 in between
        schedule = [(passes * i / n, exp(log(start) * (1 - i / n))) for i in range(n + 1)]
    knots_u, knots_f = [float(u) for u, _ in schedule], [float(f) for _, f in schedule]
    if not knots_u or knots_u[0] > 0:
        knots_u, knots_f = [0.0, *knots_u], [0.0, *knots_f]
    rising = all(a < b for a, b in pairwise(knots_u)) and all(a <= b for a, b in pairwise(knots_f))
    if not rising or knots_u[0] < 0 or knots_f[0] < 0:
        raise ValueError(f"knots {schedule}: passes must rise from 0 or more, and fractions must not fall")
    if abs(knots_f[-1] - 1) > 1e-9:
        raise ValueError(f"knots {schedule}: the last fraction must be 1, so that all rows come in")
    if not 1 <= knots_u[-1] < 1e6:
        raise ValueError(f"a plan of {knots_u[-1]} passes: at least 1 is needed to seat all rows once")
    knots_f[-1] = 1.0
    return knots_u, knots_f


def _follow(knots_u: list[float], knots_f: list[float], start: float, n_cycles: int | None = None) -> list[float]:
    """Return the fractions of the cycles that follow a curve: until 1 is reached, or n_cycles of them, the last set
    to 1."""
    fractions, u, f, segment = [], 0.0, start, 0
    while n_cycles is None or len(fractions) < n_cycles - 1:
        # the least x >= f with beta(u + x) <= x, going through the segments from the one that u + f lies in
        x = f
        while x < 1:
            while segment + 1 < len(knots_u) and knots_u[segment + 1] <= u + x:
                segment += 1
            if segment + 1 == len(knots_u):
                x = 1.0
                break
            slope = (knots_f[segment + 1] - knots_f[segment]) / (knots_u[segment + 1] - knots_u[segment])
            above = knots_f[segment] + slope * (u + x - knots_u[segment]) - x
            if above <= 0:
                break
            end = knots_u[segment + 1] - u
            if slope < 1 and x + above / (1 - slope) <= end:
                x += above / (1 - slope)
                break
            x, segment = end, segment + 1
        f = min(x, 1.0)
        if n_cycles is None and f > 1 - 1e-12:
            break
        fractions.append(f)
        u += f
    return [*fractions, 1.0]


def shard_targets(fraction: float, sizes: np.ndarray) -> np.ndarray:
    """Return the active rows of each shard, int64: ceil(fraction N_s), safe from rounding up (docs/math.md 3.3)."""
    sizes = np.asarray(sizes, np.int64)
    return np.minimum(np.ceil(fraction * sizes * (1 - 1e-14)).astype(np.int64), sizes)


def next_fraction_seconds(
    elapsed_s: float, budget_s: float, fraction: float, fractions: Sequence[float], seconds: Sequence[float]
) -> float:
    """Return the active fraction of the next cycle in a plan that reaches 1 after budget_s: beta = elapsed / budget.

    elapsed_s: since the growth phase began. fraction: of the last cycle. fractions, seconds: of the last cycles, newest
    last; they predict c = sum(seconds) / sum(fractions) for a pass over all rows. The next cycle ends on the line,
    f = (elapsed + c f) / budget, but does not shrink the subsample and at most doubles it. The cycle over all rows
    comes when ending with it now misses the budget by less than ending one cycle later. Without a measured cycle the
    fraction stays.
    """
    if not len(seconds) or not sum(seconds) > 0:
        return min(1.0, fraction)
    pass_s = sum(seconds) / sum(fractions)
    left = budget_s - elapsed_s
    on_line = elapsed_s / (budget_s - pass_s) if budget_s > pass_s else 1.0
    step = min(max(fraction, on_line), 2 * fraction, 1.0)
    # After this cycle, doubling up to 1 takes at least _doubling(2 * step) passes.
    late = pass_s * (step + _doubling(2 * step)) - left
    early = left - pass_s * _doubling(2 * fraction)
    if late > early:
        step = min(2 * fraction, 1.0)
    return step


def _doubling(fraction: float) -> float:
    """Return the passes of cycles with fractions fraction, 2 fraction, ..., 1."""
    total = 0.0
    while fraction < 1:
        total += fraction
        fraction *= 2
    return total + 1.0
