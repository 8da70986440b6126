"""Order of the chains of a run: by held-out score, or by log joint where scores do not tell them apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.settled import APART


def order(heldout: Sequence[float], late: Sequence[float]) -> tuple[list[int], bool]:
    """Return the places of the chains, the best first, and True if ranked by held-out score: if all have scores and
    these differ by more than APART. late: their log joints by `late_log_joint`."""
    by_score = bool(np.all(np.isfinite(heldout)) and np.ptp(heldout) > APART)
    values = heldout if by_score else late
    return sorted(range(len(values)), key=lambda i: -values[i]), by_score


def late_log_joint(later: dict[str, np.ndarray]) -> np.ndarray:
    """Return the log joints of the second half of a trace after burn-in."""
    return later["log_joint"][len(later["cycle"]) // 2 :]


def best_of(chains: Sequence[Chain], among: Collection[int]) -> int:
    """Return the place of the best chain among these places of chains, whose traces have been read."""
    places = sorted(among)
    if len(places) == 1:
        return places[0]
    traces = [chains[i].later() for i in places]
    late = [float(late_log_joint(later).mean()) if len(later["cycle"]) else -np.inf for later in traces]
    return places[order([_heldout(later) for later in traces], late)[0][0]]


def _heldout(later: dict[str, np.ndarray]) -> float:
    """Return the averaged held-out score, else the mean of the draws' scores, else NaN."""
    if not len(later["cycle"]):  # the trace has fewer cycles than the kept draws
        return np.nan
    averaged, each = float(later["heldout_lpd_averaged"][-1]), later["heldout_lpd"]
    each = each[np.isfinite(each)]
    return averaged if np.isfinite(averaged) else float(each.mean()) if len(each) else np.nan
