"""Traits of ordered categories: position of a cluster's rows on the scale.

"q05 high (4 or 5), 69 %": the run of neighbouring levels, at most half the scale, whose share in the cluster diverges
most from its share in all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.text import percent

MIDDLE = "in the middle"


def telling_run(p: np.ndarray, q: np.ndarray) -> tuple[int, int]:
    """Return the first and last level of that run, which is over-represented in the cluster. p, q (V,): shares in the
    cluster and in all rows, levels in order, q positive where p is."""
    best, chosen = -1.0, (0, 0)
    cumulative = np.concatenate([[[0.0, 0.0]], np.cumsum([p, q], axis=1).T])
    n, longest = len(p), max(len(p) // 2, 1)
    runs = [(i, j) for i in range(n) for j in range(i, min(i + longest, n))]
    for i, j in sorted(runs, key=lambda run: run[0] > 0 and run[1] < n - 1):  # ties go to an end of the scale
        here, all_rows = np.clip(cumulative[j + 1] - cumulative[i], 1e-12, 1.0 - 1e-12)
        if here > all_rows:
            gain = here * np.log(here / all_rows) + (1 - here) * np.log((1 - here) / (1 - all_rows))
            if gain > best + 1e-9:
                best, chosen = gain, (i, j)
    return chosen


def place(first: int, last: int, n: int) -> str:
    """Name the position of a run on a scale of n levels."""
    return "low" if first == 0 else "high" if last == n - 1 else MIDDLE


def named(levels: Sequence[str]) -> str:
    """Format a run of levels: 4; 4 or 5; 3 to 5."""
    if len(levels) <= 2:
        return " or ".join(levels)
    return f"{levels[0]} to {levels[-1]}"


def in_words(where: str, levels: Sequence[str], share: float, plain: float) -> str:
    """Format a trait: high (4 or 5), 69 %, or amid the scale = 3, 2 or 3, 1 to 4; without the share if it is
    at least `plain`."""
    run = f"{where} ({named(levels)})" if where != MIDDLE else f"{'= ' * (len(levels) == 1)}{named(levels)}"
    return run + ("" if share >= plain else f", {percent(share)}")
